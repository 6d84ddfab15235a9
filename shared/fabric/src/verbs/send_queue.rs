//! One queue pair's work requests on their way: staged, posted, retired.
//!
//! ```text
//! number   retired            posted             staged
//! ────────────┼──────────────────┼──────────────────┼───────────►
//!    slot free │ the device's     │ built, not       │ free
//!    again     │                  │ posted           │
//! ```
//!
//! Work requests are numbered from 0 on, and number `n` is in slot `n mod depth`. A completion
//! names one of them, and retires it together with all before it: work requests of one queue pair
//! complete in order. So it does not matter which of them were signaled, or whether a failure
//! flushed them.

use std::ptr;

use tapecast_core::SignalRule;
use tapecast_wire::limits::RECORD_ALIGN_BYTES;
use tapecast_wire::rdma::RemoteMemory;

use super::ffi;
use super::memory::MemoryRegion;
use super::queue_pair::{QueuePair, State};
use crate::rings::PostFailed;

/// Most bytes of an inline write. Every device that is worth using takes these.
pub(super) const INLINE_BYTES: usize = 64;

/// A send queue. Nothing in it allocates after it was made.
///
/// # Invariants
/// - `retired <= posted <= staged <= retired + depth`.
/// - The requests, elements and inline bytes are never moved while the queue lives: requests point
///   to elements and inline bytes.
pub(super) struct SendQueue {
    requests: Box<[ffi::ibv_send_wr]>,
    /// `gather` of them for each request.
    elements: Box<[ffi::ibv_sge]>,
    inline: Box<[[u8; INLINE_BYTES]]>,
    gather: usize,
    retired: u64,
    posted: u64,
    staged: u64,
    signal: SignalRule,
    /// Upper half of each work request's id: whose it is.
    tag: u32,
    counts: SendCounts,
}

/// What a send queue has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Work requests posted.
    pub work_requests: u64,
    /// Calls that posted them.
    pub doorbells: u64,
    /// Bytes that they write.
    pub bytes: u64,
}

// SAFETY: the pointers inside lead to this value's own boxes, which move along with it, and
// whatever they point to is changed only through `&mut self`.
unsafe impl Send for SendQueue {}

impl std::fmt::Debug for SendQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { retired, posted, staged, counts, .. } = self;
        f.debug_struct("SendQueue")
            .field("retired", retired)
            .field("posted", posted)
            .field("staged", staged)
            .field("counts", counts)
            .finish_non_exhaustive()
    }
}

impl SendQueue {
    /// A queue of `depth` work requests, each of which gathers up to `gather` pieces.
    pub(super) fn new(depth: u32, gather: u32, signal_every: u32) -> Self {
        let (depth, gather) = (depth as usize, gather.max(1) as usize);
        let empty = ffi::ibv_sge { addr: 0, length: 0, lkey: 0 };
        Self {
            requests: (0..depth).map(|_| zeroed_request()).collect(),
            elements: vec![empty; depth * gather].into_boxed_slice(),
            inline: vec![[0; INLINE_BYTES]; depth].into_boxed_slice(),
            gather,
            retired: 0,
            posted: 0,
            staged: 0,
            signal: SignalRule::new(signal_every),
            tag: 0,
            counts: SendCounts::default(),
        }
    }

    /// Marks the work requests from now on.
    pub(super) const fn set_tag(&mut self, tag: u32) {
        self.tag = tag;
    }

    /// The mark of the work requests from now on.
    pub(super) const fn tag(&self) -> u32 {
        self.tag
    }

    /// Work requests staged or posted, and not retired.
    pub(super) const fn outstanding(&self) -> usize {
        (self.staged - self.retired) as usize
    }

    /// Work requests ever retired.
    pub(super) const fn retired(&self) -> u64 {
        self.retired
    }

    /// Work requests that can be staged now.
    pub(super) const fn room(&self) -> usize {
        self.requests.len() - self.outstanding()
    }

    pub(super) const fn counts(&self) -> SendCounts {
        self.counts
    }

    /// The slot of the work request staged last.
    pub(super) const fn last_slot(&self) -> usize {
        self.slot(self.staged.wrapping_sub(1))
    }

    const fn slot(&self, number: u64) -> usize {
        (number % self.requests.len() as u64) as usize
    }

    /// Begins an RDMA Write without pieces, with an immediate when there is one. Returns its slot.
    ///
    /// # Panics
    /// When there is no room: the caller's window counts it.
    pub(super) fn stage_write(&mut self, to: RemoteMemory, immediate: Option<u32>) -> usize {
        let slot = self.begin(to);
        let request = &mut self.requests[slot];
        request.num_sge = 0;
        request.send_flags = 0;
        request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        if let Some(immediate) = immediate {
            request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
            request.imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
        }
        slot
    }

    /// Changes the immediate of the work request staged last.
    pub(super) fn set_immediate(&mut self, immediate: u32) {
        let slot = self.last_slot();
        self.requests[slot].imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
    }

    /// Adds `len` bytes at `offset` of `region` to the work request staged last. They follow the
    /// pieces before in the peer's memory, which each take up whole units of
    /// [`RECORD_ALIGN_BYTES`]; a piece that starts where the one before ends, joins it.
    ///
    /// The bytes are read when the device gets to it. Whoever staged it keeps them unchanged until
    /// the work request is retired; otherwise the peer sees what is there then.
    ///
    /// # Panics
    /// When the piece is not inside the region, or there are too many: bugs of the caller.
    #[inline]
    pub(super) fn push(&mut self, region: &MemoryRegion, offset: usize, len: usize) {
        assert!(len <= region.len() && offset <= region.len() - len, "a piece outside its region");
        let slot = self.last_slot();
        let request = &mut self.requests[slot];
        let pieces = &mut self.elements[slot * self.gather..(slot + 1) * self.gather];
        let address = region.address() + offset as u64;
        let count = request.num_sge as usize;
        if let Some(last) = pieces[..count].last_mut() {
            let padded = last.length.next_multiple_of(RECORD_ALIGN_BYTES as u32);
            if last.addr + u64::from(padded) == address && last.lkey == region.lkey() {
                last.length = padded + len as u32;
                return;
            }
            last.length = padded;
        }
        pieces[count] = ffi::ibv_sge { addr: address, length: len as u32, lkey: region.lkey() };
        request.num_sge += 1;
    }

    /// Stages an RDMA Write of a few bytes, which are copied now.
    ///
    /// # Panics
    /// When there is no room, or there are more than [`INLINE_BYTES`]: bugs of the caller.
    pub(super) fn stage_inline(&mut self, to: RemoteMemory, bytes: &[u8]) {
        let slot = self.begin(to);
        let copy = &mut self.inline[slot];
        copy[..bytes.len()].copy_from_slice(bytes);
        let piece = ffi::ibv_sge { addr: 0, length: bytes.len() as u32, lkey: 0 };
        self.elements[slot * self.gather] = piece;
        let request = &mut self.requests[slot];
        request.num_sge = 1;
        request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        request.send_flags = ffi::ibv_send_flags::IBV_SEND_INLINE.0;
    }

    fn begin(&mut self, to: RemoteMemory) -> usize {
        assert!(self.room() > 0, "a work request more than the queue holds");
        let (number, slot) = (self.staged, self.slot(self.staged));
        let request = &mut self.requests[slot];
        request.wr_id = u64::from(self.tag) << 32 | number & u64::from(u32::MAX);
        request.wr.rdma.remote_addr = to.address;
        request.wr.rdma.rkey = to.key;
        self.staged += 1;
        slot
    }

    /// Posts what is staged as one chain, with one doorbell. The last one is signaled.
    ///
    /// # Errors
    /// [`PostFailed`]; what the device did not take is still staged.
    pub(super) fn post(&mut self, queue_pair: &QueuePair) -> Result<(), PostFailed> {
        if self.posted == self.staged {
            return Ok(());
        }
        if !matches!(queue_pair.state(), State::Rts | State::Err) {
            // A device may keep what was posted too early, and say nothing.
            return Err(PostFailed);
        }
        let first = self.link();
        let mut refused = ptr::null_mut();
        // SAFETY: the queue pair is valid; the chain starts at `first`, ends with null, and its
        // requests, elements and inline bytes are this value's, which outlives the call. Elements
        // lie in registered regions, which were checked when they were pushed.
        let code = unsafe { ffi::ibv_post_send(queue_pair.as_ptr(), first, &raw mut refused) };
        self.counts.doorbells += 1;
        if code == 0 {
            self.counts.work_requests += self.staged - self.posted;
            self.posted = self.staged;
            return Ok(());
        }
        // Everything before the refused one was taken. Null says that nobody knows: nothing was.
        while self.posted < self.staged
            && !refused.is_null()
            && !ptr::eq(&raw const self.requests[self.slot(self.posted)], refused)
        {
            self.posted += 1;
        }
        Err(PostFailed)
    }

    /// Says which of the staged work requests are signaled, and chains them. Returns the first.
    ///
    /// All pointers are made anew, from the boxes as they are borrowed now.
    fn link(&mut self) -> *mut ffi::ibv_send_wr {
        self.mark();
        let requests = self.requests.as_mut_ptr();
        let elements = self.elements.as_mut_ptr();
        let inline = self.inline.as_mut_ptr();
        for number in self.posted..self.staged {
            let slot = self.slot(number);
            let next = requests.wrapping_add(self.slot(number + 1));
            let pieces = elements.wrapping_add(slot * self.gather);
            // SAFETY: `slot` is one of the requests, and nothing else refers to it here.
            let request = unsafe { &mut *requests.wrapping_add(slot) };
            request.next = if number + 1 == self.staged { ptr::null_mut() } else { next };
            request.sg_list = pieces;
            if request.send_flags & ffi::ibv_send_flags::IBV_SEND_INLINE.0 != 0 {
                let bytes = inline.wrapping_add(slot).expose_provenance() as u64;
                // SAFETY: this request's first piece, which nothing else refers to here.
                unsafe { (*pieces).addr = bytes };
            }
        }
        requests.wrapping_add(self.slot(self.posted))
    }

    fn mark(&mut self) {
        for number in self.posted..self.staged {
            let is_last = number + 1 == self.staged;
            let slot = self.slot(number);
            let pieces = &self.elements[slot * self.gather..];
            let request = &mut self.requests[slot];
            self.counts.bytes += pieces[..request.num_sge as usize]
                .iter()
                .map(|piece| u64::from(piece.length))
                .sum::<u64>();
            if self.signal.next(is_last).is_some() {
                request.send_flags |= ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
            }
        }
    }

    /// A completion names the work request with these low 32 bits of its number: it and all before
    /// it are retired. Returns how many that are; `None` for one that is not outstanding.
    pub(super) fn retire(&mut self, number: u32) -> Option<u32> {
        let count = number.wrapping_sub(self.retired as u32).wrapping_add(1);
        if u64::from(count) > self.posted - self.retired || count == 0 {
            return None;
        }
        self.retired += u64::from(count);
        Some(count)
    }

    /// The slots of the `count` work requests that were retired last.
    pub(super) fn retired_slots(&self, count: u32) -> impl Iterator<Item = usize> + use<> {
        let (end, depth) = (self.retired, self.requests.len() as u64);
        (end - u64::from(count)..end).map(move |number| (number % depth) as usize)
    }

    /// Forgets what is staged and not posted. Returns how many, after their slots went to `each`.
    pub(super) fn drop_staged(&mut self, mut each: impl FnMut(usize)) -> u32 {
        let count = (self.staged - self.posted) as u32;
        (self.posted..self.staged).for_each(|number| each(self.slot(number)));
        self.staged = self.posted;
        count
    }
}

fn zeroed_request() -> ffi::ibv_send_wr {
    // SAFETY: the struct is plain numbers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: RemoteMemory = RemoteMemory { address: 0x1000, key: 7 };

    fn queue() -> SendQueue {
        SendQueue::new(8, 4, 4)
    }

    /// As if a device had taken everything.
    fn take_all(queue: &mut SendQueue) {
        queue.link();
        queue.posted = queue.staged;
    }

    #[test]
    fn a_completion_retires_its_work_request_and_all_before_it() {
        let mut queue = queue();
        for _ in 0..5 {
            queue.stage_inline(TO, &[1, 2, 3]);
        }
        assert_eq!(queue.retire(0), None, "nothing was posted");
        take_all(&mut queue);
        assert_eq!(queue.retire(2), Some(3));
        assert_eq!(queue.retired_slots(3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(queue.retire(2), None, "it is retired already");
        assert_eq!(queue.retire(5), None, "it was never posted");
        assert_eq!((queue.retire(4), queue.outstanding()), (Some(2), 0));
    }

    #[test]
    fn numbers_go_on_where_their_32_bits_wrap() {
        let mut queue = queue();
        let start = u64::from(u32::MAX) - 1;
        (queue.retired, queue.posted, queue.staged) = (start, start, start);
        for _ in 0..4 {
            queue.stage_inline(TO, &[0]);
        }
        take_all(&mut queue);
        assert_eq!(queue.retire(u32::MAX), Some(2));
        assert_eq!(queue.retire(1), Some(2));
    }

    #[test]
    fn each_fourth_and_the_last_of_a_burst_are_signaled_and_the_chain_ends_there() {
        let mut queue = queue();
        for _ in 0..6 {
            queue.stage_write(TO, Some(9));
        }
        take_all(&mut queue);
        let signaled = |slot: usize| {
            queue.requests[slot].send_flags & ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0
        };
        let which: Vec<_> = (0..6).filter(|slot| signaled(*slot)).collect();
        assert_eq!(which, [3, 5]);
        for slot in 0..5 {
            assert!(ptr::eq(queue.requests[slot].next, &raw const queue.requests[slot + 1]));
        }
        assert!(queue.requests[5].next.is_null());
    }

    #[test]
    fn what_is_staged_and_not_posted_can_be_forgotten() {
        let mut queue = queue();
        queue.stage_inline(TO, &[0]);
        take_all(&mut queue);
        queue.stage_inline(TO, &[0]);
        queue.stage_write(TO, None);
        let mut slots = Vec::new();
        assert_eq!(queue.drop_staged(|slot| slots.push(slot)), 2);
        assert_eq!((slots, queue.outstanding()), (vec![1, 2], 1));
    }

    #[test]
    #[should_panic(expected = "more than the queue holds")]
    fn a_full_queue_takes_no_more() {
        let mut queue = queue();
        (0..9).for_each(|_| queue.stage_inline(TO, &[0]));
    }

    #[test]
    fn an_id_carries_the_tag_and_the_number() {
        let mut queue = queue();
        queue.set_tag(0x0300_0007);
        queue.stage_inline(TO, &[0]);
        let slot = queue.stage_write(TO, None);
        assert_eq!(queue.requests[slot].wr_id, 0x0300_0007_0000_0001);
    }
}
