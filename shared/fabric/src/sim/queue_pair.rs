//! One session's queue pair and the part of the device that serves it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tapecast_core::SignalRule;
use tapecast_core::credit::Padding;
use tapecast_core::planted::{Planted, is_planted};
use tapecast_ring::remote::TAIL_UNIT_BYTES;
use tapecast_wire::limits::WORD_BYTES;
use tapecast_wire::{Position, SessionId, encode_padding};

use super::completions::CompletionQueue;
use super::link::Link;
use crate::pool::Shared;
use crate::rings::{Completion, Control, Status};

/// Records that one work request can gather.
pub const MAX_GATHER: usize = 16;

#[derive(Debug)]
struct Piece {
    bytes: Shared,
    position: Position,
}

/// What a work request does when it executes.
#[expect(clippy::large_enum_variant, reason = "most are records, and boxing would allocate")]
#[derive(Debug)]
enum Work {
    /// Writes records one behind the other into the ring, then delivers the tail as the immediate.
    Records { pieces: [Option<Piece>; MAX_GATHER], count: usize, tail: Position },
    /// Writes the head of a padding record; no immediate.
    Pad(Padding),
    /// Writes the control block; no immediate.
    Control(Control),
}

#[derive(Debug)]
struct WorkRequest {
    work: Work,
    /// Work requests that its completion retires; `None` when it is unsignaled.
    signaled: Option<u32>,
    executes_at: u64,
    completes_at: u64,
    /// Its pages were given back before it was done with them.
    #[cfg(feature = "planted")]
    released: bool,
}

impl WorkRequest {
    const fn new(work: Work) -> Self {
        Self {
            work,
            signaled: None,
            executes_at: 0,
            completes_at: 0,
            #[cfg(feature = "planted")]
            released: false,
        }
    }

    /// It has left the queue: its pages return when nobody else refers to them.
    fn let_go(self) {
        #[cfg(feature = "planted")]
        if self.released {
            core::mem::forget(self.work);
        }
    }

    /// The planted bug: gives up the references while the device still has to read the bytes.
    #[cfg(feature = "planted")]
    fn release_pages_early(&mut self) {
        let Work::Records { pieces, .. } = &self.work else { return };
        if !core::mem::replace(&mut self.released, true) {
            pieces.iter().flatten().for_each(|piece| piece.bytes.release_early());
        }
    }
}

/// Numbers that look random and are the same for the same seed (SplitMix64).
#[derive(Debug)]
pub(super) struct Dice {
    state: u64,
}

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number from 0 to `max`.
    fn up_to(&mut self, max: u32) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % (u64::from(max) + 1)
    }
}

/// Longest delays, in turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    pub(super) execute: u32,
    pub(super) complete: u32,
}

/// One session's send queue. Nothing in it allocates after it was made.
///
/// ```text
/// posted   [ executed and completed | executed | waiting ]     staged [ built, not posted ]
///            ▲ completed             ▲ executed
/// ```
///
/// # Invariants
/// `completed <= executed <= posted.len()`; a work request leaves `posted` when a completion that
/// retires it is polled.
#[derive(Debug)]
pub(super) struct QueuePair {
    link: Arc<Link>,
    staged: VecDeque<WorkRequest>,
    posted: VecDeque<WorkRequest>,
    executed: usize,
    completed: usize,
    retired: u64,
    signal: SignalRule,
    delays: Delays,
    in_error: bool,
}

impl QueuePair {
    pub(super) fn new(link: Arc<Link>, depth: u32, signal_every: u32, delays: Delays) -> Self {
        Self {
            link,
            staged: VecDeque::with_capacity(depth as usize),
            posted: VecDeque::with_capacity(depth as usize),
            executed: 0,
            completed: 0,
            retired: 0,
            signal: SignalRule::new(signal_every),
            delays,
            in_error: false,
        }
    }

    pub(super) const fn is_in_error(&self) -> bool {
        self.in_error
    }

    /// Work requests begun and not retired.
    pub(super) fn outstanding(&self) -> usize {
        self.staged.len() + self.posted.len()
    }

    /// Work requests ever retired.
    pub(super) const fn retired(&self) -> u64 {
        self.retired
    }

    /// Records that these refer to.
    pub(super) fn records(&self) -> usize {
        let of = |request: &WorkRequest| match request.work {
            Work::Records { count, .. } => count,
            Work::Pad(_) | Work::Control(_) => 0,
        };
        self.staged.iter().chain(&self.posted).map(of).sum()
    }

    pub(super) fn stage_padding(&mut self, padding: Padding) {
        self.stage(Work::Pad(padding));
    }

    /// Begins a work request with one record.
    pub(super) fn stage_open(&mut self, bytes: Shared, position: Position, tail: Position) {
        let mut pieces = [const { None }; MAX_GATHER];
        pieces[0] = Some(Piece { bytes, position });
        self.stage(Work::Records { pieces, count: 1, tail });
    }

    /// Adds a record to the work request that was begun last.
    pub(super) fn stage_more(&mut self, bytes: Shared, position: Position, end: Position) {
        let open = self.staged.back_mut().map(|request| &mut request.work);
        let Some(Work::Records { pieces, count, tail }) = open else {
            panic!("a record joins a work request that was not begun");
        };
        assert!(*tail == position, "a gathered record at {position}, not at {tail}");
        pieces[*count] = Some(Piece { bytes, position });
        *count += 1;
        *tail = end;
    }

    /// Stages a write of the control block.
    pub(super) fn stage_control(&mut self, control: Control) {
        self.stage(Work::Control(control));
    }

    fn stage(&mut self, work: Work) {
        self.staged.push_back(WorkRequest::new(work));
    }

    /// Posts what is staged, as one burst.
    pub(super) fn post(&mut self, tick: u64, dice: &mut Dice) {
        while let Some(request) = self.staged.pop_front() {
            let is_last = self.staged.is_empty();
            self.post_one(request, is_last, tick, dice);
        }
    }

    fn post_one(&mut self, request: WorkRequest, is_last: bool, tick: u64, dice: &mut Dice) {
        let signaled = self.signal.next(is_last);
        let before =
            self.posted.back().map_or((0, 0), |last| (last.executes_at, last.completes_at));
        let executes_at = before.0.max(tick + dice.up_to(self.delays.execute));
        let completes_at = before.1.max(executes_at + dice.up_to(self.delays.complete));
        self.posted.push_back(WorkRequest { signaled, executes_at, completes_at, ..request });
    }

    /// Lets the device do what is due. Returns how many work requests moved on.
    pub(super) fn step(
        &mut self,
        id: SessionId,
        tick: u64,
        completions: &mut CompletionQueue,
    ) -> usize {
        let before = self.executed + self.completed;
        if self.in_error {
            self.flush_late(id, completions);
        }
        while !self.in_error && self.executed < self.posted.len() {
            let request = &self.posted[self.executed];
            if request.executes_at > tick {
                break;
            }
            match execute(&self.link, &request.work) {
                Status::Done => self.executed += 1,
                status => self.fail(id, status, completions),
            }
        }
        let delay = self.link.switches.completion_delay.load(Ordering::Relaxed);
        while self.completed < self.executed {
            let request = &self.posted[self.completed];
            if request.completes_at + u64::from(delay) > tick {
                break;
            }
            self.complete_next(id, Status::Done, completions);
        }
        self.executed + self.completed - before
    }

    fn complete_next(&mut self, id: SessionId, status: Status, completions: &mut CompletionQueue) {
        let signaled = self.posted[self.completed].signaled;
        self.completed += 1;
        if let Some(retires) = signaled {
            completions.push(Completion { session: id, status, retires });
        }
    }

    /// The next work request ends with `status`, and the queue pair is in error.
    fn fail(&mut self, id: SessionId, status: Status, completions: &mut CompletionQueue) {
        // An error completion implies that everything before it succeeded.
        while self.completed < self.executed {
            self.complete_next(id, Status::Done, completions);
        }
        self.enter_error(id, status, completions);
    }

    /// Puts the queue pair into error: each outstanding work request becomes a completion, the
    /// first with `first`, whether it is signaled or not.
    pub(super) fn enter_error(
        &mut self,
        id: SessionId,
        first: Status,
        completions: &mut CompletionQueue,
    ) {
        self.in_error = true;
        self.link.break_off();
        let mut retires = self.unretired_before(self.completed) + 1;
        let mut status = first;
        for _ in self.completed..self.last_to_flush() {
            completions.push(Completion { session: id, status, retires });
            retires = 1;
            status = Status::Flushed;
        }
        self.executed = self.posted.len();
        self.completed = self.posted.len();
    }

    /// What is posted to a queue pair in error is flushed. Its publisher may not know yet: it polls
    /// so many completions in a turn, and all sessions may fail at once.
    fn flush_late(&mut self, id: SessionId, completions: &mut CompletionQueue) {
        for _ in self.completed..self.posted.len() {
            completions.push(Completion { session: id, status: Status::Flushed, retires: 1 });
        }
        self.executed = self.posted.len();
        self.completed = self.posted.len();
    }

    fn last_to_flush(&self) -> usize {
        let last = self.posted.len();
        let several = last - self.completed > 1;
        if several && is_planted(Planted::FlushNotCounted) { last - 1 } else { last }
    }

    /// Unsignaled work requests right before `index` that no completion covers yet.
    fn unretired_before(&self, index: usize) -> u32 {
        let unsignaled = |request: &&WorkRequest| request.signaled.is_none();
        self.posted.range(..index).rev().take_while(unsignaled).count() as u32
    }

    /// Forgets work requests that were staged and never posted. Returns how many.
    pub(super) fn drop_staged(&mut self) -> u32 {
        let count = self.staged.len() as u32;
        self.staged.clear();
        count
    }

    /// A completion was polled: the oldest `count` work requests let go of their pages.
    pub(super) fn retire(&mut self, count: u32) {
        let count = count as usize;
        assert!(count <= self.completed, "{count} retired, {} completed", self.completed);
        for request in self.posted.drain(..count) {
            request.let_go();
        }
        #[cfg(feature = "planted")]
        if is_planted(Planted::PageReleasedEarly)
            && let Some(next) = self.posted.front_mut()
        {
            next.release_pages_early();
        }
        self.retired += count as u64;
        self.completed -= count;
        self.executed -= count;
    }
}

#[cfg(feature = "planted")]
impl Drop for QueuePair {
    fn drop(&mut self) {
        // What was released early must not be released again.
        self.posted.drain(..).for_each(WorkRequest::let_go);
    }
}

fn execute(link: &Link, work: &Work) -> Status {
    let refused = link.switches.fail_next.swap(false, Ordering::Relaxed);
    if refused || link.switches.killed.load(Ordering::Relaxed) {
        return Status::Failed;
    }
    match work {
        Work::Control(control) => {
            for (index, word) in control.words().into_iter().enumerate() {
                let stored = link.control.store(index, word);
                assert!(stored.is_some(), "a control block has room for what is written");
            }
            Status::Done
        }
        Work::Pad(padding) => {
            let head = encode_padding(padding.bytes as usize);
            write(link, padding.position, &head.to_le_bytes());
            Status::Done
        }
        Work::Records { pieces, count, tail } => {
            for piece in pieces[..*count].iter().flatten() {
                write(link, piece.position, piece.bytes.bytes());
            }
            let immediate = (tail.0 / TAIL_UNIT_BYTES) as u32;
            if link.receives.deliver(immediate) { Status::Done } else { Status::ReceiverNotReady }
        }
    }
}

/// Writes whole words into the subscriber's ring.
fn write(link: &Link, position: Position, bytes: &[u8]) {
    let ring_words = link.ring.len();
    let first = (position.0 as usize / WORD_BYTES) & (ring_words - 1);
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    debug_assert!(rest.is_empty(), "records are whole words");
    for (index, word) in words.iter().enumerate() {
        let stored = link.ring.store(first + index, u64::from_le_bytes(*word));
        assert!(stored.is_some(), "a record at {position} spans the ring's end");
    }
}
