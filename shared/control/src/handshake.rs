//! From a connection to a request, bounded in time, memory and number.

use std::io;
use std::sync::Arc;

use tapecast_wire::attach::{AttachRequest, MAX_FRAME_BYTES, Message};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use crate::access::Verdict;
use crate::frame::{self, FrameReader, PIECE_BYTES};
use crate::gate::{Gate, Rejection};
use crate::peer::PeerCredentials;
use crate::pending::Pending;

/// One connection that has not been refused at once.
pub(crate) struct Handshake {
    pub(crate) stream: UnixStream,
    pub(crate) peer: PeerCredentials,
    pub(crate) verdict: Verdict,
    pub(crate) gate: Arc<Gate>,
    /// Resolves (its sender is dropped) when newer connections need the room.
    pub(crate) crowded_out: oneshot::Receiver<()>,
    pub(crate) requests: mpsc::Sender<Pending>,
}

impl Handshake {
    /// Reads the request and hands it on, or refuses.
    pub(crate) async fn run(self) {
        let Self { stream, peer, verdict, gate, crowded_out, requests } = self;
        let taken = async {
            let admitted = match verdict {
                Verdict::Admitted => true,
                Verdict::AskGroups => gate.asks_groups(&stream, peer).await,
                Verdict::NotAllowed => false,
            };
            if !admitted {
                return Err(Rejection::NotAllowed);
            }
            let request = tokio::time::timeout(gate.timeout, read_request(&stream))
                .await
                .map_err(|_| Rejection::TimedOut)??;
            let room = requests.reserve().await.map_err(|_| Rejection::Closing)?;
            Ok((request, room))
        };
        let taken = tokio::select! {
            taken = taken => taken,
            _ = crowded_out => Err(Rejection::CrowdedOut),
        };
        match taken {
            Ok((request, room)) => {
                gate.counters.requests.increment();
                room.send(Pending::new(stream, peer, request, gate.timeout));
            }
            Err(why) => gate.reject(&stream, peer, &why),
        }
    }
}

async fn read_request(stream: &UnixStream) -> Result<AttachRequest, Rejection> {
    let mut reader = FrameReader::new(MAX_FRAME_BYTES);
    let mut piece = [0; PIECE_BYTES];
    loop {
        let wanted = reader.wanted();
        let len = match read(stream, &mut piece[..wanted]).await {
            Ok(0) | Err(_) => return Err(Rejection::Gone),
            Ok(len) => len,
        };
        match reader.push(&piece[..len]) {
            Ok(None) => {}
            Ok(Some(Message::Attach(request))) => return Ok(request),
            Ok(Some(_)) => return Err(Rejection::NotARequest),
            Err(error) => return Err(Rejection::Malformed(error)),
        }
    }
}

/// Reads at once what is there, and only then asks to be woken: a subscriber sends its request as
/// it connects, so it is normally there before the connection is accepted.
pub(crate) async fn read(stream: &UnixStream, piece: &mut [u8]) -> io::Result<usize> {
    match frame::receive(stream, piece) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            stream.async_io(Interest::READABLE, || frame::receive(stream, piece)).await
        }
        received => received,
    }
}
