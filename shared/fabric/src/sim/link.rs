//! What publisher and subscriber share: memory on both sides, and the switches for faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tapecast_core::credit::WindowSize;
use tapecast_ring::cell::CELL_WORDS;
use tapecast_ring::{CellWriter, WordsMut};
use tapecast_wire::{Position, Sequence};

use super::mail::Mail;
use crate::rings::CONTROL_WORDS;

/// One session's memory, on both sides of the network.
#[derive(Debug)]
pub(super) struct Link {
    /// The subscriber's ring; written by the publisher's device only.
    pub(super) ring: WordsMut,
    /// The publisher's cell; written by the subscriber only, after the attach.
    pub(super) cell: WordsMut,
    /// What the subscriber has written and the cell does not show yet.
    pub(super) mail: Mail,
    pub(super) receives: ReceiveQueue,
    /// The subscriber's control block; written by the publisher's device only.
    pub(super) control: WordsMut,
    pub(super) switches: Switches,
    /// The queue pair is in error at both ends: nothing more arrives.
    broken: AtomicBool,
}

impl Link {
    pub(super) fn new(window: WindowSize) -> Self {
        let ring_words = window.ring_bytes() as usize / size_of::<u64>();
        Self {
            ring: WordsMut::heap(ring_words),
            cell: WordsMut::heap(CELL_WORDS),
            mail: Mail::default(),
            receives: ReceiveQueue::new(window.receive_depth()),
            control: WordsMut::heap(CONTROL_WORDS),
            switches: Switches::default(),
            broken: AtomicBool::new(false),
        }
    }

    /// Release: what arrived before is seen by whoever sees the break.
    pub(super) fn break_off(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}

/// The subscriber's receive queue: how many receives it has posted, and what immediates arrived.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    immediates: Box<[AtomicU32]>,
    posted: AtomicU64,
    arrived: AtomicU64,
}

impl ReceiveQueue {
    fn new(depth: u32) -> Self {
        Self {
            immediates: (0..depth).map(|_| AtomicU32::new(0)).collect(),
            posted: AtomicU64::new(u64::from(depth)),
            arrived: AtomicU64::new(0),
        }
    }

    pub(super) const fn depth(&self) -> u64 {
        self.immediates.len() as u64
    }

    /// The device delivers an immediate. Returns false when no receive is posted: RNR.
    pub(super) fn deliver(&self, immediate: u32) -> bool {
        let arrived = self.arrived.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `post`, so the slot that is written here was read.
        if arrived == self.posted.load(Ordering::Acquire) {
            return false;
        }
        let slot = (arrived % self.depth()) as usize;
        self.immediates[slot].store(immediate, Ordering::Relaxed);
        // Release: pairs with the Acquire in `arrived`: the record's bytes are visible to whoever
        // sees the immediate, which is what a work completion promises.
        self.arrived.store(arrived + 1, Ordering::Release);
        true
    }

    /// Immediates that ever arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Acquire)
    }

    /// The `nth` immediate, counted from 0; it has arrived and its receive was not posted again.
    pub(super) fn immediate(&self, nth: u64) -> u32 {
        self.immediates[(nth % self.depth()) as usize].load(Ordering::Relaxed)
    }

    /// The subscriber posts receives; `posted` counts all it ever posted.
    pub(super) fn post(&self, posted: u64) {
        self.posted.store(posted, Ordering::Release);
    }
}

/// What a test has switched on.
#[derive(Debug, Default)]
pub(super) struct Switches {
    pub(super) paused: AtomicBool,
    pub(super) killed: AtomicBool,
    pub(super) fail_next: AtomicBool,
    pub(super) completion_delay: AtomicU32,
    pub(super) credit_delay: AtomicU32,
}

/// Switches for what can go wrong with one session. Clones switch the same one.
#[derive(Clone, Debug)]
pub struct SimFaults {
    link: Arc<Link>,
}

impl SimFaults {
    pub(super) const fn new(link: Arc<Link>) -> Self {
        Self { link }
    }

    /// Stops the subscriber as SIGSTOP would: its memory goes on taking writes, it reads nothing,
    /// gives no credit and no sign of life.
    pub fn pause(&self) {
        self.link.switches.paused.store(true, Ordering::Relaxed);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.link.switches.paused.store(false, Ordering::Relaxed);
    }

    /// Kills the subscriber: the next write into its memory fails.
    pub fn kill(&self) {
        self.link.switches.killed.store(true, Ordering::Relaxed);
    }

    /// Makes the next write into its memory fail, as a withdrawn memory key would.
    pub fn fail_next_write(&self) {
        self.link.switches.fail_next.store(true, Ordering::Relaxed);
    }

    /// Makes every completion of the session come this many turns later than it would.
    pub fn delay_completions(&self, ticks: u32) {
        self.link.switches.completion_delay.store(ticks, Ordering::Relaxed);
    }

    /// Makes what the subscriber says (credit, figures, requests) arrive this many turns later.
    pub fn delay_credit(&self, ticks: u32) {
        self.link.switches.credit_delay.store(ticks, Ordering::Relaxed);
    }

    /// Writes a consumed position into the cell, whatever the truth is.
    pub fn claim_consumed(&self, position: Position) {
        self.link.mail.lose();
        if let Ok(cell) = CellWriter::open(self.link.cell.clone()) {
            cell.set_consumed(position, Sequence(0));
            cell.seal_credit();
        }
    }

    /// Writes a number of posted receives into the cell, whatever the truth is.
    pub fn claim_receives(&self, posted: u64) {
        self.link.mail.lose();
        if let Ok(cell) = CellWriter::open(self.link.cell.clone()) {
            cell.set_receives(posted);
            cell.seal_credit();
        }
    }
}
