//! A lock-free stack of page indices.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Marks the end of the list.
const NONE: u32 = u32::MAX;

/// A Treiber stack over a fixed set of indices.
///
/// The head carries a tag that changes with every pop and push, so that an index that was popped
/// and pushed again between another thread's read and its exchange is not mistaken for unchanged.
///
/// # Invariants
/// - Each index is in the list at most once; whoever popped it may push it once.
#[derive(Debug)]
pub(super) struct FreeList {
    /// Tag in the high half, index of the top in the low half.
    head: AtomicU64,
    /// Index below each index.
    below: Box<[AtomicU32]>,
    len: AtomicUsize,
}

impl FreeList {
    /// A list that holds `0 .. count`; 0 is on top.
    pub(super) fn full(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(NONE).min(NONE - 1);
        let below = (1..=count).map(|next| AtomicU32::new(if next < count { next } else { NONE }));
        let head = if count == 0 { NONE } else { 0 };
        Self {
            head: AtomicU64::new(u64::from(head)),
            below: below.collect(),
            len: AtomicUsize::new(count as usize),
        }
    }

    /// Takes an index. `None` when there is none.
    pub(super) fn pop(&self) -> Option<u32> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let (tag, index) = parts(head);
            if index == NONE {
                return None;
            }
            // This may be stale when another thread pops the same index first; then the tag has
            // changed and the exchange fails.
            let below = self.below[index as usize].load(Ordering::Relaxed);
            let wanted = joined(tag.wrapping_add(1), below);
            // Acquire pairs with the Release of the push: whatever the last user of the page did
            // happens before what the next one does.
            match self.head.compare_exchange_weak(
                head,
                wanted,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    self.len.fetch_sub(1, Ordering::Relaxed);
                    return Some(index);
                }
                Err(current) => head = current,
            }
        }
    }

    /// Gives an index back.
    pub(super) fn push(&self, index: u32) {
        self.len.fetch_add(1, Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let (tag, top) = parts(head);
            self.below[index as usize].store(top, Ordering::Relaxed);
            let wanted = joined(tag.wrapping_add(1), index);
            match self.head.compare_exchange_weak(head, wanted, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(current) => head = current,
            }
        }
    }

    /// Indices in the list.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

const fn parts(head: u64) -> (u32, u32) {
    ((head >> 32) as u32, head as u32)
}

const fn joined(tag: u32, index: u32) -> u64 {
    (tag as u64) << 32 | index as u64
}
