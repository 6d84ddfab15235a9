//! The publisher's socket.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Mode;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use crate::access::{Access, Verdict};
use crate::bind_error::BindError;
use crate::claim::Claim;
use crate::gate::{Gate, ListenerStats, Rejection};
use crate::handshake::Handshake;
use crate::peer::PeerCredentials;
use crate::pending::Pending;

/// Requests that wait to be taken by [`Listener::accept`]. More wait in their handshakes.
const REQUEST_QUEUE: usize = 16;

/// Rest after a connection could not be taken for want of descriptors or memory. The connection
/// stays in the kernel's queue; without the rest, trying again would be a spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Where the socket is to be.
    pub path: PathBuf,
    /// Mode of the socket's file; none for the narrowest that does not contradict `access`: 0600
    /// where only the publisher's own user (and root) may attach, 0660 where the socket has a
    /// `group`, and 0666 otherwise.
    ///
    /// 0666 gives nobody a session: each connection is checked against `access` before a byte of
    /// it is read. A fixed 0660 would shut out an admitted user who is not in the socket's group,
    /// with a bare "permission denied" from the kernel.
    pub mode: Option<u32>,
    /// Group of the socket's file, by name or number; none for that of the directory or process.
    pub group: Option<String>,
    /// Who may attach.
    pub access: Access,
    /// Time for a request to arrive, and for an answer to be taken. Default 5 s.
    pub handshake_timeout: Duration,
    /// Connections that may be without a complete request at once; beyond it, the oldest is closed
    /// in favour of the newest. Default 64.
    pub half_open_max: usize,
}

impl ListenerOptions {
    /// The defaults.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, access: Access) -> Self {
        Self {
            path: path.into(),
            mode: None,
            group: None,
            access,
            handshake_timeout: Duration::from_secs(5),
            half_open_max: 64,
        }
    }

    fn mode(&self) -> Result<Mode, BindError> {
        let narrowest = match (&self.group, self.access.admits_others()) {
            (Some(_), _) => 0o660,
            (None, true) => 0o666,
            (None, false) => 0o600,
        };
        let mode = self.mode.unwrap_or(narrowest);
        if mode & !0o777 != 0 {
            return Err(BindError::Mode { mode });
        }
        Ok(Mode::from_raw_mode(mode))
    }
}

/// The publisher's socket: takes connections in the background, and hands out the requests of
/// those who may ask. Dropping it closes it.
#[derive(Debug)]
pub struct Listener {
    requests: mpsc::Receiver<Pending>,
    gate: Arc<Gate>,
    accepting: AbortHandle,
    claim: Claim,
}

impl Listener {
    /// Begins to listen. Takes over the socket of a publisher that was killed; refuses while one
    /// lives.
    ///
    /// # Errors
    /// [`BindError`], whose text says what to do.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn bind(options: ListenerOptions) -> Result<Self, BindError> {
        let mode = options.mode()?;
        let mut claim = Claim::take(&options.path)?;
        let socket = claim.listen(mode, options.group.as_deref())?;
        let socket = UnixListener::from_std(StdUnixListener::from(socket)).map_err(|source| {
            BindError::Io { action: "watch", path: options.path.clone(), source }
        })?;
        let gate = Arc::new(Gate::new(options.access, options.handshake_timeout));
        let (sender, requests) = mpsc::channel(REQUEST_QUEUE);
        let accept_loop = AcceptLoop {
            socket,
            gate: Arc::clone(&gate),
            requests: sender,
            half_open: VecDeque::new(),
            half_open_max: options.half_open_max.max(1),
            handshakes: JoinSet::new(),
        };
        let accepting = tokio::spawn(accept_loop.run()).abort_handle();
        Ok(Self { requests, gate, accepting, claim })
    }

    /// Waits for the next request. Cancel-safe.
    ///
    /// # Panics
    /// When the accepting task has ended, which only a defect in it can bring about.
    pub async fn accept(&mut self) -> Pending {
        self.requests.recv().await.expect("the accepting task runs as long as its listener")
    }

    /// Changes who may attach, for connections from now on. Sessions stay.
    pub fn set_access(&self, access: Access) {
        self.gate.set_access(access);
    }

    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.claim.path()
    }

    /// Counts since it was bound.
    #[must_use]
    pub fn stats(&self) -> ListenerStats {
        self.gate.stats()
    }

    /// Takes no more connections, tells those whose requests wait that the publisher is closing,
    /// and removes the socket. Lifelines stay.
    pub fn close(self) {}
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.abort();
        self.requests.close();
        while let Ok(pending) = self.requests.try_recv() {
            pending.refuse_closing();
        }
    }
}

/// Takes connections and begins their handshakes. Owns these, so that they end with it.
struct AcceptLoop {
    socket: UnixListener,
    gate: Arc<Gate>,
    requests: mpsc::Sender<Pending>,
    /// Handshakes, oldest first; dropping one's sender crowds it out.
    half_open: VecDeque<oneshot::Sender<()>>,
    half_open_max: usize,
    handshakes: JoinSet<()>,
}

impl AcceptLoop {
    async fn run(mut self) {
        loop {
            tokio::select! {
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) => {
                        self.begin(stream);
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

    fn begin(&mut self, stream: UnixStream) {
        self.gate.counters.connections.increment();
        let Ok(peer) = PeerCredentials::of(&stream) else {
            return;
        };
        let verdict = self.gate.verdict(&peer);
        if verdict == Verdict::NotAllowed {
            // At once, so that strangers never take the room of those who may.
            self.gate.reject(&stream, peer, &Rejection::NotAllowed);
            return;
        }
        let (in_room, crowded_out) = oneshot::channel();
        self.make_room();
        self.half_open.push_back(in_room);
        let (gate, requests) = (Arc::clone(&self.gate), self.requests.clone());
        let handshake = Handshake { stream, peer, verdict, gate, crowded_out, requests };
        self.handshakes.spawn(handshake.run());
    }

    fn make_room(&mut self) {
        if self.half_open.len() >= self.half_open_max {
            self.half_open.retain(|in_room| !in_room.is_closed());
        }
        if self.half_open.len() >= self.half_open_max {
            self.half_open.pop_front();
        }
    }

    async fn on_accept_error(&mut self, error: &io::Error) {
        self.gate.counters.accept_failures.increment();
        if is_of_the_connection(error) {
            return;
        }
        self.gate.warn(|unlogged| {
            tracing::warn!(
                %error,
                unlogged,
                "cannot take connections, trying again; if this lasts, allow the publisher more \
                 open files (systemd: LimitNOFILE=)"
            );
        });
        self.half_open.pop_front();
        tokio::time::sleep(ACCEPT_REST).await;
    }
}

/// Whether an error of `accept` concerns the one connection, so that the next may be tried at once.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::{ListenerOptions, is_of_the_connection};
    use crate::{Access, BindError};

    fn mode(access: Access, group: Option<&str>, mode: Option<u32>) -> Result<u32, BindError> {
        let options = ListenerOptions {
            group: group.map(str::to_owned),
            mode,
            ..ListenerOptions::new("p.sock", access)
        };
        options.mode().map(|mode| mode.as_raw_mode())
    }

    #[test]
    fn the_mode_is_the_narrowest_that_does_not_contradict_the_access() {
        let others = || Access::resolve(&["4000000001".into()], &[]).unwrap();
        assert_eq!(mode(Access::own(), None, None).unwrap(), 0o600);
        assert_eq!(mode(others(), None, None).unwrap(), 0o666);
        assert_eq!(mode(others(), Some("feed"), None).unwrap(), 0o660);
        assert_eq!(mode(others(), Some("feed"), Some(0o600)).unwrap(), 0o600);
    }

    #[test]
    fn what_is_not_a_mode_is_refused() {
        let error = mode(Access::own(), None, Some(0o1660)).unwrap_err();
        assert!(error.to_string().contains("0o1660"), "{error}");
    }

    #[test]
    fn only_errors_of_one_connection_are_followed_by_the_next_at_once() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::BADF] {
            assert!(!is_of_the_connection(&io::Error::from(errno)), "{errno}");
        }
        assert!(is_of_the_connection(&io::Error::from(Errno::CONNABORTED)));
    }
}
