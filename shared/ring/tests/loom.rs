//! Every interleaving of a writer and a reader, and every value that the memory model lets a load
//! return, for the protocols of this crate. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p tapecast-ring --release --test loom`.
//!
//! The records are the smallest there are, so that a model has few words. Every word of a record
//! follows from its number, so one word from another record is seen.
#![cfg(loom)]

use loom::thread;
use tapecast_ring::broadcast::BROADCAST_CONTROL_WORDS;
use tapecast_ring::cell::CELL_WORDS;
use tapecast_ring::directory::{DirectoryReadError, directory_words};
use tapecast_ring::latest::{LatestError, LatestShape};
use tapecast_ring::{
    BroadcastReader, BroadcastWriter, CellReader, CellWriter, DirectoryReader, DirectoryWriter,
    LatestReader, LatestWriter, MIN_RECORD_BYTES, RawRecord, ReadError, RecordBuffer, Words,
    WordsMut,
};
use tapecast_wire::{Epoch, Instrument, InstrumentId, Position, Sequence, SessionId};

const SMALL: usize = MIN_RECORD_BYTES;
/// Bytes that a small record takes up in a ring.
const SPAN: u64 = 64;
const ID: InstrumentId = InstrumentId(0);

/// A thread may be interrupted this often where it need not yield. Races of two threads over a
/// protocol of three steps show at two; `LOOM_MAX_PREEMPTIONS` overrides it.
const PREEMPTIONS: usize = 3;

fn model(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.check(scenario);
}

/// A record of `bytes` bytes in which every word but the first and the instrument id follows from
/// `sequence`.
fn record(bytes: usize, sequence: u64) -> Vec<u8> {
    let mut words = vec![sequence; bytes / 8];
    words[0] = bytes as u64 | 2 << 48;
    words[2] = u64::from(ID.0);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The number of a record that was copied, after checking that every word is of it.
fn whole(bytes: &[u8]) -> u64 {
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let sequence = words[5];
    assert_eq!(bytes, record(bytes.len(), sequence), "torn record");
    sequence
}

/// First and last number in a record seen in place: two words are enough to be torn, and
/// keep the model small.
fn ends(raw: RawRecord<'_>) -> (u64, u64) {
    (raw.word(1).unwrap(), raw.word(raw.len_bytes() / 8 - 1).unwrap())
}

struct Ring {
    control: WordsMut,
    data: WordsMut,
}

impl Ring {
    fn new(capacity_bytes: usize) -> Self {
        Self {
            control: WordsMut::heap(BROADCAST_CONTROL_WORDS),
            data: WordsMut::heap(capacity_bytes / 8),
        }
    }

    fn writer(&self) -> BroadcastWriter {
        BroadcastWriter::new(self.control.clone(), self.data.clone()).unwrap()
    }

    fn reader(&self) -> BroadcastReader {
        let (control, data): (Words, Words) = (self.control.reader(), self.data.reader());
        BroadcastReader::new(control, data, Position(0)).unwrap()
    }
}

#[test]
fn a_reader_that_is_being_lapped_never_delivers_a_torn_record() {
    model(|| {
        let ring = Ring::new(4 * SPAN as usize);
        let mut writer = ring.writer();
        for sequence in 1..=4 {
            writer.push(&record(SMALL, sequence));
        }
        writer.commit();
        let mut reader = ring.reader();
        let lapping = thread::spawn(move || {
            writer.push(&record(SMALL, 5));
            writer.commit();
        });
        match reader.inspect(ends) {
            Ok(seen) => assert_eq!(seen, Some((1, 1))),
            Err(error) => assert_eq!(error, ReadError::Lapped { position: Position(0) }),
        }
        lapping.join().unwrap();
    });
}

#[test]
fn a_copied_record_is_whole_or_reported_as_lapped() {
    model(|| {
        let ring = Ring::new(4 * SPAN as usize);
        let mut writer = ring.writer();
        for sequence in 1..=4 {
            writer.push(&record(SMALL, sequence));
        }
        writer.commit();
        let mut reader = ring.reader();
        let lapping = thread::spawn(move || {
            writer.push(&record(SMALL, 5));
        });
        let mut buffer = RecordBuffer::new();
        match reader.next(&mut buffer) {
            Ok(seen) => assert_eq!(whole(&seen.unwrap()), 1),
            Err(error) => assert_eq!(error, ReadError::Lapped { position: Position(0) }),
        }
        lapping.join().unwrap();
    });
}

#[test]
fn what_peek_says_is_of_one_record_even_while_it_is_overwritten() {
    model(|| {
        let ring = Ring::new(4 * SPAN as usize);
        let mut writer = ring.writer();
        for sequence in 1..=4 {
            writer.push(&record(SMALL, sequence));
        }
        writer.commit();
        let mut reader = ring.reader();
        let lapping = thread::spawn(move || {
            writer.push(&record(SMALL, 5));
        });
        if let Ok(head) = reader.peek() {
            let head = head.unwrap();
            assert_eq!(
                (head.channel_sequence, head.instrument_sequence),
                (Sequence(1), Sequence(1))
            );
        }
        lapping.join().unwrap();
    });
}

#[test]
fn a_reader_that_keeps_up_sees_every_record_in_order() {
    model(|| {
        let ring = Ring::new(4 * SPAN as usize);
        let mut writer = ring.writer();
        let mut reader = ring.reader();
        let writing = thread::spawn(move || {
            for sequence in 1..=2 {
                writer.push(&record(SMALL, sequence));
                writer.commit();
            }
        });
        let mut next = 1;
        for _ in 0..2 {
            if let Some(seen) = reader.inspect(ends).unwrap() {
                assert_eq!(seen, (next, next));
                next += 1;
            }
        }
        writing.join().unwrap();
        while let Some(seen) = reader.inspect(ends).unwrap() {
            assert_eq!(seen, (next, next));
            next += 1;
        }
        assert_eq!(next, 3);
    });
}

#[test]
fn nothing_is_seen_before_it_is_committed() {
    model(|| {
        let ring = Ring::new(4 * SPAN as usize);
        let mut writer = ring.writer();
        let mut reader = ring.reader();
        let writing = thread::spawn(move || {
            writer.push(&record(SMALL, 1));
            writer.push(&record(SMALL, 2));
            writer.commit();
        });
        let first = reader.inspect(ends).unwrap();
        if first.is_some() {
            assert_eq!(reader.inspect(ends).unwrap(), Some((2, 2)), "a batch is seen as a whole");
        }
        writing.join().unwrap();
    });
}

#[test]
fn a_record_that_would_cross_the_end_is_read_at_the_start_while_the_writer_goes_on() {
    model(|| {
        // Three lines to a record, eight to the ring: the third one does not fit at the end.
        let (bytes, ring) = (3 * SPAN as usize, Ring::new(8 * SPAN as usize));
        let mut writer = ring.writer();
        writer.push(&record(bytes, 1));
        writer.push(&record(bytes, 2));
        writer.commit();
        let mut reader = ring.reader();
        reader.seek(Position(6 * SPAN));
        let writing = thread::spawn(move || {
            writer.push(&record(bytes, 3));
            assert_eq!(writer.commit(), Position(11 * SPAN));
        });
        let early = reader.inspect(ends).unwrap();
        writing.join().unwrap();
        let seen = early.or_else(|| reader.inspect(ends).unwrap());
        assert_eq!(seen, Some((3, 3)));
        assert_eq!(reader.position(), Position(11 * SPAN));
    });
}

#[test]
fn a_reader_at_the_padding_that_is_overwritten_is_lapped_not_lost() {
    model(|| {
        let (bytes, ring) = (3 * SPAN as usize, Ring::new(8 * SPAN as usize));
        let mut writer = ring.writer();
        for sequence in 1..=4 {
            writer.push(&record(bytes, sequence));
        }
        writer.commit();
        let mut reader = ring.reader();
        reader.seek(Position(6 * SPAN));
        // Position 17 next: it lies over the padding and the record after it.
        let lapping = thread::spawn(move || {
            writer.push(&record(SMALL, 5));
            writer.push(&record(SMALL, 6));
        });
        match reader.inspect(ends) {
            Ok(seen) => assert_eq!(seen, Some((3, 3))),
            Err(error) => assert!(matches!(error, ReadError::Lapped { .. }), "{error:?}"),
        }
        lapping.join().unwrap();
    });
}

#[test]
fn a_gated_reader_needs_no_validation_because_the_writer_waits_for_it() {
    model(|| {
        let ring = Ring::new(4 * SPAN as usize);
        let words = WordsMut::heap(CELL_WORDS);
        let mut cell = CellReader::create(&words, SessionId(0), Epoch(1), Position(0)).unwrap();
        let mut writer = ring.writer();
        for sequence in 1..=4 {
            writer.push_within(Position(4 * SPAN), &record(SMALL, sequence)).unwrap();
        }
        writer.commit();
        let mut reader = ring.reader();
        let announcing = CellWriter::open(words).unwrap();
        let writing = thread::spawn(move || {
            let consumed = cell.consumed(writer.committed()).unwrap();
            let limit = Position(consumed.0 + writer.capacity_bytes());
            writer.push_within(limit, &record(SMALL, 5)).is_ok()
        });
        // The words are looked at inside, so whether they were valid does not matter here.
        let seen =
            reader.inspect(|raw| assert_eq!(ends(raw), (1, 1), "overwritten in spite of the gate"));
        assert_eq!(seen, Ok(Some(())), "a gated reader is never lapped");
        announcing.set_consumed(reader.position(), Sequence(1));
        assert_eq!(reader.inspect(ends), Ok(Some((2, 2))));
        let _ = writing.join().unwrap();
    });
}

#[test]
fn a_sleeper_that_arms_is_woken_or_sees_the_tail() {
    model(|| {
        let ring = Ring::new(4 * SPAN as usize);
        let words = WordsMut::heap(CELL_WORDS);
        let mut cell = CellReader::create(&words, SessionId(0), Epoch(1), Position(0)).unwrap();
        let mut arming = CellWriter::open(words).unwrap();
        let mut writer = ring.writer();
        let (waking, sleeping) = (ring.reader(), ring.reader());
        // The waker is not the sender: it learns of the commit by looking at the tail.
        let sender = thread::spawn(move || {
            writer.push(&record(SMALL, 1));
            writer.commit();
        });
        let waker = thread::spawn(move || {
            while waking.tail() == Position(0) {
                thread::yield_now();
            }
            cell.take_armed()
        });
        arming.arm();
        let sleeps = sleeping.tail() == Position(0);
        let woken = waker.join().unwrap();
        assert!(woken || !sleeps, "asleep and nobody wakes it");
        sender.join().unwrap();
    });
}

fn latest_table() -> (LatestWriter, LatestReader) {
    let shape = LatestShape { instruments: 1, record_bytes_max: SMALL };
    let words = WordsMut::heap(shape.words());
    let reader = LatestReader::new(words.reader(), shape).unwrap();
    (LatestWriter::new(words, shape).unwrap(), reader)
}

#[test]
fn a_latest_record_is_the_old_or_the_new_one_never_a_mixture() {
    model(|| {
        let (mut writer, reader) = latest_table();
        writer.store(ID, &record(SMALL, 1));
        let writing = thread::spawn(move || writer.store(ID, &record(SMALL, 2)));
        let mut buffer = RecordBuffer::new();
        match reader.load(ID, &mut buffer) {
            Ok(seen) => assert!((1..=2).contains(&whole(&seen.unwrap()))),
            Err(error) => assert_eq!(error, LatestError::Busy),
        }
        writing.join().unwrap();
        assert_eq!(whole(&reader.load(ID, &mut buffer).unwrap().unwrap()), 2);
    });
}

#[test]
fn the_first_latest_record_appears_whole() {
    model(|| {
        let (mut writer, reader) = latest_table();
        let writing = thread::spawn(move || writer.store(ID, &record(SMALL, 1)));
        let mut buffer = RecordBuffer::new();
        match reader.load(ID, &mut buffer) {
            Ok(seen) => assert!(seen.is_none_or(|seen| whole(&seen) == 1)),
            Err(error) => assert_eq!(error, LatestError::Busy),
        }
        writing.join().unwrap();
    });
}

#[test]
fn a_late_joiner_misses_nothing_and_gets_nothing_twice() {
    model(|| {
        let ring = Ring::new(4 * SPAN as usize);
        let (mut latest_writer, latest) = latest_table();
        let mut writer = ring.writer();
        let publish = |writer: &mut BroadcastWriter, latest: &mut LatestWriter, sequence| {
            writer.push(&record(SMALL, sequence));
            latest.store(ID, &record(SMALL, sequence));
            writer.commit();
        };
        publish(&mut writer, &mut latest_writer, 1);
        let mut reader = ring.reader();
        let publishing = thread::spawn(move || {
            publish(&mut writer, &mut latest_writer, 2);
        });
        reader.seek(reader.tail());
        let image = latest.instrument_sequence(ID).0;
        assert!((1..=2).contains(&image));
        publishing.join().unwrap();
        let mut seen = image;
        while let Some((sequence, _)) = reader.inspect(ends).unwrap() {
            assert!(sequence <= seen + 1, "{sequence} follows {seen}");
            seen = seen.max(sequence);
        }
        assert_eq!(seen, 2);
    });
}

fn entry(id: u32, lot_size: u32) -> tapecast_wire::InstrumentEntry {
    let mut entry = Instrument::new(InstrumentId(id), "A", "X").to_wire();
    entry.lot_size = lot_size;
    entry.feed_instrument_id = lot_size;
    entry.reserved2 = u64::from(lot_size);
    entry
}

#[test]
fn an_entry_that_is_counted_is_whole() {
    model(|| {
        let words = WordsMut::heap(directory_words(1));
        let reader = DirectoryReader::new(words.reader()).unwrap();
        let mut writer = DirectoryWriter::new(words).unwrap();
        let adding = thread::spawn(move || writer.upsert(&entry(0, 1)).unwrap());
        match reader.entry(ID).unwrap() {
            Some(seen) => assert_eq!(seen, entry(0, 1)),
            None => assert!(reader.len() <= 1),
        }
        adding.join().unwrap();
        assert_eq!(reader.entry(ID).unwrap(), Some(entry(0, 1)));
    });
}

#[test]
fn an_entry_that_is_replaced_is_the_old_or_the_new_one() {
    model(|| {
        let words = WordsMut::heap(directory_words(1));
        let reader = DirectoryReader::new(words.reader()).unwrap();
        let mut writer = DirectoryWriter::new(words).unwrap();
        writer.upsert(&entry(0, 1)).unwrap();
        let replacing = thread::spawn(move || writer.upsert(&entry(0, 2)).unwrap());
        match reader.entry(ID) {
            Ok(seen) => assert!([entry(0, 1), entry(0, 2)].contains(&seen.unwrap())),
            Err(error) => assert_eq!(error, DirectoryReadError::Busy),
        }
        replacing.join().unwrap();
    });
}
