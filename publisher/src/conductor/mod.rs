//! The conductor: admits subscribers, watches over their sessions, and ends the publisher.
//!
//! It runs on a tokio runtime of one thread and owns everything that may take time: sockets,
//! descriptors, dropping of sessions. It talks to the sender through a [`CommandPort`] and reads
//! session cells through monitors; the sender never waits for it.
//!
//! ```text
//! request ─► admit ─► prepare ─► Attach ─► (sender) ─► Attached ─► descriptors to the subscriber
//!                        │          ▲                                    │ lifeline
//!          RDMA: Connect └─► Ready ─┘                                    │
//!                    forget ◄─ Detached ◄─ (sender) ◄─ Detach ◄──────────┘ ends
//! ```
//!
//! It is the same for every fabric: a [`Host`] prepares sessions and says what the subscriber needs
//! for its end of them.

mod admission;
mod ending;
mod fan_out;
mod figures;
mod reload;
mod roster;
mod session;
mod signals;
mod silence;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender as StartGate;
use serde::Serialize;
use tapecast_control::{AnyListener, Entitlements, ListenerStats, Pending};
use tapecast_core::lag::LagLimit;
use tapecast_fabric::park::{Bell, Ringer};
use tapecast_fabric::pool::Pool;
use tapecast_fabric::{Host, Monitor};
use tapecast_wire::attach::Farewell;
use tapecast_wire::{Epoch, Nanos, SessionId};
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use crate::feed::{Directory, FeedEnd, FeedOutcome, FeedPulse, SilentSince, StopFlag};
use crate::sender::{Command, CommandPort, Outcome, SenderProgress};
use crate::service::ServiceManager;

pub use admission::Refusals;
use admission::{Grant, Ticket};
pub use fan_out::FanOutFigures;
use fan_out::FanOutSampling;
use figures::Question;
pub use figures::{Asker, Figures, Questions, SessionFigures, SessionTotals, questions};
pub use reload::{Fresh, ReadAgain, ReloadRecord, ReloadStatus, Reloads};
use roster::Roster;
pub use roster::SessionRecord;
use session::SessionEvent;
pub use signals::{Notice, Signals};
use silence::Silence;
pub use silence::SilenceRecord;
pub use watch::Evictions;

/// How often the conductor looks around when nothing is expected.
const TICK: Duration = Duration::from_millis(100);
/// How often it looks while the sender owes it an answer. An answer never wakes it: that would be
/// a system call of the sender.
const TICK_OWED: Duration = Duration::from_millis(1);

/// What the conductor has to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Sessions at once.
    pub sessions_max: usize,
    /// Whether lossless sessions are allowed.
    pub lossless: bool,
    /// From when on sessions lag.
    pub lag: LagSettings,
    /// A subscriber that reads nothing for so long is not waited for.
    pub stall_max: Duration,
    /// Subscribers that the source waits for.
    pub wait_for: usize,
    /// Leave when the source has ended and everything was read.
    pub exit_at_end: bool,
    /// A feed that is connected and quiet for so long is silent; zero for never.
    pub silent_after: Duration,
    /// Figures of a session are told for so long after it has left.
    pub departed: Duration,
}

/// From when on a session lags.
#[derive(Clone, Copy, Debug, Default)]
pub struct LagSettings {
    /// Lagging: counted, logged, shown.
    pub soft: LagLimit,
    /// Too far behind: a session that asked for it is disconnected. The most that one may wish for.
    pub hard: LagLimit,
}

/// What the conductor works with.
pub struct Conductor<H: Host> {
    settings: Settings,
    listener: AnyListener,
    host: H,
    entitlements: Entitlements,
    port: CommandPort<H::Session>,
    /// Rings the sender after a command.
    sender: Ringer,
    progress: Arc<SenderProgress>,
    directory: Arc<Directory>,
    pool: Pool,
    stop: StopFlag,
    watch: FeedWatch,
    silence: Silence,
    /// Holds the feed back until enough subscribers are there; `None` when it was let go.
    gate: Option<StartGate<()>>,
    roster: Roster<H::Monitor>,
    tickets: Vec<Ticket<H>>,
    tickets_issued: u64,
    refusals: Refusals,
    evictions: Evictions,
    fan_out: FanOutSampling,
    questions: Questions,
    /// When lags were looked at last, and the time that has passed for them.
    lags_seen: Instant,
    lag_time: Nanos,
    /// When the sessions were looked at last.
    looked: Instant,
    events: mpsc::UnboundedReceiver<SessionEvent>,
    to_events: mpsc::UnboundedSender<SessionEvent>,
    feed: Option<FeedEnd>,
    sender_closed: bool,
    service: ServiceManager,
    /// Reads the configuration again, where there is one.
    reloads: Option<Reloads>,
}

/// The parts that a conductor is made of.
#[derive(Debug)]
pub struct Parts<H: Host> {
    /// Where subscribers attach.
    pub listener: AnyListener,
    /// Prepares sessions.
    pub host: H,
    /// What each client may have.
    pub entitlements: Entitlements,
    /// To the sender.
    pub port: CommandPort<H::Session>,
    /// Wakes the sender.
    pub sender: Ringer,
    /// What the sender has done.
    pub progress: Arc<SenderProgress>,
    /// The instruments.
    pub directory: Arc<Directory>,
    /// Where snapshots are on their way to the fabric.
    pub pool: Pool,
    /// Stops the feed.
    pub stop: StopFlag,
    /// Whether the feed is heard.
    pub feed: FeedWatch,
    /// Lets the feed start.
    pub gate: StartGate<()>,
    /// Who wants to know its figures.
    pub questions: Questions,
}

/// What the conductor sees of the feed, and where it says what it makes of that.
#[derive(Debug)]
pub struct FeedWatch {
    /// The feed's signs of life.
    pub pulse: FeedPulse,
    /// What the sender shows the subscribers.
    pub silent_since: SilentSince,
    /// Rings the sender after a change, and the waker, so that sleeping subscribers see it.
    pub bell: Bell,
}

/// What a publisher's life came to.
#[derive(Debug)]
pub struct ConductorReport {
    /// Every session there was.
    pub sessions: Vec<SessionRecord>,
    /// The end of the feed; `None` when it did not stop in time.
    pub feed: Option<FeedEnd>,
    /// Spells in which the feed was connected and silent.
    pub silence: SilenceRecord,
    /// Requests that were not granted.
    pub refusals: Refusals,
    /// Sessions that were taken out, by reason.
    pub evictions: Evictions,
    /// The page pool when everything was published, and before the sessions were ended.
    pub pool: PoolRecord,
    /// What became of connections to the control plane.
    pub listener: ListenerStats,
    /// Why the fabric can be used no longer, when that was the end.
    pub fabric_failure: Option<String>,
}

/// The page pool at rest: pages that are not free then are still referred to by work requests that
/// have not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolRecord {
    /// Pages in all.
    pub pages: usize,
    /// Pages that are free.
    pub free_pages: usize,
}

/// What can happen.
enum Event {
    Request(Pending),
    Session(SessionEvent),
    Signal(Notice),
    Feed(FeedEnd),
    Question(Question),
    Read(Result<Box<Fresh>, String>),
    Tick,
}

/// Why the publisher ends.
#[derive(Clone, Debug)]
enum Reason {
    Signal(&'static str),
    EndOfSource,
    SourceFailed(String),
    FabricFailed(String),
}

impl Reason {
    const fn farewell(&self) -> Farewell {
        match self {
            Self::Signal(_) | Self::FabricFailed(_) => Farewell::Closing,
            Self::EndOfSource | Self::SourceFailed(_) => Farewell::EndOfSource,
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::Signal(name) => format!("the publisher was stopped ({name})"),
            Self::EndOfSource => "the source has ended and everything was read".to_owned(),
            Self::SourceFailed(error) => format!("the source failed: {error}"),
            Self::FabricFailed(error) => format!("the fabric failed: {error}"),
        }
    }

    /// The fabric's failure, if that is it.
    fn into_fabric_failure(self) -> Option<String> {
        match self {
            Self::FabricFailed(error) => Some(error),
            Self::Signal(_) | Self::EndOfSource | Self::SourceFailed(_) => None,
        }
    }
}

impl<H: Host> fmt::Debug for Conductor<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conductor")
            .field("settings", &self.settings)
            .field("listener", &self.listener)
            .field("sessions", &self.roster.count())
            .field("tickets", &self.tickets.len())
            .finish_non_exhaustive()
    }
}

impl<H: Host> Conductor<H> {
    /// A conductor that has not begun.
    #[must_use]
    pub fn new(settings: Settings, parts: Parts<H>) -> Self {
        let (to_events, events) = mpsc::unbounded_channel();
        let Parts {
            listener,
            host,
            entitlements,
            port,
            sender,
            progress,
            directory,
            pool,
            stop,
            feed,
            gate,
            questions,
        } = parts;
        Self {
            settings,
            listener,
            host,
            entitlements,
            port,
            sender,
            progress,
            directory,
            pool,
            stop,
            watch: feed,
            silence: Silence::new(settings.silent_after),
            gate: Some(gate),
            roster: Roster::new(),
            tickets: Vec::new(),
            tickets_issued: 0,
            refusals: Refusals::default(),
            evictions: Evictions::default(),
            fan_out: FanOutSampling::default(),
            questions,
            lags_seen: Instant::now(),
            lag_time: Nanos(0),
            looked: Instant::now(),
            events,
            to_events,
            feed: None,
            sender_closed: false,
            service: ServiceManager::default(),
            reloads: None,
        }
    }

    /// The same, which tells `service` how it is.
    #[must_use]
    pub fn with_service(self, service: ServiceManager) -> Self {
        Self { service, ..self }
    }

    /// The same, which reads its configuration again on SIGHUP.
    #[must_use]
    pub fn with_reloads(self, reloads: Reloads) -> Self {
        Self { reloads: Some(reloads), ..self }
    }

    /// Serves until a signal comes or the source's end says so, and then ends everything in order.
    pub async fn run(
        mut self,
        mut signals: Signals,
        mut feed: oneshot::Receiver<FeedEnd>,
    ) -> ConductorReport {
        self.let_feed_start();
        self.tell_service(Instant::now());
        let reason = loop {
            let event = self.next_event(&mut signals, &mut feed).await;
            if let Some(reason) = self.apply(event) {
                break reason;
            }
        };
        signals.exit_at_once_from_now_on();
        self.end(reason, feed).await
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
            question = self.questions.next() => Event::Question(question),
            Ok(end) = feed, if self.feed.is_none() => Event::Feed(end),
            read = reload::read_again(&mut self.reloads) => Event::Read(read),
            () = tokio::time::sleep(tick) => Event::Tick,
        }
    }

    /// Does what an event asks for. A reason to end comes back.
    fn apply(&mut self, event: Event) -> Option<Reason> {
        match event {
            Event::Request(pending) => self.admit(pending),
            Event::Session(event) => self.on_session(event),
            Event::Signal(Notice::End(name)) => return Some(Reason::Signal(name)),
            Event::Signal(Notice::Reload) => self.reload(),
            Event::Read(read) => self.on_read(read),
            Event::Feed(end) => {
                let failed = self.on_feed_end(end);
                if failed.is_some() {
                    return failed;
                }
            }
            Event::Question(question) => self.answer(question),
            Event::Tick => {}
        }
        self.look_around(Instant::now());
        if let Some(error) = self.host.failure() {
            return Some(Reason::FabricFailed(error));
        }
        self.take_outcomes();
        let finished = self.awaits_readers() && self.has_drained(Instant::now());
        finished.then_some(Reason::EndOfSource)
    }

    /// Whether the sender has still to answer something.
    fn is_owed(&self) -> bool {
        let owed = self.tickets.iter().any(Ticket::is_owed);
        owed || self.roster.any_detaching() || self.awaits_readers()
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
            SessionEvent::Connected { ticket, result } => self.on_connected(ticket, result),
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
                    // It is gone: nothing of it shall wait for what cannot come any more.
                    member.monitor.quench();
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
        self.end_silence();
        failed
    }

    /// Starts the session of a request that the sender has given a place.
    fn open_session(&mut self, id: SessionId, pending: Pending, grant: Grant<H>) {
        let Grant { descriptors, instruments, mut member } = grant;
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
}

#[cfg(test)]
mod tests;
