//! A set of instruments, one bit each.

use tapecast_wire::InstrumentId;

use crate::Interest;

/// A set of instruments `0 .. capacity` of fixed capacity: one bit each, allocated once.
#[derive(Clone, Debug)]
pub struct InstrumentSet {
    words: Box<[u64]>,
    capacity: usize,
}

impl InstrumentSet {
    /// An empty set.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { words: vec![0; capacity.div_ceil(64)].into_boxed_slice(), capacity }
    }

    /// The instruments below `capacity` that `interest` wants.
    #[must_use]
    pub fn wanted(interest: &Interest, capacity: usize) -> Self {
        let mut set = Self::new(capacity);
        match interest {
            Interest::All => {
                for index in 0..capacity {
                    set.words[index / 64] |= 1 << (index % 64);
                }
            }
            Interest::Only(ids) => {
                for id in ids {
                    set.insert(*id);
                }
            }
        }
        set
    }

    /// Adds a member; ids beyond the capacity are ignored. Returns whether it was added.
    pub fn insert(&mut self, instrument: InstrumentId) -> bool {
        if instrument.index() >= self.capacity || self.contains(instrument) {
            return false;
        }
        self.words[instrument.index() / 64] |= 1 << (instrument.index() % 64);
        true
    }

    /// Removes a member. Returns whether it was one.
    pub fn remove(&mut self, instrument: InstrumentId) -> bool {
        let was = self.contains(instrument);
        if was {
            self.words[instrument.index() / 64] &= !(1 << (instrument.index() % 64));
        }
        was
    }

    /// Whether `instrument` is a member.
    #[must_use]
    #[inline]
    pub fn contains(&self, instrument: InstrumentId) -> bool {
        let index = instrument.index();
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// The first member at or after `from`.
    #[must_use]
    pub fn first_from(&self, from: InstrumentId) -> Option<InstrumentId> {
        let start = from.index() / 64;
        let mut mask = u64::MAX << (from.index() % 64);
        for (index, word) in self.words.iter().enumerate().skip(start) {
            let members = word & mask;
            if members != 0 {
                let bit = members.trailing_zeros() as usize;
                return Some(InstrumentId((index * 64 + bit) as u32));
            }
            mask = u64::MAX;
        }
        None
    }

    /// Members, in rising order.
    pub fn iter(&self) -> impl Iterator<Item = InstrumentId> {
        let next = |id: &InstrumentId| self.first_from(InstrumentId(id.0 + 1));
        core::iter::successors(self.first_from(InstrumentId(0)), next)
    }

    /// Instruments that can be members.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }
}
