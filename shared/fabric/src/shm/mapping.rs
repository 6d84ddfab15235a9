//! Anonymous files that are mapped into several processes, and what may be done to them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals,
    fcntl_get_seals, fstat, ftruncate, memfd_create, open,
};
use rustix::io::Errno;
use tapecast_ring::{Words, WordsMut};

use super::memory::{MemoryLimit, MemoryShortage, check_memory};

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();

/// The size can never change again, so an access within it never raises SIGBUS.
pub(super) const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A shared file could not be made, sealed or mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryShortage),
    /// A system call failed.
    #[error("cannot {action}: {source}; {remedy}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
        /// What may help.
        remedy: &'static str,
    },
    /// A received file has another size than it must have.
    #[error("{what} has {have} bytes, but {need} are needed: run the same release on both ends")]
    Size {
        /// Which file.
        what: &'static str,
        /// Its size in bytes.
        have: u64,
        /// The size needed, in bytes.
        need: u64,
    },
    /// A file that another life has made has another size.
    #[error(
        "the kept region has {have} bytes, but with what is configured now it would have {need}: \
         ring size, instruments or levels were changed"
    )]
    Kept {
        /// Its size in bytes.
        have: u64,
        /// The size needed, in bytes.
        need: u64,
    },
    /// A received file could shrink while it is mapped.
    #[error("{what} is not sealed against shrinking: it does not come from a tapecast publisher")]
    NotSealed {
        /// Which file.
        what: &'static str,
    },
}

impl MappingError {
    pub(super) fn system(action: &'static str, remedy: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { action, source: errno.into(), remedy }
    }
}

const LIMITS: &str = "check the limits on open files and locked memory";

/// Makes an anonymous file of `bytes` zero bytes, all of them allocated, that only its owner's
/// processes could open anew.
pub(super) fn create(name: &str, bytes: u64) -> Result<OwnedFd, MappingError> {
    check_memory(bytes)?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // A kernel before 6.3 does not know how to seal execution.
        Err(Errno::INVAL) => memfd_create(name, flags),
        made => made,
    }
    .map_err(MappingError::system("create shared memory", LIMITS))?;
    fchmod(&file, Mode::RUSR | Mode::WUSR)
        .map_err(MappingError::system("restrict access to shared memory", LIMITS))?;
    ftruncate(&file, bytes)
        .map_err(MappingError::system("size shared memory", "make the ring smaller"))?;
    allocate(&file, bytes)?;
    Ok(file)
}

fn allocate(file: &OwnedFd, bytes: u64) -> Result<(), MappingError> {
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC | Errno::NOMEM) => {
                let limit = MemoryLimit::Kernel;
                return Err(
                    MemoryShortage { needed_bytes: bytes, available_bytes: 0, limit }.into()
                );
            }
            Err(errno) => {
                return Err(MappingError::system("allocate shared memory", LIMITS)(errno));
            }
        }
    }
}

/// Adds seals that nobody can take off again, and seals the sealing.
pub(super) fn seal(file: &OwnedFd, seals: SealFlags) -> Result<(), MappingError> {
    let remedy = "a kernel of Linux 5.1 or later is needed, or sealing = \"owner\"";
    fcntl_add_seals(file, seals | SealFlags::SEAL)
        .map_err(MappingError::system("seal shared memory", remedy))
}

/// Another descriptor of the same file, through which nobody can write.
pub(super) fn reopen_read_only(file: &OwnedFd) -> Result<OwnedFd, MappingError> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(MappingError::system(
        "reopen shared memory for reading",
        "/proc must be mounted for the publisher",
    ))
}

/// Checks that a received file has at least `need` bytes and will always have them.
pub(super) fn check_received(
    what: &'static str,
    file: &OwnedFd,
    need: u64,
) -> Result<u64, MappingError> {
    let seals = fcntl_get_seals(file).map_err(|_| MappingError::NotSealed { what })?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(MappingError::NotSealed { what });
    }
    let stat = fstat(file).map_err(MappingError::system("inspect shared memory", LIMITS))?;
    let have = u64::try_from(stat.st_size).unwrap_or(0);
    if have < need {
        return Err(MappingError::Size { what, have, need });
    }
    Ok(have)
}

/// Checks that a file which another life of the publisher has made has exactly `need` bytes, and
/// always will.
pub(super) fn check_kept(file: &OwnedFd, need: u64) -> Result<(), MappingError> {
    let what = "the kept region";
    // Of another size it is one of other numbers, which is for whoever reads its header to say.
    let have = check_received(what, file, 0)?;
    let seals = fcntl_get_seals(file).map_err(|_| MappingError::NotSealed { what })?;
    if !seals.contains(SIZE_SEALS) {
        return Err(MappingError::NotSealed { what });
    }
    if have != need { Err(MappingError::Kept { have, need }) } else { Ok(()) }
}

/// Maps `bytes` of a file for reading and writing, and touches all of it. The file must be sealed
/// against shrinking, now or before any other process has it. The mapping lives as long as the
/// words or a clone of them.
pub(super) fn writable(file: &OwnedFd, bytes: u64) -> Result<WordsMut, MappingError> {
    let map = options(bytes).populate().map_raw(file).map_err(map_failed)?;
    let (base, words) = extent(&map);
    // SAFETY: the mapping starts on a page, holds `words` initialised words (a file is zero where
    // nobody wrote), is writable, cannot lose pages because the file does not shrink, and lives as
    // long as the `Arc`; this process makes no other references to it.
    Ok(unsafe { WordsMut::from_raw(base, words, Arc::new(map)) })
}

/// As [`writable`], for reading only.
pub(super) fn read_only(file: &OwnedFd, bytes: u64) -> Result<Words, MappingError> {
    let map = options(bytes).map_raw_read_only(file).map_err(map_failed)?;
    let (base, words) = extent(&map);
    // SAFETY: as in `writable`; `Words` asks for no writing.
    Ok(unsafe { Words::from_raw(base, words, Arc::new(map)) })
}

fn extent(map: &MmapRaw) -> (NonNull<u64>, usize) {
    // A mapping is never at address 0; if it were, it would count as empty.
    NonNull::new(map.as_mut_ptr().cast())
        .map_or((NonNull::dangling(), 0), |base| (base, map.len() / WORD_BYTES))
}

fn options(bytes: u64) -> MmapOptions {
    let mut options = MmapOptions::new();
    options.len(usize::try_from(bytes).unwrap_or(usize::MAX));
    options
}

fn map_failed(source: io::Error) -> MappingError {
    let remedy = "check the limit on address space (ulimit -v)";
    MappingError::System { action: "map shared memory", source, remedy }
}

/// Makes a sealed file of `bytes` bytes that several processes may write, and maps it here.
pub(super) fn create_shared(name: &str, bytes: u64) -> Result<(OwnedFd, WordsMut), MappingError> {
    let file = create(name, bytes)?;
    seal(&file, SIZE_SEALS)?;
    let words = writable(&file, bytes)?;
    Ok((file, words))
}
