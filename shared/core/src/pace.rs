//! A least time between two snapshots of one instrument, for people and dashboards.
//!
//! After each snapshot its instrument rests. What comes meanwhile waits, the newest in place of
//! older ones, until the rest is over.

use tapecast_wire::{InstrumentId, Nanos};

use crate::planted::{Planted, is_planted};
use crate::{DirtyQueue, InstrumentSet};

/// Which instruments of one session rest, and which of these have something new.
///
/// # Invariants
/// What waits also rests.
#[derive(Clone, Debug)]
pub struct Pace {
    interval: Nanos,
    /// Longest first. All rest equally long, so this is also the order in which rests end.
    resting: DirtyQueue,
    until: Box<[Nanos]>,
    waiting: InstrumentSet,
    waiting_count: usize,
}

impl Pace {
    /// For instruments `0 .. capacity`. Allocates about 13 bytes for each of them.
    #[must_use]
    pub fn new(interval: Nanos, capacity: usize) -> Self {
        Self {
            interval,
            resting: DirtyQueue::new(capacity),
            until: vec![Nanos(0); capacity].into_boxed_slice(),
            waiting: InstrumentSet::new(capacity),
            waiting_count: 0,
        }
    }

    /// The newest snapshot of `instrument` goes out now, so nothing of it waits, and it rests. One
    /// that rests already, and was asked for nevertheless, rests as long as it would have.
    pub fn rest(&mut self, instrument: InstrumentId, now: Nanos) {
        self.waiting_count -= usize::from(self.waiting.remove(instrument));
        let restless = is_planted(Planted::RestForgotten) && self.resting.is_empty();
        if self.interval.0 > 0 && !restless && self.resting.mark(instrument) {
            self.until[instrument.index()] = Nanos(now.0.saturating_add(self.interval.0));
        }
    }

    /// Whether `instrument` rests.
    #[must_use]
    #[inline]
    pub fn is_resting(&self, instrument: InstrumentId) -> bool {
        self.resting.contains(instrument)
    }

    /// Something newer of an instrument that rests is there.
    pub fn wait(&mut self, instrument: InstrumentId) {
        debug_assert!(self.is_resting(instrument), "{instrument} does not rest");
        self.waiting_count += usize::from(self.waiting.insert(instrument));
    }

    /// Whether something waits for a rest to end.
    #[must_use]
    pub const fn has_waiting(&self) -> bool {
        self.waiting_count > 0
    }

    /// Whether something waits for the rest of `instrument` to end.
    #[must_use]
    pub fn is_waiting(&self, instrument: InstrumentId) -> bool {
        self.waiting.contains(instrument)
    }

    /// Ends the rests that are over, up to the first instrument that has waited for that.
    pub fn wake(&mut self, now: Nanos) -> Option<InstrumentId> {
        while let Some(oldest) = self.resting.oldest() {
            let left = self.until[oldest.index()].since(now);
            // A clock that was set back must not let anybody rest for longer than was asked for.
            if left.0 > 0 && left <= self.interval {
                return None;
            }
            self.resting.pop_oldest();
            if self.waiting.remove(oldest) {
                self.waiting_count -= 1;
                return Some(oldest);
            }
        }
        None
    }

    /// When the next rest ends; `None` while nothing waits for one.
    #[must_use]
    pub fn next_end(&self) -> Option<Nanos> {
        let oldest = self.resting.oldest().filter(|_| self.has_waiting())?;
        Some(self.until[oldest.index()])
    }

    /// Nothing rests from now on: what waits is returned by [`Pace::wake`] whatever the time.
    pub const fn stop(&mut self) {
        self.interval = Nanos(0);
    }

    /// Checks the invariants of the type. For tests.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn assert_invariants(&self) {
        self.resting.assert_invariants();
        assert_eq!(self.waiting.iter().count(), self.waiting_count);
        assert!(self.waiting.iter().all(|instrument| self.is_resting(instrument)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: InstrumentId = InstrumentId(0);
    const B: InstrumentId = InstrumentId(1);

    #[test]
    fn what_comes_during_a_rest_is_due_when_it_ends_and_not_before() {
        let mut pace = Pace::new(Nanos(10), 2);
        pace.rest(A, Nanos(100));
        pace.rest(B, Nanos(103));
        assert_eq!(pace.next_end(), None, "nothing waits");
        pace.wait(B);
        pace.wait(A);
        pace.wait(A);
        pace.assert_invariants();
        assert_eq!((pace.next_end(), pace.wake(Nanos(109))), (Some(Nanos(110)), None));
        assert_eq!((pace.wake(Nanos(110)), pace.wake(Nanos(112))), (Some(A), None));
        assert!(!pace.is_resting(A) && pace.is_resting(B) && pace.has_waiting());
        assert_eq!((pace.wake(Nanos(113)), pace.has_waiting()), (Some(B), false));
    }

    #[test]
    fn a_rest_during_which_nothing_came_ends_without_a_word() {
        let mut pace = Pace::new(Nanos(10), 2);
        pace.rest(A, Nanos(0));
        assert_eq!(pace.wake(Nanos(10)), None);
        assert!(!pace.is_resting(A));
    }

    #[test]
    fn a_snapshot_in_between_prolongs_no_rest_and_nothing_waits_after_it() {
        let mut pace = Pace::new(Nanos(10), 1);
        pace.rest(A, Nanos(0));
        pace.wait(A);
        pace.rest(A, Nanos(9));
        assert!(!pace.has_waiting());
        pace.wait(A);
        assert_eq!(pace.wake(Nanos(10)), Some(A));
    }

    #[test]
    fn a_clock_that_is_set_back_prolongs_no_rest() {
        let mut pace = Pace::new(Nanos(10), 1);
        pace.rest(A, Nanos(1_000_000));
        pace.wait(A);
        assert_eq!(pace.wake(Nanos(5)), Some(A));
    }

    #[test]
    fn when_rests_are_stopped_everything_is_due() {
        let mut pace = Pace::new(Nanos(10), 2);
        pace.rest(A, Nanos(0));
        pace.wait(A);
        pace.stop();
        assert_eq!(pace.wake(Nanos(0)), Some(A));
        pace.rest(B, Nanos(0));
        assert!(!pace.is_resting(B));
    }
}
