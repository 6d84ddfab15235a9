//! The publisher's TCP port, and one type for whichever listener a publisher has.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener as TokioListener;

use crate::access::Access;
use crate::bind_error::BindError;
use crate::gate::{Gate, ListenerStats};
use crate::intake::{Intake, Limits, Socket};
use crate::listener::Listener;
use crate::pending::Pending;
use crate::tls::{TlsFileError, TlsIdentity};

/// How to listen on a TCP port.
#[derive(Clone, Debug)]
pub struct TcpListenerOptions {
    /// Where; port 0 for one that is free.
    pub address: SocketAddr,
    /// The publisher's certificate and its clients' authority; none for plain TCP, which is
    /// refused beyond the loopback addresses.
    pub tls: Option<TlsIdentity>,
    /// Time for TLS and a request together, and for an answer to be taken. Default 5 s.
    pub handshake_timeout: Duration,
    /// Connections that may be without a complete request at once; beyond it, the oldest of the
    /// address that has most of them is closed in favour of the newest. Default 128.
    pub half_open_max: usize,
    /// The same, of one remote address (IPv6: of one network of 64 bits). Default 64, so that a
    /// host full of subscribers can start them all at once.
    pub half_open_per_address_max: usize,
}

impl TcpListenerOptions {
    /// The defaults: plain TCP.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            handshake_timeout: Duration::from_secs(5),
            half_open_max: 128,
            half_open_per_address_max: 64,
        }
    }
}

/// The publisher's TCP port: takes connections in the background, and hands out the requests of
/// those whose certificate is verified. Dropping it closes it.
#[derive(Debug)]
pub struct TcpListener {
    intake: Intake,
    address: SocketAddr,
    tls: Option<TlsIdentity>,
}

impl TcpListener {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`BindError`], whose text says what to do.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn bind(options: TcpListenerOptions) -> Result<Self, BindError> {
        let address = options.address;
        if options.tls.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(BindError::Unprotected { address });
        }
        let socket = listen(address).map_err(|source| failed(address, source))?;
        let address = socket.local_addr().map_err(|source| failed(address, source))?;
        // Nobody is asked for a user here.
        let gate = Gate::new(Access::own(), options.handshake_timeout);
        let limits = Limits {
            half_open: options.half_open_max,
            half_open_per_address: options.half_open_per_address_max,
        };
        let tls = options.tls;
        let intake = Intake::start(Socket::Tcp { socket, tls: tls.clone() }, gate, limits);
        Ok(Self { intake, address, tls })
    }

    /// Waits for the next request. Cancel-safe.
    ///
    /// # Panics
    /// When the accepting task has ended, which only a defect in it can bring about.
    pub async fn accept(&mut self) -> Pending {
        self.intake.accept().await
    }

    /// Where it listens, with the port that it really has.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The publisher's certificate.
    #[must_use]
    pub const fn tls(&self) -> Option<&TlsIdentity> {
        self.tls.as_ref()
    }

    /// Counts since it was bound.
    #[must_use]
    pub fn stats(&self) -> ListenerStats {
        self.intake.gate().stats()
    }

    /// Takes no more connections, and tells those whose requests wait that the publisher is
    /// closing. Lifelines stay.
    pub fn close(self) {}
}

fn listen(address: SocketAddr) -> io::Result<TokioListener> {
    let socket = std::net::TcpListener::bind(address)?;
    socket.set_nonblocking(true)?;
    TokioListener::from_std(socket)
}

fn failed(address: SocketAddr, source: io::Error) -> BindError {
    match source.kind() {
        io::ErrorKind::AddrInUse => BindError::PortInUse { address },
        io::ErrorKind::AddrNotAvailable => BindError::NotOurAddress { address },
        io::ErrorKind::PermissionDenied => BindError::PrivilegedPort { address },
        _ => BindError::Tcp { address, source },
    }
}

/// Whichever listener a publisher has.
#[derive(Debug)]
pub enum AnyListener {
    /// For subscribers of this host.
    Unix(Listener),
    /// For subscribers over the network.
    Tcp(TcpListener),
}

impl AnyListener {
    /// Waits for the next request. Cancel-safe.
    ///
    /// # Panics
    /// When the accepting task has ended, which only a defect in it can bring about.
    pub async fn accept(&mut self) -> Pending {
        match self {
            Self::Unix(listener) => listener.accept().await,
            Self::Tcp(listener) => listener.accept().await,
        }
    }

    /// Counts since it was bound.
    #[must_use]
    pub fn stats(&self) -> ListenerStats {
        match self {
            Self::Unix(listener) => listener.stats(),
            Self::Tcp(listener) => listener.stats(),
        }
    }

    /// The publisher's certificate, where there is one.
    #[must_use]
    pub const fn tls(&self) -> Option<&TlsIdentity> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(listener) => listener.tls(),
        }
    }

    /// Changes which users of this host may attach, for connections from now on. Over TCP there
    /// are none, and nothing changes.
    ///
    /// # Errors
    /// When the socket's mode cannot follow; nothing has changed then.
    pub fn set_access(&self, access: Access) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_access(access),
            Self::Tcp(_) => Ok(()),
        }
    }

    /// Reads the certificate's files again; without TLS there are none.
    ///
    /// # Errors
    /// [`TlsFileError`]; what was in use before stays in use.
    pub fn reload_tls(&self) -> Result<(), TlsFileError> {
        match self {
            Self::Tcp(TcpListener { tls: Some(tls), .. }) => tls.reload(),
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
        }
    }

    /// Where it listens, for logs.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Unix(listener) => listener.path().display().to_string(),
            Self::Tcp(listener) => listener.local_address().to_string(),
        }
    }

    /// Takes no more connections, and tells those whose requests wait that the publisher is
    /// closing. Lifelines stay.
    pub fn close(self) {}
}

impl From<Listener> for AnyListener {
    fn from(listener: Listener) -> Self {
        Self::Unix(listener)
    }
}

impl From<TcpListener> for AnyListener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}
