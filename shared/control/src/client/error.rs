//! Why there is no session, in words that say what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tapecast_wire::WireError;
use tapecast_wire::attach::Refusal;

use crate::frame::MAX_DESCRIPTORS;
use crate::socket_path::PathError;

/// A session that was not granted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The path cannot name a socket.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The path does not exist.
    #[error("there is no socket {path:?}: is the publisher running, and is this its `socket`?")]
    NoSocket {
        /// The socket.
        path: PathBuf,
    },
    /// Something else is at the path.
    #[error("{path:?} is not the socket of a publisher: give the publisher's `socket`")]
    NotASocket {
        /// What is there.
        path: PathBuf,
    },
    /// The socket is a dead publisher's.
    #[error("nobody listens on {path:?}: its publisher has been killed; start it again")]
    NobodyListens {
        /// The socket.
        path: PathBuf,
    },
    /// The file system's permissions.
    #[error(
        "{user} may not use the socket {path:?}: the user needs write permission on it and \
         passage through its directories; have it, or a group of it, added to those that the \
         publisher's configuration admits, and see the socket's mode and group there"
    )]
    PermissionDenied {
        /// User of this process.
        user: String,
        /// The socket.
        path: PathBuf,
    },
    /// The deadline passed.
    #[error(
        "gave up after {timeout:?} of waiting {step} at {path:?}: is the publisher stopped or \
         overloaded?"
    )]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// What was waited for.
        step: &'static str,
        /// How long.
        timeout: Duration,
    },
    /// The publisher closed the connection.
    #[error(
        "the publisher at {path:?} closed the connection without an answer: it may be stopping or \
         restarting; its log says why"
    )]
    Closed {
        /// The socket.
        path: PathBuf,
    },
    /// The publisher speaks another version.
    #[error(
        "the publisher at {path:?} speaks wire version {theirs}, but this subscriber {ours}: run \
         the same release on both ends"
    )]
    Version {
        /// The socket.
        path: PathBuf,
        /// The publisher's version.
        theirs: u16,
        /// This build's version.
        ours: u16,
    },
    /// The publisher refused.
    #[error("the publisher at {path:?} refused: {reason}")]
    Refused {
        /// The socket.
        path: PathBuf,
        /// Why, for programs.
        refusal: Refusal,
        /// Why, for people: the publisher's words.
        reason: String,
    },
    /// The request does not fit the protocol.
    #[error("the request cannot be sent: {0}; shorten the name or the list of symbols")]
    Request(#[source] WireError),
    /// The answer cannot be read.
    #[error("the answer from {path:?} cannot be read: {source}; is a publisher behind it?")]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        source: WireError,
    },
    /// A message that answers nothing.
    #[error("{path:?} sent a message that is no answer to a request; is a publisher behind it?")]
    NotAnAnswer {
        /// The socket.
        path: PathBuf,
    },
    /// Descriptors were lost on the way.
    #[error(
        "not all descriptors from {path:?} could be taken: this process may have no more open \
         files (raise RLIMIT_NOFILE, `ulimit -n`), or there were more than {MAX_DESCRIPTORS}"
    )]
    Descriptors {
        /// The socket.
        path: PathBuf,
    },
    /// Anything else that the system refuses.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl AttachError {
    /// Whether the same request may be granted later without anybody changing a setting: the
    /// publisher is absent, starting, stopping, busy or full.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::NoSocket { .. }
            | Self::NobodyListens { .. }
            | Self::TimedOut { .. }
            | Self::Closed { .. } => true,
            Self::Refused { refusal, .. } => {
                matches!(refusal, Refusal::Full | Refusal::Closing | Refusal::Resources)
            }
            _ => false,
        }
    }

    /// The publisher's refusal, if it was one.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(*refusal),
            _ => None,
        }
    }
}
