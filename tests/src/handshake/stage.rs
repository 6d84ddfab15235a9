//! The operations, and what has to hold after each of them.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::slice::Iter;
use std::task::Poll;

use tapecast_control::{AnswerError, AnyListener, Ending, Lifeline, ListenerStats, Pending};
use tapecast_wire::attach::{Accepted, FRAME_HEAD_BYTES, Farewell, Message, Refusal};
use tapecast_wire::{Epoch, Nanos, SessionId};

use super::authority::{CLIENT, Who};
use super::peer::{Peer, Reading, answer, frame};
use super::{CONNECTIONS_MAX, Door, Place, causes};

/// Looks at the sockets that have to do for what is already there. TLS begins on another thread,
/// which may have to wait for a processor.
const TURNS_MAX: u32 = 2_000_000;
/// Turns after which a processor is left to others.
const TURNS_ALONE: u32 = 200;
/// Pings that are answered however fast they come.
const PINGS_MAX: usize = 32;
/// How an honest subscriber comes: with the good certificate where there is TLS, without elsewhere.
const HONEST: usize = 0x0c;
const WITH_OFFER: usize = 0x80;

/// A request, and whose it is where that can be told.
struct Waiting {
    pending: Pending,
    asker: Option<usize>,
    is_ready: bool,
}

/// A request whose subscriber was told where to connect to.
struct Opening {
    asker: Option<usize>,
    ready: Pin<Box<dyn Future<Output = Result<Pending, AnswerError>>>>,
}

pub(super) struct Stage<'a> {
    listener: &'a mut AnyListener,
    door: Door<'a>,
    before: ListenerStats,
    peers: Vec<Peer>,
    waiting: VecDeque<Waiting>,
    opening: Vec<Opening>,
    sessions: Vec<(usize, Lifeline)>,
}

/// Polls once.
async fn now<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

impl<'a> Stage<'a> {
    pub(super) fn new(listener: &'a mut AnyListener, door: Door<'a>) -> Self {
        let before = listener.stats();
        Self {
            listener,
            door,
            before,
            peers: Vec::new(),
            waiting: VecDeque::new(),
            opening: Vec::new(),
            sessions: Vec::new(),
        }
    }

    pub(super) async fn perform(&mut self, operation: u8, script: &mut Iter<'_, u8>) {
        let mut next = || usize::from(script.next().copied().unwrap_or(0));
        match operation % 18 {
            0 => self.connect(next()),
            1 => self.with_peer(next(), |index, peer| peer.say(&peer.request_frame(index))),
            2 => {
                let (who, len) = (next(), next());
                self.with_peer(who, |index, peer| peer.say_piece(index, len));
            }
            which @ (3 | 4) => {
                let (who, len) = (next(), next());
                let bytes: Vec<u8> = script.by_ref().take(len).copied().collect();
                self.with_peer(who, |_, peer| match which {
                    3 => peer.say(&bytes),
                    _ => peer.spoil(&bytes),
                });
            }
            5 => self.with_peer(next(), |_, peer| peer.say(&frame(&Message::Detach))),
            6 => self.with_peer(next(), |_, peer| peer.say(&frame(&Message::Ready))),
            7 => {
                let (who, politely) = (next(), next() & 1 == 0);
                self.with_peer(who, |_, peer| peer.close_half(politely));
            }
            8 => self.with_peer(next(), |_, peer| peer.leave()),
            9 => self.with_peer(next(), |_, peer| peer.reset()),
            10 => self.with_peer(next(), |_, peer| peer.listen()),
            11 => {
                let (who, len) = (next(), next());
                self.with_peer(who, |_, peer| peer.hold(len));
            }
            12 | 13 => self.turn().await,
            14 => self.answer(next()).await,
            15 => self.part(next()),
            16 => {
                let (who, time) = (next(), Nanos(next() as u64));
                self.with_peer(who, |_, peer| peer.say(&frame(&Message::Ping(time))));
            }
            _ => self.give_up(next()),
        }
    }

    fn with_peer(&mut self, who: usize, act: impl FnOnce(usize, &mut Peer)) {
        if !self.peers.is_empty() {
            let index = who % self.peers.len();
            act(index, &mut self.peers[index]);
        }
    }

    fn connect(&mut self, kind: usize) {
        if self.peers.len() < CONNECTIONS_MAX {
            self.peers.push(Peer::connect(self.door, kind));
        }
    }

    /// Lets everyone take a step, and looks at what has become of it.
    async fn turn(&mut self) {
        tokio::task::yield_now().await;
        if self.door.is_secure {
            // Their handshakes need no operations of their own.
            self.peers.iter_mut().for_each(Peer::listen);
        }
        if let Some(pending) = now(self.listener.accept()).await {
            let asker = self.check_request(&pending);
            self.waiting.push_back(Waiting { pending, asker, is_ready: false });
        }
        for mut opening in std::mem::take(&mut self.opening) {
            match now(opening.ready.as_mut()).await {
                None => self.opening.push(opening),
                Some(opened) => self.on_opened(opening.asker, opened),
            }
        }
        for (index, mut session) in std::mem::take(&mut self.sessions) {
            match now(session.closed()).await {
                None => self.sessions.push((index, session)),
                Some(ending) => self.check_ending(index, ending),
            }
        }
    }

    /// A request is one that its peer has made, whole and once. Hands out which peer that is, where
    /// it can be told: over a Unix socket, several may have made the same.
    fn check_request(&mut self, pending: &Pending) -> Option<usize> {
        let asked = frame(&Message::Attach(pending.request().clone()));
        let whose = pending.peer();
        let mut askers =
            self.peers.iter_mut().enumerate().filter(|(_, peer)| {
                peer.address == whose.address() && peer.said().starts_with(&asked)
            });
        let (index, peer) = askers
            .by_ref()
            .find(|(_, peer)| peer.asked.is_none())
            .expect("nobody has made this request");
        peer.on_asked(pending.request());
        if peer.read == Reading::Inside {
            assert_eq!(peer.who, Who::Good, "it has no certificate for this");
            assert_eq!(whose.client().expect("a name").names(), [CLIENT]);
        } else {
            assert_eq!(whose.client(), None);
        }
        let is_told = self.peers.iter().filter(|peer| peer.said().starts_with(&asked)).count() == 1;
        (whose.address().is_some() || is_told).then_some(index)
    }

    /// What a subscriber did after it was told where to connect to.
    fn on_opened(&mut self, asker: Option<usize>, opened: Result<Pending, AnswerError>) {
        let Some(index) = asker else {
            if let Ok(pending) = opened {
                self.waiting.push_back(Waiting { pending, asker, is_ready: true });
            }
            return;
        };
        let peer = &self.peers[index];
        let rest = peer.said_after_request();
        let (ready, detach) = (frame(&Message::Ready), frame(&Message::Detach));
        let good = match &opened {
            Ok(_) => rest.starts_with(&ready),
            Err(AnswerError::Gone { .. }) => {
                rest.starts_with(&detach) || peer.will_say_no_more || peer.is_spoiled
            }
            Err(AnswerError::Misbehaved { .. }) => [&ready, &detach]
                .iter()
                .all(|good| !rest.starts_with(good) && !good.starts_with(rest)),
            Err(_) => false,
        };
        assert!(good, "{:?} after {rest:?}", opened.err());
        if let Ok(pending) = opened {
            self.waiting.push_back(Waiting { pending, asker, is_ready: true });
        }
    }

    fn check_ending(&self, index: usize, ending: Ending) {
        let peer = &self.peers[index];
        let detach = frame(&Message::Detach);
        let (pings, rest) = after_pings(peer.said_in_session());
        let is_begun = detach.starts_with(rest) || is_begun_ping(rest);
        let good = match ending {
            Ending::Detached => rest.starts_with(&detach),
            Ending::Gone => peer.will_say_no_more || peer.is_spoiled,
            // Or it has asked for the time too often.
            Ending::Misbehaved => pings > PINGS_MAX || !rest.starts_with(&detach) && !is_begun,
        };
        assert!(good, "{ending:?} after {rest:?}");
    }

    async fn answer(&mut self, how: usize) {
        let Some(Waiting { pending, asker, is_ready }) = self.waiting.pop_front() else { return };
        match how % 3 {
            0 if pending.request().rdma.is_some() && !is_ready => {
                let ready = Box::pin(async move { pending.connect(&answer()).await });
                self.opening.push(Opening { asker, ready });
            }
            0 => self.grant(pending, asker).await,
            1 => drop(pending.refuse(Refusal::Full, "no room").await),
            _ => drop(pending),
        }
    }

    async fn grant(&mut self, pending: Pending, asker: Option<usize>) {
        let accepted =
            Accepted { session_id: SessionId(7), epoch: Epoch(1), instruments: Vec::new() };
        if let Some(index) = asker {
            self.peers[index].is_granted = true;
        }
        // It fails where the peer has gone.
        if let Ok(session) = pending.accept(&accepted, &[]).await
            && let Some(index) = asker
        {
            self.sessions.push((index, session));
        }
    }

    fn part(&mut self, which: usize) {
        if !self.sessions.is_empty() {
            let (_, session) = self.sessions.swap_remove(which % self.sessions.len());
            if which & 0x80 == 0 {
                session.farewell(Farewell::Closing, "the market has closed");
            }
        }
    }

    /// The publisher waits no longer for one that is to connect.
    fn give_up(&mut self, which: usize) {
        if !self.opening.is_empty() {
            drop(self.opening.swap_remove(which % self.opening.len()));
        }
    }

    /// Everyone goes: each connection is counted once, by a cause that it can have had, and who
    /// comes then is served.
    pub(super) async fn settle(&mut self) {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            peer.listen();
            causes::check_heard(index, peer);
            peer.leave();
        }
        let mut turns = 0;
        while !self.is_accounted_for() || !self.sessions.is_empty() || !self.opening.is_empty() {
            self.turn_patiently(&mut turns).await;
            self.waiting.clear();
        }
        self.waiting.clear();
        let stats = causes::since(&self.listener.stats(), &self.before);
        let asked = self.peers.iter().filter(|peer| peer.asked.is_some()).count();
        assert_eq!(stats.requests, asked as u64, "handed on and not counted, or the other way");
        causes::check(&self.peers, &stats);
        self.serve(&mut turns).await;
    }

    async fn turn_patiently(&mut self, turns: &mut u32) {
        *turns += 1;
        assert!(*turns < TURNS_MAX, "nothing moves: {:?}", self.listener.stats());
        if *turns > TURNS_ALONE {
            std::thread::yield_now();
        }
        self.turn().await;
    }

    fn is_accounted_for(&self) -> bool {
        let stats = causes::since(&self.listener.stats(), &self.before);
        assert_eq!((stats.timed_out, stats.not_allowed, stats.accept_failures), (0, 0, 0));
        let ended = causes::ended(&stats);
        assert!(ended <= stats.connections, "counted twice: {stats:?}");
        stats.connections == self.peers.len() as u64 && ended == stats.connections
    }

    /// An honest subscriber comes, is granted a session, and leaves in good order.
    async fn serve(&mut self, turns: &mut u32) {
        self.peers.clear();
        let offer = if matches!(self.door.place, Place::Tcp(_)) { WITH_OFFER } else { 0 };
        self.connect(HONEST | offer);
        self.with_peer(0, |index, peer| peer.say(&peer.request_frame(index)));
        while self.waiting.is_empty() {
            self.turn_patiently(turns).await;
        }
        self.answer(0).await;
        if offer != 0 {
            self.peers[0].say(&frame(&Message::Ready));
            while self.waiting.is_empty() {
                self.turn_patiently(turns).await;
            }
            self.answer(0).await;
        }
        assert_eq!(self.sessions.len(), 1, "an honest subscriber is not served");
        self.peers[0].say(&frame(&Message::Detach));
        while !self.sessions.is_empty() {
            self.turn_patiently(turns).await;
        }
        self.peers[0].listen();
        let granted = frame(&Message::Accepted(Accepted {
            session_id: SessionId(7),
            epoch: Epoch(1),
            instruments: Vec::new(),
        }));
        assert!(self.peers[0].heard.ends_with(&granted), "it was not told");
    }
}

/// What a session's peer has said after its pings, and how many those were.
fn after_pings(mut said: &[u8]) -> (usize, &[u8]) {
    let ping = frame(&Message::Ping(Nanos(0)));
    let head = &ping[..FRAME_HEAD_BYTES];
    let mut pings = 0;
    while said.len() >= ping.len() && said.starts_with(head) {
        said = &said[ping.len()..];
        pings += 1;
    }
    (pings, said)
}

/// Whether this may still become a ping.
fn is_begun_ping(said: &[u8]) -> bool {
    let ping = frame(&Message::Ping(Nanos(0)));
    let known = said.len().min(FRAME_HEAD_BYTES);
    said.len() < ping.len() && ping[..known] == said[..known]
}
