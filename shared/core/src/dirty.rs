//! Which instruments a session still has to be told about, longest waiting first.

use tapecast_wire::InstrumentId;

use crate::planted::{Planted, is_planted};

/// Not a member.
const ABSENT: u32 = u32::MAX;
/// A member with nothing behind it.
const NEWEST: u32 = u32::MAX - 1;

/// A first-in first-out queue of instruments that holds each of them at most once.
///
/// Marking a member again leaves it where it is: an instrument has waited as long as its oldest
/// unsent snapshot. Every operation is O(1), except [`DirtyQueue::clear`]; memory is four bytes for
/// each
/// instrument, allocated once.
///
/// # Invariants
/// `links[i]` is `ABSENT` for a non-member and otherwise names the member behind it; following the
/// links from `oldest` visits each of the `len` members once and ends at `newest`.
#[derive(Clone, Debug)]
pub struct DirtyQueue {
    links: Box<[u32]>,
    oldest: u32,
    newest: u32,
    len: usize,
}

impl DirtyQueue {
    /// An empty queue for instruments `0 .. capacity`.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(capacity < NEWEST as usize, "{capacity} instruments do not fit 32-bit links");
        let links = vec![ABSENT; capacity].into_boxed_slice();
        Self { links, oldest: NEWEST, newest: NEWEST, len: 0 }
    }

    /// Adds `instrument` at the back unless it is a member. Returns whether it was added.
    ///
    /// # Panics
    /// When the instrument is beyond the capacity: a bug of the caller.
    #[inline]
    pub fn mark(&mut self, instrument: InstrumentId) -> bool {
        let link = &mut self.links[instrument.index()];
        if *link != ABSENT {
            return false;
        }
        if is_planted(Planted::NewestDirtyFirst) && self.len > 0 {
            *link = self.oldest;
            self.oldest = instrument.0;
            self.len += 1;
            return true;
        }
        *link = NEWEST;
        if self.len == 0 {
            self.oldest = instrument.0;
        } else {
            self.links[self.newest as usize] = instrument.0;
        }
        self.newest = instrument.0;
        self.len += 1;
        true
    }

    /// The member that has waited longest.
    #[must_use]
    pub const fn oldest(&self) -> Option<InstrumentId> {
        if self.len == 0 { None } else { Some(InstrumentId(self.oldest)) }
    }

    /// Removes and returns the member that has waited longest.
    pub fn pop_oldest(&mut self) -> Option<InstrumentId> {
        let instrument = self.oldest()?;
        let behind = core::mem::replace(&mut self.links[instrument.index()], ABSENT);
        self.oldest = behind;
        self.len -= 1;
        Some(instrument)
    }

    /// Whether `instrument` is a member.
    #[must_use]
    #[inline]
    pub fn contains(&self, instrument: InstrumentId) -> bool {
        self.links.get(instrument.index()).is_some_and(|link| *link != ABSENT)
    }

    /// Number of members.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no member.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Instruments that can be members.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.links.len()
    }

    /// Removes every member, in time proportional to their number.
    pub fn clear(&mut self) {
        while self.pop_oldest().is_some() {}
    }

    /// Checks the invariants of the type. For tests; walks everything.
    ///
    /// # Panics
    /// When an invariant does not hold, which is a bug of this crate.
    pub fn assert_invariants(&self) {
        let members = self.links.iter().filter(|link| **link != ABSENT).count();
        assert_eq!(members, self.len);
        let mut visited = 0;
        let mut at = self.oldest;
        while visited < self.len {
            let behind = self.links[at as usize];
            assert_ne!(behind, ABSENT, "a link leads to {at}, which is no member");
            visited += 1;
            assert_eq!(behind == NEWEST, visited == self.len, "the queue ends at {at}");
            if visited == self.len {
                assert_eq!(at, self.newest);
            }
            at = behind;
        }
    }
}
