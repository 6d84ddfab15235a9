//! A subscriber that checks everything it is handed.

use std::collections::{BTreeMap, BTreeSet};

use tapecast_core::Interest;
use tapecast_fabric::{Delivery, Endpoint, LatencyReport, PollError, Receiver};
use tapecast_wire::attach::Policy;
use tapecast_wire::{Flags, InstrumentId, Level, Nanos, Sequence, SessionId};

/// One snapshot as it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its instrument.
    pub instrument: InstrumentId,
    /// Its number among the instrument's.
    pub sequence: Sequence,
    /// Its number in the channel.
    pub channel_sequence: Sequence,
    /// Whether it was the first of its instrument.
    pub initial: bool,
    /// Older ones that it replaced.
    pub conflated: u64,
}

/// A receiving end with a memory.
#[derive(Debug)]
pub struct Subscriber<E> {
    /// Its session.
    pub session: SessionId,
    /// What happens when it does not keep up.
    pub policy: Policy,
    /// Whether turns of the market poll it.
    pub stopped: bool,
    pub(super) receiver: Receiver<E>,
    /// Newest sequence of each instrument when it was attached; absent for none.
    pub(super) joined_at: BTreeMap<InstrumentId, Sequence>,
    /// Whether it has been at rest with its initial image complete.
    pub(super) is_live: bool,
    /// Instruments whose first snapshot was published after that.
    pub(super) born_live: BTreeSet<InstrumentId>,
    seen: Vec<Seen>,
}

/// Levels that the snapshot `sequence` of `instrument` has on each side: a pattern that no other
/// snapshot has, so that a mixture of two is noticed.
#[must_use]
pub(super) fn levels_of(instrument: InstrumentId, sequence: Sequence) -> (Vec<Level>, Vec<Level>) {
    let side = |salt: u64, count: u64| {
        let level = |depth: u64| {
            let mark = sequence.0 << 20 | u64::from(instrument.0) << 8 | depth << 1 | salt;
            Level::new(mark as i64, mark ^ 0x5555, depth as u32)
        };
        (0..count).map(level).collect()
    };
    let count = sequence.0 + u64::from(instrument.0);
    (side(0, count % 11), side(1, count * 7 % 11))
}

impl<E: Endpoint> Subscriber<E> {
    pub(super) fn new(
        session: SessionId,
        policy: Policy,
        endpoint: E,
        interest: &Interest,
        joined_at: BTreeMap<InstrumentId, Sequence>,
    ) -> Self {
        let receiver = Receiver::new(endpoint, interest);
        Self {
            session,
            policy,
            stopped: false,
            receiver,
            joined_at,
            is_live: false,
            born_live: BTreeSet::new(),
            seen: Vec::new(),
        }
    }

    /// Polls once, checks each snapshot and remembers it.
    ///
    /// # Errors
    /// [`PollError`] when the session is of no further use.
    pub fn poll(&mut self, limit: usize, now: Nanos) -> Result<usize, PollError> {
        let (seen, before) = (&mut self.seen, self.receiver.totals());
        let count = self.receiver.poll(limit, |delivery| seen.push(check(&delivery)))?;
        self.receiver.report(now, LatencyReport::default());
        let delivered = self.receiver.totals().delivered - before.delivered;
        assert_eq!(count as u64, delivered, "the poll's count is what was delivered");
        assert!(count <= limit);
        self.receiver.account().assert_invariants();
        self.check_known();
        Ok(count)
    }

    /// Everything delivered so far, oldest first.
    #[must_use]
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// Sequences of one instrument as delivered, oldest first.
    #[must_use]
    pub fn sequences(&self, instrument: InstrumentId) -> Vec<u64> {
        self.of(instrument).map(|seen| seen.sequence.0).collect()
    }

    /// Checks that exactly snapshots `first ..= last` of an instrument were delivered, in order.
    pub fn check_run(&self, instrument: InstrumentId, first: u64, last: u64) {
        check_run(&self.sequences(instrument), first, last);
    }

    /// Checks that exactly the snapshots `first ..= last` of the channel were delivered, in order.
    pub fn check_channel(&self, first: u64, last: u64) {
        let sequences: Vec<_> = self.seen.iter().map(|seen| seen.channel_sequence.0).collect();
        check_run(&sequences, first, last);
    }

    /// What was delivered of one instrument, oldest first.
    pub fn of(&self, instrument: InstrumentId) -> impl Iterator<Item = &Seen> {
        self.seen.iter().filter(move |seen| seen.instrument == instrument)
    }

    /// The receiving end.
    pub const fn receiver(&mut self) -> &mut Receiver<E> {
        &mut self.receiver
    }

    /// The directory never lags behind the snapshots.
    fn check_known(&self) {
        for seen in self.seen.iter().rev().take(8) {
            let instrument = self.receiver.instrument(seen.instrument);
            let symbol = instrument.map(|instrument| instrument.symbol);
            assert_eq!(symbol.as_deref(), Some(symbol_of(seen.instrument).as_str()));
        }
    }

    /// Checks that what was delivered of one instrument, and what was counted, add up.
    ///
    /// `newest` is what the publisher published last; the subscriber is at rest.
    pub(super) fn check_instrument(&self, instrument: InstrumentId, newest: Sequence) {
        let totals = self.receiver.instrument_totals(instrument).unwrap();
        let all: Vec<_> = self.of(instrument).collect();
        let Some(first) = all.first() else {
            assert_eq!((totals.published, totals.delivered), (0, 0), "{instrument}");
            return;
        };
        for pair in all.windows(2) {
            let step = pair[1].sequence.0 - pair[0].sequence.0;
            assert!(pair[1].sequence > pair[0].sequence, "{instrument}: {pair:?}");
            assert_eq!(pair[1].conflated, step - 1, "{instrument}: {pair:?}");
            assert!(pair[1].channel_sequence > pair[0].channel_sequence, "{instrument}");
            assert!(!pair[1].initial, "{instrument}: {pair:?}");
        }
        assert!(first.initial, "{instrument}");
        assert_eq!(all[all.len() - 1].sequence, newest, "{instrument} is not at its newest");
        let base = newest.0 - totals.published;
        assert_eq!(first.sequence.0 - base - 1, first.conflated, "{instrument}");
        if let Some(joined_at) = self.joined_at.get(&instrument) {
            // It was there: its image stands for itself, and is no older than at the attach.
            assert!(first.sequence >= *joined_at, "{instrument}");
            assert_eq!(first.conflated, 0, "{instrument}");
        }
        if self.born_live.contains(&instrument) {
            assert_eq!(base, 0, "{instrument} is counted from its first snapshot");
        }
        assert_eq!(totals.delivered, all.len() as u64, "{instrument}");
        assert_eq!(totals.published, totals.delivered + totals.conflated, "{instrument}");
        assert_eq!(totals.lost, 0, "{instrument}");
    }
}

/// Symbol of an instrument in this suite.
#[must_use]
pub(super) fn symbol_of(instrument: InstrumentId) -> String {
    format!("SYM{instrument}")
}

/// As an equality, but it names the first difference instead of printing thousands of numbers.
fn check_run(sequences: &[u64], first: u64, last: u64) {
    for (expected, found) in (first..=last).zip(sequences) {
        assert_eq!(*found, expected, "in a run from {first} to {last}");
    }
    assert_eq!(sequences.len() as u64, last + 1 - first, "run from {first} to {last}");
}

fn check(delivery: &Delivery<'_>) -> Seen {
    let snapshot = delivery.snapshot();
    let (instrument, sequence) = (snapshot.instrument_id(), snapshot.instrument_sequence());
    let (bids, asks) = levels_of(instrument, sequence);
    assert_eq!(snapshot.bids(), bids, "{instrument} {sequence}");
    assert_eq!(snapshot.asks(), asks, "{instrument} {sequence}");
    assert_eq!(snapshot.header().feed_sequence, snapshot.channel_sequence().0 * 3);
    let conflated = delivery.conflated();
    assert_eq!(u64::from(snapshot.header().conflated_count), conflated);
    assert_eq!(snapshot.flags().contains(Flags::CONFLATED), conflated > 0);
    assert_eq!(snapshot.flags().contains(Flags::INITIAL_IMAGE), delivery.is_initial());
    Seen {
        instrument,
        sequence,
        channel_sequence: snapshot.channel_sequence(),
        initial: delivery.is_initial(),
        conflated,
    }
}
