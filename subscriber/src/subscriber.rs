//! The subscription that an application holds.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use tapecast_control::client::ClientLifeline;
use tapecast_fabric::shm::ShmEndpoint;
use tapecast_fabric::{Receiver, WaitStrategy};
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos, SessionId};

use crate::attachment::Attachment;
use crate::backoff::Reconnect;
use crate::builder::SubscriberBuilder;
use crate::clock;
use crate::directory::{Directory, nameless};
use crate::error::{ConnectError, PollError, WaitError};
use crate::keeper::Keeper;
use crate::mailbox::Mail;
use crate::owned::OwnedRecord;
use crate::pulse::{Pulse, Sign};
use crate::snapshot::Snapshot;
use crate::state::{EndReason, Event, Standing, StaleCause, State};
use crate::statistics::{InstrumentAccount, Ledger, Recorder, Statistics, Summary};
use crate::wait_set::{WaitSet, wait_readable};

/// Longest sleep in the fabric before looking after the publisher's health.
const WAIT_SLICE: Duration = Duration::from_millis(100);
/// A poll that never finds the ring empty looks after things every so many polls.
const BUSY_POLLS_MAX: u32 = 256;

/// What `wait` came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// A poll will find something, or the state has changed.
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
    receiver: Receiver<ShmEndpoint>,
    phase: Phase,
    session: SessionId,
    directory: Directory,
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
    descriptor: Option<Descriptor>,
    /// Records of instruments that appeared while a poll was running.
    deferred: Vec<(OwnedRecord, Option<Nanos>)>,
    busy_polls: u32,
    reconnects: u64,
    laps_before: u64,
    started: Instant,
}

/// State of the descriptor that applications wait on.
#[derive(Debug)]
struct Descriptor {
    set: WaitSet,
    /// The publisher will ring when it has something.
    armed: bool,
    /// Readable because a poll left something behind.
    nudged: bool,
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
        let keeper = Keeper::start(choices.clone(), lifeline)?;
        let interest = attachment.interest(&choices);
        let session = attachment.accepted.session_id;
        let receiver = Receiver::new(attachment.endpoint, &interest);
        let capacity = receiver.account().capacity();
        let mut subscriber = Self {
            recorder: Recorder::new(choices.latency, choices.skew_samples, capacity),
            pulse: Pulse::new(choices.heartbeat_timeout, receiver.heartbeat()),
            unresolved: choices.symbols.clone(),
            choices,
            receiver,
            phase: Phase::Attached,
            session,
            directory: Directory::default(),
            ledger: Ledger::default(),
            standing: Standing::live(),
            keeper,
            next: None,
            ending: None,
            source_ended: false,
            descriptor: None,
            deferred: Vec::new(),
            busy_polls: 0,
            reconnects: 0,
            laps_before: 0,
            started: clock::now(),
        };
        subscriber.read_directory();
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
    /// [`PollError::Ended`] when the subscription is over and everything was delivered.
    /// [`PollError::Session`] when the session met bytes that it cannot use; with reconnection on,
    /// go on polling.
    pub fn poll<F: FnMut(&Snapshot<'_>)>(&mut self, mut on_snapshot: F) -> Result<usize, PollError> {
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
            if self.standing.ended().is_some() {
                return Ok(Wakeup::Ended);
            }
            if self.has_work() {
                return Ok(Wakeup::Ready);
            }
            let rest = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(clock::now()));
            if rest.is_zero() {
                return Ok(Wakeup::TimedOut);
            }
            self.sleep(rest)?;
            if self.look_after() {
                return Ok(Wakeup::Ready);
            }
        }
    }

    /// A descriptor that is readable whenever a poll would find something or the state has changed.
    /// It stays the same over all sessions, so register it once, level-triggered, and poll when it
    /// is readable. `None` unless [`WaitStrategy::Fd`] was chosen.
    #[must_use]
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(|descriptor| descriptor.set.as_fd())
    }

    /// How the subscription stands. Changes only in [`Subscriber::poll`] and [`Subscriber::wait`].
    #[must_use]
    pub const fn state(&self) -> &State {
        self.standing.state()
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
    /// session has not delivered it yet.
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

    /// Present or last session.
    #[must_use]
    pub const fn session_id(&self) -> SessionId {
        self.session
    }

    /// Figures over all sessions. Walks the latency histogram, some tens of microseconds: not for
    /// every snapshot.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let totals = self.receiver.totals();
        let lag_bytes = match self.phase {
            Phase::Dry => 0,
            Phase::Attached | Phase::Draining => self.receiver.endpoint().lag_bytes(),
        };
        let age = clock::unix_now().since(self.recorder.last_publish()).get();
        let mut figures = Statistics {
            published: totals.published,
            delivered: totals.delivered,
            conflated: totals.conflated,
            lost: totals.lost,
            initial_images: totals.initial_images,
            laps: self.laps_before + self.receiver.laps(),
            reconnects: self.reconnects,
            lag_bytes,
            lag_ns: if lag_bytes == 0 || totals.delivered == 0 { 0 } else { age },
            ..Statistics::default()
        };
        self.recorder.fill(&mut figures);
        figures
    }

    /// What became of each instrument's snapshots over all sessions, sorted by symbol. Allocates.
    #[must_use]
    pub fn accounts(&self) -> Vec<InstrumentAccount> {
        self.ledger.accounts(&self.receiver, &self.directory)
    }

    /// The account up to now, for a file or for comparison with other subscribers.
    pub fn summary(&mut self) -> Summary {
        let instruments = self.accounts();
        let statistics = self.statistics();
        let epoch = self.receiver.epoch();
        let adds_up = |published, delivered: u64, conflated: u64| {
            delivered.checked_add(conflated) == Some(published)
        };
        let balanced = instruments.iter().all(|i| adds_up(i.published, i.delivered, i.conflated))
            && adds_up(statistics.published, statistics.delivered, statistics.conflated);
        Summary {
            name: self.choices.name.clone(),
            session_id: self.session.get(),
            epoch: epoch.get(),
            state: self.standing.state().to_string(),
            source_ended: self.source_ended,
            elapsed_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            balanced,
            statistics,
            latency: self.recorder.latency(),
            skew: self.recorder.take_skew(epoch),
            instruments,
        }
    }

    fn deliver<F: FnMut(&Snapshot<'_>)>(&mut self, on_snapshot: &mut F) -> Result<usize, PollError> {
        if self.phase == Phase::Dry {
            return Ok(0);
        }
        self.read_directory();
        let Self { receiver, directory, recorder, deferred, .. } = self;
        let polled = receiver.poll(self.choices.poll_limit, |delivery| {
            let record = delivery.snapshot();
            let received = recorder.on_delivery(&record, clock::unix_now);
            match directory.get(record.instrument_id()) {
                Some(entry) if deferred.is_empty() => {
                    on_snapshot(&Snapshot::new(record, entry, received));
                }
                _ => deferred.push((OwnedRecord::of(&record), received)),
            }
        });
        if !self.deferred.is_empty() {
            self.deliver_deferred(on_snapshot);
        }
        polled.map_err(|error| self.give_up(error))
    }

    /// An instrument appeared while the poll was running. Its entry was in the directory before its
    /// first record was in the ring, so now it can be read; order is kept.
    #[cold]
    fn deliver_deferred<F: FnMut(&Snapshot<'_>)>(&mut self, on_snapshot: &mut F) {
        self.read_directory();
        for (record, received) in self.deferred.drain(..) {
            let record = record.view();
            let id = record.instrument_id();
            match self.directory.get(id) {
                Some(entry) => on_snapshot(&Snapshot::new(record, entry, received)),
                None => on_snapshot(&Snapshot::new(record, &Arc::new(nameless(id)), received)),
            }
        }
    }

    /// Reads directory entries that are new, and begins to watch wanted symbols among them.
    fn read_directory(&mut self) {
        if self.directory.sync(&self.receiver) && !self.unresolved.is_empty() {
            let Self { unresolved, directory, receiver, .. } = self;
            unresolved.retain(|symbol| match directory.find(symbol) {
                Some(entry) => {
                    receiver.watch(entry.instrument_id);
                    false
                }
                None => true,
            });
        }
    }

    fn after_busy_poll(&mut self) {
        self.busy_polls += 1;
        if self.busy_polls >= BUSY_POLLS_MAX || self.standing.is_silent() {
            self.busy_polls = 0;
            self.look_after();
        }
    }

    /// Returns whether another session has begun, so that there may be something to deliver.
    fn after_idle_poll(&mut self) -> Result<bool, PollError> {
        self.busy_polls = 0;
        match self.phase {
            Phase::Attached => {
                self.look_after();
                return Ok(false);
            }
            Phase::Draining if self.receiver.is_ready() => return Ok(false),
            Phase::Draining | Phase::Dry => self.phase = Phase::Dry,
        }
        if let Some((attachment, attempts)) = self.next.take() {
            self.begin_session(*attachment, attempts);
            return Ok(true);
        }
        if let Some(reason) = self.ending.take() {
            self.standing.end(reason);
        }
        match self.standing.ended() {
            Some(reason) => Err(PollError::Ended(reason.clone())),
            None => Ok(false),
        }
    }

    #[cold]
    fn on_mail(&mut self, mail: Mail) {
        if let Some((cause, why)) = mail.lost {
            self.on_loss(cause, why);
        }
        if let Some(why) = mail.failure {
            self.standing.tell(Event::AttachFailed(why));
        }
        if mail.attached.is_some() {
            self.next = mail.attached;
            if self.phase == Phase::Attached {
                self.phase = Phase::Draining;
            }
        }
        self.ending = mail.ended.or(self.ending.take());
    }

    fn on_loss(&mut self, cause: StaleCause, why: String) {
        if cause != StaleCause::Crashed {
            self.standing.tell(Event::Farewell(cause, why));
        }
        self.source_ended = cause == StaleCause::EndOfSource;
        self.standing.stale(cause, clock::now());
        // A session that waits to be picked up is the one that was lost.
        self.next = None;
        if self.phase == Phase::Attached {
            self.phase = Phase::Draining;
        }
    }

    /// The session is of no further use.
    #[cold]
    fn give_up(&mut self, error: tapecast_fabric::PollError) -> PollError {
        self.phase = Phase::Dry;
        self.standing.stale(StaleCause::Unusable, clock::now());
        if self.choices.reconnect == Reconnect::Never {
            self.keeper.stop();
            self.ending = Some(EndReason::Unusable(error.to_string()));
        } else if self.next.is_none() {
            self.keeper.renew();
        }
        PollError::Session(error)
    }

    /// Goes on with another session. Totals go on; ids, directory and sequences are new.
    #[cold]
    fn begin_session(&mut self, attachment: Attachment, attempts: u32) {
        self.ledger.close(&self.receiver, &self.directory);
        self.laps_before += self.receiver.laps();
        let ended = self.receiver.epoch();
        let interest = attachment.interest(&self.choices);
        let account = self.receiver.account().clone();
        self.session = attachment.accepted.session_id;
        self.receiver = Receiver::resume(attachment.endpoint, account, &interest);
        self.recorder.begin_session(ended, self.receiver.account().capacity());
        self.pulse = Pulse::new(self.choices.heartbeat_timeout, self.receiver.heartbeat());
        self.directory.clear();
        self.unresolved.clone_from(&self.choices.symbols);
        self.read_directory();
        self.phase = Phase::Attached;
        self.source_ended = false;
        self.reconnects += 1;
        let epoch = self.receiver.epoch();
        self.standing.revive(Event::Reattached { epoch, session: self.session, attempts });
        if let Err(error) = self.watch_session() {
            // Without its wake descriptor the session would be served by the timer alone.
            self.standing.tell(Event::AttachFailed(error.to_string()));
        }
    }

    /// Looks whether the publisher lives and tells it that this subscriber does, now and then.
    /// Returns whether the state has changed.
    fn look_after(&mut self) -> bool {
        if self.phase != Phase::Attached {
            return false;
        }
        let Self { pulse, receiver, standing, recorder, .. } = self;
        let now = clock::coarse_now();
        if !pulse.is_due(now) {
            return false;
        }
        if pulse.report_is_due(now) {
            receiver.report(clock::unix_now(), recorder.report());
        }
        match pulse.on_heartbeat(receiver.heartbeat(), now) {
            Sign::Alive if standing.is_silent() => standing.revive(Event::Heard),
            Sign::Silent if standing.is_live() => {
                standing.stale(StaleCause::Silent, clock::now());
            }
            Sign::Alive | Sign::Silent => return false,
        }
        true
    }

    fn has_work(&self) -> bool {
        let session_has = match self.phase {
            Phase::Attached => self.receiver.is_ready(),
            // The poll that finds nothing moves on.
            Phase::Draining => true,
            Phase::Dry => self.next.is_some() || self.ending.is_some(),
        };
        session_has || self.keeper.mailbox().is_raised()
    }

    /// Sleeps for `rest` at most, and may wake early.
    fn sleep(&mut self, rest: Duration) -> Result<(), WaitError> {
        if self.descriptor.is_some() {
            self.arm(0);
            let Some(descriptor) = &self.descriptor else { return Ok(()) };
            return descriptor.set.wait(rest).map_err(Into::into);
        }
        if self.phase == Phase::Attached {
            self.receiver.wait(rest.min(WAIT_SLICE))?;
            return Ok(());
        }
        // Nothing can come from the ring; only the keeper has news.
        wait_readable(self.keeper.news().as_fd(), rest)?;
        self.keeper.quiet();
        Ok(())
    }

    fn open_descriptor(&mut self) -> Result<(), ConnectError> {
        let action = "wait on descriptors";
        let period = self.choices.heartbeat_timeout / 2;
        let set = WaitSet::new(self.keeper.news().as_fd(), period)
            .map_err(|source| ConnectError::Resources { action, source })?;
        self.descriptor = Some(Descriptor { set, armed: false, nudged: false });
        self.watch_session().map_err(|source| ConnectError::Resources { action, source })?;
        // The initial images are there to be polled.
        self.arm(usize::MAX);
        Ok(())
    }

    fn watch_session(&mut self) -> std::io::Result<()> {
        let Some(descriptor) = &mut self.descriptor else { return Ok(()) };
        descriptor.armed = false;
        descriptor.set.watch(self.receiver.endpoint().as_fd())
    }

    /// A poll begins: the publisher need not ring.
    fn disarm(&mut self) {
        if let Some(descriptor) = &mut self.descriptor
            && descriptor.armed
        {
            descriptor.armed = false;
            self.receiver.endpoint_mut().disarm();
        }
    }

    /// A poll has delivered `count`: makes the descriptor readable exactly when another would find
    /// something.
    fn arm(&mut self, count: usize) {
        let Some(descriptor) = &mut self.descriptor else { return };
        let emptied = count < self.choices.poll_limit
            && (self.phase == Phase::Dry
                || descriptor.armed
                || (self.phase == Phase::Attached && self.receiver.endpoint_mut().arm()));
        if !emptied {
            if !descriptor.nudged {
                descriptor.nudged = true;
                self.keeper.nudge();
            }
            return;
        }
        descriptor.armed = self.phase == Phase::Attached;
        descriptor.nudged = false;
        descriptor.set.quiet();
        self.keeper.quiet();
        // Mail that came before the news were silenced must not be slept over.
        if self.keeper.mailbox().is_raised() || self.next.is_some() || self.ending.is_some() {
            descriptor.nudged = true;
            self.keeper.nudge();
        }
    }
}
