//! Why there is no session, in words that say what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tapecast_wire::WireError;
use tapecast_wire::attach::Refusal;

use super::target::Target;
use super::tls::TlsProblem;
use crate::frame::MAX_DESCRIPTORS;
use crate::socket_path::PathError;
use crate::tls::TlsFileError;

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
        "gave up after {timeout:?} of waiting {step} at {target}: is the publisher stopped or \
         overloaded?"
    )]
    TimedOut {
        /// The publisher's address.
        target: Target,
        /// What was waited for.
        step: &'static str,
        /// How long.
        timeout: Duration,
    },
    /// The publisher closed the connection.
    #[error(
        "the publisher at {target} closed the connection without an answer: it may be stopping or \
         restarting; its log says why"
    )]
    Closed {
        /// The publisher's address.
        target: Target,
    },
    /// The publisher speaks another version.
    #[error(
        "the publisher at {target} speaks wire version {theirs}, but this subscriber {ours}: run \
         the same release on both ends"
    )]
    Version {
        /// The publisher's address.
        target: Target,
        /// The publisher's version.
        theirs: u16,
        /// This build's version.
        ours: u16,
    },
    /// The publisher refused.
    #[error("the publisher at {target} refused: {reason}")]
    Refused {
        /// The publisher's address.
        target: Target,
        /// Why, for programs.
        refusal: Refusal,
        /// Why, for people: the publisher's words.
        reason: String,
    },
    /// The request does not fit the protocol.
    #[error("the request cannot be sent: {0}; shorten the name or the list of symbols")]
    Request(#[source] WireError),
    /// The answer cannot be read.
    #[error("the answer from {target} cannot be read: {source}; is a publisher behind it?")]
    Answer {
        /// The publisher's address.
        target: Target,
        /// What is wrong with it.
        source: WireError,
    },
    /// A message that answers nothing.
    #[error("{target} sent a message that is no answer to a request; is a publisher behind it?")]
    NotAnAnswer {
        /// The publisher's address.
        target: Target,
    },
    /// Descriptors were lost on the way.
    #[error(
        "not all descriptors from {target} could be taken: this process may have no more open \
         files (raise RLIMIT_NOFILE, `ulimit -n`), or there were more than {MAX_DESCRIPTORS}"
    )]
    Descriptors {
        /// The publisher's address.
        target: Target,
    },
    /// Anything else that the system refuses.
    #[error("cannot {action} {target}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The publisher's address.
        target: Target,
        /// The system's answer.
        source: io::Error,
    },
    /// The publisher asks for nothing over RDMA, or everything.
    #[error(
        "{target} granted the session over another fabric than this subscriber's: a publisher with \
         a Unix socket has shared memory, one with a TCP port RDMA"
    )]
    Fabric {
        /// The publisher's address.
        target: Target,
    },
    /// The host's name has no address.
    #[error(
        "the name {host:?} cannot be resolved: {source}; correct it, check the name service, or \
         give an IP address"
    )]
    NotResolved {
        /// The name.
        host: String,
        /// What the name service said.
        source: io::Error,
    },
    /// No program listens on the port.
    #[error(
        "nobody listens on {address} ({target}): is the publisher running, and is this its port?"
    )]
    ConnectionRefused {
        /// The publisher's address.
        target: Target,
        /// The address that was tried last.
        address: SocketAddr,
    },
    /// There is no way to the host.
    #[error(
        "{address} ({target}) cannot be reached: {source}; is the host up, and do routes and \
         firewalls let the port through?"
    )]
    Unreachable {
        /// The publisher's address.
        target: Target,
        /// The address that was tried last.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// TLS has refused.
    #[error("no TLS with {target}: {problem}")]
    Tls {
        /// The publisher's address.
        target: Target,
        /// Why.
        problem: TlsProblem,
    },
    /// This subscriber's certificate, key or authority cannot be used.
    #[error(transparent)]
    TlsFiles(#[from] TlsFileError),
}

impl AttachError {
    /// Whether the same request may be granted later without anybody changing a setting: the
    /// publisher is absent, starting, stopping, busy or full.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::NoSocket { .. }
            | Self::NobodyListens { .. }
            | Self::NotResolved { .. }
            | Self::ConnectionRefused { .. }
            | Self::Unreachable { .. }
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
