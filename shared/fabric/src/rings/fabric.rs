//! The publisher's end.

mod cells;

use std::time::{Duration, Instant};

use tapecast_core::fan_out::{self, Record, Source, Staged, Staging};
use tapecast_core::planted::{Planted, is_planted};
use tapecast_core::session::{DIRECTORY_RECORD_BYTES, Eviction, SentTotals};
use tapecast_core::{FanOut, Session};
use tapecast_wire::attach::{Farewell, Policy};
use tapecast_wire::limits::{MAX_SUBSCRIBERS, POOL_PAGES, record_bytes_max};
use tapecast_wire::{
    Epoch, InstrumentEntry, InstrumentId, Nanos, Position, Sequence, SessionId, Snapshot,
};

use super::directory::encode;
use super::figures::{Completed, NetworkFigures, Sent};
use super::side::{RingSession, Side};
use super::table::RecordTable;
use super::{Completion, Control, Line, Network, Status};
use crate::pool::{Pool, Shared};
use crate::{
    AttachError, ChannelState, DirectoryFull, Fabric, Full, NetworkStats, QueuePairStates,
    SessionStats,
};

/// Least time between two heartbeats: well below the 100 ms that subscribers are promised.
const HEARTBEAT_NS: u64 = 50_000_000;
/// Records from the backlog that one turn stages for one session.
const PUMP_LIMIT: usize = 64;
/// Completions that one turn polls.
const REAP_LIMIT: usize = 1024;
/// How long a session that is taken out may take to flush its queue pair. A device needs
/// microseconds; what is still outstanding then is released when the queue pair is destroyed.
const FLUSH_MAX: Duration = Duration::from_millis(20);

/// While fewer pages than this are free, sessions whose work requests do not complete are held.
const LOW_PAGES: usize = POOL_PAGES / 2;
/// Work requests that do not complete for so long are taken to wait for a peer that is gone: a
/// path that is worth using takes microseconds, a bad one a few milliseconds.
const STALLED_NS: Nanos = Nanos(5_000_000);
/// Records that a held session's work requests may refer to. All sessions together then keep at
/// most a quarter of the pool beside what they took before they were held: half of it, and what is
/// published in [`STALLED_NS`]. The rest is the feed's, whatever peers are gone.
const HELD_RECORDS: usize = POOL_PAGES / 4 / MAX_SUBSCRIBERS;

/// What every fabric of this kind has to know.
#[derive(Clone, Copy, Debug)]
pub struct RingSettings {
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Instruments that the directory has room for.
    pub instruments: usize,
    /// Most levels per side of a snapshot.
    pub levels_per_side: usize,
    /// Whether lossless sessions may attach.
    pub allow_lossless: bool,
}

/// The publisher's end of a fabric that has one ring for each session.
#[derive(Debug)]
pub struct RingFabric<N: Network> {
    network: N,
    fan_out: FanOut,
    sides: Box<[Option<Side<N::Line>>]>,
    directory: RecordTable,
    directory_count: usize,
    latest: RecordTable,
    pool: Pool,
    epoch: Epoch,
    allow_lossless: bool,
    beaten_at: Nanos,
    state: ChannelState,
    feed_silent_since: Nanos,
    receiver_not_ready: u64,
    figures: NetworkFigures,
    /// What lines have sent that are gone.
    sent_before: Sent,
    /// Whether sessions may be held now.
    is_short: bool,
    /// Sessions, as bits, whose control block is staged and not posted.
    told: u64,
}

impl<N: Network> RingFabric<N> {
    pub(crate) fn new(network: N, settings: &RingSettings, pool: Pool) -> Self {
        let RingSettings { epoch, instruments, levels_per_side, allow_lossless } = *settings;
        Self {
            network,
            fan_out: FanOut::new(instruments),
            sides: (0..MAX_SUBSCRIBERS).map(|_| None).collect(),
            directory: RecordTable::new(instruments, DIRECTORY_RECORD_BYTES),
            directory_count: 0,
            latest: RecordTable::new(instruments, record_bytes_max(levels_per_side)),
            pool,
            epoch,
            allow_lossless,
            beaten_at: Nanos(0),
            state: ChannelState::Running,
            feed_silent_since: Nanos(0),
            receiver_not_ready: 0,
            figures: NetworkFigures::default(),
            sent_before: Sent::default(),
            is_short: false,
            told: 0,
        }
    }

    /// What moves the bytes, to look at.
    #[must_use]
    pub const fn network(&self) -> &N {
        &self.network
    }

    /// Every session's line, to look at.
    pub fn lines(&self) -> impl Iterator<Item = &N::Line> {
        self.sides.iter().flatten().map(|side| &side.line)
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
        self.sides.iter().flatten().map(|side| side.line.outstanding()).sum()
    }

    /// Times that an immediate found no receive posted. 0 unless a subscriber lied about them.
    #[must_use]
    pub const fn receiver_not_ready(&self) -> u64 {
        self.receiver_not_ready
    }

    /// Figures that are brought up to date as sessions are told the time.
    #[must_use]
    pub fn figures(&self) -> NetworkFigures {
        self.figures.clone()
    }

    fn show_figures(&self) {
        let mut sent = self.sent_before;
        self.lines().for_each(|line| sent.add(line.sent()));
        let Completed { completions, strays, high_water } = self.network.completed();
        let mut queue_pairs = QueuePairStates::default();
        self.lines().for_each(|line| line.count_state(&mut queue_pairs));
        let outstanding = || self.lines().map(|line| line.outstanding() as u64);
        self.figures.show(&NetworkStats {
            work_requests: sent.work_requests,
            doorbells: sent.doorbells,
            bytes: sent.bytes,
            completions,
            strays,
            completions_high_water: high_water,
            receiver_not_ready: self.receiver_not_ready,
            outstanding: outstanding().sum(),
            outstanding_max: outstanding().max().unwrap_or(0),
            queue_pairs,
            ..NetworkStats::default()
        });
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
                assert_eq!(side.line.outstanding(), counted, "session {index}");
            }
        }
    }

    /// Sends what waits, as credit and pages allow.
    fn pump(&mut self) -> usize {
        let Self { network, fan_out, sides, directory, latest, pool, .. } = self;
        let staged = fan_out.pump(PUMP_LIMIT, |staging| {
            let record = match staging.source {
                Source::Directory(id) => directory.share(id, pool),
                Source::Latest(id) => latest.share(id, pool),
                Source::Published => None,
            };
            let Some(record) = record else { return Staged::NoMemory };
            stage(network, sides, staging, record);
            Staged::Done
        });
        directory.end_pass();
        latest.end_pass();
        staged
    }

    fn ring_doorbells(&mut self) {
        let Self { network, fan_out, sides, told, .. } = self;
        let mut failed = 0_u64;
        let mut post = |id: SessionId| {
            if let Some(side) = &mut sides[id.index()] {
                side.depart();
                if network.post(&mut side.line).is_err() {
                    failed |= 1 << id.0;
                }
            }
        };
        let mut late = 0_u64;
        fan_out.flush(|id, _tail| {
            *told &= !(1 << id.0);
            if late == 0 && is_planted(Planted::DoorbellLate) {
                late = 1 << id.0;
            } else {
                post(id);
            }
        });
        bits(core::mem::replace(told, late)).for_each(post);
        bits(failed).for_each(|id| self.evict(id, Eviction::Unreachable));
    }

    /// Keeps peers that do not acknowledge from taking all pages: a session whose work requests
    /// have not completed for a while, and that has many pages out while few are left, is held
    /// until some come back.
    fn ration_pages(&mut self, now: Nanos) {
        let is_short = self.pool.free_pages() < LOW_PAGES;
        let forgets = is_planted(Planted::HoldOutlivesShortage);
        if !is_short && (!self.is_short || forgets) {
            return;
        }
        // Nobody looks while pages are plenty, so what was seen then says nothing now.
        let was_short = core::mem::replace(&mut self.is_short, is_short);
        for (index, side) in self.sides.iter_mut().enumerate() {
            let Some(side) = side else { continue };
            let restart = !was_short || side.line.outstanding() == 0;
            let stalled = side.stalled.on_look(side.line.retired(), restart, now);
            let held = is_short && stalled >= STALLED_NS && side.line.records() > HELD_RECORDS;
            self.fan_out.hold(SessionId(index as u32), held);
        }
    }

    fn reap(&mut self, limit: usize) -> usize {
        let mut reaped = 0;
        while reaped < limit
            && let Some(completion) = self.network.poll(&mut self.sides)
        {
            self.on_completion(completion);
            reaped += 1;
        }
        reaped
    }

    fn on_completion(&mut self, completion: Completion) {
        let Completion { session, status, retires } = completion;
        self.fan_out.on_retired(session, retires);
        if let Some(side) = &mut self.sides[session.index()]
            && let Some(took) = side.arrive()
        {
            self.figures.on_completed(took);
        }
        match status {
            Status::Done => {}
            // Flushed without a failure before it: the conductor broke the queue pair off.
            Status::Flushed | Status::Failed => self.evict(session, Eviction::Unreachable),
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
        if let Some(reason) = self.fan_out.session(id).and_then(Session::eviction) {
            side.watched.show_eviction(reason);
        }
        let dropped = side.line.drop_staged();
        self.fan_out.on_retired(id, dropped);
        self.network.break_off(id, &mut side.line);
    }

    /// The state to tell a session: while the channel ends, one that has a backlog is not done yet.
    fn state_for(&self, id: SessionId) -> ChannelState {
        let waits = self.state == ChannelState::Closed && self.fan_out.has_backlog(id);
        if waits { ChannelState::Closing } else { self.state }
    }

    /// Stages what tells a session how it stands, unless its send queue is full. It goes with the
    /// next doorbell.
    fn tell(&mut self, id: SessionId, now: Nanos) {
        let state = self.state_for(id);
        let Some(side) = &mut self.sides[id.index()] else { return };
        let (images, requests) = (side.images, side.requests);
        let feed_silent_since = self.feed_silent_since;
        let control = Control { images, state, heartbeat: now, requests, feed_silent_since };
        if self.fan_out.take_send(id) {
            side.told = Some(control);
            self.told |= 1 << id.0;
            self.network.stage_control(&mut side.line, control);
        }
    }

    /// Tells every session that has to be told something new, and all of them the time when it is
    /// due.
    fn tell_sessions(&mut self, now: Nanos) {
        // A clock that was set back must not silence the heartbeat.
        let is_due = now.0.abs_diff(self.beaten_at.0) >= HEARTBEAT_NS;
        if is_due {
            self.beaten_at = now;
            self.show_figures();
        }
        for index in 0..self.sides.len() {
            let id = SessionId(index as u32);
            let Some(side) = &self.sides[index] else { continue };
            let state = self.state_for(id);
            let feed = self.feed_silent_since;
            let is_told = side.told.is_some_and(|told| {
                told.state == state
                    && told.requests == side.requests
                    && told.feed_silent_since == feed
            });
            if is_due || !is_told {
                self.tell(id, now);
            }
        }
    }

    /// Where a new session's ring begins.
    fn start_of_a_session(&self) -> Position {
        let mut others = self.sides.iter().flatten().map(|side| side.watched.stats().consumed);
        if is_planted(Planted::PositionOfAnother) {
            return others.next().unwrap_or(Position(0));
        }
        Position(0)
    }

    fn refusal(&self, policy: Policy) -> Option<Refuse<N::Line>> {
        if self.state != ChannelState::Running {
            Some(AttachError::Closing)
        } else if policy == Policy::Lossless && !self.allow_lossless {
            Some(AttachError::LosslessNotAllowed)
        } else {
            None
        }
    }

    /// Reaps until a session that was broken off has nothing outstanding, or for [`FLUSH_MAX`].
    fn await_flush(&mut self, id: SessionId) {
        let started = Instant::now();
        while self.sides[id.index()].as_ref().is_some_and(|side| side.line.outstanding() > 0) {
            if self.reap(REAP_LIMIT) > 0 {
                continue;
            }
            if !self.network.linger() || started.elapsed() >= FLUSH_MAX {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// Sessions whose bits are set.
fn bits(mut left: u64) -> impl Iterator<Item = SessionId> {
    core::iter::from_fn(move || {
        let id = (left != 0).then(|| SessionId(left.trailing_zeros()));
        left &= left.wrapping_sub(1);
        id
    })
}

type Refuse<L> = fn(RingSession<L>) -> AttachError<RingSession<L>>;

#[inline]
fn stage<N: Network>(
    network: &mut N,
    sides: &mut [Option<Side<N::Line>>],
    staging: &Staging,
    record: Shared,
) {
    if let Some(side) = &mut sides[staging.session.index()] {
        network.stage(&mut side.line, record, &staging.placement);
    }
}

impl<N: Network> Fabric for RingFabric<N> {
    type Session = RingSession<N::Line>;

    fn attach(&mut self, session: Self::Session) -> Result<SessionId, AttachError<Self::Session>> {
        if let Some(refused) = self.refusal(session.policy()) {
            return Err(refused(session));
        }
        let RingSession { session, mut side } = session;
        assert!(session.capacity() == self.fan_out.capacity(), "a session of another fabric");
        let receives = u64::from(session.terms().window.receive_depth());
        let attached = match self.fan_out.attach(session) {
            Ok(attached) => attached,
            Err(fan_out::AttachError::Full(session) | fan_out::AttachError::Capacity(session)) => {
                return Err(AttachError::Full(RingSession { session, side }));
            }
        };
        let id = attached.session;
        side.images = attached.initial_images;
        let start = self.start_of_a_session();
        side.open_cell(id, self.epoch, start, receives);
        self.network.connect(id, &mut side.line);
        self.sides[id.index()] = Some(*side);
        self.tell(id, self.beaten_at);
        // What is published from here on need not wait behind the image, if credit suffices.
        self.pump();
        self.show(id);
        Ok(id)
    }

    fn detach(&mut self, id: SessionId) -> Option<Self::Session> {
        self.fan_out.session(id)?;
        self.evict(id, Eviction::Unreachable);
        self.await_flush(id);
        let side = self.sides[id.index()].take()?;
        self.sent_before.add(side.line.sent());
        let session = self.fan_out.detach(id)?;
        Some(RingSession { session, side: Box::new(side) })
    }

    fn upsert_instrument(&mut self, entry: &InstrumentEntry) -> Result<(), DirectoryFull> {
        let (count, capacity) = (self.directory_count, self.fan_out.capacity());
        let instrument_id = entry.instrument_id;
        let index = instrument_id as usize;
        if index > count || index >= capacity {
            return Err(DirectoryFull { instrument_id, count, capacity });
        }
        self.directory.store(InstrumentId(instrument_id), &encode(entry, self.epoch));
        self.directory_count = count.max(index + 1);
        self.fan_out.on_entry(InstrumentId(instrument_id));
        // Staged at once where there is credit, so that snapshots need not wait behind it.
        self.pump();
        Ok(())
    }

    /// # Panics
    /// When the snapshot is not an encoded record of an instrument in the directory.
    #[inline]
    fn publish(&mut self, snapshot: Shared) -> Result<(), Full> {
        let record = match Snapshot::header_of(snapshot.bytes()) {
            Ok(header) => Record {
                instrument: InstrumentId(header.instrument_id),
                sequence: Sequence(header.instrument_sequence),
                record_bytes: usize::from(header.record_len),
            },
            Err(error) => panic!("what is published is not a snapshot: {error}"),
        };
        let Self { network, sides, fan_out, .. } = self;
        let mut taken = 0;
        let published = fan_out.publish(record, |staging| {
            stage(network, sides, staging, snapshot.clone());
            taken += 1;
        });
        if published.is_err() {
            return Err(Full(snapshot));
        }
        if is_planted(Planted::StaleLatest) && taken == self.lines().count() && taken > 0 {
            return Ok(());
        }
        self.latest.store(record.instrument, snapshot.bytes());
        for id in self.fan_out.take_fallen() {
            self.evict(id, Eviction::Overrun);
        }
        Ok(())
    }

    fn flush(&mut self, _now: Nanos) {
        self.ring_doorbells();
    }

    fn turn(&mut self, now: Nanos) -> usize {
        self.fan_out.on_time(now);
        let moved = self.network.step(&mut self.sides);
        let reaped = self.reap(REAP_LIMIT);
        let news = self.read_cells(now);
        self.ration_pages(now);
        let staged = self.pump();
        self.tell_sessions(now);
        self.ring_doorbells();
        let awaits_turns =
            N::TIME_IS_TURNS && (self.outstanding() > 0 || self.fan_out.has_resting());
        moved + reaped + news + staged + usize::from(awaits_turns)
    }

    #[inline]
    fn show_feed(&mut self, silent_since: Nanos) {
        // The next turn tells all whom that was not told.
        self.feed_silent_since = silent_since;
    }

    fn awaits_peers(&self) -> bool {
        self.outstanding() > 0
            || self.fan_out.has_resting()
            || (0..self.sides.len()).any(|index| self.fan_out.has_backlog(SessionId(index as u32)))
    }

    fn session_stats(&self, id: SessionId) -> Option<SessionStats> {
        let side = self.sides.get(id.index())?.as_ref()?;
        let session = self.fan_out.session(id)?;
        let (consumed, lag_bytes) = (session.window().consumed(), session.window().lag_bytes());
        let send_queue = Some(side.send_queue());
        Some(SessionStats { consumed, lag_bytes, send_queue, ..side.watched.stats() })
    }

    fn close(&mut self, now: Nanos, _farewell: Farewell) {
        // Why it closes is said by the control plane; here it only ends, for each session once
        // nothing waits for it any more. Turns must follow until the network is idle.
        self.state = ChannelState::Closed;
        self.fan_out.stop_pacing();
        // What was published and not flushed goes first, so that nothing joins it afterwards.
        self.ring_doorbells();
        self.pump();
        self.tell_sessions(now);
        self.ring_doorbells();
    }
}
