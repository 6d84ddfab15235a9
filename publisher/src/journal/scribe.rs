//! The journal's thread: writes what the tap hands over, and copes with a disk that does not.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use tapecast_journal::{Hole, JournalError, Totals, Writer};
use tapecast_wire::{InstrumentEntry, Nanos, Snapshot};
use tracing::{error, info, warn};
use zerocopy::FromBytes;

use super::JournalReport;
use super::chunk::{Chunk, ItemKind, Parcel};
use super::figures::JournalFigures;
use crate::clock::unix_now;

/// Pause when there is nothing to write.
const NAP: Duration = Duration::from_millis(2);
/// Pause before a disk that refused is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Lines about troubles of the same kind are at least so far apart.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Writes the journal.
#[derive(Debug)]
pub(super) struct Scribe {
    path: PathBuf,
    writer: Writer,
    full: Receiver<Parcel>,
    empty: Sender<Chunk>,
    /// What is missing and not marked yet.
    hole: Hole,
    /// When to try again; `None` while all is well.
    retry_at: Option<Instant>,
    lost: u64,
    first_error: Option<String>,
    said: Option<Instant>,
    said_slow: Option<Instant>,
    figures: Option<JournalFigures>,
}

impl Scribe {
    pub(super) const fn new(
        path: PathBuf,
        writer: Writer,
        full: Receiver<Parcel>,
        empty: Sender<Chunk>,
    ) -> Self {
        Self {
            path,
            writer,
            full,
            empty,
            hole: Hole { lost: 0, first_sequence: 0, last_sequence: 0 },
            retry_at: None,
            lost: 0,
            first_error: None,
            said: None,
            said_slow: None,
            figures: None,
        }
    }

    /// The same, which shows what it does.
    pub(super) fn with_figures(self, figures: JournalFigures) -> Self {
        Self { figures: Some(figures), ..self }
    }

    /// Writes until the tap is gone, and closes the journal.
    pub(super) fn run(mut self) -> JournalReport {
        loop {
            match self.full.try_recv() {
                Ok(Parcel::Chunk(mut chunk)) => {
                    self.write(&chunk);
                    chunk.clear();
                    if let Some(figures) = &self.figures {
                        figures.show(&self.writer.totals(), self.lost);
                    }
                    // The tap is gone when this fails, and needs no chunk any more.
                    let _returned = self.empty.try_send(chunk);
                }
                Ok(Parcel::End(hole)) => {
                    self.miss_slowly(hole);
                    break;
                }
                Err(TryRecvError::Empty) => std::thread::sleep(NAP),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        self.close()
    }

    fn write(&mut self, chunk: &Chunk) {
        self.miss_slowly(chunk.hole);
        let now = unix_now();
        if let Err(error) = self.writer.inspect() {
            self.complain(&error);
        }
        for (kind, item) in chunk.items() {
            match kind {
                ItemKind::Snapshot => self.write_snapshot(item, now),
                ItemKind::Instrument => self.write_instrument(item, now),
            }
        }
    }

    fn write_snapshot(&mut self, record: &[u8], now: Nanos) {
        if !self.is_writable(now) {
            self.miss(record);
            return;
        }
        if let Err(error) = self.writer.append_snapshot(record, now) {
            self.trouble(&error);
            self.miss(record);
        }
    }

    fn write_instrument(&mut self, item: &[u8], now: Nanos) {
        // The encoder wrote these bytes from an entry.
        let Ok(entry) = InstrumentEntry::read_from_bytes(item) else { return };
        // Should it not be written now, it will be before the next snapshot.
        if let Err(error) = self.writer.append_instrument(&entry, now) {
            self.trouble(&error);
        }
    }

    /// Whether the file can be written to, and what is missing before is marked in it.
    fn is_writable(&mut self, now: Nanos) -> bool {
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        let was_in_trouble = self.retry_at.is_some();
        if !self.hole.is_empty() {
            if let Err(error) = self.writer.append_hole(self.hole, now) {
                self.trouble(&error);
                return false;
            }
            if was_in_trouble {
                let lost = self.hole.lost;
                info!(lost, "the journal is written again; the hole is marked in it");
            }
            self.hole = Hole::default();
        }
        self.retry_at = None;
        true
    }

    fn miss(&mut self, record: &[u8]) {
        let sequence = Snapshot::header_of(record).map_or(0, |header| header.channel_sequence);
        self.hole.add(sequence);
        self.lost += 1;
    }

    /// What the tap found no empty chunk for.
    fn miss_slowly(&mut self, hole: Hole) {
        if hole.is_empty() {
            return;
        }
        self.hole.join(hole);
        self.lost += hole.lost;
        // A disk that refuses has been told of already.
        if self.retry_at.is_none() && is_due(&mut self.said_slow) {
            warn!(
                lost = hole.lost,
                "the journal's disk is too slow: these snapshots are published but not in the \
                 journal, which is marked there; use a faster disk, or raise journal.buffer_bytes"
            );
        }
    }

    fn trouble(&mut self, error: &JournalError) {
        self.retry_at = Some(Instant::now() + RETRY_AFTER);
        self.complain(error);
    }

    fn complain(&mut self, error: &JournalError) {
        if self.first_error.is_none() {
            self.first_error = Some(error.to_string());
        }
        if is_due(&mut self.said) {
            error!(
                "the journal has a hole from here on, publishing goes on: {error}; it is tried \
                 again and again"
            );
        }
    }

    fn close(mut self) -> JournalReport {
        let now = unix_now();
        self.retry_at = None;
        if let Err(error) = self.writer.inspect() {
            self.complain(&error);
        }
        // Whatever does not work now has been said, or is said here.
        self.is_writable(now);
        let Self { path, writer, lost, mut first_error, .. } = self;
        let before = writer.totals();
        let totals = writer.close(now).unwrap_or_else(|error| {
            error!("the journal is not closed in good order: {error}");
            first_error.get_or_insert_with(|| error.to_string());
            before
        });
        let Totals { records, bytes, files, holes } = totals;
        JournalReport { path, records, bytes, files, lost, holes, error: first_error }
    }
}

/// Whether a line may be said again; notes that it is.
fn is_due(said: &mut Option<Instant>) -> bool {
    let due = said.is_none_or(|at| at.elapsed() >= SAY_EVERY);
    if due {
        *said = Some(Instant::now());
    }
    due
}
