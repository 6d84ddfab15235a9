//! From a connection to a request, bounded in time, memory and number.

use std::net::SocketAddr;
use std::sync::Arc;

use tapecast_wire::attach::{AttachRequest, MAX_FRAME_BYTES, Message};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::access::Verdict;
use crate::frame::{FrameReader, PIECE_BYTES};
use crate::gate::{Gate, Rejection};
use crate::peer::{GroupsOfPeer, PeerCredentials};
use crate::pending::Pending;
use crate::remote::Peer;
use crate::stream::{Stream, linger};
use crate::tls::{Refused, TlsIdentity, secure};

/// How a TLS handshake begins. Read as a frame's head, it is none that any message has.
const CLIENT_HELLO: [u8; 2] = [0x16, 0x03];

/// A connection that has not been refused at once.
pub(crate) enum Arrival {
    Local { stream: UnixStream, peer: PeerCredentials, verdict: Verdict },
    Remote { stream: TcpStream, address: SocketAddr, tls: Option<TlsIdentity> },
}

/// Makes a request of one connection.
pub(crate) struct Handshake {
    pub(crate) arrival: Arrival,
    pub(crate) gate: Arc<Gate>,
    /// Resolves (its sender is dropped) when newer connections need the room.
    pub(crate) crowded_out: oneshot::Receiver<()>,
    pub(crate) requests: mpsc::Sender<Pending>,
}

impl Handshake {
    /// Reads the request and hands it on, or refuses.
    pub(crate) async fn run(self) {
        let Self { arrival, gate, mut crowded_out, requests } = self;
        let deadline = Instant::now() + gate.timeout;
        let opened = open(arrival, &gate, &mut crowded_out, deadline).await;
        let Some((mut stream, peer)) = opened else { return };
        let taken = async {
            let request = tokio::time::timeout_at(deadline, read_request(&mut stream))
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
            Err(why) => {
                gate.reject(&mut stream, &peer, &why);
                stream.linger().await;
            }
        }
    }
}

/// What comes before a request: the groups of a local peer, or TLS. None where it was refused.
async fn open(
    arrival: Arrival,
    gate: &Gate,
    crowded_out: &mut oneshot::Receiver<()>,
    deadline: Instant,
) -> Option<(Stream, Peer)> {
    match arrival {
        Arrival::Local { stream, peer, verdict } => {
            let admitted = async {
                match verdict {
                    Verdict::Admitted => true,
                    Verdict::AskGroups => gate.asks_groups(GroupsOfPeer::new(&stream, peer)).await,
                    Verdict::NotAllowed => false,
                }
            };
            let why = tokio::select! {
                admitted = admitted => (!admitted).then_some(Rejection::NotAllowed),
                _ = crowded_out => Some(Rejection::CrowdedOut),
            };
            let (mut stream, peer) = (Stream::Unix(stream), Peer::Local(peer));
            match why {
                None => Some((stream, peer)),
                Some(why) => {
                    gate.reject(&mut stream, &peer, &why);
                    None
                }
            }
        }
        Arrival::Remote { stream, address, tls: None } => {
            Some((Stream::Tcp(stream), Peer::Remote { address, client: None }))
        }
        Arrival::Remote { stream, address, tls: Some(tls) } => {
            let secured = tokio::select! {
                secured = tokio::time::timeout_at(deadline, secure(stream, &tls)) => {
                    secured.map_err(|_| Rejection::TimedOut)
                }
                _ = crowded_out => Err(Rejection::CrowdedOut),
            };
            let peer = |client| Peer::Remote { address, client };
            match secured {
                Ok(Ok((stream, client))) => Some((Stream::Tls(stream), peer(Some(client)))),
                Ok(Err(refused)) => {
                    turn_away(refused, gate, &peer(None)).await;
                    None
                }
                // It cannot be told: there is no telling before TLS.
                Err(why) => {
                    gate.turn_away(&peer(None), &why);
                    None
                }
            }
        }
    }
}

async fn turn_away(refused: Refused, gate: &Gate, peer: &Peer) {
    match refused {
        Refused::Gone => {
            gate.turn_away(peer, &Rejection::Gone);
        }
        Refused::Plain(stream) => {
            let mut stream = Stream::Tcp(stream);
            gate.reject(&mut stream, peer, &Rejection::Plain);
            stream.linger().await;
        }
        Refused::Failed { stream, kind, reason } => {
            gate.turn_away(peer, &Rejection::Tls(kind, reason));
            linger(stream).await;
        }
        Refused::Nameless(stream) => {
            let mut stream = Stream::Tls(stream);
            gate.reject(&mut stream, peer, &Rejection::Nameless);
            stream.linger().await;
        }
    }
}

async fn read_request(stream: &mut Stream) -> Result<AttachRequest, Rejection> {
    let mut reader = FrameReader::new(MAX_FRAME_BYTES);
    let mut piece = [0; PIECE_BYTES];
    loop {
        let wanted = reader.wanted();
        let len = match stream.read(&mut piece[..wanted]).await {
            Ok(0) | Err(_) => return Err(Rejection::Gone),
            Ok(len) => len,
        };
        match reader.push(&piece[..len]) {
            Ok(None) => {}
            Ok(Some(Message::Attach(request))) => return Ok(request),
            Ok(Some(_)) => return Err(Rejection::NotARequest),
            Err(_) if matches!(stream, Stream::Tcp(_)) && piece.starts_with(&CLIENT_HELLO) => {
                return Err(Rejection::NotPlain);
            }
            Err(error) => return Err(Rejection::Malformed(error)),
        }
    }
}
