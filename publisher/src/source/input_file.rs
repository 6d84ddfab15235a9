//! The file of a source, which may be a pipe whose writer pauses.

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use tracing::info;

use crate::feed::StopFlag;

/// Longest time without a look at the order to stop.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A feed that goes on says something within this time.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// An open input. Reading waits for what a pipe's writer has not written yet, but not through an
/// order to stop: then it fails.
#[derive(Debug)]
pub struct InputFile {
    file: File,
    stop: StopFlag,
    /// A read may wait for long.
    may_wait: bool,
    /// Something is there, and has not been read.
    is_ready: Cell<bool>,
    /// To be named once, when nothing has come yet; empty afterwards.
    path: PathBuf,
}

impl InputFile {
    /// Opens a file, and says what it is.
    pub(super) fn open(path: &Path, stop: &StopFlag) -> io::Result<(Self, Metadata)> {
        // A pipe is opened whether it has a writer or not; a plain file knows no difference.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, Mode::empty())?);
        let facts = file.metadata()?;
        let may_wait = !facts.is_file() && !facts.is_dir();
        Ok((
            Self {
                file,
                stop: stop.clone(),
                may_wait,
                is_ready: Cell::new(false),
                path: path.to_owned(),
            },
            facts,
        ))
    }

    /// Whether nothing comes for a moment, so that the next read may wait for long.
    pub(super) fn pauses(&self) -> bool {
        if !self.may_wait {
            return false;
        }
        let mut awaited = [PollFd::new(&self.file, PollFlags::IN)];
        let found = poll(&mut awaited, Some(&MOMENT));
        self.is_ready.set(matches!(found, Ok(1..)));
        found == Ok(0)
    }

    /// Waits until a read would not.
    fn wait(&mut self) -> io::Result<()> {
        let path = std::mem::take(&mut self.path);
        let mut is_first = !path.as_os_str().is_empty();
        let mut awaited = [PollFd::new(&self.file, PollFlags::IN)];
        while !self.stop.is_stopped() {
            match poll(&mut awaited, Some(&NAP)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            self.stop.input().on_nap();
            if std::mem::take(&mut is_first) {
                info!(input = %path.display(), "waiting for the writer of the input");
            }
        }
        Err(io::Error::other("the publisher stops"))
    }
}

impl Read for InputFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.may_wait && !self.is_ready.take() {
            self.wait()?;
        }
        let count = self.file.read(out)?;
        self.stop.input().on_read();
        Ok(count)
    }
}

impl Seek for InputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}
