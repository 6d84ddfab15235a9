//! How long something has lasted in all, the present spell included.

use std::sync::atomic::{AtomicU64, Ordering};

/// Set in the word while a spell lasts.
const LASTS: u64 = 1 << 63;

/// Time of all spells of something, e.g. of waiting. One thread says when they begin and end, with
/// plain stores, and anybody reads, at any time. Times are Unix nanoseconds, of one clock.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Spells {
    /// One word, so that whoever reads never sees half a change: the time of all spells; or while
    /// one lasts, since when it would have to last to make up that time, and [`LASTS`].
    word: AtomicU64,
    /// Time of the spells that have ended. A clock that is set back takes nothing of it away.
    ended_ns: AtomicU64,
}

impl Spells {
    /// Whether one lasts from now on, or none. Saying the same again changes nothing.
    pub fn set(&self, lasts: bool, now_ns: u64) {
        if lasts == (self.word.load(Ordering::Relaxed) & LASTS != 0) {
            return;
        }
        let total_ns = self.total_ns(now_ns);
        if lasts {
            self.word.store(now_ns.saturating_sub(total_ns) | LASTS, Ordering::Release);
        } else {
            self.ended_ns.store(total_ns, Ordering::Relaxed);
            self.word.store(total_ns, Ordering::Release);
        }
    }

    /// Time of all spells, of the present one as far as it has lasted at `now_ns`.
    #[must_use]
    pub fn total_ns(&self, now_ns: u64) -> u64 {
        // Acquire: pairs with the Release stores in `set`, so that what has ended is not older.
        let word = self.word.load(Ordering::Acquire);
        if word & LASTS == 0 {
            return word;
        }
        now_ns.saturating_sub(word & !LASTS).max(self.ended_ns.load(Ordering::Relaxed))
    }
}

/// The highest value so far of what may seem to fall: the time of [`Spells`] does where the writer
/// is interrupted between its look at the clock and its word, or where the clock is set back.
#[derive(Debug, Default)]
pub struct Highest(AtomicU64);

impl Highest {
    /// `value`, or the highest before it.
    pub fn with(&self, value: u64) -> u64 {
        // Relaxed: it orders nothing.
        self.0.fetch_max(value, Ordering::Relaxed).max(value)
    }
}

#[cfg(test)]
mod tests {
    use super::{Highest, Spells};

    const DAY: u64 = 1_800_000_000_000_000_000;

    #[test]
    fn spells_are_added_up_and_the_present_one_counts_while_it_lasts() {
        let spells = Spells::default();
        assert_eq!(spells.total_ns(DAY), 0);
        for (now, lasts, before, after) in [
            (DAY, true, 0, 7),
            (DAY + 50, true, 50, 57),
            (DAY + 100, false, 100, 100),
            (DAY + 900, false, 100, 100),
            (DAY + 1_000, true, 100, 107),
            (DAY + 1_010, false, 110, 110),
        ] {
            assert_eq!(spells.total_ns(now), before, "at {now}");
            spells.set(lasts, now);
            assert_eq!(spells.total_ns(now), before, "at {now}: no time has passed");
            assert_eq!(spells.total_ns(now + 7), after, "after {now}");
        }
    }

    #[test]
    fn what_is_told_as_the_highest_never_falls() {
        let highest = Highest::default();
        assert_eq!([3, 7, 5, 8].map(|value| highest.with(value)), [3, 7, 7, 8]);
    }

    #[test]
    fn a_clock_that_is_set_back_takes_nothing_away() {
        let spells = Spells::default();
        spells.set(true, DAY);
        spells.set(false, DAY + 100);
        spells.set(true, DAY + 1_000);
        assert_eq!(spells.total_ns(DAY - 5_000), 100);
        spells.set(false, DAY - 5_000);
        assert_eq!(spells.total_ns(DAY), 100);
    }

    #[test]
    fn who_reads_while_spells_come_and_go_never_sees_time_go_back() {
        let spells = Spells::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for now in (DAY..DAY + 100_000).step_by(2) {
                    spells.set(true, now);
                    spells.set(false, now + 1);
                }
            });
            let mut before = 0;
            while before < 50_000 {
                // As if it were always the beginning: what is told then is what has ended.
                let total_ns = spells.total_ns(DAY);
                assert!(total_ns >= before, "{total_ns} after {before}");
                before = total_ns;
            }
        });
        assert_eq!(spells.total_ns(DAY), 50_000);
    }
}
