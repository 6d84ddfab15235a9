//! The publisher's completion queue, one for all sessions.

use std::collections::VecDeque;

use tapecast_wire::SessionId;

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Its bytes have arrived.
    Done,
    /// The peer's memory refused it, or the peer is gone.
    Failed,
    /// No receive was posted for its immediate.
    ReceiverNotReady,
    /// It was outstanding when its queue pair went into error.
    Flushed,
}

/// One work completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) session: SessionId,
    pub(super) status: Status,
    /// Work requests that it retires: itself and the unsignaled ones before it.
    pub(super) retires: u32,
}

/// A bounded queue of completions. A real device that overruns it is dead, so the sum of all send
/// queues must fit.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    entries: VecDeque<Completion>,
    depth: usize,
}

impl CompletionQueue {
    pub(super) fn new(depth: usize) -> Self {
        Self { entries: VecDeque::with_capacity(depth), depth }
    }

    pub(super) fn push(&mut self, completion: Completion) {
        assert!(self.entries.len() < self.depth, "the completion queue of {} overran", self.depth);
        self.entries.push_back(completion);
    }

    pub(super) fn poll(&mut self) -> Option<Completion> {
        self.entries.pop_front()
    }
}
