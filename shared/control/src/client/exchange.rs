//! Messages with the publisher before the grant, against one deadline.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::PollFlags;
use tapecast_wire::WireError;
use tapecast_wire::attach::{MAX_FRAME_BYTES, Message};

use super::channel::Channel;
use super::deadline::Deadline;
use super::error::AttachError;
use super::target::Target;
use super::tls::{self, TlsProblem};
use crate::frame::{FrameReader, MAX_DESCRIPTORS, PIECE_BYTES};

/// One attempt: where, how long, and what its errors need to say.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) target: Target,
    pub(super) deadline: Deadline,
}

impl Attempt {
    /// Does the TLS handshake, where there is TLS.
    pub(super) fn secure(&self, channel: &mut Channel) -> Result<(), AttachError> {
        const STEP: &str = "for the TLS handshake";
        loop {
            match channel.handshake() {
                Ok(()) if !channel.is_handshaking() => return Ok(()),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let flags = if channel.wants_write() { PollFlags::OUT } else { PollFlags::IN };
                    self.wait(channel, flags, STEP)?;
                }
                Err(error) => return Err(self.unread(error)),
            }
        }
    }

    pub(super) fn send(&self, channel: &mut Channel, frame: &[u8]) -> Result<(), AttachError> {
        const STEP: &str = "for the publisher to take the request";
        let mut rest = frame;
        loop {
            let sent =
                if rest.is_empty() { channel.flush().map(|()| 0) } else { channel.send(rest) };
            match sent {
                Ok(_) if rest.is_empty() => return Ok(()),
                // TLS takes no more before some of it has gone.
                Ok(0) => match channel.flush() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.wait(channel, PollFlags::OUT, STEP)?;
                    }
                    Err(error) if is_closed(&error) => return Ok(()),
                    Err(error) => return Err(self.io("send a request to", error)),
                    Ok(()) => {}
                },
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(channel, PollFlags::OUT, STEP)?;
                }
                // It has refused without reading. The refusal is there to be read.
                Err(error) if is_closed(&error) => return Ok(()),
                Err(error) => return Err(self.io("send a request to", error)),
            }
        }
    }

    /// The next message, and what came beside it. A refusal is an error.
    pub(super) fn receive(
        &self,
        channel: &mut Channel,
        step: &'static str,
    ) -> Result<(Message, Vec<OwnedFd>), AttachError> {
        let (mut reader, mut piece) = (FrameReader::new(MAX_FRAME_BYTES), [0; PIECE_BYTES]);
        let (mut descriptors, mut begun) = (Vec::new(), Begun::default());
        loop {
            let wanted = reader.wanted();
            match channel.receive(&mut piece[..wanted]) {
                Ok(received) => {
                    let bytes = &piece[..received.len];
                    descriptors.extend(received.descriptors);
                    if received.cut || descriptors.len() > MAX_DESCRIPTORS {
                        return Err(AttachError::Descriptors { target: self.target.clone() });
                    }
                    begun.note(bytes);
                    if begun.is_alert() && matches!(channel, Channel::Bare(_)) {
                        return Err(self.tls(TlsProblem::TlsWanted));
                    }
                    if bytes.is_empty() {
                        return Err(self.closed());
                    }
                    let pushed = reader.push(bytes);
                    match pushed.map_err(|source| self.unreadable(source))? {
                        None => {}
                        Some(Message::Refused(refusal, reason)) => {
                            let target = self.target.clone();
                            return Err(AttachError::Refused { target, refusal, reason });
                        }
                        Some(message) => return Ok((message, descriptors)),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(channel, PollFlags::IN, step)?;
                }
                Err(error) => return Err(self.unread(error)),
            }
        }
    }

    fn wait(
        &self,
        channel: &Channel,
        flags: PollFlags,
        step: &'static str,
    ) -> Result<(), AttachError> {
        match self.deadline.wait(channel, flags) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.timed_out(step)),
            Err(errno) => Err(self.io("wait for", errno.into())),
        }
    }

    fn unread(&self, error: io::Error) -> AttachError {
        match tls::problem(&error) {
            Some(problem) => self.tls(problem),
            None if is_closed(&error) => self.closed(),
            None => self.io("read the answer of", error),
        }
    }

    fn unreadable(&self, source: WireError) -> AttachError {
        let target = self.target.clone();
        match source {
            WireError::Version { theirs, ours } => AttachError::Version { target, theirs, ours },
            source => AttachError::Answer { target, source },
        }
    }

    fn closed(&self) -> AttachError {
        AttachError::Closed { target: self.target.clone() }
    }

    fn tls(&self, problem: TlsProblem) -> AttachError {
        AttachError::Tls { target: self.target.clone(), problem }
    }

    /// A message that has no place here.
    pub(super) fn not_an_answer(&self) -> AttachError {
        AttachError::NotAnAnswer { target: self.target.clone() }
    }

    pub(super) fn timed_out(&self, step: &'static str) -> AttachError {
        let timeout = self.deadline.timeout();
        AttachError::TimedOut { target: self.target.clone(), step, timeout }
    }

    pub(super) fn io(&self, action: &'static str, source: io::Error) -> AttachError {
        AttachError::Io { action, target: self.target.clone(), source }
    }
}

/// How an answer begins.
#[derive(Debug, Default)]
struct Begun {
    bytes: [u8; 3],
    len: usize,
}

impl Begun {
    fn note(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let Some(room) = self.bytes.get_mut(self.len) else { return };
            *room = *byte;
            self.len += 1;
        }
    }

    fn is_alert(&self) -> bool {
        tls::is_alert(&self.bytes[..self.len])
    }
}

/// Whether the other side has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
