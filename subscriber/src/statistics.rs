//! What a subscription has seen, in figures.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tapecast_fabric::{CELL_TRANSIT_WORDS, ClockReport, Endpoint, LatencyReport, Receiver, Timing};
pub use tapecast_telemetry::LatencyBuckets as LatencyCounts;
use tapecast_telemetry::LatencySummary;
use tapecast_telemetry::{BUCKETS, InterarrivalJitter, Jitter, LatencyBuckets, LatencyFigures};
use tapecast_telemetry::{SkewRecord, SkewSampler};
use tapecast_wire::{Epoch, Flags, Nanos, Snapshot as Record};

use crate::clock::transit_ns;
use crate::directory::Directory;
use crate::sampling::{Delivered, Sampling};

/// Every so many snapshots of the channel one is sampled for skew. The same for all subscribers,
/// because only equal samples can be compared.
const SKEW_EVERY: u64 = 16;

/// Greatest age that is counted end to end, in nanoseconds: what the feed received longer ago is
/// history that is replayed, and its age says nothing of the way.
const END_TO_END_MAX_NS: u64 = 60_000_000_000;

const _: () =
    assert!(BUCKETS + 1 == CELL_TRANSIT_WORDS, "a session cell has a word for each bucket");

/// Figures of one subscription, over all its sessions.
///
/// `published == delivered + conflated + lost`, always.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Snapshots that the publisher made for this subscription, derived from sequence numbers.
    pub published: u64,
    /// Snapshots handed to the application.
    pub delivered: u64,
    /// Snapshots that a newer one replaced because this subscriber did not keep up, or has asked
    /// for a least interval.
    pub conflated: u64,
    /// Snapshots that nothing accounts for: 0, or there is a bug.
    pub lost: u64,
    /// Delivered snapshots that were the first of their instrument in a session.
    pub initial_images: u64,
    /// Delivered snapshots whose book is suspect because the feed lost messages.
    pub suspect: u64,
    /// Times that a book became suspect.
    pub feed_gaps: u64,
    /// Times that the ring lapped this subscriber and it recovered from the latest table.
    pub laps: u64,
    /// Times that it attached again.
    pub reconnects: u64,
    /// Bytes in the ring that it has still to look at.
    pub lag_bytes: u64,
    /// How long ago the oldest of them was published, in nanoseconds; 0 without any. By the clocks
    /// of both hosts. Of one that was lapped it is the age of what it delivered last, because the
    /// oldest is gone: at most this long.
    pub lag_ns: u64,
    /// Snapshots of the channel since the one that it took last, while there are bytes to look at;
    /// with a choice of symbols, those of others are among them. `None` where only the publisher
    /// knows, over RDMA.
    #[serde(default)]
    pub lag_snapshots: Option<u64>,
    /// Deliveries that by the two clocks came before they were published: this host's clock is
    /// behind the publisher's. They are not in `latency`.
    #[serde(default)]
    pub negative_deliveries: u64,
    /// From publish to delivery, initial images left out.
    pub latency: LatencyFigures,
    /// How much that varies.
    pub jitter: Jitter,
    /// How the clock of this host relates to the publisher's, which `latency` depends on.
    #[serde(default)]
    pub clock: ClockFigures,
}

/// How this host's clock relates to the publisher's, from round trips over the control plane.
///
/// Times are all zero on the publisher's own host, where there is one clock, and before anything is
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockFigures {
    /// This host's clock less the publisher's, in nanoseconds.
    pub offset_ns: i64,
    /// How wrong that may be, in nanoseconds. Latencies are wrong by about as much as the offset,
    /// and cannot be known better than this.
    pub error_ns: u64,
    /// The round trip to the publisher, in nanoseconds, which needs no common clock; 0 when nothing
    /// was measured.
    pub round_trip_ns: u64,
    /// Whether this is the publisher's own host.
    #[serde(default)]
    pub one_host: bool,
    /// Whether latencies from one host to the other can be relied on: one host, or a known offset
    /// and error of at most 50 µs.
    #[serde(default)]
    pub one_way_reliable: bool,
}

/// Largest offset between clocks, and error of that, with which one-way latencies are relied on: as
/// `metrics.clock_error_max_us` of the publisher unless that is set.
const CLOCK_ERROR_MAX_NS: u64 = 50_000;

impl ClockFigures {
    pub(crate) fn of(report: ClockReport, one_host: bool) -> Self {
        let ClockReport { offset_ns, error_ns, round_trip_ns } = report;
        let within = offset_ns.unsigned_abs().max(error_ns) <= CLOCK_ERROR_MAX_NS;
        let one_way_reliable = one_host || round_trip_ns > 0 && within;
        Self { offset_ns, error_ns, round_trip_ns, one_host, one_way_reliable }
    }
}

/// What became of one instrument's snapshots, over all sessions.
///
/// `published == delivered + conflated + lost`, always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstrumentAccount {
    /// Symbol as the venue writes it.
    pub symbol: String,
    /// Venue code.
    pub venue: String,
    /// Snapshots that the publisher made for this subscription.
    pub published: u64,
    /// Snapshots handed to the application.
    pub delivered: u64,
    /// Snapshots that a newer one replaced.
    pub conflated: u64,
    /// Snapshots that nothing accounts for.
    pub lost: u64,
    /// Sequence of the last one in the present or last session; 0 when there was none.
    pub last_sequence: u64,
}

/// The final account of a subscription, to be written to a file and compared with others'.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// The subscriber's name.
    pub name: String,
    /// Present or last session.
    pub session_id: u32,
    /// Present or last life of the publisher.
    pub epoch: u64,
    /// How it stands: `live`, `stale: …` or `ended: …`.
    pub state: String,
    /// Whether the source is known to have ended.
    pub source_ended: bool,
    /// Since `connect`, in nanoseconds.
    pub elapsed_ns: u64,
    /// Whether published = delivered + conflated for every instrument.
    pub balanced: bool,
    /// Figures over all instruments.
    pub statistics: Statistics,
    /// The whole distribution, to be merged with others'.
    pub latency: LatencySummary,
    /// Receive times of sampled snapshots, one record for each epoch.
    pub skew: Vec<SkewRecord>,
    /// Each instrument of which something was received.
    pub instruments: Vec<InstrumentAccount>,
}

/// Counts what an account does not: suspect books, latency, skew.
#[derive(Debug)]
pub(crate) struct Recorder {
    timing: Option<Box<Measured>>,
    suspect: u64,
    feed_gaps: u64,
    /// Whether the last snapshot of an instrument was suspect, by id.
    is_suspect: Vec<bool>,
    last_publish: Nanos,
}

#[derive(Debug)]
struct Measured {
    latency: LatencySummary,
    jitter: InterarrivalJitter,
    skew: Option<SkewSampler>,
    taken: Vec<SkewRecord>,
    session: SessionTiming,
    /// Those of the sessions before.
    before: Distributions,
}

/// What the publisher is told about latency in the present session.
#[derive(Clone, Debug, Default)]
struct SessionTiming {
    distributions: Distributions,
    sampling: Sampling,
}

/// How long snapshots took, by bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Distributions {
    /// From publish to delivery.
    transit: LatencyBuckets,
    /// From the feed's receive time to delivery.
    end_to_end: LatencyBuckets,
    /// Deliveries that seem to come before they were published, and so are in neither.
    negative: u64,
}

impl Distributions {
    fn merge(&mut self, other: &Self) {
        self.transit.merge(&other.transit);
        self.end_to_end.merge(&other.end_to_end);
        self.negative = self.negative.wrapping_add(other.negative);
    }
}

impl Recorder {
    pub(crate) fn new(latency: bool, skew_samples: usize, capacity: usize) -> Self {
        let skew = (skew_samples > 0).then(|| SkewSampler::new(SKEW_EVERY, skew_samples));
        let timing = Measured {
            latency: LatencySummary::new(),
            jitter: InterarrivalJitter::new(),
            skew,
            taken: Vec::new(),
            session: SessionTiming::default(),
            before: Distributions::default(),
        };
        Self {
            timing: latency.then(|| Box::new(timing)),
            suspect: 0,
            feed_gaps: 0,
            is_suspect: vec![false; capacity],
            last_publish: Nanos(0),
        }
    }

    /// Counts one delivery. Returns when it was received, where that is measured.
    pub(crate) fn on_delivery(
        &mut self,
        record: &Record<'_>,
        now: impl FnOnce() -> Nanos,
    ) -> Option<Nanos> {
        let flags = record.flags();
        self.last_publish = record.ts_publish();
        let suspect = flags.contains(Flags::SUSPECT);
        if let Some(before) = self.is_suspect.get_mut(record.instrument_id().index()) {
            self.suspect += u64::from(suspect);
            self.feed_gaps += u64::from(suspect && !*before);
            *before = suspect;
        }
        let timing = self.timing.as_deref_mut()?;
        let received = now();
        timing.on_delivery(record, received);
        Some(received)
    }

    /// Another session begins: ids mean other instruments, sequences start again.
    pub(crate) fn begin_session(&mut self, ended: Epoch, capacity: usize) {
        self.is_suspect.clear();
        self.is_suspect.resize(capacity, false);
        if let Some(timing) = self.timing.as_deref_mut() {
            timing.jitter.clear();
            timing.before.merge(&timing.session.distributions);
            timing.session = SessionTiming::default();
            timing.take_skew(ended);
        }
    }

    pub(crate) fn report(&self) -> LatencyReport {
        let figures = self.figures();
        LatencyReport {
            count: figures.count,
            p50_ns: figures.p50_ns,
            p99_ns: figures.p99_ns,
            p99_9_ns: figures.p99_9_ns,
            max_ns: figures.max_ns,
        }
    }

    /// What the publisher is told in full; `None` where latency is not measured.
    pub(crate) fn timing(&self, clock: ClockReport) -> Option<Timing> {
        let Measured { jitter, session, .. } = self.timing.as_deref()?;
        let SessionTiming { distributions, sampling } = session;
        Some(Timing {
            transit: words_of(&distributions.transit),
            end_to_end: words_of(&distributions.end_to_end),
            negative: distributions.negative,
            jitter_ns: jitter.ns(),
            clock,
            samples: *sampling.samples(),
        })
    }

    /// Latencies from publish to delivery by bucket, over all sessions.
    pub(crate) fn latency_counts(&self) -> LatencyCounts {
        self.distributions().transit
    }

    /// Ages from the feed's receive time to delivery by bucket, over all sessions.
    pub(crate) fn end_to_end_counts(&self) -> LatencyCounts {
        self.distributions().end_to_end
    }

    fn distributions(&self) -> Distributions {
        let Some(timing) = self.timing.as_deref() else { return Distributions::default() };
        let mut all = timing.before;
        all.merge(&timing.session.distributions);
        all
    }

    pub(crate) fn latency(&self) -> LatencySummary {
        self.timing.as_deref().map(|timing| timing.latency.clone()).unwrap_or_default()
    }

    pub(crate) fn take_skew(&mut self, epoch: Epoch) -> Vec<SkewRecord> {
        let Some(timing) = self.timing.as_deref_mut() else { return Vec::new() };
        timing.take_skew(epoch);
        timing.taken.clone()
    }

    /// Adds what this recorder knows to figures that have the account's.
    pub(crate) fn fill(&self, figures: &mut Statistics) {
        figures.suspect = self.suspect;
        figures.feed_gaps = self.feed_gaps;
        figures.latency = self.figures();
        figures.negative_deliveries = self.distributions().negative;
        if let Some(timing) = self.timing.as_deref() {
            figures.jitter = Jitter::of(&figures.latency, &timing.jitter);
        }
    }

    pub(crate) const fn last_publish(&self) -> Nanos {
        self.last_publish
    }

    fn figures(&self) -> LatencyFigures {
        self.timing.as_deref().map(|timing| timing.latency.figures()).unwrap_or_default()
    }
}

impl Measured {
    fn on_delivery(&mut self, record: &Record<'_>, received: Nanos) {
        let flags = record.flags();
        if flags.contains(Flags::INITIAL_IMAGE) {
            // Its age says when the instrument last changed, not how long the path is.
            return;
        }
        let transit_ns = transit_ns(record.ts_publish(), received);
        self.jitter.on_transit(transit_ns);
        // Where this host's clock is behind, a latency of 0 would look like the best there is.
        let latency_ns = u64::try_from(transit_ns).ok();
        match latency_ns {
            Some(latency_ns) => self.latency.record(latency_ns),
            None => self.session.distributions.negative += 1,
        }
        self.session.on_delivery(record, latency_ns);
        if let Some(age_ns) = age_ns(record, received) {
            self.session.distributions.end_to_end.record(age_ns);
        }
        if let Some(skew) = &mut self.skew
            && !flags.contains(Flags::CONFLATED)
        {
            skew.record(record.channel_sequence().get(), received.get());
        }
    }

    /// Moves the samples of an epoch that has ended, or is asked about, out of the way.
    fn take_skew(&mut self, epoch: Epoch) {
        let Some(skew) = &mut self.skew else { return };
        let fresh = skew.take(epoch.get());
        match self.taken.iter_mut().find(|record| record.epoch == fresh.epoch) {
            Some(record) => {
                record.samples.extend(fresh.samples);
                record.samples.sort_unstable();
                record.samples.dedup_by_key(|(sequence, _)| *sequence);
            }
            None if fresh.samples.is_empty() => {}
            None => self.taken.push(fresh),
        }
    }
}

impl SessionTiming {
    #[inline]
    fn on_delivery(&mut self, record: &Record<'_>, transit_ns: Option<u64>) {
        if let Some(transit_ns) = transit_ns {
            self.distributions.transit.record(transit_ns);
        }
        self.sampling.on_delivery(&Delivered {
            sequence: record.channel_sequence().get(),
            published: record.ts_publish(),
            transit_ns,
            conflated: record.flags().contains(Flags::CONFLATED),
        });
    }
}

/// As a session cell has them.
fn words_of(buckets: &LatencyBuckets) -> [u64; CELL_TRANSIT_WORDS] {
    let mut words = [0; CELL_TRANSIT_WORDS];
    words[..BUCKETS].copy_from_slice(&buckets.counts);
    words[BUCKETS] = buckets.sum_ns;
    words
}

/// From the feed's receive time to delivery in nanoseconds, where that says how long the way is:
/// `None` for a record without a time that can be trusted, one from the future (the clocks differ,
/// or the feed has none and wrote the largest number), and history.
#[inline]
fn age_ns(record: &Record<'_>, received: Nanos) -> Option<u64> {
    let ts_recv = record.header().ts_recv;
    if ts_recv == 0 || record.flags().contains(Flags::BAD_TS_RECV) {
        return None;
    }
    received.get().checked_sub(ts_recv).filter(|age_ns| *age_ns <= END_TO_END_MAX_NS)
}

/// Accounts of instruments over all sessions, by what they are called.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    closed: FxHashMap<(String, String), InstrumentAccount>,
}

impl Ledger {
    /// Takes over the counts of a session that is about to be replaced.
    pub(crate) fn close<E: Endpoint>(&mut self, receiver: &Receiver<E>, directory: &Directory) {
        for account in session_accounts(receiver, directory) {
            add(&mut self.closed, account);
        }
    }

    /// Counts over closed sessions and the present one, by symbol and venue.
    pub(crate) fn accounts<E: Endpoint>(
        &self,
        receiver: &Receiver<E>,
        directory: &Directory,
    ) -> Vec<InstrumentAccount> {
        let mut all = self.closed.clone();
        for account in session_accounts(receiver, directory) {
            add(&mut all, account);
        }
        let mut accounts: Vec<_> = all.into_values().collect();
        accounts.sort_unstable_by(|a, b| (&a.symbol, &a.venue).cmp(&(&b.symbol, &b.venue)));
        accounts
    }
}

fn add(all: &mut FxHashMap<(String, String), InstrumentAccount>, more: InstrumentAccount) {
    let key = (more.symbol.clone(), more.venue.clone());
    match all.entry(key) {
        std::collections::hash_map::Entry::Vacant(place) => {
            place.insert(more);
        }
        std::collections::hash_map::Entry::Occupied(mut place) => {
            let sum = place.get_mut();
            // A hostile publisher may claim any sequence: wrong figures are its own loss.
            sum.published = sum.published.wrapping_add(more.published);
            sum.delivered = sum.delivered.wrapping_add(more.delivered);
            sum.conflated = sum.conflated.wrapping_add(more.conflated);
            sum.lost = sum.lost.wrapping_add(more.lost);
            sum.last_sequence = more.last_sequence;
        }
    }
}

/// Instruments of the present session of which something was received.
fn session_accounts<'a, E: Endpoint>(
    receiver: &'a Receiver<E>,
    directory: &'a Directory,
) -> impl Iterator<Item = InstrumentAccount> + 'a {
    directory.all().iter().filter_map(|instrument| {
        let totals = receiver.instrument_totals(instrument.instrument_id)?;
        (totals.published > 0).then(|| InstrumentAccount {
            symbol: instrument.symbol.clone(),
            venue: instrument.venue.clone(),
            published: totals.published,
            delivered: totals.delivered,
            conflated: totals.conflated,
            lost: totals.lost,
            last_sequence: totals.last_sequence.get(),
        })
    })
}

#[cfg(test)]
mod tests;
