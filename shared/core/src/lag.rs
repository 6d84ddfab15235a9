//! How far a session is behind, in bytes and in time.

use tapecast_wire::{Nanos, Position};

/// How far a session is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Bytes that are published for it and not consumed.
    pub bytes: u64,
    /// How long ago the oldest of them was published, as far as is known: at least this long.
    pub time: Nanos,
}

/// From when on a lag is too large. Either one is enough; 0 for no such limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LagLimit {
    /// Bytes.
    pub bytes: u64,
    /// Time.
    pub time: Nanos,
}

impl LagLimit {
    /// Whether `lag` is beyond it.
    #[must_use]
    pub const fn is_exceeded(self, lag: Lag) -> bool {
        (self.bytes > 0 && lag.bytes > self.bytes) || (self.time.0 > 0 && lag.time.0 > self.time.0)
    }

    /// The limit that somebody wishes for, where no more than this is allowed.
    #[must_use]
    pub const fn tightened(self, wish: Self) -> Self {
        Self {
            bytes: tighter(self.bytes, wish.bytes),
            time: Nanos(tighter(self.time.0, wish.time.0)),
        }
    }
}

/// The lower one; 0 is no limit.
const fn tighter(ceiling: u64, wish: u64) -> u64 {
    if wish == 0 || (ceiling > 0 && ceiling < wish) { ceiling } else { wish }
}

/// Measures the lag of one session from what is seen of it now and then.
///
/// Nobody writes down when each byte was published. But what was the tail at one look and is not
/// consumed at a later one has waited for at least the time between.
#[derive(Clone, Copy, Debug, Default)]
pub struct LagGauge {
    /// A tail that was seen and is not consumed yet.
    mark: Option<Mark>,
    /// How long the mark before was waited for.
    before: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    position: Position,
    /// When it was seen first, and when it was last seen not to be consumed. When exactly it was
    /// consumed after that, nobody knows.
    since: Nanos,
    until: Nanos,
}

impl LagGauge {
    /// Looks at a session that has consumed up to `consumed` and has `bytes` to consume.
    pub fn on_look(&mut self, consumed: Position, bytes: u64, now: Nanos) -> Lag {
        if bytes == 0 {
            *self = Self::default();
            return Lag::default();
        }
        let tail = Position(consumed.0.saturating_add(bytes));
        let mark = self.mark.get_or_insert(Mark { position: tail, since: now, until: now });
        if consumed < mark.position {
            mark.until = now;
            return Lag { bytes, time: now.since(mark.since).max(self.before) };
        }
        // One that is always the same time behind must not look as if it had caught up.
        self.before = mark.until.since(mark.since);
        *mark = Mark { position: tail, since: now, until: now };
        Lag { bytes, time: self.before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_stands_still_is_behind_since_it_was_first_seen_so() {
        let mut gauge = LagGauge::default();
        assert_eq!(gauge.on_look(Position(0), 0, Nanos(5)), Lag::default());
        assert_eq!(gauge.on_look(Position(0), 64, Nanos(10)).time, Nanos(0));
        let lag = gauge.on_look(Position(0), 640, Nanos(25));
        assert_eq!(lag, Lag { bytes: 640, time: Nanos(15) });
    }

    #[test]
    fn one_that_is_always_as_far_behind_never_looks_as_if_it_had_caught_up() {
        let mut gauge = LagGauge::default();
        // 100 bytes in each unit of time, consumed 3 units later: it is known to be 2 behind.
        let times: Vec<u64> = (3..30)
            .map(|now| gauge.on_look(Position((now - 3) * 100), 300, Nanos(now)).time.0)
            .collect();
        assert_eq!(times[..3], [0, 1, 2]);
        assert!(times[3..].iter().all(|time| *time == 2), "{times:?}");
    }

    #[test]
    fn one_that_consumes_between_two_looks_is_not_behind_by_the_time_between_them() {
        let mut gauge = LagGauge::default();
        for look in 0..10 {
            // Something is unread at each look, and it is never the same.
            let lag = gauge.on_look(Position(look * 640), 64, Nanos(look * 1_000_000));
            assert_eq!(lag, Lag { bytes: 64, time: Nanos(0) });
        }
    }

    #[test]
    fn one_that_has_read_everything_is_not_behind() {
        let mut gauge = LagGauge::default();
        gauge.on_look(Position(0), 64, Nanos(0));
        gauge.on_look(Position(0), 64, Nanos(1000));
        assert_eq!(gauge.on_look(Position(64), 0, Nanos(1001)), Lag::default());
        assert_eq!(gauge.on_look(Position(64), 64, Nanos(1002)).time, Nanos(0));
    }

    #[test]
    fn a_clock_that_goes_back_makes_nobody_late() {
        let mut gauge = LagGauge::default();
        gauge.on_look(Position(0), 64, Nanos(1000));
        assert_eq!(gauge.on_look(Position(0), 64, Nanos(10)).time, Nanos(0));
    }

    #[test]
    fn nobody_is_granted_more_than_the_publisher_allows() {
        let limit = |bytes, time| LagLimit { bytes, time: Nanos(time) };
        let ceiling = limit(100, 0);
        assert_eq!(ceiling.tightened(limit(0, 0)), ceiling);
        assert_eq!(ceiling.tightened(limit(50, 7)), limit(50, 7));
        assert_eq!(ceiling.tightened(limit(500, 0)), ceiling);
    }

    #[test]
    fn either_limit_is_enough_and_none_is_none() {
        let lag = Lag { bytes: 10, time: Nanos(10) };
        let exceeded = |bytes, time| LagLimit { bytes, time: Nanos(time) }.is_exceeded(lag);
        assert!(exceeded(9, 0) && exceeded(0, 9) && exceeded(100, 9));
        assert!(!exceeded(0, 0) && !exceeded(10, 10));
    }
}
