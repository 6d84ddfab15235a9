//! Takes off a file what a crash left behind its last whole record.

use std::fs::{File, OpenOptions};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::folder::files_of;
use crate::{Ending, How, OpenError, Reader};

/// What was found and done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The file.
    pub path: PathBuf,
    /// How it ended before.
    pub ending: Ending,
    /// Snapshots in it.
    pub snapshots: u64,
    /// Bytes that were taken off: reserved room, and at most a part of one record.
    pub removed_bytes: u64,
}

/// Cuts a file behind its last whole record. One that was closed or is damaged stays as it is, and
/// so does one that is being written: that gives `None`.
///
/// # Errors
/// [`OpenError`] when it cannot be read or changed, or is no journal.
pub fn recover(path: &Path) -> Result<Option<Recovery>, OpenError> {
    let unreadable = |source| OpenError::Read { path: path.to_owned(), source };
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(unreadable)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let (ending, snapshots) = survey(&file, path)?;
    let len = file.metadata().map_err(unreadable)?.len();
    let surplus = match ending.how {
        How::Open | How::Cut => len.saturating_sub(ending.at),
        How::Closed | How::Damaged(_) => 0,
    };
    if surplus > 0 {
        file.set_len(ending.at).map_err(unreadable)?;
    }
    Ok(Some(Recovery { path: path.to_owned(), ending, snapshots, removed_bytes: surplus }))
}

/// [`recover`] for the file of a folder that was begun last: earlier ones were closed, or are
/// recovered already. `None` when there is none.
///
/// # Errors
/// As [`recover`].
pub fn recover_newest(folder: &Path) -> Result<Option<Recovery>, OpenError> {
    let files = files_of(folder);
    let files = files.map_err(|source| OpenError::Read { path: folder.to_owned(), source })?;
    files.last().map_or(Ok(None), |newest| recover(newest))
}

fn survey(file: &File, path: &Path) -> Result<(Ending, u64), OpenError> {
    let unreadable = |source| OpenError::Read { path: path.to_owned(), source };
    let mut reader = Reader::new(BufReader::new(file))
        .map_err(unreadable)?
        .map_err(|what| OpenError::NotAJournal { path: path.to_owned(), what })?;
    while reader.advance().map_err(unreadable)? {}
    let open = Ending { at: reader.position(), how: How::Open };
    Ok((reader.ending().unwrap_or(open), reader.snapshots()))
}
