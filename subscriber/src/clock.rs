//! The clocks, read in one place, and how the publisher's relates to them. Reading none of them
//! enters the kernel.

use core::time::Duration;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tapecast_control::ClockEstimate;
use tapecast_fabric::ClockReport;
use tapecast_telemetry::Gauge;
use tapecast_wire::Nanos;

/// Unix time: what the publisher stamps into snapshots.
pub(crate) fn unix_now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// From publishing to delivery, in nanoseconds: negative where this host's clock is behind the
/// publisher's by more than the way takes. Times that are ages apart are nobody's honest word, and
/// come out as anything.
#[inline]
pub(crate) const fn transit_ns(published: Nanos, received: Nanos) -> i64 {
    received.get().wrapping_sub(published.get()).cast_signed()
}

/// Monotonic time to a few milliseconds, for a quarter of the price of an exact one. For deciding
/// whether it is time to look after something.
pub(crate) fn coarse_now() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos.min(999_999_999))
}

/// Monotonic time, exact.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How the clocks of the two hosts relate: the keeper writes, the polling thread reads.
#[derive(Debug, Default)]
pub(crate) struct SharedClock {
    /// As two's complement.
    offset_ns: Gauge,
    error_ns: Gauge,
    round_trip_ns: Gauge,
}

impl SharedClock {
    pub(crate) fn show(&self, estimate: &ClockEstimate) {
        self.offset_ns.set(estimate.offset_ns.cast_unsigned());
        self.error_ns.set(estimate.error_ns);
        self.round_trip_ns.set(estimate.round_trip_ns.max(1));
    }

    /// All zero while nothing is known, or both are on one host.
    pub(crate) fn load(&self) -> ClockReport {
        ClockReport {
            offset_ns: self.offset_ns.get().cast_signed(),
            error_ns: self.error_ns.get(),
            round_trip_ns: self.round_trip_ns.get(),
        }
    }
}

/// Time between the first pings of a session, and between later ones: soon something is known, and
/// then it is kept fresh.
const FIRST_PINGS_EVERY: Duration = Duration::from_millis(200);
const PINGS_EVERY: Duration = Duration::from_secs(5);
const FIRST_PINGS: u32 = 8;

/// Says when to ask the publisher for the time; never where both are on one host, with one clock.
#[derive(Debug)]
pub(crate) struct Pings {
    wanted: bool,
    sent: u32,
    next: Option<Instant>,
}

impl Pings {
    pub(crate) const fn new(wanted: bool) -> Self {
        Self { wanted, sent: 0, next: None }
    }

    /// Another session begins.
    pub(crate) const fn restart(&mut self) {
        (self.sent, self.next) = (0, None);
    }

    /// Whether one is to be sent now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        if !self.wanted || self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.sent = self.sent.saturating_add(1);
        let pause = if self.sent < FIRST_PINGS { FIRST_PINGS_EVERY } else { PINGS_EVERY };
        self.next = Some(now + pause);
        true
    }

    /// How long to sleep at most; `None` for as long as one likes.
    pub(crate) fn until_due(&self, now: Instant) -> Option<Duration> {
        self.wanted.then(|| self.next.map_or(Duration::ZERO, |next| next.duration_since(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_begins_with_some_pings_and_then_asks_now_and_then() {
        let start = Instant::now();
        let mut pings = Pings::new(true);
        let mut now = start;
        for _ in 0..FIRST_PINGS {
            assert!(pings.is_due(now) && !pings.is_due(now));
            now += pings.until_due(now).unwrap();
        }
        let spent = FIRST_PINGS_EVERY * (FIRST_PINGS - 1) + PINGS_EVERY;
        assert_eq!(now - start, spent);
        pings.restart();
        assert!(pings.is_due(now));
        assert_eq!(pings.until_due(now), Some(FIRST_PINGS_EVERY));
    }

    #[test]
    fn on_one_host_nobody_is_asked_and_nobody_wakes_up_for_it() {
        let mut pings = Pings::new(false);
        let now = Instant::now();
        assert!(!pings.is_due(now));
        assert_eq!(pings.until_due(now), None);
    }
}
