//! Whether the publisher shows signs of life.
//!
//! Judged by change, not by age: a heartbeat that moved between two looks is a sign of life,
//! however
//! the clocks of the two processes relate, and a subscriber that was itself stopped for a while
//! does
//! not blame the publisher for it.

use core::time::Duration;

use tapecast_wire::Nanos;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time between two reports to the publisher.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// What the heartbeat says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Alive,
    Silent,
}

/// Watches one publisher's heartbeat. Times are monotonic.
#[derive(Debug)]
pub(crate) struct Pulse {
    timeout: Duration,
    last: Nanos,
    /// When the heartbeat was last seen to move. `None` before the first look.
    moved: Option<Duration>,
    looked: Option<Duration>,
    reported: Option<Duration>,
}

impl Pulse {
    pub(crate) const fn new(timeout: Duration, heartbeat: Nanos) -> Self {
        Self { timeout, last: heartbeat, moved: None, looked: None, reported: None }
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        let due = self.looked.is_none_or(|looked| now.saturating_sub(looked) >= LOOK_EVERY);
        if due {
            self.looked = Some(now);
        }
        due
    }

    /// Whether it is time to report.
    pub(crate) fn report_is_due(&mut self, now: Duration) -> bool {
        let due = self.reported.is_none_or(|reported| now.saturating_sub(reported) >= REPORT_EVERY);
        if due {
            self.reported = Some(now);
        }
        due
    }

    /// Judges the heartbeat as it is now.
    pub(crate) fn on_heartbeat(&mut self, heartbeat: Nanos, now: Duration) -> Sign {
        if heartbeat != self.last {
            self.last = heartbeat;
            self.moved = Some(now);
            return Sign::Alive;
        }
        let moved = *self.moved.get_or_insert(now);
        if now.saturating_sub(moved) > self.timeout { Sign::Silent } else { Sign::Alive }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_heartbeat_that_stands_still_is_silence_only_after_the_timeout() {
        let mut pulse = Pulse::new(at(1_000), Nanos(5));
        assert_eq!(pulse.on_heartbeat(Nanos(5), at(10)), Sign::Alive);
        assert_eq!(pulse.on_heartbeat(Nanos(5), at(1_010)), Sign::Alive);
        assert_eq!(pulse.on_heartbeat(Nanos(5), at(1_011)), Sign::Silent);
        assert_eq!(pulse.on_heartbeat(Nanos(6), at(1_020)), Sign::Alive);
    }

    #[test]
    fn a_subscriber_that_slept_does_not_call_a_living_publisher_silent() {
        let mut pulse = Pulse::new(at(1_000), Nanos(5));
        assert_eq!(pulse.on_heartbeat(Nanos(6), at(0)), Sign::Alive);
        assert_eq!(pulse.on_heartbeat(Nanos(7), at(60_000)), Sign::Alive);
        assert_eq!(pulse.on_heartbeat(Nanos(7), at(60_500)), Sign::Alive);
    }

    #[test]
    fn a_clock_that_steps_back_does_not_matter() {
        let mut pulse = Pulse::new(at(1_000), Nanos(500));
        assert_eq!(pulse.on_heartbeat(Nanos(100), at(5_000)), Sign::Alive);
    }

    #[test]
    fn looks_and_reports_keep_their_distance() {
        let mut pulse = Pulse::new(at(1_000), Nanos(0));
        assert!(pulse.is_due(at(0)) && !pulse.is_due(at(9)) && pulse.is_due(at(10)));
        assert!(pulse.report_is_due(at(0)) && !pulse.report_is_due(at(999)));
        assert!(pulse.report_is_due(at(1_000)));
    }
}
