//! The sender's side of the simulated network.

use std::sync::Arc;
use std::sync::mpsc;

use tapecast_core::fan_out::{self, Record, Source, Staged, Staging};
use tapecast_core::session::{Eviction, SentTotals};
use tapecast_core::{FanOut, Session};
use tapecast_ring::CellReader;
use tapecast_ring::cell::{CellCounters, CellLatency, ConsumedError};
use tapecast_wire::attach::{Farewell, Policy};
use tapecast_wire::limits::MAX_SUBSCRIBERS;
use tapecast_wire::{
    Epoch, InstrumentEntry, InstrumentId, Nanos, Position, Sequence, SessionId, Snapshot,
};

use super::SimConfig;
use super::completion::{Completion, CompletionQueue, Status};
use super::directory::DirectoryRecords;
use super::latest::LatestTable;
use super::link::Link;
use super::queue_pair::{Bytes, Delays, Dice, QueuePair};
use crate::pool::{Pool, Shared};
use crate::{
    AttachError, ChannelState, DirectoryFull, Fabric, Full, LatencyReport, SessionCounts,
    SessionStats,
};

/// Least time between two heartbeats: well below the 100 ms that subscribers are promised.
const HEARTBEAT_NS: u64 = 20_000_000;
/// Records from the backlog that one turn stages for one session.
const PUMP_LIMIT: usize = 64;
/// Completions that one turn polls.
const REAP_LIMIT: usize = 1024;
/// Watch requests that one turn takes from one session.
const REQUEST_LIMIT: usize = 64;

/// What the conductor prepares for one subscriber.
#[derive(Debug)]
pub struct SimSession {
    session: Box<Session>,
    side: Side,
}

/// The fabric's half of a session; the other half is the fan-out's.
#[derive(Debug)]
struct Side {
    link: Arc<Link>,
    queue_pair: QueuePair,
    requests: mpsc::Receiver<InstrumentId>,
    cell: Option<CellReader>,
    images: u64,
    /// The state that the subscriber was told last.
    told: Option<ChannelState>,
    faults: u64,
}

impl SimSession {
    pub(super) fn new(
        session: Box<Session>,
        link: Arc<Link>,
        requests: mpsc::Receiver<InstrumentId>,
        config: &SimConfig,
    ) -> Self {
        let delays =
            Delays { execute: config.execute_ticks_max, complete: config.complete_ticks_max };
        let (depth, every) = (config.send_depth, config.signal_every);
        let queue_pair = QueuePair::new(Arc::clone(&link), depth, every, delays);
        let side =
            Side { link, queue_pair, requests, cell: None, images: 0, told: None, faults: 0 };
        Self { session, side }
    }

    /// What happens when this session does not keep up.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.session.terms().policy
    }
}

/// The publisher's end of the simulated network.
#[derive(Debug)]
pub struct SimFabric {
    fan_out: FanOut,
    sides: Box<[Option<Side>]>,
    completions: CompletionQueue,
    directory: DirectoryRecords,
    latest: LatestTable,
    pool: Pool,
    dice: Dice,
    epoch: Epoch,
    allow_lossless: bool,
    tick: u64,
    beaten_at: Nanos,
    state: ChannelState,
    receiver_not_ready: u64,
}

impl SimFabric {
    pub(super) fn new(config: &SimConfig, pool: Pool) -> Self {
        Self {
            fan_out: FanOut::new(config.instruments),
            sides: (0..MAX_SUBSCRIBERS).map(|_| None).collect(),
            completions: CompletionQueue::new(MAX_SUBSCRIBERS * config.send_depth as usize),
            directory: DirectoryRecords::new(config.instruments, config.epoch),
            latest: LatestTable::new(config.instruments, config.levels_per_side),
            pool,
            dice: Dice::new(config.seed),
            epoch: config.epoch,
            allow_lossless: config.allow_lossless,
            tick: 0,
            beaten_at: Nanos(0),
            state: ChannelState::Running,
            receiver_not_ready: 0,
        }
    }

    /// Sessions that must be taken out, and why. They are served no more.
    pub fn evicted(&self) -> impl Iterator<Item = (SessionId, Eviction)> {
        let reason = |id| Some((id, self.fan_out.session(id)?.eviction()?));
        self.fan_out.session_ids().filter_map(reason)
    }

    /// What this side has counted for one session and instrument.
    #[must_use]
    pub fn sent(&self, id: SessionId, instrument: InstrumentId) -> Option<SentTotals> {
        self.fan_out.instrument_totals(id, instrument)
    }

    /// Work requests that are not retired, over all sessions.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.sides.iter().flatten().map(|side| side.queue_pair.outstanding()).sum()
    }

    /// Times that an immediate found no receive posted. 0 unless a subscriber lied about them.
    #[must_use]
    pub const fn receiver_not_ready(&self) -> u64 {
        self.receiver_not_ready
    }

    /// Checks every invariant. For tests; walks everything.
    ///
    /// # Panics
    /// When an invariant does not hold, which is a bug of this crate.
    pub fn assert_invariants(&self) {
        self.fan_out.assert_invariants();
        for (index, side) in self.sides.iter().enumerate() {
            let session = self.fan_out.session(SessionId(index as u32));
            assert_eq!(side.is_some(), session.is_some());
            if let (Some(side), Some(session)) = (side, session) {
                let counted = session.window().outstanding() as usize;
                assert_eq!(side.queue_pair.outstanding(), counted, "session {index}");
            }
        }
    }

    /// Sends what waits, as credit and pages allow.
    fn pump(&mut self) -> usize {
        let Self { fan_out, sides, latest, pool, .. } = self;
        let staged = fan_out.pump(PUMP_LIMIT, |staging| {
            let bytes = match staging.source {
                Source::Directory(id) => Some(Bytes::Directory(id)),
                Source::Latest(id) => latest.share(id, pool).map(Bytes::Page),
                Source::Published => None,
            };
            let Some(bytes) = bytes else { return Staged::NoMemory };
            stage(sides, staging, bytes);
            Staged::Done
        });
        latest.end_pass();
        staged
    }

    fn ring_doorbells(&mut self) {
        let Self { fan_out, sides, dice, tick, .. } = self;
        fan_out.flush(|id, _tail| {
            if let Some(side) = &mut sides[id.index()] {
                side.queue_pair.post(*tick, dice);
            }
        });
    }

    /// Lets every session's device do what is due at this tick.
    fn step_network(&mut self) -> usize {
        let Self { sides, directory, completions, tick, .. } = self;
        let mut moved = 0;
        for (index, side) in sides.iter_mut().enumerate() {
            let Some(side) = side else { continue };
            let id = SessionId(index as u32);
            moved += side.queue_pair.step(id, *tick, directory, completions);
        }
        moved
    }

    fn reap(&mut self, limit: usize) -> usize {
        let mut reaped = 0;
        while reaped < limit
            && let Some(completion) = self.completions.poll()
        {
            self.on_completion(completion);
            reaped += 1;
        }
        reaped
    }

    fn on_completion(&mut self, completion: Completion) {
        let Completion { session, status, retires } = completion;
        if let Some(side) = &mut self.sides[session.index()] {
            side.queue_pair.retire(retires);
            self.fan_out.on_retired(session, retires);
        }
        match status {
            Status::Done | Status::Flushed => {}
            Status::Failed => self.evict(session, Eviction::Unreachable),
            Status::ReceiverNotReady => {
                self.receiver_not_ready += 1;
                self.evict(session, Eviction::Unreachable);
            }
        }
    }

    /// Stops serving a session; what is outstanding is flushed and will be reaped.
    fn evict(&mut self, id: SessionId, reason: Eviction) {
        self.fan_out.evict(id, reason);
        let Some(side) = &mut self.sides[id.index()] else { return };
        let dropped = side.queue_pair.drop_staged();
        self.fan_out.on_retired(id, dropped);
        if !side.queue_pair.is_in_error() {
            side.queue_pair.enter_error(id, Status::Flushed, &mut self.completions);
        }
    }

    /// What the subscribers say in their cells, and what they ask for.
    fn read_cells(&mut self, now: Nanos) -> usize {
        let mut news = 0;
        for index in 0..self.sides.len() {
            let id = SessionId(index as u32);
            if self.fan_out.is_served(id) {
                news += self.read_cell(id, now) + self.take_requests(id);
            }
        }
        news
    }

    fn read_cell(&mut self, id: SessionId, now: Nanos) -> usize {
        let Some(side) = &mut self.sides[id.index()] else { return 0 };
        let Some(cell) = &mut side.cell else { return 0 };
        // The fan-out judges the claim. The position is loaded first: it orders the other loads.
        let consumed = match cell.consumed(Position(u64::MAX)) {
            Ok(consumed) => consumed,
            Err(
                ConsumedError::Backwards { announced, .. }
                | ConsumedError::BeyondTail { announced, .. },
            ) => announced,
        };
        let receives = side.link.claimed_receives();
        let beat = cell.heartbeat().0;
        match self.fan_out.on_credit(id, consumed, receives) {
            Ok(more) => {
                if self.fan_out.on_beat(id, beat, now)
                    && let Some(reason) = self.fan_out.session(id).and_then(Session::eviction)
                {
                    self.evict(id, reason);
                }
                usize::from(more)
            }
            Err(liar) => {
                side.faults += 1;
                self.evict(id, Eviction::Liar(liar));
                1
            }
        }
    }

    fn take_requests(&mut self, id: SessionId) -> usize {
        let Some(side) = &self.sides[id.index()] else { return 0 };
        let requests = side.requests.try_iter().take(REQUEST_LIMIT);
        requests.filter(|instrument| self.fan_out.watch(id, *instrument)).count()
    }

    /// The state to tell a session: while the channel ends, one that has a backlog is not done yet.
    fn state_for(&self, id: SessionId) -> ChannelState {
        let waits = self.state == ChannelState::Closed && self.fan_out.has_backlog(id);
        if waits { ChannelState::Closing } else { self.state }
    }

    /// Tells a session how many initial images it gets, the channel's state and the time, unless
    /// its send queue is full.
    fn tell(&mut self, id: SessionId, state: ChannelState, now: Nanos) {
        let Some(side) = &mut self.sides[id.index()] else { return };
        if self.fan_out.take_send(id) {
            side.queue_pair.post_control((side.images, state, now), self.tick, &mut self.dice);
            side.told = Some(state);
        }
    }

    /// Tells every session that has to be told something new, and all of them the time when it is
    /// due.
    fn tell_sessions(&mut self, now: Nanos) {
        // A clock that was set back must not silence the heartbeat.
        let is_due = now.0.abs_diff(self.beaten_at.0) >= HEARTBEAT_NS;
        if is_due {
            self.beaten_at = now;
        }
        for index in 0..self.sides.len() {
            let id = SessionId(index as u32);
            let Some(side) = &self.sides[index] else { continue };
            let state = self.state_for(id);
            if is_due || side.told != Some(state) {
                self.tell(id, state, now);
            }
        }
    }

    fn refusal(&self, policy: Policy) -> Option<fn(SimSession) -> AttachError<SimSession>> {
        if self.state != ChannelState::Running {
            Some(AttachError::Closing)
        } else if policy == Policy::Lossless && !self.allow_lossless {
            Some(AttachError::LosslessNotAllowed)
        } else {
            None
        }
    }
}

fn stage(sides: &mut [Option<Side>], staging: &Staging, bytes: Bytes) {
    let Some(side) = &mut sides[staging.session.index()] else { return };
    let placement = staging.placement;
    if let Some(padding) = placement.padding {
        side.queue_pair.stage_padding(padding);
    }
    if placement.opens {
        side.queue_pair.stage_open(bytes, placement.position, placement.end());
    } else {
        side.queue_pair.stage_more(bytes, placement.position, placement.end());
    }
}

impl Fabric for SimFabric {
    type Session = SimSession;

    fn attach(&mut self, session: SimSession) -> Result<SessionId, AttachError<SimSession>> {
        if let Some(refused) = self.refusal(session.policy()) {
            return Err(refused(session));
        }
        let SimSession { session, mut side } = session;
        assert!(session.capacity() == self.fan_out.capacity(), "a session of another network");
        let attached = match self.fan_out.attach(session) {
            Ok(attached) => attached,
            Err(fan_out::AttachError::Full(session) | fan_out::AttachError::Capacity(session)) => {
                return Err(AttachError::Full(SimSession { session, side }));
            }
        };
        let id = attached.session;
        side.images = attached.initial_images;
        side.link.set_receives(side.link.receives.depth());
        side.cell = CellReader::create(&side.link.cell, id, self.epoch, Position(0)).ok();
        self.sides[id.index()] = Some(side);
        self.tell(id, self.state, self.beaten_at);
        // What is published from here on need not wait behind the image, if credit suffices.
        self.pump();
        Ok(id)
    }

    fn detach(&mut self, id: SessionId) -> Option<SimSession> {
        self.fan_out.session(id)?;
        self.evict(id, Eviction::Unreachable);
        // In error, so everything outstanding is in the completion queue already.
        self.reap(usize::MAX);
        let side = self.sides[id.index()].take()?;
        debug_assert_eq!(side.queue_pair.outstanding(), 0);
        let session = self.fan_out.detach(id)?;
        Some(SimSession { session, side })
    }

    fn upsert_instrument(&mut self, entry: &InstrumentEntry) -> Result<(), DirectoryFull> {
        if !self.directory.upsert(entry) {
            let (count, capacity) = (self.directory.len(), self.directory.capacity());
            let instrument_id = entry.instrument_id;
            return Err(DirectoryFull { instrument_id, count, capacity });
        }
        self.fan_out.on_entry(InstrumentId(entry.instrument_id));
        // Staged at once where there is credit, so that snapshots need not wait behind it.
        self.pump();
        Ok(())
    }

    /// # Panics
    /// When the snapshot is not an encoded record of an instrument in the directory.
    fn publish(&mut self, snapshot: Shared) -> Result<(), Full> {
        let record = match Snapshot::header_of(snapshot.bytes()) {
            Ok(header) => Record {
                instrument: InstrumentId(header.instrument_id),
                sequence: Sequence(header.instrument_sequence),
                record_bytes: usize::from(header.record_len),
            },
            Err(error) => panic!("what is published is not a snapshot: {error}"),
        };
        let sides = &mut self.sides;
        let published = self.fan_out.publish(record, |staging| {
            stage(sides, staging, Bytes::Page(snapshot.clone()));
        });
        if published.is_err() {
            return Err(Full(snapshot));
        }
        self.latest.store(record.instrument, snapshot.bytes());
        Ok(())
    }

    fn flush(&mut self, _now: Nanos) {
        self.ring_doorbells();
    }

    fn turn(&mut self, now: Nanos) -> usize {
        self.tick += 1;
        let moved = self.step_network();
        let reaped = self.reap(REAP_LIMIT);
        let news = self.read_cells(now);
        let staged = self.pump();
        self.ring_doorbells();
        self.tell_sessions(now);
        // Something in flight needs further turns, even when none of it is due at this tick.
        moved + reaped + news + staged + self.outstanding().min(1)
    }

    fn session_stats(&self, id: SessionId) -> Option<SessionStats> {
        let side = self.sides.get(id.index())?.as_ref()?;
        let session = self.fan_out.session(id)?;
        let cell = side.cell.as_ref()?;
        let CellCounters { delivered, conflated, lost, lapped, initial_images } = cell.counters();
        let CellLatency { count, p50_ns, p99_ns, p999_ns, max_ns } = cell.latency();
        let channel_sequence = cell.channel_sequence();
        Some(SessionStats {
            policy: session.terms().policy,
            consumed: session.window().consumed(),
            lag_bytes: session.window().lag_bytes(),
            counts: SessionCounts {
                channel_sequence,
                delivered,
                conflated,
                lost,
                initial_images,
                laps: lapped,
            },
            latency: LatencyReport { count, p50_ns, p99_ns, p99_9_ns: p999_ns, max_ns },
            heartbeat: cell.heartbeat(),
            faults: side.faults,
        })
    }

    fn close(&mut self, now: Nanos, _farewell: Farewell) {
        // Why it closes is said by the control plane; here it only ends, for each session once
        // nothing waits for it any more. Turns must follow until the network is idle.
        self.state = ChannelState::Closed;
        self.pump();
        self.ring_doorbells();
        self.tell_sessions(now);
    }
}
