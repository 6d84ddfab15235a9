//! The subscriber's end.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use tapecast_core::account::{Account, Jump, Totals, Verdict};
use tapecast_ring::cell::{CELL_REQUESTS, CellCounters, Request};
use tapecast_ring::{CellWriter, RecordBuffer, RemoteReader};
use tapecast_wire::attach::Policy;
use tapecast_wire::{
    Epoch, Instrument, InstrumentEntry, InstrumentId, Kind, Nanos, Position, Sequence, SessionId,
    Snapshot, WireError,
};

use super::control::Control;
use super::directory::decode;
use super::{Inlet, News};
use crate::delivery::mark_received;
use crate::{
    ChannelState, Delivery, Endpoint, LatencyReport, PollError, Timing, WaitError, WaitStrategy,
};

/// Records that one poll passes over, beside those that it delivers.
const SKIPS_PER_POLL: usize = 4096;
/// Credit is given back when this share of the ring or of the receives is used up, and whenever
/// nothing is left to read: each time costs a write to the publisher.
const CREDIT_SHARE: u64 = 8;

/// Where the session is on its way from the initial image to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joining {
    /// The publisher has not said how many images there are.
    Untold,
    /// So many images are still to come, before anything else.
    Image {
        left: u64,
    },
    Live,
}

/// What a session is, as both ends have agreed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) session_id: SessionId,
    pub(crate) epoch: Epoch,
    pub(crate) policy: Policy,
    pub(crate) instruments: usize,
    pub(crate) wait: WaitStrategy,
}

/// The subscriber's end of a fabric that has one ring for each session: takes immediates, reads its
/// ring, posts receives, writes its cell.
#[derive(Debug)]
pub struct RingEndpoint<I: Inlet> {
    pub(crate) inlet: I,
    reader: RemoteReader,
    cell: CellWriter,
    buffer: Box<RecordBuffer>,
    terms: Terms,
    /// The directory as far as it has arrived.
    entries: Vec<InstrumentEntry>,
    /// What a hole means: a conflating publisher makes them, a lossless one never does.
    jump: Jump,
    joining: Joining,
    sequence: Sequence,
    /// What the publisher knows of our progress.
    pushed: (Position, u64),
    news: News,
    /// What to ask for when the publisher has taken earlier requests.
    wanted: VecDeque<Request>,
    /// The control block, when it was last read as a whole.
    control: Cell<Option<Control>>,
}

impl<I: Inlet> RingEndpoint<I> {
    pub(crate) fn new(inlet: I, reader: RemoteReader, cell: CellWriter, terms: Terms) -> Self {
        let jump = match terms.policy {
            // One that is to be disconnected is conflated while it joins.
            Policy::Conflate | Policy::Disconnect => Jump::Conflated,
            Policy::Lossless => Jump::Unexplained,
        };
        Self {
            pushed: (Position(0), inlet.receives()),
            inlet,
            reader,
            cell,
            buffer: Box::default(),
            terms,
            entries: Vec::with_capacity(terms.instruments),
            jump,
            joining: Joining::Untold,
            sequence: Sequence(0),
            news: News::default(),
            wanted: VecDeque::new(),
            control: Cell::new(None),
        }
    }

    /// The session, as the publisher numbered it.
    #[must_use]
    pub const fn session_id(&self) -> SessionId {
        self.terms.session_id
    }

    /// Bytes that have arrived and were not read.
    #[must_use]
    pub const fn lag_bytes(&self) -> u64 {
        self.reader.tail().0 - self.reader.position().0
    }

    /// When the oldest record that has arrived and was not read was published.
    #[must_use]
    pub fn unread_since(&self) -> Option<Nanos> {
        self.reader.unread_since()
    }

    /// The cell as this end writes it: for tests of what a liar could write.
    #[cfg(all(test, feature = "verbs"))]
    pub(crate) const fn cell(&self) -> &CellWriter {
        &self.cell
    }

    /// How the session stands, as the publisher said last.
    fn control(&self) -> Option<Control> {
        // While it is being written, what it was before still holds.
        if let Some(control) = Control::read(self.inlet.control()) {
            self.control.set(Some(control));
        }
        self.control.get()
    }

    /// Whether the connection broke before the channel was closed. A publisher that has said that
    /// nothing follows may take its end down at any time.
    fn has_failed(&self) -> bool {
        self.inlet.is_broken() && self.state() != ChannelState::Closed
    }

    /// Takes the immediates that have arrived; their receives are posted again before the position
    /// that gives credit for them is told.
    fn take_arrivals(&mut self) -> Result<(), PollError> {
        let Self { inlet, reader, .. } = self;
        let position = reader.position();
        inlet
            .take(|units| reader.announce_units(units))
            .map_err(|_| PollError::Corrupt { position })
    }

    fn poll_ring<F: FnMut(Delivery<'_>)>(
        &mut self,
        account: &mut Account,
        limit: usize,
        deliver: &mut F,
    ) -> Result<usize, PollError> {
        let mut delivered = 0;
        let mut left = limit.saturating_add(SKIPS_PER_POLL);
        while delivered < limit && left > 0 {
            left -= 1;
            let position = self.reader.position();
            let corrupt = |_| PollError::Corrupt { position };
            let malformed = |source: WireError| PollError::Malformed { position, source };
            let Some(mut record) = self.reader.next(&mut self.buffer).map_err(corrupt)? else {
                break;
            };
            let header = Snapshot::header_of(record.as_bytes()).map_err(malformed)?;
            if Kind::from_wire(header.kind).map_err(malformed)? == Kind::Directory {
                let entry = decode(record.as_bytes()).map_err(malformed)?;
                enter(&mut self.entries, self.terms.instruments, entry).map_err(malformed)?;
                continue;
            }
            if self.joining == Joining::Untold {
                return Err(PollError::Corrupt { position });
            }
            self.sequence = Sequence(header.channel_sequence);
            let bytes = record.as_bytes_mut();
            delivered += usize::from(hand_over(account, bytes, self.jump, position, deliver)?);
            self.joining.on_snapshot(account);
        }
        Ok(delivered)
    }

    /// Notes what was read. Records were copied, so nothing is lent beyond this call.
    fn note_progress(&mut self) {
        let (position, receives) = (self.reader.position(), self.inlet.receives());
        if (position, receives) != self.pushed {
            self.cell.set_receives(receives);
            self.cell.set_consumed(position, self.sequence);
            self.cell.seal_credit();
            self.news.credit = true;
        }
    }

    /// Whether the publisher may soon wait for the credit that it was not told about.
    fn is_credit_due(&self) -> bool {
        let (position, receives) = self.pushed;
        let bytes = self.reader.position().0 - position.0;
        bytes >= self.reader.capacity_bytes() / CREDIT_SHARE
            || (self.inlet.receives() - receives) * CREDIT_SHARE >= self.inlet.depth()
    }

    /// Tells the publisher what it does not know yet.
    pub(crate) fn push_news(&mut self) {
        self.make_requests();
        if !self.news.is_empty() {
            self.inlet.push(self.news);
            if self.news.credit {
                self.pushed = (self.reader.position(), self.inlet.receives());
            }
            self.news = News::default();
        }
    }

    fn request(&mut self, request: Request) {
        self.wanted.push_back(request);
        if !self.inlet.is_stopped() {
            self.push_news();
        }
    }

    /// Writes down as many requests as may be open.
    fn make_requests(&mut self) {
        if self.wanted.is_empty() {
            return;
        }
        let taken = self.control().map_or(0, |control| control.requests);
        let made = self.cell.requests();
        // A publisher that claims to have taken more than there were is not asked any more.
        let Some(open) = made.checked_sub(taken) else { return };
        for nth in made..made + CELL_REQUESTS.saturating_sub(open) {
            let Some(request) = self.wanted.pop_front() else { break };
            self.cell.set_request(nth, request);
            self.news.requests = true;
        }
    }
}

impl Joining {
    fn on_told(&mut self, images: Option<u64>, account: &mut Account) {
        if *self == Self::Untold
            && let Some(left) = images
        {
            *self = Self::Image { left };
            self.go_live_when_complete(account);
        }
    }

    fn on_snapshot(&mut self, account: &mut Account) {
        if let Self::Image { left } = self {
            *left -= 1;
            self.go_live_when_complete(account);
        }
    }

    const fn go_live_when_complete(&mut self, account: &mut Account) {
        if matches!(self, Self::Image { left: 0 }) {
            *self = Self::Live;
            account.begin_live();
        }
    }
}

/// Adds or replaces a directory entry; ids are dense.
fn enter(
    entries: &mut Vec<InstrumentEntry>,
    capacity: usize,
    entry: InstrumentEntry,
) -> Result<(), WireError> {
    let index = entry.instrument_id as usize;
    if let Some(old) = entries.get_mut(index) {
        *old = entry;
        return Ok(());
    }
    if index != entries.len() || index >= capacity {
        let value = u64::from(entry.instrument_id);
        return Err(WireError::Field { field: "instrument_id", value });
    }
    entries.push(entry);
    Ok(())
}

/// Delivers this end's own copy of a record, marked, when the account says so.
fn hand_over<F: FnMut(Delivery<'_>)>(
    account: &mut Account,
    record: &mut [u8],
    jump: Jump,
    position: Position,
    deliver: &mut F,
) -> Result<bool, PollError> {
    let malformed = |source| PollError::Malformed { position, source };
    let snapshot = Snapshot::parse(record).map_err(malformed)?;
    let instrument = snapshot.instrument_id();
    // The newest one comes twice only when it was asked for.
    match account.on_answer(instrument, snapshot.instrument_sequence(), jump) {
        Verdict::Deliver { initial: false, conflated: 0, .. } => {
            deliver(Delivery::new(snapshot, 0));
            Ok(true)
        }
        Verdict::Deliver { initial, conflated, .. } => {
            mark_received(record, initial, conflated);
            deliver(Delivery::new(Snapshot::parse(record).map_err(malformed)?, conflated));
            Ok(true)
        }
        Verdict::Unwanted | Verdict::Stale => Ok(false),
        Verdict::Unknown => {
            let capacity = account.capacity();
            Err(PollError::UnknownInstrument { position, instrument, capacity })
        }
    }
}

impl<I: Inlet> Endpoint for RingEndpoint<I> {
    fn epoch(&self) -> Epoch {
        self.terms.epoch
    }

    fn instrument_capacity(&self) -> usize {
        self.terms.instruments
    }

    fn instrument_count(&self) -> usize {
        self.entries.len()
    }

    fn instrument(&self, id: InstrumentId) -> Option<Instrument> {
        Instrument::from_wire(self.entries.get(id.index())?).ok()
    }

    fn state(&self) -> ChannelState {
        self.control().map_or(ChannelState::Running, |control| control.state)
    }

    fn heartbeat(&self) -> Nanos {
        self.control().map_or(Nanos(0), |control| control.heartbeat)
    }

    fn feed_silent_since(&self) -> Option<Nanos> {
        self.control().map(|control| control.feed_silent_since).filter(|since| since.0 > 0)
    }

    fn laps(&self) -> u64 {
        0
    }

    fn poll<F: FnMut(Delivery<'_>)>(
        &mut self,
        account: &mut Account,
        limit: usize,
        mut deliver: F,
    ) -> Result<usize, PollError> {
        if self.inlet.is_stopped() {
            return Ok(0);
        }
        // Looked at first: what arrived before the break can still be read.
        let broken = self.has_failed();
        self.take_arrivals()?;
        // After the arrivals: the number of images was written before anything that has arrived.
        if self.joining == Joining::Untold {
            let control = self.control();
            self.joining.on_told(control.map(|control| control.images), account);
        }
        let polled = self.poll_ring(account, limit, &mut deliver);
        self.note_progress();
        // What was delivered is told together with the counts, in `settle`.
        if polled == Ok(0) {
            self.push_news();
        }
        let position = self.reader.position();
        if broken && polled == Ok(0) && position == self.reader.tail() {
            return Err(PollError::Evicted { position });
        }
        polled
    }

    fn is_ready(&self) -> bool {
        let waits = self.inlet.has_arrived() || self.reader.position() != self.reader.tail();
        !self.inlet.is_stopped() && (waits || self.has_failed())
    }

    fn request_image(&mut self, id: InstrumentId) {
        self.request(Request::Image(id));
    }

    /// What was sent before the publisher knew that it was dropped.
    fn has_trail(&self) -> bool {
        true
    }

    fn withdraw(&mut self, id: InstrumentId) {
        self.request(Request::Drop(id));
    }

    fn settle(&mut self, totals: &Totals) {
        let Totals { delivered, conflated, lost, initial_images, .. } = *totals;
        let counters = CellCounters { delivered, conflated, lost, lapped: 0, initial_images };
        self.cell.set_counters(&counters);
        self.news.counters = true;
        if self.is_credit_due() {
            self.push_news();
        }
    }

    fn show_timing(&mut self, timing: &Timing) {
        self.cell.set_timing(timing);
        self.news.timing = true;
    }

    fn report(&mut self, now: Nanos, latency: LatencyReport) {
        if self.inlet.is_stopped() {
            return;
        }
        self.cell.set_latency(&latency.to_cell());
        self.cell.set_heartbeat(now);
        self.news.figures = true;
        self.push_news();
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        self.push_news();
        if !self.is_ready() {
            let strategy = self.terms.wait;
            self.inlet.sleep(timeout).map_err(|source| WaitError { strategy, source })?;
        }
        Ok(self.is_ready())
    }
}
