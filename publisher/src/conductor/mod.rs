//! The conductor: admits subscribers, watches over their sessions, and ends the publisher.
//!
//! It runs on a tokio runtime of one thread and owns everything that may take time: sockets,
//! descriptors, dropping of sessions. It talks to the sender through a [`CommandPort`] and reads
//! session cells through monitors; the sender never waits for it.
//!
//! ```text
//! request ─► admit ─► prepare ─► Attach ─► (sender) ─► Attached ─► descriptors to the subscriber
//!                                                                        │ lifeline
//!                    forget ◄─ Detached ◄─ (sender) ◄─ Detach ◄──────────┘ ends
//! ```

mod admission;
mod ending;
mod roster;
mod session;
mod signals;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender as StartGate;
use tapecast_control::{Listener, Pending};
use tapecast_fabric::park::Ringer;
use tapecast_fabric::shm::{ShmHost, ShmSession};
use tapecast_wire::attach::Farewell;
use tapecast_wire::{Epoch, SessionId};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::feed::{Directory, FeedEnd, FeedOutcome, StopFlag};
use crate::sender::{Command, CommandPort, Outcome, SenderProgress};

use admission::Ticket;
use roster::Roster;
pub use roster::SessionRecord;
use session::{Goodbye, SessionEvent};
pub use signals::Signals;

/// How often the conductor looks around when nothing is expected.
const TICK: Duration = Duration::from_millis(100);
/// How often it looks while the sender owes it an answer. An answer never wakes it: that would be
/// a system call of the sender.
const TICK_OWED: Duration = Duration::from_millis(1);
/// What the conductor has to know.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Sessions at once.
    pub sessions_max: usize,
    /// Whether lossless sessions are allowed.
    pub lossless: bool,
    /// A subscriber that reads nothing for so long is not waited for.
    pub stall_max: Duration,
    /// Subscribers that the source waits for.
    pub wait_for: usize,
    /// Leave when the source has ended and everything was read.
    pub exit_at_end: bool,
}

/// What the conductor works with.
#[derive(Debug)]
pub struct Conductor {
    settings: Settings,
    listener: Listener,
    host: ShmHost,
    port: CommandPort<ShmSession>,
    /// Rings the sender after a command.
    sender: Ringer,
    progress: Arc<SenderProgress>,
    directory: Arc<Directory>,
    stop: StopFlag,
    /// Holds the feed back until enough subscribers are there; `None` when it was let go.
    gate: Option<StartGate<()>>,
    roster: Roster,
    tickets: Vec<Ticket>,
    tickets_issued: u64,
    events: mpsc::UnboundedReceiver<SessionEvent>,
    to_events: mpsc::UnboundedSender<SessionEvent>,
    feed: Option<FeedEnd>,
    sender_closed: bool,
}

/// The parts that a conductor is made of.
#[derive(Debug)]
pub struct Parts {
    /// Where subscribers attach.
    pub listener: Listener,
    /// Prepares sessions.
    pub host: ShmHost,
    /// To the sender.
    pub port: CommandPort<ShmSession>,
    /// Wakes the sender.
    pub sender: Ringer,
    /// What the sender has done.
    pub progress: Arc<SenderProgress>,
    /// The instruments.
    pub directory: Arc<Directory>,
    /// Stops the feed.
    pub stop: StopFlag,
    /// Lets the feed start.
    pub gate: StartGate<()>,
}

/// What a publisher's life came to.
#[derive(Debug)]
pub struct ConductorReport {
    /// Every session there was.
    pub sessions: Vec<SessionRecord>,
    /// The end of the feed; `None` when it did not stop in time.
    pub feed: Option<FeedEnd>,
}

/// What can happen.
enum Event {
    Request(Pending),
    Session(SessionEvent),
    Signal(&'static str),
    Feed(FeedEnd),
    Tick,
}

/// Why the publisher ends.
#[derive(Clone, Debug)]
enum Reason {
    Signal(&'static str),
    EndOfSource,
    SourceFailed(String),
}

impl Reason {
    const fn farewell(&self) -> Farewell {
        match self {
            Self::Signal(_) => Farewell::Closing,
            Self::EndOfSource | Self::SourceFailed(_) => Farewell::EndOfSource,
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::Signal(name) => format!("the publisher was stopped ({name})"),
            Self::EndOfSource => "the source has ended and everything was read".to_owned(),
            Self::SourceFailed(error) => format!("the source failed: {error}"),
        }
    }
}

impl Conductor {
    /// A conductor that has not begun.
    #[must_use]
    pub fn new(settings: Settings, parts: Parts) -> Self {
        let (to_events, events) = mpsc::unbounded_channel();
        let Parts { listener, host, port, sender, progress, directory, stop, gate } = parts;
        Self {
            settings,
            listener,
            host,
            port,
            sender,
            progress,
            directory,
            stop,
            gate: Some(gate),
            roster: Roster::default(),
            tickets: Vec::new(),
            tickets_issued: 0,
            events,
            to_events,
            feed: None,
            sender_closed: false,
        }
    }

    /// Serves until a signal comes or the source's end says so, and then ends everything in order.
    pub async fn run(
        mut self,
        mut signals: Signals,
        mut feed: oneshot::Receiver<FeedEnd>,
    ) -> ConductorReport {
        self.let_feed_start();
        let reason = loop {
            let event = self.next_event(&mut signals, &mut feed).await;
            if let Some(reason) = self.apply(event) {
                break reason;
            }
        };
        signals.exit_at_once_from_now_on();
        self.end(&reason, feed).await
    }

    async fn next_event(
        &mut self,
        signals: &mut Signals,
        feed: &mut oneshot::Receiver<FeedEnd>,
    ) -> Event {
        let tick = if self.is_owed() { TICK_OWED } else { TICK };
        tokio::select! {
            pending = self.listener.accept() => Event::Request(pending),
            Some(event) = self.events.recv() => Event::Session(event),
            signal = signals.next() => Event::Signal(signal),
            Ok(end) = feed, if self.feed.is_none() => Event::Feed(end),
            () = tokio::time::sleep(tick) => Event::Tick,
        }
    }

    /// Does what an event asks for. A reason to end comes back.
    fn apply(&mut self, event: Event) -> Option<Reason> {
        match event {
            Event::Request(pending) => self.admit(pending),
            Event::Session(event) => self.on_session(event),
            Event::Signal(name) => return Some(Reason::Signal(name)),
            Event::Feed(end) => {
                let failed = self.on_feed_end(end);
                if failed.is_some() {
                    return failed;
                }
            }
            Event::Tick => self.evict_stalled(Instant::now()),
        }
        self.take_outcomes();
        let finished = self.awaits_readers() && self.has_drained(Instant::now());
        finished.then_some(Reason::EndOfSource)
    }

    /// Whether the sender has still to answer something.
    fn is_owed(&self) -> bool {
        !self.tickets.is_empty() || self.roster.any_detaching() || self.awaits_readers()
    }

    /// Whether all that is left to do is to wait for the last readers.
    const fn awaits_readers(&self) -> bool {
        self.settings.exit_at_end && self.feed.is_some()
    }

    fn let_feed_start(&mut self) {
        if self.roster.attached_count() >= self.settings.wait_for
            && let Some(gate) = self.gate.take()
        {
            // The feed can only be gone when the publisher is ending.
            let _started = gate.try_send(());
            if self.settings.wait_for > 0 {
                info!(subscribers = self.settings.wait_for, "all are there, the source starts");
            }
        }
    }

    fn on_session(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Accepted { id } => {
                if let Some(member) = self.roster.get_mut(id) {
                    member.attached = true;
                    member.log_attached();
                }
                self.let_feed_start();
            }
            SessionEvent::Ended { id, reason } => {
                if let Some(member) = self.roster.get_mut(id) {
                    member.reason = Some(reason);
                }
                self.command_detach(id);
            }
        }
    }

    fn command_detach(&mut self, id: SessionId) {
        // When the port is full the next tick tries again: the member stays marked.
        if self.port.submit(Command::Detach { id }).is_ok() {
            if let Some(member) = self.roster.get_mut(id) {
                member.detaching = true;
            }
            self.sender.ring();
        }
    }

    fn take_outcomes(&mut self) {
        while let Some(outcome) = self.port.poll() {
            match outcome {
                Outcome::Attached { ticket, result } => self.on_attached(ticket, result),
                Outcome::Detached { id, session } => {
                    drop(session);
                    self.roster.remove(id);
                }
                Outcome::Closed => self.sender_closed = true,
            }
        }
        let unsubmitted: Vec<SessionId> = self.roster.undetached().collect();
        unsubmitted.into_iter().for_each(|id| self.command_detach(id));
    }

    fn on_feed_end(&mut self, end: FeedEnd) -> Option<Reason> {
        let failed = match &end.outcome {
            FeedOutcome::Failed(error) => Some(Reason::SourceFailed(error.clone())),
            FeedOutcome::Ended | FeedOutcome::Stopped => None,
        };
        info!(
            messages = end.source.messages,
            snapshots = end.channel_sequence().0,
            "the source has ended"
        );
        self.feed = Some(end);
        failed
    }

    /// Starts the session of a request that the sender has given a place.
    fn open_session(&mut self, id: SessionId, ticket: Ticket) {
        let Ticket { pending, descriptors, instruments, mut member, .. } = ticket;
        let (goodbye, farewell) = oneshot::channel();
        member.goodbye = Some(goodbye);
        self.roster.add(id, member);
        let accepted = tapecast_wire::attach::Accepted {
            session_id: id,
            epoch: self.settings.epoch,
            instruments,
        };
        let events = self.to_events.clone();
        tokio::spawn(session::serve(pending, accepted, descriptors, farewell, events));
    }

    /// Takes out lossless sessions that stop the sender and read nothing.
    fn evict_stalled(&mut self, now: Instant) {
        if !self.progress.load().gated {
            return;
        }
        let stall_max = self.settings.stall_max;
        for member in self.roster.members_mut().filter(|member| member.is_lossless()) {
            if member.has_stalled(now, stall_max)
                && let Some(goodbye) = member.goodbye.take()
            {
                let seconds = stall_max.as_secs();
                let text = format!(
                    "evicted: a lossless subscriber that reads nothing for {seconds} s stops all \
                     others; read faster, or attach with the conflating policy"
                );
                warn!(name = member.name, pid = member.pid(), "{text}");
                let _told = goodbye.send(Goodbye { farewell: Farewell::Evicted, text });
            }
        }
    }

    /// Whether everything is published and read by all who read.
    fn has_drained(&mut self, now: Instant) -> bool {
        let stall_max = self.settings.stall_max;
        self.progress.load().drained
            && self.tickets.is_empty()
            && self
                .roster
                .members_mut()
                .all(|member| member.lag_bytes() == 0 || member.has_stalled(now, stall_max))
    }
}
