//! One subscriber's session, seen from the publisher.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::net::{SendFlags, send};
use tapecast_core::session::Eviction;
use tapecast_ring::cell::{CELL_START_WORD, CELL_WORDS, ConsumedError};
use tapecast_ring::{CellReader, RegionReader, WordsMut};
use tapecast_wire::attach::Policy;
use tapecast_wire::{Position, Sequence};

use crate::{LatencyReport, Monitor, SessionCounts, SessionStats, Timing};

/// The cell's last line says where the session begins. The sender writes it when it attaches the
/// session, before the subscriber has the cell, and nobody does afterwards.
///
/// ```text
/// word CELL_START_WORD        channel sequence of the last snapshot before the session
/// word CELL_START_WORD + 1    whether the writer is gated by this session: see [`Gate`]
/// ```
const START_SEQUENCE_WORD: usize = CELL_START_WORD;
const GATE_WORD: usize = CELL_START_WORD + 1;

/// Where a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionStart {
    /// Channel sequence of the last snapshot that was published before.
    pub(super) sequence: Sequence,
    /// Whether the writer waits for this session.
    pub(super) gate: Gate,
}

/// Whether the writer waits for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Gate {
    /// No.
    Open = 0,
    /// Yes, whoever it is: what is not consumed is never written over, so it can be lent in place.
    Lends = 1,
    /// Yes, but a later publisher may take the region over, and that one does not wait for sessions
    /// of the life before: records have to be copied.
    Copies = 2,
}

impl Gate {
    const fn from_word(word: u64) -> Self {
        match word {
            1 => Self::Lends,
            2 => Self::Copies,
            _ => Self::Open,
        }
    }
}

impl SessionStart {
    pub(super) fn write(self, cell: &WordsMut) {
        for (word, value) in [(START_SEQUENCE_WORD, self.sequence.0), (GATE_WORD, self.gate as u64)]
        {
            let stored = cell.store(word, value);
            debug_assert!(stored.is_some(), "a cell has {CELL_WORDS} words");
        }
    }

    /// `None` when the cell is too short.
    pub(super) fn read(cell: &WordsMut) -> Option<Self> {
        let sequence = Sequence(cell.load(START_SEQUENCE_WORD)?);
        Some(Self { sequence, gate: Gate::from_word(cell.load(GATE_WORD)?) })
    }
}

/// What the conductor prepares for one subscriber: attach it to the fabric, then hand over the
/// descriptors. Dropping it, which only the conductor should do, gives everything back.
#[derive(Debug)]
pub struct ShmSession {
    pub(super) policy: Policy,
    pub(super) cell_words: WordsMut,
    pub(super) monitor: SessionMonitor,
    pub(super) wake: Arc<WakeSocket>,
    pub(super) sockets: Weak<WakeSockets>,
}

impl ShmSession {
    /// What happens when this session does not keep up.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Figures of this session, for any thread.
    #[must_use]
    pub fn monitor(&self) -> SessionMonitor {
        self.monitor.clone()
    }
}

impl Drop for ShmSession {
    fn drop(&mut self) {
        if let Some(sockets) = self.sockets.upgrade() {
            sockets.remove(&self.wake);
        }
    }
}

/// Descriptors for one subscriber, in the order in which they travel: region, cell, wake socket.
#[derive(Debug)]
pub struct SessionDescriptors {
    pub(super) region: OwnedFd,
    pub(super) cell: OwnedFd,
    pub(super) wake: OwnedFd,
}

impl SessionDescriptors {
    /// The descriptors, to send.
    #[must_use]
    pub fn as_fds(&self) -> [BorrowedFd<'_>; 3] {
        [self.region.as_fd(), self.cell.as_fd(), self.wake.as_fd()]
    }

    /// The descriptors, for an endpoint in this process.
    #[must_use]
    pub fn into_vec(self) -> Vec<OwnedFd> {
        vec![self.region, self.cell, self.wake]
    }
}

/// Figures of one session, from its cell. Any thread may look; the sender is not asked.
#[derive(Clone, Debug)]
pub struct SessionMonitor {
    shared: Arc<Monitored>,
}

#[derive(Debug)]
struct Monitored {
    policy: Policy,
    region: RegionReader,
    cell: Mutex<CellReader>,
    faults: AtomicU64,
    /// The consumed position that was announced last, as far as anybody has looked.
    announced: AtomicU64,
}

impl SessionMonitor {
    pub(super) fn new(policy: Policy, region: RegionReader, cell: CellReader) -> Self {
        let announced = AtomicU64::new(cell.consumed_before().0);
        let (cell, faults) = (Mutex::new(cell), AtomicU64::new(0));
        Self { shared: Arc::new(Monitored { policy, region, cell, faults, announced }) }
    }

    /// What a look at the consumed position in `cell`, the sender's reader or this one's, has
    /// found. One that cannot be true is counted when it appears, not at each look; the last good
    /// one stays.
    pub(super) fn judge(
        &self,
        cell: &CellReader,
        found: Result<Position, ConsumedError>,
    ) -> Position {
        // Relaxed: it orders nothing, and each change is seen by one of those who swap.
        let Monitored { faults, announced, .. } = &*self.shared;
        match found {
            Ok(consumed) => {
                announced.store(consumed.0, Ordering::Relaxed);
                consumed
            }
            Err(error) => {
                let now = error.announced().0;
                if announced.swap(now, Ordering::Relaxed) != now {
                    faults.fetch_add(1, Ordering::Relaxed);
                }
                cell.consumed_before()
            }
        }
    }

    /// The figures now.
    #[must_use]
    pub fn stats(&self) -> SessionStats {
        let Monitored { policy, region, cell, faults, .. } = &*self.shared;
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cell.consumed_within(|| region.tail());
        let consumed = self.judge(&cell, found);
        let tail = region.tail();
        SessionStats {
            policy: *policy,
            consumed,
            lag_bytes: lag_bytes(consumed, tail),
            counts: SessionCounts::of(&cell),
            latency: LatencyReport::of(&cell),
            heartbeat: cell.heartbeat(),
            faults: faults.load(Ordering::Relaxed),
            credit_stalls: 0,
            send_queue: None,
        }
    }
}

impl Monitor for SessionMonitor {
    fn stats(&self) -> SessionStats {
        Self::stats(self)
    }

    fn timing(&self) -> Timing {
        self.shared.cell.lock().unwrap_or_else(PoisonError::into_inner).timing()
    }

    /// Never: nothing that a subscriber does to its own cell reaches anybody else.
    fn evicted(&self) -> Option<Eviction> {
        None
    }

    /// Nothing of the publisher's waits for a subscriber here.
    fn quench(&self) {}
}

const fn lag_bytes(consumed: Position, tail: Position) -> u64 {
    tail.0.saturating_sub(consumed.0)
}

/// The publisher's end of one session's wake socket.
#[derive(Debug)]
pub(super) struct WakeSocket {
    socket: OwnedFd,
    cell: Mutex<CellReader>,
}

impl WakeSocket {
    pub(super) const fn new(socket: OwnedFd, cell: CellReader) -> Self {
        Self { socket, cell: Mutex::new(cell) }
    }

    /// Sends one byte when the session asks for it. Never blocks, whatever the other end does.
    fn wake_if_armed(&self) -> bool {
        let armed = self.cell.lock().unwrap_or_else(PoisonError::into_inner).take_armed();
        if armed {
            // A full socket is readable already, and a closed one has nobody to wake.
            let _sent = send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        armed
    }
}

/// The wake sockets of all prepared sessions. The conductor adds and removes, the waker walks; the
/// sender has nothing to do with them.
#[derive(Debug, Default)]
pub(super) struct WakeSockets {
    all: Mutex<Vec<Arc<WakeSocket>>>,
}

impl WakeSockets {
    pub(super) fn add(&self, socket: Arc<WakeSocket>) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    }

    fn remove(&self, socket: &Arc<WakeSocket>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| !Arc::ptr_eq(other, socket));
    }

    /// Wakes every session that waits on its descriptor; returns how many.
    pub(super) fn wake_armed(&self) -> usize {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|socket| socket.wake_if_armed()).count()
    }
}
