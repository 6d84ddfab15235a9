//! What the latest table, the directory and the session cell promise.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test that cannot set up what it needs fails")]

mod records;

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use records::{prove, record};
use tapecast_ring::cell::{
    CELL_SAMPLES, CELL_TRANSIT_WORDS, CELL_WORDS, CellClock, CellCounters, CellError, CellLatency,
    CellTiming, ConsumedError, TIMING_WORDS,
};
use tapecast_ring::directory::{DirectoryError, DirectoryReadError, directory_words};
use tapecast_ring::latest::{LatestError, LatestShape, LatestShapeError};
use tapecast_ring::{
    CellReader, CellWriter, DirectoryReader, DirectoryWriter, LatestReader, LatestWriter,
    RecordBuffer, WordsMut,
};
use tapecast_wire::{
    Epoch, Instrument, InstrumentEntry, InstrumentId, Nanos, Position, Sequence, SessionId,
};

const SHAPE: LatestShape = LatestShape { instruments: 5, record_bytes_max: 336 };

fn latest() -> (WordsMut, LatestWriter, LatestReader) {
    let words = WordsMut::heap(SHAPE.words());
    let reader = LatestReader::new(words.reader(), SHAPE).unwrap();
    (words.clone(), LatestWriter::new(words, SHAPE).unwrap(), reader)
}

proptest! {
    #[test]
    fn the_latest_table_gives_the_record_stored_last_for_each_instrument(
        stores in vec((0..5_u32, 6..=42_usize), 0..100),
    ) {
        let (_, mut writer, reader) = latest();
        let mut model = HashMap::new();
        for (sequence, (id, words)) in (1..).zip(stores) {
            writer.store(InstrumentId(id), &record(words * 8, InstrumentId(id), sequence));
            model.insert(id, (words * 8, sequence));
        }
        let mut buffer = RecordBuffer::new();
        for id in 0..7 {
            let id = InstrumentId(id);
            let expected = model.get(&id.0);
            let sequence = Sequence(expected.map_or(0, |(_, sequence)| *sequence));
            prop_assert_eq!(reader.instrument_sequence(id), sequence);
            let seen = reader.load(id, &mut buffer).unwrap();
            prop_assert_eq!(seen.as_ref().map(|bytes| bytes.len()), expected.map(|(len, _)| *len));
            if let Some(bytes) = seen {
                prop_assert_eq!(prove(&bytes), Some((id, sequence)));
                prop_assert_eq!(bytes.instrument_sequence(), sequence);
            }
        }
    }

    #[test]
    fn no_bytes_make_a_latest_reader_panic(
        stamp in prop_oneof![Just(0), Just(2), Just(3), any::<u64>()],
        first in any::<u64>(),
        id in 0..6_u32,
    ) {
        let (words, _, reader) = latest();
        let slot = id as usize * SHAPE.stride_words();
        let _ = (words.store(slot, stamp), words.store(slot + 1, first));
        let mut buffer = RecordBuffer::new();
        let seen = reader.load(InstrumentId(id), &mut buffer);
        if let Ok(Some(bytes)) = seen {
            prop_assert!(bytes.len() <= SHAPE.record_bytes_max.next_multiple_of(64));
        }
    }

    #[test]
    fn no_bytes_make_a_directory_reader_panic(
        count in any::<u64>(), stamp in any::<u64>(), word in any::<u64>(), id in any::<u32>(),
    ) {
        let words = WordsMut::heap(directory_words(3));
        for (index, value) in [(0, count), (1, stamp), (16, word), (24, word)] {
            words.store(index, value).unwrap();
        }
        let reader = DirectoryReader::new(words.reader()).unwrap();
        prop_assert!(reader.len() <= 3);
        for id in [id, 0, 1, 2, 3] {
            let _ = reader.entry(InstrumentId(id)).map(|entry| {
                entry.map(|entry| Instrument::from_wire(&entry).is_ok())
            });
        }
    }
}

#[test]
fn a_slot_whose_writer_has_stopped_in_the_middle_is_busy_not_wrong() {
    let (words, mut writer, reader) = latest();
    let id = InstrumentId(1);
    writer.store(id, &record(96, id, 1));
    let mut buffer = RecordBuffer::new();
    assert!(reader.load(id, &mut buffer).unwrap().is_some());
    words.store(SHAPE.stride_words(), 3).unwrap();
    assert_eq!(reader.load(id, &mut buffer).map(|_| ()), Err(LatestError::Busy));
}

#[test]
fn a_slot_that_holds_another_instrument_is_corrupt() {
    let (words, mut writer, reader) = latest();
    let id = InstrumentId(1);
    writer.store(id, &record(96, id, 1));
    words.store(SHAPE.stride_words() + 3, 4).unwrap();
    let mut buffer = RecordBuffer::new();
    assert_eq!(reader.load(id, &mut buffer).map(|_| ()), Err(LatestError::Corrupt));
}

#[test]
fn a_latest_table_of_another_size_is_refused() {
    let words = WordsMut::heap(SHAPE.words() - 1);
    let (have, need) = (words.len(), SHAPE.words());
    let refused = LatestReader::new(words.reader(), SHAPE).map(|_| ());
    assert_eq!(refused, Err(LatestShapeError::Words { have, need }));
    let shape = LatestShape { instruments: usize::MAX, record_bytes_max: 96 };
    assert!(LatestReader::new(words.reader(), shape).is_err());
    for bytes in [0, 40, 50, 4104, usize::MAX] {
        let shape = LatestShape { instruments: 1, record_bytes_max: bytes };
        let refused = LatestWriter::new(words.clone(), shape).map(|_| ());
        assert_eq!(refused, Err(LatestShapeError::RecordBytes { bytes }));
    }
}

#[test]
#[should_panic(expected = "has no slot")]
fn storing_an_instrument_without_a_slot_is_a_bug() {
    latest().1.store(InstrumentId(5), &record(96, InstrumentId(5), 1));
}

#[test]
#[should_panic(expected = "336 fit")]
fn storing_a_record_that_is_too_long_is_a_bug() {
    latest().1.store(InstrumentId(0), &record(344, InstrumentId(0), 1));
}

fn entry(id: u32, symbol: &str) -> InstrumentEntry {
    Instrument::new(InstrumentId(id), symbol, "XNAS").to_wire()
}

#[test]
fn the_directory_grows_in_the_order_of_its_ids_and_no_further_than_its_capacity() {
    let words = WordsMut::heap(directory_words(2));
    let reader = DirectoryReader::new(words.reader()).unwrap();
    let mut writer = DirectoryWriter::new(words).unwrap();
    assert!(reader.is_empty() && writer.is_empty());
    let gap = DirectoryError::NotDense { given: InstrumentId(1), next: InstrumentId(0) };
    assert_eq!(writer.upsert(&entry(1, "B")), Err(gap));
    writer.upsert(&entry(0, "A")).unwrap();
    writer.upsert(&entry(1, "B")).unwrap();
    assert_eq!(writer.upsert(&entry(2, "C")), Err(DirectoryError::Full { capacity: 2 }));
    assert_eq!((reader.len(), writer.len(), writer.capacity()), (2, 2, 2));
    assert_eq!(reader.entry(InstrumentId(0)), Ok(Some(entry(0, "A"))));
    assert_eq!(reader.entry(InstrumentId(1)), Ok(Some(entry(1, "B"))));
    assert_eq!(reader.entry(InstrumentId(2)), Ok(None));
}

#[test]
fn replacing_an_entry_changes_the_revision_and_repeating_it_does_not() {
    let words = WordsMut::heap(directory_words(1));
    let reader = DirectoryReader::new(words.reader()).unwrap();
    let mut writer = DirectoryWriter::new(words.clone()).unwrap();
    writer.upsert(&entry(0, "A")).unwrap();
    let revision = reader.revision();
    writer.upsert(&entry(0, "A")).unwrap();
    assert_eq!(reader.revision(), revision);
    writer.upsert(&entry(0, "A.N")).unwrap();
    assert!(reader.revision() > revision);
    assert_eq!(reader.entry(InstrumentId(0)), Ok(Some(entry(0, "A.N"))));
    words.store(1, reader.revision() + 1).unwrap();
    assert_eq!(reader.entry(InstrumentId(0)), Err(DirectoryReadError::Busy));
}

#[test]
fn words_that_are_no_whole_directory_are_refused() {
    for words in [0, 15, 17, directory_words(2) - 1] {
        assert!(DirectoryReader::new(WordsMut::heap(words).reader()).is_err(), "{words} words");
        assert!(DirectoryWriter::new(WordsMut::heap(words)).is_err(), "{words} words");
    }
}

fn cell() -> (WordsMut, CellReader, CellWriter) {
    let words = WordsMut::heap(CELL_WORDS);
    let reader = CellReader::create(&words, SessionId(7), Epoch(9), Position(128)).unwrap();
    (words.clone(), reader, CellWriter::open(words).unwrap())
}

#[test]
fn a_cell_tells_each_side_what_the_other_wrote() {
    let (_, mut reader, writer) = cell();
    assert_eq!((writer.session_id(), writer.epoch()), (SessionId(7), Epoch(9)));
    assert_eq!(writer.consumed(), Position(128));
    assert_eq!(reader.consumed(Position(128)), Ok(Position(128)));
    writer.set_consumed(Position(256), Sequence(4));
    assert_eq!(reader.consumed_before(), Position(128));
    assert_eq!(reader.consumed(Position(512)), Ok(Position(256)));
    assert_eq!(reader.channel_sequence(), Sequence(4));
    let counters =
        CellCounters { delivered: 1, conflated: 2, lost: 3, lapped: 4, initial_images: 5 };
    writer.set_counters(&counters);
    assert_eq!(reader.counters(), counters);
    let latency = CellLatency { count: 1, p50_ns: 2, p99_ns: 3, p999_ns: 4, max_ns: 5 };
    writer.set_latency(&latency);
    assert_eq!(reader.latency(), latency);
    writer.set_heartbeat(Nanos(6));
    assert_eq!(reader.heartbeat(), Nanos(6));
    assert_eq!(reader.session_id(), SessionId(7));
}

/// Timing whose figures are all different, and none is 0.
fn timing() -> CellTiming {
    CellTiming {
        transit: std::array::from_fn(|index| 1_000 + index as u64),
        end_to_end: std::array::from_fn(|index| 2_000 + index as u64),
        negative: 7,
        jitter_ns: 3,
        clock: CellClock { offset_ns: -4, error_ns: 5, round_trip_ns: 6 },
        samples: std::array::from_fn(|index| (3_000 + index as u64, 4_000 + index as u64)),
    }
}

#[test]
fn each_figure_of_the_timing_has_a_word_of_its_own_and_all_are_among_those_that_are_sent() {
    let (words, reader, writer) = cell();
    let all = |words: &WordsMut| -> Vec<u64> {
        (0..CELL_WORDS).map(|word| words.load(word).unwrap()).collect()
    };
    let before = all(&words);
    writer.set_timing(&timing());
    assert_eq!(reader.timing(), timing());
    let after = all(&words);
    let changed: Vec<usize> = (0..CELL_WORDS).filter(|i| before[*i] != after[*i]).collect();
    assert_eq!(changed.len(), 2 * CELL_TRANSIT_WORDS + 5 + 2 * CELL_SAMPLES);
    assert_eq!(changed.first(), Some(&TIMING_WORDS.start));
    assert_eq!(changed.last(), Some(&(TIMING_WORDS.end - 1)));

    writer.set_timing(&CellTiming::default());
    assert_eq!(all(&words), before, "nothing else was touched");
}

#[test]
fn whatever_a_subscriber_writes_as_its_timing_is_only_figures() {
    let (words, reader, _) = cell();
    TIMING_WORDS.for_each(|word| words.store(word, u64::MAX).unwrap());
    let CellTiming { transit, end_to_end, samples, .. } = reader.timing();
    assert_eq!((transit, end_to_end), ([u64::MAX; _], [u64::MAX; _]));
    assert_eq!(samples, [(u64::MAX, u64::MAX); CELL_SAMPLES]);
}

#[test]
fn a_consumed_position_that_is_impossible_is_refused_and_the_last_good_one_stays() {
    let (_, mut reader, writer) = cell();
    writer.set_consumed(Position(256), Sequence(1));
    let beyond = ConsumedError::BeyondTail { announced: Position(256), tail: Position(255) };
    assert_eq!(reader.consumed(Position(255)), Err(beyond));
    assert_eq!(reader.consumed(Position(256)), Ok(Position(256)));
    writer.set_consumed(Position(255), Sequence(1));
    let backwards = ConsumedError::Backwards { announced: Position(255), before: Position(256) };
    assert_eq!(reader.consumed(Position(512)), Err(backwards));
    assert_eq!(reader.consumed_before(), Position(256));
    writer.set_consumed(Position(u64::MAX), Sequence(1));
    assert!(reader.consumed(Position(512)).is_err());
}

#[test]
fn every_arming_is_served_once() {
    let (_, mut reader, mut writer) = cell();
    assert!(!reader.take_armed(), "never armed");
    writer.arm();
    assert!(reader.take_armed());
    assert!(!reader.take_armed(), "served already");
    writer.arm();
    writer.disarm();
    assert!(!reader.take_armed(), "taken back");
    writer.arm();
    assert!(reader.take_armed());
}

#[test]
fn memory_that_is_no_cell_of_this_version_is_refused() {
    let opened = |words: &WordsMut| CellWriter::open(words.clone()).map(|_| ());
    let small = WordsMut::heap(CELL_WORDS - 1);
    assert_eq!(opened(&small), Err(CellError::Size { have: CELL_WORDS - 1 }));
    assert_eq!(opened(&WordsMut::heap(CELL_WORDS)), Err(CellError::Magic { found: 0 }));
    let (words, ..) = cell();
    words.store(1, 99).unwrap();
    assert_eq!(opened(&words), Err(CellError::Version { theirs: 99 }));
}
