//! What the conductor looks at again and again: sessions that hold up others or have failed.

use std::time::{Duration, Instant};

use tapecast_control::AnyListener;
use tapecast_fabric::{Host, Monitor};
use tapecast_wire::Nanos;
use tracing::{info, warn};

use super::silence::{Change, nanos};
use super::{Conductor, TICK};
use crate::clock::unix_now;

impl<H: Host> Conductor<H> {
    /// Looks at the sessions, unless that was done a moment ago.
    pub(super) fn look_around(&mut self, now: Instant) {
        if now.duration_since(self.looked) < TICK {
            return;
        }
        self.looked = now;
        self.evict_fallen();
        self.evict_stalled(now);
        self.listen(now);
        for event in self.host.take_events() {
            warn!("RDMA device: {event}");
        }
    }

    /// Takes out sessions that the fabric has given up. One that has left by itself is not among
    /// them: what was still on its way to it must fail.
    pub(super) fn evict_fallen(&mut self) {
        for member in self.roster.members_mut().filter(|member| member.reason.is_none()) {
            if let Some(text) = member.monitor.evicted() {
                member.evict(text);
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
            if member.has_stalled(now, stall_max) {
                let seconds = stall_max.as_secs();
                member.evict(format!(
                    "evicted: a lossless subscriber that reads nothing for {seconds} s stops all \
                     others; read faster, or attach with the conflating policy"
                ));
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

    /// Reads the files of the certificates again. Those that are in use stay when that fails.
    pub(super) fn reload_tls(&self) {
        match &self.listener {
            AnyListener::Tcp(listener) if listener.tls().is_some() => {
                match self.listener.reload_tls() {
                    Ok(()) => info!("SIGHUP: the TLS files were read again and are in use"),
                    Err(error) => {
                        warn!("SIGHUP: the TLS files in use stay: {error}");
                    }
                }
            }
            _ => info!("SIGHUP: there are no TLS files to read again"),
        }
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
