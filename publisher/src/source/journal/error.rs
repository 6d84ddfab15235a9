//! What can go wrong when a journal is played.

use std::path::PathBuf;

use tapecast_journal::{Ending, OpenError};

/// A journal that cannot be played, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalSourceError {
    /// It cannot be read, or is no journal.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A symbol that was asked for is not there.
    #[error(
        "source.symbols: {symbol} is not in the directory of {}, which lists {known} instruments",
        path.display()
    )]
    NotListed {
        /// The journal.
        path: PathBuf,
        /// The symbol.
        symbol: String,
        /// How many there are.
        known: usize,
    },
    /// A snapshot does not fit into the shared region.
    #[error(
        "{} has a snapshot of {levels} levels a side at byte {offset}, book.levels is {max}: give \
         --levels {levels} or more",
        path.display()
    )]
    TooDeep {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// Levels of its deeper side.
        levels: usize,
        /// Levels that there is room for.
        max: usize,
    },
    /// The end of a file is missing, or its middle is damaged.
    #[error(
        "{} is {ending}; {snapshots} snapshots were published before that{}",
        path.display(),
        remedy(ending)
    )]
    Unsound {
        /// The file.
        path: PathBuf,
        /// How it ends.
        ending: Ending,
        /// Snapshots that were read from all files.
        snapshots: u64,
    },
}

const fn remedy(ending: &Ending) -> &'static str {
    if ending.is_usable() {
        "; give --allow-truncated to take it for complete"
    } else {
        "; use a copy that is not damaged"
    }
}
