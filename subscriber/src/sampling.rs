//! One latency for each time slot, of the same snapshot at every subscriber.

use tapecast_fabric::CELL_SAMPLES;
use tapecast_wire::Nanos;
use tapecast_wire::limits::SAMPLE_SLOT_NS;

const SLOTS: u64 = CELL_SAMPLES as u64;

/// What is known of a snapshot that was delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    /// Its place in the channel.
    pub(crate) sequence: u64,
    /// When it was published, by the publisher's clock.
    pub(crate) published: Nanos,
    /// From then to its delivery, in nanoseconds; `None` where this host's clock is so far behind
    /// that it says nothing.
    pub(crate) transit_ns: Option<u64>,
    /// Whether it stands for others.
    pub(crate) conflated: bool,
}

/// Samples the first snapshot of every time slot. Everybody who is sent everything has the same
/// one, which is how the publisher compares subscribers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampling {
    /// Channel sequence and latency in nanoseconds, by slot; zeros where there is none.
    samples: [(u64, u64); CELL_SAMPLES],
    /// The time slot sampled last.
    slot: u64,
    /// Channel sequence of the snapshot that began it.
    sequence: u64,
}

impl Sampling {
    /// Channel sequence and latency in nanoseconds, that of time slot n at n mod 32.
    pub(crate) const fn samples(&self) -> &[(u64, u64); CELL_SAMPLES] {
        &self.samples
    }

    #[inline]
    pub(crate) fn on_delivery(&mut self, delivered: &Delivered) {
        let slot = delivered.published.get() / SAMPLE_SLOT_NS;
        if slot != self.slot {
            self.on_other_slot(slot, delivered);
        }
    }

    #[cold]
    fn on_other_slot(&mut self, slot: u64, delivered: &Delivered) {
        if slot > self.slot {
            self.empty(self.slot, slot);
        } else if delivered.sequence > self.sequence {
            // Published later, at an earlier time: the publisher's clock was set back. What was
            // sampled ahead of it will never be asked for.
            self.empty(slot.saturating_sub(1), self.slot);
        } else {
            // Published earlier: what a reader that was lapped finds in the latest table.
            return;
        }
        self.slot = slot;
        self.sequence = delivered.sequence;
        if let Some(transit_ns) = delivered.transit_ns
            && !delivered.conflated
        {
            *self.sample(slot) = (delivered.sequence, transit_ns);
        }
    }

    /// Empties the slots after `before`, to `last`.
    fn empty(&mut self, before: u64, last: u64) {
        let first = (before + 1).max((last + 1).saturating_sub(SLOTS));
        for slot in first..=last {
            *self.sample(slot) = (0, 0);
        }
    }

    fn sample(&mut self, slot: u64) -> &mut (u64, u64) {
        &mut self.samples[(slot % SLOTS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 17_000_000_000;

    fn delivered(sequence: u64, slot: u64) -> Delivered {
        let published = Nanos((FIRST + slot) * SAMPLE_SLOT_NS + sequence);
        let transit_ns = Some(1_000 + sequence);
        Delivered { sequence, published, transit_ns, conflated: false }
    }

    fn sampling(all: &[Delivered]) -> Sampling {
        let mut sampling = Sampling::default();
        all.iter().for_each(|one| sampling.on_delivery(one));
        sampling
    }

    fn of(sampling: &Sampling, slot: u64) -> (u64, u64) {
        sampling.samples()[((FIRST + slot) % SLOTS) as usize]
    }

    fn count(sampling: &Sampling) -> usize {
        sampling.samples().iter().filter(|sample| **sample != (0, 0)).count()
    }

    #[test]
    fn the_first_of_each_slot_is_kept_until_the_slots_have_gone_round() {
        let all: Vec<_> = (0..100).map(|n| delivered(n + 1, n / 2)).collect();
        let sampling = sampling(&all);
        assert_eq!(of(&sampling, 49), (99, 1_099));
        assert_eq!(of(&sampling, 18), (37, 1_037), "31 slots before");
        assert_eq!(count(&sampling), CELL_SAMPLES);
    }

    #[test]
    fn slots_in_which_nothing_came_or_only_what_stands_for_others_are_empty() {
        let conflated = Delivered { conflated: true, ..delivered(3, 5) };
        let sampling = sampling(&[delivered(1, 0), delivered(2, 2), conflated, delivered(4, 5)]);
        assert_eq!([0, 1, 2].map(|slot| of(&sampling, slot).0), [1, 0, 2]);
        assert_eq!([3, 4, 5].map(|slot| of(&sampling, slot).0), [0; 3]);
    }

    #[test]
    fn a_snapshot_that_seems_to_come_before_it_was_published_begins_its_slot_and_is_no_sample() {
        let behind = Delivered { transit_ns: None, ..delivered(2, 1) };
        let sampling = sampling(&[delivered(1, 0), behind, delivered(3, 1), delivered(4, 2)]);
        assert_eq!([0, 1, 2].map(|slot| of(&sampling, slot).0), [1, 0, 4]);
    }

    #[test]
    fn a_clock_that_was_set_ahead_and_back_is_followed_at_once() {
        let hours = 2 * 36_000;
        let mut sampling = sampling(&[delivered(1, 0), delivered(2, hours), delivered(3, 2)]);
        assert_eq!(of(&sampling, 2), (3, 1_003));
        assert_eq!(count(&sampling), 1, "nothing is left of the time ahead");
        sampling.on_delivery(&delivered(4, 3));
        assert_eq!(of(&sampling, 3), (4, 1_004));
    }

    #[test]
    fn a_clock_that_was_set_back_a_little_keeps_what_is_before() {
        let sampling =
            sampling(&[delivered(1, 0), delivered(2, 1), delivered(3, 4), delivered(4, 2)]);
        assert_eq!([0, 1, 2, 3, 4].map(|slot| of(&sampling, slot).0), [1, 2, 4, 0, 0]);
    }

    #[test]
    fn what_was_published_before_says_nothing_about_the_clock() {
        let sampling = sampling(&[delivered(90, 50), delivered(7, 1), delivered(91, 50)]);
        assert_eq!((of(&sampling, 50).0, count(&sampling)), (90, 1));
    }

    #[test]
    fn absurd_times_do_no_harm() {
        let at = |sequence, published| Delivered {
            published: Nanos(published),
            ..delivered(sequence, 0)
        };
        let sampling = sampling(&[at(1, u64::MAX), at(2, 0), at(3, u64::MAX), at(4, 1)]);
        assert_eq!(count(&sampling), 1);
    }
}
