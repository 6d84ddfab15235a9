//! How much latency varies: across the distribution, and from one snapshot to the next.

use serde::{Deserialize, Serialize};

use crate::latency::{HIGHEST_NS, LatencyFigures};

/// Interarrival jitter of RFC 3550 §6.4.1: a running mean of how much the transit time changes
/// from one snapshot to the next, `J += (|D| - J) / 16`.
///
/// Kept in sixteenths of a nanosecond with the rounding of the RFC's appendix A.8, so it is exact
/// arithmetic and the same everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterarrivalJitter {
    previous_transit_ns: Option<i64>,
    sixteenths_ns: u64,
}

impl InterarrivalJitter {
    /// No snapshot seen yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { previous_transit_ns: None, sixteenths_ns: 0 }
    }

    /// The next snapshot in sequence took this long from publish to receive, in nanoseconds: less
    /// than none where the receiver's clock is behind. A constant offset between the two clocks
    /// does not matter. A change of more than [`HIGHEST_NS`] counts as that.
    pub fn on_transit(&mut self, transit_ns: i64) {
        if let Some(previous_ns) = self.previous_transit_ns.replace(transit_ns) {
            let change_ns = transit_ns.abs_diff(previous_ns).min(HIGHEST_NS);
            self.sixteenths_ns = self.sixteenths_ns + change_ns - ((self.sixteenths_ns + 8) >> 4);
        }
    }

    /// The jitter in nanoseconds; 0 before the second snapshot.
    #[must_use]
    pub const fn ns(&self) -> u64 {
        self.sixteenths_ns >> 4
    }

    /// Starts again, e.g. after a reconnect.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

/// The two jitters that tapecast reports, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jitter {
    /// Spread of the distribution: 99th percentile minus median.
    pub p99_minus_p50_ns: u64,
    /// Change from one snapshot to the next: [`InterarrivalJitter`].
    pub rfc3550_ns: u64,
}

impl Jitter {
    /// Both jitters of one receiver.
    #[must_use]
    pub const fn of(latency: &LatencyFigures, interarrival: &InterarrivalJitter) -> Self {
        Self {
            // Saturates, because figures may come from another process.
            p99_minus_p50_ns: latency.p99_ns.saturating_sub(latency.p50_ns),
            rfc3550_ns: interarrival.ns(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HIGHEST_NS, InterarrivalJitter, Jitter};
    use crate::LatencyFigures;

    fn jitter(transits: impl IntoIterator<Item = i64>) -> InterarrivalJitter {
        let mut jitter = InterarrivalJitter::new();
        transits.into_iter().for_each(|transit_ns| jitter.on_transit(transit_ns));
        jitter
    }

    #[test]
    fn a_constant_transit_has_no_jitter() {
        assert_eq!(jitter([5_000; 100]).ns(), 0);
    }

    #[test]
    fn the_first_snapshot_says_nothing() {
        assert_eq!(jitter([9_999_999]).ns(), 0);
    }

    #[test]
    fn one_change_moves_it_by_a_sixteenth() {
        assert_eq!(jitter([1_000, 2_600]).ns(), 100);
        assert_eq!(jitter([2_600, 1_000]).ns(), 100);
    }

    #[test]
    fn the_second_change_follows_the_formula() {
        // J1 = 1600/16 = 100; J2 = 100 + (3200 - 100)/16 = 293.75.
        assert_eq!(jitter([1_000, 2_600, 5_800]).ns(), 293);
    }

    #[test]
    fn it_settles_at_the_size_of_a_steady_alternation() {
        let settled = jitter((0..1_000).map(|turn| 10_000 + (turn % 2) * 400)).ns();
        assert!((399..=400).contains(&settled), "{settled}");
    }

    #[test]
    fn an_offset_between_the_clocks_cancels_also_where_it_makes_transits_negative() {
        let transits = || (0..1_000_i64).map(|turn| 5_000 + (turn * 7_919) % 3_001);
        let same_clock = jitter(transits()).ns();
        assert!(same_clock > 0);
        for offset_ns in [-1, -6_000, -86_400_000_000_000, 1, 400_000_000_000] {
            let told = jitter(transits().map(|transit_ns| transit_ns + offset_ns)).ns();
            assert_eq!(told, same_clock, "{offset_ns}");
        }
    }

    #[test]
    fn an_absurd_transit_saturates() {
        for absurd in [i64::MAX, i64::MIN] {
            assert_eq!(jitter([0, absurd]).ns(), HIGHEST_NS / 16);
            assert!(jitter((0..10_000).map(|turn| (turn % 2) * absurd)).ns() <= HIGHEST_NS);
        }
        assert_eq!(jitter([i64::MIN, i64::MAX]).ns(), HIGHEST_NS / 16);
    }

    #[test]
    fn cleared_is_new() {
        let mut cleared = jitter([1, 1_000_000]);
        cleared.clear();
        assert_eq!(cleared, InterarrivalJitter::new());
    }

    #[test]
    fn both_jitters_come_from_one_receiver() {
        let latency = LatencyFigures { p50_ns: 900, p99_ns: 2_000, ..LatencyFigures::default() };
        let both = Jitter::of(&latency, &jitter([1_000, 2_600]));
        assert_eq!(both, Jitter { p99_minus_p50_ns: 1_100, rfc3550_ns: 100 });
    }
}
