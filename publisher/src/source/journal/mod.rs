//! A journal as a source: what was published before is published again, snapshot by snapshot.
//!
//! Its snapshots pass the books by ([`EventSink::on_snapshot`]): levels, flags, times and feed
//! sequence stay what they were. What is new is the epoch and, where the journal does not begin
//! with the first snapshot or has holes, the numbering.

mod error;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tapecast_journal::{Ending, Entry, Hole, How, OpenError, Series, headers_of};
use tapecast_wire::{Flags, Instrument, InstrumentId, Snapshot};
use tracing::warn;

pub use error::JournalSourceError;

use super::{EventSink, Progress, Source, SourceStats};
use crate::book::SnapshotDraft;

/// How a journal is played.
#[derive(Clone, Debug, Default)]
pub struct JournalOptions {
    /// Only these symbols; empty for all.
    pub symbols: Vec<String>,
    /// Take a file that was cut for complete.
    pub allow_truncated: bool,
    /// Levels per side that there is room for.
    pub levels_max: usize,
}

/// Plays a journal, a file or a folder.
#[derive(Debug)]
pub struct JournalSource {
    path: PathBuf,
    options: JournalOptions,
    series: Series,
    /// The record that the series stands at was not dealt with yet.
    is_pending: bool,
    ids: Ids,
    counts: Counts,
    truncated_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    snapshots: u64,
    instruments: u64,
    holes: u64,
    lost: u64,
    unwanted: u64,
}

impl JournalSource {
    /// Opens a journal and reads the directory at its beginning.
    ///
    /// # Errors
    /// [`JournalSourceError`] when it is no journal, or a symbol is not in it.
    pub fn open(path: &Path, options: JournalOptions) -> Result<Self, JournalSourceError> {
        let ids = Ids::new(&options.symbols);
        let mut source = Self {
            path: path.to_owned(),
            series: Series::open(path)?,
            options,
            is_pending: false,
            ids,
            counts: Counts::default(),
            truncated_at: None,
        };
        source.read_directory()?;
        source.check_symbols()?;
        Ok(source)
    }

    fn read_directory(&mut self) -> Result<(), JournalSourceError> {
        while self.series.advance()? {
            let Some(record) = self.series.record() else { return Ok(()) };
            let Entry::Instrument(instrument) = record.entry else {
                self.is_pending = true;
                return Ok(());
            };
            self.counts.instruments += 1;
            self.ids.enter(instrument);
        }
        Ok(())
    }

    fn check_symbols(&self) -> Result<(), JournalSourceError> {
        let is_listed =
            |symbol: &str| self.ids.instruments.iter().any(|known| known.symbol == symbol);
        match self.options.symbols.iter().find(|symbol| !is_listed(symbol)) {
            None => Ok(()),
            Some(symbol) => Err(JournalSourceError::NotListed {
                path: self.path.clone(),
                symbol: symbol.clone(),
                known: self.counts.instruments as usize,
            }),
        }
    }

    /// Whether the next file was begun; `false` at the end of all.
    fn next_file(&mut self) -> Result<bool, JournalSourceError> {
        if let Some(ending) = self.series.ending() {
            self.judge(ending)?;
        }
        if !self.series.next_file()? {
            return Ok(false);
        }
        // Another file may be of another epoch, whose ids mean other instruments.
        self.ids.forget_numbers();
        Ok(true)
    }

    fn judge(&mut self, ending: Ending) -> Result<(), JournalSourceError> {
        let is_fine = match ending.how {
            How::Closed | How::Open => true,
            How::Cut => self.options.allow_truncated,
            How::Damaged(_) => false,
        };
        if ending.how == How::Cut {
            self.truncated_at = Some(ending.at);
        }
        if is_fine {
            return Ok(());
        }
        let (path, snapshots) = (self.series.file().to_owned(), self.counts.snapshots);
        Err(JournalSourceError::Unsound { path, ending, snapshots })
    }

    /// Hands on the record that the series stands at. The feed's time, if it was a snapshot.
    fn hand_on<S: EventSink>(&mut self, sink: &mut S) -> Result<Option<u64>, JournalSourceError> {
        let Self { series, ids, counts, options, .. } = self;
        let Some(record) = series.record() else { return Ok(None) };
        match record.entry {
            Entry::Instrument(instrument) => {
                counts.instruments += 1;
                if let Some(known) = ids.enter(instrument) {
                    sink.on_instrument(known);
                }
                Ok(None)
            }
            Entry::Hole(hole) => {
                counts.holes += 1;
                counts.lost = counts.lost.saturating_add(hole.lost);
                tell_hole(series.file(), record.offset, hole);
                Ok(None)
            }
            Entry::Snapshot { snapshot, instrument } => {
                counts.snapshots += 1;
                let Some(id) = ids.of(&snapshot, instrument) else {
                    counts.unwanted += 1;
                    return Ok(None);
                };
                let levels = snapshot.bids().len().max(snapshot.asks().len());
                if levels > options.levels_max {
                    let (path, offset) = (series.file().to_owned(), record.offset);
                    let max = options.levels_max;
                    return Err(JournalSourceError::TooDeep { path, offset, levels, max });
                }
                let draft = draft_of(&snapshot, id);
                sink.on_snapshot(&draft, snapshot.bids(), snapshot.asks());
                Ok(Some(draft.ts_recv))
            }
        }
    }
}

impl Source for JournalSource {
    type Error = JournalSourceError;

    fn instruments(&self) -> &[Instrument] {
        &self.ids.instruments
    }

    fn advance<S: EventSink>(&mut self, sink: &mut S) -> Result<Progress, Self::Error> {
        loop {
            while std::mem::take(&mut self.is_pending) || self.series.advance()? {
                if let Some(feed_time_ns) = self.hand_on(sink)? {
                    return Ok(Progress::Event { feed_time_ns });
                }
            }
            if !self.next_file()? {
                return Ok(Progress::End);
            }
        }
    }

    fn stats(&self) -> SourceStats {
        let Counts { snapshots, instruments, holes, .. } = self.counts;
        let by_type = [("snapshot", snapshots), ("instrument", instruments), ("hole", holes)];
        SourceStats {
            by_type: by_type.map(|(name, count)| (name.to_owned(), count)).into(),
            messages: snapshots + instruments + holes,
            unknown: 0,
            bytes_read: self.series.bytes_read(),
            bytes_total: Some(self.series.bytes_total()),
        }
    }

    fn truncated_at(&self) -> Option<u64> {
        self.truncated_at
    }

    fn rewind(&mut self) -> Result<(), Self::Error> {
        self.series = Series::open(&self.path)?;
        self.is_pending = false;
        self.ids.forget_numbers();
        Ok(())
    }
}

/// Numbers of instruments: a journal's are those of the publisher that wrote it, and another epoch
/// of it may deal others.
#[derive(Debug, Default)]
struct Ids {
    wanted: Vec<String>,
    instruments: Vec<Instrument>,
    by_name: HashMap<(String, String), InstrumentId>,
    /// Own ids by those in the file; `None` for what is not wanted.
    by_number: HashMap<u32, Option<InstrumentId>>,
}

impl Ids {
    fn new(wanted: &[String]) -> Self {
        Self { wanted: wanted.to_vec(), ..Self::default() }
    }

    fn forget_numbers(&mut self) {
        self.by_number.clear();
    }

    /// Notes a directory entry. The own one, if it is new or has changed.
    fn enter(&mut self, given: &Instrument) -> Option<&Instrument> {
        let number = given.instrument_id.get();
        if !self.wanted.is_empty() && !self.wanted.contains(&given.symbol) {
            self.by_number.insert(number, None);
            return None;
        }
        let next = InstrumentId(self.instruments.len() as u32);
        let name = (given.symbol.clone(), given.venue.clone());
        let id = *self.by_name.entry(name).or_insert(next);
        self.by_number.insert(number, Some(id));
        let own = Instrument { instrument_id: id, ..given.clone() };
        match self.instruments.get_mut(id.index()) {
            Some(known) if *known == own => return None,
            Some(known) => *known = own,
            None => self.instruments.push(own),
        }
        self.instruments.get(id.index())
    }

    /// The own id of a snapshot's instrument, if that is wanted and has a name.
    fn of(&self, snapshot: &Snapshot<'_>, instrument: Option<&Instrument>) -> Option<InstrumentId> {
        instrument?;
        self.by_number.get(&snapshot.instrument_id().get()).copied().flatten()
    }
}

/// What was published, without what only the receiving end can know.
fn draft_of(snapshot: &Snapshot<'_>, instrument: InstrumentId) -> SnapshotDraft {
    let header = snapshot.header();
    let received = Flags::INITIAL_IMAGE.with(Flags::CONFLATED);
    SnapshotDraft {
        instrument,
        flags: Flags(header.flags.0 & !received.0),
        status: snapshot.trading_status(),
        feed_sequence: header.feed_sequence,
        ts_event: header.ts_event,
        ts_recv: header.ts_recv,
        last_trade: snapshot.last_trade(),
    }
}

fn tell_hole(file: &Path, offset: u64, hole: Hole) {
    warn!(
        lost = hole.lost,
        "{} has a hole at byte {offset}: these snapshots were published and not written down",
        file.display()
    );
}

/// Most levels per side in a journal, as its headers say; `None` when one of them does not.
///
/// # Errors
/// [`OpenError`] when it cannot be read, or is no journal.
pub fn levels_of(path: &Path) -> Result<Option<usize>, OpenError> {
    let levels = headers_of(path)?.into_iter().map(|header| header.levels);
    Ok(levels.reduce(|most, levels| Some(levels?.max(most?))).flatten())
}
