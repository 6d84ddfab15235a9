//! Decides when a feed that is connected counts as silent, and when it is heard again.

use std::time::{Duration, Instant};

use serde::Serialize;

/// A look that comes later than this after the one before says nothing about the time between: this
/// process was stopped, or starved, and the feed thread with it.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Silent spells of a feed, those that have ended and the present one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SilenceRecord {
    /// How many.
    pub spells: u64,
    /// How long all of them took, each from the last sign of life to the next, in nanoseconds.
    pub total_ns: u64,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The feed has been quiet for so long that it counts as silent.
    Silent { quiet: Duration },
    /// It was heard again after so long.
    Heard { quiet: Duration },
}

/// Judges a feed by whether its beats change from look to look. Keeps no clock.
#[derive(Debug)]
pub(super) struct Silence {
    /// Quiet for so long is silence; zero for never.
    after: Duration,
    /// Beats at the last look, and when that was; `None` before the first one.
    looked: Option<(u64, Instant)>,
    /// Since the beats were last seen to change.
    quiet: Duration,
    is_silent: bool,
    record: SilenceRecord,
}

impl Silence {
    /// Of a feed that nobody has looked at yet.
    pub(super) const fn new(after: Duration) -> Self {
        let record = SilenceRecord { spells: 0, total_ns: 0 };
        Self { after, looked: None, quiet: Duration::ZERO, is_silent: false, record }
    }

    /// Changes how long a feed may be quiet.
    pub(super) const fn set_after(&mut self, after: Duration) {
        self.after = after;
    }

    /// Whether the feed is silent now.
    pub(super) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Looks at the beats of a feed that is connected.
    pub(super) fn on_look(&mut self, beats: u64, now: Instant) -> Option<Change> {
        let before = self.looked.replace((beats, now));
        let (last, looked) = before?;
        let passed = now.saturating_duration_since(looked).min(LOOK_MAX);
        self.add(passed);
        let quiet = self.quiet;
        if beats != last {
            self.quiet = Duration::ZERO;
            return core::mem::take(&mut self.is_silent).then_some(Change::Heard { quiet });
        }
        if self.is_silent || self.after.is_zero() || quiet < self.after {
            return None;
        }
        self.is_silent = true;
        self.record.spells += 1;
        self.record.total_ns += nanos(quiet);
        Some(Change::Silent { quiet })
    }

    /// The source has ended, or is told to: it is not looked at any more. A spell ends with it.
    pub(super) fn on_end(&mut self) -> Option<Change> {
        self.looked = None;
        let quiet = core::mem::take(&mut self.quiet);
        core::mem::take(&mut self.is_silent).then_some(Change::Heard { quiet })
    }

    /// Since it was last heard, in nanoseconds, to the accuracy of the looks.
    pub(super) fn quiet_ns(&self) -> u64 {
        nanos(self.quiet)
    }

    /// All spells so far.
    pub(super) const fn record(&self) -> SilenceRecord {
        self.record
    }

    fn add(&mut self, passed: Duration) {
        self.quiet += passed;
        if self.is_silent {
            self.record.total_ns += nanos(passed);
        }
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_millis(500);
    const TICK: Duration = Duration::from_millis(100);

    /// Looks at one feed every tick.
    struct Looks {
        silence: Silence,
        now: Instant,
    }

    impl Looks {
        fn new(after: Duration) -> Self {
            Self { silence: Silence::new(after), now: Instant::now() }
        }

        fn after(&mut self, passed: Duration, beats: u64) -> Option<Change> {
            self.now += passed;
            self.silence.on_look(beats, self.now)
        }

        /// As many ticks as given, with the same beats: what each found.
        fn ticks(&mut self, count: u32, beats: u64) -> Vec<Change> {
            (0..count).filter_map(|_| self.after(TICK, beats)).collect()
        }
    }

    #[test]
    fn a_feed_that_beats_is_never_silent() {
        let mut looks = Looks::new(AFTER);
        let changes: Vec<_> = (0..100).filter_map(|beats| looks.after(TICK, beats)).collect();
        assert_eq!((changes, looks.silence.record()), (vec![], SilenceRecord::default()));
    }

    #[test]
    fn silence_begins_once_after_the_time_and_ends_with_the_next_beat() {
        let mut looks = Looks::new(AFTER);
        assert_eq!(looks.ticks(5, 7), [], "five looks are four ticks");
        assert_eq!(looks.ticks(20, 7), [Change::Silent { quiet: AFTER }]);
        let quiet = 25 * TICK;
        assert_eq!(looks.ticks(1, 8), [Change::Heard { quiet }]);
        let total_ns = nanos(quiet);
        assert_eq!(looks.silence.record(), SilenceRecord { spells: 1, total_ns });
        assert_eq!(looks.ticks(4, 8), []);
        assert_eq!(looks.ticks(1, 8), [Change::Silent { quiet: AFTER }]);
        let total_ns = nanos(quiet + AFTER);
        assert_eq!(looks.silence.record(), SilenceRecord { spells: 2, total_ns });
    }

    #[test]
    fn a_feed_that_is_heard_just_in_time_is_not_silent() {
        let mut looks = Looks::new(AFTER);
        let mut beats = 0;
        for _ in 0..50 {
            beats += 1;
            assert_eq!(looks.ticks(5, beats), []);
        }
        assert_eq!(looks.silence.record(), SilenceRecord::default());
    }

    #[test]
    fn the_first_look_only_begins() {
        let mut looks = Looks::new(AFTER);
        assert_eq!(looks.after(Duration::from_secs(3600), 0), None);
        assert_eq!(looks.ticks(4, 0), []);
    }

    #[test]
    fn a_process_that_was_stopped_does_not_blame_the_feed() {
        let mut looks = Looks::new(Duration::from_secs(10));
        looks.ticks(2, 3);
        assert_eq!(looks.after(Duration::from_secs(3600), 3), None);
        assert_eq!(looks.ticks(1, 4), []);
        assert_eq!(looks.silence.record(), SilenceRecord::default());
    }

    #[test]
    fn zero_is_never() {
        let mut looks = Looks::new(Duration::ZERO);
        assert_eq!(looks.ticks(10_000, 3), []);
    }

    #[test]
    fn the_end_of_the_source_ends_a_spell_and_its_time_does_not_go_on() {
        let mut looks = Looks::new(AFTER);
        assert_eq!(looks.silence.on_end(), None);
        looks.ticks(6, 3);
        assert_eq!(looks.silence.on_end(), Some(Change::Heard { quiet: AFTER }));
        assert_eq!(looks.silence.on_end(), None);
        let total_ns = nanos(AFTER);
        assert_eq!(looks.silence.record(), SilenceRecord { spells: 1, total_ns });
    }
}
