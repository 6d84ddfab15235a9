//! Walking the latest table: the initial image, recovery after a lap, single images.

use tapecast_core::account::Account;
use tapecast_ring::LatestReader;
use tapecast_wire::InstrumentId;

/// Slots looked at in one poll when nothing in them is wanted. A look costs a cache miss.
const LOOKS_PER_POLL: usize = 1024;

/// Which instruments' newest snapshots are still to be delivered.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Next instrument of the round; the round is over at `count`.
    next: usize,
    count: usize,
    /// Single instruments, looked at before the round goes on.
    single: Vec<InstrumentId>,
}

impl Walk {
    /// Starts a round over instruments `0 .. count`.
    pub(super) const fn start(&mut self, count: usize) {
        self.next = 0;
        self.count = count;
    }

    /// Adds one instrument.
    pub(super) fn add(&mut self, id: InstrumentId) {
        if !self.single.contains(&id) {
            self.single.push(id);
        }
    }

    /// Gives the rest up.
    pub(super) fn abandon(&mut self) {
        self.next = self.count;
        self.single.clear();
    }

    /// Whether nothing is left.
    #[inline]
    pub(super) const fn is_done(&self) -> bool {
        self.next >= self.count && self.single.is_empty()
    }

    /// The next instrument whose slot holds something that `account` would take; it stays next
    /// until [`Walk::step`]. `None` when nothing is left, or after a bounded number of looks.
    pub(super) fn find(
        &mut self,
        latest: &LatestReader,
        account: &Account,
    ) -> Option<InstrumentId> {
        for _ in 0..LOOKS_PER_POLL {
            if self.is_done() {
                return None;
            }
            let id = self.single.last().copied().unwrap_or(InstrumentId(self.next as u32));
            if account.wants(id) && account.would_deliver(id, latest.instrument_sequence(id)) {
                return Some(id);
            }
            self.step();
        }
        None
    }

    /// Done with the instrument that was next.
    pub(super) fn step(&mut self) {
        if self.single.pop().is_none() {
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapecast_core::Interest;
    use tapecast_ring::WordsMut;
    use tapecast_ring::latest::{LatestShape, LatestWriter};
    use tapecast_wire::limits::{HEADER_BYTES, record_bytes_max};

    use crate::shm::tests::record;

    struct Table {
        writer: LatestWriter,
        reader: LatestReader,
    }

    fn table(instruments: usize) -> Table {
        let shape = LatestShape { instruments, record_bytes_max: record_bytes_max(1) };
        let words = WordsMut::heap(shape.words());
        let reader = LatestReader::new(words.reader(), shape).unwrap();
        Table { writer: LatestWriter::new(words, shape).unwrap(), reader }
    }

    fn walked(walk: &mut Walk, table: &Table, account: &Account) -> Vec<u32> {
        let mut found = Vec::new();
        while !walk.is_done() {
            if let Some(id) = walk.find(&table.reader, account) {
                found.push(id.0);
                walk.step();
            }
        }
        found
    }

    #[test]
    fn a_round_finds_wanted_instruments_that_have_a_snapshot_and_nothing_else() {
        let mut table = table(3000);
        for id in [0, 7, 1500, 2999] {
            table.writer.store(InstrumentId(id), &record(id, 1, 1)[..HEADER_BYTES]);
        }
        let wanted = Interest::Only([7, 8, 1500, 2999].map(InstrumentId).to_vec());
        let mut walk = Walk::default();
        walk.start(3000);
        assert_eq!(walked(&mut walk, &table, &Account::new(&wanted, 3000)), [7, 1500, 2999]);
    }

    #[test]
    fn one_look_is_bounded_when_nothing_is_wanted() {
        let table = table(LOOKS_PER_POLL + 1);
        let account = Account::new(&Interest::All, LOOKS_PER_POLL + 1);
        let mut walk = Walk::default();
        walk.start(LOOKS_PER_POLL + 1);
        assert_eq!(walk.find(&table.reader, &account), None);
        assert!(!walk.is_done());
        assert_eq!(walk.find(&table.reader, &account), None);
        assert!(walk.is_done());
    }

    #[test]
    fn single_instruments_come_before_the_rest_of_the_round_and_once() {
        let mut table = table(3);
        for id in 0..3 {
            table.writer.store(InstrumentId(id), &record(id, 1, 1)[..HEADER_BYTES]);
        }
        let account = Account::new(&Interest::All, 3);
        let mut walk = Walk::default();
        walk.start(2);
        walk.add(InstrumentId(2));
        walk.add(InstrumentId(2));
        assert_eq!(walked(&mut walk, &table, &account), [2, 0, 1]);
    }
}
