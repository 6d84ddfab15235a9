//! One session on a fabric that has a ring for each session: what its subscriber has been sent,
//! what it still has to be told, and the credit that it gave.
//!
//! A session's *backlog* is everything that waits for credit, in this order:
//!
//! 1. directory entries not announced yet, by id, then those that changed;
//! 2. the initial image: instruments that had a snapshot at attach, by id;
//! 3. dirty instruments, longest dirty first.
//!
//! While there is a backlog nothing overtakes it: a snapshot that is published then only marks its
//! instrument dirty. If small records could take the credit as it trickles in, a large one at the
//! head of the queue would wait for ever.

use tapecast_wire::attach::Policy;
use tapecast_wire::limits::{HEADER_BYTES, INSTRUMENT_ENTRY_BYTES};
use tapecast_wire::{InstrumentId, Nanos, Sequence};

use crate::Interest;
use crate::credit::{CreditWindow, Placement, WindowSize};
use crate::dirty::DirtyQueue;
use crate::liveness::Liveness;
use crate::pace::Pace;
use crate::planted::{Planted, is_planted};
use crate::set::InstrumentSet;

pub use crate::eviction::Eviction;

/// Bytes of a directory record: a header and one entry.
pub const DIRECTORY_RECORD_BYTES: usize = HEADER_BYTES + INSTRUMENT_ENTRY_BYTES;

/// What a session is given when it is prepared.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// What happens when it does not keep up.
    pub policy: Policy,
    /// Sizes of its window.
    pub window: WindowSize,
    /// Silence of its heartbeat after which it is evicted; `None` for never. A lossless session
    /// needs one: while it is stopped, it stops the publisher.
    pub silence_limit: Option<Nanos>,
    /// Least time between two snapshots of one instrument; 0 for none.
    pub min_interval: Nanos,
}

/// Counts of one session, or of one instrument in it.
///
/// `published == sent + conflated + pending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentTotals {
    /// Snapshots that count for this session.
    pub published: u64,
    /// Snapshots staged for it.
    pub sent: u64,
    /// Snapshots that a newer one replaced before they were staged.
    pub conflated: u64,
}

impl SentTotals {
    /// Snapshots that wait for credit, or for a newer one to replace them.
    #[must_use]
    pub const fn pending(&self) -> u64 {
        self.published - self.sent - self.conflated
    }
}

/// What the fan-out knows about the newest snapshot of an instrument.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latest {
    pub(crate) sequence: u64,
    pub(crate) record_bytes: u16,
    /// Ordinal, among all publishes, of the instrument's first snapshot; 0 when it has none.
    pub(crate) born: u64,
}

/// A snapshot that has just been published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    pub(crate) instrument: InstrumentId,
    /// Describes it.
    pub(crate) latest: Latest,
    /// How far the instrument's sequence rose.
    pub(crate) step: u64,
}

/// What has been sent of one instrument.
///
/// # Invariants
/// `last - base + refreshed == sent + conflated`, with `base <= last`.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    last: u64,
    base: u64,
    sent: u64,
    conflated: u64,
    /// Of those sent, the ones that had been sent before and were asked for again.
    refreshed: u64,
}

/// The part of a joining session's initial image that is still to be sent.
#[derive(Clone, Copy, Debug)]
struct Walk {
    next: InstrumentId,
    left: u64,
}

/// What a session has to send next when it has credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Directory(InstrumentId),
    Initial(InstrumentId),
    Dirty(InstrumentId),
}

/// What became of a published snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Unwanted,
    Stage(Placement),
    Dirty,
    /// The session must end, rather than that a snapshot is left out.
    Overrun,
}

/// One session, prepared by the conductor so that attaching it allocates nothing.
#[derive(Debug)]
pub struct Session {
    terms: Terms,
    pub(crate) window: CreditWindow,
    wanted: InstrumentSet,
    wants_all: bool,
    /// Instruments whose next snapshot stands for itself only, because they were watched late.
    rebase: InstrumentSet,
    entries: Box<[Entry]>,
    announced: u32,
    changed: DirtyQueue,
    walk: Option<Walk>,
    dirty: DirtyQueue,
    attached_at: u64,
    totals: SentTotals,
    pub(crate) liveness: Liveness,
    eviction: Option<Eviction>,
    /// Whether nothing may be staged now, whatever credit there is.
    held: bool,
    /// Whether nothing has waited for it since it was attached, at one moment at least. Until then
    /// it is joining, and what is published meanwhile may be conflated whatever its policy.
    caught_up: bool,
    pace: Option<Pace>,
    /// Snapshots that found no credit, or others waiting for some.
    credit_stalls: u64,
}

impl Session {
    /// A session for instruments `0 .. capacity`, which is the fan-out's capacity. Allocates about
    /// 41 bytes for each of them.
    #[must_use]
    pub fn new(terms: Terms, interest: &Interest, capacity: usize) -> Self {
        let ignored = is_planted(Planted::InterestIgnored);
        let interest = if ignored { &Interest::All } else { interest };
        Self {
            terms,
            window: CreditWindow::new(terms.window),
            wanted: InstrumentSet::wanted(interest, capacity),
            wants_all: interest.wants_unnamed(),
            rebase: InstrumentSet::new(capacity),
            entries: vec![Entry::default(); capacity].into_boxed_slice(),
            announced: 0,
            changed: DirtyQueue::new(capacity),
            walk: None,
            dirty: DirtyQueue::new(capacity),
            attached_at: 0,
            totals: SentTotals::default(),
            liveness: Liveness::new(terms.silence_limit),
            eviction: None,
            held: false,
            caught_up: false,
            credit_stalls: 0,
            pace: (terms.min_interval.0 > 0).then(|| Pace::new(terms.min_interval, capacity)),
        }
    }

    /// What was agreed.
    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The window, to look at.
    #[must_use]
    pub const fn window(&self) -> &CreditWindow {
        &self.window
    }

    /// Snapshots that were not sent when they were published, for want of credit or because others
    /// were waiting for some.
    #[must_use]
    pub const fn credit_stalls(&self) -> u64 {
        self.credit_stalls
    }

    /// Counts over all instruments.
    #[must_use]
    pub const fn totals(&self) -> SentTotals {
        self.totals
    }

    /// Why the session must be taken out, once it must.
    #[must_use]
    pub const fn eviction(&self) -> Option<Eviction> {
        self.eviction
    }

    /// Whether the session asked for `instrument`.
    #[must_use]
    pub fn wants(&self, instrument: InstrumentId) -> bool {
        self.wanted.contains(instrument)
    }

    /// Instruments that there is room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Whether initial images are still to be sent.
    #[must_use]
    pub const fn is_joining(&self) -> bool {
        self.walk.is_some()
    }

    /// Instruments that are dirty now, the initial image apart.
    #[must_use]
    pub const fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    pub(crate) const fn is_lossless(&self) -> bool {
        matches!(self.terms.policy, Policy::Lossless)
    }

    pub(crate) const fn is_paced(&self) -> bool {
        self.pace.is_some()
    }

    /// Whether something waits for a rest to end.
    pub(crate) fn has_resting(&self) -> bool {
        self.pace.as_ref().is_some_and(Pace::has_waiting)
    }

    /// Makes dirty what has rested long enough.
    pub(crate) fn wake(&mut self, now: Nanos) {
        let Some(pace) = &mut self.pace else { return };
        while let Some(instrument) = pace.wake(now) {
            self.dirty.mark(instrument);
        }
    }

    /// Nothing rests any more: the channel ends.
    pub(crate) fn stop_pacing(&mut self) {
        if let Some(pace) = &mut self.pace {
            pace.stop();
        }
        self.wake(Nanos(0));
    }

    pub(crate) const fn is_held(&self) -> bool {
        self.held
    }

    pub(crate) const fn hold(&mut self, held: bool) {
        self.held = held;
    }

    pub(crate) fn evict(&mut self, reason: Eviction) {
        self.eviction.get_or_insert(reason);
    }

    /// Starts the session. Returns the number of initial images that it will be sent first.
    pub(crate) fn on_attach(&mut self, latest: &[Latest], born: u64, attached_at: u64) -> u64 {
        self.attached_at = attached_at;
        let has_snapshot = |id: &InstrumentId| latest[id.index()].born > 0;
        let images = if self.wants_all {
            born
        } else {
            self.wanted.iter().filter(has_snapshot).count() as u64
        };
        self.walk = (images > 0).then_some(Walk { next: InstrumentId(0), left: images });
        images
    }

    /// Whether `instrument` still waits for its place in the initial image.
    #[inline]
    fn awaits_image(&self, instrument: InstrumentId, latest: &Latest) -> bool {
        self.walk.is_some_and(|walk| instrument >= walk.next)
            && latest.born <= self.attached_at
            && !self.rebase.contains(instrument)
    }

    /// Whether its next snapshot stands for itself only.
    fn stands_alone(&self, instrument: InstrumentId, latest: &Latest) -> bool {
        let is_first = self.entries[instrument.index()].sent == 0;
        (is_first && latest.born <= self.attached_at) || self.rebase.contains(instrument)
    }

    #[inline]
    pub(crate) fn has_backlog(&self, directory_count: u32) -> bool {
        self.announced < directory_count
            || !self.changed.is_empty()
            || self.walk.is_some()
            || !self.dirty.is_empty()
    }

    /// Whether a snapshot can be published without this session losing it or an older one.
    pub(crate) fn admits(
        &self,
        instrument: InstrumentId,
        record_bytes: usize,
        directory_count: u32,
    ) -> bool {
        !self.wants(instrument)
            || (!self.held
                && !self.has_backlog(directory_count)
                && self.window.place(record_bytes).is_ok())
    }

    /// A snapshot was published.
    #[inline]
    pub(crate) fn on_publish(&mut self, issue: Issue, directory_count: u32, now: Nanos) -> Outcome {
        let Issue { instrument, ref latest, step } = issue;
        if !self.wants(instrument) {
            return Outcome::Unwanted;
        }
        if self.rests(instrument) {
            return self.on_publish_at_rest(issue);
        }
        let waits = self.note_backlog(directory_count);
        if !self.held
            && !waits
            && let Ok(placement) = self.window.place(usize::from(latest.record_bytes))
        {
            self.window.take(&placement);
            self.count_published(instrument, latest, step);
            self.count_sent(instrument, latest, now);
            return Outcome::Stage(placement);
        }
        self.credit_stalls += 1;
        if self.would_conflate(issue) {
            return Outcome::Overrun;
        }
        if !self.awaits_image(instrument, latest) {
            self.count_published(instrument, latest, step);
            let lost =
                is_planted(Planted::DirtyLostWithoutCredit) && !self.has_backlog(directory_count);
            if !lost {
                self.dirty.mark(instrument);
            }
        }
        Outcome::Dirty
    }

    /// Whether something waits for it. From the first time that nothing does it has caught up.
    #[inline]
    pub(crate) fn note_backlog(&mut self, directory_count: u32) -> bool {
        let waits = self.has_backlog(directory_count);
        self.caught_up |= !waits;
        waits
    }

    #[inline]
    fn rests(&self, instrument: InstrumentId) -> bool {
        self.pace.as_ref().is_some_and(|pace| pace.is_resting(instrument))
    }

    /// What is published while its instrument rests waits beside the backlog, and delays nobody.
    #[cold]
    fn on_publish_at_rest(&mut self, issue: Issue) -> Outcome {
        let Issue { instrument, ref latest, step } = issue;
        self.count_published(instrument, latest, step);
        if !self.dirty.contains(instrument)
            && let Some(pace) = &mut self.pace
        {
            pace.wait(instrument);
        }
        Outcome::Dirty
    }

    /// Whether a session that shall be disconnected rather than conflated would now be conflated:
    /// the snapshot before this one has not been sent.
    fn would_conflate(&self, issue: Issue) -> bool {
        let Issue { instrument, ref latest, step } = issue;
        let unsent = || latest.sequence - step > self.entries[instrument.index()].last;
        matches!(self.terms.policy, Policy::Disconnect)
            && self.caught_up
            && !is_planted(Planted::DisconnectConflates)
            && unsent()
            && !self.stands_alone(instrument, latest)
    }

    /// What to send next and how long that is. At most `budget` instruments that turn out to need
    /// nothing are passed over, and taken off it.
    pub(crate) fn due(
        &mut self,
        latest: &[Latest],
        directory_count: u32,
        budget: &mut usize,
    ) -> Option<(Due, usize)> {
        if self.announced < directory_count {
            return Some((Due::Directory(InstrumentId(self.announced)), DIRECTORY_RECORD_BYTES));
        }
        if let Some(id) = self.changed.oldest() {
            return Some((Due::Directory(id), DIRECTORY_RECORD_BYTES));
        }
        if let Some(walk) = &mut self.walk {
            while *budget > 0 {
                let id = self.wanted.first_from(walk.next)?;
                let facts = &latest[id.index()];
                let was_there = facts.born > 0 && facts.born <= self.attached_at;
                if was_there && !self.rebase.contains(id) {
                    walk.next = id;
                    return Some((Due::Initial(id), usize::from(facts.record_bytes)));
                }
                walk.next = InstrumentId(id.0 + 1);
                *budget -= 1;
            }
            return None;
        }
        while let Some(id) = self.dirty.oldest() {
            if self.wants(id) {
                return Some((Due::Dirty(id), usize::from(latest[id.index()].record_bytes)));
            }
            // It was dropped while it waited.
            self.dirty.pop_oldest();
        }
        None
    }

    /// What [`Session::due`] returned has been staged at `placement`.
    pub(crate) fn on_staged(
        &mut self,
        due: Due,
        placement: &Placement,
        latest: &[Latest],
        now: Nanos,
    ) {
        self.window.take(placement);
        match due {
            Due::Directory(id) if id.0 == self.announced => self.announced += 1,
            Due::Directory(_) => {
                self.changed.pop_oldest();
            }
            Due::Initial(id) => {
                self.walk = self.walk.and_then(|walk| {
                    let next = InstrumentId(id.0 + 1);
                    (walk.left > 1).then_some(Walk { next, left: walk.left - 1 })
                });
                self.count_sent(id, &latest[id.index()], now);
            }
            Due::Dirty(id) => {
                self.dirty.pop_oldest();
                self.count_sent(id, &latest[id.index()], now);
                if is_planted(Planted::ConflatedLostOnWrap) && placement.padding.is_some() {
                    let entry = &mut self.entries[id.index()];
                    self.totals.conflated -= core::mem::take(&mut entry.conflated);
                }
            }
        }
    }

    /// A directory entry was added or changed; a new one waits for its turn by id.
    pub(crate) fn on_entry(&mut self, instrument: InstrumentId) {
        if instrument.0 < self.announced {
            self.changed.mark(instrument);
        }
    }

    /// Asks for the newest snapshot of an instrument: of one more, or again of one that was asked
    /// for before. Returns whether that changed anything.
    pub(crate) fn watch(&mut self, instrument: InstrumentId, latest: &Latest) -> bool {
        if instrument.index() >= self.capacity() {
            return false;
        }
        if !self.wanted.insert(instrument) {
            // Where an image is still to come, it is the answer.
            let comes = latest.born == 0 || self.awaits_image(instrument, latest);
            return !comes && !is_planted(Planted::RefreshForgotten) && self.dirty.mark(instrument);
        }
        // It is not one of those that the walk was promised to send, and not born after it either.
        self.rebase.insert(instrument);
        if latest.born > 0 {
            self.dirty.mark(instrument);
        }
        true
    }

    /// Asks for an instrument no more. What was published of it and not sent is nobody's loss.
    /// Returns whether that changed anything. Not while the session is joining: the number of its
    /// initial images has been told.
    pub(crate) fn unwatch(&mut self, instrument: InstrumentId, latest: &Latest) -> bool {
        debug_assert!(!self.is_joining(), "{instrument} is dropped from an initial image");
        let pending = match self.wants(instrument) {
            true => self.instrument_totals(instrument, latest).pending(),
            false => return false,
        };
        self.totals.published -= pending;
        self.rebase.remove(instrument);
        self.wanted.remove(instrument)
    }

    /// Counts of one instrument, given its newest snapshot.
    pub(crate) fn instrument_totals(&self, id: InstrumentId, latest: &Latest) -> SentTotals {
        let entry = &self.entries[id.index()];
        let Entry { last, base, sent, conflated, refreshed } = *entry;
        let pending = if !self.wants(id) || latest.born == 0 || self.stands_alone(id, latest) {
            0
        } else {
            latest.sequence - last
        };
        SentTotals { published: last - base + refreshed + pending, sent, conflated }
    }

    #[inline]
    fn count_published(&mut self, instrument: InstrumentId, latest: &Latest, step: u64) {
        if !self.stands_alone(instrument, latest) {
            self.totals.published += step;
        }
    }

    #[inline]
    fn count_sent(&mut self, instrument: InstrumentId, latest: &Latest, now: Nanos) {
        if let Some(pace) = &mut self.pace {
            pace.rest(instrument, now);
        }
        let stands_alone = self.stands_alone(instrument, latest);
        let entry = &mut self.entries[instrument.index()];
        self.totals.sent += 1;
        entry.sent += 1;
        if latest.sequence == entry.last {
            entry.refreshed += 1;
            self.totals.published += 1;
            self.rebase.remove(instrument);
            return;
        }
        let skipped = latest.sequence - entry.last - 1;
        if stands_alone {
            entry.base += skipped;
            self.totals.published += 1;
            self.rebase.remove(instrument);
        } else {
            entry.conflated += skipped;
            self.totals.conflated += skipped;
        }
        entry.last = latest.sequence;
    }

    pub(crate) fn assert_invariants(&self, latest: &[Latest]) {
        self.window.assert_invariants();
        self.dirty.assert_invariants();
        self.changed.assert_invariants();
        if let Some(pace) = &self.pace {
            pace.assert_invariants();
        }
        if self.eviction.is_some() {
            return;
        }
        let mut sums = SentTotals::default();
        for (index, facts) in latest.iter().enumerate() {
            let id = InstrumentId(index as u32);
            let entry = &self.entries[index];
            let published = entry.last - entry.base + entry.refreshed;
            assert_eq!(published, entry.sent + entry.conflated, "{id}: {entry:?}");
            assert!(entry.last <= facts.sequence, "{id}: {entry:?} {facts:?}");
            let totals = self.instrument_totals(id, facts);
            let rests = self.pace.as_ref().is_some_and(|pace| pace.is_waiting(id));
            let waits = rests || self.dirty.contains(id);
            let is_old = entry.last == facts.sequence || self.stands_alone(id, facts);
            let is_due = waits && self.wants(id) && !is_old;
            assert_eq!(totals.pending() > 0, is_due, "{id}: {totals:?}");
            sums.published += totals.published;
            sums.sent += totals.sent;
            sums.conflated += totals.conflated;
        }
        assert_eq!(sums, self.totals);
    }

    /// Sequence of the last snapshot of `instrument` that was staged; 0 for none.
    #[must_use]
    pub fn last_sent(&self, instrument: InstrumentId) -> Sequence {
        Sequence(self.entries.get(instrument.index()).map_or(0, |entry| entry.last))
    }
}
