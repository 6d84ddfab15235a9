//! The sender's side: queue pairs, one completion queue, and pages that stay out until the work
//! requests that point at them have completed.

use std::sync::{Arc, Weak};

use tapecast_core::credit::Placement;
use tapecast_ring::WordsMut;
use tapecast_ring::remote::TAIL_UNIT_BYTES;
use tapecast_wire::limits::MAX_SUBSCRIBERS;
use tapecast_wire::rdma::{RdmaOffer, RemoteMemory};
use tapecast_wire::{Position, SessionId, encode_padding};

use super::completion::{Completion as WorkCompletion, CompletionQueue, Status as WorkStatus};
use super::config::MAX_GATHER;
use super::memory::MemoryRegion;
use super::queue_pair::{QueuePair, State};
use super::send_queue::{SendCounts, SendQueue};
use crate::QueuePairStates;
use crate::pool::Shared;
use crate::rings::{
    Breaker, Completed, Completion, Control, Line, Lines, Network, PostFailed, Sent, Status,
};

/// Completions taken out of the device's queue at once.
const POLL_BATCH: usize = 32;
/// Bits of a line's generation in the tag of its work requests.
const GENERATION_BITS: u32 = 24;

const _: () = assert!(MAX_SUBSCRIBERS <= 1 << (u32::BITS - GENERATION_BITS));

/// What the network has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Completions polled.
    pub completions: u64,
    /// Completions of sessions that were gone by then.
    pub strays: u64,
    /// Most completions found before the queue was empty: what it held at least once.
    pub completions_high_water: u32,
    /// Whether the completion queue was lost: nothing can be sent any more.
    pub lost: bool,
}

/// One device's completion queue, and how to read it.
#[derive(Debug)]
pub struct VerbsNetwork {
    completions: CompletionQueue,
    batch: [WorkCompletion; POLL_BATCH],
    next: usize,
    count: usize,
    /// Completions since the queue was empty.
    in_a_row: u32,
    /// How often each session's place was given away.
    generations: [u32; MAX_SUBSCRIBERS],
    counts: NetworkCounts,
}

impl VerbsNetwork {
    pub(super) fn new(completions: CompletionQueue) -> Self {
        Self {
            completions,
            batch: [WorkCompletion::EMPTY; POLL_BATCH],
            next: 0,
            count: 0,
            in_a_row: 0,
            generations: [0; MAX_SUBSCRIBERS],
            counts: NetworkCounts::default(),
        }
    }

    /// What was done so far.
    #[must_use]
    pub const fn counts(&self) -> NetworkCounts {
        self.counts
    }

    fn next_completion(&mut self) -> Option<WorkCompletion> {
        if self.next == self.count {
            self.next = 0;
            // A queue that is lost says nothing any more.
            self.count = self.completions.poll(&mut self.batch).unwrap_or_else(|_| {
                self.counts.lost = true;
                0
            });
            if self.count == 0 {
                self.in_a_row = 0;
                return None;
            }
            self.in_a_row += self.count as u32;
            let high_water = &mut self.counts.completions_high_water;
            *high_water = self.in_a_row.max(*high_water);
            self.counts.completions += self.count as u64;
        }
        let completion = self.batch[self.next];
        self.next += 1;
        Some(completion)
    }
}

/// Pages that one work request reads.
#[derive(Debug, Default)]
struct Pages {
    records: [Option<Shared>; MAX_GATHER as usize],
    count: usize,
}

impl Pages {
    fn add(&mut self, record: Shared) {
        self.records[self.count] = Some(record);
        self.count += 1;
    }

    /// Returns how many there were.
    fn release(&mut self) -> usize {
        for record in &mut self.records[..self.count] {
            *record = None;
        }
        core::mem::take(&mut self.count)
    }
}

/// One session's queue pair and its work requests.
///
/// Fields are dropped in order: the queue pair first, so that the device reads and writes nothing
/// any more when the pages return and the cell goes.
#[derive(Debug)]
pub struct VerbsLine {
    queue_pair: Arc<QueuePair>,
    queue: SendQueue,
    /// By slot of the send queue.
    pages: Box<[Pages]>,
    /// Records in `pages`.
    records: usize,
    pool: MemoryRegion,
    cell: WordsMut,
    ring: RemoteMemory,
    ring_bytes: u64,
    control: RemoteMemory,
}

/// Sizes of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineSize {
    pub(super) depth: u32,
    pub(super) gather: u32,
    pub(super) signal_every: u32,
}

impl VerbsLine {
    pub(super) fn new(
        queue_pair: QueuePair,
        pool: MemoryRegion,
        cell: &MemoryRegion,
        offer: &RdmaOffer,
        size: LineSize,
    ) -> Self {
        let LineSize { depth, gather, signal_every } = size;
        Self {
            queue_pair: Arc::new(queue_pair),
            queue: SendQueue::new(depth, gather, signal_every),
            pages: (0..depth).map(|_| Pages::default()).collect(),
            records: 0,
            pool,
            // The words keep the region registered.
            cell: cell.words(),
            ring: offer.ring,
            ring_bytes: offer.ring_bytes,
            control: offer.control,
        }
    }

    /// What was sent so far.
    #[must_use]
    pub const fn counts(&self) -> SendCounts {
        self.queue.counts()
    }

    fn at(&self, position: Position) -> RemoteMemory {
        let offset = position.0 & (self.ring_bytes - 1);
        RemoteMemory { address: self.ring.address + offset, key: self.ring.key }
    }

    fn retire(&mut self, number: u32) -> u32 {
        let Some(count) = self.queue.retire(number) else { return 0 };
        for slot in self.queue.retired_slots(count) {
            self.records -= self.pages[slot].release();
        }
        count
    }
}

/// Breaks a queue pair off, unless it is gone already.
#[derive(Clone, Debug)]
pub struct VerbsBreaker(Weak<QueuePair>);

impl Breaker for VerbsBreaker {
    fn break_off(&self) {
        if let Some(queue_pair) = self.0.upgrade() {
            stop(&queue_pair);
        }
    }
}

fn stop(queue_pair: &QueuePair) {
    if queue_pair.state() != State::Err {
        // It fails when the device is gone, and with it everything that was posted.
        let _stopped = queue_pair.to_error();
    }
}

impl Line for VerbsLine {
    type Breaker = VerbsBreaker;

    fn cell(&self) -> &WordsMut {
        &self.cell
    }

    fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    fn retired(&self) -> u64 {
        self.queue.retired()
    }

    fn records(&self) -> usize {
        self.records
    }

    fn drop_staged(&mut self) -> u32 {
        let Self { queue, pages, records, .. } = self;
        queue.drop_staged(|slot| *records -= pages[slot].release())
    }

    fn count_state(&self, states: &mut QueuePairStates) {
        *match self.queue_pair.state() {
            State::Reset | State::Init => &mut states.preparing,
            State::Rtr => &mut states.ready_to_receive,
            State::Rts => &mut states.ready_to_send,
            State::Err => &mut states.failed,
        } += 1;
    }

    fn sent(&self) -> Sent {
        let SendCounts { work_requests, doorbells, bytes } = self.queue.counts();
        Sent { work_requests, doorbells, bytes }
    }

    fn breaker(&self) -> VerbsBreaker {
        VerbsBreaker(Arc::downgrade(&self.queue_pair))
    }
}

const fn tail_units(tail: Position) -> u32 {
    (tail.0 / TAIL_UNIT_BYTES) as u32
}

impl Network for VerbsNetwork {
    type Line = VerbsLine;

    fn connect(&mut self, id: SessionId, line: &mut VerbsLine) {
        let generation = &mut self.generations[id.index()];
        *generation = (*generation + 1) & ((1 << GENERATION_BITS) - 1);
        line.queue.set_tag(id.0 << GENERATION_BITS | *generation);
    }

    #[inline]
    fn stage(&mut self, line: &mut VerbsLine, record: Shared, placement: &Placement) {
        if let Some(padding) = placement.padding {
            let head = encode_padding(padding.bytes as usize);
            line.queue.stage_inline(line.at(padding.position), &head.to_le_bytes());
        }
        let units = tail_units(placement.end());
        if placement.opens {
            line.queue.stage_write(line.at(placement.position), Some(units));
        } else {
            line.queue.set_immediate(units);
        }
        line.queue.push(&line.pool, record.offset(), record.bytes().len());
        line.pages[line.queue.last_slot()].add(record);
        line.records += 1;
    }

    #[inline]
    fn post(&mut self, line: &mut VerbsLine) -> Result<(), PostFailed> {
        if self.counts.lost { Err(PostFailed) } else { line.queue.post(&line.queue_pair) }
    }

    fn stage_control(&mut self, line: &mut VerbsLine, control: Control) {
        let mut bytes = [0; Control::USED_WORDS * size_of::<u64>()];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(control.words()) {
            *to = u64::to_le_bytes(word);
        }
        line.queue.stage_inline(line.control, &bytes);
    }

    fn break_off(&mut self, _id: SessionId, line: &mut VerbsLine) {
        stop(&line.queue_pair);
    }

    const TIME_IS_TURNS: bool = false;

    /// The device needs nobody to make it move.
    fn step(&mut self, _lines: &mut Lines<VerbsLine>) -> usize {
        0
    }

    fn poll(&mut self, lines: &mut Lines<VerbsLine>) -> Option<Completion> {
        loop {
            let WorkCompletion { wr_id, status, .. } = self.next_completion()?;
            let (tag, number) = ((wr_id >> u32::BITS) as u32, wr_id as u32);
            let session = SessionId(tag >> GENERATION_BITS);
            let side = lines.get_mut(session.index()).and_then(Option::as_mut);
            let Some(side) = side.filter(|side| side.line.queue.tag() == tag) else {
                self.counts.strays += 1;
                continue;
            };
            let retires = side.line.retire(number);
            if status != WorkStatus::Success {
                side.line.queue_pair.note_failure();
            }
            let status = match status {
                WorkStatus::Success => Status::Done,
                WorkStatus::Flushed => Status::Flushed,
                WorkStatus::RnrRetryExceeded => Status::ReceiverNotReady,
                WorkStatus::RemoteAccess | WorkStatus::RetryExceeded | WorkStatus::Other(_) => {
                    Status::Failed
                }
            };
            return Some(Completion { session, status, retires });
        }
    }

    fn completed(&self) -> Completed {
        let NetworkCounts { completions, strays, completions_high_water, .. } = self.counts;
        Completed { completions, strays, high_water: u64::from(completions_high_water) }
    }

    fn linger(&self) -> bool {
        !self.counts.lost
    }
}
