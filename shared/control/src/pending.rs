//! A request that waits for the publisher's answer.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tapecast_wire::WireError;
use tapecast_wire::attach::{Accepted, AttachRequest, Message, Refusal};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::frame::{self, MAX_DESCRIPTORS};
use crate::gate;
use crate::lifeline::Lifeline;
use crate::peer::PeerCredentials;

/// A well-formed request of a peer that may attach. Dropped without an answer, it closes the
/// connection.
#[derive(Debug)]
#[must_use = "a request that is dropped gets no answer"]
pub struct Pending {
    stream: UnixStream,
    peer: PeerCredentials,
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
        peer: PeerCredentials,
    },
    /// The subscriber does not read.
    #[error("the subscriber ({peer}) did not take the answer within {timeout:?}")]
    TimedOut {
        /// Who.
        peer: PeerCredentials,
        /// How long it was given.
        timeout: Duration,
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
    /// The system refuses, e.g. because too many descriptors are on their way.
    #[error("cannot answer the subscriber ({peer}): {source}")]
    Io {
        /// Who.
        peer: PeerCredentials,
        /// The system's answer.
        source: io::Error,
    },
}

impl Pending {
    pub(crate) const fn new(
        stream: UnixStream,
        peer: PeerCredentials,
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
    pub const fn peer(&self) -> PeerCredentials {
        self.peer
    }

    /// Grants the session: sends `accepted` with copies of the descriptors beside it.
    ///
    /// # Errors
    /// [`AnswerError`]; the subscriber then has no session.
    pub async fn accept(
        self,
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
    pub async fn refuse(self, refusal: Refusal, reason: &str) -> Result<(), AnswerError> {
        self.answer(&Message::Refused(refusal, reason.to_owned()), &[]).await
    }

    /// Refuses without waiting, because the publisher closes.
    pub(crate) fn refuse_closing(self) {
        let reason = "the publisher is closing".to_owned();
        gate::answer_now(&self.stream, &Message::Refused(Refusal::Closing, reason));
    }

    async fn answer(
        &self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), AnswerError> {
        let Self { peer, timeout, .. } = *self;
        if descriptors.len() > MAX_DESCRIPTORS {
            return Err(AnswerError::Descriptors { count: descriptors.len() });
        }
        let bytes = message.encode()?;
        let sent = tokio::time::timeout(timeout, send_all(&self.stream, &bytes, descriptors)).await;
        match sent {
            Err(_) => Err(AnswerError::TimedOut { peer, timeout }),
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

async fn send_all(
    stream: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let (mut rest, mut beside) = (bytes, descriptors);
    while !rest.is_empty() {
        let sent =
            stream.async_io(Interest::WRITABLE, || frame::send(stream, rest, beside)).await?;
        // They went with the first byte.
        (rest, beside) = (&rest[sent..], &[]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::sockopt::set_socket_send_buffer_size;
    use tokio::net::UnixStream;

    use super::send_all;
    use crate::frame::{PIECE_BYTES, receive_descriptors};

    #[tokio::test]
    async fn an_answer_that_goes_in_many_pieces_carries_its_descriptors_once() {
        const ANSWER_BYTES: usize = 100_000;
        let (near, far) = UnixStream::pair().unwrap();
        set_socket_send_buffer_size(&near, 1).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let sent = async {
            send_all(&near, &[7; ANSWER_BYTES], &[file.as_fd(); 3]).await.unwrap();
        };
        let received = async {
            let (mut bytes, mut descriptors, mut pieces) = (0, Vec::new(), 0);
            while bytes < ANSWER_BYTES {
                far.readable().await.unwrap();
                let mut piece = [0; PIECE_BYTES];
                let read = far.try_io(tokio::io::Interest::READABLE, || {
                    receive_descriptors(&far, &mut piece)
                });
                if let Ok(received) = read {
                    bytes += received.len;
                    descriptors.extend(received.descriptors);
                    pieces += 1;
                }
            }
            (bytes, descriptors.len(), pieces)
        };
        let ((), (bytes, descriptors, pieces)) = tokio::join!(sent, received);
        assert_eq!((bytes, descriptors), (ANSWER_BYTES, 3));
        assert!(pieces > 10, "{pieces}");
    }
}
