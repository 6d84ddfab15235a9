//! A journal while it is written: files that follow each other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tapecast_wire::limits::MAX_INSTRUMENTS;
use tapecast_wire::{Epoch, InstrumentEntry, Nanos, WIRE_VERSION};
use zerocopy::IntoBytes;

use crate::JournalError;
use crate::folder::{file_name, make_room};
use crate::layout::{
    Closing, FileHeader, HEAD_BYTES, HEADER_BYTES, Hole, JOURNAL_VERSION, MAGIC, Origin, RecordKind,
};
use crate::segment::Segment;

/// Where a journal goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A folder of files.
    Folder {
        /// The folder; it is there.
        path: PathBuf,
        /// A file is closed before it would be larger than this. Its directory always fits.
        rotate_bytes: u64,
        /// Files that may be in the folder, earlier journals' counted; 0 for any number.
        keep: usize,
    },
    /// One file, which is never rotated.
    File {
        /// The file.
        path: PathBuf,
        /// Replace one that is there.
        replace: bool,
    },
}

/// When what was written is brought to the disk. Whatever is chosen, a killed process loses
/// nothing that was written; this is about machines that lose power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When the system sees fit.
    #[default]
    Never,
    /// When a file is closed.
    Close,
}

/// Whose journal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Who writes.
    pub origin: Origin,
    /// Most levels per side in a snapshot; 0 when that is not known.
    pub levels: u16,
}

/// How a journal is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where it goes.
    pub place: Place,
    /// Whose it is.
    pub identity: Identity,
    /// When it is brought to the disk.
    pub sync: Sync,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Snapshots.
    pub records: u64,
    /// Bytes, of everything.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Holes.
    pub holes: u64,
}

/// Appends to a journal.
///
/// When an append fails, nothing of it is in the file and it can be tried again. Directory entries
/// are never lost: what could not be written is written before what comes next.
#[derive(Debug)]
pub struct Writer {
    options: Options,
    segment: Option<Segment>,
    /// Entries by id, for the files that follow.
    directory: Vec<Option<InstrumentEntry>>,
    /// Ids of entries that this file does not have yet.
    owed: BTreeSet<u32>,
    file_number: u32,
    totals: Totals,
    /// Bytes of the present file that the totals know.
    counted: u64,
}

impl Writer {
    /// Begins a journal with `directory`.
    ///
    /// # Errors
    /// [`JournalError`] when its first file cannot be made.
    pub fn create(
        options: Options,
        directory: &[InstrumentEntry],
        now: Nanos,
    ) -> Result<Self, JournalError> {
        let mut writer = Self {
            options,
            segment: None,
            directory: Vec::new(),
            owed: BTreeSet::new(),
            file_number: 0,
            totals: Totals::default(),
            counted: 0,
        };
        directory.iter().for_each(|entry| writer.remember(entry));
        writer.open(now)?;
        writer.write_owed(now)?;
        Ok(writer)
    }

    /// What was written so far.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Appends a snapshot, the bytes of one record of the wire crate.
    ///
    /// # Errors
    /// [`JournalError`] when it is not written.
    pub fn append_snapshot(&mut self, record: &[u8], stamp: Nanos) -> Result<(), JournalError> {
        self.append(RecordKind::Snapshot, record, stamp)?;
        self.totals.records += 1;
        Ok(())
    }

    /// Appends a directory entry; one with the same id is replaced from here on.
    ///
    /// # Errors
    /// [`JournalError`] when it is not written yet. It will be, before what comes next.
    pub fn append_instrument(
        &mut self,
        entry: &InstrumentEntry,
        stamp: Nanos,
    ) -> Result<(), JournalError> {
        self.remember(entry);
        self.open(stamp)?;
        self.write_owed(stamp)
    }

    /// Marks that snapshots are missing here.
    ///
    /// # Errors
    /// [`JournalError`] when it is not written.
    pub fn append_hole(&mut self, hole: Hole, stamp: Nanos) -> Result<(), JournalError> {
        self.append(RecordKind::Hole, hole.as_bytes(), stamp)?;
        self.totals.holes += 1;
        Ok(())
    }

    /// Finds out whether somebody cut or removed the file that is being written; if so, it is left,
    /// and what comes next begins another one.
    ///
    /// Call it before each batch: a mapping of what is gone ends the process.
    ///
    /// # Errors
    /// [`JournalError::Interfered`].
    pub fn inspect(&mut self) -> Result<(), JournalError> {
        let looked = self.segment.as_ref().map_or(Ok(()), Segment::inspect);
        if looked.is_err() {
            self.segment = None;
        }
        looked
    }

    /// Closes the journal in good order.
    ///
    /// # Errors
    /// [`JournalError`] when the file could not be closed; what was appended is in it.
    pub fn close(mut self, stamp: Nanos) -> Result<Totals, JournalError> {
        self.leave(stamp, Closing::Ended)?;
        Ok(self.totals)
    }

    fn append(
        &mut self,
        kind: RecordKind,
        payload: &[u8],
        stamp: Nanos,
    ) -> Result<(), JournalError> {
        self.make_way(HEAD_BYTES + payload.len(), stamp)?;
        self.write_owed(stamp)?;
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let written = segment.append(kind, stamp.get(), payload);
        self.count_bytes();
        written
    }

    /// Has a file open that `len` bytes fit into.
    fn make_way(&mut self, len: usize, now: Nanos) -> Result<(), JournalError> {
        let limit = match &self.options.place {
            Place::Folder { rotate_bytes, .. } => *rotate_bytes,
            Place::File { .. } => u64::MAX,
        };
        let is_full = self
            .segment
            .as_ref()
            // A file without a snapshot is left to grow: the directory alone may be that large.
            .is_some_and(|file| file.snapshots() > 0 && file.used() + len as u64 > limit);
        if is_full {
            self.leave(now, Closing::Rotated)?;
        }
        self.open(now)
    }

    fn leave(&mut self, now: Nanos, closing: Closing) -> Result<(), JournalError> {
        let Some(segment) = self.segment.take() else { return Ok(()) };
        if self.options.sync == Sync::Close {
            segment.sync()?;
        }
        let file = segment.close(now.get(), closing)?;
        self.totals.bytes += crate::layout::END_RECORD_BYTES as u64;
        if self.options.sync == Sync::Close {
            let path = self.path();
            let synced = file.sync_all();
            synced.map_err(|source| JournalError::file("write to disk", &path, source))?;
        }
        Ok(())
    }

    /// Begins the next file, if none is open.
    fn open(&mut self, now: Nanos) -> Result<(), JournalError> {
        if self.segment.is_some() {
            return Ok(());
        }
        if let Place::Folder { path, keep, .. } = &self.options.place {
            make_room(path, *keep)
                .map_err(|source| JournalError::file("keep the limit of files in", path, source))?;
        }
        self.file_number += 1;
        let replace = matches!(&self.options.place, Place::File { replace: true, .. });
        let made = Segment::create(&self.path(), &self.header(now), replace);
        let segment = match made {
            Ok(segment) => segment,
            Err(error) => {
                self.file_number -= 1;
                return Err(error);
            }
        };
        self.segment = Some(segment);
        self.totals.files += 1;
        self.totals.bytes += HEADER_BYTES as u64;
        self.counted = HEADER_BYTES as u64;
        self.owed = (0..).zip(&self.directory).filter(|(_, e)| e.is_some()).map(|e| e.0).collect();
        self.write_owed(now)
    }

    fn write_owed(&mut self, stamp: Nanos) -> Result<(), JournalError> {
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let mut outcome = Ok(());
        while let Some(id) = self.owed.first().copied() {
            if let Some(entry) = &self.directory[id as usize] {
                outcome = segment.append(RecordKind::Instrument, stamp.get(), entry.as_bytes());
            }
            if outcome.is_err() {
                break;
            }
            self.owed.remove(&id);
        }
        self.count_bytes();
        outcome
    }

    fn remember(&mut self, entry: &InstrumentEntry) {
        let index = entry.instrument_id as usize;
        if index >= MAX_INSTRUMENTS {
            return;
        }
        if index >= self.directory.len() {
            self.directory.resize(index + 1, None);
        }
        self.directory[index] = Some(*entry);
        self.owed.insert(entry.instrument_id);
    }

    fn count_bytes(&mut self) {
        let used = self.segment.as_ref().map_or(self.counted, Segment::used);
        self.totals.bytes += used - self.counted;
        self.counted = used;
    }

    fn path(&self) -> PathBuf {
        match &self.options.place {
            Place::Folder { path, .. } => {
                path.join(file_name(self.options.identity.epoch, self.file_number))
            }
            Place::File { path, .. } => path.clone(),
        }
    }

    fn header(&self, now: Nanos) -> FileHeader {
        let Identity { epoch, origin, levels } = self.options.identity;
        let header = FileHeader {
            magic: MAGIC,
            version: JOURNAL_VERSION,
            header_len: HEADER_BYTES as u16,
            wire_version: WIRE_VERSION,
            origin: origin as u8,
            reserved: 0,
            epoch: epoch.get(),
            file_number: self.file_number,
            levels,
            reserved2: 0,
            created_ns: now.get(),
            snapshots_before: self.totals.records,
            reserved3: [0; 12],
            checksum: 0,
        };
        header.sealed()
    }

    /// Where the journal goes, as it was given.
    #[must_use]
    pub fn place(&self) -> &Path {
        match &self.options.place {
            Place::Folder { path, .. } | Place::File { path, .. } => path,
        }
    }
}
