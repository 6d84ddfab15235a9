//! Asking over a Unix socket.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, stat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::error::AttachError;
use super::exchange::Attempt;
use crate::{accounts, socket_path};

/// Connects to the socket at `path`.
pub(super) fn open(attempt: &Attempt, path: &Path) -> Result<OwnedFd, AttachError> {
    const STEP: &str = "to connect";
    let address = socket_path::address(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| attempt.io("make a socket for", errno.into()))?;
    loop {
        // A full queue of the listener is waited for, as long as the socket may send.
        let left = attempt.deadline.left().ok_or_else(|| attempt.timed_out(STEP))?;
        set_socket_timeout(&socket, Timeout::Send, left)
            .map_err(|errno| attempt.io("set a timeout for", errno.into()))?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(attempt.timed_out(STEP)),
            Err(errno) => return Err(not_connected(attempt, path, errno)),
        }
    }
}

fn not_connected(attempt: &Attempt, at: &Path, errno: Errno) -> AttachError {
    let path = at.to_owned();
    match errno {
        Errno::NOENT | Errno::NOTDIR => AttachError::NoSocket { path },
        Errno::ACCESS | Errno::PERM => {
            AttachError::PermissionDenied { user: accounts::own_user(), path }
        }
        Errno::PROTOTYPE => AttachError::NotASocket { path },
        // The kernel says the same of a file that is no socket.
        Errno::CONNREFUSED => match stat(at) {
            Ok(there) if FileType::from_raw_mode(there.st_mode) != FileType::Socket => {
                AttachError::NotASocket { path }
            }
            Ok(_) | Err(_) => AttachError::NobodyListens { path },
        },
        errno => attempt.io("connect to", errno.into()),
    }
}
