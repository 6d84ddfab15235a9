//! Runs of shared 64-bit words: the memory that everything else in this crate is built on.
//!
//! Another process, or a network card, may write such memory at any moment. So it is never seen as
//! `&[u8]`: every access is an atomic load or store of one word, and a reader finds out afterwards
//! whether the words it took belong together.

use core::any::Any;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();
/// Words of a line that no other line's writer should share: two cache lines, because processors
/// fetch them in pairs.
pub(crate) const LINE_WORDS: usize = 16;

type Owner = Arc<dyn Any + Send + Sync>;

/// Shared words that this process only reads. Cheap to clone.
///
/// # Invariants
/// - `base` points to `len` atomics that stay valid, and aligned to 8, as long as `owner` lives.
/// - While any clone lives, everybody accesses them atomically. Nothing in this process may store
///   through a `Words`: the pages may be mapped read-only.
#[derive(Clone)]
pub struct Words {
    base: NonNull<AtomicU64>,
    len: usize,
    owner: Owner,
}

/// Shared words that this process reads and writes. Cheap to clone.
///
/// # Invariants
/// Those of [`Words`], and the memory is writable.
#[derive(Clone, Debug)]
pub struct WordsMut {
    words: Words,
}

// SAFETY: the pointer is only ever used for atomic accesses, which any thread may make, and what
// keeps the memory alive is itself `Send + Sync`.
unsafe impl Send for Words {}
// SAFETY: as for `Send`; `&Words` gives out nothing but atomic accesses and clones.
unsafe impl Sync for Words {}

impl Words {
    /// Words over memory that is mapped somewhere.
    ///
    /// # Safety
    /// - `base` is aligned to 8 and points to `len` words of one allocation or mapping, readable
    ///   and initialised for as long as `owner` (or a clone of it) lives. A mapped file must not
    ///   shrink meanwhile: seal it.
    /// - As long as `owner` lives, nothing in this process accesses these words other than by
    ///   atomic operations (or by [`crate::GatedReader`] and [`crate::GatedRemoteReader`] under
    ///   their own contracts).
    #[cfg(not(loom))]
    #[must_use]
    pub unsafe fn from_raw(base: NonNull<u64>, len: usize, owner: Owner) -> Self {
        debug_assert!(base.cast::<AtomicU64>().is_aligned());
        // INVARIANT: handed on from the caller's promise; `AtomicU64` has the size of `u64`, and
        // its alignment, 8, is part of the promise.
        Self { base: base.cast(), len, owner }
    }

    /// Number of words.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.len * WORD_BYTES
    }

    /// `len` words from word `start` on, or `None` when they are not all inside.
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> Option<Self> {
        let part = self.atomics().get(start..start.checked_add(len)?)?;
        // INVARIANT: a piece of memory for which the invariants hold, with the same owner.
        Some(Self { base: NonNull::from(part).cast(), len, owner: Arc::clone(&self.owner) })
    }

    /// Value of one word at some moment; orders nothing. `None` when `index` is outside.
    #[must_use]
    pub fn load(&self, index: usize) -> Option<u64> {
        self.atomics().get(index).map(|word| word.load(Ordering::Relaxed))
    }

    /// The words. Callers load only, see the type's invariants.
    #[inline]
    pub(crate) const fn atomics(&self) -> &[AtomicU64] {
        // SAFETY: the invariants give `len` valid, aligned atomics for the life of `owner`, which
        // `self` keeps; the result borrows `self`. Shared references to atomics allow others to
        // write, in this process and elsewhere.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// Bytes in place, starting at word `first`.
    ///
    /// # Panics
    /// When they are not all inside.
    ///
    /// # Safety
    /// Nobody, here or elsewhere, writes to these words while the result is borrowed.
    #[cfg(not(loom))]
    pub(crate) unsafe fn lend(&self, first: usize, len_bytes: usize) -> &[u8] {
        let words = &self.atomics()[first..first + len_bytes.div_ceil(WORD_BYTES)];
        let start = words.as_ptr().cast::<u8>();
        // SAFETY: `words` covers `len_bytes` initialised bytes for the life of the borrow of
        // `self`, any byte is a valid `u8`, and the caller promises that they do not change
        // meanwhile.
        unsafe { core::slice::from_raw_parts(start, len_bytes) }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").field("base", &self.base).field("len", &self.len).finish()
    }
}

impl WordsMut {
    /// Words over memory that is mapped somewhere.
    ///
    /// # Safety
    /// As [`Words::from_raw`], and the memory is writable.
    #[cfg(not(loom))]
    #[must_use]
    pub unsafe fn from_raw(base: NonNull<u64>, len: usize, owner: Owner) -> Self {
        // SAFETY: the caller's promise includes that of `Words::from_raw`.
        let words = unsafe { Words::from_raw(base, len, owner) };
        Self { words }
    }

    /// `len` zeroed words of this process's own memory, starting on a line of their own.
    #[must_use]
    pub fn heap(len: usize) -> Self {
        let slack = if cfg!(loom) { 0 } else { LINE_WORDS - 1 };
        let memory: Arc<[AtomicU64]> = (0..len + slack).map(|_| AtomicU64::new(0)).collect();
        let skip =
            if cfg!(loom) { 0 } else { memory.as_ptr().align_offset(LINE_WORDS * WORD_BYTES) };
        let base = NonNull::from(&memory[skip..skip + len]).cast();
        // INVARIANT: the slice holds initialised atomics and never moves or shrinks; `Arc` keeps
        // it.
        Self { words: Words { base, len, owner: Arc::new(memory) } }
    }

    /// The same words, for reading only.
    #[must_use]
    pub fn reader(&self) -> Words {
        self.words.clone()
    }

    /// Number of words.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.words.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.words.len == 0
    }

    /// Number of bytes.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.words.len_bytes()
    }

    /// `len` words from word `start` on, or `None` when they are not all inside.
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> Option<Self> {
        Some(Self { words: self.words.part(start, len)? })
    }

    /// Value of one word at some moment; orders nothing. `None` when `index` is outside.
    #[must_use]
    pub fn load(&self, index: usize) -> Option<u64> {
        self.words.load(index)
    }

    /// Stores one word; orders nothing. `None` when `index` is outside.
    pub fn store(&self, index: usize, value: u64) -> Option<()> {
        self.atomics().get(index).map(|word| word.store(value, Ordering::Relaxed))
    }

    #[inline]
    pub(crate) const fn atomics(&self) -> &[AtomicU64] {
        self.words.atomics()
    }
}
