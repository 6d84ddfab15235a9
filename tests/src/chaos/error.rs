//! Why a round did not come to its end.

use std::io;
use std::path::PathBuf;

/// Why a round did not come to its end. What its checks find wrong is no error but a complaint.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    /// A signal asked this program to end.
    #[error("interrupted")]
    Interrupted,
    /// A program could not be started.
    #[error("cannot start {program}: {source}; build it with `make build`")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something that has to happen did not.
    #[error("waited in vain for {0}")]
    InVain(String),
    /// The publisher ended although nobody had asked it to.
    #[error("the publisher ended by itself: {0}")]
    PublisherEnded(String),
    /// A file cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl ChaosError {
    pub(super) fn file(path: impl Into<PathBuf>, reason: impl ToString) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }
}
