//! The handshake played by a script: connections that come, speak in pieces, say the wrong thing,
//! close a half or go, while the publisher takes, connects, grants, refuses and forgets.
//!
//! A script is any bytes: operations, each with the bytes that it wants. Whatever it is, nobody
//! gets a session without a whole request of its own (and, with an RDMA offer, without having said
//! that it is ready), each end has its cause, every connection is counted exactly once and by a
//! cause that it can have had, and afterwards an honest subscriber is served. No verdict depends on
//! time.
//!
//! One [`Theatre`] serves any number of scripts: runtime, socket and certificates are made once,
//! and each script begins when nothing is left of the one before it.

mod authority;
mod causes;
mod peer;
mod secure;
mod stage;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::SIGPIPE;
use tapecast_control::{
    Access, AnyListener, Listener, ListenerOptions, TcpListener, TcpListenerOptions, TlsIdentity,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use authority::Authority;
use stage::Stage;

/// Connections in one script: below what the listener's queue of requests holds, so that none waits
/// for room unread.
const CONNECTIONS_MAX: usize = 16;
const HALF_OPEN_MAX: usize = 4;
const HALF_OPEN_PER_ADDRESS_MAX: usize = 3;
/// Loopback addresses that the connections of one script come from.
const HOMES: usize = 2;
/// Nothing waits for so long, so that no verdict depends on how fast this machine is.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// What carries the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A Unix socket.
    Unix,
    /// TCP on the loopback interface.
    Tcp,
    /// TLS 1.3 over TCP, with certificates on both sides.
    Tls,
}

/// Where the publisher listens.
enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Where scripts are played.
pub struct Theatre {
    runtime: Runtime,
    listener: AnyListener,
    place: Place,
    /// For clients with TLS, which come to publishers without it too.
    authority: Authority,
    is_secure: bool,
    plays: u32,
    /// Socket and certificates lie in it.
    _folder: TempDir,
}

impl std::fmt::Debug for Theatre {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Theatre").field("place", &self.listener.place()).finish_non_exhaustive()
    }
}

impl Theatre {
    /// Begins to listen.
    ///
    /// # Panics
    /// When the system refuses.
    #[must_use]
    pub fn new(carrier: Carrier) -> Self {
        // As in every program of Rust but one whose `main` is libFuzzer's: a peer that has gone is
        // an error, and no end of the process.
        let ignored = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGPIPE, ignored).expect("a handler");
        let folder = tempfile::tempdir().expect("a folder");
        // Every tick looks at the sockets, so that a turn is one step of everyone.
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_all().event_interval(1).build().expect("a runtime");
        let authority = Authority::new(folder.path());
        let (listener, place) = {
            let _inside = runtime.enter();
            match carrier {
                Carrier::Unix => {
                    let socket = folder.path().join("s");
                    (unix(&socket), Place::Unix(socket))
                }
                Carrier::Tcp => tcp(None),
                Carrier::Tls => tcp(Some(authority.identity())),
            }
        };
        let is_secure = carrier == Carrier::Tls;
        Self { runtime, listener, place, authority, is_secure, plays: 0, _folder: folder }
    }

    /// Plays one script.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn play(&mut self, script: &[u8]) {
        self.plays = self.plays.wrapping_add(1);
        let Self { runtime, listener, place, authority, is_secure, plays, .. } = self;
        let door = Door { place, authority, is_secure: *is_secure, play: *plays };
        runtime.block_on(async {
            let mut stage = Stage::new(listener, door);
            let mut script = script.iter();
            while let Some(operation) = script.next() {
                stage.perform(*operation, &mut script).await;
            }
            stage.settle().await;
        });
    }
}

/// What a client needs to come in.
#[derive(Clone, Copy)]
struct Door<'a> {
    place: &'a Place,
    authority: &'a Authority,
    /// Whether the publisher speaks TLS.
    is_secure: bool,
    /// How-manieth play this is: each has addresses of its own, so that ports never run out.
    play: u32,
}

fn unix(socket: &std::path::Path) -> AnyListener {
    let options = ListenerOptions {
        half_open_max: HALF_OPEN_MAX,
        handshake_timeout: FOREVER,
        ..ListenerOptions::new(socket, Access::own())
    };
    Listener::bind(options).expect("a socket").into()
}

fn tcp(tls: Option<TlsIdentity>) -> (AnyListener, Place) {
    let options = TcpListenerOptions {
        tls,
        half_open_max: HALF_OPEN_MAX,
        half_open_per_address_max: HALF_OPEN_PER_ADDRESS_MAX,
        handshake_timeout: FOREVER,
        ..TcpListenerOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let listener = TcpListener::bind(options).expect("a port");
    let address = listener.local_address();
    (listener.into(), Place::Tcp(address))
}
