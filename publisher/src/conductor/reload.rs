//! SIGHUP: the configuration is read and checked again, and what can change does.
//!
//! It is read on a thread of its own, because it may wait for a disk or a name service, and the
//! conductor must not. Either everything that can change is taken over, or nothing.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tapecast_control::{Access, AnyListener, Entitlements};
use tapecast_fabric::Host;
use tapecast_telemetry::{Counter, Gauge};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::{Conductor, Settings};
use crate::clock::unix_now;
use crate::config::{Adopted, Config, Effective};
use crate::logging;

/// A configuration that was read again and checked.
#[derive(Debug)]
pub struct Fresh {
    /// What is to be from now on.
    pub adopted: Adopted,
    /// Users and groups of it.
    pub access: Access,
    /// Entitlements of it.
    pub entitlements: Entitlements,
}

/// Reads and checks the configuration again, given the running one. An error is a sentence.
pub type ReadAgain = Arc<dyn Fn(&Effective) -> Result<Fresh, String> + Send + Sync>;

type Read = Result<Box<Fresh>, String>;

/// How often the configuration was read again, and how that went. Clones are the same record.
#[derive(Clone, Debug, Default)]
pub struct ReloadRecord(Arc<Cells>);

#[derive(Debug, Default)]
struct Cells {
    last_failed: Gauge,
    last_success_unix_s: Gauge,
    applied: Counter,
    unchanged: Counter,
    refused: Counter,
}

/// What came of a configuration that was read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Something in it that can change had, and is in use.
    Applied,
    /// Nothing had that can change without a restart.
    Unchanged,
    /// It cannot be used, and the one before stays.
    Refused,
}

/// What a [`ReloadRecord`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadStatus {
    /// Whether the configuration that was read last is in use, as far as it can be without a
    /// restart.
    pub last_successful: bool,
    /// When the configuration in use was read, in seconds since the Unix epoch.
    pub last_success_unix_s: u64,
    /// Times that it was read again and something in it was taken over.
    pub applied: u64,
    /// Times that nothing in it had changed that can without a restart.
    pub unchanged: u64,
    /// Times that it could not be used.
    pub refused: u64,
}

impl ReloadRecord {
    /// Of a configuration that was read just now, at the start.
    #[must_use]
    pub fn begun() -> Self {
        let record = Self::default();
        record.0.last_success_unix_s.set(unix_now_s());
        record
    }

    fn note(&self, outcome: Outcome) {
        let cells = &*self.0;
        let is_refused = outcome == Outcome::Refused;
        cells.last_failed.set(u64::from(is_refused));
        if !is_refused {
            cells.last_success_unix_s.set(unix_now_s());
        }
        let count = match outcome {
            Outcome::Applied => &cells.applied,
            Outcome::Unchanged => &cells.unchanged,
            Outcome::Refused => &cells.refused,
        };
        count.increment();
    }

    /// What it says now.
    #[must_use]
    pub fn status(&self) -> ReloadStatus {
        let cells = &*self.0;
        ReloadStatus {
            last_successful: cells.last_failed.get() == 0,
            last_success_unix_s: cells.last_success_unix_s.get(),
            applied: cells.applied.get(),
            unchanged: cells.unchanged.get(),
            refused: cells.refused.get(),
        }
    }
}

fn unix_now_s() -> u64 {
    unix_now().0 / 1_000_000_000
}

/// Reads the configuration again when it is asked to.
pub struct Reloads {
    running: Effective,
    read: ReadAgain,
    record: ReloadRecord,
    under_way: Option<oneshot::Receiver<Read>>,
    /// Whether it was asked for again meanwhile: the file may have changed after it was read.
    again: bool,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloads").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Reloads {
    /// Of a publisher that runs with `running`.
    #[must_use]
    pub fn new(running: Effective, read: ReadAgain, record: ReloadRecord) -> Self {
        Self { running, read, record, under_way: None, again: false }
    }

    /// How it goes.
    #[must_use]
    pub fn record(&self) -> ReloadRecord {
        self.record.clone()
    }

    /// Begins to read; not twice at once.
    fn begin(&mut self) {
        if self.under_way.is_some() {
            self.again = true;
            return;
        }
        let (tell, told) = oneshot::channel();
        let (read, running) = (Arc::clone(&self.read), self.running.clone());
        let thread = std::thread::Builder::new().name("tapecast-reload".to_owned());
        // Where it cannot be started, `tell` is dropped with it, and that is told.
        let _started = thread.spawn(move || tell.send(read(&running).map(Box::new)));
        self.under_way = Some(told);
    }

    async fn wait(&mut self) -> Read {
        let Some(told) = &mut self.under_way else { return pending().await };
        let read = told.await;
        self.under_way = None;
        read.unwrap_or_else(|_| Err("no thread can be started to read it: try again".to_owned()))
    }
}

/// Waits until a configuration has been read again. Cancel-safe.
pub(super) async fn read_again(reloads: &mut Option<Reloads>) -> Read {
    match reloads {
        Some(reloads) => reloads.wait().await,
        None => pending().await,
    }
}

impl Settings {
    /// Takes over what can change while the publisher runs.
    pub fn follow(&mut self, config: &Config) {
        self.sessions_max = config.access.sessions_max.count();
        self.lag = config.lag.settings();
        self.stall_max = Duration::from_secs(config.access.stall_max_s.get());
        self.silent_after = Duration::from_secs(config.source.silent_after_s.get());
        self.departed = Duration::from_secs(config.metrics.departed_s.get());
    }
}

impl<H: Host> Conductor<H> {
    /// Begins to read the configuration again.
    pub(super) fn reload(&mut self) {
        match &mut self.reloads {
            Some(reloads) => {
                self.service.on_reload();
                reloads.begin();
            }
            None => info!("SIGHUP: there is no configuration to read again"),
        }
    }

    /// It was read: takes it over, or stays with the one before.
    pub(super) fn on_read(&mut self, read: Read) {
        let outcome = read.and_then(|fresh| self.take_over(*fresh)).unwrap_or_else(|error| {
            error!("SIGHUP: the configuration cannot be used, the last good one stays: {error}");
            Outcome::Refused
        });
        let Some(reloads) = &mut self.reloads else { return };
        reloads.record.note(outcome);
        if std::mem::take(&mut reloads.again) {
            reloads.begin();
        } else {
            self.service.on_reloaded();
        }
    }

    fn take_over(&mut self, fresh: Fresh) -> Result<Outcome, String> {
        let Fresh { adopted, access, entitlements } = fresh;
        // What can fail comes first.
        let has_tls = matches!(&self.listener, AnyListener::Tcp(tcp) if tcp.tls().is_some());
        self.listener.reload_tls().map_err(|error| error.to_string())?;
        self.listener.set_access(access).map_err(|error| {
            format!("the mode of the socket {} cannot be set: {error}", self.listener.place())
        })?;
        let Adopted { effective, changed, needs_restart } = adopted;
        self.entitlements = entitlements;
        self.settings.follow(&effective.config);
        self.silence.set_after(self.settings.silent_after);
        let (outcome, changed) = match changed.is_empty() {
            true => (Outcome::Unchanged, "nothing in it has changed".to_owned()),
            false => (Outcome::Applied, format!("changed: {}", changed.join(", "))),
        };
        let files = if has_tls { ", and the TLS files" } else { "" };
        logging::change_level(effective.config.log.level, || {
            info!("SIGHUP: the configuration was read again{files}; {changed}");
            for key in needs_restart {
                warn!("{key} cannot change while running: restart to apply");
            }
        });
        if let Some(reloads) = &mut self.reloads {
            reloads.running = effective;
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_says_whether_the_last_one_is_in_use_and_since_when() {
        let record = ReloadRecord::begun();
        let begun = record.status();
        assert!(begun.last_successful && begun.last_success_unix_s > 1_600_000_000);
        assert_eq!((begun.applied, begun.unchanged, begun.refused), (0, 0, 0));
        record.note(Outcome::Refused);
        let refused = ReloadStatus { last_successful: false, refused: 1, ..begun };
        assert_eq!(record.status(), refused, "the one in use is as old as it was");
        for outcome in [Outcome::Applied, Outcome::Unchanged, Outcome::Unchanged] {
            record.note(outcome);
        }
        let status = record.status();
        assert!(status.last_successful && status.last_success_unix_s >= begun.last_success_unix_s);
        assert_eq!((status.applied, status.unchanged, status.refused), (1, 2, 1));
    }
}
