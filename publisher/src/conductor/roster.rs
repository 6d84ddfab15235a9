//! Who is attached, and who was.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::Serialize;
use tapecast_control::{Peer, Pending};
use tapecast_core::lag::{Lag, LagGauge, LagLimit};
use tapecast_core::session::Eviction;
use tapecast_fabric::{Monitor, SessionStats, Timing};
use tapecast_wire::attach::{Farewell, LagLimits, Policy};
use tapecast_wire::{Nanos, Position, SessionId};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::figures::{SessionFigures, SessionTotals};
use super::session::Goodbye;
use crate::clock::unix_now;

/// Sessions that the report remembers in full. A publisher may run for months.
const RECORDS_MAX: usize = 10_000;
/// Sessions that have left and whose figures are still told: bounds the number of series, whatever
/// names come and go.
const DEPARTED_MAX: usize = 64;

/// A session that has a place with the sender.
pub(super) struct Member<M> {
    id: SessionId,
    pub(super) name: String,
    pub(super) peer: Peer,
    policy: Policy,
    /// Least interval between two snapshots of an instrument; 0 for none.
    min_interval: Nanos,
    /// Symbols asked for; 0 for all.
    symbols: usize,
    pub(super) monitor: M,
    since: Nanos,
    /// Whether the subscriber has its memory.
    pub(super) attached: bool,
    /// Whether the sender was asked to take it out.
    pub(super) detaching: bool,
    /// Why it ended.
    pub(super) reason: Option<String>,
    /// Ends the session; `None` when it was ended.
    pub(super) goodbye: Option<oneshot::Sender<Goodbye>>,
    /// Position when it last read something, and when that was seen.
    seen: (Position, Option<Instant>),
    /// How far it may lag, where it asked to be disconnected rather than to lag further.
    lag_limit: Option<LagLimit>,
    lag: LagGauge,
    lag_seen: Lag,
    lags: Lags,
}

/// The times that a session lagged.
#[derive(Clone, Copy, Debug, Default)]
struct Lags {
    /// When it was last seen to lag, while it does.
    seen: Option<Nanos>,
    count: u64,
    total_ns: u64,
    bytes_max: u64,
}

/// One session in the report.
#[derive(Clone, Debug, Serialize)]
pub struct SessionRecord {
    /// Its place.
    pub session_id: u32,
    /// Name that the subscriber gave.
    pub name: String,
    /// Process, on the publisher's own host, if the system said.
    pub pid: Option<u32>,
    /// User, on the publisher's own host.
    pub uid: Option<u32>,
    /// Name in its certificate, over the network with TLS.
    pub client: Option<String>,
    /// Address that it came from, over the network.
    pub address: Option<String>,
    /// `conflate`, `lossless` or `disconnect`.
    pub policy: &'static str,
    /// When it attached, Unix nanoseconds.
    pub attached_ns: u64,
    /// When it ended, Unix nanoseconds.
    pub detached_ns: u64,
    /// Why it ended.
    pub reason: String,
    /// Snapshots that it handed to its application, by its own count; as all that follows.
    pub delivered: u64,
    /// Snapshots that a newer one replaced.
    pub conflated: u64,
    /// Snapshots that nothing accounts for.
    pub lost: u64,
    /// Of those delivered, first ones of their instrument.
    pub initial_images: u64,
    /// Times that it was lapped.
    pub laps: u64,
    /// Last channel sequence that it took.
    pub channel_sequence: u64,
    /// Bytes that it had not read when it ended.
    pub lag_bytes: u64,
    /// Median latency in nanoseconds.
    pub latency_p50_ns: u64,
    /// 99th percentile.
    pub latency_p99_ns: u64,
    /// 99.9th percentile.
    pub latency_p99_9_ns: u64,
    /// Largest.
    pub latency_max_ns: u64,
    /// Values in its cell that could not be true.
    pub faults: u64,
    /// Times that it lagged: that it was beyond lag.soft_bytes or lag.soft_ms.
    pub lags: u64,
    /// How long in all, in nanoseconds.
    pub lagging_ns: u64,
    /// Most bytes that it was seen to lag by.
    pub lag_bytes_max: u64,
}

impl<M: Monitor> Member<M> {
    pub(super) fn new(pending: &Pending, monitor: M, ceiling: LagLimit) -> Self {
        let request = pending.request();
        let LagLimits { bytes, time } = request.lag;
        let limit = ceiling.tightened(LagLimit { bytes, time });
        Self {
            id: SessionId(0),
            name: request.name.clone(),
            peer: pending.peer(),
            policy: request.policy,
            min_interval: request.min_interval,
            symbols: request.symbols.len(),
            monitor,
            since: unix_now(),
            attached: false,
            detaching: false,
            reason: None,
            goodbye: None,
            seen: (Position(0), None),
            lag_limit: (request.policy == Policy::Disconnect).then_some(limit),
            lag: LagGauge::default(),
            lag_seen: Lag::default(),
            lags: Lags::default(),
        }
    }

    /// Tells the subscriber that it is taken out. `false`, and nothing, when that was done before.
    pub(super) fn evict(&mut self, reason: &Eviction) -> bool {
        let Some(goodbye) = self.goodbye.take() else { return false };
        let text = reason.to_string();
        warn!(session = self.id.0, name = self.name, peer = %self.peer, "{text}");
        let _told = goodbye.send(Goodbye { farewell: Farewell::Evicted, text });
        true
    }

    /// Looks at how far it is behind. Returns why it must be taken out, when it asked for that.
    /// Only what is asked regularly is told rightly.
    pub(super) fn watch_lag(&mut self, soft: LagLimit, now: Nanos) -> Option<Eviction> {
        let SessionStats { consumed, lag_bytes, .. } = self.monitor.stats();
        let lag = self.lag.on_look(consumed, lag_bytes, now);
        self.lag_seen = lag;
        self.lags.bytes_max = self.lags.bytes_max.max(lag_bytes);
        if self.lags.on_look(soft.is_exceeded(lag), now) {
            self.log_lag(lag);
        }
        let limit = self.lag_limit?;
        limit.is_exceeded(lag).then_some(Eviction::Lagging { lag, limit })
    }

    /// The first times are told, then each time that their number has doubled: one that lags all
    /// the time shall not fill the log.
    fn log_lag(&self, lag: Lag) {
        if self.lags.count.is_power_of_two() {
            let (bytes, time_ms) = (lag.bytes, lag.time.0 / 1_000_000);
            let (session, times) = (self.id.0, self.lags.count);
            warn!(session, name = self.name, peer = %self.peer, bytes, time_ms, times, "lags");
        }
    }

    pub(super) fn is_lossless(&self) -> bool {
        self.policy == Policy::Lossless
    }

    pub(super) fn lag_bytes(&self) -> u64 {
        self.monitor.stats().lag_bytes
    }

    /// Whether it has something to read and has read nothing for `limit`. Only what is asked
    /// regularly is told rightly.
    pub(super) fn has_stalled(&mut self, now: Instant, limit: Duration) -> bool {
        let SessionStats { consumed, lag_bytes, .. } = self.monitor.stats();
        match self.seen {
            (before, Some(since)) if before == consumed && lag_bytes > 0 => {
                now.duration_since(since) >= limit
            }
            _ => {
                self.seen = (consumed, Some(now));
                false
            }
        }
    }

    pub(super) fn log_attached(&self) {
        let Whom { pid, uid, client, address } = Whom::of(&self.peer);
        info!(
            session = self.id.0,
            name = self.name,
            pid,
            uid,
            client,
            address,
            policy = self.policy.word(),
            symbols = self.symbols,
            "attached"
        );
    }

    fn figures(&self, attached: bool) -> SessionFigures {
        SessionFigures {
            id: self.id,
            name: self.name.clone(),
            policy: self.policy,
            min_interval: self.min_interval,
            attached,
            stats: self.monitor.stats(),
            timing: self.monitor.timing(),
            lag: self.lag_seen,
            lagging: attached && self.lags.seen.is_some(),
            lags: self.lags.count,
            lagging_ns: self.lags.total_ns,
        }
    }

    fn record(&self) -> SessionRecord {
        let SessionStats { counts, latency, lag_bytes, faults, .. } = self.monitor.stats();
        let Whom { pid, uid, client, address } = Whom::of(&self.peer);
        SessionRecord {
            session_id: self.id.0,
            name: self.name.clone(),
            pid,
            uid,
            client,
            address,
            policy: self.policy.word(),
            attached_ns: self.since.0,
            detached_ns: unix_now().0,
            reason: self.reason.clone().unwrap_or_else(|| "the publisher has ended".to_owned()),
            delivered: counts.delivered,
            conflated: counts.conflated,
            lost: counts.lost,
            initial_images: counts.initial_images,
            laps: counts.laps,
            channel_sequence: counts.channel_sequence.0,
            lag_bytes,
            latency_p50_ns: latency.p50_ns,
            latency_p99_ns: latency.p99_ns,
            latency_p99_9_ns: latency.p99_9_ns,
            latency_max_ns: latency.max_ns,
            faults,
            lags: self.lags.count,
            lagging_ns: self.lags.total_ns,
            lag_bytes_max: self.lags.bytes_max,
        }
    }
}

impl Lags {
    /// Whether a time begins in which it lags.
    fn on_look(&mut self, lags: bool, now: Nanos) -> bool {
        let before = self.seen.take();
        self.total_ns += before.map_or(0, |seen| now.since(seen).0);
        self.seen = lags.then_some(now);
        let begins = lags && before.is_none();
        self.count += u64::from(begins);
        begins
    }
}

/// A peer as the fields of a log line or record.
struct Whom {
    pid: Option<u32>,
    uid: Option<u32>,
    client: Option<String>,
    address: Option<String>,
}

impl Whom {
    fn of(peer: &Peer) -> Self {
        let local = peer.local();
        Self {
            pid: local.and_then(|local| local.pid),
            uid: local.map(|local| local.uid),
            client: peer.client().map(ToString::to_string),
            address: peer.address().map(|address| address.to_string()),
        }
    }
}

/// All members, and the records of those that left.
pub(super) struct Roster<M> {
    members: Vec<Member<M>>,
    records: Vec<SessionRecord>,
    /// Figures of those that left not long ago, oldest first.
    departed: VecDeque<(Instant, SessionFigures)>,
    /// Sums of those that left.
    totals: SessionTotals,
}

impl<M: Monitor> Roster<M> {
    pub(super) const fn new() -> Self {
        Self {
            members: Vec::new(),
            records: Vec::new(),
            departed: VecDeque::new(),
            totals: SessionTotals {
                attached: 0,
                detached: 0,
                delivered: 0,
                conflated: 0,
                lost: 0,
                laps: 0,
            },
        }
    }

    pub(super) fn add(&mut self, id: SessionId, member: Member<M>) {
        self.totals.attached += 1;
        self.members.push(Member { id, ..member });
    }

    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Member<M>> {
        self.members.iter_mut().find(|member| member.id == id)
    }

    /// The sender has taken it out: log it and remember it.
    pub(super) fn remove(&mut self, id: SessionId) {
        let Some(index) = self.members.iter().position(|member| member.id == id) else { return };
        let member = self.members.swap_remove(index);
        self.on_departed(member.figures(false));
        let record = member.record();
        info!(
            session = record.session_id,
            name = record.name,
            pid = record.pid,
            uid = record.uid,
            client = record.client,
            address = record.address,
            delivered = record.delivered,
            conflated = record.conflated,
            lost = record.lost,
            reason = record.reason,
            "detached"
        );
        if self.records.len() < RECORDS_MAX {
            self.records.push(record);
        }
    }

    fn on_departed(&mut self, figures: SessionFigures) {
        self.totals.detached += 1;
        self.totals.add(&figures.stats);
        // One that comes and goes all the time takes one place, not those of the others.
        self.departed.retain(|(_, known)| !known.is_series_of(&figures));
        if self.departed.len() == DEPARTED_MAX {
            self.departed.pop_front();
        }
        self.departed.push_back((Instant::now(), figures));
    }

    /// Figures of the members, and of those that left less than `departed` ago, each place and name
    /// once: who came back has taken the series over.
    pub(super) fn figures(&mut self, departed: Duration) -> Vec<SessionFigures> {
        self.departed.retain(|(left, _)| left.elapsed() < departed);
        let mut all: Vec<SessionFigures> =
            self.members.iter().map(|member| member.figures(true)).collect();
        for (_, figures) in self.departed.iter().rev() {
            if !all.iter().any(|known| known.is_series_of(figures)) {
                all.push(figures.clone());
            }
        }
        all
    }

    /// Sums of those that left.
    pub(super) const fn departed_totals(&self) -> SessionTotals {
        self.totals
    }

    /// What the members say about their latencies.
    pub(super) fn timings(&self) -> Vec<Timing> {
        self.members.iter().map(|member| member.monitor.timing()).collect()
    }

    /// Members, attached or about to be.
    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// Members of one client.
    pub(super) fn count_of(&self, peer: &Peer) -> usize {
        self.members.iter().filter(|member| member.peer.same_client(peer)).count()
    }

    /// Members that have their memory.
    pub(super) fn attached_count(&self) -> usize {
        self.members.iter().filter(|member| member.attached).count()
    }

    pub(super) fn members_mut(&mut self) -> impl Iterator<Item = &mut Member<M>> {
        self.members.iter_mut()
    }

    pub(super) fn any_detaching(&self) -> bool {
        self.members.iter().any(|member| member.reason.is_some())
    }

    /// Sessions that have ended and of which the sender does not know yet.
    pub(super) fn undetached(&self) -> impl Iterator<Item = SessionId> {
        let ended = self.members.iter().filter(|member| member.reason.is_some());
        ended.filter(|member| !member.detaching).map(|member| member.id)
    }

    /// Every session there was, in order of attaching.
    pub(super) fn into_records(mut self) -> Vec<SessionRecord> {
        self.records.extend(self.members.iter().map(Member::record));
        self.records.sort_by_key(|record| (record.attached_ns, record.session_id));
        self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that is never looked at.
    #[derive(Clone)]
    struct Unseen;

    impl Monitor for Unseen {
        fn stats(&self) -> SessionStats {
            SessionStats::default()
        }

        fn timing(&self) -> Timing {
            Timing::default()
        }

        fn evicted(&self) -> Option<Eviction> {
            None
        }

        fn quench(&self) {}
    }

    fn left(name: &str, lags: u64) -> SessionFigures {
        SessionFigures {
            id: SessionId(0),
            name: name.to_owned(),
            policy: Policy::Conflate,
            min_interval: Nanos(0),
            attached: false,
            stats: SessionStats::default(),
            timing: Timing::default(),
            lag: Lag::default(),
            lagging: false,
            lags,
            lagging_ns: 0,
        }
    }

    #[test]
    fn one_that_comes_and_goes_all_the_time_takes_no_series_from_others_that_have_left() {
        let mut roster = Roster::<Unseen>::new();
        roster.on_departed(left("quiet", 1));
        (0..2 * DEPARTED_MAX as u64).for_each(|turn| roster.on_departed(left("flaps", turn)));
        let told = roster.figures(Duration::from_secs(86_400));
        let told: Vec<_> = told.iter().map(|one| (one.name.as_str(), one.lags)).collect();
        assert_eq!(told, [("flaps", 2 * DEPARTED_MAX as u64 - 1), ("quiet", 1)]);
        assert_eq!(roster.departed_totals().detached, 2 * DEPARTED_MAX as u64 + 1);
    }

    #[test]
    fn names_that_come_and_go_do_not_grow_what_is_told() {
        let mut roster = Roster::<Unseen>::new();
        (0..1_000).for_each(|turn| roster.on_departed(left(&turn.to_string(), 0)));
        assert_eq!(roster.figures(Duration::from_secs(86_400)).len(), DEPARTED_MAX);
    }
}
