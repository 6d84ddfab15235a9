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
}

impl FanOutSampling {
    pub(super) const fn figures(&self) -> FanOutFigures {
        self.figures
    }

    /// Whether slots have settled since the last look.
    pub(super) const fn is_due(&self, now: Nanos) -> bool {
        now.0 / SAMPLE_SLOT_NS > self.used + SETTLED_SLOTS
    }

    /// Uses what has settled by `now`. Slots that nobody looked at in time are left out.
    pub(super) fn on_look(&mut self, now: Nanos, timings: &[Timing]) {
        let slot = now.0 / SAMPLE_SLOT_NS;
        let settled = slot.saturating_sub(SETTLED_SLOTS);
        let kept = slot.saturating_sub(CELL_SAMPLES as u64 - 2);
        for slot in kept.max(self.used + 1)..=settled {
            self.use_slot((slot % CELL_SAMPLES as u64) as usize, timings);
        }
        self.used = settled.max(self.used);
    }

    fn use_slot(&mut self, index: usize, timings: &[Timing]) {
        let told = || {
            let samples = timings.iter().map(|timing| timing.samples[index]);
            samples.filter(|(_, ns)| *ns <= CLAIM_MAX_NS)
        };
        // Who is sent only some instruments has another first snapshot: the one that most have
        // counts.
        let most = told()
            .filter(|(sequence, _)| *sequence > 0)
            .max_by_key(|(sequence, _)| told().filter(|(other, _)| other == sequence).count());
        let Some((sequence, _)) = most else { return };
        let latencies = || told().filter(|(other, _)| *other == sequence).map(|(_, ns)| ns);
        let count = latencies().count() as u64;
        if count < 2 {
            return;
        }
        let (Some(first), Some(last)) = (latencies().min(), latencies().max()) else { return };
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

    fn at(slot: u64) -> Nanos {
        Nanos(slot * SAMPLE_SLOT_NS)
    }

    #[test]
    fn a_slot_is_used_once_when_it_has_settled() {
        let mut sampling = FanOutSampling::default();
        let timings = [told(1_000, 7, 2_000), told(1_000, 7, 5_000), told(1_000, 7, 8_000)];
        for slot in 1_000..1_000 + SETTLED_SLOTS {
            sampling.on_look(at(slot), &timings);
            assert_eq!(sampling.figures().skew.count(), 0, "{slot}");
        }
        for _ in 0..3 {
            sampling.on_look(at(1_000 + SETTLED_SLOTS), &timings);
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
        sampling.on_look(at(50 + SETTLED_SLOTS), &timings);
        assert_eq!(sampling.figures().skew.sum_ns, 2_000);
    }

    #[test]
    fn a_snapshot_that_one_received_has_no_skew() {
        let mut sampling = FanOutSampling::default();
        sampling.on_look(at(90), &[told(60, 7, 1), Timing::default()]);
        assert_eq!(sampling.figures(), FanOutFigures::default());
    }

    #[test]
    fn what_is_older_than_the_samples_reach_is_left_out() {
        let mut sampling = FanOutSampling::default();
        let timings = [told(100, 7, 1_000), told(100, 7, 2_000)];
        sampling.on_look(at(100 + 2 * CELL_SAMPLES as u64), &timings);
        assert_eq!(sampling.figures().skew.count(), 0);
    }

    #[test]
    fn absurd_claims_do_no_harm() {
        let mut sampling = FanOutSampling::default();
        let timings = [told(200, u64::MAX, u64::MAX), told(200, u64::MAX, u64::MAX - 1)];
        sampling.on_look(at(200 + SETTLED_SLOTS), &timings);
        assert_eq!(sampling.figures(), FanOutFigures::default());
        sampling.on_look(Nanos(u64::MAX), &timings);
    }

    #[test]
    fn who_claims_an_absurd_latency_does_not_spoil_what_the_others_told() {
        let mut sampling = FanOutSampling::default();
        let timings = [told(200, 7, 1_000), told(200, 7, u64::MAX), told(200, 7, 3_000)];
        sampling.on_look(at(200 + SETTLED_SLOTS), &timings);
        let FanOutFigures { mean, last, skew, .. } = sampling.figures();
        assert_eq!((mean.sum_ns, last.sum_ns, skew.sum_ns), (2_000, 3_000, 2_000));
    }
}
