//! Asking over TCP.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, connect, getpeername, getsockname, socket_with,
};

use super::deadline::Deadline;
use super::error::AttachError;
use super::exchange::Attempt;
use super::target::TcpTarget;
use crate::keepalive;

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Connects to the first address of the host that answers. The deadline is shared among them, so
/// that one that swallows packets leaves time for the next.
pub(super) fn open(
    attempt: &Attempt,
    target: &TcpTarget,
) -> Result<(OwnedFd, SocketAddr), AttachError> {
    let mut addresses = resolve(attempt, target)?;
    addresses.truncate(ADDRESSES_MAX);
    let mut failed = None;
    for (index, address) in addresses.iter().enumerate() {
        let share = (addresses.len() - index) as u32;
        let left = attempt.deadline.left().ok_or_else(|| attempt.timed_out("to connect"))?;
        let deadline = left.map_or(attempt.deadline, |left| Deadline::after(left / share));
        match open_one(attempt, deadline, *address) {
            Ok(socket) => return Ok((socket, *address)),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| AttachError::NotResolved {
        host: target.host.clone(),
        source: io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
    }))
}

fn resolve(attempt: &Attempt, target: &TcpTarget) -> Result<Vec<SocketAddr>, AttachError> {
    if let Ok(address) = target.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, target.port)]);
    }
    let step = "for the name service";
    let left = attempt.deadline.left().ok_or_else(|| attempt.timed_out(step))?;
    let (sender, resolved) = mpsc::channel();
    let asked = (target.host.clone(), target.port);
    // The system's resolver cannot be told when to give up; a thread that is no longer waited for
    // ends when it does.
    std::thread::Builder::new()
        .name("tapecast-resolve".to_owned())
        .spawn(move || sender.send(asked.to_socket_addrs().map(Iterator::collect)))
        .map_err(|source| attempt.io("start a thread to resolve the name of", source))?;
    match resolved.recv_timeout(left.unwrap_or(Duration::MAX)) {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(source)) => Err(AttachError::NotResolved { host: target.host.clone(), source }),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Err(attempt.timed_out(step))
        }
    }
}

fn open_one(
    attempt: &Attempt,
    deadline: Deadline,
    address: SocketAddr,
) -> Result<OwnedFd, AttachError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let failed = |errno: Errno| not_connected(attempt, address, errno);
    let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
    keepalive::set(&socket).map_err(failed)?;
    match connect(&socket, &address) {
        Ok(()) => return beyond_itself(socket).map_err(failed),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(errno) => return Err(failed(errno)),
    }
    if !deadline.wait(&socket, PollFlags::OUT).map_err(failed)? {
        return Err(attempt.timed_out("to connect"));
    }
    socket_error(&socket).and_then(|connected| connected).map_err(failed)?;
    beyond_itself(socket).map_err(failed)
}

/// A socket that is connected to anything but itself. Where nobody listens on a port of this host
/// from which the system also takes those of outgoing connections, it may take that very port, and
/// the socket is then its own peer: which also keeps the publisher from listening there.
fn beyond_itself(socket: OwnedFd) -> Result<OwnedFd, Errno> {
    if getsockname(&socket)? == getpeername(&socket)?.ok_or(Errno::CONNREFUSED)? {
        return Err(Errno::CONNREFUSED);
    }
    Ok(socket)
}

fn not_connected(attempt: &Attempt, address: SocketAddr, errno: Errno) -> AttachError {
    let target = attempt.target.clone();
    match errno {
        Errno::CONNREFUSED => AttachError::ConnectionRefused { target, address },
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::TIMEDOUT | Errno::ACCESS | Errno::PERM => {
            AttachError::Unreachable { target, address, source: errno.into() }
        }
        errno => attempt.io("connect to", errno.into()),
    }
}
