//! Certificates, publishers and subscribers on the loopback interface.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapecast_control::certificates::{self, Plan};
use tapecast_control::client::{self, AttachError, ClientTls, Granted, Opening, TcpTarget};
use tapecast_control::{Lifeline, TcpListener, TcpListenerOptions, TlsFiles, TlsIdentity};
use tapecast_wire::attach::{Accepted, AttachRequest, FRAME_HEAD_BYTES, FrameHead, Message};
use tapecast_wire::rdma::{
    PathMtu, QueuePairAddress, RdmaAnswer, RdmaOffer, RemoteMemory, RetryBudget,
};
use tapecast_wire::{Epoch, SessionId};
use tempfile::TempDir;

/// So long that only a hang reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// So short that a test can wait for it.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

/// An authority, a publisher's certificate and that of the client `risk.example`.
pub(crate) struct Certificates {
    pub(crate) folder: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let certificates = Self { folder: TempDir::new().unwrap() };
        certificates.renew();
        certificates
    }

    /// Replaces all of them, the authority included.
    pub(crate) fn renew(&self) {
        let plan = Plan {
            server_names: vec!["localhost".into()],
            server_addresses: vec!["127.0.0.1".parse().unwrap()],
            clients: vec!["risk.example".into()],
            days: 30,
            force: true,
        };
        certificates::create(self.folder.path(), &plan).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.path("server.pem"),
            key: self.path("server.key"),
            client_ca: self.path("ca.pem"),
        }
    }

    pub(crate) fn identity(&self) -> TlsIdentity {
        TlsIdentity::load(self.files()).unwrap()
    }

    pub(crate) fn client(&self) -> ClientTls {
        ClientTls {
            ca: self.path("ca.pem"),
            certificate: self.path("client-risk.example.pem"),
            key: self.path("client-risk.example.key"),
            server_name: None,
        }
    }

    pub(crate) fn listener(&self) -> TcpListener {
        TcpListener::bind(TcpListenerOptions { tls: Some(self.identity()), ..options() }).unwrap()
    }

    pub(crate) fn target(&self, listener: &TcpListener) -> TcpTarget {
        TcpTarget { tls: Some(self.client()), ..target(listener) }
    }
}

/// A publisher and how to reach it, over plain TCP and over TLS.
pub(crate) fn both() -> [(TcpListener, TcpTarget); 2] {
    let certificates = Certificates::new();
    let plain = TcpListener::bind(options()).unwrap();
    let secure = certificates.listener();
    // What a subscriber needs of its files is read when it connects, so they have to stay.
    let secure_target = certificates.target(&secure);
    KEPT.with_borrow_mut(|kept| kept.push(certificates));
    let plain_target = target(&plain);
    [(plain, plain_target), (secure, secure_target)]
}

thread_local! {
    /// Each test has a thread of its own, and its folders go with it.
    static KEPT: RefCell<Vec<Certificates>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn options() -> TcpListenerOptions {
    let address = "127.0.0.1:0".parse().unwrap();
    TcpListenerOptions { handshake_timeout: LONG, ..TcpListenerOptions::new(address) }
}

pub(crate) fn target(listener: &TcpListener) -> TcpTarget {
    TcpTarget::plain("127.0.0.1", listener.local_address().port())
}

pub(crate) fn request() -> AttachRequest {
    let memory = RemoteMemory { address: 0x7f00_0000_1000, key: 9 };
    let offer = RdmaOffer {
        peer: queue_pair(1),
        ring: memory,
        ring_bytes: 1 << 20,
        control: memory,
        receive_depth: 256,
    };
    AttachRequest { rdma: Some(offer), ..AttachRequest::default() }
}

pub(crate) fn answer() -> RdmaAnswer {
    let cell = RemoteMemory { address: 0x7f00_0000_2000, key: 10 };
    let retries = RetryBudget { timeout: 14, retry_count: 6 };
    RdmaAnswer { peer: queue_pair(2), cell, instruments: 500, retries }
}

fn queue_pair(queue_pair: u32) -> QueuePairAddress {
    let path_mtu = PathMtu::Bytes4096;
    QueuePairAddress { gid: [7; 16], queue_pair, packet_sequence: 3, path_mtu }
}

pub(crate) fn accepted() -> Accepted {
    Accepted { session_id: SessionId(7), epoch: Epoch(17), instruments: vec![] }
}

/// Runs a blocking step beside the publisher's side of a test.
pub(crate) async fn beside<T: Send + 'static>(step: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(step).await.unwrap()
}

/// Asks for a session, in the background.
pub(crate) fn connect(target: &TcpTarget) -> tokio::task::JoinHandle<Result<Opening, AttachError>> {
    let target = target.clone();
    tokio::task::spawn_blocking(move || client::connect(&target, &request(), LONG))
}

/// Both ends of a granted session.
pub(crate) async fn session(listener: &mut TcpListener, target: &TcpTarget) -> (Lifeline, Granted) {
    let opening = connect(target);
    let pending = listener.accept().await;
    let ready = tokio::spawn(async move { pending.connect(&answer()).await.unwrap() });
    let opening = opening.await.unwrap().unwrap();
    let granted = tokio::task::spawn_blocking(move || opening.ready(LONG).unwrap());
    let lifeline = ready.await.unwrap().accept(&accepted(), &[]).await.unwrap();
    (lifeline, granted.await.unwrap())
}

/// A bare connection that does not wait forever.
pub(crate) fn bare(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

pub(crate) fn write_message(stream: &mut TcpStream, message: &Message) {
    stream.write_all(&message.encode().unwrap()).unwrap();
}

/// The next message; none at the end of the connection.
pub(crate) fn read_message(stream: &mut TcpStream) -> Option<Message> {
    let mut head = [0; FRAME_HEAD_BYTES];
    match stream.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if is_end(&error) => return None,
        Err(error) => panic!("{error}"),
    }
    let head = FrameHead::parse(head).unwrap();
    let mut payload = vec![0; head.payload_bytes];
    stream.read_exact(&mut payload).unwrap();
    Some(Message::decode(head, &payload).unwrap())
}

/// Everything until the end of the connection.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert!(is_end(&error), "{error}"),
    }
    bytes
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Waits until a descriptor is readable, and fails where it never is.
pub(crate) fn wait_readable(descriptor: &impl AsFd) {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    let timeout = Timespec::try_from(LONG).unwrap();
    assert_eq!(poll(&mut polled, Some(&timeout)).unwrap(), 1);
}
