//! Why the command fails, for one clear line.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tapecast_subscriber::{ConnectError, EndReason, WaitError};

use tapecast_journal::{JournalError, OpenError};

use super::misuse::Misuse;

/// Why the command fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Misuse(#[from] Misuse),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error("the subscription ended: {0}")]
    Ended(EndReason),
    #[error(
        "{0} snapshots were lost: the account does not add up, which is a bug; please report it"
    )]
    Lost(u64),
    #[error("cannot {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot write to the output: {0}")]
    Output(#[from] io::Error),
    #[error("top draws on a terminal and the output is none: use `tail` or `stats` instead")]
    NoTerminal,
    #[error(transparent)]
    Record(#[from] JournalError),
    #[error(transparent)]
    Input(#[from] OpenError),
}

impl Failure {
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_owned(), source }
    }

    /// What the process ends with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Misuse(_) | Self::Input(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// Whether it is only that nobody reads the output any more.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
