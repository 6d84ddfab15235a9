//! One file while it is written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tapecast_wire::limits::PAGE_BYTES;
use zerocopy::IntoBytes;

use crate::JournalError;
use crate::layout::{
    Closing, END_RECORD_BYTES, End, FileHeader, HEAD_BYTES, HEADER_BYTES, RecordHead, RecordKind,
};
use crate::mapping::Window;

/// Bytes that are reserved and mapped at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// The same where there is not so much left: room for the largest record and the end.
const WINDOW_BYTES_MIN: u64 = 4 * PAGE_BYTES as u64;
/// A mapping starts at a multiple of this, which every page size of Linux divides.
const MAP_ALIGN: u64 = 1 << 16;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Segment {
    path: PathBuf,
    file: File,
    window: Option<Window>,
    used: u64,
    snapshots: u64,
}

impl Segment {
    /// Makes the file, with its header. When it cannot be written nothing is left behind.
    pub(crate) fn create(
        path: &Path,
        header: &FileHeader,
        replace: bool,
    ) -> Result<Self, JournalError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o640);
        match replace {
            // Emptied when it is known that nobody else writes it.
            true => options.create(true).truncate(false),
            false => options.create_new(true),
        };
        let failed = |source| JournalError::file("make the journal", path, source);
        let file = options.open(path).map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| failed(error.into()))?;
        file.set_len(0).map_err(failed)?;
        let path = path.to_owned();
        let mut segment = Self { path, file, window: None, used: 0, snapshots: 0 };
        match segment.reserve(HEADER_BYTES) {
            Ok(()) => segment.put(header.as_bytes()),
            Err(error) => {
                // What was made is of no use; what it is called now may be wanted again.
                drop(std::fs::remove_file(&segment.path));
                return Err(error);
            }
        }
        Ok(segment)
    }

    /// Bytes written.
    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    /// Snapshots written.
    pub(crate) const fn snapshots(&self) -> u64 {
        self.snapshots
    }

    /// Appends one record, whole or not at all.
    pub(crate) fn append(
        &mut self,
        kind: RecordKind,
        stamp_ns: u64,
        payload: &[u8],
    ) -> Result<(), JournalError> {
        self.reserve(HEAD_BYTES + payload.len())?;
        self.put_record(kind, stamp_ns, payload);
        self.snapshots += u64::from(kind == RecordKind::Snapshot);
        Ok(())
    }

    /// Finds out whether somebody cut or removed the file.
    pub(crate) fn inspect(&self) -> Result<(), JournalError> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(|e| JournalError::file("look at", &self.path, e))?;
        let needed = self.window.as_ref().map_or(self.used, Window::end);
        if metadata.len() < needed || metadata.nlink() == 0 {
            return Err(JournalError::Interfered { path: self.path.clone() });
        }
        Ok(())
    }

    /// Brings everything written to the disk.
    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        let synced = self.file.sync_data();
        synced.map_err(|source| JournalError::file("write to disk", &self.path, source))
    }

    /// Closes the file in good order and gives back what it does not use. Needs no room: that for
    /// the last record is always reserved.
    pub(crate) fn close(mut self, stamp_ns: u64, closing: Closing) -> Result<File, JournalError> {
        self.inspect()?;
        let end = End { reason: closing as u8, reserved: [0; 7], snapshots: self.snapshots };
        self.put_record(RecordKind::End, stamp_ns, end.as_bytes());
        self.window = None;
        let cut = self.file.set_len(self.used);
        cut.map_err(|source| JournalError::file("close", &self.path, source))?;
        Ok(self.file)
    }

    /// The payload first: a reader takes a head of zeros for the end.
    fn put_record(&mut self, kind: RecordKind, stamp_ns: u64, payload: &[u8]) {
        let head = RecordHead::new(kind, stamp_ns, payload);
        let Some(window) = &mut self.window else { return };
        window.write(self.used + HEAD_BYTES as u64, payload);
        window.write(self.used, head.as_bytes());
        self.used += u64::from(head.len);
    }

    fn put(&mut self, bytes: &[u8]) {
        let Some(window) = &mut self.window else { return };
        window.write(self.used, bytes);
        self.used += bytes.len() as u64;
    }

    /// Makes sure that `len` bytes and the record that closes the file can be written.
    fn reserve(&mut self, len: usize) -> Result<(), JournalError> {
        let needed = self.used + (len + END_RECORD_BYTES) as u64;
        if self.window.as_ref().is_some_and(|window| needed <= window.end()) {
            return Ok(());
        }
        let start = self.used - self.used % MAP_ALIGN;
        let window = self.extend(start, WINDOW_BYTES).or_else(|_| {
            let end = needed.next_multiple_of(WINDOW_BYTES_MIN);
            self.extend(start, end - start)
        });
        let window =
            window.map_err(|source| JournalError::file("extend the journal", &self.path, source));
        // In one step: when it fails, what is reserved already stays in use.
        self.window = Some(window?);
        Ok(())
    }

    fn extend(&self, start: u64, len: u64) -> io::Result<Window> {
        within_limit(start + len)?;
        match fallocate(&self.file, FallocateFlags::empty(), start, len) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.fill(start + len)?,
            Err(error) => return Err(error.into()),
        }
        Window::map(&self.file, start, len as usize)
    }

    /// Reserves blocks where the file system cannot do it by itself: zeros take the room.
    fn fill(&self, end: u64) -> io::Result<()> {
        let mut at = self.file.metadata()?.len();
        while at < end {
            let zeros = [0; PAGE_BYTES];
            let piece = (end - at).min(PAGE_BYTES as u64) as usize;
            self.file.write_all_at(&zeros[..piece], at)?;
            at += piece as u64;
        }
        Ok(())
    }
}

/// Beyond the process's limit the kernel would send SIGXFSZ, which ends the process.
fn within_limit(end: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if end > limit => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}
