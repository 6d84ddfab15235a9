//! How unequally a snapshot reaches the subscribers: first, mean, last, and the skew between.
//!
//! Percentiles of each subscriber do not say which snapshot they belong to. So each tells the
//! latency of the first snapshot of every time slot by itself, with its sequence, and here those of
//! the same snapshot are put together, once all have had time to tell.

use tapecast_fabric::{CELL_SAMPLES, Timing};
use tapecast_telemetry::LatencyBuckets;
use tapecast_wire::Nanos;
use tapecast_wire::limits::SAMPLE_SLOT_NS;

/// Slots after which everybody has told: subscribers report once a second.
const SETTLED_SLOTS: u64 = 22;

/// No latency that is told in time is longer, unless clocks differ by as much or somebody lies. One
/// such claim would push a sum over all subscribers beyond what it can hold, and make it fall.
const CLAIM_MAX_NS: u64 = 60_000_000_000;

const _: () = assert!(SETTLED_SLOTS + 10 <= CELL_SAMPLES as u64, "a slot is kept until it is used");

/// How sampled snapshots reached the subscribers: those that at least two received directly,
/// without being conflated. Times from publishing, by the clocks of both hosts; the skew needs only
/// that the subscribers' clocks agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FanOutFigures {
    /// To the first subscriber.
    pub first: LatencyBuckets,
    /// Mean over the subscribers.
    pub mean: LatencyBuckets,
    /// To the last subscriber.
    pub last: LatencyBuckets,
    /// From the first to the last.
    pub skew: LatencyBuckets,
}

/// Puts the samples of all sessions together, each slot once.
#[derive(Debug, Default)]
pub(super) struct FanOutSampling {
    figures: FanOutFigures,
    /// The slot that was used last; 0 before the first.
    used: u64,
    /// Channel sequence that was used last. A slot in which nothing came still shows what came when
    /// the slots went round before.
    newest: u64,
}

impl FanOutSampling {
    pub(super) const fn figures(&self) -> FanOutFigures {
        self.figures
    }

    /// Whether slots have settled since the last look, or the clock was set back behind it.
    pub(super) const fn is_due(&self, now: Nanos) -> bool {
        let slot = now.0 / SAMPLE_SLOT_NS;
        slot > self.used + SETTLED_SLOTS || slot < self.used
    }

    /// Uses what has settled by `now`, of the `published` snapshots. Slots that nobody looked at in
    /// time are left out, as are those before a clock that was set back.
    pub(super) fn on_look(&mut self, now: Nanos, published: u64, timings: &[Timing]) {
        let slot = now.0 / SAMPLE_SLOT_NS;
        if slot < self.used {
            self.used = slot;
            return;
        }
        let settled = slot.saturating_sub(SETTLED_SLOTS);
        let kept = slot.saturating_sub(CELL_SAMPLES as u64 - 2);
        for slot in kept.max(self.used + 1)..=settled {
            self.use_slot((slot % CELL_SAMPLES as u64) as usize, published, timings);
        }
        self.used = settled.max(self.used);
    }

    fn use_slot(&mut self, index: usize, published: u64, timings: &[Timing]) {
        let fresh = self.newest + 1..=published;
        let told = || {
            let samples = timings.iter().map(|timing| timing.samples[index]);
            samples.filter(|(sequence, ns)| fresh.contains(sequence) && *ns <= CLAIM_MAX_NS)
        };
        // Who is sent only some instruments has another first snapshot: the one that most have
        // counts.
        let most = told()
            .max_by_key(|(sequence, _)| told().filter(|(other, _)| other == sequence).count());
        let Some((sequence, _)) = most else { return };
        let latencies = || told().filter(|(other, _)| *other == sequence).map(|(_, ns)| ns);
        let count = latencies().count() as u64;
        if count < 2 {
            return;
        }
        let (Some(first), Some(last)) = (latencies().min(), latencies().max()) else { return };
        self.newest = sequence;
        let mean = latencies().map(u128::from).sum::<u128>() / u128::from(count);
        let figures = &mut self.figures;
        figures.first.record(first);
        figures.mean.record(mean as u64);
        figures.last.record(last);
        figures.skew.record(last - first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session that has received `sequence` after `latency_ns` in `slot`.
    fn told(slot: u64, sequence: u64, latency_ns: u64) -> Timing {
        let mut timing = Timing::default();
        timing.samples[(slot % CELL_SAMPLES as u64) as usize] = (sequence, latency_ns);
        timing
    }

    /// Snapshots published, where it does not matter.
    const MANY: u64 = 1 << 40;

    fn at(slot: u64) -> Nanos {
        Nanos(slot * SAMPLE_SLOT_NS)
    }

    #[test]
    fn a_slot_is_used_once_when_it_has_settled() {
        let mut sampling = FanOutSampling::default();
        let timings = [told(1_000, 7, 2_000), told(1_000, 7, 5_000), told(1_000, 7, 8_000)];
        for slot in 1_000..1_000 + SETTLED_SLOTS {
            sampling.on_look(at(slot), MANY, &timings);
            assert_eq!(sampling.figures().skew.count(), 0, "{slot}");
        }
        for _ in 0..3 {
            sampling.on_look(at(1_000 + SETTLED_SLOTS), MANY, &timings);
        }
        let FanOutFigures { first, mean, last, skew } = sampling.figures();
        for (buckets, sum_ns) in [(first, 2_000), (mean, 5_000), (last, 8_000), (skew, 6_000)] {
            assert_eq!((buckets.count(), buckets.sum_ns), (1, sum_ns));
        }
    }

    #[test]
    fn who_received_another_snapshot_is_not_compared() {
        let mut sampling = FanOutSampling::default();
        let timings =
            [told(50, 7, 1_000), told(50, 9, 900_000), told(50, 7, 3_000), Timing::default()];
        sampling.on_look(at(50 + SETTLED_SLOTS), MANY, &timings);
        assert_eq!(sampling.figures().skew.sum_ns, 2_000);
    }

    #[test]
    fn a_snapshot_that_one_received_has_no_skew() {
        let mut sampling = FanOutSampling::default();
        sampling.on_look(at(90), MANY, &[told(60, 7, 1), Timing::default()]);
        assert_eq!(sampling.figures(), FanOutFigures::default());
    }

    #[test]
    fn what_is_older_than_the_samples_reach_is_left_out() {
        let mut sampling = FanOutSampling::default();
        let timings = [told(100, 7, 1_000), told(100, 7, 2_000)];
        sampling.on_look(at(100 + 2 * CELL_SAMPLES as u64), MANY, &timings);
        assert_eq!(sampling.figures().skew.count(), 0);
    }

    #[test]
    fn absurd_claims_do_no_harm() {
        let mut sampling = FanOutSampling::default();
        let timings = [told(200, u64::MAX, u64::MAX), told(200, u64::MAX, u64::MAX - 1)];
        sampling.on_look(at(200 + SETTLED_SLOTS), MANY, &timings);
        assert_eq!(sampling.figures(), FanOutFigures::default());
        // What was never published would be newer than all that ever is.
        let timings = [told(201, u64::MAX, 1), told(201, u64::MAX, 2)];
        sampling.on_look(at(201 + SETTLED_SLOTS), u64::MAX - 1, &timings);
        assert_eq!(sampling.figures(), FanOutFigures::default());
        sampling.on_look(Nanos(u64::MAX), MANY, &timings);
    }

    #[test]
    fn who_claims_an_absurd_latency_does_not_spoil_what_the_others_told() {
        let mut sampling = FanOutSampling::default();
        let timings = [told(200, 7, 1_000), told(200, 7, u64::MAX), told(200, 7, 3_000)];
        sampling.on_look(at(200 + SETTLED_SLOTS), MANY, &timings);
        let FanOutFigures { mean, last, skew, .. } = sampling.figures();
        assert_eq!((mean.sum_ns, last.sum_ns, skew.sum_ns), (2_000, 3_000, 2_000));
    }

    #[test]
    fn in_an_idle_market_a_sample_is_used_once_however_often_the_slots_go_round() {
        let mut sampling = FanOutSampling::default();
        let timings = [told(1_000, 7, 2_000), told(1_000, 7, 5_000)];
        for slot in 1_000..1_000 + 5 * CELL_SAMPLES as u64 {
            sampling.on_look(at(slot), MANY, &timings);
        }
        assert_eq!(sampling.figures().skew.count(), 1);
    }

    #[test]
    fn a_clock_that_is_set_ahead_and_back_does_not_stop_the_sampling() {
        let mut sampling = FanOutSampling::default();
        let mut look = |slot: u64, sequence| {
            let timings = [told(slot, sequence, 2_000), told(slot, sequence, 5_000)];
            let now = at(slot + SETTLED_SLOTS);
            if sampling.is_due(now) {
                sampling.on_look(now, MANY, &timings);
            }
            sampling.figures().skew.count()
        };
        assert_eq!(look(1_000, 1), 1);
        let hours = 2 * 36_000;
        assert_eq!(look(1_001 + hours, 2), 2);
        // Back: it takes as many slots as settle, and from then on none is missed.
        let counts: Vec<u64> = (0..50).map(|n| look(1_002 + n, 3 + n)).collect();
        let resumed = SETTLED_SLOTS as usize + 1;
        assert_eq!(counts[..resumed], vec![2; resumed]);
        assert_eq!(counts[resumed..], (3..).take(50 - resumed).collect::<Vec<u64>>());
    }
}
