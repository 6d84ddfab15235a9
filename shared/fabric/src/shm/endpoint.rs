//! The subscriber's side of shared memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use tapecast_core::account::{Account, Jump, Totals, Verdict};
use tapecast_ring::cell::{CELL_BYTES, CELL_WORDS, CellCounters, CellError, CellLatency};
use tapecast_ring::latest::LatestError;
use tapecast_ring::region::{REGION_HEADER_BYTES, RegionError, RegionState};
use tapecast_ring::{
    BroadcastReader, CellWriter, DirectoryReader, GatedReader, LatestReader, RawRecord, ReadError,
    RecordBuffer, RegionReader,
};
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::PAGE_BYTES;
use tapecast_wire::{
    Epoch, Instrument, InstrumentId, Nanos, Position, Sequence, SessionId, Snapshot, WireError,
};

use super::futex::WakeWord;
use super::mapping::{self, MappingError};
use super::session::SessionStart;
use super::wait::Waiter;
use super::walk::Walk;
use crate::delivery::mark_received;
use crate::{ChannelState, Delivery, Endpoint, LatencyReport, PollError, WaitError, WaitStrategy};

/// Records that one poll passes over, beside those that it delivers, when they are not wanted.
const SKIPS_PER_POLL: usize = 4096;

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

/// The subscriber's end: reads the region, writes its cell.
#[derive(Debug)]
pub struct ShmEndpoint {
    region: RegionReader,
    ring: Ring,
    latest: LatestReader,
    directory: DirectoryReader,
    cell: CellWriter,
    buffer: Box<RecordBuffer>,
    walk: Walk,
    joining: Joining,
    laps: u64,
    announced: Position,
    /// Channel sequence of the newest record taken from the ring.
    sequence: Sequence,
    waiter: Waiter,
}

/// How records leave the ring.
#[derive(Debug)]
enum Ring {
    /// The writer waits for nobody: each record is copied, then found whole.
    Broadcast(BroadcastReader),
    /// The writer waits for this session: records are lent in place. `guard` checks afterwards
    /// that it did.
    Gated { reader: GatedReader, guard: BroadcastReader, scratch: Box<Scratch> },
}

/// Room for a copy of one record, aligned so that it can be parsed.
#[derive(Debug)]
#[repr(C, align(64))]
struct Scratch {
    bytes: [u8; PAGE_BYTES],
}

/// Where the session is on its way from the initial image to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joining {
    /// The table is being walked. Snapshots that are newer than `start` will come from the ring,
    /// at most up to `skipped`.
    Image { start: Sequence, skipped: Sequence },
    /// The walk is over; what it left to the ring ends at `until`.
    Ring { until: Sequence },
    /// Everything that there was at the start has been delivered.
    Live,
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
        let have = descriptors.len();
        let [region, cell, wake]: [OwnedFd; 3] =
            descriptors.try_into().map_err(|_| OpenError::Descriptors { have })?;
        let bytes = mapping::check_received("region", &region, REGION_HEADER_BYTES as u64)?;
        let region = RegionReader::open(mapping::read_only(&region, bytes)?)?;
        mapping::check_received("session cell", &cell, CELL_BYTES as u64)?;
        let words = mapping::writable(&cell, CELL_BYTES as u64)?;
        let start = SessionStart::read(&words).ok_or(CellError::Size { have: CELL_WORDS })?;
        let cell = CellWriter::open(words)?;
        if cell.epoch() != region.epoch() {
            return Err(OpenError::Epoch { cell: cell.epoch(), region: region.epoch() });
        }
        let at = cell.consumed();
        let mut walk = Walk::default();
        // The tail is looked at before the table, so the table holds what was committed before it.
        let ring = Ring::open(&region, at, policy, start.gated)?;
        walk.start(region.directory()?.len());
        Ok(Self {
            ring,
            latest: region.latest()?,
            directory: region.directory()?,
            cell,
            buffer: Box::default(),
            walk,
            joining: Joining::Image { start: start.sequence, skipped: Sequence(0) },
            laps: 0,
            announced: at,
            sequence: start.sequence,
            waiter: Waiter::new(strategy, WakeWord::new(region.clone()), wake),
            region,
        })
    }

    /// The session, as the publisher numbered it.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        self.cell.session_id()
    }

    /// Bytes that are published and not yet polled.
    #[must_use]
    pub fn lag_bytes(&self) -> u64 {
        self.ring.lag_bytes()
    }

    /// Asks for the descriptor ([`AsFd`]) to become readable when something is published. Returns
    /// false when there is something to poll already; then nothing was asked for.
    ///
    /// Call [`ShmEndpoint::disarm`] when it has become readable, before the next poll.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        self.cell.arm();
        // Looked at after the arming: either this sees what was published, or the waker sees that
        // the cell is armed.
        let ready = self.is_ready();
        if ready {
            self.disarm();
        }
        !ready
    }

    /// Takes [`ShmEndpoint::arm`] back and makes the descriptor unreadable.
    pub fn disarm(&self) {
        self.cell.disarm();
        self.waiter.drain();
    }

    /// Looks at one wanted record in place, which no copy is made of, and returns what `look` made
    /// of it. `None` when there is none, or when the writer got there first, in which case the next
    /// poll recovers; and on lossless sessions or before the initial image is complete, where
    /// [`Endpoint::poll`] is what to use.
    ///
    /// `look` may see a mixture of records and must not act on it, only compute from it.
    ///
    /// # Errors
    /// [`PollError`] when the session is of no further use.
    pub fn inspect<T>(
        &mut self,
        account: &mut Account,
        look: impl FnOnce(RawRecord<'_>) -> T,
    ) -> Result<Option<T>, PollError> {
        let Ring::Broadcast(ring) = &mut self.ring else { return Ok(None) };
        if !self.walk.is_done() || self.joining != Joining::Live {
            return Ok(None);
        }
        let mut found = None;
        for _ in 0..SKIPS_PER_POLL {
            match ring.peek() {
                Ok(Some(head))
                    if account.would_deliver(head.instrument_id, head.instrument_sequence) =>
                {
                    found = Some(head);
                    break;
                }
                Ok(Some(_)) => ring.skip(),
                Ok(None) => break,
                Err(ReadError::Corrupt { position }) => {
                    return Err(PollError::Corrupt { position });
                }
                // The next poll meets it too, and recovers.
                Err(ReadError::Lapped { .. }) => return Ok(None),
            }
        }
        // A lap is met by the next poll too, which recovers.
        let seen = found.and_then(|head| {
            let seen = ring.inspect(look).ok()??;
            account.on_record(head.instrument_id, head.instrument_sequence, Jump::Unexplained);
            self.sequence = head.channel_sequence;
            Some(seen)
        });
        self.announce();
        Ok(seen)
    }

    /// Delivers from the latest table what the walk finds.
    fn poll_walk<F: FnMut(Delivery<'_>)>(
        &mut self,
        account: &mut Account,
        limit: usize,
        deliver: &mut F,
    ) -> Result<usize, PollError> {
        let mut delivered = 0;
        while delivered < limit {
            let Some(id) = self.walk.find(&self.latest, account) else { break };
            match self.latest.load(id, &mut self.buffer) {
                // The writer is at this slot: next time.
                Err(LatestError::Busy) => break,
                Err(LatestError::Corrupt) => {
                    return Err(PollError::Corrupt { position: self.ring.position() });
                }
                Ok(None) => self.walk.step(),
                Ok(Some(record)) => {
                    self.walk.step();
                    if !self.joining.takes(record.channel_sequence()) {
                        continue;
                    }
                    let at = self.ring.position();
                    let bytes = record.into_bytes_mut();
                    delivered +=
                        usize::from(hand_over(account, bytes, Jump::Conflated, at, deliver)?);
                }
            }
        }
        if self.walk.is_done() {
            self.joining.on_walked();
            self.joining.on_record(self.sequence, account);
        }
        Ok(delivered)
    }

    /// Delivers from the ring.
    fn poll_ring<F: FnMut(Delivery<'_>)>(
        &mut self,
        account: &mut Account,
        limit: usize,
        deliver: &mut F,
    ) -> Result<usize, PollError> {
        let mut batch = Batch {
            account,
            buffer: &mut self.buffer,
            sequence: &mut self.sequence,
            limit,
            delivered: 0,
        };
        let (ended, delivered) = match &mut self.ring {
            Ring::Broadcast(reader) => (batch.copy(reader, deliver), batch.delivered),
            Ring::Gated { reader, guard, scratch } => {
                (batch.lend(reader, guard, scratch, deliver), batch.delivered)
            }
        };
        self.joining.on_record(self.sequence, account);
        match ended {
            Ok(()) => Ok(delivered),
            Err(Stop::Lapped) => {
                self.recover();
                Ok(delivered)
            }
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Goes on at the tail, and takes what was missed from the latest table.
    #[cold]
    fn recover(&mut self) {
        self.laps += 1;
        if let Ring::Broadcast(reader) = &mut self.ring {
            // The tail first: the table holds everything that was committed before it.
            let tail = reader.tail();
            reader.seek(tail);
            self.sequence = self.sequence.max(reader.channel_sequence());
        }
        self.walk.start(self.directory.len());
        self.joining.on_lap();
    }

    /// Tells the publisher what is consumed, once per batch.
    #[inline]
    fn announce(&mut self) {
        let position = self.ring.position();
        if position != self.announced {
            self.cell.set_consumed(position, self.sequence);
            self.announced = position;
        }
    }
}

impl Endpoint for ShmEndpoint {
    fn epoch(&self) -> Epoch {
        self.region.epoch()
    }

    fn instrument_capacity(&self) -> usize {
        self.region.layout().instruments()
    }

    fn instrument_count(&self) -> usize {
        self.directory.len()
    }

    fn instrument(&self, id: InstrumentId) -> Option<Instrument> {
        let entry = self.directory.entry(id).ok().flatten()?;
        Instrument::from_wire(&entry).ok()
    }

    fn state(&self) -> ChannelState {
        match self.region.state() {
            RegionState::Running => ChannelState::Running,
            RegionState::Closing => ChannelState::Closing,
            RegionState::Closed => ChannelState::Closed,
        }
    }

    fn heartbeat(&self) -> Nanos {
        self.region.heartbeat()
    }

    fn laps(&self) -> u64 {
        self.laps
    }

    #[inline]
    fn poll<F: FnMut(Delivery<'_>)>(
        &mut self,
        account: &mut Account,
        limit: usize,
        mut deliver: F,
    ) -> Result<usize, PollError> {
        let mut delivered = 0;
        if !self.walk.is_done() || self.joining != Joining::Live {
            delivered = self.poll_walk(account, limit, &mut deliver)?;
        }
        if self.walk.is_done() && delivered < limit {
            let polled = self.poll_ring(account, limit - delivered, &mut deliver);
            self.announce();
            delivered += polled?;
        }
        Ok(delivered)
    }

    #[inline]
    fn is_ready(&self) -> bool {
        !self.walk.is_done() || self.ring.lag_bytes() > 0
    }

    fn request_image(&mut self, id: InstrumentId) {
        self.walk.add(id);
    }

    fn settle(&mut self, totals: &Totals) {
        let Totals { delivered, conflated, lost, initial_images, .. } = *totals;
        let lapped = self.laps;
        let counters = CellCounters { delivered, conflated, lost, lapped, initial_images };
        self.cell.set_counters(&counters);
    }

    fn report(&mut self, now: Nanos, latency: LatencyReport) {
        let LatencyReport { count, p50_ns, p99_ns, p99_9_ns, max_ns } = latency;
        let p999_ns = p99_9_ns;
        self.cell.set_latency(&CellLatency { count, p50_ns, p99_ns, p999_ns, max_ns });
        self.cell.set_heartbeat(now);
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        if self.is_ready() {
            return Ok(true);
        }
        let ring = &self.ring;
        match self.waiter.strategy {
            WaitStrategy::Spin | WaitStrategy::Yield => {
                Ok(self.waiter.spin(timeout, || ring.lag_bytes() > 0))
            }
            WaitStrategy::Block => self.waiter.block(timeout, || ring.lag_bytes() > 0),
            WaitStrategy::Fd => {
                if self.arm() {
                    let waited = self.waiter.readable(timeout);
                    self.disarm();
                    waited?;
                }
                Ok(self.is_ready())
            }
        }
    }
}

impl AsFd for ShmEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.socket()
    }
}

impl Ring {
    fn open(
        region: &RegionReader,
        at: Position,
        policy: Policy,
        gated: bool,
    ) -> Result<Self, OpenError> {
        let reader = region.broadcast_at(at)?;
        // An Acquire look: what was committed before it is in the table from now on.
        let tail = reader.tail();
        if tail < at {
            return Err(OpenError::Start { at, tail });
        }
        if policy == Policy::Conflate {
            return Ok(Self::Broadcast(reader));
        }
        if !gated {
            return Err(OpenError::NotGated);
        }
        let guard = region.broadcast_at(at)?;
        // SAFETY: the cell says, in a word that only the publisher writes, that the writer is
        // gated by this cell's consumed position, which the sender set to `at` itself and which
        // this endpoint announces with Release after the batch that used the bytes. The writer
        // looks at it with Acquire and never writes beyond the least position plus the capacity.
        // The publisher is trusted to keep to this; that it did is checked after each batch.
        let reader = unsafe { GatedReader::new(reader) };
        Ok(Self::Gated { reader, guard, scratch: Box::new(Scratch { bytes: [0; PAGE_BYTES] }) })
    }

    #[inline]
    fn lag_bytes(&self) -> u64 {
        match self {
            Self::Broadcast(reader) => reader.lag_bytes(),
            Self::Gated { reader, .. } => reader.lag_bytes(),
        }
    }

    #[inline]
    const fn position(&self) -> Position {
        match self {
            Self::Broadcast(reader) => reader.position(),
            Self::Gated { reader, .. } => reader.position(),
        }
    }
}

impl Joining {
    /// Whether a snapshot found in the table is delivered from there.
    fn takes(&mut self, sequence: Sequence) -> bool {
        match self {
            // Published after the session began: the ring has it, and those between.
            Self::Image { start, skipped } if sequence > *start => {
                *skipped = sequence.max(*skipped);
                false
            }
            _ => true,
        }
    }

    fn on_walked(&mut self) {
        if let Self::Image { skipped, .. } = *self {
            *self = Self::Ring { until: skipped };
        }
    }

    /// The ring has been read up to `sequence`.
    #[inline]
    fn on_record(&mut self, sequence: Sequence, account: &mut Account) {
        if matches!(*self, Self::Ring { until } if until <= sequence) {
            account.begin_live();
            *self = Self::Live;
        }
    }

    /// After a lap everything comes from the table.
    fn on_lap(&mut self) {
        if *self != Self::Live {
            *self = Self::Image { start: Sequence(u64::MAX), skipped: Sequence(0) };
        }
    }
}

/// Why a batch ended early.
enum Stop {
    Lapped,
    Failed(PollError),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Lapped { .. } => Self::Lapped,
            ReadError::Corrupt { position } => Self::Failed(PollError::Corrupt { position }),
        }
    }
}

impl From<PollError> for Stop {
    fn from(error: PollError) -> Self {
        Self::Failed(error)
    }
}

/// One poll's pass over the ring.
struct Batch<'a> {
    account: &'a mut Account,
    buffer: &'a mut RecordBuffer,
    sequence: &'a mut Sequence,
    limit: usize,
    delivered: usize,
}

impl Batch<'_> {
    /// Records are copied and found whole before they are delivered.
    fn copy<F: FnMut(Delivery<'_>)>(
        &mut self,
        reader: &mut BroadcastReader,
        deliver: &mut F,
    ) -> Result<(), Stop> {
        let mut left = self.limit.saturating_add(SKIPS_PER_POLL);
        while self.delivered < self.limit && left > 0 {
            left -= 1;
            let Some(head) = reader.peek()? else { break };
            *self.sequence = head.channel_sequence;
            if !self.account.would_deliver(head.instrument_id, head.instrument_sequence) {
                check_known(self.account, head.instrument_id, reader.position())?;
                reader.skip();
                continue;
            }
            let at = reader.position();
            let Some(record) = reader.next(self.buffer)? else { break };
            let bytes = record.into_bytes_mut();
            let handed = hand_over(self.account, bytes, Jump::Unexplained, at, deliver)?;
            self.delivered += usize::from(handed);
        }
        Ok(())
    }

    /// Records are delivered where they lie. Those that this end has to mark are copied.
    fn lend<F: FnMut(Delivery<'_>)>(
        &mut self,
        reader: &mut GatedReader,
        guard: &mut BroadcastReader,
        scratch: &mut Scratch,
        deliver: &mut F,
    ) -> Result<(), Stop> {
        let began = reader.position();
        let ended = self.lend_all(reader, scratch, deliver);
        if self.delivered > 0 {
            // Did the writer stay away from everything that was lent?
            guard.seek(began);
            guard.peek().map_err(|_| PollError::Evicted { position: began })?;
        }
        match ended {
            Err(Stop::Lapped) => Err(PollError::Evicted { position: began }.into()),
            other => other,
        }
    }

    fn lend_all<F: FnMut(Delivery<'_>)>(
        &mut self,
        reader: &mut GatedReader,
        scratch: &mut Scratch,
        deliver: &mut F,
    ) -> Result<(), Stop> {
        let mut left = self.limit.saturating_add(SKIPS_PER_POLL);
        while self.delivered < self.limit && left > 0 {
            left -= 1;
            let Some(head) = reader.peek()? else { break };
            *self.sequence = head.channel_sequence;
            let id = head.instrument_id;
            if !self.account.would_deliver(id, head.instrument_sequence) {
                check_known(self.account, id, reader.position())?;
                reader.skip();
                continue;
            }
            let at = reader.position();
            let Some(lent) = reader.lend()? else { break };
            let snapshot = parse(lent, at)?;
            match self.account.on_record(id, head.instrument_sequence, Jump::Unexplained) {
                Verdict::Deliver { initial: false, conflated: 0, .. } => {
                    deliver(Delivery::new(snapshot, 0));
                }
                Verdict::Deliver { initial, conflated, .. } => {
                    let copy = &mut scratch.bytes[..lent.len()];
                    copy.copy_from_slice(lent);
                    mark_received(copy, initial, conflated);
                    deliver(Delivery::new(parse(copy, at)?, conflated));
                }
                Verdict::Unwanted | Verdict::Stale | Verdict::Unknown => continue,
            }
            self.delivered += 1;
        }
        Ok(())
    }
}

#[inline]
fn parse(bytes: &[u8], position: Position) -> Result<Snapshot<'_>, PollError> {
    Snapshot::parse(bytes).map_err(|source: WireError| PollError::Malformed { position, source })
}

/// A record that is not wanted because no directory entry can describe its instrument.
#[inline]
fn check_known(
    account: &Account,
    instrument: InstrumentId,
    position: Position,
) -> Result<(), PollError> {
    if instrument.index() < account.capacity() {
        return Ok(());
    }
    Err(PollError::UnknownInstrument { position, instrument, capacity: account.capacity() })
}

/// Delivers this end's own copy of a record, marked, when the account says so.
#[inline]
fn hand_over<F: FnMut(Delivery<'_>)>(
    account: &mut Account,
    record: &mut [u8],
    jump: Jump,
    position: Position,
    deliver: &mut F,
) -> Result<bool, PollError> {
    let snapshot = parse(record, position)?;
    let id = snapshot.instrument_id();
    match account.on_record(id, snapshot.instrument_sequence(), jump) {
        Verdict::Deliver { initial: false, conflated: 0, .. } => {
            deliver(Delivery::new(snapshot, 0));
            Ok(true)
        }
        Verdict::Deliver { initial, conflated, .. } => {
            mark_received(record, initial, conflated);
            deliver(Delivery::new(parse(record, position)?, conflated));
            Ok(true)
        }
        Verdict::Unwanted | Verdict::Stale => Ok(false),
        Verdict::Unknown => check_known(account, id, position).map(|()| false),
    }
}
