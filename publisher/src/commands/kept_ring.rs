//! The ring beyond this process's life: in the service manager's descriptor store.
//!
//! systemd keeps what a service sends it with `FDSTORE=1` (as much as `FileDescriptorStoreMax=`
//! allows) over a crash, a restart and an upgrade, and gives it to the next process: as descriptors
//! from 3 on, counted in `LISTEN_FDS` and named in `LISTEN_FDNAMES`. The next publisher then goes
//! on in the same ring. What it cannot go on with, it drops from the store and makes anew.

use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags, open as open_file};
use sd_notify::NotifyState;
use tapecast_fabric::park::Ringer;
use tapecast_fabric::shm::{CreateError, Shm, ShmConfig, ShmHost};
use tracing::{info, warn};

/// The ring's name in the store.
const NAME: &str = "tapecast-ring";
/// Where the service manager listens.
const NOTIFY_VARIABLE: &str = "NOTIFY_SOCKET";

/// What the service manager has handed to this process under the ring's name; normally nothing or
/// one.
#[derive(Default)]
pub(super) struct Received {
    count: usize,
    /// Those of them that could be opened.
    rings: Vec<OwnedFd>,
}

/// Takes what the service manager has handed over. Call it before anything is opened: what is
/// handed over is known by its number alone.
///
/// The variables that say so stay set, because nothing here starts another process, and they name
/// this process's id.
pub(super) fn received() -> Received {
    let mut received = Received::default();
    let listed = match sd_notify::listen_fds_with_names() {
        Ok(listed) => listed,
        Err(error) => {
            warn!("what the service manager has handed over cannot be told apart: {error}");
            return received;
        }
    };
    for (number, name) in listed {
        if name == NAME {
            received.count += 1;
            match reopen(number) {
                Ok(ring) => received.rings.push(ring),
                Err(error) => warn!("the kept ring cannot be opened: {error}"),
            }
        }
        // Nothing else that may come (a socket, say) is of any use here.
        if let Err(error) = nix::unistd::close(number) {
            warn!("descriptor {number}, handed over as {name}, cannot be closed: {error}");
        }
    }
    received
}

/// A descriptor of our own for what is behind one that is only a number.
fn reopen(number: RawFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    open_file(format!("/proc/self/fd/{number}"), flags, Mode::empty())
}

/// Goes on in a ring that was handed over, or makes one; and has it kept, when that is configured.
///
/// # Errors
/// When a new region cannot be made.
pub(super) fn open(
    config: &ShmConfig,
    received: Received,
    sender: &Ringer,
) -> Result<Shm, CreateError> {
    let Received { count, rings } = received;
    let taken_over = match config.keep {
        true => rings.into_iter().find_map(|ring| take_over(ring, config, sender)),
        false => None,
    };
    // Taking one over leaves it in the store. Everything else must not pile up there.
    let is_stored = taken_over.is_some() && count == 1;
    if count > 0 && !is_stored {
        drop_from_store();
    }
    let mut shm = match taken_over {
        Some(shm) => shm,
        None => ShmHost::create(config, sender.clone())?,
    };
    if let Some(ring) = shm.kept.take()
        && !is_stored
    {
        store(&ring);
    }
    Ok(shm)
}

fn take_over(ring: OwnedFd, config: &ShmConfig, sender: &Ringer) -> Option<Shm> {
    match ShmHost::resume(ring, config, sender.clone()) {
        Ok(shm) => {
            info!("goes on in the ring that was kept");
            Some(shm)
        }
        Err(error) => {
            warn!("the kept ring cannot be gone on with, a new one is made: {error}");
            None
        }
    }
}

fn store(ring: &OwnedFd) {
    if std::env::var_os(NOTIFY_VARIABLE).is_none() {
        warn!(
            "shm.keep is on, but nobody keeps the ring ({NOTIFY_VARIABLE} is not set): run this as \
             a systemd unit with FileDescriptorStoreMax=1"
        );
        return;
    }
    // Memory has no end of file or error to be watched for.
    let states = [NotifyState::FdStore, NotifyState::FdName(NAME), NotifyState::Custom("FDPOLL=0")];
    if let Err(error) = sd_notify::notify_with_fds(&states, &[ring.as_fd()]) {
        warn!("the service manager does not take the ring, it ends with this process: {error}");
    }
}

fn drop_from_store() {
    let states = [NotifyState::FdStoreRemove, NotifyState::FdName(NAME)];
    if let Err(error) = sd_notify::notify(&states) {
        warn!("the service manager cannot be told to drop the ring that it keeps: {error}");
    }
}
