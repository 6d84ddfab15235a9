//! Which memory a session reads, and of which life of the publisher.

use std::os::fd::AsFd;

use rustix::fs::fstat;
use tapecast_wire::Epoch;

use super::mapping::MappingError;

/// One region among all that this system has had: the file that its memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionIdentity {
    device: u64,
    inode: u64,
}

impl RegionIdentity {
    /// The identity of the region behind a descriptor.
    ///
    /// # Errors
    /// [`MappingError`] when the system does not tell.
    pub fn of(region: impl AsFd) -> Result<Self, MappingError> {
        let remedy = "attach again";
        let stat = fstat(region).map_err(MappingError::system("inspect shared memory", remedy))?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Number of the file.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        self.inode
    }
}

/// One life of a publisher in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionLife {
    /// The region.
    pub region: RegionIdentity,
    /// The life.
    pub epoch: Epoch,
}

impl RegionLife {
    /// Whether this is another life than `before` in the same region. Of the same life a session
    /// has seen a part already, and nothing says which.
    #[must_use]
    pub fn succeeds(&self, before: &Self) -> bool {
        self.region == before.region && self.epoch != before.epoch
    }
}
