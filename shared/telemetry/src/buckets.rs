//! Latency in buckets: what can be summed over processes and time, and costs little to record.

use std::sync::atomic::{AtomicU64, Ordering};

/// Steps of one decade, in tenths of its start: fine enough to tell percentiles to about a fifth,
/// and round, so that a limit such as 5 µs or 100 µs is a bound and the share below it is exact.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];
const DECADES: usize = 7;
const FIRST_NS: u64 = 100;

/// Bounds of the buckets: 43.
const BOUNDS: usize = STEPS.len() * DECADES + 1;
/// Buckets: one for each bound, and one for what is beyond the last.
pub const BUCKETS: usize = BOUNDS + 1;

/// Upper bounds of the buckets in nanoseconds, each inclusive, ascending: 100 ns × {1, 1.5, 2, 3,
/// 5, 7} × 10^k, up to 1 s.
pub const BOUNDS_NS: [u64; BOUNDS] = bounds();

const fn bounds() -> [u64; BOUNDS] {
    let mut bounds = [0; BOUNDS];
    let (mut index, mut decade_ns) = (0, FIRST_NS);
    while index < BOUNDS {
        bounds[index] = decade_ns * STEPS[index % STEPS.len()] / 10;
        index += 1;
        if index.is_multiple_of(STEPS.len()) {
            decade_ns *= 10;
        }
    }
    bounds
}

/// The bucket of a latency.
#[inline]
fn bucket_of(latency_ns: u64) -> usize {
    BOUNDS_NS.partition_point(|bound_ns| *bound_ns < latency_ns)
}

/// Latencies by bucket. Counts only rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyBuckets {
    /// Latencies in each bucket (not cumulative); the last is for those beyond all bounds.
    pub counts: [u64; BUCKETS],
    /// Sum of all, in nanoseconds. Wraps after centuries.
    pub sum_ns: u64,
}

impl LatencyBuckets {
    /// Nothing recorded.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [0; BUCKETS], sum_ns: 0 }
    }

    /// Records one latency in nanoseconds.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        let count = &mut self.counts[bucket_of(latency_ns)];
        *count = count.wrapping_add(1);
        self.sum_ns = self.sum_ns.wrapping_add(latency_ns);
    }

    /// Latencies recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        // May come from another process, which may claim anything.
        self.counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Adds what `other` has.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.wrapping_add(*more);
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }
}

impl Default for LatencyBuckets {
    fn default() -> Self {
        Self::new()
    }
}

/// Latencies by bucket that one thread records and others read.
///
/// A record is two loads and two stores without a locked instruction. A reader may see a count
/// without its share of the sum.
#[derive(Debug)]
#[repr(align(128))]
pub struct SharedBuckets {
    counts: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl SharedBuckets {
    /// Nothing recorded.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }

    /// Records one latency in nanoseconds. For the one thread that writes.
    #[inline]
    pub fn record(&self, latency_ns: u64) {
        raise(&self.counts[bucket_of(latency_ns)], 1);
        raise(&self.sum_ns, latency_ns);
    }

    /// What was recorded so far.
    #[must_use]
    pub fn load(&self) -> LatencyBuckets {
        let counts = std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed));
        LatencyBuckets { counts, sum_ns: self.sum_ns.load(Ordering::Relaxed) }
    }
}

impl Default for SharedBuckets {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn raise(word: &AtomicU64, by: u64) {
    // Relaxed: only this thread writes, and a figure orders nothing.
    word.store(word.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_are_round_ascend_and_end_at_a_second() {
        assert_eq!(BOUNDS_NS[..7], [100, 150, 200, 300, 500, 700, 1_000]);
        assert_eq!(BOUNDS_NS[BOUNDS - 1], 1_000_000_000);
        assert!(BOUNDS_NS.is_sorted_by(|a, b| a < b));
        for limit_ns in [5_000, 10_000, 50_000, 100_000, 1_000_000] {
            assert!(BOUNDS_NS.contains(&limit_ns), "{limit_ns}");
        }
    }

    #[test]
    fn a_bound_is_in_its_own_bucket_and_the_next_value_is_not() {
        for (index, bound_ns) in BOUNDS_NS.into_iter().enumerate() {
            assert_eq!(bucket_of(bound_ns), index);
            assert_eq!(bucket_of(bound_ns + 1), index + 1);
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn merged_buckets_are_those_of_everything() {
        let (mut one, mut other, mut all) = <(LatencyBuckets, LatencyBuckets, _)>::default();
        let all: &mut LatencyBuckets = &mut all;
        for latency_ns in (0..5_000_000).step_by(777) {
            let half = if latency_ns % 2 == 0 { &mut one } else { &mut other };
            half.record(latency_ns);
            all.record(latency_ns);
        }
        one.merge(&other);
        assert_eq!(one, *all);
        assert_eq!(one.count(), 5_000_000_u64.div_ceil(777));
    }

    proptest! {
        #[test]
        fn shared_buckets_record_as_plain_ones(
            latencies in prop::collection::vec(0..3_000_000_000_u64, 0..200),
        ) {
            let (shared, mut plain) = (SharedBuckets::new(), LatencyBuckets::new());
            for latency_ns in &latencies {
                shared.record(*latency_ns);
                plain.record(*latency_ns);
            }
            prop_assert_eq!(shared.load(), plain);
            prop_assert_eq!(plain.count(), latencies.len() as u64);
            prop_assert_eq!(plain.sum_ns, latencies.iter().sum::<u64>());
        }
    }
}
