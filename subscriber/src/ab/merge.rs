//! From two sides to one application.

use core::hash::Hasher;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use tapecast_telemetry::{InterarrivalJitter, LatencySummary};
use tapecast_wire::{Flags, Instrument, InstrumentId};
use zerocopy::IntoBytes;

use crate::snapshot::Snapshot;

use super::arbiter::{Arbiter, Notice, Verdict};
use super::side::AbSide;

/// Matches instruments, asks the arbiter, and counts what the application gets.
#[derive(Debug)]
pub(super) struct Merge {
    pub(super) arbiter: Arbiter,
    /// Merged ids by venue and symbol.
    ids: FxHashMap<(String, String), InstrumentId>,
    /// By merged id.
    pub(super) listed: Vec<Listed>,
    /// What each side's ids mean, by its id.
    known: [Vec<Option<Known>>; 2],
    pub(super) totals: Totals,
    pub(super) timing: Option<Box<Timing>>,
}

/// An instrument, and what the application got of it.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) instrument: Arc<Instrument>,
    pub(super) delivered: u64,
    pub(super) conflated: u64,
    pub(super) last_sequence: u64,
    is_suspect: bool,
}

/// One side's directory entry and the merged id that it stands for.
#[derive(Clone, Debug)]
struct Known {
    /// Kept, so that no other entry can have its address.
    entry: Arc<Instrument>,
    id: InstrumentId,
}

/// What the application got.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) delivered: u64,
    pub(super) conflated: u64,
    pub(super) initial_images: u64,
    pub(super) suspect: u64,
    pub(super) feed_gaps: u64,
    pub(super) negative_deliveries: u64,
    /// Where the last snapshot came from.
    pub(super) last: Option<AbSide>,
}

/// Distributions, for those that measure.
#[derive(Debug, Default)]
pub(super) struct Timing {
    pub(super) latency: LatencySummary,
    pub(super) jitter: InterarrivalJitter,
    /// How much later than the first copy each side's late ones came.
    pub(super) lateness: [LatencySummary; 2],
}

impl Merge {
    pub(super) fn new(capacity: usize, latency: bool) -> Self {
        Self {
            arbiter: Arbiter::new(capacity),
            ids: FxHashMap::default(),
            listed: Vec::with_capacity(capacity),
            known: [Vec::with_capacity(capacity), Vec::with_capacity(capacity)],
            totals: Totals::default(),
            timing: latency.then(Box::default),
        }
    }

    pub(super) const fn set_live(&mut self, side: AbSide, live: bool) {
        self.arbiter.set_live(side, live);
    }

    pub(super) fn instrument(&self, id: InstrumentId) -> Option<&Instrument> {
        self.listed.get(id.index()).map(|listed| &*listed.instrument)
    }

    pub(super) fn instruments(&self) -> impl ExactSizeIterator<Item = &Instrument> {
        self.listed.iter().map(|listed| &*listed.instrument)
    }

    /// Judges a snapshot and hands it on if it is due. Returns whether it was.
    pub(super) fn on_snapshot<F: FnMut(&Snapshot<'_>)>(
        &mut self,
        side: AbSide,
        snapshot: &Snapshot<'_>,
        on_snapshot: &mut F,
    ) -> bool {
        let id = self.id_of(side, snapshot);
        let received_ns = snapshot.ts_delivered().map(|time| time.0);
        let notice = notice_of(snapshot);
        match self.arbiter.on_snapshot(id.index(), side, &notice, received_ns) {
            Verdict::Deliver { conflated } => {
                self.count(side, id, snapshot, conflated);
                on_snapshot(&snapshot.merged(&self.listed[id.index()].instrument, conflated));
                true
            }
            Verdict::Withhold { lateness_ns } => {
                if let (Some(timing), Some(ns)) = (&mut self.timing, lateness_ns) {
                    timing.lateness[side.index()].record(ns);
                }
                false
            }
        }
    }

    fn count(&mut self, side: AbSide, id: InstrumentId, s: &Snapshot<'_>, conflated: u64) {
        let Self { totals, timing, listed, .. } = self;
        let listed = &mut listed[id.index()];
        listed.delivered += 1;
        listed.conflated = listed.conflated.wrapping_add(conflated);
        listed.last_sequence = s.instrument_sequence().get();
        totals.delivered += 1;
        totals.conflated = totals.conflated.wrapping_add(conflated);
        totals.initial_images += u64::from(s.is_initial_image());
        totals.suspect += u64::from(s.is_suspect());
        totals.feed_gaps += u64::from(s.is_suspect() && !listed.is_suspect);
        totals.last = Some(side);
        listed.is_suspect = s.is_suspect();
        if let (Some(timing), Some(ns)) = (timing, s.transit_ns()) {
            timing.jitter.on_transit(ns);
            match s.latency_ns() {
                Some(latency_ns) => timing.latency.record(latency_ns),
                None => totals.negative_deliveries += 1,
            }
        }
    }

    /// The merged id of a side's instrument. Another session of the side has other entries, so an
    /// entry that is the same one means the same instrument.
    #[inline]
    fn id_of(&mut self, side: AbSide, snapshot: &Snapshot<'_>) -> InstrumentId {
        match self.known[side.index()].get(snapshot.instrument_id().index()) {
            Some(Some(known)) if Arc::ptr_eq(&known.entry, snapshot.entry()) => known.id,
            _ => self.learn(side, snapshot),
        }
    }

    #[cold]
    fn learn(&mut self, side: AbSide, snapshot: &Snapshot<'_>) -> InstrumentId {
        let entry = snapshot.entry();
        let is_nameless = entry.venue.is_empty() && entry.symbol.starts_with('#');
        // Two entries that cannot be read have nothing in common but that.
        let venue = if is_nameless { format!("side {side}") } else { entry.venue.clone() };
        let next = InstrumentId(self.listed.len() as u32);
        let id = *self.ids.entry((venue, entry.symbol.clone())).or_insert(next);
        if id == next {
            let instrument = Arc::new(Instrument { instrument_id: id, ..Instrument::clone(entry) });
            self.listed.push(Listed {
                instrument,
                delivered: 0,
                conflated: 0,
                last_sequence: 0,
                is_suspect: false,
            });
            self.arbiter.add_instrument();
        }
        let known = &mut self.known[side.index()];
        let index = snapshot.instrument_id().index();
        if index >= known.len() {
            known.resize(index + 1, None);
        }
        known[index] = Some(Known { entry: Arc::clone(entry), id });
        id
    }
}

/// What the arbiter has to know of a snapshot.
fn notice_of(snapshot: &Snapshot<'_>) -> Notice {
    let record = snapshot.record();
    let header = record.header();
    let told_here = Flags::INITIAL_IMAGE.with(Flags::CONFLATED);
    let flags = header.flags.0 & !told_here.0;
    let unsound = Flags::SUSPECT.with(Flags::RECOVERING);
    let mut digest = FxHasher::default();
    digest.write_u64(u64::from(flags) << 8 | u64::from(header.trading_status));
    digest.write_u64(header.last_trade_price as u64);
    digest.write_u64(header.last_trade_quantity);
    digest.write(record.bids().as_bytes());
    // Tells a level that moves from one side to the other apart.
    digest.write_u16(header.bid_count);
    digest.write(record.asks().as_bytes());
    Notice {
        feed_sequence: header.feed_sequence,
        ts_event: header.ts_event,
        sequence: header.instrument_sequence,
        skipped: u64::from(header.conflated_count),
        initial: snapshot.is_initial_image(),
        sound: flags & unsound.0 == 0,
        digest: digest.finish(),
    }
}
