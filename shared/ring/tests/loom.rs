//! Every interleaving of a writer and a reader, and every value that the memory model lets a load
//! return, for the protocols of this crate. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p tapecast-ring --release --test loom`.
//!
//! The records are the smallest there are, so that a model has few words. Every word of a record
//! follows from its number, so one word from another record is seen.
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a test that cannot set up what it needs fails")]

use loom::thread;
use tapecast_ring::broadcast::BROADCAST_CONTROL_WORDS;
use tapecast_ring::cell::CELL_WORDS;
use tapecast_ring::directory::{DirectoryReadError, directory_words};
use tapecast_ring::latest::{LatestError, LatestShape};
use tapecast_ring::region::{LifeReader, LifeWriter};
use tapecast_ring::{
    BroadcastReader, BroadcastWriter, CellReader, CellWriter, DirectoryReader, DirectoryWriter,
    LatestReader, LatestWriter, MIN_RECORD_BYTES, RawRecord, ReadError, RecordBuffer, Words,
    WordsMut,
};
use tapecast_wire::{
    Epoch, Instrument, InstrumentEntry, InstrumentId, Position, Sequence, SessionId,
};

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

/// Runs `write` and `read` at the same time. The reader gets the spawned thread: loom looks for
/// other orders starting from the last access to a word alone, and finds fewer of them when a
/// reader runs first and the writer begins by loading what it is about to store.
fn race<T: 'static>(write: impl FnOnce(), read: impl FnOnce() -> T + 'static) -> T {
    let reading = thread::spawn(read);
    write();
    reading.join().unwrap()
}

struct Ring {
    control: WordsMut,
    data: WordsMut,
}

impl Ring {
    fn new(capacity_bytes: u64) -> Self {
        Self {
            control: WordsMut::heap(BROADCAST_CONTROL_WORDS),
            data: WordsMut::heap(capacity_bytes as usize / 8),
        }
    }

    fn writer(&self) -> BroadcastWriter {
        BroadcastWriter::new(self.control.clone(), self.data.clone()).unwrap()
    }

    /// A writer that has committed records 1 to `count`.
    fn writer_of(&self, bytes: usize, count: u64) -> BroadcastWriter {
        let mut writer = self.writer();
        for sequence in 1..=count {
            writer.push(&record(bytes, sequence));
        }
        writer.commit();
        writer
    }

    fn reader_at(&self, at: u64) -> BroadcastReader {
        let (control, data): (Words, Words) = (self.control.reader(), self.data.reader());
        BroadcastReader::new(control, data, Position(at)).unwrap()
    }
}

#[test]
fn a_reader_that_is_being_lapped_never_delivers_a_torn_record() {
    model(|| {
        let ring = Ring::new(4 * SPAN);
        let (mut writer, mut reader) = (ring.writer_of(SMALL, 4), ring.reader_at(0));
        let lap = move || {
            writer.push(&record(SMALL, 5));
            writer.commit();
        };
        match race(lap, move || reader.inspect(ends)) {
            Ok(seen) => assert_eq!(seen, Some((1, 1))),
            Err(error) => assert_eq!(error, ReadError::Lapped { position: Position(0) }),
        }
    });
}

#[test]
fn a_copied_record_is_whole_or_reported_as_lapped() {
    model(|| {
        let ring = Ring::new(4 * SPAN);
        let (mut writer, mut reader) = (ring.writer_of(SMALL, 4), ring.reader_at(0));
        let lap = move || {
            writer.push(&record(SMALL, 5));
        };
        let read = move || {
            let mut buffer = RecordBuffer::new();
            reader.next(&mut buffer).map(|seen| whole(&seen.unwrap()))
        };
        match race(lap, read) {
            Ok(seen) => assert_eq!(seen, 1),
            Err(error) => assert_eq!(error, ReadError::Lapped { position: Position(0) }),
        }
    });
}

#[test]
fn what_peek_says_is_of_one_record_even_while_it_is_overwritten() {
    model(|| {
        let ring = Ring::new(4 * SPAN);
        let (mut writer, mut reader) = (ring.writer_of(SMALL, 4), ring.reader_at(0));
        let lap = move || {
            writer.push(&record(SMALL, 5));
        };
        if let Ok(head) = race(lap, move || reader.peek()) {
            let head = head.unwrap();
            assert_eq!(head.channel_sequence, Sequence(1));
            assert_eq!(head.instrument_sequence, Sequence(1));
        }
    });
}

#[test]
fn a_reader_that_keeps_up_sees_every_record_in_order() {
    model(|| {
        let ring = Ring::new(4 * SPAN);
        let (mut writer, mut reader) = (ring.writer(), ring.reader_at(0));
        let write = move || {
            for sequence in 1..=2 {
                writer.push(&record(SMALL, sequence));
                writer.commit();
            }
        };
        let read = move || {
            let seen = [reader.inspect(ends).unwrap(), reader.inspect(ends).unwrap()];
            (seen, reader)
        };
        let (early, mut reader) = race(write, read);
        let mut next = 1;
        let late = core::iter::from_fn(|| reader.inspect(ends).unwrap());
        for seen in early.into_iter().flatten().chain(late) {
            assert_eq!(seen, (next, next));
            next += 1;
        }
        assert_eq!(next, 3);
    });
}

#[test]
fn a_batch_is_seen_as_a_whole_and_not_before_it_is_committed() {
    model(|| {
        let ring = Ring::new(4 * SPAN);
        let (mut writer, mut reader) = (ring.writer(), ring.reader_at(0));
        let write = move || {
            writer.push(&record(SMALL, 1));
            writer.push(&record(SMALL, 2));
            writer.commit();
        };
        let read = move || {
            let first = reader.inspect(ends).unwrap();
            first.map(|first| [Some(first), reader.inspect(ends).unwrap()])
        };
        if let Some(seen) = race(write, read) {
            assert_eq!(seen, [Some((1, 1)), Some((2, 2))]);
        }
    });
}

#[test]
fn a_record_that_would_cross_the_end_is_read_at_the_start_while_the_writer_goes_on() {
    model(|| {
        // Three lines to a record, eight to the ring: the third one does not fit at the end.
        let (bytes, ring) = (3 * SPAN as usize, Ring::new(8 * SPAN));
        let (mut writer, mut reader) = (ring.writer_of(bytes, 2), ring.reader_at(6 * SPAN));
        let write = move || {
            writer.push(&record(bytes, 3));
            assert_eq!(writer.commit(), Position(11 * SPAN));
        };
        let (early, mut reader) = race(write, move || (reader.inspect(ends).unwrap(), reader));
        let seen = early.or_else(|| reader.inspect(ends).unwrap());
        assert_eq!(seen, Some((3, 3)));
        assert_eq!(reader.position(), Position(11 * SPAN));
    });
}

#[test]
fn a_reader_at_padding_that_is_overwritten_is_lapped_not_lost() {
    model(|| {
        let (bytes, ring) = (3 * SPAN as usize, Ring::new(8 * SPAN));
        let (mut writer, mut reader) = (ring.writer_of(bytes, 4), ring.reader_at(6 * SPAN));
        // The fourth record ends right before where the padding lies.
        let lap = move || {
            writer.push(&record(SMALL, 5));
            writer.push(&record(SMALL, 6));
        };
        match race(lap, move || reader.inspect(ends)) {
            Ok(seen) => assert_eq!(seen, Some((3, 3))),
            Err(error) => assert!(matches!(error, ReadError::Lapped { .. }), "{error:?}"),
        }
    });
}

#[test]
fn a_gated_reader_needs_no_validation_because_the_writer_waits_for_it() {
    model(|| {
        let ring = Ring::new(4 * SPAN);
        let words = WordsMut::heap(CELL_WORDS);
        let mut cell = CellReader::create(&words, SessionId(0), Epoch(1), Position(0)).unwrap();
        let announcing = CellWriter::open(words).unwrap();
        let (mut writer, mut reader) = (ring.writer_of(SMALL, 4), ring.reader_at(0));
        let write = move || {
            let consumed = cell.consumed(writer.committed()).unwrap();
            let limit = Position(consumed.0 + writer.capacity_bytes());
            let full = writer.push_within(limit, &record(SMALL, 5)).is_err();
            assert_eq!(full, consumed == Position(0));
        };
        let read = move || {
            // The words are judged inside, where nothing has been validated yet.
            let first = reader.inspect(|raw| assert_eq!(ends(raw), (1, 1), "the gate leaks"));
            assert_eq!(first, Ok(Some(())), "a gated reader is never lapped");
            announcing.set_consumed(reader.position(), Sequence(1));
            assert_eq!(reader.inspect(ends), Ok(Some((2, 2))));
        };
        race(write, read);
    });
}

#[test]
fn a_sleeper_that_arms_is_woken_or_sees_the_tail() {
    model(|| {
        let ring = Ring::new(4 * SPAN);
        let words = WordsMut::heap(CELL_WORDS);
        let mut cell = CellReader::create(&words, SessionId(0), Epoch(1), Position(0)).unwrap();
        let mut arming = CellWriter::open(words).unwrap();
        let mut writer = ring.writer();
        let (waking, sleeping) = (ring.reader_at(0), ring.reader_at(0));
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

fn latest_number(reader: &LatestReader) -> Result<Option<u64>, LatestError> {
    let mut buffer = RecordBuffer::new();
    Ok(reader.load(ID, &mut buffer)?.map(|seen| whole(&seen)))
}

#[test]
fn a_latest_record_is_the_old_or_the_new_one_never_a_mixture() {
    model(|| {
        let (mut writer, reader) = latest_table();
        writer.store(ID, &record(SMALL, 1));
        let write = move || writer.store(ID, &record(SMALL, 2));
        let during = reader.clone();
        match race(write, move || latest_number(&during)) {
            Ok(seen) => assert!(matches!(seen, Some(1 | 2))),
            Err(error) => assert_eq!(error, LatestError::Busy),
        }
        assert_eq!(latest_number(&reader), Ok(Some(2)));
    });
}

#[test]
fn the_first_latest_record_appears_whole() {
    model(|| {
        let (mut writer, reader) = latest_table();
        let write = move || writer.store(ID, &record(SMALL, 1));
        match race(write, move || latest_number(&reader)) {
            Ok(seen) => assert!(matches!(seen, None | Some(1))),
            Err(error) => assert_eq!(error, LatestError::Busy),
        }
    });
}

#[test]
fn a_late_joiner_misses_nothing_and_gets_nothing_twice() {
    model(|| {
        let ring = Ring::new(4 * SPAN);
        let (mut newest, latest) = latest_table();
        let mut writer = ring.writer();
        let mut publish = move |sequence| {
            writer.push(&record(SMALL, sequence));
            newest.store(ID, &record(SMALL, sequence));
            writer.commit();
        };
        publish(1);
        let mut reader = ring.reader_at(0);
        let join = move || {
            reader.seek(reader.tail());
            (latest.instrument_sequence(ID).0, reader)
        };
        let (image, mut reader) = race(move || publish(2), join);
        assert!((1..=2).contains(&image));
        let mut seen = image;
        while let Some((sequence, _)) = reader.inspect(ends).unwrap() {
            assert!(sequence <= seen + 1, "{sequence} follows {seen}");
            seen = seen.max(sequence);
        }
        assert_eq!(seen, 2);
    });
}

/// An entry in which several words follow from `lot_size`.
fn entry(lot_size: u32) -> InstrumentEntry {
    let mut entry = Instrument::new(ID, "A", "X").to_wire();
    entry.tick_size = i64::from(lot_size);
    entry.lot_size = lot_size;
    entry.reserved2 = u64::from(lot_size);
    entry
}

#[test]
fn an_entry_that_is_counted_is_whole() {
    model(|| {
        let words = WordsMut::heap(directory_words(1));
        let reader = DirectoryReader::new(words.reader()).unwrap();
        let mut writer = DirectoryWriter::new(words).unwrap();
        let seen = race(move || writer.upsert(&entry(1)).unwrap(), move || reader.entry(ID));
        assert!([Ok(None), Ok(Some(entry(1)))].contains(&seen));
    });
}

#[test]
fn an_entry_that_is_replaced_is_the_old_or_the_new_one() {
    model(|| {
        let words = WordsMut::heap(directory_words(1));
        let reader = DirectoryReader::new(words.reader()).unwrap();
        let mut writer = DirectoryWriter::new(words).unwrap();
        writer.upsert(&entry(1)).unwrap();
        match race(move || writer.upsert(&entry(2)).unwrap(), move || reader.entry(ID)) {
            Ok(seen) => assert!([entry(1), entry(2)].contains(&seen.unwrap())),
            Err(error) => assert_eq!(error, DirectoryReadError::Busy),
        }
    });
}

/// The word that names the publisher's life, at life 1: its writer, and a reader of that life.
fn life() -> (LifeWriter, LifeReader) {
    let word = WordsMut::heap(1);
    let reader = LifeReader::new(word.reader(), Epoch(1));
    let writer = LifeWriter::new(word);
    writer.begin(Epoch(1));
    (writer, reader)
}

#[test]
fn what_a_reader_takes_from_a_table_that_is_taken_over_is_of_its_own_life_or_thrown_away() {
    model(|| {
        let (life, present) = life();
        let (mut writer, reader) = latest_table();
        writer.store(ID, &record(SMALL, 1));
        // The stamp is the same again when the new life has stored its first record.
        let take_over = move || {
            life.begin(Epoch(2));
            writer.empty();
            writer.store(ID, &record(SMALL, 2));
        };
        let read = move || {
            let mut buffer = RecordBuffer::new();
            let copied = reader.load(ID, &mut buffer);
            // Judged only if the life is still the reader's own: before that it may be a mixture.
            present.is_current().then(|| copied.map(|seen| seen.map(|seen| whole(&seen))))
        };
        if let Some(seen) = race(take_over, read) {
            assert_eq!(seen, Ok(Some(1)));
        }
    });
}

#[test]
fn a_directory_entry_that_is_read_during_a_take_over_is_of_its_own_life_or_thrown_away() {
    model(|| {
        let (life, present) = life();
        let words = WordsMut::heap(directory_words(1));
        let reader = DirectoryReader::new(words.reader()).unwrap();
        let mut writer = DirectoryWriter::new(words).unwrap();
        writer.upsert(&entry(1)).unwrap();
        let take_over = move || {
            life.begin(Epoch(2));
            writer.empty();
            writer.upsert(&entry(2)).unwrap();
        };
        let read = move || {
            let seen = reader.entry(ID);
            present.is_current().then_some(seen)
        };
        if let Some(seen) = race(take_over, read) {
            assert_eq!(seen, Ok(Some(entry(1))));
        }
    });
}

#[test]
fn a_reader_that_a_new_life_laps_knows_it_before_it_turns_to_the_table() {
    model(|| {
        let (life, present) = life();
        let ring = Ring::new(4 * SPAN);
        let mut reader = ring.reader_at(0);
        drop(ring.writer_of(SMALL, 4));
        let mut writer = ring.writer();
        let take_over = move || {
            life.begin(Epoch(2));
            writer.push(&record(SMALL, 5));
            writer.commit();
        };
        let read = move || (reader.inspect(ends), present.is_current());
        let (seen, current) = race(take_over, read);
        match seen {
            Ok(seen) => assert_eq!(seen, Some((1, 1))),
            Err(error) => {
                assert_eq!(error, ReadError::Lapped { position: Position(0) });
                assert!(!current, "it would take the new life's table for its own");
            }
        }
    });
}
