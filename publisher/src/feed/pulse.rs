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

/// Signs of life of who reads the input, from its opening on. Clones are the same pulse.
#[derive(Clone, Debug, Default)]
pub struct InputPulse(Arc<InputSigns>);

#[derive(Debug, Default)]
struct InputSigns {
    reads: Gauge,
    naps: Gauge,
}

/// What an [`InputPulse`] has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputBeats {
    /// Reads that something came of, or the end.
    pub reads: u64,
    /// Naps that ended with nothing to read: the writer of a pipe pauses, or there is none yet.
    pub naps: u64,
}

impl InputPulse {
    /// Something was read. Only who reads says so, as all here.
    pub fn on_read(&self) {
        self.0.reads.raise();
    }

    /// There was nothing to read for a nap.
    pub fn on_nap(&self) {
        self.0.naps.raise();
    }

    /// Signs given so far.
    #[must_use]
    pub fn beats(&self) -> InputBeats {
        InputBeats { reads: self.0.reads.get(), naps: self.0.naps.get() }
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
