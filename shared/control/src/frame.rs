//! Frames on a socket: reading them in bounded pieces, and descriptors beside them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tapecast_wire::WireError;
use tapecast_wire::attach::{FRAME_HEAD_BYTES, FrameHead, Message};

/// Most descriptors beside one message.
pub const MAX_DESCRIPTORS: usize = 16;

/// Bytes read at once, so that a frame's memory grows with what really arrives.
pub(crate) const PIECE_BYTES: usize = 4096;

/// Puts one message after another together from pieces. Sans-I/O.
///
/// It never asks for a byte beyond the message, so whatever follows stays in the socket.
#[derive(Debug)]
pub(crate) struct FrameReader {
    payload_bytes_max: usize,
    head: Option<FrameHead>,
    bytes: Vec<u8>,
}

impl FrameReader {
    /// Refuses payloads over `payload_bytes_max`, and over what the protocol allows at all.
    pub(crate) const fn new(payload_bytes_max: usize) -> Self {
        Self { payload_bytes_max, head: None, bytes: Vec::new() }
    }

    /// Bytes to read next, at least 1 and at most [`PIECE_BYTES`].
    pub(crate) fn wanted(&self) -> usize {
        let whole = self.head.map_or(FRAME_HEAD_BYTES, |head| head.payload_bytes);
        (whole - self.bytes.len()).min(PIECE_BYTES)
    }

    /// Takes at most [`FrameReader::wanted`] bytes; hands out the message that they complete.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<Option<Message>, WireError> {
        debug_assert!(piece.len() <= self.wanted());
        self.bytes.extend_from_slice(piece);
        let head = match self.head {
            Some(head) => head,
            None => {
                let Ok(head) = <[u8; FRAME_HEAD_BYTES]>::try_from(&self.bytes[..]) else {
                    return Ok(None);
                };
                let head = FrameHead::parse(head)?;
                if head.payload_bytes > self.payload_bytes_max {
                    let value = head.payload_bytes as u64;
                    return Err(WireError::Field { field: "payload_len", value });
                }
                self.bytes.clear();
                *self.head.insert(head)
            }
        };
        if self.bytes.len() < head.payload_bytes {
            return Ok(None);
        }
        self.head = None;
        let payload = std::mem::take(&mut self.bytes);
        Message::decode(head, &payload).map(Some)
    }
}

/// Sends what fits now, with `descriptors` beside the first byte. Never blocks, never raises
/// SIGPIPE.
pub(crate) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags))?)
}

/// Reads what is there. Never blocks. The kernel closes descriptors that come along.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    let (len, _) =
        rustix::io::retry_on_intr(|| rustix::net::recv(&socket, &mut *bytes, RecvFlags::DONTWAIT))?;
    Ok(len)
}

/// Bytes and descriptors from one read.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) len: usize,
    pub(crate) descriptors: Vec<OwnedFd>,
    /// The kernel closed some: more than [`MAX_DESCRIPTORS`], or this process may not have more.
    pub(crate) cut: bool,
}

/// Reads what is there, descriptors included: owned and close-on-exec. Never blocks.
pub(crate) fn receive_descriptors(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)
    })?;
    let descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    let cut = message.flags.contains(ReturnFlags::CTRUNC);
    Ok(Received { len: message.bytes, descriptors, cut })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapecast_wire::attach::{
        AttachRequest, FRAME_HEAD_BYTES, Farewell, MAX_FRAME_BYTES, Message,
    };
    use tapecast_wire::{WIRE_VERSION, WireError};

    use super::{FrameReader, PIECE_BYTES};

    fn messages() -> Vec<Message> {
        let symbols = (0..2_000).map(|number| format!("SYMBOL-{number}")).collect();
        vec![
            Message::Detach,
            Message::Attach(AttachRequest { symbols, ..AttachRequest::default() }),
            Message::Farewell(Farewell::Evicted, "too slow".into()),
        ]
    }

    #[test]
    fn a_payload_over_the_readers_own_limit_is_refused_by_its_head() {
        let frame = Message::Farewell(Farewell::Closing, "x".into()).encode().unwrap();
        let payload_bytes = frame.len() - 8;
        assert!(FrameReader::new(payload_bytes).push(&frame[..8]).is_ok());
        let error = FrameReader::new(payload_bytes - 1).push(&frame[..8]).unwrap_err();
        assert!(matches!(error, WireError::Field { field: "payload_len", .. }), "{error}");
    }

    #[test]
    fn a_gigabyte_is_refused_before_any_of_it_is_held() {
        let mut reader = FrameReader::new(MAX_FRAME_BYTES);
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(1u32 << 30).to_le_bytes());
        head[6..].copy_from_slice(&WIRE_VERSION.to_le_bytes());
        assert!(reader.push(&head).is_err());
        assert!(reader.bytes.capacity() < 64);
    }

    #[test]
    fn a_promised_payload_is_not_allocated_before_it_arrives() {
        let mut reader = FrameReader::new(MAX_FRAME_BYTES);
        let frame = messages()[1].encode().unwrap();
        reader.push(&frame[..8]).unwrap();
        assert_eq!(reader.wanted(), PIECE_BYTES);
        assert!(reader.bytes.capacity() < 64);
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_however_they_are_cut(
            cuts in proptest::collection::vec(1usize..PIECE_BYTES, 1..100),
        ) {
            let sent = messages();
            let bytes: Vec<u8> =
                sent.iter().flat_map(|message| message.encode().unwrap()).collect();
            let (mut reader, mut rest, mut received) =
                (FrameReader::new(MAX_FRAME_BYTES), &bytes[..], Vec::new());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at(reader.wanted().min(*cut).min(rest.len()));
                rest = after;
                received.extend(reader.push(piece).unwrap());
            }
            prop_assert_eq!(reader.wanted(), FRAME_HEAD_BYTES);
            prop_assert_eq!(received, sent);
        }

        #[test]
        fn no_bytes_make_it_panic_or_want_nothing(
            bytes in proptest::collection::vec(any::<u8>(), 0..512),
            payload_bytes in 0u32..64,
            message in 0u16..7,
        ) {
            let mut stream = payload_bytes.to_le_bytes().to_vec();
            stream.extend(message.to_le_bytes());
            stream.extend(WIRE_VERSION.to_le_bytes());
            stream.extend(bytes);
            let (mut reader, mut rest) = (FrameReader::new(MAX_FRAME_BYTES), &stream[..]);
            while !rest.is_empty() {
                prop_assert!((1..=PIECE_BYTES).contains(&reader.wanted()));
                let (piece, after) = rest.split_at(reader.wanted().min(rest.len()));
                rest = after;
                if reader.push(piece).is_err() {
                    break;
                }
            }
        }
    }
}
