//! The page pool: where snapshots are encoded, once, and from where a fabric sends them.
//!
//! One page-aligned mapping of [`POOL_PAGES`] pages of [`PAGE_BYTES`]. Who may touch which bytes is
//! a matter of types, each of which is consumed by the next:
//!
//! ```text
//! Pool::loan ─► PageWriter ── append ──► Filled ── share ──► Shared (clones count) ─► back
//!               writes behind            stamps, then        reads only
//!               what it appended         gives up writing
//! ```
//!
//! Many records share a page: the writer appends behind records that are already shared. A page
//! returns to the pool when its writer has let go of it and its last record is dropped, on
//! whatever thread that happens. Nothing allocates after [`Pool::new`].

mod free_list;
mod page;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use memmap2::{MmapMut, MmapOptions};
use tapecast_wire::limits::{PAGE_BYTES, POOL_PAGES};

use free_list::FreeList;
pub use page::{AppendError, Filled, PageWriter, Shared};

/// Size of the huge pages that [`PoolConfig::huge_pages`] asks for, as a power of two: 2 MiB.
const HUGE_PAGE_BITS: u8 = 21;
const HUGE_PAGE_BYTES: usize = 1 << HUGE_PAGE_BITS;
const POOL_BYTES: usize = POOL_PAGES * PAGE_BYTES;

const _: () = assert!(POOL_BYTES.is_multiple_of(HUGE_PAGE_BYTES));

/// How a pool gets its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolConfig {
    /// Use 2 MiB pages (`vm.nr_hugepages`) instead of ordinary ones. Default: no.
    pub huge_pages: bool,
}

/// The pool could not get its memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Too few huge pages are reserved and free.
    #[error(
        "the page pool needs {needed} huge pages of 2 MiB, {free} are free: \
         raise vm.nr_hugepages or turn huge pages off ({source})"
    )]
    HugePages {
        /// Huge pages needed.
        needed: usize,
        /// Huge pages that are free, as far as the system says.
        free: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system gave no memory.
    #[error("the page pool needs {bytes} bytes and the system gave none: free memory ({source})")]
    Memory {
        /// Bytes needed.
        bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A pool of pages. Clones refer to the same pool.
#[derive(Clone, Debug)]
pub struct Pool {
    memory: Arc<PoolMemory>,
}

impl Pool {
    /// Maps the memory of a pool and touches all of it, so that no later write faults.
    ///
    /// # Errors
    /// [`PoolError`] when the memory, or the huge pages asked for, are not there.
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        let mut mapping = map(config)?;
        mapping.fill(0);
        let base = NonNull::new(mapping.as_mut_ptr()).ok_or_else(|| PoolError::Memory {
            bytes: POOL_BYTES,
            source: std::io::Error::from(std::io::ErrorKind::OutOfMemory),
        })?;
        let references = (0..POOL_PAGES).map(|_| AtomicU32::new(0)).collect();
        let memory =
            PoolMemory { base, references, free: FreeList::full(POOL_PAGES), _mapping: mapping };
        Ok(Self { memory: Arc::new(memory) })
    }

    /// Takes a page out of the pool. `None` when all are in use.
    #[must_use]
    pub fn loan(&self) -> Option<PageWriter> {
        PageWriter::take(&self.memory)
    }

    /// Pages in the pool now. Exact when no other thread uses the pool.
    #[must_use]
    pub fn free_pages(&self) -> usize {
        self.memory.free.len()
    }

    /// Pages that the pool has in all.
    #[must_use]
    pub const fn pages(&self) -> usize {
        POOL_PAGES
    }

    /// Start and length in bytes of the one mapping that holds every page, for a fabric that
    /// registers memory. [`Shared::offset`] counts from here.
    #[must_use]
    pub fn extent(&self) -> (NonNull<u8>, usize) {
        (self.memory.base, POOL_BYTES)
    }
}

fn map(config: PoolConfig) -> Result<MmapMut, PoolError> {
    let mut options = MmapOptions::new();
    options.len(POOL_BYTES);
    if !config.huge_pages {
        let failed = |source| PoolError::Memory { bytes: POOL_BYTES, source };
        return options.map_anon().map_err(failed);
    }
    options.huge(Some(HUGE_PAGE_BITS)).map_anon().map_err(|source| PoolError::HugePages {
        needed: POOL_BYTES / HUGE_PAGE_BYTES,
        free: free_huge_pages(),
        source,
    })
}

/// Free huge pages of the default size; 0 when the system does not say.
fn free_huge_pages() -> usize {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// What all handles of a pool share.
///
/// # Invariants
/// - `base` is the start of `_mapping`, `POOL_BYTES` long, and nothing forms a reference to more
///   of it than one record.
/// - `references[page]` counts the records of `page` that exist, and what its writer may still
///   append; the page is in `free` exactly when it is 0.
/// - Each page that is out holds one strong count of the `Arc` that owns this value.
#[derive(Debug)]
struct PoolMemory {
    base: NonNull<u8>,
    references: Box<[AtomicU32]>,
    free: FreeList,
    _mapping: MmapMut,
}

// SAFETY: `base` points into `_mapping`, which is owned by this value and may be used from any
// thread; who may access which bytes is decided by `PageWriter`, `Filled` and `Shared`, and the
// other fields are atomics.
unsafe impl Send for PoolMemory {}
// SAFETY: through a shared reference only atomics are changed; bytes of the mapping are reached
// only through `PageWriter`, `Filled` and `Shared`, which never alias a byte that one may write.
unsafe impl Sync for PoolMemory {}

#[cfg(test)]
mod tests;
