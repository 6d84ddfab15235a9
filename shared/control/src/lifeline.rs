//! The publisher's end of a session's connection after the grant.

use std::io;
use std::time::{Duration, Instant};

use tapecast_wire::Nanos;
use tapecast_wire::attach::{Farewell, Message, PING_BYTES, Pong};

use crate::clock::unix_now;
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
    pings: Allowance,
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
        // A subscriber says Ping, and in the end Detach, which has no payload.
        Self { stream, peer, reader: FrameReader::new(PING_BYTES), pings: Allowance::full() }
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
                Ok(Some(Message::Ping(ping))) => match self.answer(ping) {
                    Ok(true) => {}
                    Ok(false) => return Ending::Misbehaved,
                    Err(_) => return Ending::Gone,
                },
                Ok(Some(_)) | Err(_) => return Ending::Misbehaved,
            }
        }
    }

    /// Tells a subscriber the time. `false` when it asks too often, or does not read the answers.
    fn answer(&mut self, ping: Nanos) -> io::Result<bool> {
        let received = unix_now();
        if !self.pings.take(Instant::now()) {
            return Ok(false);
        }
        let pong = Message::Pong(Pong { ping, received, sent: unix_now() });
        // These numbers always encode.
        pong.encode().map_or(Ok(false), |bytes| self.stream.send_now(&bytes))
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

/// Pings that a subscriber may send at once.
const PINGS_MAX: u32 = 32;
/// One more may be sent after so long.
const PING_EVERY: Duration = Duration::from_millis(100);

/// Bounds how often somebody may ask for something: a bucket of tokens.
#[derive(Debug)]
struct Allowance {
    left: u32,
    filled: Option<Instant>,
}

impl Allowance {
    const fn full() -> Self {
        Self { left: PINGS_MAX, filled: None }
    }

    fn take(&mut self, now: Instant) -> bool {
        let filled = *self.filled.get_or_insert(now);
        let periods = now.saturating_duration_since(filled).as_millis() / PING_EVERY.as_millis();
        if periods > 0 {
            let more = u32::try_from(periods).unwrap_or(PINGS_MAX);
            self.left = self.left.saturating_add(more).min(PINGS_MAX);
            self.filled = Some(now);
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_now_and_then_is_always_answered_and_who_asks_all_the_time_is_not() {
        let start = Instant::now();
        let mut patient = Allowance::full();
        assert!((0..1_000).all(|turn| patient.take(start + PING_EVERY * turn)));
        let mut hasty = Allowance::full();
        let answered = (0..1_000).filter(|_| hasty.take(start)).count();
        assert_eq!(answered, PINGS_MAX as usize);
        assert!(hasty.take(start + PING_EVERY));
        assert!(!hasty.take(start + PING_EVERY));
    }
}
