//! Operations on the publisher's socket in any order: connections that come, speak in pieces, say
//! the wrong thing, close a half or go, while the publisher takes, grants, refuses and forgets.
//! Nobody gets a session without a whole request of its own, each end has its cause, every
//! connection is counted once, and afterwards an honest subscriber is served.
#![no_main]

use std::collections::VecDeque;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::slice::Iter;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tapecast_control::{Access, Ending, Lifeline, Listener, ListenerOptions, Pending};
use tapecast_wire::attach::{Accepted, AttachRequest, Farewell, Message, Refusal};
use tapecast_wire::{Epoch, SessionId};
use tokio::runtime::Builder;

/// Below what the listener's queue of requests holds, so that none waits for room unread.
const CONNECTIONS_MAX: usize = 16;
const HALF_OPEN_MAX: usize = 4;
/// So many looks at the sockets have to do for what is already there.
const TURNS_MAX: usize = 100_000;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    // Every tick looks at the sockets, so that a turn is one step of everyone.
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().event_interval(1).build().expect("a runtime");
    runtime.block_on(async {
        let options = ListenerOptions {
            half_open_max: HALF_OPEN_MAX,
            // No operation waits, so that no verdict depends on how fast this machine is.
            handshake_timeout: Duration::from_secs(24 * 3600),
            ..ListenerOptions::new(&socket, Access::own())
        };
        let mut stage = Stage {
            listener: Listener::bind(options).expect("a socket"),
            peers: Vec::new(),
            waiting: VecDeque::new(),
            sessions: Vec::new(),
        };
        let mut script = bytes.iter();
        while let Some(operation) = script.next() {
            stage.perform(*operation, &mut script, &socket).await;
        }
        stage.settle(&socket).await;
    });
});

/// The other end of a connection, and what it has said.
struct Peer {
    /// None when it has closed.
    stream: Option<UnixStream>,
    said: Vec<u8>,
    will_say_no_more: bool,
    has_asked: bool,
}

impl Peer {
    fn say(&mut self, bytes: &[u8]) {
        let Some(stream) = &mut self.stream else { return };
        // An error means that the publisher has closed it, or that it does not read.
        if let Ok(len) = stream.write(bytes) {
            self.said.extend_from_slice(&bytes[..len]);
        }
    }

    fn leave(&mut self) {
        self.stream = None;
        self.will_say_no_more = true;
    }
}

struct Stage {
    listener: Listener,
    peers: Vec<Peer>,
    waiting: VecDeque<Pending>,
    sessions: Vec<(usize, Lifeline)>,
}

fn request(index: usize) -> AttachRequest {
    AttachRequest { name: index.to_string(), ..AttachRequest::default() }
}

fn frame(message: &Message) -> Vec<u8> {
    message.encode().expect("a message of ours")
}

fn frame_of_request(index: usize) -> Vec<u8> {
    frame(&Message::Attach(request(index)))
}

impl Stage {
    async fn perform(&mut self, operation: u8, script: &mut Iter<'_, u8>, socket: &Path) {
        let mut next = || usize::from(script.next().copied().unwrap_or(0));
        match operation % 11 {
            0 => self.connect(socket),
            1 => self.with_peer(next(), |index, peer| peer.say(&frame_of_request(index))),
            2 => {
                let (who, len) = (next(), next());
                self.with_peer(who, |index, peer| {
                    let request = frame_of_request(index);
                    let rest = request.get(peer.said.len()..).unwrap_or(&[]);
                    peer.say(&rest[..len.min(rest.len())]);
                });
            }
            3 => {
                let (who, len) = (next(), next());
                let said: Vec<u8> = script.by_ref().take(len).copied().collect();
                self.with_peer(who, |_, peer| peer.say(&said));
            }
            4 => self.with_peer(next(), |_, peer| peer.say(&frame(&Message::Detach))),
            5 => self.with_peer(next(), |_, peer| peer.say(&frame(&Message::Ready))),
            6 => self.with_peer(next(), |_, peer| {
                if let Some(stream) = &peer.stream {
                    let _ = stream.shutdown(Shutdown::Write);
                    peer.will_say_no_more = true;
                }
            }),
            7 => self.with_peer(next(), |_, peer| peer.leave()),
            8 => self.turn().await,
            9 => self.answer(next()).await,
            _ => self.part(next()),
        }
    }

    fn with_peer(&mut self, who: usize, act: impl FnOnce(usize, &mut Peer)) {
        if !self.peers.is_empty() {
            let index = who % self.peers.len();
            act(index, &mut self.peers[index]);
        }
    }

    fn connect(&mut self, socket: &Path) {
        if self.peers.len() < CONNECTIONS_MAX {
            let stream = UnixStream::connect(socket).expect("the publisher listens");
            stream.set_nonblocking(true).expect("a socket of ours");
            let said = Vec::new();
            let stream = Some(stream);
            self.peers.push(Peer { stream, said, will_say_no_more: false, has_asked: false });
        }
    }

    /// Lets everyone take a step, and looks at what has become of it.
    async fn turn(&mut self) {
        let request = tokio::select! {
            biased;
            pending = self.listener.accept() => Some(pending),
            () = tokio::task::yield_now() => None,
        };
        if let Some(pending) = request {
            self.check(&pending);
            self.waiting.push_back(pending);
        }
        let mut going_on = Vec::new();
        for (index, mut session) in std::mem::take(&mut self.sessions) {
            let ending = tokio::select! {
                biased;
                ending = session.closed() => Some(ending),
                () = tokio::task::yield_now() => None,
            };
            match ending {
                Some(ending) => self.check_ending(index, ending),
                None => going_on.push((index, session)),
            }
        }
        self.sessions = going_on;
    }

    /// A request is one that its peer has made, whole and once.
    fn check(&mut self, pending: &Pending) {
        // Bytes of the script may be a whole request with any name: then they were said by someone.
        let asked = frame(&Message::Attach(pending.request().clone()));
        let asker =
            self.peers.iter_mut().find(|peer| !peer.has_asked && peer.said.starts_with(&asked));
        asker.expect("nobody has made this request").has_asked = true;
    }

    fn check_ending(&self, index: usize, ending: Ending) {
        let peer = &self.peers[index];
        let detach = frame(&Message::Detach);
        let rest = peer.said.strip_prefix(&*frame_of_request(index)).expect("it has a session");
        let good = match ending {
            Ending::Detached => rest.starts_with(&detach),
            Ending::Gone => peer.will_say_no_more,
            Ending::Misbehaved => !rest.starts_with(&detach) && !detach.starts_with(rest),
        };
        assert!(good, "{ending:?} after {rest:?}");
    }

    async fn answer(&mut self, how: usize) {
        let Some(pending) = self.waiting.pop_front() else { return };
        let asked = pending.request().clone();
        match how % 3 {
            0 => {
                let accepted =
                    Accepted { session_id: SessionId(7), epoch: Epoch(1), instruments: Vec::new() };
                // It fails where the peer has gone.
                if let Ok(session) = pending.accept(&accepted, &[]).await
                    && let Some(index) = self.index_of(&asked)
                {
                    self.sessions.push((index, session));
                }
            }
            1 => drop(pending.refuse(Refusal::Full, "no room").await),
            _ => drop(pending),
        }
    }

    /// Whose request it is, unless the script's own bytes made it in another's name.
    fn index_of(&self, asked: &AttachRequest) -> Option<usize> {
        let index = asked.name.parse().ok()?;
        let frame = frame_of_request(index);
        let mut askers =
            self.peers.iter().enumerate().filter(|(_, peer)| peer.said.starts_with(&frame));
        (askers.next()?.0 == index && askers.next().is_none()).then_some(index)
    }

    fn part(&mut self, which: usize) {
        if !self.sessions.is_empty() {
            let (_, session) = self.sessions.swap_remove(which % self.sessions.len());
            session.farewell(Farewell::Closing, "the market has closed");
        }
    }

    /// Everyone goes: each connection is counted once, and who comes then is served.
    async fn settle(&mut self, socket: &Path) {
        self.peers.iter_mut().for_each(Peer::leave);
        let mut turns = 0;
        while !self.is_accounted_for() || !self.sessions.is_empty() {
            self.turn().await;
            self.waiting.clear();
            turns += 1;
            assert!(turns < TURNS_MAX, "unaccounted for: {:?}", self.listener.stats());
        }
        self.peers.clear();
        self.connect(socket);
        self.peers[0].say(&frame_of_request(0));
        while self.waiting.is_empty() {
            self.turn().await;
            turns += 1;
            assert!(turns < 2 * TURNS_MAX, "an honest subscriber is not served");
        }
    }

    fn is_accounted_for(&self) -> bool {
        let stats = self.listener.stats();
        assert_eq!((stats.timed_out, stats.not_allowed, stats.accept_failures), (0, 0, 0));
        let ended = stats.requests + stats.malformed + stats.crowded_out + stats.gone;
        assert!(ended <= stats.connections, "counted twice: {stats:?}");
        stats.connections == self.peers.len() as u64 && ended == stats.connections
    }
}
