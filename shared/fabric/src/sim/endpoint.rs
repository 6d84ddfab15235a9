//! The subscriber's side of the simulated network.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tapecast_core::account::{Account, Jump, Totals, Verdict};
use tapecast_ring::cell::{CellCounters, CellError, CellLatency};
use tapecast_ring::{CellWriter, RecordBuffer, RemoteReader};
use tapecast_wire::attach::Policy;
use tapecast_wire::{
    Epoch, Instrument, InstrumentEntry, InstrumentId, Kind, Nanos, Position, Sequence, SessionId,
    Snapshot, WireError,
};

use super::SimTicket;
use super::directory::decode;
use super::link::{Link, SimFaults};
use crate::delivery::mark_received;
use crate::{ChannelState, Delivery, Endpoint, LatencyReport, PollError, WaitError};

/// Records that one poll passes over, beside those that it delivers.
const SKIPS_PER_POLL: usize = 4096;

/// The session was not attached when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session is not attached: attach it first, then open the ticket ({0})")]
pub struct OpenError(#[from] CellError);

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

/// The subscriber's end: takes immediates, reads its ring, posts receives, writes its cell.
#[derive(Debug)]
pub struct SimEndpoint {
    link: Arc<Link>,
    reader: RemoteReader,
    cell: CellWriter,
    buffer: Box<RecordBuffer>,
    /// The directory as far as it has arrived.
    entries: Vec<InstrumentEntry>,
    instruments: usize,
    /// What a hole means: a conflating publisher makes them, a lossless one never does.
    jump: Jump,
    joining: Joining,
    /// Immediates taken out of the receive queue.
    taken: u64,
    announced: Position,
    sequence: Sequence,
    requests: mpsc::Sender<InstrumentId>,
}

impl SimEndpoint {
    /// Opens the session that the ticket came with, after it was attached.
    ///
    /// # Errors
    /// [`OpenError`] when it was not.
    pub fn open(ticket: SimTicket) -> Result<Self, OpenError> {
        let SimTicket { link, reader, policy, instruments, requests } = ticket;
        let cell = CellWriter::open(link.cell.clone())?;
        let jump = match policy {
            Policy::Conflate => Jump::Conflated,
            Policy::Lossless => Jump::Unexplained,
        };
        Ok(Self {
            reader,
            cell,
            buffer: Box::default(),
            entries: Vec::with_capacity(instruments),
            instruments,
            jump,
            joining: Joining::Untold,
            taken: 0,
            announced: Position(0),
            sequence: Sequence(0),
            requests,
            link,
        })
    }

    /// The session, as the publisher numbered it.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        self.cell.session_id()
    }

    /// Switches for what can go wrong with this session.
    #[must_use]
    pub fn faults(&self) -> SimFaults {
        SimFaults::new(Arc::clone(&self.link))
    }

    fn is_stopped(&self) -> bool {
        let switches = &self.link.switches;
        switches.paused.load(Ordering::Relaxed) || switches.killed.load(Ordering::Relaxed)
    }

    /// Takes the immediates that have arrived, and posts their receives again.
    fn take_arrivals(&mut self) -> Result<(), PollError> {
        let arrived = self.link.receives.arrived();
        while self.taken < arrived {
            let units = self.link.receives.immediate(self.taken);
            self.reader
                .announce_units(units)
                .map_err(|_| PollError::Corrupt { position: self.reader.position() })?;
            self.taken += 1;
        }
        let posted = self.taken + self.link.receives.depth();
        self.link.receives.post(posted);
        self.link.set_receives(posted);
        Ok(())
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
                enter(&mut self.entries, self.instruments, entry).map_err(malformed)?;
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

    /// Gives credit for what was read. Records were copied, so nothing is lent beyond this call.
    fn give_credit(&mut self) {
        let position = self.reader.position();
        if position != self.announced {
            self.cell.set_consumed(position, self.sequence);
            self.announced = position;
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
    match account.on_record(instrument, snapshot.instrument_sequence(), jump) {
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

impl Endpoint for SimEndpoint {
    fn epoch(&self) -> Epoch {
        self.cell.epoch()
    }

    fn instrument_capacity(&self) -> usize {
        self.instruments
    }

    fn instrument_count(&self) -> usize {
        self.entries.len()
    }

    fn instrument(&self, id: InstrumentId) -> Option<Instrument> {
        Instrument::from_wire(self.entries.get(id.index())?).ok()
    }

    fn state(&self) -> ChannelState {
        self.link.control.state()
    }

    fn heartbeat(&self) -> Nanos {
        self.link.control.heartbeat()
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
        if self.is_stopped() {
            return Ok(0);
        }
        // Looked at first: what arrived before the break can still be read.
        let broken = self.link.is_broken();
        self.take_arrivals()?;
        // After the arrivals: the number of images was written before anything that has arrived.
        self.joining.on_told(self.link.control.images(), account);
        let polled = self.poll_ring(account, limit, &mut deliver);
        self.give_credit();
        if broken && polled == Ok(0) && self.reader.position() == self.reader.tail() {
            return Err(PollError::Evicted { position: self.reader.position() });
        }
        polled
    }

    fn is_ready(&self) -> bool {
        let waits = self.link.receives.arrived() > self.taken
            || self.reader.position() != self.reader.tail();
        !self.is_stopped() && (waits || self.link.is_broken())
    }

    fn request_image(&mut self, id: InstrumentId) {
        // The publisher is gone when this fails, which the channel's state says as well.
        let _sent = self.requests.send(id);
    }

    fn settle(&mut self, totals: &Totals) {
        let Totals { delivered, conflated, lost, initial_images, .. } = *totals;
        let counters = CellCounters { delivered, conflated, lost, lapped: 0, initial_images };
        self.cell.set_counters(&counters);
    }

    fn report(&mut self, now: Nanos, latency: LatencyReport) {
        if self.is_stopped() {
            return;
        }
        let LatencyReport { count, p50_ns, p99_ns, p99_9_ns, max_ns } = latency;
        let p999_ns = p99_9_ns;
        self.cell.set_latency(&CellLatency { count, p50_ns, p99_ns, p999_ns, max_ns });
        self.cell.set_heartbeat(now);
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        // The publisher is in this process, so letting its thread run is the way to wait for it.
        let started = Instant::now();
        while !self.is_ready() {
            if started.elapsed() >= timeout {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Ok(true)
    }
}
