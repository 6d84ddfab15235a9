//! Latency as a distribution that can be recorded, merged, sent and read.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Largest latency that is told apart, in nanoseconds (60 s). Longer ones count as this.
pub const HIGHEST_NS: u64 = 60_000_000_000;

const SIGNIFICANT_DIGITS: u8 = 3;

/// What a [`LatencySummary`] says, in nanoseconds; all zero when nothing was recorded.
///
/// Percentiles are right to three significant digits and never lie outside `min_ns ..= max_ns`;
/// count, minimum, maximum and mean are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyFigures {
    /// Latencies recorded.
    pub count: u64,
    /// Smallest.
    pub min_ns: u64,
    /// Half were at most this.
    pub p50_ns: u64,
    /// 90 % were at most this.
    pub p90_ns: u64,
    /// 99 % were at most this.
    pub p99_ns: u64,
    /// 99.9 % were at most this.
    pub p99_9_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// Arithmetic mean, rounded down.
    pub mean_ns: u64,
}

/// A distribution of latencies from 0 ns to [`HIGHEST_NS`] with three significant digits.
///
/// About 220 KB, allocated at construction. [`LatencySummary::record`] touches one counter and
/// four words, and never allocates. With `serde` only the counts that are not zero travel; what
/// comes back is checked, since it may come from another process.
#[derive(Clone, Debug)]
pub struct LatencySummary {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    /// Saturates: only the mean suffers.
    sum_ns: u64,
}

impl LatencySummary {
    /// An empty summary.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("these constant bounds are within what a histogram accepts");
        Self { histogram, min_ns: u64::MAX, max_ns: 0, sum_ns: 0 }
    }

    /// Records one latency in nanoseconds. More than [`HIGHEST_NS`] counts as that.
    pub fn record(&mut self, latency_ns: u64) {
        let latency_ns = latency_ns.min(HIGHEST_NS);
        self.histogram.saturating_record(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
    }

    /// Latencies recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Count, percentiles and mean.
    #[must_use]
    pub fn figures(&self) -> LatencyFigures {
        let count = self.count();
        if count == 0 {
            return LatencyFigures::default();
        }
        // A bucket is named by its highest value, which may exceed what was recorded in it.
        let quantile =
            |share| self.histogram.value_at_quantile(share).clamp(self.min_ns, self.max_ns);
        LatencyFigures {
            count,
            min_ns: self.min_ns,
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p99_9_ns: quantile(0.999),
            max_ns: self.max_ns,
            mean_ns: self.sum_ns / count,
        }
    }

    /// Adds everything that `other` recorded.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all summaries have the same bounds");
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Forgets everything. The memory stays.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.min_ns, self.max_ns, self.sum_ns) = (u64::MAX, 0, 0);
    }
}

impl Default for LatencySummary {
    fn default() -> Self {
        Self::new()
    }
}

/// Summaries are equal when they recorded the same, to the histogram's resolution.
impl PartialEq for LatencySummary {
    fn eq(&self, other: &Self) -> bool {
        self.histogram == other.histogram
            && (self.min_ns, self.max_ns, self.sum_ns) == (other.min_ns, other.max_ns, other.sum_ns)
    }
}

/// How a summary travels: the buckets that are not empty, smallest first.
#[derive(Serialize, Deserialize)]
struct Sparse {
    min_ns: u64,
    max_ns: u64,
    sum_ns: u64,
    /// (a value of the bucket in ns, count).
    buckets: Vec<(u64, u64)>,
}

impl Serialize for LatencySummary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let buckets = self
            .histogram
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        let Self { min_ns, max_ns, sum_ns, .. } = *self;
        Sparse { min_ns, max_ns, sum_ns, buckets }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LatencySummary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_sparse(&Sparse::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl LatencySummary {
    fn from_sparse(sparse: &Sparse) -> Result<Self, &'static str> {
        let mut summary = Self::new();
        let (Some((first, _)), Some((last, _))) = (sparse.buckets.first(), sparse.buckets.last())
        else {
            return Ok(summary);
        };
        let mut total = 0u64;
        for (value_ns, count) in &sparse.buckets {
            total = total.checked_add(*count).ok_or("counts overflow 64 bits")?;
            if *count == 0 || summary.histogram.record_n(*value_ns, *count).is_err() {
                return Err("a bucket is empty or above 60 s");
            }
        }
        // Saturates as the sum itself does.
        let sums = total.saturating_mul(sparse.min_ns)..=total.saturating_mul(sparse.max_ns);
        if sparse.max_ns > HIGHEST_NS
            || !summary.histogram.equivalent(*first, sparse.min_ns)
            || !summary.histogram.equivalent(*last, sparse.max_ns)
            || !sums.contains(&sparse.sum_ns)
        {
            return Err("minimum, maximum or sum contradict the buckets");
        }
        (summary.min_ns, summary.max_ns) = (sparse.min_ns, sparse.max_ns);
        summary.sum_ns = sparse.sum_ns;
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HIGHEST_NS, LatencyFigures, LatencySummary, Sparse};

    fn summary(latencies: impl IntoIterator<Item = u64>) -> LatencySummary {
        let mut summary = LatencySummary::new();
        latencies.into_iter().for_each(|latency_ns| summary.record(latency_ns));
        summary
    }

    #[test]
    fn nothing_recorded_is_all_zero() {
        assert_eq!(LatencySummary::new().figures(), LatencyFigures::default());
    }

    #[test]
    fn one_latency_is_every_figure() {
        let figures = summary([1_234_567]).figures();
        let LatencyFigures { count, min_ns, p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns, mean_ns } =
            figures;
        assert_eq!(count, 1);
        assert_eq!([min_ns, p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns, mean_ns], [1_234_567; 7]);
    }

    #[test]
    fn percentiles_of_one_to_a_thousand_are_known() {
        let figures = summary(1..=1000).figures();
        assert_eq!(
            figures,
            LatencyFigures {
                count: 1000,
                min_ns: 1,
                p50_ns: 500,
                p90_ns: 900,
                p99_ns: 990,
                p99_9_ns: 999,
                max_ns: 1000,
                mean_ns: 500,
            }
        );
    }

    #[test]
    fn beyond_sixty_seconds_counts_as_sixty_seconds() {
        let figures = summary([HIGHEST_NS - 1, HIGHEST_NS, HIGHEST_NS + 1, u64::MAX]).figures();
        assert_eq!((figures.count, figures.max_ns), (4, HIGHEST_NS));
        assert_eq!(figures.min_ns, HIGHEST_NS - 1);
        assert_eq!(figures.p99_9_ns, HIGHEST_NS);
    }

    #[test]
    fn a_latency_of_zero_is_kept() {
        let figures = summary([0, 0, 0, 8]).figures();
        assert_eq!((figures.min_ns, figures.p50_ns, figures.max_ns), (0, 0, 8));
    }

    #[test]
    fn a_cleared_summary_is_a_new_one() {
        let mut cleared = summary([5, 70_000]);
        cleared.clear();
        assert_eq!(cleared, LatencySummary::new());
        cleared.record(9);
        assert_eq!(cleared, summary([9]));
    }

    #[test]
    fn the_sum_saturates_instead_of_wrapping() {
        let mut summary = summary([HIGHEST_NS]);
        for _ in 0..30 {
            let copy = summary.clone();
            summary.merge(&copy);
        }
        assert_eq!(summary.count(), 1 << 30);
        assert_eq!(summary.figures().mean_ns, u64::MAX >> 30);
        let json = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<LatencySummary>(&json).unwrap(), summary);
    }

    #[test]
    fn a_summary_that_contradicts_itself_is_refused() {
        let sparse =
            |min_ns, max_ns, sum_ns, buckets: &[(u64, u64)]| -> Result<LatencySummary, _> {
                LatencySummary::from_sparse(&Sparse {
                    min_ns,
                    max_ns,
                    sum_ns,
                    buckets: buckets.to_vec(),
                })
            };
        assert!(sparse(5, 9, 14, &[(5, 1), (9, 1)]).is_ok());
        for broken in [
            sparse(5, 9, 14, &[(5, 1), (9, 0)]),
            sparse(5, 9, 19, &[(5, 1), (9, 1)]),
            sparse(5, 9, 9, &[(5, 1), (9, 1)]),
            sparse(5, 9, u64::MAX, &[(5, 1), (9, 1)]),
            sparse(4, 9, 14, &[(5, 1), (9, 1)]),
            sparse(5, 8, 14, &[(5, 1), (9, 1)]),
            sparse(5, 9, 14, &[(5, u64::MAX), (9, 1)]),
            sparse(5, 1 << 40, 1 << 41, &[(5, 1), (1 << 40, 1)]),
        ] {
            assert!(broken.is_err(), "{broken:?}");
        }
    }

    proptest! {
        #[test]
        fn figures_are_right_to_three_digits(
            mut latencies in proptest::collection::vec(0..HIGHEST_NS, 1..300),
        ) {
            let figures = summary(latencies.iter().copied()).figures();
            latencies.sort_unstable();
            let rank = |per_mille: usize| {
                latencies[(latencies.len() * per_mille).div_ceil(1000).max(1) - 1]
            };
            for (got, exact) in [
                (figures.p50_ns, rank(500)),
                (figures.p90_ns, rank(900)),
                (figures.p99_ns, rank(990)),
                (figures.p99_9_ns, rank(999)),
            ] {
                prop_assert!(got.abs_diff(exact) <= exact / 1000, "{} for {}", got, exact);
            }
            prop_assert_eq!(figures.min_ns, latencies[0]);
            prop_assert_eq!(figures.max_ns, latencies[latencies.len() - 1]);
            let mean = latencies.iter().sum::<u64>() / latencies.len() as u64;
            prop_assert_eq!(figures.mean_ns, mean);
        }

        #[test]
        fn merging_is_recording_everything_in_one(
            left in proptest::collection::vec(0..HIGHEST_NS, 0..50),
            right in proptest::collection::vec(0..HIGHEST_NS, 0..50),
        ) {
            let mut merged = summary(left.iter().copied());
            merged.merge(&summary(right.iter().copied()));
            prop_assert_eq!(merged, summary(left.into_iter().chain(right)));
        }

        #[test]
        fn a_summary_survives_serde(
            latencies in proptest::collection::vec(0..2 * HIGHEST_NS, 0..50),
        ) {
            let sent = summary(latencies);
            let json = serde_json::to_string(&sent).unwrap();
            prop_assert_eq!(serde_json::from_str::<LatencySummary>(&json).unwrap(), sent);
        }
    }
}
