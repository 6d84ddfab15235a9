//! The subscriber's side of shared memory.

mod opening;

pub use opening::OpenError;

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tapecast_core::account::{Account, Jump, Totals};
use tapecast_ring::cell::CellCounters;
use tapecast_ring::latest::LatestError;
use tapecast_ring::region::RegionState;
use tapecast_ring::{
    CellWriter, DirectoryReader, LatestReader, RawRecord, ReadError, RecordBuffer, RegionReader,
};
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos, Position, Sequence, SessionId};

use super::batch::{Batch, Progress, Ring, SKIPS_PER_POLL, Stop, Why, hand_over};
use super::identity::{RegionIdentity, RegionLife};
use super::joining::Joining;
use super::rests::Rests;
use super::wait::Waiter;
use super::walk::Walk;
use crate::{
    ChannelState, Delivery, Endpoint, LatencyReport, PollError, Receiver, Timing, WaitError,
    WaitStrategy,
};

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
    /// The walk is for what this session was lapped over.
    recovering: bool,
    /// Instruments in the directory when it was last seen to be this life's.
    listed: Cell<usize>,
    laps: u64,
    announced: Position,
    progress: Progress,
    waiter: Waiter,
    /// It ends rather than that anything is left out.
    disconnects: bool,
    rests: Option<Rests>,
    /// Nothing follows, as the control plane says.
    is_draining: bool,
}

impl ShmEndpoint {
    /// Lets each instrument rest for `interval` after each of its snapshots: what comes meanwhile
    /// waits, the newest in place of older ones. Not for lossless sessions, which it does not
    /// concern.
    #[must_use]
    pub fn with_min_interval(mut self, interval: Duration) -> Self {
        self.rests = Rests::new(interval, self.region.layout().instruments());
        self
    }

    /// Nothing follows: the publisher is gone. What rests is due.
    pub const fn drain(&mut self) {
        self.is_draining = true;
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

    /// When the oldest record that is not polled was published; `None` when there is none, and when
    /// the writer got there first.
    #[must_use]
    pub fn unread_since(&self) -> Option<Nanos> {
        if self.over { None } else { self.ring.unread_since() }
    }

    /// Snapshots of the channel since the one that was polled last.
    #[must_use]
    pub fn unread_snapshots(&self) -> u64 {
        let newest = if self.over { Sequence(0) } else { self.ring.channel_sequence() };
        newest.0.saturating_sub(self.progress.sequence.0)
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
    /// poll recovers; and on lossless sessions, with a least interval, or before the initial image
    /// is complete, where [`Endpoint::poll`] is what to use.
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
        let is_live = self.walk.is_done() && self.joining == Joining::Live;
        if self.over || !is_live || self.rests.is_some() {
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
        let walking = !self.walk.is_done();
        while delivered < limit {
            let Some(step) = self.walk.find(&self.latest, account) else { break };
            let id = step.instrument;
            if !step.is_answer && self.rests.as_mut().is_some_and(|rests| rests.put_off(id)) {
                self.walk.step();
                continue;
            }
            let loaded = self.latest.load(id, &mut self.buffer);
            // Before anything is made of it: it may be a mixture of this life and the next.
            if !self.region.is_current() {
                self.walk.abandon();
                break;
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
                    let why = if step.is_answer { Why::Asked } else { Why::Newest };
                    delivered += usize::from(hand_over(account, bytes, why, at, deliver)?);
                    if let Some(rests) = &mut self.rests {
                        rests.rest(id);
                    }
                }
            }
        }
        if self.walk.is_done() {
            // Slots that the next life has emptied look as if nothing had to be taken from them.
            if walking && !self.region.is_current() {
                self.leave_table();
            }
            self.recovering = false;
            self.joining.on_walked();
            self.joining.on_read(self.progress.sequence, account);
        }
        Ok(delivered)
    }

    /// The table is another life's. What this session began with may still be in the ring; what it
    /// was lapped over is nowhere any more.
    #[cold]
    fn leave_table(&mut self) {
        self.joining.on_abandoned();
        // What is put off while its instrument rests was to come from there, too.
        if self.recovering || self.rests.is_some() {
            self.end();
        }
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
            rests: self.rests.as_mut(),
            limit,
            delivered: 0,
        };
        let ended = batch.read(&mut self.ring, deliver);
        let delivered = batch.delivered;
        self.joining.on_read(self.progress.sequence, account);
        match ended {
            Ok(()) => Ok(delivered),
            Err(Stop::Lapped) if self.disconnects && self.joining == Joining::Live => {
                Err(PollError::Overrun { position: self.ring.position() })
            }
            Err(Stop::Lapped) => self.recover(account).map(|()| delivered),
            Err(Stop::Foreign(position)) => self.end_at(position).map(|()| delivered),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Here another life begins, whose publisher has taken the region over.
    #[cold]
    fn end_at(&mut self, position: Position) -> Result<(), PollError> {
        // Its epoch was in the header before its first record was in the ring.
        if self.region.is_current() {
            return Err(PollError::Corrupt { position });
        }
        self.end();
        Ok(())
    }

    /// Nothing more comes of this session.
    #[cold]
    fn end(&mut self) {
        self.over = true;
        self.rests = None;
    }

    /// Whatever has rested long enough, and has something newer, is due.
    fn end_rests(&mut self) {
        let is_over = self.is_draining || self.state() == ChannelState::Closed;
        let Some(rests) = &mut self.rests else { return };
        rests.wake(is_over, |instrument| self.walk.add(instrument));
    }

    /// How long a wait may take: until something is due at most.
    fn until_due(&self, timeout: Duration) -> Duration {
        self.rests.as_ref().and_then(Rests::left).map_or(timeout, |left| timeout.min(left))
    }

    /// Goes on at the tail, and takes what was missed from the latest table.
    #[cold]
    fn recover(&mut self, account: &mut Account) -> Result<(), PollError> {
        if let Ring::Copied(reader) = &self.ring {
            // Its own publisher would have waited.
            return Err(PollError::Evicted { position: reader.position() });
        }
        if let Ring::Broadcast(reader) = &mut self.ring {
            // The tail first: the table holds everything that was committed before it.
            let tail = reader.tail();
            reader.seek(tail);
            let newest = reader.channel_sequence();
            self.progress.sequence = self.progress.sequence.max(newest);
        }
        let count = self.directory.len();
        // Asked last: what was looked at above may be the next life's.
        if !self.region.is_current() {
            self.end();
            return Ok(());
        }
        self.laps += 1;
        self.recovering = true;
        self.walk.start(count);
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

    fn feed_silent_since(&self) -> Option<Nanos> {
        Some(self.region.feed_silent_since()).filter(|since| since.0 > 0)
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
        if self.over {
            return Ok(0);
        }
        self.end_rests();
        let mut delivered = 0;
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
        let is_due = || self.rests.as_ref().and_then(Rests::left) == Some(Duration::ZERO);
        !self.over && (!self.walk.is_done() || self.ring.lag_bytes() > 0 || is_due())
    }

    fn request_image(&mut self, id: InstrumentId) {
        self.walk.request(id);
    }

    /// Everybody reads the one ring, so the account's no is all there is.
    fn withdraw(&mut self, _id: InstrumentId) {}

    fn settle(&mut self, totals: &Totals) {
        let Totals { delivered, conflated, lost, initial_images, .. } = *totals;
        let lapped = self.laps;
        let counters = CellCounters { delivered, conflated, lost, lapped, initial_images };
        self.cell.set_counters(&counters);
    }

    fn show_timing(&mut self, timing: &Timing) {
        self.cell.set_timing(timing);
    }

    fn report(&mut self, now: Nanos, latency: LatencyReport) {
        self.cell.set_latency(&latency.to_cell());
        self.cell.set_heartbeat(now);
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        if self.waiter.announced() || self.is_ready() {
            return Ok(self.is_ready());
        }
        let timeout = self.until_due(timeout);
        let Self { ring, waiter, over, .. } = self;
        let ready = || !*over && ring.lag_bytes() > 0;
        match waiter.strategy {
            WaitStrategy::Spin | WaitStrategy::Yield => {
                waiter.spin(timeout, ready);
                Ok(self.is_ready())
            }
            WaitStrategy::Block => {
                waiter.block(timeout, ready)?;
                Ok(self.is_ready())
            }
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
