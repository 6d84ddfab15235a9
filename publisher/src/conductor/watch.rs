//! What the conductor looks at again and again: sessions that hold up others or have failed.

use std::time::{Duration, Instant};

use serde::Serialize;
use tapecast_core::session::Eviction;
use tapecast_fabric::{Host, Monitor};
use tapecast_wire::Nanos;
use tracing::{info, warn};

use super::silence::{Change, nanos};
use super::{Conductor, TICK};
use crate::clock::unix_now;
use crate::service::{Doing, Signs};

/// The longest time between two looks at lags that counts: three looks.
const LAG_LOOK_MAX: Duration = Duration::from_millis(300);

/// Sessions that were taken out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evictions {
    /// It asked to be disconnected rather than to lag so far.
    pub lagging: u64,
    /// It asked to be disconnected rather than conflated, and its ring was full.
    pub overrun: u64,
    /// It was lossless and stopped all others.
    pub stalled: u64,
    /// It gave no sign of life.
    pub silent: u64,
    /// It claimed what cannot be true.
    pub liar: u64,
    /// A write into its memory failed.
    pub unreachable: u64,
}

impl Evictions {
    const fn count(&mut self, reason: &Eviction) {
        *match reason {
            Eviction::Lagging { .. } => &mut self.lagging,
            Eviction::Overrun => &mut self.overrun,
            Eviction::Stalled { .. } => &mut self.stalled,
            Eviction::Silent { .. } => &mut self.silent,
            Eviction::Liar(_) => &mut self.liar,
            Eviction::Unreachable => &mut self.unreachable,
        } += 1;
    }
}

impl<H: Host> Conductor<H> {
    /// Looks at the sessions, unless that was done a moment ago.
    pub(super) fn look_around(&mut self, now: Instant) {
        if now.duration_since(self.looked) < TICK {
            return;
        }
        self.looked = now;
        self.evict_fallen();
        self.evict_stalled(now);
        self.watch_lags(now);
        self.listen(now);
        self.sample_fan_out();
        self.tell_service(now);
        for event in self.host.take_events() {
            warn!("RDMA device: {event}");
        }
    }

    /// Puts the subscribers' samples together, every few time slots.
    fn sample_fan_out(&mut self) {
        let now = unix_now();
        if self.fan_out.is_due(now) {
            let published = self.progress.load().published;
            self.fan_out.on_look(now, published, &self.roster.timings());
        }
    }

    /// Takes out sessions that the fabric has given up. One that has left by itself is not among
    /// them: what was still on its way to it must fail.
    pub(super) fn evict_fallen(&mut self) {
        for member in self.roster.members_mut().filter(|member| member.reason.is_none()) {
            if let Some(reason) = member.monitor.evicted()
                && member.evict(&reason)
            {
                self.evictions.count(&reason);
            }
        }
    }

    /// Counts who lags, and takes out who asked for that rather than to lag too far.
    fn watch_lags(&mut self, now: Instant) {
        // A look that comes late says that this process stood still, and nothing about sessions.
        let passed = now.duration_since(self.lags_seen).min(LAG_LOOK_MAX);
        self.lags_seen = now;
        self.lag_time = Nanos(self.lag_time.0 + nanos(passed));
        let time = self.lag_time;
        let soft = self.settings.lag.soft;
        for member in self.roster.members_mut().filter(|member| member.reason.is_none()) {
            if let Some(reason) = member.watch_lag(soft, time)
                && member.evict(&reason)
            {
                self.evictions.count(&reason);
            }
        }
    }

    /// Takes out lossless sessions that stop the sender and read nothing.
    fn evict_stalled(&mut self, now: Instant) {
        if !self.progress.load().gated {
            return;
        }
        let stall_max = self.settings.stall_max;
        for member in self.roster.members_mut().filter(|member| member.is_lossless()) {
            let reason = Eviction::Stalled { seconds: stall_max.as_secs() };
            if member.has_stalled(now, stall_max) && member.evict(&reason) {
                self.evictions.count(&reason);
            }
        }
    }

    /// Looks whether the feed is heard, once the source was let go and until it has ended.
    fn listen(&mut self, now: Instant) {
        if self.gate.is_none() && self.feed.is_none() {
            let change = self.silence.on_look(self.watch.pulse.beats(), now);
            self.tell_silence(change);
        }
    }

    /// The source has ended. That is not silence, and who waits for the feed is told.
    pub(super) fn end_silence(&mut self) {
        let change = self.silence.on_end();
        self.tell_silence(change);
    }

    fn tell_silence(&self, change: Option<Change>) {
        let since = match change {
            None => return,
            Some(Change::Silent { quiet }) => {
                warn!(
                    silent_s = seconds(quiet),
                    "the feed is silent: its source is connected and sends nothing, so books may \
                     be out of date; check what feeds source.file, or raise \
                     source.silent_after_s if the market may be this quiet"
                );
                // At least 1: 0 says that it is not silent.
                Nanos(unix_now().since(Nanos(nanos(quiet))).0.max(1))
            }
            Some(Change::Heard { quiet }) => {
                info!(silent_s = seconds(quiet), "the feed is heard again");
                Nanos(0)
            }
        };
        self.watch.silent_since.set(since);
        self.watch.bell.ring();
    }

    /// Tells the service manager how the publisher is.
    pub(super) fn tell_service(&mut self, now: Instant) {
        if !self.service.listens() {
            return;
        }
        let signs = Signs {
            sender_beats: self.progress.beats(),
            feed_beats: self.watch.pulse.beats(),
            feed_works: self.watch.pulse.is_working(),
        };
        let doing = Doing {
            subscribers: self.roster.attached_count(),
            awaited: self.gate.as_ref().map(|_| self.settings.wait_for),
            published: self.progress.load().published,
            is_silent: self.silence.is_silent(),
            has_ended: self.feed.is_some(),
        };
        self.service.on_look(signs, &doing, now);
    }

    /// Whether everything is published and read by all who read.
    pub(super) fn has_drained(&mut self, now: Instant) -> bool {
        let stall_max = self.settings.stall_max;
        self.progress.load().drained
            && self.tickets.is_empty()
            && self
                .roster
                .members_mut()
                .all(|member| member.lag_bytes() == 0 || member.has_stalled(now, stall_max))
    }
}

/// Seconds, to a tenth: as fine as the looks are.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}
