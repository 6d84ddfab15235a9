//! The subscriber's end of the handshake against a publisher that says anything: a session is what
//! was granted, word for word and at its place, everything else is an error that says why, and
//! descriptors that come along are never left open.
#![no_main]

use std::cell::RefCell;
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use libfuzzer_sys::fuzz_target;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tapecast_control::client::{self, AttachError, Granted, LifelineStatus, TcpTarget};
use tapecast_wire::attach::{
    Accepted, AttachRequest, FRAME_HEAD_BYTES, Farewell, FrameHead, MAX_REASON_BYTES, Message,
    Pong, Refusal,
};
use tapecast_wire::rdma::{PathMtu, QueuePairAddress, RdmaAnswer, RemoteMemory, RetryBudget};
use tapecast_wire::{Epoch, InstrumentId, Nanos, SessionId};
use tempfile::TempDir;

/// No verdict depends on how fast this machine is.
const FOREVER: Duration = Duration::from_secs(24 * 3600);
/// A farewell's kind, its text's length, and its text.
const FAREWELL_BYTES_MAX: usize = 2 + 2 + MAX_REASON_BYTES;
/// More than one message may carry.
const DESCRIPTORS_MAX: usize = 20;

/// What a publisher writes at once, and how many descriptors beside it.
struct Piece {
    bytes: Vec<u8>,
    descriptors: usize,
}

struct Play {
    is_local: bool,
    pieces: Vec<Piece>,
}

struct Stage {
    _folder: TempDir,
    path: PathBuf,
    port: u16,
    plays: Sender<Play>,
    /// Everything is said.
    said: Receiver<()>,
    /// The connection is closed at both ends.
    over: Receiver<()>,
}

thread_local! {
    static STAGE: RefCell<Stage> = RefCell::new(Stage::new());
}

impl Stage {
    fn new() -> Self {
        // As in every program of Rust but one whose `main` is libFuzzer's.
        let ignored = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGPIPE, ignored).expect("a handler");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let local = UnixListener::bind(&path).expect("a socket");
        let remote = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = remote.local_addr().expect("a port").port();
        let (plays, to_play) = bounded::<Play>(1);
        let ((say, said), (end, over)) = (bounded(1), bounded(1));
        std::thread::spawn(move || {
            for play in to_play {
                if play.is_local {
                    let (stream, _) = local.accept().expect("a client");
                    tell(&stream, &play.pieces);
                    let _ = stream.shutdown(Shutdown::Write);
                    say.send(()).expect("somebody listens");
                    let _ = (&stream).read_to_end(&mut Vec::new());
                } else {
                    let (stream, _) = remote.accept().expect("a client");
                    for piece in &play.pieces {
                        let _ = (&stream).write_all(&piece.bytes);
                    }
                    let _ = stream.shutdown(Shutdown::Write);
                    say.send(()).expect("somebody listens");
                    let _ = (&stream).read_to_end(&mut Vec::new());
                }
                end.send(()).expect("somebody listens");
            }
        });
        Self { _folder: folder, path, port, plays, said, over }
    }

    fn play(&self, script: &[u8]) {
        let Some((choice, script)) = script.split_first() else { return };
        let is_local = choice & 1 == 0;
        let pieces = compose(script);
        let told: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
        let has_descriptors = is_local && pieces.iter().any(|piece| piece.descriptors > 0);
        let before = if has_descriptors { open_files() } else { 0 };
        self.plays.send(Play { is_local, pieces }).expect("the publisher's thread runs");
        if is_local {
            let asked = client::attach(&self.path, &AttachRequest::default(), FOREVER);
            self.said.recv().expect("the publisher's thread runs");
            match asked {
                Err(AttachError::Descriptors { .. }) if has_descriptors => {}
                asked => check_grant(asked, &told),
            }
        } else {
            self.play_remote(&told);
        }
        self.over.recv().expect("the publisher's thread runs");
        if has_descriptors {
            // The publisher's own end may not be closed yet.
            while open_files() > before {
                std::thread::yield_now();
            }
        }
    }

    fn play_remote(&self, told: &[u8]) {
        let target = TcpTarget::plain("127.0.0.1", self.port);
        let opening = client::connect(&target, &AttachRequest::default(), FOREVER);
        match (opening, first(told)) {
            (Ok(opening), Some((Message::Connect(answer), rest))) => {
                assert_eq!(*opening.answer(), answer);
                let granted = opening.ready(FOREVER);
                self.said.recv().expect("the publisher's thread runs");
                check_grant(granted, rest);
            }
            (Ok(opening), told) => panic!("{opening:?} of {told:?}"),
            (Err(error), told) => {
                self.said.recv().expect("the publisher's thread runs");
                assert!(!matches!(told, Some((Message::Connect(_), _))), "{error}");
                check_refusal(&error, told.map(|(message, _)| message));
            }
        }
    }
}

fn tell(stream: &impl AsFd, pieces: &[Piece]) {
    let file = File::open("/dev/null").expect("it is there");
    for piece in pieces {
        let descriptors = vec![file.as_fd(); piece.descriptors];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(beside.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room");
        }
        // What fits into a socket's buffer goes at once; a client that is gone hears nothing.
        let bytes = [IoSlice::new(&piece.bytes)];
        let _ = sendmsg(stream, &bytes, &mut beside, SendFlags::NOSIGNAL);
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("it is there").count()
}

/// The first message, and what follows it.
fn first(told: &[u8]) -> Option<(Message, &[u8])> {
    let (head, rest) = told.split_first_chunk::<FRAME_HEAD_BYTES>()?;
    let head = FrameHead::parse(*head).ok()?;
    let payload = rest.get(..head.payload_bytes)?;
    Some((Message::decode(head, payload).ok()?, &rest[head.payload_bytes..]))
}

fn check_refusal(error: &AttachError, told: Option<Message>) {
    assert!(!error.to_string().is_empty());
    let refusal = match told {
        Some(Message::Refused(refusal, _)) => Some(refusal),
        _ => None,
    };
    assert_eq!(error.refusal(), refusal, "{error}");
}

/// What comes after answers about the time, which are always welcome.
fn after_pongs(mut told: &[u8]) -> &[u8] {
    while let Some((Message::Pong(_), rest)) = first(told) {
        told = rest;
    }
    told
}

fn check_grant(asked: Result<Granted, AttachError>, told: &[u8]) {
    match (asked, first(told)) {
        (Ok(granted), Some((Message::Accepted(accepted), rest))) => {
            assert_eq!(granted.accepted, accepted);
            let _: Vec<OwnedFd> = granted.descriptors;
            let mut lifeline = granted.lifeline;
            let expected = match first(after_pongs(rest)) {
                Some((Message::Farewell(farewell, reason), after))
                    if after_pongs(rest).len() - after.len()
                        <= FRAME_HEAD_BYTES + FAREWELL_BYTES_MAX =>
                {
                    LifelineStatus::Farewell(farewell, reason)
                }
                _ => LifelineStatus::Gone,
            };
            assert_eq!(lifeline.status(), expected);
        }
        (Ok(granted), told) => panic!("{granted:?} of {told:?}"),
        (Err(error), told) => {
            assert!(!matches!(told, Some((Message::Accepted(_), _))), "{error}");
            check_refusal(&error, told.map(|(message, _)| message));
        }
    }
}

/// What a script has the publisher say: most of it good messages, and some whatever.
fn compose(script: &[u8]) -> Vec<Piece> {
    let mut script = script.iter().copied();
    let mut pieces = Vec::new();
    while let Some(operation) = script.next() {
        let number = script.next().unwrap_or(0);
        let message = match operation % 8 {
            0 => Message::Accepted(Accepted {
                session_id: SessionId(u32::from(number)),
                epoch: Epoch(1),
                instruments: (0..u32::from(number)).map(InstrumentId).collect(),
            }),
            1 => Message::Refused(Refusal::Full, "x".repeat(usize::from(number))),
            2 => Message::Connect(answer(number)),
            3 => Message::Farewell(Farewell::Closing, "x".repeat(usize::from(number))),
            4 => Message::Detach,
            5 => Message::Ready,
            6 => {
                let time = Nanos(u64::from(number));
                Message::Pong(Pong { ping: time, received: Nanos(7), sent: Nanos(9) })
            }
            _ => {
                let bytes = script.by_ref().take(usize::from(number)).collect();
                push(&mut pieces, bytes, 0);
                continue;
            }
        };
        let mut bytes = message.encode().expect("a message of ours");
        // Some are cut in two, and some have descriptors beside them.
        let rest = bytes.split_off(usize::from(operation >> 3).min(bytes.len()));
        push(&mut pieces, bytes, usize::from(number) % (DESCRIPTORS_MAX + 1));
        push(&mut pieces, rest, 0);
    }
    pieces
}

fn push(pieces: &mut Vec<Piece>, bytes: Vec<u8>, descriptors: usize) {
    if !bytes.is_empty() {
        pieces.push(Piece { bytes, descriptors });
    }
}

fn answer(number: u8) -> RdmaAnswer {
    let path_mtu = PathMtu::Bytes4096;
    let peer = QueuePairAddress { gid: [7; 16], queue_pair: 2, packet_sequence: 3, path_mtu };
    let cell = RemoteMemory { address: 0x7f00_0000_2000, key: 10 };
    let retries = RetryBudget { timeout: 14, retry_count: 6 };
    RdmaAnswer { peer, cell, instruments: u32::from(number), retries }
}

fuzz_target!(|script: &[u8]| STAGE.with_borrow(|stage| stage.play(script)));
