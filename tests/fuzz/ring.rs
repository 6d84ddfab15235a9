//! A session's own ring, control block and cell, of which the other end may write anything at any
//! time: the subscriber reads what is announced and no more, and the publisher gives no credit that
//! was not earned.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapecast_core::credit::{CreditWindow, WindowSize};
use tapecast_fabric::rings::{CONTROL_WORDS, Control};
use tapecast_ring::cell::{CELL_REQUESTS, CELL_WORDS, Request, seal};
use tapecast_ring::{CellReader, CellWriter, RecordBuffer, RemoteReader, WordsMut};
use tapecast_wire::limits::{PAGE_BYTES, WORD_BYTES};
use tapecast_wire::{
    Epoch, Flags, InstrumentId, Level, Position, Sequence, SessionId, Snapshot, SnapshotFields,
    TradingStatus, encode_padding, encode_snapshot,
};

const RING_BYTES: u64 = 2 * PAGE_BYTES as u64;
const RECEIVES: u32 = 16;
const UNIT_WORDS: usize = 8;

struct Ends {
    ring: WordsMut,
    control: WordsMut,
    cell: WordsMut,
    reader: RemoteReader,
    publisher: CellReader,
    subscriber: CellWriter,
    window: CreditWindow,
}

impl Ends {
    fn new() -> Self {
        let ring = WordsMut::heap(RING_BYTES as usize / WORD_BYTES);
        let cell = WordsMut::heap(CELL_WORDS);
        let publisher = CellReader::create(&cell, SessionId(7), Epoch(1), Position(0));
        let size = WindowSize::new(RING_BYTES, RECEIVES, 64, 4).expect("good sizes");
        Self {
            reader: RemoteReader::new(ring.reader()).expect("a good size"),
            publisher: publisher.expect("a good size"),
            subscriber: CellWriter::open(cell.clone()).expect("a good cell"),
            window: CreditWindow::new(size),
            control: WordsMut::heap(CONTROL_WORDS),
            ring,
            cell,
        }
    }

    /// Returns whether there is still something to be said.
    fn perform(&mut self, operation: u8, place: usize, value: u64) -> bool {
        match operation % 10 {
            0 => store(&self.ring, place, value),
            1 => store(&self.cell, place, value),
            2 => store(&self.control, place, value),
            3 => self.write_record(place, value),
            4 => return self.take(value as u32),
            5 => self.read_control(value),
            6 => {
                self.subscriber.set_consumed(Position(value), Sequence(value));
                self.subscriber.set_receives(u64::from(RECEIVES) + place as u64 % 64);
                self.subscriber.seal_credit();
            }
            7 => {
                let instrument = InstrumentId(value as u32);
                let drops = value >> 32 & 1 == 1;
                let request =
                    if drops { Request::Drop(instrument) } else { Request::Image(instrument) };
                self.subscriber.set_request(place as u64, request);
            }
            8 => return self.look(place),
            _ => self.publish(place),
        }
        true
    }

    /// A good record or padding, wherever.
    fn write_record(&self, place: usize, value: u64) {
        let start = place % (RING_BYTES as usize / 64) * UNIT_WORDS;
        if value & 1 == 0 {
            let len = (value >> 8) as usize % (PAGE_BYTES - WORD_BYTES) / WORD_BYTES * WORD_BYTES;
            store(&self.ring, start, encode_padding(WORD_BYTES + len));
            return;
        }
        let level = Level { price: 1, quantity: 1, order_count: 1, reserved: 0 };
        let levels = [level; 16];
        let mut bytes = [0; PAGE_BYTES];
        let (bids, asks) = ((value >> 8) as usize % 17, (value >> 16) as usize % 17);
        let len = encode_snapshot(&mut bytes, &fields(value), &levels[..bids], &levels[..asks]);
        for (index, word) in bytes[..len.expect("it fits")].chunks_exact(WORD_BYTES).enumerate() {
            store(&self.ring, start + index, u64::from_le_bytes(word.try_into().expect("eight")));
        }
    }

    /// The subscriber's end: what is announced is read, or is the end.
    fn take(&mut self, units: u32) -> bool {
        // Mostly near ahead, as real announcements are.
        let near = (self.reader.tail().0 / 64) as u32 + units % 160;
        let units = if units & 0x8000_0000 == 0 { near } else { units };
        let before = self.reader.tail();
        if self.reader.announce_units(units).is_err() {
            assert_eq!(self.reader.tail(), before, "a refused tail has changed something");
            return false;
        }
        let mut buffer = RecordBuffer::new();
        loop {
            let (position, tail) = (self.reader.position(), self.reader.tail());
            assert!(position <= tail && tail.0 - position.0 <= RING_BYTES);
            let peeked = self.reader.peek().is_ok_and(|head| head.is_some());
            match self.reader.next(&mut buffer) {
                Ok(Some(record)) => {
                    assert!(peeked && self.reader.position() > position);
                    let _ = Snapshot::parse(record.into_bytes());
                }
                Ok(None) => break assert_eq!(self.reader.position(), tail),
                Err(_) => return false,
            }
        }
        true
    }

    fn read_control(&self, value: u64) {
        let words = [0, 1, 2, 3].map(|index| self.control.load(index).unwrap_or(0));
        if value & 1 == 0 {
            store(&self.control, 4, seal(&words));
        }
        if let Some(control) = Control::read(&self.control.reader()) {
            assert_eq!(control.images.checked_add(1), Some(words[0]));
            assert_eq!((control.heartbeat.0, control.requests), (words[2], words[3]));
        }
    }

    /// The publisher's end: a claim gives credit, or is a lie that ends the session.
    fn look(&mut self, place: usize) -> bool {
        let (publisher, window) = (&mut self.publisher, &mut self.window);
        let before = publisher.consumed_before();
        let good = publisher.consumed(window.sent());
        assert!(
            publisher.consumed_before() >= before && publisher.consumed_before() <= window.sent()
        );
        let _ = (publisher.counters(), publisher.latency(), publisher.heartbeat());
        let _ = (good, publisher.channel_sequence(), publisher.take_armed());
        if let Some(made) = publisher.requests() {
            for nth in made.saturating_sub(CELL_REQUESTS)..made {
                let _ = publisher.request(nth);
            }
        }
        let Some((consumed, receives)) = publisher.claims() else { return true };
        let lag = window.lag_bytes();
        let told = window.on_credit(consumed, receives);
        window.assert_invariants();
        match told {
            Ok(_) => assert!(window.consumed() == consumed && window.lag_bytes() <= lag),
            Err(_) => assert_eq!(window.lag_bytes(), lag, "a lie has changed something"),
        }
        if place & 1 == 0 {
            window.on_retired(window.outstanding());
        }
        told.is_ok()
    }

    fn publish(&mut self, place: usize) {
        if let Ok(placement) = self.window.place(1 + place % PAGE_BYTES) {
            self.window.take(&placement);
        }
        if place & 0x4000 == 0 {
            self.window.flush();
        }
        self.window.assert_invariants();
        assert!(self.window.lag_bytes() <= RING_BYTES, "written over what was not consumed");
    }
}

fn store(words: &WordsMut, place: usize, value: u64) {
    words.store(place % words.len(), value).expect("a word of them");
}

fn fields(value: u64) -> SnapshotFields {
    SnapshotFields {
        instrument_id: InstrumentId(value as u32 >> 24),
        flags: Flags::default(),
        trading_status: TradingStatus::default(),
        epoch: Epoch(1),
        channel_sequence: Sequence(1),
        instrument_sequence: Sequence(1),
        feed_sequence: 1,
        ts_event: 1,
        ts_recv: 1,
        last_trade_price: 1,
        last_trade_quantity: 1,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut ends = Ends::new();
    for operation in bytes.chunks_exact(11) {
        let place = usize::from(u16::from_le_bytes([operation[1], operation[2]]));
        let value = u64::from_le_bytes(operation[3..].try_into().expect("eight bytes"));
        if !ends.perform(operation[0], place, value) {
            return;
        }
    }
});
