//! The fabric's half of a session; the other half is the fan-out's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tapecast_core::Session;
use tapecast_core::session::Eviction;
use tapecast_ring::{CellReader, CellWriter};
use tapecast_wire::attach::Policy;
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos, Position, SYMBOL_BYTES, SessionId};

use super::{Breaker, Control, Line};
use crate::{LatencyReport, Monitor, SendQueueStats, SessionCounts, SessionStats, Timing};

/// What the conductor prepares for one subscriber: attach it to the fabric.
#[derive(Debug)]
pub struct RingSession<L: Line> {
    pub(super) session: Box<Session>,
    pub(super) side: Box<Side<L>>,
}

impl<L: Line> RingSession<L> {
    /// A session that may be sent the instruments of these symbols; `None` for all.
    pub(crate) fn new(session: Box<Session>, line: L, symbols: Option<&[String]>) -> Self {
        let policy = session.terms().policy;
        let side = Side {
            line,
            cell: None,
            images: 0,
            requests: 0,
            absurd: 0,
            told: None,
            symbols: symbols.map(symbols_on_the_wire),
            stalled: Stalled::default(),
            flight: None,
            high_water: 0,
            watched: Arc::new(Watched::new(policy)),
        };
        Self { session, side: Box::new(side) }
    }

    /// What happens when this session does not keep up.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.session.terms().policy
    }

    /// Figures of this session, for any thread.
    #[must_use]
    pub fn monitor(&self) -> RingMonitor<L::Breaker> {
        let watched = Arc::clone(&self.side.watched);
        RingMonitor { watched, breaker: self.side.line.breaker() }
    }
}

/// One session, as the sender serves it.
#[derive(Debug)]
pub struct Side<L> {
    pub(crate) line: L,
    /// The cell, once the session is attached.
    pub(super) cell: Option<CellReader>,
    pub(super) images: u64,
    /// Requests taken from the cell.
    pub(super) requests: u64,
    /// The last number of requests that could not be.
    pub(super) absurd: u64,
    /// Symbols that the subscriber may ask for, sorted; `None` for all.
    symbols: Option<Box<[Symbol]>>,
    pub(super) stalled: Stalled,
    flight: Option<Flight>,
    /// Most work requests that had not completed when a doorbell was rung.
    high_water: u64,
    /// What the subscriber was told last.
    pub(super) told: Option<Control>,
    pub(super) watched: Arc<Watched>,
}

/// A symbol as a directory entry has it.
type Symbol = [u8; SYMBOL_BYTES];

fn symbols_on_the_wire(symbols: &[String]) -> Box<[Symbol]> {
    let mut all: Vec<Symbol> = symbols
        .iter()
        .map(|symbol| Instrument::new(InstrumentId(0), symbol, "").to_wire().symbol)
        .collect();
    all.sort_unstable();
    all.into_boxed_slice()
}

/// Since when a line's work requests do not complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stalled {
    retired: u64,
    since: Nanos,
}

impl Stalled {
    /// Looks at the number of work requests ever retired. Returns for how long it has stood still;
    /// `restart` when nothing waits, or nobody looked for a while.
    pub(super) fn on_look(&mut self, retired: u64, restart: bool, now: Nanos) -> Nanos {
        if restart || retired != self.retired {
            *self = Self { retired, since: now };
        }
        now.since(self.since)
    }
}

/// One work request at a time whose way to the subscriber and back is timed.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Work requests that are retired once it is.
    number: u64,
    posted: Instant,
}

impl<L: Line> Side<L> {
    /// What is staged is about to be posted: the last of it is timed, unless one is.
    pub(super) fn depart(&mut self) {
        self.high_water = self.high_water.max(self.line.outstanding() as u64);
        if self.flight.is_none() && self.line.outstanding() > 0 {
            let number = self.line.retired() + self.line.outstanding() as u64;
            self.flight = Some(Flight { number, posted: Instant::now() });
        }
    }

    /// Work requests have retired. Returns how long the one that is timed took, in nanoseconds.
    pub(super) fn arrive(&mut self) -> Option<u64> {
        let flight = self.flight.take_if(|flight| self.line.retired() >= flight.number)?;
        Some(u64::try_from(flight.posted.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Its send queue now.
    pub(super) fn send_queue(&self) -> SendQueueStats {
        let outstanding = self.line.outstanding() as u64;
        SendQueueStats { outstanding, high_water: self.high_water }
    }

    /// Whether the subscriber may ask for the instrument of a directory record.
    pub(super) fn may_watch(&self, directory_record: &[u8]) -> bool {
        let Some(symbols) = &self.symbols else { return true };
        let entry = super::directory::decode(directory_record);
        entry.is_ok_and(|entry| symbols.binary_search(&entry.symbol).is_ok())
    }

    /// Makes the cell this session's: from now on only the subscriber writes it.
    pub(super) fn open_cell(
        &mut self,
        id: SessionId,
        epoch: Epoch,
        start: Position,
        receives: u64,
    ) {
        let words = self.line.cell();
        let reader = || CellReader::create(words, id, epoch, start).ok();
        self.cell = reader();
        if let Some(cell) = reader() {
            // A session that is attached again keeps the reader it had: it is the same cell.
            let _first = self.watched.cell.set(cell);
        }
        if let Ok(writer) = CellWriter::open(words.clone()) {
            writer.set_receives(receives);
            writer.seal_credit();
        }
    }
}

/// What others may see of a session. The sender writes, anybody reads.
#[derive(Debug)]
pub(super) struct Watched {
    policy: Policy,
    /// For the figures; known once the session is attached.
    pub(super) cell: OnceLock<CellReader>,
    consumed: AtomicU64,
    lag_bytes: AtomicU64,
    faults: AtomicU64,
    credit_stalls: AtomicU64,
    outstanding: AtomicU64,
    high_water: AtomicU64,
    eviction: OnceLock<Eviction>,
}

impl Watched {
    const fn new(policy: Policy) -> Self {
        Self {
            policy,
            cell: OnceLock::new(),
            consumed: AtomicU64::new(0),
            lag_bytes: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            credit_stalls: AtomicU64::new(0),
            outstanding: AtomicU64::new(0),
            high_water: AtomicU64::new(0),
            eviction: OnceLock::new(),
        }
    }

    /// Shows how far the subscriber is. Relaxed: figures order nothing.
    pub(super) fn show(&self, consumed: Position, lag_bytes: u64, credit_stalls: u64) {
        self.consumed.store(consumed.0, Ordering::Relaxed);
        self.lag_bytes.store(lag_bytes, Ordering::Relaxed);
        self.credit_stalls.store(credit_stalls, Ordering::Relaxed);
    }

    /// Shows how full the send queue is, and was.
    pub(super) fn show_send_queue(&self, stats: SendQueueStats) {
        self.outstanding.store(stats.outstanding, Ordering::Relaxed);
        self.high_water.store(stats.high_water, Ordering::Relaxed);
    }

    pub(super) fn count_fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn show_eviction(&self, reason: Eviction) {
        // Only the first reason is one.
        let _first = self.eviction.set(reason);
    }

    pub(super) fn stats(&self) -> SessionStats {
        let cell = self.cell.get();
        SessionStats {
            policy: self.policy,
            consumed: Position(self.consumed.load(Ordering::Relaxed)),
            lag_bytes: self.lag_bytes.load(Ordering::Relaxed),
            counts: cell.map_or_else(SessionCounts::default, SessionCounts::of),
            latency: cell.map_or_else(LatencyReport::default, LatencyReport::of),
            heartbeat: cell.map_or(Nanos(0), CellReader::heartbeat),
            faults: self.faults.load(Ordering::Relaxed),
            credit_stalls: self.credit_stalls.load(Ordering::Relaxed),
            send_queue: Some(SendQueueStats {
                outstanding: self.outstanding.load(Ordering::Relaxed),
                high_water: self.high_water.load(Ordering::Relaxed),
            }),
        }
    }
}

/// Figures of one session. Any thread may look; the sender is not asked.
#[derive(Clone, Debug)]
pub struct RingMonitor<B> {
    watched: Arc<Watched>,
    breaker: B,
}

impl<B: Breaker> Monitor for RingMonitor<B> {
    fn stats(&self) -> SessionStats {
        self.watched.stats()
    }

    fn timing(&self) -> Timing {
        self.watched.cell.get().map_or_else(Timing::default, CellReader::timing)
    }

    fn evicted(&self) -> Option<Eviction> {
        self.watched.eviction.get().copied()
    }

    fn quench(&self) {
        self.breaker.break_off();
    }
}
