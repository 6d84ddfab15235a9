//! Walking the latest table: the initial image, recovery after a lap, single images.

use std::collections::VecDeque;

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
    single: VecDeque<Step>,
}

/// One instrument whose newest snapshot is to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) instrument: InstrumentId,
    /// It was asked for, and is delivered also when it has been before.
    pub(super) is_answer: bool,
}

impl Walk {
    /// Starts a round over instruments `0 .. count`.
    pub(super) const fn start(&mut self, count: usize) {
        self.next = 0;
        self.count = count;
    }

    /// Adds one instrument that was asked for.
    pub(super) fn request(&mut self, instrument: InstrumentId) {
        let step = Step { instrument, is_answer: true };
        if !self.single.contains(&step) {
            self.single.push_back(step);
        }
    }

    /// Gives the rest up.
    pub(super) fn abandon(&mut self) {
        self.next = self.count;
        self.single.clear();
    }

    /// Adds one instrument that has something newer.
    pub(super) fn add(&mut self, instrument: InstrumentId) {
        self.single.push_back(Step { instrument, is_answer: false });
    }

    /// Whether nothing is left.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.next >= self.count && self.single.is_empty()
    }

    /// The next instrument whose slot holds something that `account` would take; it stays next
    /// until [`Walk::step`]. `None` when nothing is left, or after a bounded number of looks.
    pub(super) fn find(&mut self, latest: &LatestReader, account: &Account) -> Option<Step> {
        for _ in 0..LOOKS_PER_POLL {
            if self.is_done() {
                return None;
            }
            let next = Step { instrument: InstrumentId(self.next as u32), is_answer: false };
            let step = self.single.front().copied().unwrap_or(next);
            let id = step.instrument;
            let sequence = latest.instrument_sequence(id);
            let is_wanted = match step.is_answer {
                true => account.would_answer(id, sequence),
                false => account.would_deliver(id, sequence),
            };
            if is_wanted {
                return Some(step);
            }
            self.step();
        }
        None
    }

    /// Done with the instrument that was next.
    pub(super) fn step(&mut self) {
        if self.single.pop_front().is_none() {
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapecast_core::Interest;
    use tapecast_core::account::Jump;
    use tapecast_ring::WordsMut;
    use tapecast_ring::latest::{LatestShape, LatestWriter};
    use tapecast_wire::Sequence;
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
            if let Some(step) = walk.find(&table.reader, account) {
                found.push(step.instrument.0);
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
        walk.request(InstrumentId(2));
        walk.request(InstrumentId(2));
        assert_eq!(walked(&mut walk, &table, &account), [2, 0, 1]);
    }

    #[test]
    fn what_was_delivered_before_is_found_again_only_in_answer_to_a_request() {
        let mut table = table(2);
        let mut account = Account::new(&Interest::Only(vec![InstrumentId(0)]), 2);
        for id in [0, 1] {
            table.writer.store(InstrumentId(id), &record(id, 1, 1)[..HEADER_BYTES]);
        }
        account.on_record(InstrumentId(0), Sequence(1), Jump::Unexplained);
        let mut walk = Walk::default();
        walk.add(InstrumentId(0));
        walk.request(InstrumentId(1));
        assert_eq!(walked(&mut walk, &table, &account), [], "delivered before; not wanted");
        walk.request(InstrumentId(0));
        assert_eq!(walked(&mut walk, &table, &account), [0]);
    }
}
