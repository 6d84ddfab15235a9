//! How much memory may be locked, which a device needs of all that it reads or writes.

use std::fmt;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::error::VerbsError;

const PAGE_BYTES: u64 = 4096;

/// A limit on locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockLimit {
    /// At most so many bytes.
    Bytes(u64),
    /// None.
    Unlimited,
}

impl fmt::Display for LockLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl LockLimit {
    /// What `RLIMIT_MEMLOCK` says.
    pub(super) fn configured() -> Self {
        getrlimit(Resource::Memlock).current.map_or(Self::Unlimited, Self::Bytes)
    }

    /// What the system holds this process to: a process with `CAP_IPC_LOCK` to nothing.
    fn effective() -> Self {
        let free =
            capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
        if free { Self::Unlimited } else { Self::configured() }
    }

    /// Checks that so much may be locked.
    ///
    /// # Errors
    /// [`VerbsError::MemoryLimit`].
    const fn check(self, needed: u64) -> Result<(), VerbsError> {
        match self {
            Self::Bytes(limit) if limit < needed => {
                Err(VerbsError::MemoryLimit { needed, limit, needed_kib: needed.div_ceil(1024) })
            }
            _ => Ok(()),
        }
    }
}

/// Checks, before anything is registered, that memory regions of these sizes may be locked. Whole
/// pages are.
///
/// # Errors
/// [`VerbsError::MemoryLimit`], which says how much is needed.
pub(super) fn check(regions: impl IntoIterator<Item = u64>) -> Result<(), VerbsError> {
    LockLimit::effective().check(locked(regions))
}

fn locked(regions: impl IntoIterator<Item = u64>) -> u64 {
    regions.into_iter().map(|bytes| bytes.next_multiple_of(PAGE_BYTES)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_locked() {
        assert_eq!(locked([1, 4096, 4097]), 4 * 4096);
    }

    #[test]
    fn a_limit_below_the_need_is_refused_with_both_numbers_and_what_to_type() {
        let error = LockLimit::Bytes(65_536).check(1_056_768).unwrap_err().to_string();
        for part in ["1056768", "65536", "ulimit -l 1032", "LimitMEMLOCK="] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }

    #[test]
    fn a_limit_that_suffices_or_is_none_passes() {
        assert!(LockLimit::Bytes(4096).check(4096).is_ok());
        assert!(LockLimit::Unlimited.check(u64::MAX).is_ok());
    }
}
