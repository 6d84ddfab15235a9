//! The journal: every published snapshot on disk, without the live path ever waiting for it.
//!
//! ```text
//! feed thread                                   journal thread
//! encoder ─► tap: copy into the present chunk ─► full chunks ─► scribe ─► Writer ─► file
//!                  ▲                                               │
//!                  └────────── empty chunks ◄──────────────────────┘
//! ```
//!
//! The tap stands where the final bytes of a snapshot exist: in the feed thread, behind the encoder
//! and before the queue to the sender. The sender knows nothing of it. A fixed number of chunks
//! goes round; when none is empty the snapshot is counted as lost, and nobody waits. Both
//! directions only ever try: the scribe naps when there is nothing, so that handing a chunk over
//! never wakes a thread, which would be a system call of the feed.
//!
//! What is queued when the publisher is told to stop is in the journal although it may not have
//! been published any more.

mod chunk;
mod figures;
mod scribe;
mod tap;

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossbeam_channel::bounded;
use serde::Serialize;
use tapecast_journal::{
    Identity, JournalError, Options, Origin, Place, Sync, Writer, recover_newest,
};
use tapecast_wire::{Epoch, InstrumentEntry};
use tracing::{info, warn};

pub use figures::{JournalFigures, JournalReading};
pub use tap::JournalTap;

use crate::clock::unix_now;
use crate::config::{Config, JournalConfig, JournalSync};
use crate::feed::Directory;
use chunk::{CHUNK_BYTES, Chunk};
use scribe::Scribe;

/// How long the last chunks may take to be written when the publisher ends.
const END_MAX: Duration = Duration::from_secs(5);

/// What a journal came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JournalReport {
    /// Its folder.
    pub path: PathBuf,
    /// Snapshots in it.
    pub records: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Files begun.
    pub files: u64,
    /// Snapshots that were published and are not in it.
    pub lost: u64,
    /// Places in it that are marked for that.
    pub holes: u64,
    /// What went wrong first, if anything did.
    pub error: Option<String>,
}

/// The thread that writes.
#[derive(Debug)]
pub struct JournalThread {
    path: PathBuf,
    figures: JournalFigures,
    thread: JoinHandle<JournalReport>,
}

/// Starts the configured journal; `None` when there is none.
///
/// # Errors
/// When its folder or first file cannot be made.
pub fn start(
    config: &Config,
    epoch: Epoch,
    directory: &Directory,
) -> Result<Option<(JournalTap, JournalThread)>> {
    let journal = &config.journal;
    let Some(path) = &journal.path else { return Ok(None) };
    survive_file_limit().context("cannot take over SIGXFSZ")?;
    make_folder(path).map_err(|source| JournalError::File {
        action: "make the folder",
        path: path.clone(),
        source,
    })?;
    mend(path);
    let identity =
        Identity { epoch, origin: Origin::Publisher, levels: config.book.levels.get() as u16 };
    let known: Vec<InstrumentEntry> =
        directory.instruments().iter().map(|known| known.to_wire()).collect();
    let writer = Writer::create(options(path, journal, identity), &known, unix_now())?;
    let chunks = (journal.buffer_bytes.get() / CHUNK_BYTES as u64) as usize;
    // Room for every chunk and the end: handing over cannot fail.
    let (to_scribe, full) = bounded(chunks + 1);
    let (to_tap, empty) = bounded(chunks);
    for _ in 0..chunks {
        // There is room for all of them.
        let _put = to_tap.try_send(Chunk::new());
    }
    let tap = JournalTap::new(to_scribe, empty);
    let figures = JournalFigures::default();
    let scribe = Scribe::new(path.clone(), writer, full, to_tap).with_figures(figures.clone());
    let thread = std::thread::Builder::new().name("tapecast-journal".to_owned());
    let thread = thread.spawn(move || scribe.run()).context("cannot start the journal's thread")?;
    Ok(Some((tap, JournalThread { path: path.clone(), figures, thread })))
}

impl JournalThread {
    /// What it does, for any thread.
    #[must_use]
    pub fn figures(&self) -> JournalFigures {
        self.figures.clone()
    }

    /// Waits until everything is written, but not for ever. The feed has ended.
    #[must_use]
    pub fn finish(self) -> JournalReport {
        let deadline = Instant::now() + END_MAX;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let unfinished = |text: &str| JournalReport {
            path: self.path.clone(),
            error: Some(text.to_owned()),
            ..JournalReport::default()
        };
        if !self.thread.is_finished() {
            let seconds = END_MAX.as_secs();
            warn!(
                "the journal's disk did not answer within {seconds} s: its last file is not \
                   closed"
            );
            return unfinished("the disk did not answer in time");
        }
        let report = self.thread.join().unwrap_or_else(|_| unfinished("a defect"));
        info!(
            records = report.records,
            bytes = report.bytes,
            files = report.files,
            lost = report.lost,
            "the journal is closed"
        );
        report
    }
}

fn options(path: &Path, config: &JournalConfig, identity: Identity) -> Options {
    let place = Place::Folder {
        path: path.to_owned(),
        rotate_bytes: config.rotate_bytes.get(),
        keep: config.keep.count(),
    };
    let sync = match config.sync {
        JournalSync::Never => Sync::Never,
        JournalSync::Close => Sync::Close,
    };
    Options { place, identity, sync }
}

/// A write beyond the process's limit on file sizes is an error, and not the process's end.
fn survive_file_limit() -> io::Result<()> {
    // The flag is of no interest: the signal only has to be handled somehow.
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen).map(drop)
}

/// Makes the folder, not those that it is in: that would hide a mistyped path.
fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o750).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        outcome => outcome,
    }
}

/// A publisher that was killed may have left reserved room, or half a record, at the end of its
/// last file.
fn mend(path: &Path) {
    match recover_newest(path) {
        Ok(Some(found)) if found.removed_bytes > 0 => info!(
            file = %found.path.display(),
            snapshots = found.snapshots,
            removed_bytes = found.removed_bytes,
            "an earlier journal was not closed: it is good up to its last whole record"
        ),
        Ok(_) => {}
        Err(error) => warn!("an earlier journal stays as it is: {error}"),
    }
}

#[cfg(test)]
mod tests;
