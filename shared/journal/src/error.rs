//! What can go wrong with a journal, in the words of whoever has to fix it.

use std::io;
use std::path::{Path, PathBuf};

/// A journal cannot be written at present. It can be tried again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A file or folder cannot be made, extended or closed.
    #[error("cannot {action} {}: {source}{}", path.display(), remedy(source))]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody cut or removed the file that is being written.
    #[error(
        "{} was cut or removed while it was written: what was in it is lost, and another file is \
         begun; let journal.keep (--journal-keep) limit the space, or remove older files only",
        path.display()
    )]
    Interfered {
        /// The file.
        path: PathBuf,
    },
}

impl JournalError {
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_owned(), source }
    }
}

/// What to do about the errors that people meet.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            ": free some space, or limit the journal with journal.keep (--journal-keep)"
        }
        io::ErrorKind::QuotaExceeded => ": raise the user's disk quota, or use another folder",
        io::ErrorKind::FileTooLarge => {
            ": raise the limit on file sizes (ulimit -f, LimitFSIZE=), or lower \
             journal.rotate_bytes (--journal-rotate)"
        }
        io::ErrorKind::ReadOnlyFilesystem => ": mount it writable, or use another folder",
        io::ErrorKind::PermissionDenied => {
            ": give this user the right to write there, or use another folder"
        }
        io::ErrorKind::NotADirectory => ": name a folder",
        io::ErrorKind::NotFound => ": make the folder that it is to be in, or use another one",
        io::ErrorKind::Unsupported => {
            ": this file system cannot reserve room for a file; use a local one"
        }
        io::ErrorKind::AlreadyExists => ": choose another name, or give --force to replace it",
        _ => "",
    }
}

/// A file cannot be read as a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be read.
    #[error("cannot read {}: {source}; check the path and its permissions", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no journal in the folder.
    #[error("there is no journal in {}: its files end in .{}", path.display(), crate::FILE_ENDING)]
    NoFiles {
        /// The folder.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{} is not a tapecast journal: {what}", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// Why not.
        what: NotAJournal,
    },
}

impl OpenError {
    /// Whether it is a journal that was begun and has nothing in it: its writer was killed at that
    /// moment, or is about to write.
    pub(crate) const fn is_unwritten(&self) -> bool {
        let what = match self {
            Self::NotAJournal { what, .. } => what,
            Self::Read { .. } | Self::NoFiles { .. } => return false,
        };
        matches!(what, NotAJournal::Short(_) | NotAJournal::Blank)
    }
}

/// Why bytes are no journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAJournal {
    /// Too few bytes.
    #[error("it has only {0} bytes, and a journal begins with 64; its writer was stopped at once")]
    Short(usize),
    /// Nothing but zeros.
    #[error("nothing was written to it yet")]
    Blank,
    /// Other first bytes.
    #[error("it begins otherwise; journals are written by --journal and by record")]
    Magic,
    /// Another layout.
    #[error("its layout is version {theirs}, this release reads version {ours}: update tapecast")]
    Version {
        /// In the file.
        theirs: u16,
        /// This release's.
        ours: u16,
    },
    /// A header that is damaged.
    #[error("its header is damaged")]
    Header,
}
