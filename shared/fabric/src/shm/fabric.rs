//! The sender's side of shared memory.

use tapecast_ring::region::RegionState;
use tapecast_ring::{CellReader, RegionWriter};
use tapecast_wire::attach::{Farewell, Policy};
use tapecast_wire::limits::MAX_SUBSCRIBERS;
use tapecast_wire::{InstrumentEntry, Nanos, Position, SessionId};

use super::session::{Gate, SessionStart, ShmSession};
use crate::pool::Shared;
use crate::{AttachError, DirectoryFull, Fabric, Full, SessionStats};

/// Least time between two heartbeats: well below the 100 ms that subscribers are promised.
const HEARTBEAT_NS: u64 = 20_000_000;

/// Limit of a writer that waits for nobody.
const NO_GATE: Position = Position(u64::MAX);

/// The publisher's end: writes the region, and looks at the cells of lossless sessions only.
#[derive(Debug)]
pub struct ShmFabric {
    region: RegionWriter,
    sessions: Box<[Option<Attached>]>,
    /// Position beyond which a lossless session may still be reading. At least as low as the
    /// cells say: they are looked at only when it is reached.
    limit: Position,
    allow_lossless: bool,
    /// Another publisher may take the region over.
    keep: bool,
    beaten_at: Nanos,
    /// What the region says of the feed.
    feed_silent_since: Nanos,
    closed: bool,
}

#[derive(Debug)]
struct Attached {
    session: ShmSession,
    cell: CellReader,
}

impl ShmFabric {
    pub(super) fn new(region: RegionWriter, allow_lossless: bool, keep: bool) -> Self {
        Self {
            region,
            sessions: (0..MAX_SUBSCRIBERS).map(|_| None).collect(),
            limit: NO_GATE,
            allow_lossless,
            keep,
            beaten_at: Nanos(0),
            feed_silent_since: Nanos(0),
            closed: false,
        }
    }

    /// Makes what was staged visible. The wake word is raised after the tail, so whoever sees the
    /// word sees the tail.
    #[inline]
    fn commit(&mut self) {
        let before = self.region.broadcast.committed();
        if self.region.broadcast.commit() != before {
            self.region.header.raise_wake();
        }
    }

    /// Works the limit out anew from the cells of lossless sessions. Returns whether it rose.
    #[cold]
    fn look_at_gates(&mut self) -> bool {
        let tail = self.region.broadcast.committed();
        let capacity = self.region.broadcast.capacity_bytes();
        let mut limit = NO_GATE;
        for attached in self.sessions.iter_mut().flatten() {
            if attached.session.policy == Policy::Lossless {
                limit = limit.min(Position(attached.consumed(tail).0.saturating_add(capacity)));
            }
        }
        let rose = limit > self.limit;
        self.limit = limit;
        rose
    }

    fn refusal(&self, policy: Policy) -> Option<fn(ShmSession) -> AttachError<ShmSession>> {
        if self.closed {
            Some(AttachError::Closing)
        } else if policy == Policy::Lossless && !self.allow_lossless {
            Some(AttachError::LosslessNotAllowed)
        } else {
            None
        }
    }
}

impl Attached {
    /// Up to where the session has read. A cell that cannot be true counts as standing still.
    fn consumed(&mut self, tail: Position) -> Position {
        let found = self.cell.consumed(tail);
        self.session.monitor.judge(&self.cell, found)
    }
}

impl Fabric for ShmFabric {
    type Session = ShmSession;

    fn attach(&mut self, session: ShmSession) -> Result<SessionId, AttachError<ShmSession>> {
        if let Some(refused) = self.refusal(session.policy) {
            return Err(refused(session));
        }
        let Some(index) = self.sessions.iter().position(Option::is_none) else {
            return Err(AttachError::Full(session));
        };
        // A session begins between two batches, so that position and sequence belong together.
        self.commit();
        let at = self.region.broadcast.committed();
        let gate = match (session.policy, self.keep) {
            (Policy::Lossless, false) => Gate::Lends,
            (Policy::Lossless, true) => Gate::Copies,
            (Policy::Conflate | Policy::Disconnect, _) => Gate::Open,
        };
        let id = SessionId(index as u32);
        SessionStart { sequence: self.region.broadcast.channel_sequence(), gate }
            .write(&session.cell_words);
        let Ok(cell) = CellReader::create(&session.cell_words, id, self.region.epoch(), at) else {
            // Cells are made by the host with the one size there is.
            return Err(AttachError::Closing(session));
        };
        if gate != Gate::Open {
            self.limit = self.limit.min(Position(at.0 + self.region.broadcast.capacity_bytes()));
        }
        self.sessions[index] = Some(Attached { session, cell });
        Ok(id)
    }

    fn detach(&mut self, id: SessionId) -> Option<ShmSession> {
        let attached = self.sessions.get_mut(id.index())?.take()?;
        if attached.session.policy == Policy::Lossless {
            self.look_at_gates();
        }
        Some(attached.session)
    }

    fn upsert_instrument(&mut self, entry: &InstrumentEntry) -> Result<(), DirectoryFull> {
        let directory = &mut self.region.directory;
        directory.upsert(entry).map_err(|_full_or_not_dense| DirectoryFull {
            instrument_id: entry.instrument_id,
            count: directory.len(),
            capacity: directory.capacity(),
        })
    }

    #[inline]
    fn publish(&mut self, snapshot: Shared) -> Result<(), Full> {
        let record = snapshot.bytes();
        if self.region.publish_within(self.limit, record).is_ok() {
            return Ok(());
        }
        if self.look_at_gates() && self.region.publish_within(self.limit, record).is_ok() {
            return Ok(());
        }
        Err(Full(snapshot))
    }

    #[inline]
    fn flush(&mut self, _now: Nanos) {
        self.commit();
    }

    #[inline]
    fn turn(&mut self, now: Nanos) -> usize {
        // A clock that was set back must not silence the heartbeat.
        if now.0.abs_diff(self.beaten_at.0) >= HEARTBEAT_NS {
            self.region.header.set_heartbeat(now);
            self.beaten_at = now;
        }
        0
    }

    #[inline]
    fn show_feed(&mut self, silent_since: Nanos) {
        if silent_since != self.feed_silent_since {
            self.feed_silent_since = silent_since;
            self.region.header.set_feed_silent_since(silent_since);
            self.region.header.raise_wake();
        }
    }

    fn session_stats(&self, id: SessionId) -> Option<SessionStats> {
        let attached = self.sessions.get(id.index())?.as_ref()?;
        Some(attached.session.monitor.stats())
    }

    fn close(&mut self, now: Nanos, _farewell: Farewell) {
        // Why it closes is said on each session's lifeline; here it only ends.
        self.closed = true;
        self.commit();
        self.region.header.set_heartbeat(now);
        self.region.header.set_state(RegionState::Closed);
        self.region.header.raise_wake();
    }
}
