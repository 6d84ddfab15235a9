//! The JSON report of a publisher's life (`run --report`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tapecast_control::ListenerStats;
use tapecast_telemetry::LatencyFigures;
use tapecast_wire::Instrument;

use crate::book::BookStats;
use crate::conductor::{Evictions, PoolRecord, Refusals, SessionRecord};
use crate::feed::FeedEnd;
use crate::journal::JournalReport;
use crate::sender::SenderReport;
use crate::source::SourceStats;

/// The report. All counts are of the publisher's whole life.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the publisher.
    pub publisher: String,
    /// Release that wrote this.
    pub version: &'static str,
    /// Life of the publisher: its start, Unix nanoseconds.
    pub epoch: u64,
    /// When the report was written, Unix nanoseconds.
    pub written_ns: u64,
    /// What was read.
    pub source: SourceReport,
    /// What was published.
    pub totals: Totals,
    /// Cost of publishing one snapshot, from one to the next, in nanoseconds.
    pub publish_cost: LatencyFigures,
    /// Every instrument in the directory, in order of its id.
    pub instruments: Vec<InstrumentReport>,
    /// Every session, in order of attaching.
    pub sessions: Vec<SessionRecord>,
    /// Requests for a session that were not granted.
    pub refusals: Refusals,
    /// Sessions that were taken out, by reason.
    pub evictions: Evictions,
    /// The page pool when everything was published.
    pub pool: PoolRecord,
    /// What became of connections to the control plane.
    pub listener: ListenerStats,
    /// The journal, if there is one.
    pub journal: Option<JournalReport>,
}

/// What was read.
#[derive(Clone, Debug, Serialize)]
pub struct SourceReport {
    /// Kind of source.
    pub kind: &'static str,
    /// Its file.
    pub file: Option<PathBuf>,
    /// `ended`, `stopped` (by a signal) or `failed`.
    pub outcome: &'static str,
    /// Why it failed.
    pub error: Option<String>,
    /// Messages read.
    pub messages: u64,
    /// Messages of a type that this release does not know.
    pub unknown: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Size of the input.
    pub bytes_total: Option<u64>,
    /// Messages by type, as the feed names them.
    pub by_type: Vec<(String, u64)>,
    /// Events applied to books.
    pub book_events: u64,
    /// Events for orders that are not in the book.
    pub unknown_orders: u64,
    /// Orders that came again while live.
    pub duplicate_orders: u64,
    /// Reductions of more than the order had.
    pub excess_reductions: u64,
    /// Events that cannot be.
    pub refused: u64,
}

/// What was published.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Totals {
    /// Snapshots handed to the fabric.
    pub published: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Batches.
    pub batches: u64,
    /// Snapshots that were still queued at the end.
    pub discarded: u64,
    /// Times that the feed found the queue to the sender full.
    pub queue_stalls: u64,
    /// Times that the feed found the page pool empty.
    pub pool_stalls: u64,
    /// Times that a lossless subscriber stopped the sender.
    pub gate_stalls: u64,
}

/// One instrument.
#[derive(Clone, Debug, Serialize)]
pub struct InstrumentReport {
    /// Its id.
    pub instrument_id: u32,
    /// Its symbol.
    pub symbol: String,
    /// Its venue.
    pub venue: String,
    /// Snapshots published: its last sequence.
    pub published: u64,
}

/// What a report is made from.
#[derive(Debug)]
pub struct Findings<'a> {
    /// Name of the publisher.
    pub publisher: &'a str,
    /// Life of the publisher.
    pub epoch: u64,
    /// Now.
    pub written_ns: u64,
    /// Kind of source.
    pub kind: &'static str,
    /// Its file.
    pub file: Option<PathBuf>,
    /// The end of the feed, if it came.
    pub feed: Option<&'a FeedEnd>,
    /// What the sender did.
    pub sender: &'a SenderReport,
    /// The directory.
    pub instruments: &'a [Instrument],
    /// The sessions.
    pub sessions: Vec<SessionRecord>,
    /// Requests that were not granted.
    pub refusals: Refusals,
    /// Sessions that were taken out.
    pub evictions: Evictions,
    /// The page pool at rest.
    pub pool: PoolRecord,
    /// Connections to the control plane.
    pub listener: ListenerStats,
    /// What the journal came to, if there is one.
    pub journal: Option<JournalReport>,
}

impl Report {
    /// Puts the findings together.
    #[must_use]
    pub fn new(findings: Findings<'_>) -> Self {
        let instruments = instruments(&findings);
        let Findings {
            publisher,
            epoch,
            written_ns,
            feed,
            sender,
            sessions,
            refusals,
            evictions,
            pool,
            listener,
            journal,
            ..
        } = findings;
        let progress = sender.progress;
        Self {
            publisher: publisher.to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            epoch,
            written_ns,
            source: source(findings.kind, findings.file, feed),
            totals: Totals {
                published: progress.published,
                bytes: progress.bytes,
                batches: progress.batches,
                discarded: sender.discarded.len() as u64,
                queue_stalls: feed.map_or(0, |end| end.queue_stalls),
                pool_stalls: feed.map_or(0, |end| end.pool_stalls),
                gate_stalls: progress.gate_stalls,
            },
            publish_cost: sender.cost.figures(),
            instruments,
            sessions,
            refusals,
            evictions,
            pool,
            listener,
            journal,
        }
    }
}

fn source(kind: &'static str, file: Option<PathBuf>, feed: Option<&FeedEnd>) -> SourceReport {
    let SourceStats { by_type, messages, unknown, bytes_read, bytes_total } =
        feed.map(|end| end.source.clone()).unwrap_or_default();
    let books: BookStats = feed.map(|end| end.books).unwrap_or_default();
    let outcome = feed.map_or("stopped", |end| end.outcome.word());
    SourceReport {
        kind,
        file,
        outcome,
        error: feed.and_then(|end| end.outcome.error().map(str::to_owned)),
        messages,
        unknown,
        bytes_read,
        bytes_total,
        by_type,
        book_events: books.events,
        unknown_orders: books.unknown_orders,
        duplicate_orders: books.duplicate_orders,
        excess_reductions: books.excess_reductions,
        refused: books.refused,
    }
}

fn instruments(findings: &Findings<'_>) -> Vec<InstrumentReport> {
    let given = findings.feed.map_or(&[][..], |end| &end.instrument_sequences);
    let mut published: Vec<u64> = given.iter().map(|last| last.0).collect();
    published.resize(findings.instruments.len().max(published.len()), 0);
    for id in &findings.sender.discarded {
        if let Some(count) = published.get_mut(id.index()) {
            *count = count.saturating_sub(1);
        }
    }
    let with_counts = findings.instruments.iter().zip(published);
    with_counts
        .map(|(instrument, published)| InstrumentReport {
            instrument_id: instrument.instrument_id.0,
            symbol: instrument.symbol.clone(),
            venue: instrument.venue.clone(),
            published,
        })
        .collect()
}

/// Where a report goes. Opened at the start, so that a path that cannot be written is told before
/// the work and not after it.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    file: File,
}

/// A report cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the report {path}: {source}; give --report a file in a folder that is there")]
pub struct ReportError {
    path: String,
    source: io::Error,
}

impl ReportFile {
    /// Opens the file, and empties it.
    ///
    /// # Errors
    /// [`ReportError`] when it cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        let file = File::create(path)
            .map_err(|source| ReportError { path: path.display().to_string(), source })?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the report.
    ///
    /// # Errors
    /// [`ReportError`] when that fails now, e.g. because the disk is full.
    pub fn write(self, report: &Report) -> Result<(), ReportError> {
        let mut out = BufWriter::new(self.file);
        let written = serde_json::to_writer_pretty(&mut out, report)
            .map_err(io::Error::from)
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush());
        written.map_err(|source| ReportError { path: self.path.display().to_string(), source })
    }
}
