//! What the service manager (systemd) is told: that the publisher is ready, what it does, that it
//! reads its configuration again, that it ends, and that it is alive.
//!
//! The conductor calls in here as it looks around. Where no service manager listens
//! (`NOTIFY_SOCKET` is not set), nothing is told and nothing is worked out.

mod readiness;
mod starting;
mod status;
mod watchdog;

use std::time::Instant;

use sd_notify::NotifyState;
use tracing::warn;

use readiness::Readiness;
use starting::Starting;
pub(crate) use status::Doing;
use status::Status;
pub(crate) use watchdog::Signs;
use watchdog::Watchdog;

use crate::feed::InputPulse;

/// Where the service manager listens.
const NOTIFY_VARIABLE: &str = "NOTIFY_SOCKET";

/// The service manager, or nobody.
#[derive(Debug, Default)]
pub struct ServiceManager(Option<Link>);

/// What is known of a service manager that listens.
#[derive(Debug)]
struct Link {
    /// Until the conductor tells how the publisher is.
    starting: Option<Starting>,
    watchdog: Option<Watchdog>,
    status: Status,
    readiness: Readiness,
    /// Whether it could not be told something: that is logged once.
    has_failed: bool,
}

impl ServiceManager {
    /// Whom this process's environment names.
    #[must_use]
    pub fn of_environment() -> Self {
        let listens = std::env::var_os(NOTIFY_VARIABLE).is_some_and(|socket| !socket.is_empty());
        Self(listens.then(|| Link {
            starting: None,
            watchdog: sd_notify::watchdog_enabled().and_then(Watchdog::new),
            status: Status::default(),
            readiness: Readiness::default(),
            has_failed: false,
        }))
    }

    /// The source is being opened. From here to the conductor's first look it is told what the
    /// publisher waits for, and asked for more time as long as `input` gives signs of life.
    pub fn on_start(&mut self, input: &InputPulse) {
        let Self(Some(link)) = self else { return };
        link.tell(&[NotifyState::Status("opening the source")]);
        match Starting::begin(input.clone()) {
            Ok(starting) => link.starting = Some(starting),
            Err(error) => link.complain(&error),
        }
    }

    /// Whether there is anybody to tell.
    pub(crate) const fn listens(&self) -> bool {
        self.0.is_some()
    }

    /// The conductor has looked around: subscribers can attach. Ready with the sender's first duty
    /// cycle; alive while its duty cycles go on, and the feed's work.
    pub(crate) fn on_look(&mut self, signs: Signs, doing: &Doing, now: Instant) {
        let Self(Some(link)) = self else { return };
        link.starting = None;
        if link.readiness.on_look(signs.sender_beats) {
            link.tell(&[NotifyState::Ready]);
        }
        if link.watchdog.as_mut().is_some_and(|watchdog| watchdog.on_look(signs, now)) {
            link.tell(&[NotifyState::Watchdog]);
        }
        if let Some(status) = link.status.on_look(doing, now) {
            link.tell(&[NotifyState::Status(&status)]);
        }
    }

    /// The configuration is being read again.
    pub(crate) fn on_reload(&mut self) {
        let Self(Some(link)) = self else { return };
        if !link.readiness.on_reload() {
            return;
        }
        match NotifyState::monotonic_usec_now() {
            // Together: newer releases tell by the time which reload was meant.
            Ok(time) => link.tell(&[NotifyState::Reloading, time]),
            Err(error) => link.complain(&error),
        }
    }

    /// That is over, whatever came of it.
    pub(crate) fn on_reloaded(&mut self) {
        if let Self(Some(link)) = self
            && link.readiness.on_reloaded()
        {
            link.tell(&[NotifyState::Ready]);
        }
    }

    /// The publisher ends. From here on the service manager looks at the time that this takes, and
    /// no longer at signs of life.
    pub(crate) fn on_end(&mut self, why: &str) {
        if let Self(Some(link)) = self {
            let status = format!("ending: {why}");
            link.tell(&[NotifyState::Stopping, NotifyState::Status(&status)]);
        }
    }
}

impl Link {
    fn tell(&mut self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            self.complain(&error);
        }
    }

    fn complain(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            warn!(
                "the service manager cannot be told how the publisher is ({NOTIFY_VARIABLE} names \
                 no socket that takes it): {error}"
            );
        }
    }
}
