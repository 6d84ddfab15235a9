//! Chains of receives, made once and posted often. Nothing here allocates after construction.

use std::fmt;
use std::ptr;

use rustix::io::Errno;

use super::ffi;
use super::queue_pair::{QueuePair, State};

/// The device did not take all of a chain. The rest is forgotten. The queue pair is of no more use
/// unless its owner knows why: bring it to the error state and wait for the flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "only {posted} work requests were posted ({errno}): more than the queue pair's depth are \
     outstanding, or it is not connected"
)]
pub(super) struct PostError {
    /// Work requests that the device took; they complete, or are flushed.
    pub(super) posted: usize,
    /// What it said.
    pub(super) errno: Errno,
}

/// Receives without memory: each takes one write with an immediate number.
pub(super) struct ReceiveChain {
    requests: Box<[ffi::ibv_recv_wr]>,
}

// SAFETY: its pointers are null or point into its own box, and are set anew for each posting.
unsafe impl Send for ReceiveChain {}

impl ReceiveChain {
    /// Posts up to `depth` in one call, at least 1; each completes with the number `wr_id`.
    pub(super) fn new(depth: usize, wr_id: u64) -> Self {
        let (next, sg_list) = (ptr::null_mut(), ptr::null_mut());
        let requests = (0..depth.max(1))
            .map(|_| ffi::ibv_recv_wr { wr_id, next, sg_list, num_sge: 0 })
            .collect();
        Self { requests }
    }

    /// Posts `count` receives, in as few calls as that takes.
    ///
    /// # Errors
    /// [`PostError`] says how many were posted nevertheless.
    pub(super) fn post(&mut self, queue_pair: &QueuePair, count: usize) -> Result<(), PostError> {
        if queue_pair.state() == State::Reset {
            return Err(PostError { posted: 0, errno: Errno::INVAL });
        }
        let mut posted = 0;
        while posted < count {
            let batch = (count - posted).min(self.requests.len());
            let first = self.link(batch);
            let mut bad = ptr::null_mut();
            // SAFETY: the queue pair is valid, and `link` made a chain of `batch` requests without
            // memory in a box of this value, which the library has copied when it returns.
            let errno = unsafe { ffi::ibv_post_recv(queue_pair.as_ptr(), first, &raw mut bad) };
            if errno != 0 {
                let taken = position(first.addr(), bad.addr(), size_of::<ffi::ibv_recv_wr>());
                let errno = Errno::from_raw_os_error(errno.saturating_abs());
                return Err(PostError { posted: posted + taken.min(batch), errno });
            }
            posted += batch;
        }
        Ok(())
    }

    fn link(&mut self, count: usize) -> *mut ffi::ibv_recv_wr {
        let first = self.requests.as_mut_ptr();
        for slot in 0..count {
            let last = slot + 1 == count;
            let next = if last { ptr::null_mut() } else { first.wrapping_add(slot + 1) };
            // SAFETY: `slot` is below the number of requests, so this is one of them, and nothing
            // else refers to it here.
            unsafe { (*first.wrapping_add(slot)).next = next };
        }
        first
    }
}

impl fmt::Debug for ReceiveChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveChain").field("depth", &self.requests.len()).finish()
    }
}

/// Where in a chain the request is that the device refused. Some devices do not say (0), then
/// nothing counts as posted.
const fn position(first: usize, bad: usize, bytes: usize) -> usize {
    bad.saturating_sub(first) / bytes
}
