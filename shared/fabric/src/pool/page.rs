//! The states of a page and of the records in it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tapecast_wire::limits::{PAGE_BYTES, RECORD_ALIGN_BYTES};
use tapecast_wire::{Nanos, SnapshotHeader};

use super::PoolMemory;

/// References that a page is charged with when it is loaned: one for each record that can fit, one
/// for its writer. Charging all at once spares an atomic operation for each append.
const CHARGE: u32 = (PAGE_BYTES / RECORD_ALIGN_BYTES) as u32 + 1;

/// A page on loan to one writer, which appends records to it.
///
/// # Invariants
/// - Bytes of the page at `used` and behind belong to this writer alone.
/// - Of the `CHARGE` references, `CHARGE - issued` are this writer's.
#[derive(Debug)]
pub struct PageWriter {
    pool: NonNull<PoolMemory>,
    page: u32,
    used: u32,
    issued: u32,
}

/// A record could not be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError<E> {
    /// The page has too little room left: loan another one.
    #[error(
        "a record of up to {need} bytes does not fit, the page has {have} left: loan another page"
    )]
    NoRoom {
        /// Bytes asked for.
        need: usize,
        /// Bytes left.
        have: usize,
    },
    /// The record could not be written; the page is as before.
    #[error("{0}")]
    Write(E),
}

impl PageWriter {
    pub(super) fn take(pool: &Arc<PoolMemory>) -> Option<Self> {
        let page = pool.free.pop()?;
        // Relaxed: the pop made this thread the page's only user, and whoever receives a record
        // gets it through something that orders.
        pool.references[page as usize].store(CHARGE, Ordering::Relaxed);
        // The page takes one strong count along, and gives it back when it returns.
        let pool = Arc::into_raw(Arc::clone(pool)).cast_mut();
        let pool = NonNull::new(pool)?;
        Some(Self { pool, page, used: 0, issued: 0 })
    }

    /// Bytes that can still be appended.
    #[must_use]
    pub const fn room(&self) -> usize {
        PAGE_BYTES - self.used as usize
    }

    /// Lets `write` fill up to `len_max` bytes behind what is in the page, and takes as many of
    /// them as it says it wrote. The next record starts at the next multiple of
    /// [`RECORD_ALIGN_BYTES`], as it will in a ring: so neighbours in a page can be neighbours
    /// there, and one scatter/gather element covers both.
    ///
    /// # Errors
    /// [`AppendError::NoRoom`] when `len_max` bytes are not left, [`AppendError::Write`] with what
    /// `write` returned.
    ///
    /// # Panics
    /// When `write` claims more than it was given: a bug of the caller.
    pub fn append<E>(
        &mut self,
        len_max: usize,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Filled, AppendError<E>> {
        if len_max > self.room() || self.room() == 0 {
            return Err(AppendError::NoRoom { need: len_max, have: self.room() });
        }
        let start = self.used;
        let room = len_max.next_multiple_of(RECORD_ALIGN_BYTES).min(self.room());
        let pool = self.pool();
        let offset = self.page as usize * PAGE_BYTES + start as usize;
        // SAFETY: the page lies within the mapping and `start + room <= PAGE_BYTES`, so the sum
        // stays within the one allocation that `base` points into.
        let first = unsafe { pool.base.add(offset) };
        // SAFETY: the bytes are initialised (the mapping was zeroed) and, being behind `used`, are
        // this writer's alone by its invariant; `&mut self` is held while the slice lives.
        let room = unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), room) };
        let len = write(&mut room[..len_max]).map_err(AppendError::Write)?;
        assert!(len <= len_max, "a record of {len} bytes was written into {len_max}");
        // What fills the unit may travel along with the record: nobody else's bytes.
        let end = len.next_multiple_of(RECORD_ALIGN_BYTES).min(room.len());
        room[len..end].fill(0);
        // An empty record takes a unit too, so that a page cannot issue more than its charge.
        self.used += len.max(1).next_multiple_of(RECORD_ALIGN_BYTES) as u32;
        self.issued += 1;
        debug_assert!(self.used as usize <= PAGE_BYTES && self.issued < CHARGE);
        let record =
            Record { pool: self.pool, page: self.page, start: start as u16, len: len as u16 };
        Ok(Filled { record })
    }

    fn pool(&self) -> &PoolMemory {
        // SAFETY: the page holds a strong count of the pool until its last reference is released,
        // and this writer still has one.
        unsafe { self.pool.as_ref() }
    }
}

impl Drop for PageWriter {
    fn drop(&mut self) {
        // SAFETY: of the page's references `CHARGE - issued` are this writer's, and it gives up
        // all of them here, once.
        unsafe { release(self.pool, self.page, CHARGE - self.issued) };
    }
}

// SAFETY: the writer is the only one that may access the bytes behind `used`, whichever thread it
// is on, and the reference counts are atomic.
unsafe impl Send for PageWriter {}
// SAFETY: through a shared reference only plain fields are read.
unsafe impl Sync for PageWriter {}

/// Bytes of one record and one reference to its page.
#[derive(Debug)]
struct Record {
    pool: NonNull<PoolMemory>,
    page: u32,
    start: u16,
    len: u16,
}

const _: () = assert!(PAGE_BYTES <= u16::MAX as usize && size_of::<Record>() == 16);

impl Record {
    fn first(&self) -> NonNull<u8> {
        let offset = self.page as usize * PAGE_BYTES + usize::from(self.start);
        // SAFETY: the page holds a strong count of the pool until its last reference is released,
        // and this record has one.
        let pool = unsafe { self.pool.as_ref() };
        // SAFETY: a record lies within its page and the page within the mapping.
        unsafe { pool.base.add(offset) }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes are initialised and within the mapping; a record's bytes are written
        // only by `Filled`, through `&mut`, before they are shared, so nobody writes them while
        // this borrow lives.
        unsafe { core::slice::from_raw_parts(self.first().as_ptr(), usize::from(self.len)) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; this is only reached through an exclusive borrow of a `Filled`,
        // which is the one handle to these bytes.
        unsafe { core::slice::from_raw_parts_mut(self.first().as_ptr(), usize::from(self.len)) }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // SAFETY: this record owns one reference to its page and gives it up here, once.
        unsafe { release(self.pool, self.page, 1) };
    }
}

/// An encoded record that one owner may still change. It is not seen by anybody else.
#[derive(Debug)]
pub struct Filled {
    record: Record,
}

impl Filled {
    /// The record.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.record.bytes()
    }

    /// Writes when the record is handed to the fabric. A record that is too short to be a snapshot
    /// is left alone.
    pub fn stamp_publish(&mut self, now: Nanos) {
        const OFFSET: usize = SnapshotHeader::TS_PUBLISH_OFFSET;
        if let Some(field) = self.record.bytes_mut().get_mut(OFFSET..OFFSET + 8) {
            field.copy_from_slice(&now.0.to_le_bytes());
        }
    }

    /// What was stamped last; 0 before that.
    #[must_use]
    pub fn ts_publish(&self) -> Nanos {
        const OFFSET: usize = SnapshotHeader::TS_PUBLISH_OFFSET;
        let field = self.bytes().get(OFFSET..OFFSET + 8);
        Nanos(field.and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes))
    }

    /// Gives up writing, so that the record can be read by many.
    #[must_use]
    pub fn share(self) -> Shared {
        Shared { record: self.record }
    }
}

// SAFETY: a filled record is the only handle to its bytes, whichever thread it is on, and the
// page's reference count is atomic.
unsafe impl Send for Filled {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for Filled {}

/// A record that nobody changes any more. Clones refer to the same bytes.
#[derive(Debug)]
pub struct Shared {
    record: Record,
}

impl Shared {
    /// The record.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.record.bytes()
    }

    /// Where the record starts in the pool's mapping, in bytes: for gather lists.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.record.page as usize * PAGE_BYTES + self.record.start as usize
    }

    /// Index of the page that holds the record.
    #[must_use]
    pub const fn page(&self) -> usize {
        self.record.page as usize
    }
}

#[cfg(feature = "planted")]
impl Shared {
    /// The planted bug of a page that is released too early: gives up this record's reference, and
    /// leaves the record as it is. It must be forgotten, not dropped.
    pub(crate) fn release_early(&self) {
        // SAFETY: gives up the reference that this record owns, which is forgotten afterwards and
        // never dropped. That it may still be read, while the page is used anew by the same
        // thread, is the bug that this is here to show; the mapping itself stays.
        unsafe { release(self.record.pool, self.record.page, 1) };
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        let Record { pool, page, start, len } = self.record;
        // SAFETY: the page holds a strong count of the pool until its last reference is released,
        // and this record has one.
        let memory = unsafe { pool.as_ref() };
        // Relaxed: the new reference is made from one that exists, so the count cannot reach 0
        // meanwhile.
        let before = memory.references[page as usize].fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "a page has more references than can be counted");
        Self { record: Record { pool, page, start, len } }
    }
}

// SAFETY: shared bytes are never written while a reference to their page exists, and the page's
// reference count is atomic.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`; a `&Shared` gives out the bytes to read, and clones.
unsafe impl Sync for Shared {}

/// Gives up `count` references to a page. The last one returns the page to the pool.
///
/// # Safety
/// `pool` came from `Arc::into_raw` when the page was loaned, and the caller owns `count`
/// references to the page, which it does not use again.
unsafe fn release(pool: NonNull<PoolMemory>, page: u32, count: u32) {
    // SAFETY: the page holds a strong count until the last reference is released, and the caller
    // owns some that are not yet.
    let memory = unsafe { pool.as_ref() };
    // Release: what was done with the bytes happens before the page is used anew. Acquire: the one
    // that returns the page has seen what all others did.
    let before = memory.references[page as usize].fetch_sub(count, Ordering::AcqRel);
    debug_assert!(before >= count);
    if before != count {
        return;
    }
    memory.free.push(page);
    // SAFETY: the last reference is gone, so the strong count that the page took along in
    // `PageWriter::take` is given back, exactly once; `memory` is not used after this.
    drop(unsafe { Arc::from_raw(pool.as_ptr().cast_const()) });
}
