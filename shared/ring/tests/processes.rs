//! A writer and several readers in processes of their own, over one mapping.
//!
//! The writer publishes a fixed number of records in rounds. In each round it goes several times
//! round the ring without waiting for anybody, so readers are lapped at any moment; then it waits
//! for the readers to arrive at the tail, and publishes a few records that all of them must
//! deliver. Every word of every record proves itself, so one torn read fails the test.
#![cfg(all(not(loom), target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot set up what it needs fails")]

mod records;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapOptions;
use records::{prove, record};
use tapecast_ring::cell::{CELL_BYTES, CELL_WORDS, CellCounters};
use tapecast_ring::region::RegionState;
use tapecast_ring::{
    BroadcastReader, CellReader, CellWriter, GatedReader, LatestReader, RawRecord, ReadError,
    RecordBuffer, RegionLayout, RegionReader, RegionWriter, Words, WordsMut,
};
use tapecast_wire::limits::{MAX_LEVELS_PER_SIDE, MIN_RING_BYTES};
use tapecast_wire::{Epoch, InstrumentId, Position, Sequence, SessionId};

/// Tells a started process what to be: role, descriptor of the region, descriptor of the cells,
/// index of its cell.
const ROLE: &str = "TAPECAST_RING_TEST_ROLE";

const ROUNDS: u64 = 40;
/// Records of a round that nobody waits for: about ten times round the ring.
const BURST: u64 = 320;
/// Records of a round that every reader delivers.
const CALM: u64 = 3;
const LOSSLESS_RECORDS: u64 = 4000;
const INSTRUMENTS: u32 = 4;
/// The instrument of the record that opens a burst: a holding reader looks at it for long.
const OPENING: InstrumentId = InstrumentId(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Copies every record.
    Copy,
    /// Skips every other record unread.
    Skip,
    /// Looks in place, and at an opening record until the writer has surely overwritten it.
    Hold,
    /// Is waited for, and reads in place.
    Lossless,
}

impl Role {
    const ALL: [Self; 4] = [Self::Copy, Self::Skip, Self::Hold, Self::Lossless];

    fn index(self) -> usize {
        Self::ALL.iter().position(|role| *role == self).unwrap()
    }
}

/// Descriptors of the two pieces of memory, inherited by the started processes.
struct Memory {
    region: File,
    cells: File,
}

impl Memory {
    fn create(layout: &RegionLayout, cells: usize) -> Self {
        Self {
            region: memory_file(layout.total_bytes()),
            cells: memory_file((cells * CELL_BYTES) as u64),
        }
    }
}

/// An anonymous file that a started process inherits under the same number.
fn memory_file(bytes: u64) -> File {
    // SAFETY: the name is a C string; the call has no other preconditions.
    let fd = unsafe { libc::memfd_create(c"tapecast-ring-test".as_ptr(), 0) };
    assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor was just created and belongs to nobody else.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes).unwrap();
    file
}

fn map(file: &File) -> WordsMut {
    let mapping = MmapOptions::new().map_raw(file).unwrap();
    let (base, len) = (NonNull::new(mapping.as_mut_ptr().cast()).unwrap(), mapping.len() / 8);
    // SAFETY: the mapping starts on a page and has `len` words, its owner goes along, nobody
    // truncates these files, and the tests touch the words through this crate alone.
    unsafe { WordsMut::from_raw(base, len, Arc::new(mapping)) }
}

fn map_read_only(file: &File) -> Words {
    let mapping = MmapOptions::new().map_raw_read_only(file).unwrap();
    let (base, len) = (NonNull::new(mapping.as_mut_ptr().cast()).unwrap(), mapping.len() / 8);
    // SAFETY: page-aligned, `len` words, kept by its owner and never truncated, as in `map`.
    unsafe { Words::from_raw(base, len, Arc::new(mapping)) }
}

/// Started processes; none outlives the test, however it ends.
struct Readers {
    children: Vec<Child>,
    cells: Vec<CellReader>,
}

impl Readers {
    fn start(memory: &Memory, roles: &[Role]) -> Self {
        let words = map(&memory.cells);
        let cell = |index: usize| {
            let words = words.part(index * CELL_WORDS, CELL_WORDS).unwrap();
            let id = SessionId(index as u32);
            CellReader::create(&words, id, Epoch(1), Position(0)).unwrap()
        };
        let cells = (0..roles.len()).map(cell).collect();
        let (region, cell_file) = (memory.region.as_raw_fd(), memory.cells.as_raw_fd());
        let mut readers = Self { children: Vec::new(), cells };
        for (index, role) in roles.iter().enumerate() {
            let role = format!("{} {region} {cell_file} {index}", role.index());
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "reader_process", "--ignored", "--nocapture"])
                .env(ROLE, role)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            readers.children.push(child);
        }
        readers
    }

    /// Waits until every reader has announced `tail`.
    fn arrive(&mut self, tail: Position) {
        for index in 0..self.cells.len() {
            while self.cells[index].consumed(tail).unwrap() != tail {
                self.check_alive();
                std::thread::yield_now();
            }
        }
    }

    fn check_alive(&mut self) {
        for (index, child) in self.children.iter_mut().enumerate() {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "reader {index} has ended: {ended:?}");
        }
    }

    /// Waits for all to end in good order and gives what they counted.
    fn join(mut self) -> Vec<CellCounters> {
        for (index, child) in self.children.iter_mut().enumerate() {
            let status = child.wait().unwrap();
            assert!(status.success(), "reader {index}: {status}");
        }
        self.cells.iter().map(CellReader::counters).collect()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Numbers, sizes and instruments of what is published.
struct Publisher {
    region: RegionWriter,
    sequence: u64,
}

impl Publisher {
    fn create(memory: &Memory, layout: &RegionLayout) -> Self {
        let region = RegionWriter::create(map(&memory.region), layout, Epoch(1)).unwrap();
        Self { region, sequence: 0 }
    }

    /// Some length from the smallest record to a page, the same for the same number.
    fn next_record(&mut self, id: InstrumentId) -> Vec<u8> {
        self.sequence += 1;
        let words = 6 + self.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 504;
        record(words as usize * 8, id, self.sequence)
    }

    fn next_id(&self) -> InstrumentId {
        InstrumentId((self.sequence % u64::from(OPENING.0)) as u32)
    }

    fn publish(&mut self, count: u64) {
        for left in (0..count).rev() {
            let record = self.next_record(self.next_id());
            self.region.publish(&record);
            if left == 0 || self.sequence.is_multiple_of(5) {
                self.region.broadcast.commit();
            }
        }
    }

    fn open_burst(&mut self) {
        let record = self.next_record(OPENING);
        self.region.publish(&record);
        self.region.broadcast.commit();
    }
}

fn layout() -> RegionLayout {
    RegionLayout::new(MIN_RING_BYTES, INSTRUMENTS as usize, MAX_LEVELS_PER_SIDE).unwrap()
}

#[test]
fn no_reader_process_ever_sees_a_torn_record() {
    let roles = [Role::Copy, Role::Skip, Role::Hold];
    let memory = Memory::create(&layout(), roles.len());
    let mut publisher = Publisher::create(&memory, &layout());
    let mut readers = Readers::start(&memory, &roles);
    for _ in 0..ROUNDS {
        publisher.publish(CALM);
        readers.arrive(publisher.region.broadcast.committed());
        publisher.open_burst();
        publisher.publish(BURST);
        readers.arrive(publisher.region.broadcast.committed());
    }
    publisher.publish(CALM);
    readers.arrive(publisher.region.broadcast.committed());
    publisher.region.header.set_state(RegionState::Closed);
    let counters = readers.join();
    for (role, counters) in roles.iter().zip(&counters) {
        assert!(counters.delivered >= CALM * (ROUNDS + 1), "{role:?}: {counters:?}");
        let all = counters.delivered + counters.conflated;
        assert_eq!(all, publisher.sequence, "{role:?}: {counters:?}");
    }
    let held = counters[2];
    assert!(held.lapped >= ROUNDS, "overwritten under its eyes in every round: {held:?}");
}

#[test]
fn lossless_reader_processes_get_every_record_in_place() {
    let roles = [Role::Lossless; 2];
    let memory = Memory::create(&layout(), roles.len());
    let mut publisher = Publisher::create(&memory, &layout());
    let mut readers = Readers::start(&memory, &roles);
    for _ in 0..LOSSLESS_RECORDS {
        let record = publisher.next_record(publisher.next_id());
        loop {
            let tail = publisher.region.broadcast.commit();
            let consumed = readers.cells.iter_mut().map(|cell| cell.consumed(tail).unwrap());
            let limit = Position(consumed.min().unwrap().0 + MIN_RING_BYTES);
            if publisher.region.publish_within(limit, &record).is_ok() {
                break;
            }
            readers.check_alive();
            std::thread::yield_now();
        }
    }
    publisher.region.broadcast.commit();
    publisher.region.header.set_state(RegionState::Closed);
    for counters in readers.join() {
        assert_eq!((counters.delivered, counters.lapped), (LOSSLESS_RECORDS, 0));
    }
}

/// What a started process does; by itself there is nothing to test.
#[test]
#[ignore = "started by the other tests of this file"]
fn reader_process() {
    let role = std::env::var(ROLE).expect("started by the other tests of this file");
    // SAFETY: no memory is involved; a process without a parent has nobody to read for.
    let set = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    assert_eq!(set, 0);
    let numbers: Vec<usize> = role.split(' ').map(|number| number.parse().unwrap()).collect();
    let [role, region, cells, index] = numbers[..] else { panic!("role is {role:?}") };
    // SAFETY: the parent left these two descriptors open for this process and nothing else in it
    // knows them.
    let region = unsafe { File::from_raw_fd(region as RawFd) };
    // SAFETY: the second of the two descriptors that the parent left open for this process.
    let cells = unsafe { File::from_raw_fd(cells as RawFd) };
    let cell = map(&cells).part(index * CELL_WORDS, CELL_WORDS).unwrap();
    let region = RegionReader::open(map_read_only(&region)).unwrap();
    let cell = CellWriter::open(cell).unwrap();
    match Role::ALL[role] {
        Role::Lossless => read_lossless(&region, &cell),
        role => Conflating::new(&region, cell, role).read_all(),
    }
}

fn read_lossless(region: &RegionReader, cell: &CellWriter) {
    let ring = region.broadcast_at(cell.consumed()).unwrap();
    // SAFETY: the writer pushes within the least of the consumed positions plus the capacity, from
    // the first record on, and the position is announced below while nothing is lent.
    let mut ring = unsafe { GatedReader::new(ring) };
    let mut counters = CellCounters::default();
    loop {
        let closed = region.state() == RegionState::Closed;
        while let Some(lent) = ring.lend().unwrap() {
            counters.delivered += 1;
            let (_, sequence) = prove(lent).expect("torn in spite of the gate");
            assert_eq!(sequence.0, counters.delivered);
        }
        cell.set_counters(&counters);
        cell.set_consumed(ring.position(), Sequence(counters.delivered));
        if closed {
            return;
        }
        std::thread::yield_now();
    }
}

struct Conflating<'a> {
    region: &'a RegionReader,
    ring: BroadcastReader,
    latest: LatestReader,
    cell: CellWriter,
    role: Role,
    buffer: RecordBuffer,
    counters: CellCounters,
    /// Number of the last record delivered or known to be passed over.
    last: u64,
    /// Whether records may be missing before the next one.
    lapped: bool,
}

impl<'a> Conflating<'a> {
    fn new(region: &'a RegionReader, cell: CellWriter, role: Role) -> Self {
        Self {
            region,
            ring: region.broadcast_at(cell.consumed()).unwrap(),
            latest: region.latest().unwrap(),
            cell,
            role,
            buffer: RecordBuffer::new(),
            counters: CellCounters::default(),
            last: 0,
            lapped: false,
        }
    }

    fn read_all(&mut self) {
        loop {
            let closed = self.region.state() == RegionState::Closed;
            let more = loop {
                match self.read() {
                    Ok(Some(sequence)) => self.deliver(sequence),
                    Ok(None) => break false,
                    Err(ReadError::Lapped { .. }) => self.recover(),
                    Err(error) => panic!("{error}"),
                }
            };
            self.cell.set_counters(&self.counters);
            self.cell.set_consumed(self.ring.position(), Sequence(self.last));
            if closed && !more {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Number of the next record, proven whole.
    fn read(&mut self) -> Result<Option<u64>, ReadError> {
        match self.role {
            Role::Hold => self.look(),
            Role::Skip if self.last % 2 == 1 => {
                let head = self.ring.peek()?;
                self.ring.skip();
                Ok(head.map(|head| {
                    assert_eq!(head.channel_sequence, head.instrument_sequence, "torn head");
                    head.instrument_sequence.0
                }))
            }
            _ => {
                let seen = self.ring.next(&mut self.buffer)?;
                Ok(seen.map(|bytes| prove(&bytes).expect("torn record").1.0))
            }
        }
    }

    /// Copies in place by hand, from an opening record only after the writer has overwritten it.
    fn look(&mut self) -> Result<Option<u64>, ReadError> {
        let (region, capacity) = (self.region, self.ring.capacity_bytes());
        let position = self.ring.position();
        let overtaken = || region.tail().0 - position.0 > capacity;
        let copied = self.ring.inspect(|raw: RawRecord<'_>| {
            let hold = raw.word(2) == Some(u64::from(OPENING.0));
            while hold && !overtaken() {
                std::thread::yield_now();
            }
            let words = (0..raw.len_bytes() / 8).flat_map(|place| raw.word(place));
            (hold, words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
        })?;
        let Some((held, bytes)) = copied else { return Ok(None) };
        assert!(!held, "delivered what was overwritten");
        Ok(Some(prove(&bytes).expect("torn record").1.0))
    }

    fn deliver(&mut self, sequence: u64) {
        let missing = sequence.checked_sub(self.last + 1).expect("delivered twice");
        assert!(missing == 0 || self.lapped, "{missing} missing before {sequence}");
        self.counters.delivered += 1;
        self.counters.conflated += missing;
        (self.last, self.lapped) = (sequence, false);
    }

    /// Continues at the tail. What the table then holds is whole, and not older than the tail.
    fn recover(&mut self) {
        self.counters.lapped += 1;
        self.lapped = true;
        let tail = self.ring.tail();
        let published = self.ring.channel_sequence().0;
        self.ring.seek(tail);
        let (mut newest, mut busy) = (0, false);
        for id in (0..INSTRUMENTS).map(InstrumentId) {
            match self.latest.load(id, &mut self.buffer) {
                Ok(seen) => {
                    let sequence = seen.map(|bytes| {
                        let (whose, sequence) = prove(&bytes).expect("torn latest record");
                        assert_eq!(whose, id);
                        sequence.0
                    });
                    newest = newest.max(sequence.unwrap_or(0));
                }
                Err(_) => busy = true,
            }
        }
        assert!(busy || newest >= published, "the table is older than the tail");
    }
}
