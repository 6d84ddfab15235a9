//! The publisher's end of a session's connection after the grant.

use tapecast_wire::attach::{Farewell, Message};

use crate::frame::{FrameReader, PIECE_BYTES};
use crate::remote::Peer;
use crate::stream::Stream;

/// The publisher's end of a session's connection: lives as long as both processes want it to.
///
/// The kernel closes it when the subscriber dies in whatever way, so its end is noticed at once;
/// over TCP, that of the subscriber's whole host within about ten seconds.
/// Dropped, it tells the subscriber nothing but that it is over.
#[derive(Debug)]
pub struct Lifeline {
    stream: Stream,
    peer: Peer,
    reader: FrameReader,
}

/// How the subscriber's end of a session came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It left in good order.
    Detached,
    /// It is gone without a word: it died, or closed the connection.
    Gone,
    /// It sent something that is not allowed here, and is not to be listened to any longer.
    Misbehaved,
}

impl Lifeline {
    pub(crate) const fn new(stream: Stream, peer: Peer) -> Self {
        // The only message of a subscriber is Detach, which has no payload.
        Self { stream, peer, reader: FrameReader::new(0) }
    }

    /// Waits for the subscriber's end of the session. Cancel-safe.
    pub async fn closed(&mut self) -> Ending {
        let mut piece = [0; PIECE_BYTES];
        loop {
            let wanted = self.reader.wanted();
            let len = match self.stream.read(&mut piece[..wanted]).await {
                Ok(0) | Err(_) => return Ending::Gone,
                Ok(len) => len,
            };
            match self.reader.push(&piece[..len]) {
                Ok(None) => {}
                Ok(Some(Message::Detach)) => return Ending::Detached,
                Ok(Some(_)) | Err(_) => return Ending::Misbehaved,
            }
        }
    }

    /// Ends the session with a word to the subscriber. Never waits: the word is lost on a
    /// subscriber that has stopped reading, the end is not.
    pub fn farewell(mut self, farewell: Farewell, reason: &str) {
        self.stream.answer_now(&Message::Farewell(farewell, reason.to_owned()));
    }

    /// Whose session it is.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer.clone()
    }
}
