//! What a fabric with one ring for each session shows of itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tapecast_telemetry::{LatencyBuckets, SharedBuckets};

use crate::{NetworkStats, QueuePairStates};

/// What one line has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Work requests posted.
    pub work_requests: u64,
    /// Calls that posted them.
    pub doorbells: u64,
    /// Bytes that they write.
    pub bytes: u64,
}

impl Sent {
    pub(super) const fn add(&mut self, more: Self) {
        self.work_requests += more.work_requests;
        self.doorbells += more.doorbells;
        self.bytes += more.bytes;
    }
}

/// What the completion queue has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Completions taken.
    pub completions: u64,
    /// Of those, for sessions that were gone by then.
    pub strays: u64,
    /// Most completions found before the queue was empty.
    pub high_water: u64,
}

/// Figures of a network: the sender writes, anybody reads. Clones are the same figures.
#[derive(Clone, Debug, Default)]
pub struct NetworkFigures(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    words: [AtomicU64; WORDS],
    post_to_completion: SharedBuckets,
}

const WORDS: usize = 13;

impl NetworkFigures {
    /// Depths are not the network's to know: they stay 0.
    pub(super) fn show(&self, stats: &NetworkStats) {
        for (word, value) in self.0.words.iter().zip(words(stats)) {
            // Relaxed: figures order nothing.
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(super) fn on_completed(&self, took_ns: u64) {
        self.0.post_to_completion.record(took_ns);
    }

    /// The figures now.
    #[must_use]
    pub fn load(&self) -> NetworkStats {
        let word = |index: usize| self.0.words[index].load(Ordering::Relaxed);
        NetworkStats {
            work_requests: word(0),
            doorbells: word(1),
            bytes: word(2),
            completions: word(3),
            strays: word(4),
            completions_high_water: word(5),
            receiver_not_ready: word(6),
            outstanding: word(7),
            outstanding_max: word(8),
            queue_pairs: QueuePairStates {
                preparing: word(9),
                ready_to_receive: word(10),
                ready_to_send: word(11),
                failed: word(12),
            },
            ..NetworkStats::default()
        }
    }

    /// How long sampled work requests took from their doorbell to their completion.
    #[must_use]
    pub fn post_to_completion(&self) -> LatencyBuckets {
        self.0.post_to_completion.load()
    }
}

const fn words(stats: &NetworkStats) -> [u64; WORDS] {
    [
        stats.work_requests,
        stats.doorbells,
        stats.bytes,
        stats.completions,
        stats.strays,
        stats.completions_high_water,
        stats.receiver_not_ready,
        stats.outstanding,
        stats.outstanding_max,
        stats.queue_pairs.preparing,
        stats.queue_pairs.ready_to_receive,
        stats.queue_pairs.ready_to_send,
        stats.queue_pairs.failed,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read() {
        let figures = NetworkFigures::default();
        let stats = NetworkStats {
            work_requests: 1,
            doorbells: 2,
            bytes: 3,
            completions: 4,
            strays: 5,
            completions_high_water: 6,
            receiver_not_ready: 7,
            outstanding: 8,
            outstanding_max: 9,
            queue_pairs: QueuePairStates {
                preparing: 10,
                ready_to_receive: 11,
                ready_to_send: 12,
                failed: 13,
            },
            completion_depth: 0,
            send_depth: 0,
        };
        figures.show(&stats);
        assert_eq!(figures.load(), stats);
    }
}
