//! The rings against models that say what each operation must give, over random operations.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "a test that cannot set up what it needs fails")]

mod records;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use records::{prove, record};
use tapecast_ring::broadcast::BROADCAST_CONTROL_WORDS;
use tapecast_ring::remote::{MIN_REMOTE_BYTES, NoCredit};
use tapecast_ring::{
    BroadcastReader, BroadcastWriter, Full, GatedReader, GatedRemoteReader, ReadError,
    RecordBuffer, RemoteCursor, RemoteReader, WordsMut,
};
use tapecast_wire::{InstrumentId, Position, Sequence, encode_padding};

const ID: InstrumentId = InstrumentId(3);
const CAPACITY: u64 = 4096;
/// By how much a reader may count as lapped too early, as documented: a sixteenth of the ring.
const STRIDE: u64 = CAPACITY / 16;
const READERS: usize = 3;

/// Lengths of records that this ring takes.
fn record_bytes() -> impl Strategy<Value = usize> {
    (6..=240_usize).prop_map(|words| words * 8)
}

/// What was pushed, and where it must lie.
#[derive(Default)]
struct Log {
    records: Vec<Logged>,
    end: u64,
    committed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Logged {
    start: u64,
    end: u64,
}

impl Log {
    fn place(&self, bytes: usize) -> Logged {
        let span = (bytes as u64).next_multiple_of(64);
        let offset = self.end % CAPACITY;
        let padding = if offset + span > CAPACITY { CAPACITY - offset } else { 0 };
        let start = self.end + padding;
        Logged { start, end: start + span }
    }

    fn push(&mut self, bytes: usize) -> u64 {
        let logged = self.place(bytes);
        self.end = logged.end;
        self.records.push(logged);
        self.records.len() as u64
    }

    /// Number and place of the record that is read next at `position`.
    fn next(&self, position: u64) -> Option<(u64, Logged)> {
        let index = self.records.partition_point(|record| record.start < position);
        let record = *self.records.get(index)?;
        (record.end <= self.committed).then_some((index as u64 + 1, record))
    }
}

struct Ring {
    control: WordsMut,
    data: WordsMut,
}

impl Ring {
    fn new() -> Self {
        Self {
            control: WordsMut::heap(BROADCAST_CONTROL_WORDS),
            data: WordsMut::heap(CAPACITY as usize / 8),
        }
    }

    fn writer(&self) -> BroadcastWriter {
        BroadcastWriter::new(self.control.clone(), self.data.clone()).unwrap()
    }

    fn reader(&self) -> BroadcastReader {
        BroadcastReader::new(self.control.reader(), self.data.reader(), Position(0)).unwrap()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    PushWithin(usize, u64),
    Commit,
    Next(usize),
    Peek(usize),
    PeekAndSkip(usize),
    Inspect(usize),
    SeekTail(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let reader = 0..READERS;
    let op = prop_oneof![
        4 => record_bytes().prop_map(Op::Push),
        2 => (record_bytes(), 0..2 * CAPACITY)
            .prop_map(|(bytes, room)| Op::PushWithin(bytes, room)),
        4 => Just(Op::Commit),
        6 => reader.clone().prop_map(Op::Next),
        1 => reader.clone().prop_map(Op::Peek),
        3 => reader.clone().prop_map(Op::PeekAndSkip),
        3 => reader.clone().prop_map(Op::Inspect),
        1 => reader.prop_map(Op::SeekTail),
    ];
    vec(op, 1..200)
}

/// Checks what a read at `position` gave. `seen` is the number of the record, already proven whole.
fn check_read(
    log: &Log,
    position: u64,
    seen: Result<Option<u64>, ReadError>,
) -> Result<(), TestCaseError> {
    let expected = log.next(position);
    match seen {
        Ok(None) => prop_assert!(expected.is_none(), "nothing read, {expected:?} is there"),
        Ok(Some(number)) => {
            let (wanted, place) = expected.expect("read something that was not committed");
            prop_assert_eq!(number, wanted);
            prop_assert!(log.end <= place.start + CAPACITY, "was overwritten, not noticed");
        }
        Err(ReadError::Lapped { .. }) => {
            let raised = log.end.next_multiple_of(STRIDE);
            prop_assert!(raised > position + CAPACITY, "called lapped, nothing was overwritten");
        }
        Err(error @ ReadError::Corrupt { .. }) => prop_assert!(false, "{error}"),
    }
    Ok(())
}

fn read(log: &Log, reader: &mut BroadcastReader, op: &Op) -> TestCaseResult {
    let position = reader.position().0;
    let mut buffer = RecordBuffer::new();
    let seen = match op {
        Op::Next(_) => reader
            .next(&mut buffer)
            .map(|seen| seen.map(|bytes| prove(&bytes).expect("a whole record").1.0)),
        Op::Peek(_) | Op::PeekAndSkip(_) => reader.peek().map(|seen| {
            seen.map(|head| {
                assert_eq!(
                    (head.instrument_id, head.channel_sequence),
                    (ID, head.instrument_sequence)
                );
                head.instrument_sequence.0
            })
        }),
        _ => reader.inspect(|raw| raw.word(5).unwrap()),
    };
    check_read(log, position, seen)?;
    let moved = match (op, seen) {
        (Op::Peek(_), _) => false,
        (Op::PeekAndSkip(_), Ok(Some(_))) => {
            reader.skip();
            true
        }
        (_, Ok(seen)) => seen.is_some(),
        (_, Err(_)) => false,
    };
    if moved {
        prop_assert_eq!(reader.position().0, log.next(position).unwrap().1.end);
    }
    Ok(())
}

proptest! {
    #[test]
    fn readers_see_what_was_committed_in_order_or_are_told_that_they_were_lapped(ops in ops()) {
        let ring = Ring::new();
        let (mut writer, mut log) = (ring.writer(), Log::default());
        let mut readers = [(); READERS].map(|()| ring.reader());
        for op in ops {
            match op {
                Op::Push(bytes) => {
                    let number = log.push(bytes);
                    prop_assert_eq!(writer.push(&record(bytes, ID, number)).0, log.end);
                }
                Op::PushWithin(bytes, room) => {
                    let limit = log.end + room;
                    let encoded = record(bytes, ID, log.records.len() as u64 + 1);
                    if log.place(bytes).end > limit {
                        prop_assert_eq!(writer.push_within(Position(limit), &encoded), Err(Full));
                        prop_assert_eq!(writer.position().0, log.end);
                    } else {
                        log.push(bytes);
                        let pushed = writer.push_within(Position(limit), &encoded);
                        prop_assert_eq!(pushed, Ok(Position(log.end)));
                    }
                }
                Op::Commit => {
                    log.committed = log.end;
                    prop_assert_eq!(writer.commit().0, log.end);
                    prop_assert_eq!(readers[0].channel_sequence().0, log.records.len() as u64);
                }
                Op::SeekTail(reader) => {
                    let tail = readers[reader].tail();
                    prop_assert_eq!(tail.0, log.committed);
                    readers[reader].seek(tail);
                    prop_assert_eq!(readers[reader].lag_bytes(), 0);
                }
                Op::Next(reader) | Op::Peek(reader) | Op::PeekAndSkip(reader)
                | Op::Inspect(reader) => read(&log, &mut readers[reader], &op)?,
            }
        }
    }

    #[test]
    fn a_gated_writer_never_laps_a_gated_reader(
        steps in vec((record_bytes(), any::<bool>(), 0..4_usize, 0..4_usize), 1..150),
    ) {
        let ring = Ring::new();
        let mut writer = ring.writer();
        // SAFETY: this test is the only writer; below, every push is within the least of the
        // readers' positions plus the capacity, and nothing else writes the ring's words.
        let mut readers = [(); 2].map(|()| unsafe { GatedReader::new(ring.reader()) });
        let (mut pushed, mut next) = (0, [1, 1]);
        for (bytes, commit, first, second) in steps {
            let consumed = readers.iter().map(GatedReader::position).min().unwrap();
            let limit = Position(consumed.0 + CAPACITY);
            if writer.push_within(limit, &record(bytes, ID, pushed + 1)).is_ok() {
                pushed += 1;
            }
            if commit {
                writer.commit();
            }
            for (index, count) in [first, second].into_iter().enumerate() {
                for _ in 0..count {
                    let Some(lent) = readers[index].lend().unwrap() else { break };
                    prop_assert_eq!(prove(lent), Some((ID, Sequence(next[index]))));
                    next[index] += 1;
                }
            }
        }
        writer.commit();
        for (reader, next) in readers.iter_mut().zip(&mut next) {
            while let Some(lent) = reader.lend().unwrap() {
                prop_assert_eq!(prove(lent), Some((ID, Sequence(*next))));
                *next += 1;
            }
        }
        prop_assert_eq!(next, [pushed + 1, pushed + 1]);
    }

    #[test]
    fn a_writer_that_takes_over_continues_where_the_last_one_committed(
        before in vec(record_bytes(), 0..40),
        uncommitted in vec(record_bytes(), 0..2),
        after in vec(record_bytes(), 1..3),
    ) {
        let ring = Ring::new();
        let mut writer = ring.writer();
        for bytes in before {
            writer.push(&record(bytes, ID, 1));
        }
        let tail = writer.commit();
        let mut reader = ring.reader();
        reader.seek(reader.tail());
        for bytes in uncommitted {
            writer.push(&record(bytes, ID, 2));
        }
        let mut writer = ring.writer();
        prop_assert_eq!(writer.committed(), tail);
        let mut buffer = RecordBuffer::new();
        for (number, bytes) in (3..).zip(&after) {
            writer.push(&record(*bytes, ID, number));
            writer.commit();
            match reader.next(&mut buffer) {
                Ok(seen) => prop_assert_eq!(prove(&seen.unwrap()), Some((ID, Sequence(number)))),
                // The intent of the first writer still stands.
                Err(error) => {
                    prop_assert!(matches!(error, ReadError::Lapped { .. }), "{}", error);
                    reader.seek(reader.tail());
                }
            }
        }
    }

    #[test]
    fn a_remote_ring_gives_back_every_record_in_order(
        capacity in prop_oneof![Just(MIN_REMOTE_BYTES), Just(4 * MIN_REMOTE_BYTES)],
        steps in vec((6..=512_usize, any::<bool>(), 0..6_usize), 1..150),
    ) {
        let memory = WordsMut::heap(capacity as usize / 8);
        let mut cursor = RemoteCursor::new(capacity).unwrap();
        let reader = RemoteReader::new(memory.reader()).unwrap();
        // SAFETY: this test is the only writer, and it writes what `reserve` gives for a limit of
        // the reader's position plus the capacity.
        let mut reader = unsafe { GatedRemoteReader::new(reader) };
        let (mut sent, mut next) = (0, 1);
        for (words, announce, reads) in steps {
            let limit = Position(reader.position().0 + capacity);
            let before = cursor.tail();
            match cursor.reserve(words * 8, limit) {
                Ok(place) => {
                    sent += 1;
                    prop_assert!(place.end <= limit && place.end == cursor.tail());
                    prop_assert_eq!(place.offset_bytes % 64, 0);
                    prop_assert!(place.offset_bytes + place.span_bytes <= capacity);
                    if let Some(padding) = place.padding {
                        let word = padding.offset_bytes as usize / 8;
                        memory.store(word, encode_padding(padding.len_bytes)).unwrap();
                        prop_assert_eq!(padding.offset_bytes + padding.len_bytes as u64, capacity);
                    }
                    store(&memory, place.offset_bytes, &record(words * 8, ID, sent));
                }
                Err(NoCredit) => prop_assert_eq!(cursor.tail(), before),
            }
            if announce {
                reader.announce_units(cursor.tail_units()).unwrap();
            }
            for _ in 0..reads {
                let head = reader.peek().unwrap();
                let Some(lent) = reader.lend().unwrap() else { break };
                prop_assert_eq!(prove(lent), Some((ID, Sequence(next))));
                prop_assert_eq!(head.unwrap().len_bytes, lent.len());
                next += 1;
            }
        }
        reader.announce_units(cursor.tail_units()).unwrap();
        let mut reader = reader.into_inner();
        let mut buffer = RecordBuffer::new();
        while let Some(seen) = reader.next(&mut buffer).unwrap() {
            prop_assert_eq!(prove(&seen), Some((ID, Sequence(next))));
            next += 1;
        }
        prop_assert_eq!(next, sent + 1, "all that was sent was read");
        prop_assert_eq!(reader.position(), cursor.tail());
    }
}

fn store(memory: &WordsMut, offset_bytes: u64, bytes: &[u8]) {
    for (index, word) in bytes.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        memory.store(offset_bytes as usize / 8 + index, word).unwrap();
    }
}

/// Words as a hostile or broken writer could leave them: often nearly right.
fn garbage_word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0..600_u64, 0..4_u64).prop_map(|(words, kind)| (words * 8) | (1 << 32) | (kind << 48)),
        (0..CAPACITY * 3).prop_map(|position| position & !63),
        Just(0),
        Just(u64::MAX),
    ]
}

/// Fills all of `memory` from a few words.
fn fill(memory: &WordsMut, words: &[u64]) {
    for index in 0..memory.len() {
        memory.store(index, words[index * 13 % words.len()]).unwrap();
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_broadcast_reader_panic_or_read_for_ever(
        intent in garbage_word(),
        tail in garbage_word(),
        at in garbage_word(),
        words in vec(garbage_word(), 1..40),
        op in 0..4_u8,
    ) {
        let ring = Ring::new();
        ring.control.store(0, intent).unwrap();
        ring.control.store(16, tail).unwrap();
        fill(&ring.data, &words);
        let mut reader = ring.reader();
        reader.seek(Position(at));
        let mut buffer = RecordBuffer::new();
        let mut reads = 0;
        loop {
            let before = reader.position();
            let more = match op {
                0 => reader.next(&mut buffer).map(|seen| seen.is_some()),
                1 => reader.inspect(|raw| {
                    let header = raw.header();
                    header.map(|header| (raw.bid(&header, 9), raw.ask(&header, usize::MAX / 64)))
                }).map(|seen| seen.is_some()),
                2 => {
                    let seen = reader.peek().map(|seen| seen.is_some());
                    reader.skip();
                    seen
                }
                // SAFETY: nothing writes to these words any more.
                _ => unsafe { GatedReader::new(reader.clone()) }.lend().map(|_| false),
            };
            if more != Ok(true) {
                break;
            }
            prop_assert!(reader.position() > before && reader.position().0 <= tail);
            reads += 1;
            prop_assert!(reads <= CAPACITY / 64, "read more than a ring");
        }
        let _ = (reader.lag_bytes(), reader.channel_sequence());
    }

    #[test]
    fn no_bytes_make_a_remote_reader_panic_or_read_for_ever(
        units in any::<u32>(),
        tail in garbage_word(),
        words in vec(garbage_word(), 1..40),
    ) {
        let memory = WordsMut::heap(MIN_REMOTE_BYTES as usize / 8);
        fill(&memory, &words);
        let mut reader = RemoteReader::new(memory.reader()).unwrap();
        let _ = reader.announce(Position(tail));
        let _ = reader.announce_units(units);
        let mut buffer = RecordBuffer::new();
        for _ in 0..=MIN_REMOTE_BYTES / 64 {
            if !matches!(reader.next(&mut buffer), Ok(Some(_))) {
                return Ok(());
            }
        }
        prop_assert!(false, "read more than a ring");
    }
}
