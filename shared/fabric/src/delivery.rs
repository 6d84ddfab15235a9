//! What an application receives.

use core::ops::Deref;

use tapecast_wire::{Flags, Snapshot};

/// One snapshot, with what this session needs to know about it.
///
/// It dereferences to the [`Snapshot`]. The flags [`Flags::INITIAL_IMAGE`] and [`Flags::CONFLATED`]
/// and the header's `conflated_count` are set in the snapshot too: a record that carries one of
/// them is delivered from the receiver's own copy, all others may be lent in place.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    snapshot: Snapshot<'a>,
    conflated: u64,
}

impl<'a> Delivery<'a> {
    /// A delivery of `snapshot`, whose flags and count say the same as `conflated`.
    #[must_use]
    #[inline]
    pub const fn new(snapshot: Snapshot<'a>, conflated: u64) -> Self {
        Self { snapshot, conflated }
    }

    /// The snapshot. It borrows memory that is only valid during the callback.
    #[must_use]
    pub const fn snapshot(&self) -> Snapshot<'a> {
        self.snapshot
    }

    /// Whether it is the first snapshot of its instrument in this session.
    #[must_use]
    pub const fn is_initial(&self) -> bool {
        self.snapshot.flags().contains(Flags::INITIAL_IMAGE)
    }

    /// Older snapshots of its instrument that it replaces. Exact, where the header's count of 32
    /// bits saturates.
    #[must_use]
    pub const fn conflated(&self) -> u64 {
        self.conflated
    }
}

impl<'a> Deref for Delivery<'a> {
    type Target = Snapshot<'a>;

    fn deref(&self) -> &Snapshot<'a> {
        &self.snapshot
    }
}

/// Sets in a received copy of a record what only the receiving end knows.
///
/// `record` starts with a snapshot header that was parsed before.
pub(crate) fn mark_received(record: &mut [u8], initial: bool, conflated: u64) {
    use tapecast_wire::SnapshotHeader;

    const FLAGS: usize = core::mem::offset_of!(SnapshotHeader, flags);
    const CONFLATED: usize = core::mem::offset_of!(SnapshotHeader, conflated_count);
    let mut word = [0; 4];
    word.copy_from_slice(&record[FLAGS..FLAGS + 4]);
    let flags = Flags(u32::from_le_bytes(word))
        .with_if(Flags::INITIAL_IMAGE, initial)
        .with_if(Flags::CONFLATED, conflated > 0);
    record[FLAGS..FLAGS + 4].copy_from_slice(&flags.0.to_le_bytes());
    let count = u32::try_from(conflated).unwrap_or(u32::MAX);
    record[CONFLATED..CONFLATED + 4].copy_from_slice(&count.to_le_bytes());
}
