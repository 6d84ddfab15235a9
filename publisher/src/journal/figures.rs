//! What the journal shows of itself while it is written.

use std::sync::Arc;

use tapecast_journal::Totals;
use tapecast_telemetry::Gauge;

/// Figures of a journal: its thread writes, anybody reads. Clones are the same figures.
#[derive(Clone, Debug, Default)]
pub struct JournalFigures(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    records: Gauge,
    bytes: Gauge,
    holes: Gauge,
    lost: Gauge,
}

/// What [`JournalFigures`] say at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalReading {
    /// Snapshots written.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Places that are marked because snapshots are missing there.
    pub holes: u64,
    /// Snapshots that were published and are not in it.
    pub lost: u64,
}

impl JournalFigures {
    pub(super) fn show(&self, totals: &Totals, lost: u64) {
        self.0.records.set(totals.records);
        self.0.bytes.set(totals.bytes);
        self.0.holes.set(totals.holes);
        self.0.lost.set(lost);
    }

    /// The figures now.
    #[must_use]
    pub fn read(&self) -> JournalReading {
        let Shown { records, bytes, holes, lost } = &*self.0;
        JournalReading {
            records: records.get(),
            bytes: bytes.get(),
            holes: holes.get(),
            lost: lost.get(),
        }
    }
}
