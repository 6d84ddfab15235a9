//! How two hosts' clocks relate, from round trips over the control plane.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use tapecast_wire::Nanos;
use tapecast_wire::attach::Pong;

/// Round trips that are kept: the shortest of them counts.
const TRIPS: usize = 8;
/// How much two clocks may drift apart, in parts per million: that of RFC 5905 section 11.1.
const DRIFT_PPM: u64 = 15;

/// What is known about the offset between two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockEstimate {
    /// This end's clock less the publisher's, in nanoseconds.
    pub offset_ns: i64,
    /// How wrong that may be, in nanoseconds: half the round trip, as the way there and the way
    /// back may take different times, and what the clocks may have drifted since.
    pub error_ns: u64,
    /// The round trip, in nanoseconds, the publisher's own time left out. Needs no common clock.
    pub round_trip_ns: u64,
}

/// Makes an estimate of round trips, as RFC 5905 section 10 does: of the last few the shortest,
/// which was disturbed least.
#[derive(Clone, Debug, Default)]
pub struct ClockFilter {
    trips: VecDeque<Trip>,
}

#[derive(Clone, Copy, Debug)]
struct Trip {
    offset_ns: i128,
    round_trip_ns: u64,
    at: Nanos,
}

/// What halving a round trip may round off, at each of two of them.
const ROUNDING_NS: u128 = 2;

impl Trip {
    /// How wrong its offset may be at `now`.
    fn error_ns(&self, now: Nanos) -> u64 {
        let drift = now.since(self.at).0 / 1_000_000 * DRIFT_PPM;
        (self.round_trip_ns / 2).saturating_add(drift)
    }

    /// Whether both may be right.
    fn agrees(&self, later: &Self) -> bool {
        let error = u128::from(self.error_ns(later.at)) + u128::from(later.round_trip_ns / 2);
        self.offset_ns.abs_diff(later.offset_ns) <= error + ROUNDING_NS
    }
}

impl ClockFilter {
    /// Nothing is known.
    #[must_use]
    pub const fn new() -> Self {
        Self { trips: VecDeque::new() }
    }

    /// A publisher's answer has come at `now`, by this end's clock, which has also written the
    /// ping. What cannot be (an answer before its question) is left out.
    pub fn on_pong(&mut self, pong: &Pong, now: Nanos) {
        let Pong { ping, received, sent } = *pong;
        let (Some(away), Some(held)) = (now.0.checked_sub(ping.0), sent.0.checked_sub(received.0))
        else {
            return;
        };
        let Some(round_trip_ns) = away.checked_sub(held) else { return };
        let difference = |here: Nanos, there: Nanos| i128::from(here.0) - i128::from(there.0);
        let offset_ns = i128::midpoint(difference(ping, received), difference(now, sent));
        let fresh = Trip { offset_ns, round_trip_ns, at: now };
        // A clock was set: what was measured before says nothing any more.
        self.trips.retain(|trip| trip.agrees(&fresh));
        if self.trips.len() == TRIPS {
            self.trips.pop_front();
        }
        self.trips.push_back(fresh);
    }

    /// The estimate at `now`, by this end's clock. `None` before the first round trip.
    #[must_use]
    pub fn estimate(&self, now: Nanos) -> Option<ClockEstimate> {
        let best = self.trips.iter().min_by_key(|trip| trip.error_ns(now))?;
        let bounds = (i128::from(i64::MIN), i128::from(i64::MAX));
        Some(ClockEstimate {
            offset_ns: best.offset_ns.clamp(bounds.0, bounds.1) as i64,
            error_ns: best.error_ns(now),
            round_trip_ns: best.round_trip_ns,
        })
    }
}

/// Unix time.
pub(crate) fn unix_now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A publisher whose clock is `behind_ns` behind, with these ways there and back.
    fn trip(filter: &mut ClockFilter, start: u64, behind_ns: i64, there: u64, back: u64) {
        let publisher = |time: u64| Nanos(time.checked_add_signed(-behind_ns).unwrap());
        let (received, sent) = (start + there, start + there + 50);
        let pong =
            Pong { ping: Nanos(start), received: publisher(received), sent: publisher(sent) };
        filter.on_pong(&pong, Nanos(sent + back));
    }

    #[test]
    fn equal_ways_give_the_offset_exactly() {
        let mut filter = ClockFilter::default();
        assert_eq!(filter.estimate(Nanos(0)), None);
        trip(&mut filter, 1_000_000, 250_000, 40_000, 40_000);
        let estimate = filter.estimate(Nanos(1_080_050)).unwrap();
        assert_eq!(estimate.offset_ns, 250_000);
        assert_eq!((estimate.round_trip_ns, estimate.error_ns), (80_000, 40_000));
    }

    #[test]
    fn the_shortest_round_trip_counts_and_what_is_known_grows_old() {
        let mut filter = ClockFilter::default();
        trip(&mut filter, 1_000_000, -5_000, 10_000, 10_000);
        trip(&mut filter, 2_000_000, -5_000, 900_000, 10_000);
        let fresh = filter.estimate(Nanos(3_000_000)).unwrap();
        assert_eq!((fresh.offset_ns, fresh.round_trip_ns), (-5_000, 20_000));
        let old = filter.estimate(Nanos(1_000_003_000_000)).unwrap();
        assert!(old.error_ns > fresh.error_ns + 10_000_000, "{old:?}");
    }

    #[test]
    fn only_the_last_few_count() {
        let mut filter = ClockFilter::default();
        let start = 10_000_000_000;
        trip(&mut filter, start, 0, 10, 10);
        for turn in 1..=TRIPS as u64 {
            trip(&mut filter, start + turn * 1_000, 0, 400, 400);
        }
        let estimate = filter.estimate(Nanos(start + 100_000)).unwrap();
        assert_eq!(estimate.round_trip_ns, 800);
    }

    #[test]
    fn when_a_clock_was_set_the_next_round_trip_says_so_even_if_it_is_a_longer_one() {
        let mut filter = ClockFilter::default();
        let start = 10_000_000_000;
        (0..3).for_each(|turn| trip(&mut filter, start + turn * 1_000, 0, 10, 10));
        trip(&mut filter, start + 5_000, 5_000_000, 400, 400);
        let estimate = filter.estimate(Nanos(start + 100_000)).unwrap();
        assert_eq!((estimate.offset_ns, estimate.round_trip_ns), (5_000_000, 800));
    }

    #[test]
    fn what_cannot_be_is_left_out() {
        let mut filter = ClockFilter::default();
        for (ping, received, sent, now) in
            [(10, 5, 5, 9), (10, 9, 8, 20), (10, 0, 100, 20), (u64::MAX, 0, 0, 0)]
        {
            let [ping, received, sent] = [ping, received, sent].map(Nanos);
            filter.on_pong(&Pong { ping, received, sent }, Nanos(now));
        }
        assert_eq!(filter.estimate(Nanos(0)), None);
    }

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_error(
            behind_ns in -1_000_000_000_i64..1_000_000_000,
            ways in prop::collection::vec((0..10_000_000_u64, 0..10_000_000_u64), 1..20),
        ) {
            let mut filter = ClockFilter::default();
            let mut now = 10_000_000_000;
            for (there, back) in ways {
                trip(&mut filter, now, behind_ns, there, back);
                now += there + 50 + back;
            }
            let estimate = filter.estimate(Nanos(now)).unwrap();
            prop_assert!(estimate.offset_ns.abs_diff(behind_ns) <= estimate.error_ns + 1);
        }

        #[test]
        fn no_answer_does_harm(times in prop::collection::vec(any::<[u64; 4]>(), 0..30), now: u64) {
            let mut filter = ClockFilter::default();
            for [ping, received, sent, came] in times {
                let [ping, received, sent] = [ping, received, sent].map(Nanos);
                filter.on_pong(&Pong { ping, received, sent }, Nanos(came));
            }
            let _any = filter.estimate(Nanos(now));
        }
    }
}
