//! What the feed shows as it happens: right also while it stands still.

use std::sync::Arc;

use tapecast_telemetry::{Gauge, Spells};
use tapecast_wire::Nanos;

use crate::clock::unix_now;

/// Figures that the feed thread keeps up to date by itself, with plain stores; anybody reads them.
/// Clones are the same gauges.
#[derive(Clone, Debug, Default)]
pub struct FeedGauges(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    queue_stalls: Gauge,
    pool_stalls: Gauge,
    stalled: Spells,
    /// Most pages that were in use when one was taken; 0 before the first.
    pool_used_max: Gauge,
    suspect: Gauge,
}

/// What [`FeedGauges`] say at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedGaugesReading {
    /// Times that the queue to the sender was found full. One counts when it begins.
    pub queue_stalls: u64,
    /// Times that the page pool was found empty. One counts when it begins.
    pub pool_stalls: u64,
    /// How long the feed waited for room in the queue or for a page, the present wait included.
    pub stalled_ns: u64,
    /// Most pages that were in use when the feed took one.
    pub pool_used_max: u64,
    /// Instruments whose latest snapshot is suspect.
    pub suspect: u64,
}

/// A wait for the sender, until it is dropped.
#[derive(Debug)]
pub(super) struct Stall<'a>(&'a FeedGauges);

impl FeedGauges {
    /// The queue is full, and the feed begins to wait.
    pub(super) fn on_queue_full(&self) -> Stall<'_> {
        self.0.queue_stalls.raise();
        self.stall()
    }

    /// The pool is empty, and the feed begins to wait.
    pub(super) fn on_pool_empty(&self) -> Stall<'_> {
        self.0.pool_stalls.raise();
        self.stall()
    }

    fn stall(&self) -> Stall<'_> {
        self.0.stalled.set(true, unix_now().0);
        Stall(self)
    }

    /// A page is being taken while so many are in use.
    #[inline]
    pub(super) fn on_loan(&self, used: usize) {
        if used as u64 > self.0.pool_used_max.get() {
            self.0.pool_used_max.set(used as u64);
        }
    }

    /// So many instruments are suspect.
    pub(super) fn show_suspect(&self, instruments: u64) {
        self.0.suspect.set(instruments);
    }

    /// What they say at `now`.
    #[must_use]
    pub fn read(&self, now: Nanos) -> FeedGaugesReading {
        let Shown { queue_stalls, pool_stalls, stalled, pool_used_max, suspect } = &*self.0;
        FeedGaugesReading {
            queue_stalls: queue_stalls.get(),
            pool_stalls: pool_stalls.get(),
            stalled_ns: stalled.total_ns(now.0),
            pool_used_max: pool_used_max.get(),
            suspect: suspect.get(),
        }
    }
}

impl Drop for Stall<'_> {
    fn drop(&mut self) {
        self.0.0.stalled.set(false, unix_now().0);
    }
}
