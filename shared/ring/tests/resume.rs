//! Memory that a writer has left at any moment, taken over by the next one.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test that cannot set up what it needs fails")]

#[expect(dead_code, reason = "records here name their life, which `prove` knows nothing of")]
mod records;

use core::ops::Range;

use records::record;
use tapecast_ring::region::{CreateError, RegionError, RegionState, ResumeError};
use tapecast_ring::{
    BroadcastReader, ReadError, RecordBuffer, RegionLayout, RegionReader, RegionWriter, WordsMut,
};
use tapecast_wire::limits::MIN_RING_BYTES;
use tapecast_wire::{Epoch, Instrument, InstrumentId, Position, Sequence};

const RING_BYTES: u64 = MIN_RING_BYTES;
const RECORD_BYTES: usize = 144;
const INSTRUMENTS: usize = 3;

/// Where words of the header lie.
const VERSIONS: usize = 1;
const EPOCH: usize = 2;
const INTENT: usize = 16;
const TAIL: usize = 32;

fn layout() -> RegionLayout {
    RegionLayout::new(RING_BYTES, INSTRUMENTS, 2).unwrap()
}

fn memory() -> WordsMut {
    WordsMut::heap(layout().total_bytes() as usize / 8)
}

/// A record that says which life it is of and proves itself.
fn of_life(epoch: Epoch, id: u32, sequence: u64) -> Vec<u8> {
    let mut bytes = record(RECORD_BYTES, InstrumentId(id), sequence);
    bytes[24..32].copy_from_slice(&epoch.0.to_le_bytes());
    bytes
}

/// Life, instrument and number of a record of which every byte is right.
fn proven(bytes: &[u8]) -> (u64, u32, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (epoch, id, sequence) = (word(24), word(16) as u32, word(40));
    assert_eq!(bytes, of_life(Epoch(epoch), id, sequence), "torn");
    (epoch, id, sequence)
}

fn entry(id: u32, symbol: &str) -> tapecast_wire::InstrumentEntry {
    Instrument::new(InstrumentId(id), symbol, "X").to_wire()
}

/// A first life that has published `count` snapshots, round its instruments.
fn first_life(words: &WordsMut, count: u64) -> RegionWriter {
    let mut writer = RegionWriter::create(words.clone(), &layout(), Epoch(1)).unwrap();
    for id in 0..INSTRUMENTS as u32 - 1 {
        writer.directory.upsert(&entry(id, "OLD")).unwrap();
    }
    publish(&mut writer, 1..=count);
    writer.broadcast.commit();
    writer
}

fn publish(writer: &mut RegionWriter, sequences: impl IntoIterator<Item = u64>) {
    for sequence in sequences {
        let id = (sequence % INSTRUMENTS as u64) as u32;
        writer.publish(&of_life(writer.epoch(), id, sequence));
    }
}

/// Everything that a reader finds before the tail: (life, number).
fn read_all(ring: &mut BroadcastReader) -> Vec<(u64, u64)> {
    let mut buffer = RecordBuffer::new();
    let mut seen = Vec::new();
    while let Some(found) = ring.next(&mut buffer).unwrap() {
        let (epoch, _, sequence) = proven(&found);
        seen.push((epoch, sequence));
    }
    seen
}

fn snapshot(words: &WordsMut) -> Vec<u64> {
    (0..words.len()).map(|index| words.load(index).unwrap()).collect()
}

fn restore(image: &[u64]) -> WordsMut {
    let words = memory();
    for (index, value) in image.iter().enumerate() {
        words.store(index, *value).unwrap();
    }
    words
}

/// The words that `change` stores, in ascending order.
fn stores(words: &WordsMut, change: impl FnOnce()) -> Vec<(usize, u64)> {
    let before = snapshot(words);
    change();
    let after = snapshot(words);
    let changed = before.iter().zip(&after).enumerate().filter(|(_, (old, new))| old != new);
    changed.map(|(index, (_, new))| (index, *new)).collect()
}

/// What a writer stores for its next two snapshots, a new instrument and a commit, in an order in
/// which it may happen.
fn next_stores(words: &WordsMut, writer: &mut RegionWriter, published: u64) -> Vec<(usize, u64)> {
    let layout = layout();
    let latest = layout.latest_offset() as usize / 8..layout.ring_offset() as usize / 8;
    let stride = layout.latest().stride_words();
    let mut all = stores(words, || {
        writer.directory.upsert(&entry(INSTRUMENTS as u32 - 1, "NEW")).unwrap();
    });
    // The entry, then the count, which lies before it.
    all.rotate_left(1);
    for sequence in published + 1..=published + 2 {
        for (index, value) in stores(words, || publish(writer, [sequence])) {
            let is_stamp = latest.contains(&index) && (index - latest.start) % stride == 0;
            if is_stamp {
                all.push((index, value - 1));
            }
            all.push((index, value));
        }
        // The last of the slot's stores makes its stamp even again.
        let stamp = all
            .iter()
            .rposition(|(index, _)| latest.contains(index) && (index - latest.start) % stride == 0);
        let even = all.remove(stamp.unwrap());
        all.push(even);
    }
    // The channel sequence, then the tail, which lies before it.
    let commit = stores(words, || {
        writer.broadcast.commit();
    });
    all.extend(commit.into_iter().rev());
    all
}

/// Takes the memory over and checks all that is promised to readers of both lives. The reader of
/// the old one has still to read the snapshots whose numbers follow `unread`.
fn check_take_over(
    words: &WordsMut,
    mut old_ring: BroadcastReader,
    old: &RegionReader,
    unread: Range<u64>,
) {
    let tail = Position(words.load(TAIL).unwrap());
    let mut writer = RegionWriter::resume(words, &layout(), Epoch(9)).unwrap();
    assert!(!old.is_current());
    assert_eq!((writer.broadcast.committed(), writer.epoch()), (tail, Epoch(9)));
    assert_eq!(writer.broadcast.channel_sequence(), Sequence(0));
    let reader = RegionReader::open(words.reader()).unwrap();
    assert!(reader.is_current());
    assert_eq!((reader.epoch(), reader.life_start()), (Epoch(9), tail));
    assert_eq!((reader.state(), reader.channel_sequence()), (RegionState::Running, Sequence(0)));
    assert!(reader.directory().unwrap().is_empty());
    let (latest, mut buffer) = (reader.latest().unwrap(), RecordBuffer::new());
    for id in (0..INSTRUMENTS as u32).map(InstrumentId) {
        assert!(latest.load(id, &mut buffer).unwrap().is_none());
        assert_eq!(latest.instrument_sequence(id), Sequence(0));
    }
    writer.directory.upsert(&entry(0, "SUC")).unwrap();
    publish(&mut writer, 1..=4);
    writer.broadcast.commit();
    let new: Vec<_> = (1..=4).map(|sequence| (9, sequence)).collect();
    let old: Vec<_> = unread.map(|before| (1, before + 1)).collect();
    assert_eq!(read_all(&mut old_ring), [&old[..], &new[..]].concat());
    assert_eq!(read_all(&mut reader.broadcast_at(reader.life_start()).unwrap()), new);
    for id in (0..INSTRUMENTS as u32).map(InstrumentId) {
        let found = latest.load(id, &mut buffer).unwrap().unwrap();
        let newest = if id.0 == 1 {
            4
        } else if id.0 == 0 {
            3
        } else {
            2
        };
        assert_eq!(proven(&found), (9, id.0, newest));
    }
    assert_eq!(reader.directory().unwrap().entry(InstrumentId(0)), Ok(Some(entry(0, "SUC"))));
}

#[test]
fn a_writer_that_stopped_at_any_store_is_succeeded_without_a_record_lost_or_torn() {
    // So many that the ring's end, with its padding, lies among the next ones too.
    for count in [5, 340] {
        let words = memory();
        let mut writer = first_life(&words, count);
        let begun = snapshot(&words);
        let stores = next_stores(&words, &mut writer, count);
        assert!(stores.len() > 50, "{stores:?}");
        assert!(count < 300 || words.load(TAIL).unwrap() > RING_BYTES);
        for done in 0..=stores.len() {
            let words = restore(&begun);
            let old = RegionReader::open(words.reader()).unwrap();
            let mut ring = old.broadcast_at(Position(0)).unwrap();
            for _ in 0..count - 5 {
                ring.next(&mut RecordBuffer::new()).unwrap().unwrap();
            }
            for (index, value) in &stores[..done] {
                words.store(*index, *value).unwrap();
            }
            let committed = if done == stores.len() { count + 2 } else { count };
            check_take_over(&words, ring, &old, count - 5..committed);
        }
    }
}

#[test]
fn a_take_over_that_stopped_anywhere_is_begun_again() {
    let words = memory();
    drop(first_life(&words, 5));
    let begun = snapshot(&words);
    let mut stores = stores(&words, || {
        drop(RegionWriter::resume(&words, &layout(), Epoch(5)).unwrap());
    });
    stores.sort_by_key(|(index, _)| *index != EPOCH);
    assert_eq!(stores[0], (EPOCH, 5));
    for done in 0..=stores.len() {
        let words = restore(&begun);
        let old = RegionReader::open(words.reader()).unwrap();
        for (index, value) in &stores[..done] {
            words.store(*index, *value).unwrap();
        }
        check_take_over(&words, old.broadcast_at(Position(0)).unwrap(), &old, 0..5);
    }
}

#[test]
fn what_an_uncommitted_writer_may_have_overwritten_stays_out_of_reach_of_readers_behind() {
    let words = memory();
    let mut writer = first_life(&words, 200);
    let old = RegionReader::open(words.reader()).unwrap();
    let mut behind = old.broadcast_at(Position(0)).unwrap();
    // A batch that runs over the ring's end, and is never committed.
    publish(&mut writer, 201..=400);
    let intent = words.load(INTENT).unwrap();
    let writer = RegionWriter::resume(&words, &layout(), Epoch(2)).unwrap();
    assert_eq!(words.load(INTENT), Some(intent));
    let lapped = behind.next(&mut RecordBuffer::new()).map(|_| ());
    assert_eq!(lapped, Err(ReadError::Lapped { position: Position(0) }));
    // One at the tail is not lapped, and the next record does not change that.
    let mut fresh = writer.reader().broadcast().unwrap();
    assert!(fresh.next(&mut RecordBuffer::new()).unwrap().is_none());
}

#[test]
fn what_cannot_be_taken_over_is_told_and_stays_as_it_is() {
    let other = |bytes, instruments, levels| RegionLayout::new(bytes, instruments, levels).unwrap();
    let cases: [(RegionLayout, Epoch, usize, u64); 9] = [
        (other(RING_BYTES * 2, 3, 2), Epoch(2), 0, 0),
        (other(RING_BYTES, 4, 2), Epoch(2), 0, 0),
        (other(RING_BYTES, 3, 3), Epoch(2), 0, 0),
        (layout(), Epoch(1), 0, 0),
        (layout(), Epoch(2), VERSIONS, 1),
        (layout(), Epoch(2), 3, 4096),
        (layout(), Epoch(2), TAIL, 7),
        (layout(), Epoch(2), INTENT, 0),
        (layout(), Epoch(2), INTENT, 1 << 40),
    ];
    for (asked, epoch, word, value) in cases {
        let words = memory();
        drop(first_life(&words, 5));
        if word > 0 {
            words.store(word, value).unwrap();
        }
        let before = snapshot(&words);
        let refused = RegionWriter::resume(&words, &asked, epoch).map(|_| ()).unwrap_err();
        let expected = match (asked == layout(), epoch, word) {
            (false, ..) => matches!(refused, ResumeError::Layout { instruments: 3, levels: 2, .. }),
            (_, Epoch(1), _) => refused == ResumeError::Epoch { before: Epoch(1), now: Epoch(1) },
            (.., VERSIONS) => matches!(refused, ResumeError::Region(RegionError::Version { .. })),
            (.., 3) => matches!(refused, ResumeError::Region(RegionError::Offset { .. })),
            _ => matches!(refused, ResumeError::State(CreateError::Broadcast(_))),
        };
        assert!(expected, "{refused:?}");
        assert!(!refused.to_string().is_empty());
        assert_eq!(snapshot(&words), before, "{refused}");
    }
    let nothing = RegionWriter::resume(&memory(), &layout(), Epoch(2)).map(|_| ());
    assert_eq!(nothing, Err(ResumeError::Region(RegionError::Magic { found: 0 })));
}
