//! Why a publisher cannot listen, in words that say what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::socket_path::PathError;

/// A socket that cannot be listened on. Nothing was changed, and what was made is removed again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The path cannot name a socket.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The directory is missing.
    #[error(
        "there is no directory {directory:?} for the socket {path:?}: create it (systemd: \
         RuntimeDirectory=), or change `socket`"
    )]
    NoDirectory {
        /// The missing directory.
        directory: PathBuf,
        /// The socket.
        path: PathBuf,
    },
    /// A part of the path is not a directory.
    #[error("a part of {directory:?} is not a directory: change `socket` ({path:?})")]
    NotADirectory {
        /// What should be a directory.
        directory: PathBuf,
        /// The socket.
        path: PathBuf,
    },
    /// The file system's permissions.
    #[error(
        "{user} may not {action} {path:?}: run the publisher as the user that owns it and its \
         directory, change their permissions, or change `socket`"
    )]
    PermissionDenied {
        /// User of this process.
        user: String,
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
    },
    /// A running publisher has this socket.
    #[error("{} already has the socket {path:?}: stop it, or give this one another `socket`",
        holder("another publisher", *pid))]
    Held {
        /// The socket.
        path: PathBuf,
        /// The holder's process, where it says so.
        pid: Option<u32>,
    },
    /// A program that is no publisher listens on this socket.
    #[error("{} already listens on {path:?}, and it is no publisher: change `socket`",
        holder("another program", *pid))]
    InUse {
        /// The socket.
        path: PathBuf,
        /// The program's process, where the kernel says so.
        pid: Option<u32>,
    },
    /// Something that is not a socket is in the way.
    #[error(
        "{path:?} is a {kind}, not a socket, and will not be deleted: move it away, or change \
         `socket`"
    )]
    NotASocket {
        /// What is in the way.
        path: PathBuf,
        /// Its kind, e.g. "regular file".
        kind: &'static str,
    },
    /// Not a file mode.
    #[error("{mode:#o} is not a mode for a socket: use 0600, 0660 or 0666")]
    Mode {
        /// As configured.
        mode: u32,
    },
    /// The socket's group is not known.
    #[error("there is no group {group:?} to give the socket to: create it, or correct the group")]
    UnknownGroup {
        /// As configured.
        group: String,
    },
    /// The socket's group may not be set.
    #[error(
        "{user} may not give {path:?} to the group {group:?}: make the user a member of that \
         group, or leave the socket's group out"
    )]
    GroupDenied {
        /// User of this process.
        user: String,
        /// The socket.
        path: PathBuf,
        /// As configured.
        group: String,
    },
    /// Market data would cross the network for everybody to read and ask for.
    #[error(
        "{address} is reachable over the network, and connections there need TLS: set certificate, \
         key and the clients' authority, or listen on 127.0.0.1 or [::1]"
    )]
    Unprotected {
        /// As configured.
        address: SocketAddr,
    },
    /// Another program listens on this port.
    #[error(
        "another program already listens on {address}: stop it, or give this publisher another port"
    )]
    PortInUse {
        /// As configured.
        address: SocketAddr,
    },
    /// No interface has this address.
    #[error(
        "no network interface of this host has the address of {address}: correct it, or bring the \
         interface up first"
    )]
    NotOurAddress {
        /// As configured.
        address: SocketAddr,
    },
    /// A port below 1024.
    #[error(
        "this process may not listen on {address}: choose a port from 1024 on, or give it \
         CAP_NET_BIND_SERVICE"
    )]
    PrivilegedPort {
        /// As configured.
        address: SocketAddr,
    },
    /// Anything else that the system refuses over TCP.
    #[error("cannot listen on {address}: {source}")]
    Tcp {
        /// As configured.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// Anything else that the system refuses.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

fn holder(what: &str, pid: Option<u32>) -> String {
    pid.map_or_else(|| what.to_owned(), |pid| format!("{what} (pid {pid})"))
}
