//! A region end to end in one process, and what a reader makes of a bad one.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test that cannot set up what it needs fails")]

mod records;

use proptest::collection::vec;
use proptest::prelude::*;
use records::{prove, record};
use tapecast_ring::region::{
    CreateError, LayoutError, REGION_LAYOUT_VERSION, RegionError, RegionState, SenderActivity,
};
use tapecast_ring::{Full, RecordBuffer, RegionLayout, RegionReader, RegionWriter, WordsMut};
use tapecast_wire::limits::{MAX_INSTRUMENTS, MAX_LEVELS_PER_SIDE, MAX_RING_BYTES, MIN_RING_BYTES};
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos, Position, Sequence, WIRE_VERSION};

const RING_BYTES: u64 = MIN_RING_BYTES;
const HEADER_WORDS: usize = 512;

fn region(instruments: usize, levels: usize) -> (WordsMut, RegionWriter) {
    let layout = RegionLayout::new(RING_BYTES, instruments, levels).unwrap();
    let words = WordsMut::heap(layout.total_bytes() as usize / 8);
    let writer = RegionWriter::create(words.clone(), &layout, Epoch(77)).unwrap();
    (words, writer)
}

#[test]
fn a_reader_finds_everything_that_the_writer_put_into_a_region() {
    let (words, mut writer) = region(3, 2);
    let reader = RegionReader::open(words.reader()).unwrap();
    assert_eq!((reader.layout(), reader.epoch()), (writer.layout(), Epoch(77)));
    let mut ring = reader.broadcast().unwrap();
    let id = InstrumentId(2);
    for symbol in 0..3 {
        let instrument = Instrument::new(InstrumentId(symbol), "S", "X");
        writer.directory.upsert(&instrument.to_wire()).unwrap();
    }
    let end = writer.publish(&record(144, id, 5));
    let mut buffer = RecordBuffer::new();
    assert!(ring.next(&mut buffer).unwrap().is_none(), "not committed yet");
    assert_eq!(writer.broadcast.commit(), end);
    assert_eq!(writer.header.raise_wake(), 1);
    writer.header.set_heartbeat(Nanos(8));
    writer.header.set_sender_activity(SenderActivity::Active);

    let seen = ring.next(&mut buffer).unwrap().unwrap();
    assert_eq!(prove(&seen), Some((id, Sequence(5))));
    let newest = reader.latest().unwrap();
    assert_eq!(prove(&newest.load(id, &mut buffer).unwrap().unwrap()), Some((id, Sequence(5))));
    assert_eq!(reader.directory().unwrap().len(), 3);
    assert_eq!((reader.tail(), reader.channel_sequence()), (end, Sequence(5)));
    assert_eq!((reader.wake(), reader.heartbeat()), (1, Nanos(8)));
    assert_eq!(reader.sender_activity(), SenderActivity::Active);
    assert_eq!((reader.state(), reader.feed_silent_since()), (RegionState::Running, Nanos(0)));
    writer.header.set_feed_silent_since(Nanos(6));
    assert_eq!((reader.state(), reader.feed_silent_since()), (RegionState::Running, Nanos(6)));
    writer.header.set_state(RegionState::Closed);
    assert_eq!(reader.state(), RegionState::Closed);
    assert_eq!(writer.reader().state(), RegionState::Closed);
}

#[test]
fn the_kernel_finds_the_wake_count_at_its_address() {
    let (words, writer) = region(1, 1);
    let reader = RegionReader::open(words.reader()).unwrap();
    writer.header.raise_wake();
    writer.header.raise_wake();
    assert!(reader.wake_address().is_aligned());
    // SAFETY: the address is inside the region, which `words` keeps; nothing writes meanwhile.
    assert_eq!(unsafe { reader.wake_address().read() }, 2);
}

#[test]
fn a_publish_that_the_gate_refuses_changes_nothing() {
    let (words, mut writer) = region(1, 1);
    let reader = RegionReader::open(words.reader()).unwrap();
    let id = InstrumentId(0);
    let refused = writer.publish_within(Position(127), &record(96, id, 1));
    assert_eq!(refused, Err(Full));
    assert_eq!(reader.latest().unwrap().instrument_sequence(id), Sequence(0));
    assert_eq!(writer.broadcast.position(), Position(0));
    assert_eq!(writer.publish_within(Position(128), &record(96, id, 1)), Ok(Position(128)));
    assert_eq!(reader.latest().unwrap().instrument_sequence(id), Sequence(1));
}

#[test]
fn sections_lie_on_pages_one_after_the_other_and_hold_what_they_must() {
    for (ring_bytes, instruments, levels) in [
        (MIN_RING_BYTES, 1, 1),
        (1 << 20, 1000, 10),
        (MAX_RING_BYTES, MAX_INSTRUMENTS, MAX_LEVELS_PER_SIDE),
    ] {
        let layout = RegionLayout::new(ring_bytes, instruments, levels).unwrap();
        let offsets = [layout.directory_offset(), layout.latest_offset(), layout.ring_offset()];
        assert!(offsets.iter().all(|offset| offset.is_multiple_of(4096)));
        assert!(layout.directory_offset() >= 4096);
        let directory = layout.latest_offset() - layout.directory_offset();
        assert!(directory >= 128 + 64 * instruments as u64);
        let latest = layout.ring_offset() - layout.latest_offset();
        let record_bytes = 96 + 48 * levels as u64;
        assert!(latest >= instruments as u64 * (8 + record_bytes));
        assert_eq!(layout.total_bytes(), layout.ring_offset() + ring_bytes);
    }
}

#[test]
fn a_layout_just_outside_its_limits_is_refused_with_the_number_that_is_wrong() {
    let refused = |ring_bytes, instruments, levels| {
        RegionLayout::new(ring_bytes, instruments, levels).unwrap_err()
    };
    for bytes in [0, 1, MIN_RING_BYTES / 2, MIN_RING_BYTES + 1, 3 << 20, MAX_RING_BYTES * 2] {
        assert_eq!(refused(bytes, 1, 1), LayoutError::RingBytes { bytes });
    }
    for instruments in [0, MAX_INSTRUMENTS + 1] {
        let expected = LayoutError::Instruments { instruments: instruments as u64 };
        assert_eq!(refused(RING_BYTES, instruments, 1), expected);
    }
    for levels in [0, MAX_LEVELS_PER_SIDE + 1] {
        let expected = LayoutError::Levels { levels: levels as u64 };
        assert_eq!(refused(RING_BYTES, 1, levels), expected);
    }
}

#[test]
fn only_zeroed_memory_that_is_large_enough_becomes_a_region() {
    let (words, writer) = region(1, 1);
    let again = RegionWriter::create(words, writer.layout(), Epoch(78)).map(|_| ());
    assert_eq!(again, Err(CreateError::NotZeroed));
    let need = writer.layout().total_bytes();
    let short = WordsMut::heap(need as usize / 8 - 1);
    let refused = RegionWriter::create(short, writer.layout(), Epoch(78)).map(|_| ());
    assert_eq!(refused, Err(CreateError::Short { have: need - 8, need }));
}

#[test]
fn memory_that_is_no_region_or_is_cut_is_refused_with_the_reason() {
    let opened = |words: &WordsMut| RegionReader::open(words.reader()).map(|_| ());
    let header = WordsMut::heap(HEADER_WORDS - 1);
    assert_eq!(opened(&header), Err(RegionError::Short { have: 4088, need: 4096 }));
    assert_eq!(opened(&WordsMut::heap(HEADER_WORDS)), Err(RegionError::Magic { found: 0 }));
    let (words, writer) = region(1, 1);
    let need = writer.layout().total_bytes();
    let cut = words.part(0, words.len() - 1).unwrap();
    assert_eq!(opened(&cut), Err(RegionError::Short { have: need - 8, need }));
    let (layout, wire) = (REGION_LAYOUT_VERSION + 1, u32::from(WIRE_VERSION));
    words.store(1, u64::from(layout) | u64::from(wire) << 32).unwrap();
    assert_eq!(opened(&words), Err(RegionError::Version { layout, wire }));
    let (layout, wire) = (REGION_LAYOUT_VERSION, 99);
    words.store(1, u64::from(layout) | u64::from(wire) << 32).unwrap();
    assert_eq!(opened(&words), Err(RegionError::Version { layout, wire }));
    words.store(1, u64::from(REGION_LAYOUT_VERSION) | u64::from(WIRE_VERSION) << 32).unwrap();
    words.store(96, 1).unwrap();
    assert_eq!(opened(&words), Err(RegionError::LifeStart { found: 1 }));
}

#[test]
fn a_header_whose_numbers_contradict_each_other_is_refused() {
    // Total bytes, ring bytes, tables, and the three offsets: each one alone.
    for word in 3..=8 {
        let (words, _writer) = region(1, 1);
        let value = words.load(word).unwrap();
        for wrong in [0, value ^ 1 << 12, u64::MAX] {
            words.store(word, wrong).unwrap();
            let refused = RegionReader::open(words.reader());
            assert!(refused.is_err(), "word {word} as {wrong:#x}");
        }
        words.store(word, value).unwrap();
        RegionReader::open(words.reader()).unwrap();
    }
}

proptest! {
    #[test]
    fn no_header_makes_a_reader_panic(
        changes in vec((0..112_usize, any::<u64>()), 1..6),
        small in any::<bool>(),
    ) {
        let (words, mut writer) = region(2, 1);
        writer.publish(&record(96, InstrumentId(1), 1));
        writer.broadcast.commit();
        for (word, value) in changes {
            let value = if small { value & 0xffff } else { value };
            words.store(word, value).unwrap();
        }
        if let Ok(reader) = RegionReader::open(words.reader()) {
            let mut buffer = RecordBuffer::new();
            let mut ring = reader.broadcast_at(Position(0)).unwrap();
            let _ = ring.next(&mut buffer).map(|seen| seen.is_some());
            ring.seek(reader.tail());
            let _ = ring.next(&mut buffer).map(|seen| seen.is_some());
            let _ = reader.latest().unwrap().load(InstrumentId(1), &mut buffer);
            let _ = reader.directory().unwrap().entry(InstrumentId(0));
            let _ = (reader.state(), reader.wake(), reader.sender_activity(), reader.heartbeat());
            let _ = reader.feed_silent_since();
        }
    }
}
