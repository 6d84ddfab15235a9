//! Messages of the handshake: how a subscriber asks for a session and what it is told.
//!
//! ```text
//! frame   = payload_len u32 | message u16 | version u16 | payload
//! text    = len u16 | UTF-8 bytes
//! list    = count u32 | items
//! option  = 0 u8 | 1 u8, item
//! ```
//!
//! All integers little-endian. Every length is bounded before anything is allocated, so a peer can
//! make this side hold at most [`MAX_FRAME_BYTES`].

use crate::directory::SYMBOL_BYTES;
use crate::rdma::{PathMtu, QueuePairAddress, RdmaAnswer, RdmaOffer, RemoteMemory, RetryBudget};
use crate::{Epoch, InstrumentId, Nanos, SessionId, WIRE_VERSION, WireError};

/// Bytes of a frame's head.
pub const FRAME_HEAD_BYTES: usize = 8;
/// Largest payload of a frame.
pub const MAX_FRAME_BYTES: usize = 128 * 1024;
/// Longest subscriber name in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Longest reason text in bytes.
pub const MAX_REASON_BYTES: usize = 512;
/// Most symbols in one request.
pub const MAX_SYMBOLS: usize = 4096;

const _: () = assert!(MAX_SYMBOLS * (2 + SYMBOL_BYTES) + 1024 <= MAX_FRAME_BYTES);

/// What happens to a session that does not keep up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// It receives the newest state of each instrument, marked with the count it stands for.
    #[default]
    Conflate = 0,
    /// The publisher waits for it. Only where the publisher's configuration allows it.
    Lossless = 1,
    /// Its session ends, rather than that anything is left out. See [`LagLimits`]. What is
    /// published before it attaches again is in no account.
    Disconnect = 2,
}

impl Policy {
    /// Its name in configuration, logs and reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Conflate => "conflate",
            Self::Lossless => "lossless",
            Self::Disconnect => "disconnect",
        }
    }
}

/// How far a session may lag behind before it ends. Only for [`Policy::Disconnect`], for which it
/// also ends when its ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LagLimits {
    /// Bytes that are published and not consumed; 0 for as many as the publisher allows.
    pub bytes: u64,
    /// Nanoseconds since what it has not consumed was published; 0 for as long as the publisher
    /// allows.
    pub time: Nanos,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[non_exhaustive]
pub enum Refusal {
    /// Bytes that are not a request.
    Malformed = 1,
    /// Another wire version.
    Version = 2,
    /// This user or group may not attach.
    NotAllowed = 3,
    /// All sessions are taken.
    Full = 4,
    /// A symbol that the directory does not have.
    UnknownSymbol = 5,
    /// The policy is not allowed by the publisher's configuration.
    Policy = 6,
    /// The publisher is closing.
    Closing = 7,
    /// The publisher could not provide the memory or descriptors.
    Resources = 8,
    /// The two ends use different fabrics: one shared memory, the other RDMA.
    Fabric = 9,
    /// This client is known, and not entitled to what it asks for.
    NotEntitled = 10,
}

impl Refusal {
    fn from_wire(value: u16) -> Result<Self, WireError> {
        Ok(match value {
            1 => Self::Malformed,
            2 => Self::Version,
            3 => Self::NotAllowed,
            4 => Self::Full,
            5 => Self::UnknownSymbol,
            6 => Self::Policy,
            7 => Self::Closing,
            8 => Self::Resources,
            9 => Self::Fabric,
            10 => Self::NotEntitled,
            other => return Err(WireError::Field { field: "refusal", value: u64::from(other) }),
        })
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[non_exhaustive]
pub enum Farewell {
    /// The publisher stops in an orderly way.
    Closing = 1,
    /// The publisher evicted this session.
    Evicted = 2,
    /// The source has ended and the publisher stays only to say so.
    EndOfSource = 3,
}

/// A subscriber's request for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachRequest {
    /// Name for logs and metrics; not an identity.
    pub name: String,
    /// Wanted policy.
    pub policy: Policy,
    /// How far it may lag behind, with [`Policy::Disconnect`].
    pub lag: LagLimits,
    /// Least time between two snapshots of one instrument, in nanoseconds; 0 for none. What comes
    /// sooner waits, and is conflated: only with [`Policy::Conflate`].
    pub min_interval: Nanos,
    /// Accept symbols that the directory does not have yet.
    pub allow_unknown: bool,
    /// Wanted symbols; empty for every instrument.
    pub symbols: Vec<String>,
    /// Where to write to over RDMA; none for a session over shared memory.
    pub rdma: Option<RdmaOffer>,
}

/// The publisher's answer when it grants a session. Descriptors travel beside it (SCM_RIGHTS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The session.
    pub session_id: SessionId,
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Instruments for the wanted symbols, in their order; empty when all were asked for. A symbol
    /// that is not known yet is absent.
    pub instruments: Vec<InstrumentId>,
}

/// Every message of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Subscriber → publisher.
    Attach(AttachRequest),
    /// Publisher → subscriber, granted.
    Accepted(Accepted),
    /// Publisher → subscriber, refused, with a sentence for the user.
    Refused(Refusal, String),
    /// Subscriber → publisher: leaving in good order.
    Detach,
    /// Publisher → subscriber: the session has ended, with a sentence for the user.
    Farewell(Farewell, String),
    /// Publisher → subscriber over RDMA: where to connect to, before anything is granted.
    Connect(RdmaAnswer),
    /// Subscriber → publisher over RDMA: connected, and ready to receive.
    Ready,
    /// Subscriber → publisher, in a session: what time is it? Says what it is for the subscriber.
    Ping(Nanos),
    /// Publisher → subscriber: the answer.
    Pong(Pong),
}

/// The publisher's times of a ping, by its own clock, with what the ping said. The two hardly
/// differ: what lies between them is not the network's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pong {
    /// What the ping said.
    pub ping: Nanos,
    /// When the ping was read.
    pub received: Nanos,
    /// When this was written.
    pub sent: Nanos,
}

/// Bytes of a ping's payload.
pub const PING_BYTES: usize = 8;

/// Head of a frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of payload that follow.
    pub payload_bytes: usize,
    message: u16,
}

impl FrameHead {
    /// Parses a head.
    ///
    /// # Errors
    /// [`WireError::Version`] for another version, [`WireError::Field`] for a payload over
    /// [`MAX_FRAME_BYTES`], or of another length than this message has.
    pub fn parse(head: [u8; FRAME_HEAD_BYTES]) -> Result<Self, WireError> {
        let mut cursor = Cursor { bytes: &head };
        let payload_bytes = cursor.u32()? as usize;
        let message = cursor.u16()?;
        let version = cursor.u16()?;
        if version != WIRE_VERSION {
            return Err(WireError::Version { theirs: version, ours: WIRE_VERSION });
        }
        if payload_bytes > MAX_FRAME_BYTES {
            return Err(WireError::Field { field: "payload_len", value: payload_bytes as u64 });
        }
        // What never comes must not be waited for.
        if payload_bytes_of(message).is_some_and(|exact| exact != payload_bytes) {
            return Err(WireError::Field { field: "payload_len", value: payload_bytes as u64 });
        }
        Ok(Self { payload_bytes, message })
    }
}

/// The payload's length, where a message has only one.
const fn payload_bytes_of(message: u16) -> Option<usize> {
    match message {
        4 | 7 => Some(0),
        8 => Some(PING_BYTES),
        9 => Some(3 * PING_BYTES),
        _ => None,
    }
}

impl Message {
    /// The whole frame, head included.
    ///
    /// # Errors
    /// [`WireError::Field`] when a text or list is longer than its limit, or an RDMA number cannot
    /// be.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut out = vec![0; FRAME_HEAD_BYTES];
        let message: u16 = match self {
            Self::Attach(request) => {
                put_request(&mut out, request)?;
                1
            }
            Self::Accepted(accepted) => {
                out.extend(accepted.session_id.0.to_le_bytes());
                out.extend(accepted.epoch.0.to_le_bytes());
                put_count(&mut out, "instruments", accepted.instruments.len())?;
                out.extend(accepted.instruments.iter().flat_map(|id| id.0.to_le_bytes()));
                2
            }
            Self::Refused(refusal, reason) => {
                out.extend((*refusal as u16).to_le_bytes());
                put_text(&mut out, "reason", cut(reason), MAX_REASON_BYTES)?;
                3
            }
            Self::Detach => 4,
            Self::Farewell(farewell, reason) => {
                out.extend((*farewell as u16).to_le_bytes());
                put_text(&mut out, "reason", cut(reason), MAX_REASON_BYTES)?;
                5
            }
            Self::Connect(answer) => {
                put_answer(&mut out, answer)?;
                6
            }
            Self::Ready => 7,
            Self::Ping(sent) => {
                out.extend(sent.0.to_le_bytes());
                8
            }
            Self::Pong(Pong { ping, received, sent }) => {
                out.extend(
                    [ping, received, sent].into_iter().flat_map(|time| time.0.to_le_bytes()),
                );
                9
            }
        };
        let payload = (out.len() - FRAME_HEAD_BYTES) as u32;
        out[..4].copy_from_slice(&payload.to_le_bytes());
        out[4..6].copy_from_slice(&message.to_le_bytes());
        out[6..8].copy_from_slice(&WIRE_VERSION.to_le_bytes());
        Ok(out)
    }

    /// Parses the payload that belongs to `head`.
    ///
    /// # Errors
    /// [`WireError`] for anything that [`Message::encode`] would not have written. Never panics.
    pub fn decode(head: FrameHead, payload: &[u8]) -> Result<Self, WireError> {
        let mut cursor = Cursor { bytes: payload };
        let message = match head.message {
            1 => Self::Attach(attach_request(&mut cursor)?),
            2 => Self::Accepted(accepted(&mut cursor)?),
            3 => {
                let refusal = Refusal::from_wire(cursor.u16()?)?;
                Self::Refused(refusal, cursor.text("reason", MAX_REASON_BYTES)?)
            }
            4 => Self::Detach,
            5 => {
                let farewell = farewell(cursor.u16()?)?;
                Self::Farewell(farewell, cursor.text("reason", MAX_REASON_BYTES)?)
            }
            6 => Self::Connect(rdma_answer(&mut cursor)?),
            7 => Self::Ready,
            8 => Self::Ping(Nanos(cursor.u64()?)),
            9 => Self::Pong(Pong {
                ping: Nanos(cursor.u64()?),
                received: Nanos(cursor.u64()?),
                sent: Nanos(cursor.u64()?),
            }),
            other => {
                return Err(WireError::Field { field: "message", value: u64::from(other) });
            }
        };
        if cursor.bytes.is_empty() {
            Ok(message)
        } else {
            let value = cursor.bytes.len() as u64;
            Err(WireError::Field { field: "bytes after the message", value })
        }
    }
}

fn attach_request(cursor: &mut Cursor<'_>) -> Result<AttachRequest, WireError> {
    let name = cursor.text("name", MAX_NAME_BYTES)?;
    let policy = match cursor.u8()? {
        0 => Policy::Conflate,
        1 => Policy::Lossless,
        2 => Policy::Disconnect,
        other => return Err(WireError::Field { field: "policy", value: u64::from(other) }),
    };
    let lag = LagLimits { bytes: cursor.u64()?, time: Nanos(cursor.u64()?) };
    let min_interval = Nanos(cursor.u64()?);
    let allow_unknown = cursor.flag("allow_unknown")?;
    let count = cursor.count("symbols")?;
    let symbols =
        (0..count).map(|_| cursor.text("symbol", SYMBOL_BYTES)).collect::<Result<_, _>>()?;
    let rdma = if cursor.flag("rdma")? { Some(rdma_offer(cursor)?) } else { None };
    Ok(AttachRequest { name, policy, lag, min_interval, allow_unknown, symbols, rdma })
}

fn rdma_offer(cursor: &mut Cursor<'_>) -> Result<RdmaOffer, WireError> {
    let offer = RdmaOffer {
        peer: queue_pair(cursor)?,
        ring: memory(cursor)?,
        ring_bytes: cursor.u64()?,
        control: memory(cursor)?,
        receive_depth: cursor.u32()?,
    };
    offer.check()?;
    Ok(offer)
}

fn rdma_answer(cursor: &mut Cursor<'_>) -> Result<RdmaAnswer, WireError> {
    let answer = RdmaAnswer {
        peer: queue_pair(cursor)?,
        cell: memory(cursor)?,
        instruments: cursor.u32()?,
        retries: RetryBudget { timeout: cursor.u8()?, retry_count: cursor.u8()? },
    };
    answer.check()?;
    Ok(answer)
}

fn queue_pair(cursor: &mut Cursor<'_>) -> Result<QueuePairAddress, WireError> {
    let (gid, queue_pair, packet_sequence) = (cursor.take()?, cursor.u32()?, cursor.u32()?);
    let code = cursor.u8()?;
    let unknown = WireError::Field { field: "path_mtu", value: u64::from(code) };
    let path_mtu = PathMtu::from_code(code).ok_or(unknown)?;
    Ok(QueuePairAddress { gid, queue_pair, packet_sequence, path_mtu })
}

fn memory(cursor: &mut Cursor<'_>) -> Result<RemoteMemory, WireError> {
    Ok(RemoteMemory { address: cursor.u64()?, key: cursor.u32()? })
}

fn accepted(cursor: &mut Cursor<'_>) -> Result<Accepted, WireError> {
    let session_id = SessionId(cursor.u32()?);
    let epoch = Epoch(cursor.u64()?);
    let count = cursor.count("instruments")?;
    let instruments =
        (0..count).map(|_| cursor.u32().map(InstrumentId)).collect::<Result<_, _>>()?;
    Ok(Accepted { session_id, epoch, instruments })
}

fn farewell(value: u16) -> Result<Farewell, WireError> {
    match value {
        1 => Ok(Farewell::Closing),
        2 => Ok(Farewell::Evicted),
        3 => Ok(Farewell::EndOfSource),
        other => Err(WireError::Field { field: "farewell", value: u64::from(other) }),
    }
}

/// A reason longer than the limit is cut: losing its tail beats losing the message.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

fn put_request(out: &mut Vec<u8>, request: &AttachRequest) -> Result<(), WireError> {
    put_text(out, "name", &request.name, MAX_NAME_BYTES)?;
    out.push(request.policy as u8);
    for number in [request.lag.bytes, request.lag.time.0, request.min_interval.0] {
        out.extend(number.to_le_bytes());
    }
    out.push(u8::from(request.allow_unknown));
    put_count(out, "symbols", request.symbols.len())?;
    for symbol in &request.symbols {
        put_text(out, "symbol", symbol, SYMBOL_BYTES)?;
    }
    out.push(u8::from(request.rdma.is_some()));
    if let Some(offer) = &request.rdma {
        offer.check()?;
        put_queue_pair(out, &offer.peer);
        put_memory(out, offer.ring);
        out.extend(offer.ring_bytes.to_le_bytes());
        put_memory(out, offer.control);
        out.extend(offer.receive_depth.to_le_bytes());
    }
    Ok(())
}

fn put_answer(out: &mut Vec<u8>, answer: &RdmaAnswer) -> Result<(), WireError> {
    answer.check()?;
    put_queue_pair(out, &answer.peer);
    put_memory(out, answer.cell);
    out.extend(answer.instruments.to_le_bytes());
    out.extend([answer.retries.timeout, answer.retries.retry_count]);
    Ok(())
}

fn put_queue_pair(out: &mut Vec<u8>, peer: &QueuePairAddress) {
    out.extend(peer.gid);
    out.extend(peer.queue_pair.to_le_bytes());
    out.extend(peer.packet_sequence.to_le_bytes());
    out.push(peer.path_mtu.code());
}

fn put_memory(out: &mut Vec<u8>, memory: RemoteMemory) {
    out.extend(memory.address.to_le_bytes());
    out.extend(memory.key.to_le_bytes());
}

fn put_text(
    out: &mut Vec<u8>,
    field: &'static str,
    text: &str,
    max: usize,
) -> Result<(), WireError> {
    if text.len() > max {
        return Err(WireError::Field { field, value: text.len() as u64 });
    }
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    Ok(())
}

fn put_count(out: &mut Vec<u8>, field: &'static str, count: usize) -> Result<(), WireError> {
    if count > MAX_SYMBOLS {
        return Err(WireError::Field { field, value: count as u64 });
    }
    out.extend((count as u32).to_le_bytes());
    Ok(())
}

/// Reads fields off the front of a payload.
struct Cursor<'a> {
    bytes: &'a [u8],
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(WireError::Short {
                what: "handshake message",
                have: self.bytes.len(),
                need: N,
            });
        };
        self.bytes = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError::Field { field, value: u64::from(other) }),
        }
    }

    fn count(&mut self, field: &'static str) -> Result<usize, WireError> {
        let count = self.u32()? as usize;
        if count > MAX_SYMBOLS {
            return Err(WireError::Field { field, value: count as u64 });
        }
        Ok(count)
    }

    fn text(&mut self, field: &'static str, max: usize) -> Result<String, WireError> {
        let len = usize::from(self.u16()?);
        if len > max {
            return Err(WireError::Field { field, value: len as u64 });
        }
        let Some((bytes, rest)) = self.bytes.split_at_checked(len) else {
            return Err(WireError::Short { what: field, have: self.bytes.len(), need: len });
        };
        self.bytes = rest;
        core::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|error| WireError::Field { field, value: error.valid_up_to() as u64 })
    }
}
