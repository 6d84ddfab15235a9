//! A least time between two snapshots of one instrument, kept by the reader: every subscriber reads
//! the one ring.

use std::time::{Duration, Instant};

use tapecast_core::Pace;
use tapecast_wire::{InstrumentId, Nanos};

/// The rests of instruments, by this process's own clock.
#[derive(Debug)]
pub(super) struct Rests {
    pace: Pace,
    began: Instant,
    /// Time as it was looked at last, once in each poll.
    now: Nanos,
}

impl Rests {
    /// `None` where there is no least time.
    pub(super) fn new(interval: Duration, capacity: usize) -> Option<Self> {
        let interval = Nanos(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
        let pace = (interval.0 > 0).then(|| Pace::new(interval, capacity))?;
        Some(Self { pace, began: Instant::now(), now: Nanos(0) })
    }

    /// Looks at the clock, and hands out what has rested long enough and has something newer; when
    /// the channel is over, everything that waits.
    pub(super) fn wake(&mut self, is_over: bool, mut due: impl FnMut(InstrumentId)) {
        if is_over {
            self.pace.stop();
        }
        self.now = self.time();
        while let Some(instrument) = self.pace.wake(self.now) {
            due(instrument);
        }
    }

    /// A snapshot of an instrument is delivered: it rests.
    pub(super) fn rest(&mut self, instrument: InstrumentId) {
        self.pace.rest(instrument, self.now);
    }

    /// Whether an instrument rests. What is there of it then waits: the latest table has it.
    pub(super) fn put_off(&mut self, instrument: InstrumentId) -> bool {
        let rests = self.pace.is_resting(instrument);
        if rests {
            self.pace.wait(instrument);
        }
        rests
    }

    /// How long nothing that waits is due; `None` while nothing waits.
    pub(super) fn left(&self) -> Option<Duration> {
        let end = self.pace.next_end()?;
        Some(Duration::from_nanos(end.since(self.time()).0))
    }

    fn time(&self) -> Nanos {
        Nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
