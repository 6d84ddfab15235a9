//! Databento DBN files: schemas `mbo` and `mbp-10`, plain or zstd, versions 1 to 3 and legacy DBZ.
//!
//! The crate `dbn` knows the records; reading the container is done here, because a file that was
//! cut short must be reported and the crate's decoders end it like a complete one. What an input is
//! follows from its first bytes, never from its name.
//!
//! ```text
//! file ─► content (plain, zstd, DBZ) ─► records (metadata, frames) ─► translate ─► EventSink
//! ```
//!
//! One thing cannot be noticed: a plain file cut exactly between two records. The format has
//! neither an end mark nor (in versions 1 to 3) a count.

mod bindings;
mod content;
mod counts;
mod error;
mod fields;
mod format;
mod inspect;
mod legacy;
mod records;
mod translate;

use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;

use dbn::Schema;
use tapecast_wire::Instrument;

pub use error::DbnError;
pub use inspect::DbnInspect;

use super::{EventSink, InputFile, Progress, Source, SourceStats};
use crate::feed::StopFlag;
use bindings::{Bindings, mapped_symbols};
use counts::Counts;
use records::RecordReader;
use translate::{BookKind, Step, Translator};

/// Records read in one call of [`Source::advance`] at most: a snapshot may go on for millions of
/// records without an event end, and the caller must stay responsive.
const RECORDS_PER_ADVANCE_MAX: usize = 1 << 16;

/// How to read a DBN input.
#[derive(Clone, Debug, Default)]
pub struct DbnOptions {
    /// Symbols to deliver, as the file names them; empty for all.
    pub symbols: Vec<String>,
    /// End at the cut of a truncated input as if it were its end.
    pub allow_truncated: bool,
    /// Ends the wait for a pipe's writer.
    pub stop: StopFlag,
}

/// A DBN input as a [`Source`]. Its counts are those of the current pass.
pub struct DbnSource<R = InputFile> {
    /// `None` only while the input is being rewound.
    reader: Option<RecordReader<R>>,
    name: Arc<str>,
    options: DbnOptions,
    translator: Translator,
    counts: Counts,
    bytes_total: Option<u64>,
    /// Whether an input gives nothing more for a moment.
    pauses: fn(&R) -> bool,
    ended: bool,
    truncation: Option<DbnError>,
}

impl<R> core::fmt::Debug for DbnSource<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DbnSource")
            .field("name", &self.name)
            .field("options", &self.options)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl DbnSource<InputFile> {
    /// Opens a file and reads its metadata.
    ///
    /// # Errors
    /// [`DbnError`] when the file cannot be opened, is not DBN with order books, or does not have a
    /// chosen symbol.
    pub fn open(path: &Path, options: DbnOptions) -> Result<Self, DbnError> {
        let (file, bytes) = open_file(path, &options.stop)?;
        let mut source = Self::from_reader(&path.display().to_string(), file, options)?;
        source.bytes_total = bytes;
        source.pauses = InputFile::pauses;
        Ok(source)
    }
}

impl<R: Read> DbnSource<R> {
    /// Reads the metadata of an input that is called `name` in error texts.
    ///
    /// # Errors
    /// As [`DbnSource::open`].
    pub fn from_reader(name: &str, input: R, options: DbnOptions) -> Result<Self, DbnError> {
        let name: Arc<str> = Arc::from(name);
        let reader = RecordReader::open(Arc::clone(&name), input)?;
        let kind = book_kind(&name, reader.metadata().schema)?;
        check_symbols(&name, &reader, &options.symbols)?;
        let bindings = Bindings::new(reader.metadata(), options.symbols.clone());
        Ok(Self {
            reader: Some(reader),
            name,
            options,
            translator: Translator::new(bindings, kind),
            counts: Counts::default(),
            bytes_total: None,
            pauses: |_| false,
            ended: false,
            truncation: None,
        })
    }

    /// The cut at which a truncated input was ended, when that was allowed.
    #[must_use]
    pub const fn truncation(&self) -> Option<&DbnError> {
        self.truncation.as_ref()
    }

    fn step<S: EventSink>(&mut self, sink: &mut S) -> Result<Option<Step>, DbnError> {
        if self.reader.as_ref().is_some_and(|reader| !reader.is_at_hand()) {
            self.tell_pause(sink);
        }
        let Some(reader) = &mut self.reader else {
            return Ok(None);
        };
        let Some(frame) = reader.next()? else {
            return Ok(None);
        };
        self.counts.add(frame);
        Ok(Some(self.translator.on_record(frame, sink)))
    }

    /// The reader has to read on. Where that may take long, what was read up to here is told.
    #[cold]
    fn tell_pause<S: EventSink>(&self, sink: &mut S) {
        let input = self.reader.as_ref().and_then(RecordReader::starved_input);
        if input.is_some_and(self.pauses) {
            sink.on_pause(|| self.count());
        }
    }

    fn count(&self) -> SourceStats {
        let (records, bytes) =
            self.reader.as_ref().map_or((0, 0), |reader| (reader.records(), reader.file_bytes()));
        SourceStats {
            by_type: self.counts.by_type(),
            messages: records,
            unknown: self.counts.unknown(),
            bytes_read: bytes,
            bytes_total: self.bytes_total,
        }
    }

    /// The input has ended well.
    fn finish<S: EventSink>(&mut self, sink: &mut S) -> Result<Progress, DbnError> {
        self.ended = true;
        if self.translator.kind() == BookKind::Undecided {
            let schema = format!("mixed, without order books: {:?}", self.counts.by_type());
            return Err(DbnError::Schema { path: self.name.to_string(), schema });
        }
        if self.translator.end_recoveries(sink) {
            sink.on_event_end();
            return Ok(Progress::Event { feed_time_ns: self.translator.feed_time_ns() });
        }
        Ok(Progress::End)
    }

    /// The input cannot be read further. After this, [`Source::advance`] says that it has ended.
    fn stop(&mut self, error: DbnError) -> Result<Progress, DbnError> {
        self.ended = true;
        if self.options.allow_truncated && matches!(error, DbnError::Truncated { .. }) {
            self.truncation = Some(error);
            return Ok(Progress::End);
        }
        Err(error)
    }
}

impl<R: Read + Seek + Send> Source for DbnSource<R> {
    type Error = DbnError;

    fn instruments(&self) -> &[Instrument] {
        self.translator.bindings.instruments()
    }

    fn advance<S: EventSink>(&mut self, sink: &mut S) -> Result<Progress, DbnError> {
        if self.ended {
            return Ok(Progress::End);
        }
        self.translator.announce_restart(sink);
        for _ in 0..RECORDS_PER_ADVANCE_MAX {
            match self.step(sink) {
                Ok(Some(Step::Within)) => {}
                Ok(Some(Step::EventEnd)) => break,
                Ok(Some(Step::DirectoryFull)) => {
                    let limit = tapecast_wire::limits::MAX_INSTRUMENTS;
                    let path = self.name.to_string();
                    return self.stop(DbnError::TooManyInstruments { path, limit });
                }
                Ok(None) => return self.finish(sink),
                Err(error) => return self.stop(error),
            }
        }
        Ok(Progress::Event { feed_time_ns: self.translator.feed_time_ns() })
    }

    fn stats(&self) -> SourceStats {
        self.count()
    }

    fn message_types(&self) -> Vec<String> {
        let actions: &[&str] = match self.translator.kind() {
            BookKind::Undecided => &[],
            BookKind::Orders => &["A", "C", "F", "M", "R", "T"],
            BookKind::Levels => &["A", "C", "M", "R", "T"],
        };
        actions.iter().map(|action| (*action).to_owned()).collect()
    }

    fn rewind(&mut self) -> Result<(), DbnError> {
        let Some(reader) = self.reader.take() else {
            return Ok(());
        };
        let mut input = reader.into_input();
        input.rewind().map_err(|source| DbnError::Read {
            path: self.name.to_string(),
            offset: 0,
            source,
        })?;
        self.reader = Some(RecordReader::open(Arc::clone(&self.name), input)?);
        self.translator.restart();
        self.counts = Counts::default();
        self.ended = false;
        self.truncation = None;
        Ok(())
    }
}

/// Opens a file for reading; also says how many bytes it has, unless it is a pipe.
fn open_file(path: &Path, stop: &StopFlag) -> Result<(InputFile, Option<u64>), DbnError> {
    let name = || path.display().to_string();
    let (file, facts) =
        InputFile::open(path, stop).map_err(|source| DbnError::Open { path: name(), source })?;
    if facts.is_dir() {
        return Err(DbnError::Directory { path: name() });
    }
    Ok((file, facts.is_file().then_some(facts.len())))
}

fn book_kind(name: &str, schema: Option<Schema>) -> Result<BookKind, DbnError> {
    match schema {
        None => Ok(BookKind::Undecided),
        Some(Schema::Mbo) => Ok(BookKind::Orders),
        Some(Schema::Mbp10) => Ok(BookKind::Levels),
        Some(other) => Err(DbnError::Schema { path: name.to_owned(), schema: schema_name(other) }),
    }
}

fn schema_name(schema: Schema) -> String {
    schema.as_str().to_owned()
}

/// Metadata without mappings leaves the symbols to the stream; nothing can be said before.
fn check_symbols<R: Read>(
    name: &str,
    reader: &RecordReader<R>,
    wanted: &[String],
) -> Result<(), DbnError> {
    const SHOWN: usize = 10;
    let known = mapped_symbols(reader.metadata());
    if known.is_empty() {
        return Ok(());
    }
    match wanted.iter().find(|wanted| known.iter().all(|(_, symbol)| symbol != *wanted)) {
        None => Ok(()),
        Some(symbol) => {
            let shown: Vec<&str> = known.iter().take(SHOWN).map(|(_, s)| s.as_str()).collect();
            let more = known.len().saturating_sub(SHOWN);
            let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(DbnError::UnknownSymbol {
                path: name.to_owned(),
                symbol: symbol.clone(),
                known: shown.join(", ") + &tail,
            })
        }
    }
}
