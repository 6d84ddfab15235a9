//! The subscription that an application holds.

mod choosing;
mod delivering;
mod figures;
mod life;
mod readiness;

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use tapecast_control::client::ClientLifeline;
use tapecast_fabric::{Receiver, WaitStrategy};
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos, SessionId};

use crate::attachment::Attachment;
use crate::builder::SubscriberBuilder;
use crate::clock;
use crate::directory::Directory;
use crate::endpoint::AnyEndpoint;
use crate::error::{ConnectError, PollError, WaitError};
use crate::keeper::Keeper;
use crate::owned::OwnedRecord;
use crate::pulse::Pulse;
use crate::snapshot::Snapshot;
use crate::state::{EndReason, Event, FeedState, StaleCause, Standing, State};
use crate::statistics::{Ledger, Recorder};
use readiness::Descriptor;

/// What `wait` came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// A poll will find something, or something has happened since the last wait: see
    /// [`Subscriber::state`] and [`Subscriber::events`].
    Ready,
    /// Nothing came for as long as was asked.
    TimedOut,
    /// The subscription has ended, and everything was delivered.
    Ended,
}

/// What the present session can still give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is alive.
    Attached,
    /// It is over, but what it has in the ring is still to be delivered.
    Draining,
    /// Nothing.
    Dry,
}

/// A subscription: receives books, keeps the account, attaches again by itself.
///
/// Made by [`Subscriber::builder`]. Belongs to one thread at a time; may be moved between threads.
/// A second, sleeping thread keeps it attached. Dropping it detaches in good order.
#[derive(Debug)]
pub struct Subscriber {
    choices: SubscriberBuilder,
    receiver: Receiver<AnyEndpoint>,
    phase: Phase,
    session: SessionId,
    /// Number of the session in this subscription, from 0.
    generation: u64,
    directory: Directory,
    /// Symbols that were dropped, for the sessions that follow.
    dropped: Vec<String>,
    /// Wanted symbols that the publisher's directory does not have yet.
    unresolved: Vec<String>,
    recorder: Recorder,
    ledger: Ledger,
    standing: Standing,
    pulse: Pulse,
    keeper: Keeper,
    /// A session that follows when the present one is dry.
    next: Option<(Box<Attachment>, u32)>,
    /// Why it will be over when the present session is dry.
    ending: Option<EndReason>,
    source_ended: bool,
    /// Events told when the last wait ended, so that the next one does not sleep over one.
    noticed: u64,
    descriptor: Option<Descriptor>,
    /// Records of instruments that appeared while a poll was running.
    deferred: Vec<(OwnedRecord, Option<Nanos>)>,
    busy_polls: u32,
    /// Of a session that is over: its lag, and polls in a row that found nothing to deliver.
    drained: (u64, u32),
    reconnects: u64,
    laps_before: u64,
    started: Instant,
}

impl Subscriber {
    /// Starts to choose.
    pub fn builder() -> SubscriberBuilder {
        SubscriberBuilder::new()
    }

    pub(crate) fn connect(choices: SubscriberBuilder) -> Result<Self, ConnectError> {
        let (attachment, lifeline) = Attachment::open_patiently(&choices)?;
        Self::start(choices, attachment, lifeline)
    }

    fn start(
        choices: SubscriberBuilder,
        attachment: Attachment,
        lifeline: ClientLifeline,
    ) -> Result<Self, ConnectError> {
        let keeper = Keeper::start(choices.clone(), Some(lifeline), attachment.endpoint.life())?;
        Self::assemble(choices, attachment, keeper)
    }

    /// A subscription to a publisher that is not there: it attaches by itself when there is one.
    pub(crate) fn absent(choices: SubscriberBuilder) -> Result<Self, ConnectError> {
        let keeper = Keeper::start(choices.clone(), None, None)?;
        let mut subscriber = Self::assemble(choices, Attachment::none(), keeper)?;
        subscriber.phase = Phase::Dry;
        subscriber.standing.stale(StaleCause::Absent, clock::now());
        Ok(subscriber)
    }

    fn assemble(
        choices: SubscriberBuilder,
        attachment: Attachment,
        keeper: Keeper,
    ) -> Result<Self, ConnectError> {
        let interest = attachment.interest(&choices);
        let session = attachment.accepted.session_id;
        let generation = attachment.generation;
        let receiver = Receiver::new(attachment.endpoint, &interest);
        let capacity = receiver.account().capacity();
        let mut subscriber = Self {
            recorder: Recorder::new(choices.latency, choices.skew_samples, capacity),
            pulse: Pulse::new(choices.heartbeat_timeout, receiver.heartbeat()),
            dropped: Vec::new(),
            unresolved: choices.symbols.clone(),
            choices,
            receiver,
            phase: Phase::Attached,
            session,
            generation,
            directory: Directory::default(),
            ledger: Ledger::default(),
            standing: Standing::live(),
            keeper,
            next: None,
            ending: None,
            source_ended: false,
            noticed: 0,
            descriptor: None,
            deferred: Vec::new(),
            busy_polls: 0,
            drained: (0, 0),
            reconnects: 0,
            laps_before: 0,
            started: clock::now(),
        };
        subscriber.read_directory();
        subscriber.look_at_feed();
        if subscriber.choices.wait == WaitStrategy::Fd {
            subscriber.open_descriptor()?;
        }
        Ok(subscriber)
    }

    /// Hands snapshots to `on_snapshot`, oldest first, and returns how many; at most
    /// [`SubscriberBuilder::poll_limit`]. Zero when there is nothing at present, also while books
    /// are stale: [`Subscriber::state`] tells.
    ///
    /// Never blocks, connects or allocates; while all is well it makes no system call (with
    /// [`WaitStrategy::Fd`], none while there is something to deliver).
    ///
    /// # Errors
    /// [`PollError::Ended`] when the subscription was found over, and everything delivered, by the
    /// poll before; that one returned 0, and [`Subscriber::wait`] says [`Wakeup::Ended`].
    /// [`PollError::Session`] when the session met bytes that it cannot use, or its RDMA connection
    /// broke; with reconnection on, go on polling.
    pub fn poll<F: FnMut(&Snapshot<'_>)>(
        &mut self,
        mut on_snapshot: F,
    ) -> Result<usize, PollError> {
        if let Some(mail) = self.keeper.mailbox().take() {
            self.on_mail(mail);
        }
        self.disarm();
        let mut count = self.deliver(&mut on_snapshot)?;
        if count > 0 {
            self.after_busy_poll();
        } else if self.after_idle_poll()? {
            count = self.deliver(&mut on_snapshot)?;
        }
        self.arm(count);
        Ok(count)
    }

    /// Waits until a poll would find something or the state has changed, at most for `timeout`. How
    /// is the choice of [`SubscriberBuilder::wait`].
    ///
    /// # Errors
    /// [`WaitError`] when the system refuses to wait.
    pub fn wait(&mut self, timeout: Duration) -> Result<Wakeup, WaitError> {
        let deadline = clock::now().checked_add(timeout);
        loop {
            if let Some(wakeup) = self.glance() {
                return Ok(wakeup);
            }
            let now = clock::now();
            let rest = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
            if rest.is_zero() {
                return Ok(Wakeup::TimedOut);
            }
            self.sleep(rest)?;
            self.look_after();
        }
    }

    /// What there is to wake up for at once.
    fn glance(&mut self) -> Option<Wakeup> {
        if self.standing.ended().is_some() {
            return Some(Wakeup::Ended);
        }
        if self.noticed != self.standing.told() {
            self.noticed = self.standing.told();
            return Some(Wakeup::Ready);
        }
        self.has_work().then_some(Wakeup::Ready)
    }

    /// A descriptor that is readable whenever a poll would find something or the state has changed.
    /// It stays the same over all sessions, so register it once, level-triggered, and poll when it
    /// is readable. `None` unless [`WaitStrategy::Fd`] was chosen.
    #[must_use]
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// How the subscription stands. Changes only in [`Subscriber::poll`] and [`Subscriber::wait`].
    #[must_use]
    pub const fn state(&self) -> &State {
        self.standing.state()
    }

    /// How the publisher's feed is, as the publisher said last: whether messages come to it. While
    /// it is silent the state is live, but books may be old. Changes only in [`Subscriber::poll`]
    /// and [`Subscriber::wait`], which then has something to wake up for; about a tenth of a second
    /// after the feed did.
    #[must_use]
    pub const fn feed(&self) -> FeedState {
        self.standing.feed()
    }

    /// What happened since the last call, oldest first: publisher gone, attached again, farewells.
    /// Of events that nobody asks for, the newest 64 are kept.
    pub fn events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.standing.drain()
    }

    /// Whether the publisher said that its source has ended and nothing has followed since.
    #[must_use]
    pub const fn source_ended(&self) -> bool {
        self.source_ended
    }

    /// Whether the last poll left nothing behind in the present session.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.phase == Phase::Dry || !self.receiver.is_ready()
    }

    /// Whether what was delivered of `instrument` may be out of date: books are stale, or this
    /// session has not delivered it yet. This is about the publisher; whether it hears its feed is
    /// [`Subscriber::feed`].
    #[must_use]
    pub fn is_stale(&self, instrument: InstrumentId) -> bool {
        let seen = self.receiver.instrument_totals(instrument);
        !self.standing.is_live() || seen.is_none_or(|totals| totals.delivered == 0)
    }

    /// A directory entry of the present session.
    #[must_use]
    pub fn instrument(&self, id: InstrumentId) -> Option<&Instrument> {
        self.directory.get(id).map(|entry| &**entry)
    }

    /// The directory entry with this symbol, in the present session.
    #[must_use]
    pub fn find(&self, symbol: &str) -> Option<&Instrument> {
        self.directory.find(symbol).map(|entry| &**entry)
    }

    /// The publisher's directory as far as it is known, in the order of ids.
    pub fn instruments(&self) -> impl ExactSizeIterator<Item = &Instrument> {
        self.directory.all().iter().map(|entry| &**entry)
    }

    /// Present or last life of the publisher.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.receiver.epoch()
    }

    /// Events ever told: changes when something happens.
    pub(crate) const fn told(&self) -> u64 {
        self.standing.told()
    }

    /// Whether books are current.
    pub(crate) const fn is_live(&self) -> bool {
        self.standing.is_live()
    }

    /// The choices that it was made with.
    pub(crate) const fn choices(&self) -> &SubscriberBuilder {
        &self.choices
    }

    /// Instruments that its directory has room for.
    pub(crate) const fn capacity(&self) -> usize {
        self.receiver.account().capacity()
    }

    /// Present or last session.
    #[must_use]
    pub const fn session_id(&self) -> SessionId {
        self.session
    }
}
