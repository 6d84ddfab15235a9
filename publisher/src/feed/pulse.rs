//! Whether the feed is heard: what the feed thread, the conductor and the sender tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tapecast_wire::Nanos;

/// A word on cache lines of its own: one thread writes it often, and what others read often must
/// not lie beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Word(AtomicU64);

/// Signs of life of the feed. The feed thread gives them, with each step that its source makes and
/// while it waits for the sender; so they stop exactly while it waits for its source. Clones are
/// the same pulse.
#[derive(Clone, Debug, Default)]
pub struct FeedPulse(Arc<Word>);

impl FeedPulse {
    /// Gives a sign. Two plain instructions: only one thread does it.
    #[inline]
    pub fn beat(&self) {
        let beats = &self.0.0;
        // Relaxed: a sign orders nothing.
        beats.store(beats.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Signs given so far.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }
}

/// Since when the feed is silent, as the conductor tells the sender. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct SilentSince(Arc<Word>);

impl SilentSince {
    /// Says since when, Unix ns; 0 for that it is not silent.
    pub fn set(&self, since: Nanos) {
        // Relaxed: it orders nothing, and whoever rings the sender afterwards makes it visible.
        self.0.0.store(since.0, Ordering::Relaxed);
    }

    /// Since when; 0 for that it is not silent.
    #[must_use]
    #[inline]
    pub fn get(&self) -> Nanos {
        Nanos(self.0.0.load(Ordering::Relaxed))
    }
}
