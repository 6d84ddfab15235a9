//! A request that waits for the publisher's answer.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tapecast_wire::WireError;
use tapecast_wire::attach::{Accepted, AttachRequest, Message, Refusal};
use tapecast_wire::rdma::RdmaAnswer;
use tokio::time::Instant;

use crate::frame::{FrameReader, MAX_DESCRIPTORS, PIECE_BYTES};
use crate::lifeline::Lifeline;
use crate::remote::Peer;
use crate::stream::Stream;

/// A well-formed request of a peer that may attach. Dropped without an answer, it closes the
/// connection.
#[derive(Debug)]
#[must_use = "a request that is dropped gets no answer"]
pub struct Pending {
    stream: Stream,
    peer: Peer,
    request: AttachRequest,
    timeout: Duration,
}

/// An answer that did not arrive. The connection is closed; what was granted must be taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The subscriber has gone.
    #[error("the subscriber ({peer}) has gone before it was answered")]
    Gone {
        /// Who.
        peer: Peer,
    },
    /// The subscriber does not read.
    #[error("the subscriber ({peer}) did not take the answer within {timeout:?}")]
    TimedOut {
        /// Who.
        peer: Peer,
        /// How long it was given.
        timeout: Duration,
    },
    /// The subscriber has its address to connect to, but does not say that it is connected.
    #[error("the subscriber ({peer}) was not ready to receive within {timeout:?}")]
    NotReady {
        /// Who.
        peer: Peer,
        /// How long it was given.
        timeout: Duration,
    },
    /// The subscriber said something else than that it is ready.
    #[error("the subscriber ({peer}) sent what is not the message that it is ready")]
    Misbehaved {
        /// Who.
        peer: Peer,
    },
    /// The answer does not fit the protocol: a list is too long.
    #[error("the answer cannot be sent: {0}")]
    Answer(#[from] WireError),
    /// More descriptors than one message may carry.
    #[error("the answer has {count} descriptors, but a message can carry {MAX_DESCRIPTORS}")]
    Descriptors {
        /// How many.
        count: usize,
    },
    /// Descriptors cannot leave this host.
    #[error("the answer to {peer} has {count} descriptors, which only a Unix socket carries")]
    DescriptorsOverTcp {
        /// Who.
        peer: Peer,
        /// How many.
        count: usize,
    },
    /// The system refuses, e.g. because too many descriptors are on their way.
    #[error("cannot answer the subscriber ({peer}): {source}")]
    Io {
        /// Who.
        peer: Peer,
        /// The system's answer.
        source: io::Error,
    },
}

impl Pending {
    pub(crate) const fn new(
        stream: Stream,
        peer: Peer,
        request: AttachRequest,
        timeout: Duration,
    ) -> Self {
        Self { stream, peer, request, timeout }
    }

    /// What is asked for.
    #[must_use]
    pub const fn request(&self) -> &AttachRequest {
        &self.request
    }

    /// Who asks.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer.clone()
    }

    /// Tells an RDMA subscriber where to connect to, and waits until it is ready to receive, all
    /// together at most the handshake's timeout. It has no session yet, and can still be refused.
    ///
    /// # Errors
    /// [`AnswerError`]; the connection is then closed.
    pub async fn connect(mut self, answer: &RdmaAnswer) -> Result<Self, AnswerError> {
        let bytes = Message::Connect(*answer).encode()?;
        let deadline = Instant::now() + self.timeout;
        self.send(&bytes, &[], deadline).await?;
        let Self { peer, timeout, stream, .. } = &mut self;
        match tokio::time::timeout_at(deadline, read_ready(stream)).await {
            Err(_) => Err(AnswerError::NotReady { peer: peer.clone(), timeout: *timeout }),
            Ok(Waited::Gone) => Err(AnswerError::Gone { peer: peer.clone() }),
            Ok(Waited::Misbehaved) => Err(AnswerError::Misbehaved { peer: peer.clone() }),
            Ok(Waited::Ready) => Ok(self),
        }
    }

    /// Grants the session: sends `accepted` with copies of the descriptors beside it, of which
    /// there can be none over TCP.
    ///
    /// # Errors
    /// [`AnswerError`]; the subscriber then has no session.
    pub async fn accept(
        mut self,
        accepted: &Accepted,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Lifeline, AnswerError> {
        self.answer(&Message::Accepted(accepted.clone()), descriptors).await?;
        Ok(Lifeline::new(self.stream, self.peer))
    }

    /// Refuses, with a sentence for the subscriber's user.
    ///
    /// # Errors
    /// [`AnswerError`] when the subscriber does not hear it.
    pub async fn refuse(mut self, refusal: Refusal, reason: &str) -> Result<(), AnswerError> {
        self.answer(&Message::Refused(refusal, reason.to_owned()), &[]).await
    }

    /// Refuses without waiting, because the publisher closes.
    pub(crate) fn refuse_closing(mut self) {
        let reason = "the publisher is closing".to_owned();
        self.stream.answer_now(&Message::Refused(Refusal::Closing, reason));
    }

    async fn answer(
        &mut self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), AnswerError> {
        let count = descriptors.len();
        if count > MAX_DESCRIPTORS {
            return Err(AnswerError::Descriptors { count });
        }
        if count > 0 && !self.stream.carries_descriptors() {
            return Err(AnswerError::DescriptorsOverTcp { peer: self.peer(), count });
        }
        let bytes = message.encode()?;
        self.send(&bytes, descriptors, Instant::now() + self.timeout).await
    }

    async fn send(
        &mut self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), AnswerError> {
        let sent = tokio::time::timeout_at(deadline, self.stream.send_all(bytes, descriptors));
        let (sent, peer) = (sent.await, self.peer.clone());
        match sent {
            Err(_) => Err(AnswerError::TimedOut { peer, timeout: self.timeout }),
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(match source.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    AnswerError::Gone { peer }
                }
                _ => AnswerError::Io { peer, source },
            }),
        }
    }
}

/// What came of waiting for a subscriber to connect.
enum Waited {
    Ready,
    Gone,
    Misbehaved,
}

async fn read_ready(stream: &mut Stream) -> Waited {
    // Neither Ready nor Detach has a payload.
    let (mut reader, mut piece) = (FrameReader::new(0), [0; PIECE_BYTES]);
    loop {
        let wanted = reader.wanted();
        let len = match stream.read(&mut piece[..wanted]).await {
            Ok(0) | Err(_) => return Waited::Gone,
            Ok(len) => len,
        };
        match reader.push(&piece[..len]) {
            Ok(None) => {}
            Ok(Some(Message::Ready)) => return Waited::Ready,
            Ok(Some(Message::Detach)) => return Waited::Gone,
            Ok(Some(_)) | Err(_) => return Waited::Misbehaved,
        }
    }
}
