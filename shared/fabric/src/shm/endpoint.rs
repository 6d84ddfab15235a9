//! The subscriber's side of shared memory.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use tapecast_core::account::{Account, Jump, Totals};
use tapecast_ring::cell::{CELL_BYTES, CELL_WORDS, CellCounters, CellError};
use tapecast_ring::latest::LatestError;
use tapecast_ring::region::{REGION_HEADER_BYTES, RegionError, RegionState};
use tapecast_ring::{
    CellWriter, DirectoryReader, LatestReader, RawRecord, ReadError, RecordBuffer, RegionReader,
};
use tapecast_wire::attach::Policy;
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos, Position, Sequence, SessionId};

use super::batch::{Batch, Progress, Ring, SKIPS_PER_POLL, Stop, hand_over};
use super::futex::WakeWord;
use super::identity::{RegionIdentity, RegionLife};
use super::joining::Joining;
use super::mapping::{self, MappingError};
use super::session::SessionStart;
use super::wait::Waiter;
use super::walk::Walk;
use crate::{
    ChannelState, Delivery, Endpoint, LatencyReport, PollError, Receiver, WaitError, WaitStrategy,
};

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
    /// The session began before the channel's first snapshot.
    from_first: bool,
    identity: RegionIdentity,
    /// It succeeds a session of the life before, in the same region.
    continued: bool,
    /// Another publisher has taken the region over, and all that was of this life is delivered.
    over: bool,
    /// Instruments in the directory when it was last seen to be this life's.
    listed: Cell<usize>,
    laps: u64,
    announced: Position,
    progress: Progress,
    waiter: Waiter,
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
            policy == Policy::Conflate && before.is_some_and(|before| life.succeeds(&before));
        let (at, sequence) = match continued {
            true => (region.life_start(), Sequence(0)),
            false => (granted, start.sequence),
        };
        let mut walk = Walk::default();
        // The tail is looked at before the table, so the table holds what was committed before it.
        let ring = Ring::open(&region, at, policy, start.gate)?;
        let listed = region.directory()?.len();
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
            listed: Cell::new(listed),
            laps: 0,
            announced: granted,
            progress: Progress::new(sequence),
            waiter: Waiter::new(strategy, WakeWord::new(region.clone()), wake),
            region,
        })
    }

    /// Sets the longest sleep of [`WaitStrategy::Block`] before it looks by itself; 100 ms unless
    /// set. Readers are woken when something is published; this is how long one sleeps at most
    /// when a hostile subscriber on the same region has made that impossible.
    #[must_use]
    pub const fn with_sleep_limit(mut self, limit: Duration) -> Self {
        self.waiter.sleep_limit = limit;
        self
    }

    /// The session, as the publisher numbered it.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        self.cell.session_id()
    }

    /// The region that this session reads, and the life that it belongs to.
    #[must_use]
    pub fn life(&self) -> RegionLife {
        RegionLife { region: self.identity, epoch: self.region.epoch() }
    }

    /// Whether it began where the publisher's life began, in the region of the session before.
    #[must_use]
    pub const fn is_continued(&self) -> bool {
        self.continued
    }

    /// Bytes that are published and not yet polled.
    #[must_use]
    #[inline]
    pub fn lag_bytes(&self) -> u64 {
        if self.over { 0 } else { self.ring.lag_bytes() }
    }

    /// Asks for the descriptor ([`AsFd`]) to become readable when something is published or the
    /// channel is closed. Returns false when there is something to poll, or something has been
    /// announced since the last wait or arming; then nothing was asked for.
    ///
    /// Call [`ShmEndpoint::disarm`] when it has become readable, before the next poll.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        self.cell.arm();
        // Looked at after the arming: either this sees what was announced, or the waker sees that
        // the cell is armed.
        let look = self.waiter.announced() || self.is_ready();
        if look {
            self.disarm();
        }
        !look
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
        if self.over || !self.walk.is_done() || self.joining != Joining::Live {
            return Ok(None);
        }
        let epoch = self.region.epoch();
        let mut found = None;
        for _ in 0..SKIPS_PER_POLL {
            match ring.peek() {
                // The next poll meets it too, and ends the session.
                Ok(Some(head)) if head.epoch != epoch => return Ok(None),
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
            self.progress.sequence = head.channel_sequence;
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
            let loaded = self.latest.load(id, &mut self.buffer);
            // Before anything is made of it: it may be a mixture of this life and the next.
            if !self.region.is_current() {
                self.over = true;
                return Ok(delivered);
            }
            match loaded {
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
            self.joining.on_read(self.progress.sequence, account);
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
            epoch: self.region.epoch(),
            buffer: &mut self.buffer,
            progress: &mut self.progress,
            limit,
            delivered: 0,
        };
        let ended = batch.read(&mut self.ring, deliver);
        let delivered = batch.delivered;
        self.joining.on_read(self.progress.sequence, account);
        match ended {
            Ok(()) => Ok(delivered),
            Err(Stop::Lapped) => self.recover(account).map(|()| delivered),
            Err(Stop::Foreign(position)) => self.end_at(position).map(|()| delivered),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Here another life begins, whose publisher has taken the region over.
    #[cold]
    fn end_at(&mut self, position: Position) -> Result<(), PollError> {
        // Its epoch was in the header before its first record was in the ring.
        self.over = !self.region.is_current();
        if self.over { Ok(()) } else { Err(PollError::Corrupt { position }) }
    }

    /// Goes on at the tail, and takes what was missed from the latest table.
    #[cold]
    fn recover(&mut self, account: &mut Account) -> Result<(), PollError> {
        if let Ring::Copied(reader) = &self.ring {
            // Its own publisher would have waited.
            return Err(PollError::Evicted { position: reader.position() });
        }
        if !self.region.is_current() {
            self.over = true;
            return Ok(());
        }
        self.laps += 1;
        if let Ring::Broadcast(reader) = &mut self.ring {
            // The tail first: the table holds everything that was committed before it.
            let tail = reader.tail();
            reader.seek(tail);
            let newest = reader.channel_sequence();
            self.progress.sequence = self.progress.sequence.max(newest);
        }
        self.walk.start(self.directory.len());
        self.joining.on_lap(self.from_first, account);
        Ok(())
    }

    /// Tells the publisher what is consumed, once per batch. A continued session begins behind what
    /// the publisher counts as consumed, and says nothing before it has come up to that.
    #[inline]
    fn announce(&mut self) {
        let position = self.ring.position();
        if position > self.announced {
            self.cell.set_consumed(position, self.progress.sequence);
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
        let count = self.directory.len();
        if self.region.is_current() {
            self.listed.set(count);
        }
        self.listed.get()
    }

    fn instrument(&self, id: InstrumentId) -> Option<Instrument> {
        let entry = self.directory.entry(id).ok().flatten()?;
        // It may be a mixture of this life's and the next one's.
        self.region.is_current().then(|| Instrument::from_wire(&entry).ok())?
    }

    fn state(&self) -> ChannelState {
        let state = self.region.state();
        if !self.region.is_current() {
            return ChannelState::Closed;
        }
        match state {
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
        if self.over {
            return Ok(0);
        }
        if !self.walk.is_done() || self.joining != Joining::Live {
            delivered = self.poll_walk(account, limit, &mut deliver)?;
        }
        if self.walk.is_done() && delivered < limit && !self.over {
            let polled = self.poll_ring(account, limit - delivered, &mut deliver);
            self.announce();
            delivered += polled?;
        }
        Ok(delivered)
    }

    #[inline]
    fn is_ready(&self) -> bool {
        !self.over && (!self.walk.is_done() || self.ring.lag_bytes() > 0)
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
        self.cell.set_latency(&latency.to_cell());
        self.cell.set_heartbeat(now);
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        if self.waiter.announced() || self.is_ready() {
            return Ok(self.is_ready());
        }
        let Self { ring, waiter, over, .. } = self;
        let ready = || !*over && ring.lag_bytes() > 0;
        match waiter.strategy {
            WaitStrategy::Spin | WaitStrategy::Yield => Ok(waiter.spin(timeout, ready)),
            WaitStrategy::Block => waiter.block(timeout, ready),
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

impl Receiver<ShmEndpoint> {
    /// Looks at one wanted record in place, see [`ShmEndpoint::inspect`].
    ///
    /// # Errors
    /// [`PollError`] when the session is of no further use.
    pub fn inspect<T>(
        &mut self,
        look: impl FnOnce(RawRecord<'_>) -> T,
    ) -> Result<Option<T>, PollError> {
        self.endpoint.inspect(&mut self.account, look)
    }
}

impl AsFd for ShmEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.socket()
    }
}
