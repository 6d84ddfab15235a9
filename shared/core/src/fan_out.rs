//! Who gets which snapshot, and when: the publisher's side of every fabric that has one ring for
//! each session.
//!
//! The fan-out decides and counts; the fabric moves bytes. A turn of the sender is:
//!
//! ```text
//! publish*   for each session, beginning with the next in turn: credit? stage : mark dirty
//! flush      close work requests, one doorbell for each session that has any
//! on_retired, on_credit, on_beat      what completed, what the session cells say
//! pump       send what waits (directory, initial image, longest dirty) as credit allows; flush
//! ```
//!
//! # Invariants
//! - A lossless session never misses a snapshot: `publish` refuses, and then nothing has happened.
//! - For each session and instrument: published = sent + conflated + pending.
//! - An instrument's directory entry goes out before its first snapshot, and the initial image
//!   before anything published after the attach: the first `initial_images` snapshots of a session
//!   are exactly the image.
//! - A session that is evicted takes nothing more, gates nobody and delays nobody.
//! - A session that asked to be disconnected is evicted by the publish for which something would
//!   have been left out, and never conflated once it had caught up.

use tapecast_wire::limits::MAX_SUBSCRIBERS;
use tapecast_wire::{InstrumentId, Nanos, Position, Sequence, SessionId};

use crate::credit::{Liar, Placement};
use crate::planted::{Planted, is_planted};
use crate::session::{Due, Eviction, Issue, Latest, Outcome, SentTotals, Session};

/// What the fan-out must know about a snapshot that is published.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Its instrument; has a directory entry.
    pub instrument: InstrumentId,
    /// Its number among the instrument's, higher than the one before.
    pub sequence: Sequence,
    /// Its length.
    pub record_bytes: usize,
}

/// Where the bytes of a staged record are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the page of the snapshot that is being published.
    Published,
    /// The newest snapshot of this instrument.
    Latest(InstrumentId),
    /// The directory entry of this instrument.
    Directory(InstrumentId),
}

/// One record to write into one session's ring.
#[derive(Clone, Copy, Debug)]
pub struct Staging {
    /// The session.
    pub session: SessionId,
    /// Where the bytes are.
    pub source: Source,
    /// Where they go.
    pub placement: Placement,
}

/// Whether the fabric could stage a record from the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// Yes.
    Done,
    /// It has no memory for it now; nothing was staged, try again in the next turn.
    NoMemory,
}

/// A lossless session has no room: nothing happened, try again when it gave credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lossless session {session} has no room: publish again after the next turn")]
pub struct Full {
    /// The first session without room.
    pub session: SessionId,
}

/// A session has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its id; free again after detach.
    pub session: SessionId,
    /// Snapshots that it is sent before anything else: one for each wanted instrument that has one.
    pub initial_images: u64,
}

/// A session that could not be attached, handed back.
#[derive(Debug)]
pub enum AttachError {
    /// All places are taken.
    Full(Box<Session>),
    /// It was prepared for another number of instruments.
    Capacity(Box<Session>),
}

/// Sessions as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mask(u64);

const _: () = assert!(MAX_SUBSCRIBERS == u64::BITS as usize);

impl Mask {
    const fn with(self, id: SessionId) -> Self {
        Self(self.0 | 1 << id.0)
    }

    const fn without(self, id: SessionId) -> Self {
        Self(self.0 & !(1 << id.0))
    }

    const fn contains(self, id: SessionId) -> bool {
        id.index() < MAX_SUBSCRIBERS && self.0 >> id.0 & 1 == 1
    }

    /// Members, beginning with `start` and wrapping around.
    fn from(self, start: u32) -> impl Iterator<Item = SessionId> {
        let mut left = self.0.rotate_right(start);
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let at = left.trailing_zeros();
            left &= left - 1;
            Some(SessionId((start + at) % u64::BITS))
        })
    }
}

/// The fan-out of one sender. See the module's documentation.
#[derive(Debug)]
pub struct FanOut {
    sessions: Box<[Option<Box<Session>>]>,
    /// Sessions that are served: attached and not evicted.
    served: Mask,
    lossless: Mask,
    /// Sessions with staged records that were not flushed.
    staged: Mask,
    latest: Box<[Latest]>,
    directory_count: u32,
    /// Instruments that have a snapshot.
    born: u64,
    /// Snapshots ever published: the ordinal of the last.
    published: u64,
    /// Session that the present batch begins with.
    start: u32,
    /// Sessions in which instruments rest.
    paced: Mask,
    /// Sessions that a publish has evicted, until somebody asks.
    fallen: Mask,
    /// The time, as it was said last.
    now: Nanos,
}

impl FanOut {
    /// A fan-out for instruments `0 .. capacity`, without sessions.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            sessions: (0..MAX_SUBSCRIBERS).map(|_| None).collect(),
            served: Mask::default(),
            lossless: Mask::default(),
            staged: Mask::default(),
            latest: vec![Latest::default(); capacity].into_boxed_slice(),
            directory_count: 0,
            born: 0,
            published: 0,
            start: 0,
            paced: Mask::default(),
            fallen: Mask::default(),
            now: Nanos(0),
        }
    }

    /// Instruments that there is room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.latest.len()
    }

    /// Sessions attached, evicted ones included.
    pub fn session_ids(&self) -> impl Iterator<Item = SessionId> {
        let taken = self.sessions.iter().enumerate().filter(|(_, session)| session.is_some());
        taken.map(|(index, _)| SessionId(index as u32))
    }

    /// A session, to look at.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id.index())?.as_deref()
    }

    /// Whether a session is attached and not evicted.
    #[must_use]
    pub const fn is_served(&self, id: SessionId) -> bool {
        self.served.contains(id)
    }

    /// Whether a session is served and something waits for its credit.
    #[must_use]
    pub fn has_backlog(&self, id: SessionId) -> bool {
        let session = self.session(id).filter(|_| self.is_served(id));
        session.is_some_and(|session| session.has_backlog(self.directory_count))
    }

    /// Counts of one instrument in one session; `None` when there is no such session or instrument.
    /// An evicted session takes nothing more, so what is published after that stays pending.
    #[must_use]
    pub fn instrument_totals(&self, id: SessionId, instrument: InstrumentId) -> Option<SentTotals> {
        let latest = self.latest.get(instrument.index())?;
        Some(self.session(id)?.instrument_totals(instrument, latest))
    }

    /// Gives a prepared session a place. It is sent the whole directory, then the newest snapshot
    /// of every instrument that it wants, then what is published from now on.
    ///
    /// # Errors
    /// [`AttachError`], which hands it back.
    pub fn attach(&mut self, mut session: Box<Session>) -> Result<Attached, AttachError> {
        if session.capacity() != self.capacity() {
            return Err(AttachError::Capacity(session));
        }
        let Some(free) = self.sessions.iter().position(Option::is_none) else {
            return Err(AttachError::Full(session));
        };
        let id = SessionId(free as u32);
        let initial_images = session.on_attach(&self.latest, self.born, self.published);
        self.served = self.served.with(id);
        if session.is_lossless() {
            self.lossless = self.lossless.with(id);
        }
        if session.is_paced() {
            self.paced = self.paced.with(id);
        }
        self.sessions[free] = Some(session);
        Ok(Attached { session: id, initial_images })
    }

    /// Takes a session out. What was staged for it and not flushed is the fabric's to forget.
    pub fn detach(&mut self, id: SessionId) -> Option<Box<Session>> {
        let session = self.sessions.get_mut(id.index())?.take()?;
        self.forget(id);
        Some(session)
    }

    /// Stops serving a session for good; it keeps its place until it is detached.
    pub fn evict(&mut self, id: SessionId, reason: Eviction) {
        if let Some(session) = self.sessions.get_mut(id.index()).and_then(Option::as_mut) {
            session.evict(reason);
            self.forget(id);
        }
    }

    fn forget(&mut self, id: SessionId) {
        self.served = self.served.without(id);
        if !is_planted(Planted::GateForgetsDeparted) {
            self.lossless = self.lossless.without(id);
        }
        self.staged = self.staged.without(id);
        self.paced = self.paced.without(id);
    }

    /// Holds a session back, or lets it go on: while it is held nothing is staged for it, whatever
    /// credit it has. What is published meanwhile waits, and is conflated or gates as usual.
    pub fn hold(&mut self, id: SessionId, held: bool) {
        if let Some(session) = self.sessions.get_mut(id.index()).and_then(Option::as_mut) {
            session.hold(held);
        }
    }

    /// A directory entry was added (ids are dense) or changed. Every session is told.
    ///
    /// # Panics
    /// When the id is beyond the capacity or leaves one out: the fabric checks that first.
    pub fn on_entry(&mut self, instrument: InstrumentId) {
        assert!(instrument.index() < self.capacity() && instrument.0 <= self.directory_count);
        if instrument.0 == self.directory_count {
            self.directory_count += 1;
            return;
        }
        for id in self.served.from(0) {
            if let Some(session) = &mut self.sessions[id.index()] {
                session.on_entry(instrument);
            }
        }
    }

    /// A session asks for the newest snapshot of an instrument. Of one more, it is sent as an
    /// initial image that stands for itself; of one that it has, it is sent again if it was sent
    /// before. Returns whether that changed anything.
    pub fn watch(&mut self, id: SessionId, instrument: InstrumentId) -> bool {
        let Some(latest) = self.latest.get(instrument.index()) else {
            return false;
        };
        let session = self.sessions[id.index()].as_mut().filter(|_| self.served.contains(id));
        session.is_some_and(|session| session.watch(instrument, latest))
    }

    /// A session asks for an instrument no more. Returns whether that changed anything.
    ///
    /// # Panics
    /// While the session is joining, in builds with debug assertions: ask
    /// [`Session::is_joining`] first.
    pub fn unwatch(&mut self, id: SessionId, instrument: InstrumentId) -> bool {
        let Some(latest) = self.latest.get(instrument.index()) else {
            return false;
        };
        let session = self.sessions[id.index()].as_mut().filter(|_| self.served.contains(id));
        session.is_some_and(|session| session.unwatch(instrument, latest))
    }

    /// The time is `now`: what has rested long enough is due.
    pub fn on_time(&mut self, now: Nanos) {
        self.now = now;
        for id in self.paced.from(0) {
            if let Some(session) = &mut self.sessions[id.index()] {
                session.wake(now);
            }
        }
    }

    /// Whether something waits for its rest to end.
    #[must_use]
    pub fn has_resting(&self) -> bool {
        let rests = |id: SessionId| self.session(id).is_some_and(Session::has_resting);
        self.paced.from(0).any(rests)
    }

    /// The channel ends: what waits for its rest to end is due, and nothing rests any more.
    pub fn stop_pacing(&mut self) {
        for id in self.paced.from(0) {
            if let Some(session) = &mut self.sessions[id.index()] {
                session.stop_pacing();
            }
        }
    }

    /// Sessions that a publish has evicted since this was asked last.
    pub fn take_fallen(&mut self) -> impl Iterator<Item = SessionId> + use<> {
        core::mem::take(&mut self.fallen).from(0)
    }

    /// Publishes one snapshot: `stage` is called for each session that has credit for it; for the
    /// others that want it, it becomes the newest of a dirty instrument.
    ///
    /// # Errors
    /// [`Full`] when a lossless session has no room. Nothing has happened then.
    ///
    /// # Panics
    /// When the instrument is beyond the directory or its sequence does not rise: a bug of the
    /// caller.
    #[inline]
    pub fn publish(&mut self, record: Record, mut stage: impl FnMut(&Staging)) -> Result<(), Full> {
        let Record { instrument, sequence, record_bytes } = record;
        assert!(instrument.0 < self.directory_count, "instrument {instrument} has no entry");
        let before = self.latest[instrument.index()];
        assert!(sequence.0 > before.sequence, "{sequence} after {}", before.sequence);
        self.check_lossless(record)?;
        let latest = self.note_latest(record, before);
        let step = sequence.0 - before.sequence;
        debug_assert!(record_bytes <= tapecast_wire::limits::PAGE_BYTES);
        for id in self.served.from(self.start) {
            let Some(session) = &mut self.sessions[id.index()] else { continue };
            let issue = Issue { instrument, latest, step };
            match session.on_publish(issue, self.directory_count, self.now) {
                Outcome::Stage(placement) => {
                    self.staged = self.staged.with(id);
                    stage(&Staging { session: id, source: Source::Published, placement });
                }
                Outcome::Overrun => self.on_overrun(id),
                Outcome::Dirty | Outcome::Unwanted => {}
            }
        }
        Ok(())
    }

    #[cold]
    fn on_overrun(&mut self, id: SessionId) {
        self.evict(id, Eviction::Overrun);
        self.fallen = self.fallen.with(id);
    }

    #[inline]
    fn check_lossless(&self, record: Record) -> Result<(), Full> {
        let Record { instrument, record_bytes, .. } = record;
        for id in self.lossless.from(0) {
            let Some(session) = &self.sessions[id.index()] else { continue };
            if !session.admits(instrument, record_bytes, self.directory_count) {
                return Err(Full { session: id });
            }
        }
        Ok(())
    }

    #[inline]
    fn note_latest(&mut self, record: Record, before: Latest) -> Latest {
        self.published += 1;
        self.born += u64::from(before.born == 0);
        let born = if before.born == 0 { self.published } else { before.born };
        let record_bytes = record.record_bytes as u16;
        let latest = Latest { sequence: record.sequence.0, record_bytes, born };
        self.latest[record.instrument.index()] = latest;
        latest
    }

    /// Sends what waits, as credit allows: at most `limit` records for each session. Returns how
    /// many were staged; a flush must follow when there were any.
    ///
    /// When `stage` reports [`Staged::NoMemory`] the pass ends; what waits goes on waiting.
    pub fn pump(&mut self, limit: usize, mut stage: impl FnMut(&Staging) -> Staged) -> usize {
        let mut staged = 0;
        for id in self.served.from(self.start) {
            let (count, outcome) = self.pump_session(id, limit, &mut stage);
            staged += count;
            if outcome == Staged::NoMemory {
                break;
            }
        }
        staged
    }

    fn pump_session(
        &mut self,
        id: SessionId,
        limit: usize,
        stage: &mut impl FnMut(&Staging) -> Staged,
    ) -> (usize, Staged) {
        let session = self.sessions[id.index()].as_mut().filter(|session| !session.is_held());
        let Some(session) = session else {
            return (0, Staged::Done);
        };
        let mut budget = SCAN_LIMIT;
        for count in 0..limit {
            let due = session.due(&self.latest, self.directory_count, &mut budget);
            let Some((due, record_bytes)) = due else {
                session.note_backlog(self.directory_count);
                return (count, Staged::Done);
            };
            let Ok(placement) = session.window.place(record_bytes) else {
                let stops_all = is_planted(Planted::PumpStopsAtFull);
                return (count, if stops_all { Staged::NoMemory } else { Staged::Done });
            };
            let source = match due {
                Due::Directory(instrument) => Source::Directory(instrument),
                Due::Initial(instrument) | Due::Dirty(instrument) => Source::Latest(instrument),
            };
            if stage(&Staging { session: id, source, placement }) == Staged::NoMemory {
                return (count, Staged::NoMemory);
            }
            session.on_staged(due, &placement, &self.latest, self.now);
            self.staged = self.staged.with(id);
        }
        (limit, Staged::Done)
    }

    /// Ends a batch: `ring` is called for each session that has staged records, with the new tail
    /// of its ring. The next batch begins with the next session in turn.
    #[inline]
    pub fn flush(&mut self, mut ring: impl FnMut(SessionId, Position)) {
        for id in self.staged.from(self.start) {
            if let Some(session) = &mut self.sessions[id.index()] {
                ring(id, session.window.flush());
            }
        }
        self.staged = Mask::default();
        self.start = (self.start + 1) % u64::BITS;
    }

    /// Takes a place in a session's send queue for a write beside its ring (heartbeat, state).
    /// Returns whether there was one.
    pub fn take_send(&mut self, id: SessionId) -> bool {
        self.served_session(id).is_some_and(|session| session.window.take_send())
    }

    /// `count` work requests of a session have completed or were flushed. An evicted session's
    /// completions count like any other.
    pub fn on_retired(&mut self, id: SessionId, count: u32) {
        if let Some(session) = self.sessions.get_mut(id.index()).and_then(Option::as_mut) {
            session.window.on_retired(count);
        }
    }

    /// What a subscriber says in its cell: consumed up to a position, receives ever posted. Returns
    /// whether that is news. A claim that cannot be true evicts the session.
    ///
    /// # Errors
    /// [`Liar`], once.
    pub fn on_credit(
        &mut self,
        id: SessionId,
        consumed: Position,
        receives: u64,
    ) -> Result<bool, Liar> {
        let Some(session) = self.served_session(id) else {
            return Ok(false);
        };
        session.window.on_credit(consumed, receives).inspect_err(|liar| {
            self.evict(id, Eviction::Liar(*liar));
        })
    }

    /// A subscriber's heartbeat as its cell shows it. Silence for longer than its terms allow
    /// evicts the session; returns whether that has just happened.
    pub fn on_beat(&mut self, id: SessionId, beat: u64, now: Nanos) -> bool {
        let Some(session) = self.served_session(id) else {
            return false;
        };
        session.liveness.on_beat(beat, now);
        if !session.liveness.is_silent(now) {
            return false;
        }
        let silent_ns = session.liveness.silent_for(now).0;
        self.evict(id, Eviction::Silent { silent_ns });
        true
    }

    fn served_session(&mut self, id: SessionId) -> Option<&mut Session> {
        if !self.served.contains(id) {
            return None;
        }
        self.sessions[id.index()].as_deref_mut()
    }

    /// Checks every invariant. For tests; walks all sessions and instruments.
    ///
    /// # Panics
    /// When an invariant does not hold, which is a bug of this crate.
    pub fn assert_invariants(&self) {
        assert_eq!(self.lossless.0 & !self.served.0, 0, "a session that is not served gates");
        assert_eq!(self.staged.0 & !self.served.0, 0, "a session that is not served is flushed");
        let born = self.latest.iter().filter(|latest| latest.born > 0).count() as u64;
        assert_eq!(born, self.born);
        for id in self.session_ids() {
            let Some(session) = self.session(id) else { continue };
            assert_eq!(self.is_served(id), session.eviction().is_none());
            session.assert_invariants(&self.latest);
        }
    }
}

/// Instruments without a snapshot that one pump of one session passes over at most.
const SCAN_LIMIT: usize = 1024;
