//! Memory that an RDMA device may read or write.
//!
//! A [`MemoryRegion`] owns its memory, because a device writes to the pages that it was given even
//! when the process has unmapped them. It is given up in this order: no handle is left, the device
//! gives up the region, the memory is unmapped.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use tapecast_ring::WordsMut;

use super::device::ProtectionDomain;
use super::error::VerbsError;
use super::ffi;
use super::memlock::LockLimit;
use crate::pool::Pool;

const WORD_BYTES: usize = size_of::<u64>();
/// 2 MiB, as a power of two.
const HUGE_PAGE_BITS: u8 = 21;
const HUGE_PAGE_BYTES: usize = 1 << HUGE_PAGE_BITS;
/// Not enough memory, or not enough of it may be locked.
const ENOMEM: i32 = 12;

/// What a device may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// This process's work requests read it; peers have no access.
    LocalRead,
    /// Peers that know its key write it.
    RemoteWrite,
}

impl Access {
    /// As the verbs library writes it.
    pub(super) const fn flags(self) -> u32 {
        match self {
            Self::LocalRead => 0,
            // Remote writing needs local writing.
            Self::RemoteWrite => {
                ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
                    | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
            }
        }
    }
}

/// Registered memory. Clones refer to the same one.
#[derive(Clone)]
pub(super) struct MemoryRegion(Arc<Region>);

/// # Invariants
/// - `base` starts `len` bytes that `memory` keeps mapped.
/// - `raw` is registered until this value is dropped, so before `memory` and `_domain` are.
struct Region {
    raw: NonNull<ffi::ibv_mr>,
    keys: Keys,
    base: NonNull<u8>,
    len: usize,
    memory: Memory,
    _domain: ProtectionDomain,
}

#[derive(Clone, Copy, Debug)]
struct Keys {
    local: u32,
    remote: u32,
}

enum Memory {
    Mapping(#[expect(dead_code, reason = "only kept alive")] MmapRaw),
    Pool(#[expect(dead_code, reason = "only kept alive")] Pool),
}

// SAFETY: the handle may be used from any thread, and the bytes are reached only through
// `WordsMut`, which accesses them atomically, or through the pool's own types.
unsafe impl Send for Region {}
// SAFETY: as for `Send`; through a shared reference nothing changes.
unsafe impl Sync for Region {}

impl MemoryRegion {
    /// Maps `bytes` zero bytes (rounded up to whole words), touches them all, and registers them.
    /// Huge pages have 2 MiB and must be reserved (`vm.nr_hugepages`).
    ///
    /// # Errors
    /// [`VerbsError`] when the memory cannot be had, locked, or registered.
    pub(super) fn allocate(
        domain: &ProtectionDomain,
        bytes: usize,
        huge_pages: bool,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let len = bytes.next_multiple_of(WORD_BYTES);
        let map = map(len, huge_pages)?;
        // A mapping is never at address 0; if it were, registering no byte of it would fail.
        let (base, len) =
            NonNull::new(map.as_mut_ptr()).map_or((NonNull::dangling(), 0), |base| (base, len));
        Self::register(domain, (base, len), Memory::Mapping(map), access)
    }

    /// Registers all pages of a pool for reading by this process's work requests.
    ///
    /// # Errors
    /// [`VerbsError`] when the memory cannot be locked or registered.
    pub(super) fn register_pool(
        domain: &ProtectionDomain,
        pool: &Pool,
    ) -> Result<Self, VerbsError> {
        Self::register(domain, pool.extent(), Memory::Pool(pool.clone()), Access::LocalRead)
    }

    fn register(
        domain: &ProtectionDomain,
        (base, len): (NonNull<u8>, usize),
        memory: Memory,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let (bytes, limit) = (len as u64, domain.context().limits().max_mr_size);
        if bytes > limit {
            let (what, attribute) = ("bytes of a memory region", "max_mr_size");
            let remedy = "make the ring smaller";
            return Err(VerbsError::Limit { what, attribute, asked: bytes, limit, remedy });
        }
        let flags = access.flags().cast_signed();
        // SAFETY: the domain is valid, and `memory` keeps `len` bytes at `base` mapped, writable.
        let raw = unsafe { ffi::ibv_reg_mr(domain.as_ptr(), base.as_ptr().cast(), len, flags) };
        let raw = NonNull::new(raw).ok_or_else(|| not_registered(bytes, access))?;
        // SAFETY: the library made the struct, and changes it only when the region is given up.
        let local = unsafe { (*raw.as_ptr()).lkey };
        // SAFETY: as for the local key.
        let remote = unsafe { (*raw.as_ptr()).rkey };
        let keys = Keys { local, remote };
        let region = Region { raw, keys, base, len, memory, _domain: domain.clone() };
        Ok(Self(Arc::new(region)))
    }

    /// Key by which this process's work requests name it.
    pub(super) fn lkey(&self) -> u32 {
        self.0.keys.local
    }

    /// Key by which peers name it.
    pub(super) fn rkey(&self) -> u32 {
        self.0.keys.remote
    }

    /// Its first byte's address, as work requests and peers name it.
    pub(super) fn address(&self) -> u64 {
        self.0.base.as_ptr().expose_provenance() as u64
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len
    }

    /// The memory, to read and write while the device does. The words keep the region registered.
    /// There are none of a pool: its bytes belong to its own types.
    pub(super) fn words(&self) -> WordsMut {
        match self.0.memory {
            Memory::Pool(_) => WordsMut::heap(0),
            Memory::Mapping(_) => {
                let words = self.0.len / WORD_BYTES;
                // SAFETY: the mapping starts on a page, has `words` initialised (zeroed) writable
                // words, and lives as long as the `Arc`; nothing else here refers to its bytes.
                unsafe { WordsMut::from_raw(self.0.base.cast(), words, self.0.clone()) }
            }
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Region { base, len, keys, .. } = &*self.0;
        f.debug_struct("MemoryRegion")
            .field("base", base)
            .field("len", len)
            .field("keys", keys)
            .finish()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region was registered by this value and is given up only here; `memory` is
        // unmapped afterwards.
        let code = unsafe { ffi::ibv_dereg_mr(self.raw.as_ptr()) };
        debug_assert_eq!(code, 0, "ibv_dereg_mr");
    }
}

fn map(len: usize, huge_pages: bool) -> Result<MmapRaw, VerbsError> {
    let mut options = MmapOptions::new();
    options.len(len).populate();
    let (pages, remedy) = if huge_pages {
        options.len(len.next_multiple_of(HUGE_PAGE_BYTES)).huge(Some(HUGE_PAGE_BITS));
        (" of huge pages", "raise vm.nr_hugepages (2 MiB each) or turn huge pages off")
    } else {
        ("", "free memory, make the ring smaller, or check `ulimit -v`")
    };
    let mapped = options.map_anon().map(MmapRaw::from);
    mapped.map_err(|source| VerbsError::Map { bytes: len as u64, pages, source, remedy })
}

/// Why `ibv_reg_mr` failed just now.
fn not_registered(bytes: u64, access: Access) -> VerbsError {
    let source = io::Error::last_os_error();
    if source.raw_os_error() == Some(ENOMEM) {
        return VerbsError::LockedMemory { bytes, limit: LockLimit::configured(), source };
    }
    let values = format!("{bytes} bytes, {access:?}");
    let remedy = "compare max_mr and max_mr_size in `ibv_devinfo -v`";
    VerbsError::Call { call: "ibv_reg_mr", values, source, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_get_no_access_to_memory_that_is_only_sent_from() {
        assert_eq!(Access::LocalRead.flags(), 0);
        assert_eq!(Access::RemoteWrite.flags(), 0b11);
    }

    #[test]
    fn a_mapping_that_is_refused_says_how_much_was_wanted() {
        let error = map(usize::MAX / 2, false).unwrap_err();
        let bytes = (usize::MAX / 2) as u64;
        assert!(matches!(error, VerbsError::Map { bytes: wanted, .. } if wanted == bytes));
        assert!(error.to_string().contains(&bytes.to_string()), "{error}");
    }
}
