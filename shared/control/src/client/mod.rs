//! The subscriber's side: asks for a session and holds its lifeline. Synchronous, on the standard
//! library alone.

mod deadline;
mod error;
mod lifeline;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::{FileType, stat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use tapecast_wire::WireError;
use tapecast_wire::attach::{Accepted, AttachRequest, MAX_FRAME_BYTES, Message};

use crate::frame::{self, FrameReader, MAX_DESCRIPTORS, PIECE_BYTES};
use crate::peer::PeerCredentials;
use crate::{accounts, socket_path};
use deadline::Deadline;

pub use error::AttachError;
pub use lifeline::{ClientLifeline, LifelineStatus};

/// A session, granted.
#[derive(Debug)]
pub struct Granted {
    /// The publisher's answer.
    pub accepted: Accepted,
    /// What came with it, in the publisher's order, at most [`MAX_DESCRIPTORS`]. How many there
    /// should be, and what they are, is for the caller to check.
    pub descriptors: Vec<OwnedFd>,
    /// Lives as long as the session.
    pub lifeline: ClientLifeline,
    /// Who listens on the socket, as the kernel tells it.
    pub publisher: PeerCredentials,
}

/// Asks the publisher at `path` for a session. Blocks, all steps together, at most `timeout`.
///
/// # Errors
/// [`AttachError`]; [`AttachError::is_transient`] says whether trying again makes sense.
pub fn attach(
    path: &Path,
    request: &AttachRequest,
    timeout: Duration,
) -> Result<Granted, AttachError> {
    let frame = Message::Attach(request.clone()).encode().map_err(AttachError::Request)?;
    let attempt = Attempt { path, deadline: Deadline::after(timeout) };
    let socket = attempt.connect()?;
    let publisher =
        PeerCredentials::of(&socket).map_err(|source| attempt.io("ask who listens on", source))?;
    attempt.send(&socket, &frame)?;
    let (message, descriptors) = attempt.receive(&socket)?;
    match message {
        Message::Accepted(accepted) => {
            let lifeline = ClientLifeline::new(socket);
            Ok(Granted { accepted, descriptors, lifeline, publisher })
        }
        Message::Refused(refusal, reason) => {
            Err(AttachError::Refused { path: path.to_owned(), refusal, reason })
        }
        Message::Attach(_) | Message::Detach | Message::Farewell(..) => {
            Err(AttachError::NotAnAnswer { path: path.to_owned() })
        }
    }
}

/// One attempt to attach: what its errors need to say.
struct Attempt<'a> {
    path: &'a Path,
    deadline: Deadline,
}

impl Attempt<'_> {
    fn connect(&self) -> Result<OwnedFd, AttachError> {
        const STEP: &str = "to connect";
        let address = socket_path::address(self.path)?;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(|errno| self.io("make a socket for", errno.into()))?;
        loop {
            // A full queue of the listener is waited for, as long as the socket may send.
            let left = self.deadline.left().ok_or_else(|| self.timed_out(STEP))?;
            set_socket_timeout(&socket, Timeout::Send, left)
                .map_err(|errno| self.io("set a timeout for", errno.into()))?;
            match connect(&socket, &address) {
                Ok(()) => return Ok(socket),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(self.timed_out(STEP)),
                Err(errno) => return Err(self.not_connected(errno)),
            }
        }
    }

    fn not_connected(&self, errno: Errno) -> AttachError {
        let path = self.path.to_owned();
        match errno {
            Errno::NOENT | Errno::NOTDIR => AttachError::NoSocket { path },
            Errno::ACCESS | Errno::PERM => {
                AttachError::PermissionDenied { user: accounts::own_user(), path }
            }
            Errno::PROTOTYPE => AttachError::NotASocket { path },
            // The kernel says the same of a file that is no socket.
            Errno::CONNREFUSED => match stat(self.path) {
                Ok(there) if FileType::from_raw_mode(there.st_mode) != FileType::Socket => {
                    AttachError::NotASocket { path }
                }
                Ok(_) | Err(_) => AttachError::NobodyListens { path },
            },
            errno => self.io("connect to", errno.into()),
        }
    }

    fn send(&self, socket: &OwnedFd, frame: &[u8]) -> Result<(), AttachError> {
        let mut rest = frame;
        while !rest.is_empty() {
            match frame::send(socket, rest, &[]) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(socket, PollFlags::OUT, "for the publisher to take the request")?;
                }
                // It has refused without reading. The refusal is there to be read.
                Err(error) if is_closed(&error) => return Ok(()),
                Err(error) => return Err(self.io("send a request to", error)),
            }
        }
        Ok(())
    }

    fn receive(&self, socket: &OwnedFd) -> Result<(Message, Vec<OwnedFd>), AttachError> {
        let (mut reader, mut piece) = (FrameReader::new(MAX_FRAME_BYTES), [0; PIECE_BYTES]);
        let mut descriptors = Vec::new();
        loop {
            let wanted = reader.wanted();
            match frame::receive_descriptors(socket, &mut piece[..wanted]) {
                Ok(received) => {
                    descriptors.extend(received.descriptors);
                    if received.cut || descriptors.len() > MAX_DESCRIPTORS {
                        return Err(AttachError::Descriptors { path: self.path.to_owned() });
                    }
                    if received.len == 0 {
                        return Err(AttachError::Closed { path: self.path.to_owned() });
                    }
                    let pushed = reader.push(&piece[..received.len]);
                    if let Some(message) = pushed.map_err(|source| self.unreadable(source))? {
                        return Ok((message, descriptors));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(socket, PollFlags::IN, "for the publisher's answer")?;
                }
                Err(error) if is_closed(&error) => {
                    return Err(AttachError::Closed { path: self.path.to_owned() });
                }
                Err(error) => return Err(self.io("read the answer of", error)),
            }
        }
    }

    fn wait(
        &self,
        socket: &OwnedFd,
        flags: PollFlags,
        step: &'static str,
    ) -> Result<(), AttachError> {
        match self.deadline.wait(socket, flags) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.timed_out(step)),
            Err(errno) => Err(self.io("wait for", errno.into())),
        }
    }

    fn unreadable(&self, source: WireError) -> AttachError {
        let path = self.path.to_owned();
        match source {
            WireError::Version { theirs, ours } => AttachError::Version { path, theirs, ours },
            source => AttachError::Answer { path, source },
        }
    }

    fn timed_out(&self, step: &'static str) -> AttachError {
        let timeout = self.deadline.timeout();
        AttachError::TimedOut { path: self.path.to_owned(), step, timeout }
    }

    fn io(&self, action: &'static str, source: io::Error) -> AttachError {
        AttachError::Io { action, path: self.path.to_owned(), source }
    }
}

/// Whether the other side has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
