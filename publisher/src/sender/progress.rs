//! What the sender lets the rest of the process see.

use std::sync::atomic::{AtomicBool, Ordering};

use tapecast_telemetry::{Counter, Gauge};

/// Counts of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Snapshots handed to the fabric.
    pub published: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Batches that had something in them.
    pub batches: u64,
    /// Times that a lossless session stopped the sender.
    pub gate_stalls: u64,
    /// Whether one stops it now.
    pub gated: bool,
    /// Whether the feed has ended and everything that it queued was published.
    pub drained: bool,
}

/// The counts of a sender, raised by it alone, once per batch, and read by anybody.
///
/// Fields are independent: a reader may see one of them newer than another. Only `drained`
/// orders: who sees it sees the final counts.
#[derive(Debug, Default)]
pub struct SenderProgress {
    published: Counter,
    bytes: Counter,
    batches: Counter,
    gate_stalls: Counter,
    gated: AtomicBool,
    drained: AtomicBool,
    /// Duty cycles, whether or not there was anything to do. It has cache lines of its own.
    beats: Gauge,
}

impl SenderProgress {
    /// Says that a duty cycle begins.
    #[inline]
    pub(super) fn beat(&self) {
        self.beats.raise();
    }

    /// Duty cycles begun so far. They go on in an idle market, at least ten a second: a sender
    /// whose beats stand still hangs.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.beats.get()
    }

    /// Shows what has happened since `before` was shown.
    pub(super) fn show(&self, before: &Progress, now: &Progress) {
        self.published.add(now.published - before.published);
        self.bytes.add(now.bytes - before.bytes);
        self.batches.add(now.batches - before.batches);
        self.gate_stalls.add(now.gate_stalls - before.gate_stalls);
        self.gated.store(now.gated, Ordering::Relaxed);
        self.drained.store(now.drained, Ordering::Release);
    }

    /// The counts now.
    #[must_use]
    pub fn load(&self) -> Progress {
        let drained = self.drained.load(Ordering::Acquire);
        Progress {
            published: self.published.get(),
            bytes: self.bytes.get(),
            batches: self.batches.get(),
            gate_stalls: self.gate_stalls.get(),
            gated: self.gated.load(Ordering::Relaxed),
            drained,
        }
    }
}
