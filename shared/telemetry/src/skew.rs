//! Skew: how long after the first subscriber the last one had the same snapshot.
//!
//! It cannot be had from latency summaries: percentiles of each subscriber do not say which
//! snapshot they belong to. So each subscriber keeps the receive times of the same sample of
//! sequences (every Nth, the newest few thousand), and the samples are joined afterwards.
//!
//! What makes the joined figure honest:
//! - Only direct deliveries are recorded. A conflated or initial snapshot arrived late by design,
//!   and says nothing about the fan-out.
//! - Sequences that *every* subscriber received are kept apart from those that only some received:
//!   the slow ones are missing from the latter, so its figures flatter.
//! - All receive times must come from one clock. Between hosts, the skew includes the error of
//!   their clocks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::latency::{LatencyFigures, LatencySummary};

/// Keeps the receive times of every Nth sequence, the newest `capacity` of them.
///
/// Sixteen bytes for each sample, allocated at construction; recording never allocates and costs
/// one test for a sequence that is not sampled.
#[derive(Clone, Debug)]
pub struct SkewSampler {
    /// Sequences between samples; a power of two.
    every: u64,
    /// (channel sequence, receive time in ns), at index `sequence / every` modulo the length, so
    /// that all subscribers keep and drop the same sequences. Sequence 0: empty.
    samples: Box<[(u64, u64)]>,
}

impl SkewSampler {
    /// Samples every `every`th sequence and keeps the newest `capacity`. Both are rounded up to a
    /// power of two. All subscribers to be compared need the same values.
    #[must_use]
    pub fn new(every: u64, capacity: usize) -> Self {
        Self {
            every: every.max(1).next_power_of_two(),
            samples: vec![(0, 0); capacity.max(1).next_power_of_two()].into(),
        }
    }

    /// A snapshot was received directly (not conflated, not an initial image) at `receive_ns`. Of
    /// several receipts of one sequence the first counts.
    pub fn record(&mut self, channel_sequence: u64, receive_ns: u64) {
        if channel_sequence & (self.every - 1) != 0 {
            return;
        }
        let index = (channel_sequence / self.every) & (self.samples.len() as u64 - 1);
        let sample = &mut self.samples[index as usize];
        if sample.0 < channel_sequence {
            *sample = (channel_sequence, receive_ns);
        }
    }

    /// Hands out the samples of this `epoch` and starts again. Call it when the epoch changes, too:
    /// sequences start again there.
    pub fn take(&mut self, epoch: u64) -> SkewRecord {
        let mut samples: Vec<_> =
            self.samples.iter().copied().filter(|(sequence, _)| *sequence != 0).collect();
        samples.sort_unstable();
        self.samples.fill((0, 0));
        SkewRecord { epoch, every: self.every, samples }
    }
}

/// The samples of one subscriber.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkewRecord {
    /// The publisher's life that the sequences belong to.
    pub epoch: u64,
    /// Sequences between samples.
    pub every: u64,
    /// (channel sequence, receive time in ns), ascending by sequence.
    pub samples: Vec<(u64, u64)>,
}

/// Time from the first to the last subscriber that received a snapshot directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkewFigures {
    /// Subscribers compared.
    pub subscribers: u64,
    /// Over sampled sequences that every subscriber received; `count` says how many.
    pub complete: LatencyFigures,
    /// Over sampled sequences that at least two received, those above included. Flatters when
    /// subscribers skip.
    pub at_least_two: LatencyFigures,
}

/// Samples that cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkewError {
    /// Sequences of different lives of a publisher.
    #[error("samples of epochs {first} and {other}: take both from one life of the publisher")]
    Epochs {
        /// Epoch of the first record.
        first: u64,
        /// Another epoch.
        other: u64,
    },
    /// Sampled differently, so the common sequences would be a biased selection.
    #[error(
        "one subscriber samples every {first}th sequence, another every {other}th: configure \
             the same for all"
    )]
    Strides {
        /// Stride of the first record.
        first: u64,
        /// Another stride.
        other: u64,
    },
    /// Sequences that repeat or descend.
    #[error("samples are not in ascending order at sequence {sequence}: the record is damaged")]
    Order {
        /// Where.
        sequence: u64,
    },
}

/// One sampled sequence over all subscribers.
struct Spread {
    first_ns: u64,
    last_ns: u64,
    receivers: usize,
}

impl SkewFigures {
    /// Joins the samples of all subscribers, one record each.
    ///
    /// # Errors
    /// [`SkewError`] when the records do not belong together or are damaged.
    pub fn merge(records: &[SkewRecord]) -> Result<Self, SkewError> {
        let mut spreads = BTreeMap::<u64, Spread>::new();
        for record in records {
            check(&records[0], record)?;
            for (sequence, receive_ns) in &record.samples {
                let spread = spreads.entry(*sequence).or_insert(Spread {
                    first_ns: *receive_ns,
                    last_ns: *receive_ns,
                    receivers: 0,
                });
                spread.first_ns = spread.first_ns.min(*receive_ns);
                spread.last_ns = spread.last_ns.max(*receive_ns);
                spread.receivers += 1;
            }
        }
        let figures = |receivers_min: usize| {
            let mut skew = LatencySummary::new();
            spreads
                .values()
                .filter(|spread| spread.receivers >= receivers_min)
                .for_each(|spread| skew.record(spread.last_ns - spread.first_ns));
            skew.figures()
        };
        Ok(Self {
            subscribers: records.len() as u64,
            // One subscriber alone has nobody to differ from.
            complete: figures(records.len().max(2)),
            at_least_two: figures(2),
        })
    }
}

fn check(first: &SkewRecord, record: &SkewRecord) -> Result<(), SkewError> {
    if record.epoch != first.epoch {
        return Err(SkewError::Epochs { first: first.epoch, other: record.epoch });
    }
    if record.every != first.every {
        return Err(SkewError::Strides { first: first.every, other: record.every });
    }
    match record.samples.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        Some(pair) => Err(SkewError::Order { sequence: pair[1].0 }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{SkewError, SkewFigures, SkewRecord, SkewSampler};
    use crate::LatencyFigures;

    fn record(samples: &[(u64, u64)]) -> SkewRecord {
        SkewRecord { epoch: 1, every: 1, samples: samples.to_vec() }
    }

    #[test]
    fn every_nth_sequence_is_kept_and_no_other() {
        let mut sampler = SkewSampler::new(4, 16);
        (1..=20).for_each(|sequence| sampler.record(sequence, 100 + sequence));
        let taken = sampler.take(9);
        assert_eq!((taken.epoch, taken.every), (9, 4));
        assert_eq!(taken.samples, [(4, 104), (8, 108), (12, 112), (16, 116), (20, 120)]);
    }

    #[test]
    fn the_newest_are_kept_when_there_are_more() {
        let mut sampler = SkewSampler::new(1, 4);
        (1..=10).for_each(|sequence| sampler.record(sequence, sequence));
        assert_eq!(sampler.take(1).samples, [(7, 7), (8, 8), (9, 9), (10, 10)]);
    }

    #[test]
    fn taking_starts_again_so_that_a_new_epoch_may_count_from_one() {
        let mut sampler = SkewSampler::new(1, 4);
        sampler.record(1_000, 5);
        assert_eq!(sampler.take(1).samples, [(1_000, 5)]);
        assert_eq!(sampler.take(1).samples, []);
        sampler.record(1, 6);
        assert_eq!(sampler.take(2).samples, [(1, 6)]);
    }

    #[test]
    fn the_first_receipt_of_a_sequence_counts() {
        let mut sampler = SkewSampler::new(1, 4);
        sampler.record(3, 5);
        sampler.record(3, 9);
        assert_eq!(sampler.take(1).samples, [(3, 5)]);
    }

    #[test]
    fn odd_sizes_are_rounded_up_to_powers_of_two() {
        let mut sampler = SkewSampler::new(3, 3);
        (1..=16).for_each(|sequence| sampler.record(sequence, 0));
        let taken = sampler.take(1);
        assert_eq!(taken.every, 4);
        assert_eq!(taken.samples.len(), 4);
        assert_eq!(SkewSampler::new(0, 0).take(1), record(&[]));
    }

    #[test]
    fn skew_is_last_minus_first_over_those_that_received() {
        let figures = SkewFigures::merge(&[
            record(&[(1, 1_000), (2, 2_000), (3, 3_000)]),
            record(&[(1, 1_300), (2, 1_950)]),
            record(&[(1, 1_100), (4, 4_000)]),
        ])
        .unwrap();
        assert_eq!(figures.subscribers, 3);
        assert_eq!((figures.complete.count, figures.complete.max_ns), (1, 300));
        assert_eq!(figures.at_least_two.count, 2);
        assert_eq!((figures.at_least_two.min_ns, figures.at_least_two.max_ns), (50, 300));
    }

    #[test]
    fn one_subscriber_alone_and_none_at_all_have_no_skew() {
        for records in [vec![], vec![record(&[(1, 5), (2, 6)])]] {
            let figures = SkewFigures::merge(&records).unwrap();
            assert_eq!(figures.complete, LatencyFigures::default());
            assert_eq!(figures.at_least_two, LatencyFigures::default());
        }
    }

    #[test]
    fn records_that_do_not_belong_together_are_refused() {
        let other = |epoch, every| SkewRecord { epoch, every, samples: vec![(8, 1)] };
        assert_eq!(
            SkewFigures::merge(&[other(1, 1), other(2, 1)]),
            Err(SkewError::Epochs { first: 1, other: 2 })
        );
        assert_eq!(
            SkewFigures::merge(&[other(1, 1), other(1, 8)]),
            Err(SkewError::Strides { first: 1, other: 8 })
        );
        assert_eq!(
            SkewFigures::merge(&[record(&[(2, 1), (2, 1)])]),
            Err(SkewError::Order { sequence: 2 })
        );
    }

    #[test]
    fn a_record_survives_serde() {
        let sent = record(&[(1, 1_000), (2, u64::MAX)]);
        let json = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<SkewRecord>(&json).unwrap(), sent);
    }

    proptest! {
        #[test]
        fn subscribers_that_lose_nothing_agree_on_what_to_keep(
            every in 1u64..40,
            capacity in 1usize..40,
            last in 1u64..2_000,
            delay_ns in 0u64..5_000,
        ) {
            let mut near = SkewSampler::new(every, capacity);
            let mut far = SkewSampler::new(every, capacity);
            for sequence in 1..=last {
                near.record(sequence, sequence * 10);
                far.record(sequence, sequence * 10 + delay_ns);
            }
            let sampled = last / every.next_power_of_two();
            let records = [near.take(1), far.take(1)];
            let figures = SkewFigures::merge(&records).unwrap();
            let expected = sampled.min(capacity.next_power_of_two() as u64);
            prop_assert_eq!(figures.complete.count, expected);
            prop_assert_eq!(figures.complete, figures.at_least_two);
            if expected > 0 {
                prop_assert_eq!(figures.complete.min_ns, delay_ns);
                prop_assert_eq!(figures.complete.max_ns, delay_ns);
            }
        }
    }
}
