//! The receiving end's books: which records to deliver, and what became of every other one.
//!
//! For each instrument the account remembers the last sequence it has seen and where it began to
//! count (`base`). Whatever happens, `published == delivered + conflated + lost`, where
//! `published = last - base` is derived from sequence numbers alone and the other three are counted
//! as records arrive. `lost` is a hole that nothing explains and must stay 0 in health.
//!
//! ```text
//! joining   first record of an instrument: base = sequence - 1   (it stands for itself)
//! live      first record of an instrument: base = 0              (it was born after the join)
//! ```
//!
//! The newest record of an instrument can be asked for again. Then it counts once more on both
//! sides: `published = last - base + refreshed`.

use tapecast_wire::limits::MAX_INSTRUMENTS;
use tapecast_wire::{InstrumentId, Sequence};

use crate::Interest;
use crate::planted::{Planted, is_planted};

/// What a hole in an instrument's sequence means, as the fabric knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// The session was lapped or the publisher conflated: the newer record replaces the older ones.
    Conflated,
    /// Nothing accounts for a hole here. It is counted as lost.
    Unexplained,
}

/// What to do with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The session did not ask for this instrument. Nothing was counted.
    Unwanted,
    /// The instrument is beyond the reserved capacity, so no directory entry can describe it: a
    /// malformed record. Nothing was counted.
    Unknown,
    /// This record, or a newer one of the instrument, was delivered before. Nothing was counted.
    Stale,
    /// Deliver it.
    Deliver {
        /// First record of this instrument since it was joined or watched, or one that was
        /// delivered before and asked for again.
        initial: bool,
        /// Older records that this one replaces.
        conflated: u64,
        /// Records that vanished before this one.
        lost: u64,
    },
}

/// Counts over all instruments and epochs of one account.
///
/// `published == delivered + conflated + lost` at all times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records that the publisher made for this session, from sequence numbers.
    pub published: u64,
    /// Records handed to the application.
    pub delivered: u64,
    /// Records that a newer one replaced.
    pub conflated: u64,
    /// Records that nothing accounts for. 0 in health.
    pub lost: u64,
    /// Delivered records that were the first of their instrument, or were asked for again.
    pub initial_images: u64,
}

/// Counts of one instrument in the present epoch.
///
/// `published == delivered + conflated + lost` at all times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstrumentTotals {
    /// Last sequence seen; 0 before the first record.
    pub last_sequence: Sequence,
    /// Records that the publisher made for this session, from sequence numbers.
    pub published: u64,
    /// Records handed to the application.
    pub delivered: u64,
    /// Records that a newer one replaced.
    pub conflated: u64,
    /// Records that nothing accounts for. 0 in health.
    pub lost: u64,
}

/// One cache line for each instrument: a record touches exactly one.
///
/// # Invariants
/// `base <= last` and `last - base + refreshed == delivered + conflated + lost`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Entry {
    last: u64,
    base: u64,
    delivered: u64,
    conflated: u64,
    lost: u64,
    /// Of those delivered, the ones that had been delivered before and were asked for again.
    refreshed: u64,
    wanted: bool,
    /// A first record is still to come.
    fresh: bool,
    /// That first record stands for itself only, even when the account is live.
    rebase: bool,
    /// It was wanted, and then dropped, at least once.
    dropped: bool,
    /// It was watched again after that, where records of before may have been under way.
    trails: bool,
    /// Times that it was watched where records of before may still be on their way: the hole
    /// behind them is what was published while it was not watched, and nobody's loss.
    resumed: u32,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// The books of one receiving session. See the module's documentation.
///
/// [`Account::on_record`] costs a few nanoseconds, allocates nothing and reads no clock. Memory
/// grows only in [`Account::reserve`], [`Account::begin_epoch`] and [`Account::watch`].
#[derive(Clone, Debug)]
pub struct Account {
    entries: Vec<Entry>,
    totals: Totals,
    wants_unnamed: bool,
    joining: bool,
}

impl Account {
    /// An account for instruments `0 .. capacity`, in the joining phase.
    ///
    /// Capacity is the directory's, so that no announced instrument is beyond it; it grows to hold
    /// every named id and stops at [`MAX_INSTRUMENTS`].
    #[must_use]
    pub fn new(interest: &Interest, capacity: usize) -> Self {
        let mut account = Self {
            entries: Vec::new(),
            totals: Totals::default(),
            wants_unnamed: interest.wants_unnamed(),
            joining: true,
        };
        account.reserve(capacity);
        account.name_all(interest);
        account
    }

    /// Makes room for instruments `0 .. capacity`, at most [`MAX_INSTRUMENTS`]. Never shrinks.
    pub fn reserve(&mut self, capacity: usize) {
        let capacity = capacity.min(MAX_INSTRUMENTS);
        if capacity > self.entries.len() {
            let blank = Entry { wanted: self.wants_unnamed, fresh: true, ..Entry::default() };
            self.entries.resize(capacity, blank);
        }
    }

    /// Instruments that there is room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Whether the session asked for `instrument`.
    #[must_use]
    #[inline]
    pub fn wants(&self, instrument: InstrumentId) -> bool {
        self.entries.get(instrument.index()).is_some_and(|entry| entry.wanted)
    }

    /// Whether a record with this sequence would be delivered. Counts nothing.
    ///
    /// Lets a reader skip an unwanted or stale record before it copies it.
    #[must_use]
    #[inline]
    pub fn would_deliver(&self, instrument: InstrumentId, sequence: Sequence) -> bool {
        self.entries
            .get(instrument.index())
            .is_some_and(|entry| entry.wanted && sequence.0 > entry.last)
    }

    /// Whether the newest record of an instrument would be delivered in answer to a request, which
    /// may be the one that was delivered last. Counts nothing.
    #[must_use]
    pub fn would_answer(&self, instrument: InstrumentId, sequence: Sequence) -> bool {
        let entry = self.entries.get(instrument.index());
        sequence.0 > 0 && entry.is_some_and(|entry| entry.wanted && sequence.0 >= entry.last)
    }

    /// As [`Account::on_record`], for the newest record of an instrument, which was asked for: when
    /// it is the one that was delivered last, it is delivered and counted once more.
    pub fn on_answer(
        &mut self,
        instrument: InstrumentId,
        sequence: Sequence,
        jump: Jump,
    ) -> Verdict {
        match self.entries.get_mut(instrument.index()) {
            Some(entry) if entry.wanted && sequence.0 > 0 && sequence.0 == entry.last => {
                entry.delivered += 1;
                entry.refreshed += 1;
                entry.fresh = false;
                entry.rebase = false;
                entry.resumed = entry.resumed.saturating_sub(1);
                self.totals.published = self.totals.published.wrapping_add(1);
                self.totals.delivered += 1;
                self.totals.initial_images += 1;
                Verdict::Deliver { initial: true, conflated: 0, lost: 0 }
            }
            _ => self.on_record(instrument, sequence, jump),
        }
    }

    /// Judges one record and counts it. Call it exactly once for each record that will be delivered
    /// when the verdict says so, in the order in which they arrive.
    ///
    /// `jump` says what a hole before this record means on this fabric at this moment; it does not
    /// matter for the first record of an instrument while joining, which stands for itself.
    #[inline]
    pub fn on_record(
        &mut self,
        instrument: InstrumentId,
        sequence: Sequence,
        jump: Jump,
    ) -> Verdict {
        let Some(entry) = self.entries.get_mut(instrument.index()) else {
            return Verdict::Unknown;
        };
        if !entry.wanted {
            return Verdict::Unwanted;
        }
        if sequence.0 <= entry.last {
            return Verdict::Stale;
        }
        if sequence.0 - entry.last == 1 && !entry.fresh {
            entry.last = sequence.0;
            entry.delivered += 1;
            self.totals.published = self.totals.published.wrapping_add(1);
            self.totals.delivered += 1;
            return Verdict::Deliver { initial: false, conflated: 0, lost: 0 };
        }
        self.on_first_or_jump(instrument, sequence, jump)
    }

    /// The rare half of [`Account::on_record`]: the first record of an instrument, or a hole.
    #[cold]
    fn on_first_or_jump(
        &mut self,
        instrument: InstrumentId,
        sequence: Sequence,
        jump: Jump,
    ) -> Verdict {
        let entry = &mut self.entries[instrument.index()];
        let initial = entry.fresh;
        let mut skipped = sequence.0 - entry.last - 1;
        // What is before the initial image is no hole behind a drop, which may still come.
        let joins = initial && self.joining;
        let is_behind_a_drop = !joins && entry.resumed > 0 && skipped > 0;
        // What was read while it was not watched has left a hole, too, and one cannot be told from
        // the other. A loss that may be none is not told: lossless fabrics lose nothing anyway.
        let is_untellable = entry.trails && matches!(jump, Jump::Unexplained);
        if joins || is_behind_a_drop || is_untellable || (initial && entry.rebase) {
            entry.resumed -= u32::from(is_behind_a_drop);
            entry.base += skipped;
            skipped = 0;
        }
        if initial && !entry.dropped {
            // It was never dropped: nothing of before was under way, and this was the answer.
            entry.resumed = 0;
        }
        let (conflated, lost) = match jump {
            Jump::Conflated => (skipped, 0),
            Jump::Unexplained => (0, skipped),
        };
        entry.last = sequence.0;
        entry.delivered += 1;
        entry.conflated += conflated;
        entry.lost += lost;
        entry.fresh = false;
        entry.rebase = false;
        // A hostile publisher may claim any sequence in each of many epochs; its own totals may
        // become nonsense, but they must not stop this process.
        let totals = &mut self.totals;
        totals.published = totals.published.wrapping_add(skipped).wrapping_add(1);
        totals.delivered += 1;
        totals.conflated = totals.conflated.wrapping_add(conflated);
        totals.lost = totals.lost.wrapping_add(lost);
        totals.initial_images += u64::from(initial);
        Verdict::Deliver { initial, conflated, lost }
    }

    /// The initial image is complete: from here on, the first record of an instrument that has not
    /// been seen yet means that the instrument was born after the join, so its count starts at 1.
    ///
    /// Until this is called an instrument's first record stands only for itself.
    pub const fn begin_live(&mut self) {
        self.joining = false;
    }

    /// Whether the initial image is still being received.
    #[must_use]
    pub const fn is_joining(&self) -> bool {
        self.joining
    }

    /// Starts over for another life of the publisher, or another session: instrument ids are dealt
    /// anew, the joining phase begins, totals go on.
    pub fn begin_epoch(&mut self, interest: &Interest) {
        self.joining = true;
        self.wants_unnamed = interest.wants_unnamed() || is_planted(Planted::InterestIgnored);
        let blank = Entry { wanted: self.wants_unnamed, fresh: true, ..Entry::default() };
        self.entries.fill(blank);
        self.name_all(interest);
    }

    /// Asks for one more instrument. Its next record is an initial image that stands for itself;
    /// what was published while it was not watched is nobody's loss.
    ///
    /// Returns whether that changed anything; an id that no directory can hold does not.
    pub fn watch(&mut self, instrument: InstrumentId) -> bool {
        if instrument.index() >= MAX_INSTRUMENTS {
            return false;
        }
        self.reserve(instrument.index() + 1);
        let entry = &mut self.entries[instrument.index()];
        if entry.wanted {
            return false;
        }
        entry.wanted = true;
        entry.fresh = true;
        entry.rebase = true;
        true
    }

    /// After [`Account::watch`], where records of before an instrument was dropped may still be on
    /// their way, and come before the answer.
    pub fn expect_trail(&mut self, instrument: InstrumentId) {
        if let Some(entry) = self.entries.get_mut(instrument.index()) {
            // Also when nothing has been received yet: the first records may be under way.
            entry.resumed += 1;
            entry.trails |= entry.dropped;
        }
    }

    /// Stops asking for one instrument. Returns whether that changed anything.
    pub fn unwatch(&mut self, instrument: InstrumentId) -> bool {
        let Some(entry) = self.entries.get_mut(instrument.index()) else {
            return false;
        };
        entry.dropped |= entry.wanted;
        core::mem::replace(&mut entry.wanted, false)
    }

    /// Counts over all instruments and epochs.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Counts of one instrument in this epoch; `None` beyond the capacity.
    #[must_use]
    pub fn instrument(&self, instrument: InstrumentId) -> Option<InstrumentTotals> {
        self.entries.get(instrument.index()).map(|entry| InstrumentTotals {
            last_sequence: Sequence(entry.last),
            published: entry.last - entry.base + entry.refreshed,
            delivered: entry.delivered,
            conflated: entry.conflated,
            lost: entry.lost,
        })
    }

    /// Checks every invariant of the type. For tests; walks all instruments.
    ///
    /// # Panics
    /// When an invariant does not hold, which is a bug of this crate.
    pub fn assert_invariants(&self) {
        for (index, entry) in self.entries.iter().enumerate() {
            assert!(entry.base <= entry.last, "instrument {index}: {entry:?}");
            let counted = entry.delivered + entry.conflated + entry.lost;
            let published = entry.last - entry.base + entry.refreshed;
            assert_eq!(published, counted, "instrument {index}: {entry:?}");
            assert!(entry.fresh || entry.delivered > 0, "instrument {index}: {entry:?}");
            assert!(entry.fresh || !entry.rebase, "instrument {index}: {entry:?}");
        }
        let Totals { published, delivered, conflated, lost, .. } = self.totals;
        assert_eq!(published, delivered.wrapping_add(conflated).wrapping_add(lost));
    }

    fn name_all(&mut self, interest: &Interest) {
        let known = |id: &&InstrumentId| id.index() < MAX_INSTRUMENTS;
        let named = interest.named().iter().filter(known);
        let need = named.clone().map(|id| id.index() + 1).max().unwrap_or(0);
        self.reserve(need);
        for id in named {
            self.entries[id.index()].wanted = true;
        }
    }
}
