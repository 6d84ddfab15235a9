//! From received descriptors to a session.

use std::cell::Cell;
use std::os::fd::OwnedFd;

use tapecast_ring::cell::{CELL_BYTES, CELL_WORDS, CellError};
use tapecast_ring::region::{REGION_HEADER_BYTES, RegionError};
use tapecast_ring::{CellWriter, RegionReader};
use tapecast_wire::attach::Policy;
use tapecast_wire::{Epoch, Position, Sequence};

use super::ShmEndpoint;
use crate::WaitStrategy;
use crate::shm::batch::{Progress, Ring};
use crate::shm::futex::WakeWord;
use crate::shm::identity::{RegionIdentity, RegionLife};
use crate::shm::joining::Joining;
use crate::shm::mapping::{self, MappingError};
use crate::shm::session::SessionStart;
use crate::shm::wait::Waiter;
use crate::shm::walk::Walk;

/// What was received cannot be used as a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another number of descriptors.
    #[error(
        "{have} descriptors came with the session, 3 are needed: run the same release on both ends"
    )]
    Descriptors {
        /// Descriptors received.
        have: usize,
    },
    /// A descriptor cannot be mapped safely.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// The region is not one that this side can read.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The cell is not one that this side can write.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// Cell and region belong to different lives of the publisher.
    #[error("cell of epoch {cell} with a region of epoch {region}: attach again")]
    Epoch {
        /// Epoch in the cell.
        cell: Epoch,
        /// Epoch in the region.
        region: Epoch,
    },
    /// The publisher that granted the session is gone, and another has taken the region over.
    #[error("the session is of epoch {epoch}, and another publisher has succeeded: attach again")]
    Superseded {
        /// Epoch of the session.
        epoch: Epoch,
    },
    /// The cell begins where nothing has been published yet.
    #[error("the session begins at position {at}, but only {tail} is published: attach again")]
    Start {
        /// Position in the cell.
        at: Position,
        /// Tail of the ring.
        tail: Position,
    },
    /// A lossless session for which the publisher does not wait.
    #[error(
        "the session was asked for as lossless, but the publisher does not wait for it: \
         attach again"
    )]
    NotGated,
}

impl ShmEndpoint {
    /// Opens a session from the descriptors that came with it: region, cell, wake socket.
    ///
    /// # Errors
    /// [`OpenError`] when they are not what a publisher of this release hands over.
    pub fn open(
        descriptors: Vec<OwnedFd>,
        policy: Policy,
        strategy: WaitStrategy,
    ) -> Result<Self, OpenError> {
        Self::open_after(descriptors, policy, strategy, None)
    }

    /// As [`Self::open`], for a subscriber whose last session was one of life `before`. Where this
    /// one is of a later life in the same region, it begins where that life began: its first
    /// snapshots are in the ring, or, once lapped, in the latest table, so it needs no initial
    /// image and counts from there. A lossless session begins where the publisher waits for it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_after(
        descriptors: Vec<OwnedFd>,
        policy: Policy,
        strategy: WaitStrategy,
        before: Option<RegionLife>,
    ) -> Result<Self, OpenError> {
        let have = descriptors.len();
        let [region, cell, wake]: [OwnedFd; 3] =
            descriptors.try_into().map_err(|_| OpenError::Descriptors { have })?;
        let bytes = mapping::check_received("region", &region, REGION_HEADER_BYTES as u64)?;
        let identity = RegionIdentity::of(&region)?;
        let region = RegionReader::open(mapping::read_only(&region, bytes)?)?;
        mapping::check_received("session cell", &cell, CELL_BYTES as u64)?;
        let words = mapping::writable(&cell, CELL_BYTES as u64)?;
        let start = SessionStart::read(&words).ok_or(CellError::Size { have: CELL_WORDS })?;
        let cell = CellWriter::open(words)?;
        if cell.epoch() != region.epoch() {
            return Err(OpenError::Epoch { cell: cell.epoch(), region: region.epoch() });
        }
        let granted = cell.consumed();
        let life = RegionLife { region: identity, epoch: region.epoch() };
        let continued =
            policy != Policy::Lossless && before.is_some_and(|before| life.succeeds(&before));
        let (at, sequence) = match continued {
            true => (region.life_start(), Sequence(0)),
            false => (granted, start.sequence),
        };
        let mut walk = Walk::default();
        // The tail is looked at before the table, so the table holds what was committed before it.
        let ring = Ring::open(&region, at, policy, start.gate)?;
        let listed = region.directory()?.len();
        // Asked last: otherwise the number of instruments may be the next life's.
        if !region.is_current() {
            return Err(OpenError::Superseded { epoch: region.epoch() });
        }
        walk.start(listed);
        Ok(Self {
            ring,
            latest: region.latest()?,
            directory: region.directory()?,
            cell,
            buffer: Box::default(),
            walk,
            joining: Joining::new(sequence),
            from_first: sequence == Sequence(0),
            identity,
            continued,
            over: false,
            recovering: false,
            listed: Cell::new(listed),
            laps: 0,
            announced: granted,
            progress: Progress::new(sequence),
            waiter: Waiter::new(strategy, WakeWord::new(region.clone()), wake),
            region,
            disconnects: policy == Policy::Disconnect,
            rests: None,
            is_draining: false,
        })
    }
}
