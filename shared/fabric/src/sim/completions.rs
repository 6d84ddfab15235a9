//! The publisher's completion queue, one for all sessions.

use std::collections::VecDeque;

use crate::rings::Completion;

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
