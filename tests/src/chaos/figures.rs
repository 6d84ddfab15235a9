//! Times, summed up.

use std::fmt;
use std::time::Duration;

/// Median, 99th percentile and largest of some times, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// How many.
    pub count: usize,
    /// Median.
    pub p50: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Largest.
    pub max: Duration,
}

impl Spread {
    /// Of these times, in any order.
    #[must_use]
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100);
            times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { count: times.len(), p50: at(50), p99: at(99), max: at(100) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let Self { count, p50, p99, max } = *self;
        write!(f, "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", ms(p50), ms(p99), ms(max))?;
        write!(f, " ({count} times)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_smallest_time_that_so_many_do_not_exceed() {
        let spread = Spread::of((1..=200).rev().map(Duration::from_millis).collect());
        let ms = Duration::from_millis;
        assert_eq!(spread, Spread { count: 200, p50: ms(100), p99: ms(198), max: ms(200) });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
