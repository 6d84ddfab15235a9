//! Whether the feed is heard: what the feed thread, the conductor and the sender tell each other.

use std::sync::Arc;

use tapecast_telemetry::Gauge;
use tapecast_wire::Nanos;

/// Signs of life of the feed. The feed thread gives them, with each step that its source makes and
/// while it waits for the sender; so they stop exactly while it waits for its source. Clones are
/// the same pulse.
#[derive(Clone, Debug, Default)]
pub struct FeedPulse(Arc<Signs>);

#[derive(Debug, Default)]
struct Signs {
    beats: Gauge,
    /// 1 while an event is being published.
    works: Gauge,
}

impl FeedPulse {
    /// Gives a sign. Only one thread does.
    #[inline]
    pub fn beat(&self) {
        self.0.beats.raise();
    }

    /// Signs given so far.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.0.beats.get()
    }

    /// Says that what is due is being published; from here to [`Self::rest`] nothing waits for the
    /// source or the clock. Only the feed thread does.
    #[inline]
    pub fn work(&self) {
        self.0.works.set(1);
    }

    /// Says that it was published.
    #[inline]
    pub fn rest(&self) {
        self.0.works.set(0);
    }

    /// Whether something is being published. A feed that works and does not beat hangs.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.0.works.get() != 0
    }
}

/// Since when the feed is silent, as the conductor tells the sender. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct SilentSince(Arc<Gauge>);

impl SilentSince {
    /// Says since when, Unix ns; 0 for that it is not silent. Ring the sender afterwards.
    pub fn set(&self, since: Nanos) {
        self.0.set(since.0);
    }

    /// Since when; 0 for that it is not silent.
    #[must_use]
    #[inline]
    pub fn get(&self) -> Nanos {
        Nanos(self.0.get())
    }
}
