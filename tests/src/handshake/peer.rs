//! The other end of a connection: what it has said and heard.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tapecast_wire::attach::{AttachRequest, Message};
use tapecast_wire::rdma::{PathMtu, QueuePairAddress, RdmaAnswer, RdmaOffer};
use tapecast_wire::rdma::{RemoteMemory, RetryBudget};

use super::authority::Who;
use super::secure::Secure;
use super::{Door, HOMES, Place};

/// Where what a peer says is read by the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// As it stands on the wire.
    Plain,
    /// Inside TLS.
    Inside,
    /// Nowhere: the publisher wants TLS, and the peer does not speak it.
    Nowhere,
}

pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

pub(super) struct Peer {
    /// None when it has closed.
    socket: Option<Socket>,
    secure: Option<Secure>,
    pub(super) who: Who,
    pub(super) read: Reading,
    /// Where it connects from; none over a Unix socket.
    pub(super) address: Option<SocketAddr>,
    /// Its request has an RDMA offer.
    offers: bool,
    /// What has gone into the socket.
    pub(super) raw: Vec<u8>,
    /// What TLS has carried whole.
    inside: Vec<u8>,
    pub(super) heard: Vec<u8>,
    /// Bytes that it wanted to say.
    spoken: usize,
    /// Bytes that TLS may still send.
    allowance: usize,
    pub(super) will_say_no_more: bool,
    /// It has gone by a reset, which may overtake what was said.
    pub(super) has_reset: bool,
    /// It has sent what its TLS knows nothing of.
    pub(super) is_spoiled: bool,
    /// The request that the publisher has taken for its own.
    pub(super) asked: Option<Vec<u8>>,
    has_offered: bool,
    pub(super) is_granted: bool,
}

pub(super) fn frame(message: &Message) -> Vec<u8> {
    message.encode().expect("a message of ours")
}

impl Peer {
    pub(super) fn connect(door: Door<'_>, kind: usize) -> Self {
        let (socket, address) = match door.place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path).expect("the publisher listens");
                stream.set_nonblocking(true).expect("a socket of ours");
                (Socket::Unix(stream), None)
            }
            Place::Tcp(publisher) => {
                let stream = connect(*publisher, home(door.play, kind)).expect("it listens");
                stream.set_nonblocking(true).expect("a socket of ours");
                let address = stream.local_addr().expect("a socket of ours");
                (Socket::Tcp(stream), Some(address))
            }
        };
        let who = match address {
            // Few come with TLS where there is none, and many where there is.
            Some(_) if door.is_secure || kind & 0x60 == 0x60 => Who::of(kind >> 1 & 0x0f),
            _ => Who::Plain,
        };
        let read = match (door.is_secure, who) {
            (false, _) => Reading::Plain,
            (true, Who::Plain) => Reading::Nowhere,
            (true, _) => Reading::Inside,
        };
        Self {
            socket: Some(socket),
            secure: door.authority.client(who).map(Secure::new),
            who,
            read,
            address,
            offers: kind & 0x80 != 0,
            raw: Vec::new(),
            inside: Vec::new(),
            heard: Vec::new(),
            spoken: 0,
            allowance: usize::MAX,
            will_say_no_more: false,
            has_reset: false,
            is_spoiled: false,
            asked: None,
            has_offered: false,
            is_granted: false,
        }
    }

    /// What it asks for.
    pub(super) fn request(&self, index: usize) -> AttachRequest {
        let rdma = self.offers.then(offer);
        AttachRequest { name: index.to_string(), rdma, ..AttachRequest::default() }
    }

    pub(super) fn request_frame(&self, index: usize) -> Vec<u8> {
        frame(&Message::Attach(self.request(index)))
    }

    /// What the publisher may have read of it.
    pub(super) fn said(&self) -> &[u8] {
        match self.read {
            Reading::Plain => &self.raw,
            Reading::Inside => &self.inside,
            Reading::Nowhere => &[],
        }
    }

    /// What it said after its request, and after `Ready` where it has offered.
    pub(super) fn said_in_session(&self) -> &[u8] {
        let rest = self.said_after_request();
        if self.has_offered {
            rest.strip_prefix(&*frame(&Message::Ready)).expect("it was never ready")
        } else {
            rest
        }
    }

    pub(super) fn said_after_request(&self) -> &[u8] {
        let asked = self.asked.as_deref().expect("it has never asked");
        self.said().strip_prefix(asked).expect("it has said so")
    }

    /// The publisher has taken a request for its own.
    pub(super) fn on_asked(&mut self, request: &AttachRequest) {
        self.asked = Some(frame(&Message::Attach(request.clone())));
        self.has_offered = request.rdma.is_some();
    }

    /// Whether its TLS has nothing left to do or to send.
    pub(super) fn has_said_all(&self) -> bool {
        self.secure.as_ref().is_none_or(Secure::has_said_all)
    }

    pub(super) fn say(&mut self, bytes: &[u8]) {
        if self.will_say_no_more {
            return;
        }
        self.spoken += bytes.len();
        match &mut self.secure {
            Some(secure) => {
                secure.say(bytes);
                self.send_records();
            }
            None => {
                self.send(bytes);
            }
        }
    }

    /// Says the next bytes of its request.
    pub(super) fn say_piece(&mut self, index: usize, len: usize) {
        let request = self.request_frame(index);
        let rest = request.get(self.spoken..).unwrap_or(&[]);
        self.say(&rest[..len.min(rest.len())]);
    }

    /// Sends what its TLS, if there is any, knows nothing of.
    pub(super) fn spoil(&mut self, bytes: &[u8]) {
        if !self.will_say_no_more && !bytes.is_empty() {
            self.is_spoiled |= self.secure.is_some();
            self.send(bytes);
        }
    }

    /// Lets TLS send so many bytes and no more, so that records go in pieces; 0xff: all of them.
    pub(super) fn hold(&mut self, len: usize) {
        self.allowance = if len == 0xff { usize::MAX } else { len };
        self.send_records();
    }

    /// Reads what is there, and lets its TLS answer.
    pub(super) fn listen(&mut self) {
        let mut piece = [0; 4096];
        loop {
            let Some(socket) = &mut self.socket else { return };
            let Ok(len @ 1..) = socket.read(&mut piece) else { break };
            match &mut self.secure {
                Some(secure) => secure.take(&piece[..len], &mut self.heard),
                None => self.heard.extend_from_slice(&piece[..len]),
            }
        }
        self.send_records();
    }

    pub(super) fn close_half(&mut self, politely: bool) {
        if self.will_say_no_more {
            return;
        }
        if politely && let Some(secure) = &mut self.secure {
            // In the middle of a handshake it is one more thing that nobody expects.
            self.is_spoiled |= secure.is_handshaking();
            secure.close_notify();
            self.send_records();
        }
        if let Some(socket) = &self.socket {
            socket.close_half();
        }
        self.will_say_no_more = true;
    }

    pub(super) fn leave(&mut self) {
        self.socket = None;
        self.will_say_no_more = true;
    }

    /// Leaves by a reset, where there is such a thing.
    pub(super) fn reset(&mut self) {
        if let Some(Socket::Tcp(stream)) = &self.socket {
            sockopt::set_socket_linger(stream, Some(Duration::ZERO)).expect("a socket of ours");
            self.has_reset = true;
        }
        self.leave();
    }

    fn send_records(&mut self) {
        while !self.will_say_no_more
            && self.allowance > 0
            && let Some(bytes) = self.secure.as_ref().and_then(Secure::next)
        {
            let bytes = bytes[..bytes.len().min(self.allowance)].to_vec();
            let sent = self.send(&bytes);
            if let Some(secure) = &mut self.secure {
                secure.on_sent(sent, &mut self.inside);
            }
            if self.allowance != usize::MAX {
                self.allowance -= sent;
            }
            if sent == 0 {
                break;
            }
        }
    }

    /// Nothing goes when the publisher has closed it, or does not read.
    fn send(&mut self, bytes: &[u8]) -> usize {
        let Some(socket) = &mut self.socket else { return 0 };
        let Ok(len) = socket.write(bytes) else { return 0 };
        self.raw.extend_from_slice(&bytes[..len]);
        len
    }
}

impl Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn close_half(&self) {
        // The publisher may have closed it altogether.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

/// An address that no other play has lately had.
fn home(play: u32, kind: usize) -> Ipv4Addr {
    let [_, high, middle, low] = (play % (1 << 22)).to_be_bytes();
    Ipv4Addr::new(127, 1 + (high << 1) + (kind % HOMES) as u8, middle, low)
}

fn connect(publisher: SocketAddr, from: Ipv4Addr) -> rustix::io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(socket.as_fd(), &SocketAddr::from((from, 0)))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    loop {
        match rustix::net::connect(socket.as_fd(), &publisher) {
            Ok(()) | Err(Errno::ISCONN) => break,
            // It goes on meanwhile. libFuzzer's clock is a signal.
            Err(Errno::INTR | Errno::ALREADY) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(TcpStream::from(socket))
}

fn offer() -> RdmaOffer {
    let memory = RemoteMemory { address: 0x7f00_0000_1000, key: 9 };
    RdmaOffer {
        peer: queue_pair(1),
        ring: memory,
        ring_bytes: 1 << 20,
        control: memory,
        receive_depth: 256,
    }
}

pub(super) fn answer() -> RdmaAnswer {
    let cell = RemoteMemory { address: 0x7f00_0000_2000, key: 10 };
    let retries = RetryBudget { timeout: 14, retry_count: 6 };
    RdmaAnswer { peer: queue_pair(2), cell, instruments: 500, retries }
}

fn queue_pair(queue_pair: u32) -> QueuePairAddress {
    let path_mtu = PathMtu::Bytes4096;
    QueuePairAddress { gid: [7; 16], queue_pair, packet_sequence: 3, path_mtu }
}
