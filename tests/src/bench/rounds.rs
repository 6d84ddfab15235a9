//! Figures of repeated rounds.

/// Median of a list; the lower one of the two in the middle. 0 for an empty list.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len().max(1) - 1) / 2).copied().unwrap_or(0.0)
}

/// Durations in nanoseconds, all of them kept: percentiles are exact.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    values_ns: Vec<u64>,
}

impl Distribution {
    /// Room for `capacity` values, so that recording does not allocate.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { values_ns: Vec::with_capacity(capacity) }
    }

    /// Adds one.
    pub fn record(&mut self, value_ns: u64) {
        self.values_ns.push(value_ns);
    }

    /// The value below which `share` (0 to 1) of all lie.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let mut sorted = self.values_ns.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_lower_middle() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn quantiles_are_exact() {
        let mut distribution = Distribution::with_capacity(101);
        (0..=100).rev().for_each(|value| distribution.record(value));
        assert_eq!(distribution.quantile_ns(0.5), 50);
        assert_eq!(distribution.quantile_ns(0.99), 99);
        assert_eq!(distribution.quantile_ns(1.0), 100);
    }
}
