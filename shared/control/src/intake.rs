//! Takes connections in the background and makes requests of them, within bounds.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use crate::access::Verdict;
use crate::gate::{Gate, Rejection};
use crate::handshake::{Arrival, Handshake};
use crate::keepalive;
use crate::peer::PeerCredentials;
use crate::pending::Pending;
use crate::remote::Peer;
use crate::stream::Stream;
use crate::tls::TlsIdentity;

/// Requests that wait to be taken by [`Intake::accept`]. More wait in their handshakes.
const REQUEST_QUEUE: usize = 16;

/// Rest after a connection could not be taken for want of descriptors or memory. The connection
/// stays in the kernel's queue; without the rest, trying again would be a spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Connections that may be without a complete request at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// All together.
    pub(crate) half_open: usize,
    /// Of one remote address, or of one IPv6 network of 64 bits.
    pub(crate) half_open_per_address: usize,
}

/// What is listened on.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixListener),
    Tcp { socket: TcpListener, tls: Option<TlsIdentity> },
}

/// The requests that arrive. Dropping it takes no more, and refuses those that wait.
#[derive(Debug)]
pub(crate) struct Intake {
    requests: mpsc::Receiver<Pending>,
    gate: Arc<Gate>,
    accepting: AbortHandle,
}

impl Intake {
    /// Begins to take connections. Inside a tokio runtime only.
    pub(crate) fn start(socket: Socket, gate: Gate, limits: Limits) -> Self {
        let gate = Arc::new(gate);
        let (sender, requests) = mpsc::channel(REQUEST_QUEUE);
        let accept_loop = AcceptLoop {
            socket,
            gate: Arc::clone(&gate),
            requests: sender,
            half_open: VecDeque::new(),
            limits,
            handshakes: JoinSet::new(),
        };
        let accepting = tokio::spawn(accept_loop.run()).abort_handle();
        Self { requests, gate, accepting }
    }

    /// Waits for the next request. Cancel-safe.
    pub(crate) async fn accept(&mut self) -> Pending {
        self.requests.recv().await.expect("the accepting task runs as long as its listener")
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.accepting.abort();
        self.requests.close();
        while let Ok(pending) = self.requests.try_recv() {
            pending.refuse_closing();
        }
    }
}

/// A handshake; dropping its sender crowds it out.
struct HalfOpen {
    address: Option<IpAddr>,
    in_room: oneshot::Sender<()>,
}

/// Takes connections and begins their handshakes. Owns these, so that they end with it.
struct AcceptLoop {
    socket: Socket,
    gate: Arc<Gate>,
    requests: mpsc::Sender<Pending>,
    /// Handshakes, oldest first.
    half_open: VecDeque<HalfOpen>,
    limits: Limits,
    handshakes: JoinSet<()>,
}

impl Socket {
    /// Takes a connection. None for one that is gone already, or was refused at once. Cancel-safe.
    async fn accept(&self, gate: &Gate) -> io::Result<Option<Arrival>> {
        match self {
            Self::Unix(socket) => {
                let (stream, _) = socket.accept().await?;
                gate.counters.connections.increment();
                let Ok(peer) = PeerCredentials::of(&stream) else {
                    gate.counters.gone.increment();
                    return Ok(None);
                };
                let verdict = gate.verdict(&peer);
                if verdict == Verdict::NotAllowed {
                    // At once, so that strangers never take the room of those who may.
                    let why = Rejection::NotAllowed;
                    gate.reject(&mut Stream::Unix(stream), &Peer::Local(peer), &why);
                    return Ok(None);
                }
                Ok(Some(Arrival::Local { stream, peer, verdict }))
            }
            Self::Tcp { socket, tls } => {
                let (stream, address) = socket.accept().await?;
                gate.counters.connections.increment();
                if let Err(error) = keepalive::set(&stream) {
                    tracing::debug!(%address, %error, "cannot set up a connection");
                    gate.counters.gone.increment();
                    return Ok(None);
                }
                Ok(Some(Arrival::Remote { stream, address, tls: tls.clone() }))
            }
        }
    }
}

impl AcceptLoop {
    async fn run(mut self) {
        loop {
            tokio::select! {
                accepted = self.socket.accept(&self.gate) => match accepted {
                    Ok(None) => {}
                    Ok(Some(arrival)) => {
                        self.begin(arrival);
                        // The new handshake comes first: a flood of connections must not crowd
                        // out one whose request is already there.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => self.on_accept_error(&error).await,
                },
                Some(_) = self.handshakes.join_next() => {}
            }
        }
    }

    fn begin(&mut self, arrival: Arrival) {
        let address = match &arrival {
            Arrival::Local { .. } => None,
            Arrival::Remote { address, .. } => Some(network(address.ip())),
        };
        let (in_room, crowded_out) = oneshot::channel();
        self.make_room(address);
        self.half_open.push_back(HalfOpen { address, in_room });
        let (gate, requests) = (Arc::clone(&self.gate), self.requests.clone());
        self.handshakes.spawn(Handshake { arrival, gate, crowded_out, requests }.run());
    }

    fn make_room(&mut self, address: Option<IpAddr>) {
        if address.is_some() || self.half_open.len() >= self.limits.half_open.max(1) {
            self.half_open.retain(|half_open| !half_open.in_room.is_closed());
        }
        if address.is_some() {
            // Whoever has many half-open connections pays with its own.
            let same = self.half_open.iter().filter(|half_open| half_open.address == address);
            if same.count() >= self.limits.half_open_per_address.max(1) {
                let oldest = self.half_open.iter().position(|oldest| oldest.address == address);
                oldest.and_then(|index| self.half_open.remove(index));
            }
        }
        if self.half_open.len() >= self.limits.half_open.max(1) {
            self.crowd_out();
        }
    }

    /// Closes the oldest half-open connection of whoever has most of them, so that a flood from
    /// one address is paid for by that address.
    fn crowd_out(&mut self) {
        let mut counts = HashMap::new();
        for half_open in &self.half_open {
            *counts.entry(half_open.address).or_insert(0usize) += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let oldest = self.half_open.iter().position(|half_open| counts[&half_open.address] == most);
        oldest.and_then(|index| self.half_open.remove(index));
    }

    async fn on_accept_error(&mut self, error: &io::Error) {
        self.gate.counters.accept_failures.increment();
        if is_of_the_connection(error) {
            return;
        }
        self.gate.warn_of_accepting(|unlogged| {
            tracing::warn!(
                %error,
                unlogged,
                "cannot take connections, trying again; if this lasts, allow the publisher more \
                 open files (systemd: LimitNOFILE=)"
            );
        });
        self.crowd_out();
        tokio::time::sleep(ACCEPT_REST).await;
    }
}

/// Whose half-open connections are counted together: one IPv6 host commonly has a network of 64
/// bits to itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

/// Whether an error of `accept` concerns the one connection, so that the next may be tried at
/// once: over TCP, the kernel hands out errors that were waiting for it.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | HostUnreachable | Interrupted | NetworkUnreachable
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::{is_of_the_connection, network};

    #[test]
    fn addresses_that_one_host_can_have_count_together() {
        let network = |address: &str| network(address.parse().unwrap()).to_string();
        assert_eq!(network("192.0.2.7"), "192.0.2.7");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("::1"), "::1");
    }

    #[test]
    fn only_errors_of_one_connection_are_followed_by_the_next_at_once() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::BADF] {
            assert!(!is_of_the_connection(&io::Error::from(errno)), "{errno}");
        }
        assert!(is_of_the_connection(&io::Error::from(Errno::CONNABORTED)));
    }
}
