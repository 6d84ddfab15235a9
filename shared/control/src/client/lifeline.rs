//! The subscriber's end of a session's connection after the grant.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tapecast_wire::attach::{Farewell, MAX_REASON_BYTES, Message};

use super::channel::Channel;
use crate::clock::{ClockEstimate, ClockFilter, unix_now};
use crate::frame::{FrameReader, PIECE_BYTES};

/// A farewell's kind, its text's length, and its text.
const FAREWELL_BYTES_MAX: usize = 2 + 2 + MAX_REASON_BYTES;

/// The subscriber's end of a session's connection: open as long as the publisher lives and grants
/// the session. Its descriptor becomes readable when [`ClientLifeline::status`] has news.
///
/// Dropping it without [`ClientLifeline::detach`] looks to the publisher like a death.
#[derive(Debug)]
pub struct ClientLifeline {
    channel: Channel,
    reader: FrameReader,
    status: LifelineStatus,
    clock: ClockFilter,
}

/// Whether the session lives. The last two are final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifelineStatus {
    /// It lives.
    Alive,
    /// The publisher has ended it, with a sentence for the user.
    Farewell(Farewell, String),
    /// The publisher is gone without a word: it died, or it sent what is not a farewell.
    Gone,
}

impl ClientLifeline {
    pub(super) const fn new(channel: Channel) -> Self {
        let reader = FrameReader::new(FAREWELL_BYTES_MAX);
        Self { channel, reader, status: LifelineStatus::Alive, clock: ClockFilter::new() }
    }

    /// Whether the session lives. One system call while it does, a few over TLS; never blocks.
    pub fn status(&mut self) -> LifelineStatus {
        while self.status == LifelineStatus::Alive {
            let mut piece = [0; PIECE_BYTES];
            let wanted = self.reader.wanted();
            self.status = match self.channel.receive_bytes(&mut piece[..wanted]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(0) | Err(_) => LifelineStatus::Gone,
                Ok(len) => match self.reader.push(&piece[..len]) {
                    Ok(None) => LifelineStatus::Alive,
                    Ok(Some(Message::Farewell(farewell, reason))) => {
                        LifelineStatus::Farewell(farewell, reason)
                    }
                    Ok(Some(Message::Pong(pong))) => {
                        self.clock.on_pong(&pong, unix_now());
                        LifelineStatus::Alive
                    }
                    Ok(Some(_)) | Err(_) => {
                        tracing::warn!("the publisher sent what is not a farewell");
                        LifelineStatus::Gone
                    }
                },
            };
        }
        self.status.clone()
    }

    /// Asks the publisher what time it is; [`ClientLifeline::status`] takes its answer. Never
    /// waits, and asks nothing when the connection is full. At most ten times a second: who asks
    /// more often is sent away.
    pub fn ping(&mut self) {
        if let Ok(bytes) = Message::Ping(unix_now()).encode() {
            // Half a message would be taken for nonsense; so short a one goes whole or not at all.
            let _ = self.channel.send(&bytes);
            let _ = self.channel.flush();
        }
    }

    /// How this end's clock relates to the publisher's; `None` before the first answer.
    #[must_use]
    pub fn clock(&self) -> Option<ClockEstimate> {
        self.clock.estimate(unix_now())
    }

    /// Ends the session in good order. Never waits: if the publisher does not hear the word, it
    /// sees the end of the connection.
    pub fn detach(mut self) {
        if let Ok(bytes) = Message::Detach.encode() {
            let _ = self.channel.send(&bytes);
            self.channel.finish();
        }
    }
}

impl AsFd for ClientLifeline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
