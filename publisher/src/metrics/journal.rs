//! Series of the journal, where there is one.

use crate::journal::JournalReading;
use tapecast_telemetry::families::{Families, Named};

/// What is on disk, and what is not.
pub(super) fn collect(out: &mut Families, reading: JournalReading) {
    for (name, value) in [
        (
            Named("tapecast_journal_written_snapshots_total", "Snapshots written to the journal."),
            reading.records,
        ),
        (
            Named("tapecast_journal_written_bytes_total", "Bytes written to the journal."),
            reading.bytes,
        ),
        (
            Named(
                "tapecast_journal_lost_snapshots_total",
                "Snapshots that were published and are not in the journal, because its disk was \
                 full, slow or broken. Publishing did not wait for it.",
            ),
            reading.lost,
        ),
        (
            Named(
                "tapecast_journal_holes_total",
                "Places in the journal that are marked because snapshots are missing there.",
            ),
            reading.holes,
        ),
    ] {
        out.counter(name, value);
    }
}
