//! The conductor's side of shared memory: makes the region, prepares sessions.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{OFlags, SealFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use tapecast_ring::cell::{CELL_BYTES, CellError};
use tapecast_ring::region::{
    CreateError as RegionCreateError, LayoutError, ResumeError as RegionResumeError,
};
use tapecast_ring::{CellReader, RegionLayout, RegionReader, RegionWriter};
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::DEFAULT_LEVELS_PER_SIDE;
use tapecast_wire::{Epoch, Position, SessionId};

use super::fabric::ShmFabric;
use super::mapping::{self, MappingError, SIZE_SEALS};
use super::session::{SessionDescriptors, SessionMonitor, ShmSession, WakeSocket, WakeSockets};
use super::waker::Waker;
use crate::park::Ringer;
use crate::{Handover, Host, HostError, Prepared, Wish};

/// What keeps other processes from writing the region. Its size is sealed in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sealing {
    /// The kernel refuses every new writable mapping and every write, to everybody, for ever.
    #[default]
    FutureWrite,
    /// Only processes of the publisher's own user could open it for writing, so that a successor
    /// of the publisher can take the region over; subscribers get a descriptor that cannot write.
    Owner,
}

/// What a region is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Bytes of the ring, a power of two. Default 4 MiB.
    pub ring_bytes: u64,
    /// Instruments that the directory has room for. Default 1024.
    pub instruments: usize,
    /// Most levels per side of a snapshot. Default 10.
    pub levels_per_side: usize,
    /// What keeps others from writing. Default [`Sealing::FutureWrite`].
    pub sealing: Sealing,
    /// Whether lossless sessions, for which the publisher waits, may attach. Default no.
    pub allow_lossless: bool,
    /// Whether a later publisher may take the region over, see [`Shm::kept`]. Needs
    /// [`Sealing::Owner`]. Default no.
    pub keep: bool,
}

impl ShmConfig {
    /// The defaults.
    #[must_use]
    pub const fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            ring_bytes: 4 << 20,
            instruments: 1024,
            levels_per_side: DEFAULT_LEVELS_PER_SIDE,
            sealing: Sealing::FutureWrite,
            allow_lossless: false,
            keep: false,
        }
    }

    /// Bytes that the region will take.
    ///
    /// # Errors
    /// [`CreateError::Layout`] when no region can be made of these numbers.
    pub fn needed_bytes(&self) -> Result<u64, CreateError> {
        Ok(self.layout()?.total_bytes())
    }

    fn layout(&self) -> Result<RegionLayout, LayoutError> {
        RegionLayout::new(self.ring_bytes, self.instruments, self.levels_per_side)
    }
}

/// The region could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// No region can be made of the configured numbers.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Memory could not be had, sealed or mapped.
    #[error(transparent)]
    Memory(#[from] MappingError),
    /// The memory could not be made a region.
    #[error(transparent)]
    Region(#[from] RegionCreateError),
}

/// The region of an earlier publisher could not be taken over. Nothing in it has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// No region can be made of the configured numbers.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Its memory is not as it must be, or cannot be mapped.
    #[error(transparent)]
    Memory(#[from] MappingError),
    /// What is in the memory cannot be gone on with.
    #[error(transparent)]
    Region(#[from] RegionResumeError),
}

/// A session could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// Memory for the cell could not be had, sealed or mapped.
    #[error("session cell: {0}")]
    Memory(#[from] MappingError),
    /// The cell could not be made.
    #[error("session cell: {0}")]
    Cell(#[from] CellError),
    /// No socket or descriptor could be had.
    #[error("cannot {action} for a session: {source}; raise the limit on open files (ulimit -n)")]
    Descriptor {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A region's three users, each for a thread of its own.
#[derive(Debug)]
pub struct Shm {
    /// For the conductor.
    pub host: ShmHost,
    /// For the sender.
    pub fabric: ShmFabric,
    /// For the waker's thread.
    pub waker: Waker,
    /// With [`ShmConfig::keep`]: the region's descriptor, for somebody who keeps it beyond this
    /// process's life and hands it to the next for [`ShmHost::resume`].
    pub kept: Option<OwnedFd>,
}

/// The conductor's side: holds the region's descriptor and prepares sessions.
#[derive(Debug)]
pub struct ShmHost {
    region_file: OwnedFd,
    region: RegionReader,
    sockets: Arc<WakeSockets>,
}

impl ShmHost {
    /// Makes a region. `sender` is the ringer of the sender's parker: the waker asks it whether
    /// the sender is parked.
    ///
    /// # Errors
    /// [`CreateError`]; when memory is short it names the bytes needed.
    pub fn create(config: &ShmConfig, sender: Ringer) -> Result<Shm, CreateError> {
        let layout = config.layout()?;
        let bytes = layout.total_bytes();
        let file = mapping::create("tapecast-region", bytes)?;
        let words = mapping::writable(&file, bytes)?;
        // The writable mapping comes first: the seal lets it live and refuses any other.
        mapping::seal(&file, config.sealing.seals())?;
        let region = RegionWriter::create(words, &layout, config.epoch)?;
        Ok(Self::over(region, mapping::reopen_read_only(&file)?, file, config, sender))
    }

    /// Takes over the region behind `file`, which a publisher that is gone has made with
    /// [`ShmConfig::keep`] and with the same sizes.
    ///
    /// # Errors
    /// [`ResumeError`] when it is not such a region, or not one to go on with.
    pub fn resume(file: OwnedFd, config: &ShmConfig, sender: Ringer) -> Result<Shm, ResumeError> {
        let layout = config.layout()?;
        let bytes = layout.total_bytes();
        mapping::check_kept(&file, bytes)?;
        let words = mapping::writable(&file, bytes)?;
        // Everything that can fail comes before the taking over.
        let region_file = mapping::reopen_read_only(&file)?;
        let region = RegionWriter::resume(&words, &layout, config.epoch)?;
        Ok(Self::over(region, region_file, file, config, sender))
    }

    fn over(
        region: RegionWriter,
        region_file: OwnedFd,
        file: OwnedFd,
        config: &ShmConfig,
        sender: Ringer,
    ) -> Shm {
        let sockets = Arc::new(WakeSockets::default());
        let host = Self { region_file, region: region.reader(), sockets: Arc::clone(&sockets) };
        let waker = Waker::new(region.reader(), sockets, sender);
        let fabric = ShmFabric::new(region, config.allow_lossless, config.keep);
        Shm { host, fabric, waker, kept: config.keep.then_some(file) }
    }

    /// Prepares a session: its cell and its wake socket. Attach the session, then hand over the
    /// descriptors.
    ///
    /// # Errors
    /// [`PrepareError`] when the system has no memory or descriptors left.
    pub fn prepare(
        &self,
        policy: Policy,
    ) -> Result<(ShmSession, SessionDescriptors), PrepareError> {
        let bytes = CELL_BYTES as u64;
        let (cell, cell_words) = mapping::create_shared("tapecast-cell", bytes)?;
        let (ours, theirs) = wake_sockets()?;
        let region = self.region_file.try_clone();
        let region = region
            .map_err(|source| PrepareError::Descriptor { action: "copy a descriptor", source })?;
        // The sender writes the session's id and where it begins when it attaches it.
        let reader =
            || CellReader::create(&cell_words, SessionId(0), self.region.epoch(), Position(0));
        let monitor = SessionMonitor::new(policy, self.region.clone(), reader()?);
        let wake = Arc::new(WakeSocket::new(ours, reader()?));
        self.sockets.add(Arc::clone(&wake));
        let sockets = Arc::downgrade(&self.sockets);
        let session = ShmSession { policy, cell_words, monitor, wake, sockets };
        Ok((session, SessionDescriptors { region, cell, wake: theirs }))
    }

    /// The descriptor that subscribers get: it cannot write.
    #[must_use]
    pub fn region_file(&self) -> BorrowedFd<'_> {
        self.region_file.as_fd()
    }

    /// Bytes of the region.
    #[must_use]
    pub const fn region_bytes(&self) -> u64 {
        self.region.layout().total_bytes()
    }
}

impl Host for ShmHost {
    type Session = ShmSession;
    type Monitor = SessionMonitor;

    fn prepare_session(
        &self,
        wish: &Wish<'_>,
    ) -> Result<Prepared<ShmSession, SessionMonitor>, HostError> {
        // Every subscriber reads the one ring, so what it wants is its own affair.
        if wish.offer.is_some() {
            let text = "this publisher serves shared memory on its own host, not RDMA: attach \
                        through its Unix socket";
            return Err(HostError::Unsuitable(text.to_owned()));
        }
        let prepared = self.prepare(wish.policy);
        let (session, descriptors) =
            prepared.map_err(|error| HostError::Resources(error.to_string()))?;
        let monitor = session.monitor();
        Ok(Prepared { session, monitor, handover: Handover::Descriptors(descriptors) })
    }
}

impl Sealing {
    const fn seals(self) -> SealFlags {
        match self {
            Self::FutureWrite => SIZE_SEALS.union(SealFlags::FUTURE_WRITE),
            Self::Owner => SIZE_SEALS,
        }
    }
}

/// A pair of sockets: the publisher's end only sends, the subscriber's does not block.
fn wake_sockets() -> Result<(OwnedFd, OwnedFd), PrepareError> {
    let failed = |action| {
        move |errno: rustix::io::Errno| PrepareError::Descriptor { action, source: errno.into() }
    };
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(failed("make a socket pair"))?;
    // What a subscriber sends would only fill a buffer.
    shutdown(&ours, Shutdown::Read).map_err(failed("close one direction of a socket"))?;
    let flags = fcntl_getfl(&theirs).map_err(failed("look at a socket"))?;
    fcntl_setfl(&theirs, flags | OFlags::NONBLOCK).map_err(failed("set up a socket"))?;
    Ok((ours, theirs))
}
