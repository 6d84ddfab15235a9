//! The publisher's part: instruments, an encoder, and turns.

use std::collections::BTreeMap;
use std::fmt;

use tapecast_core::Interest;
use tapecast_fabric::pool::{AppendError, PageWriter, Pool, PoolConfig, Shared};
use tapecast_fabric::{AttachError, DirectoryFull, Fabric, Wish};
use tapecast_wire::attach::{Farewell, Policy};
use tapecast_wire::limits::{DEFAULT_LEVELS_PER_SIDE, record_bytes_max};
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentId, Nanos, Sequence, SessionId, SnapshotFields,
    TradingStatus, UNDEFINED_PRICE, encode_snapshot,
};

use super::subscriber::{levels_of, symbol_of};
use super::{Harness, Settings, Subscriber};

/// Simulated time of one turn.
const TURN_NS: u64 = 1_000_000;
/// Snapshots that a subscriber takes in one turn.
const POLL_LIMIT: usize = 256;
/// Turns after which a fabric that is still busy is taken to be stuck.
const TURNS_MAX: usize = 200_000;

/// A lossless session has no room.
#[derive(Debug)]
pub struct Gated;

/// What a subscriber without particular wishes wants.
#[must_use]
pub(super) const fn wish(policy: Policy, interest: &Interest) -> Wish<'_> {
    Wish { policy, interest, symbols: None, min_interval: Nanos(0), offer: None }
}

/// A publisher on the fabric under test, and its subscribers.
pub struct Market<H: Harness> {
    /// The fabric under test.
    pub harness: H,
    /// Where snapshots are encoded.
    pub pool: Pool,
    /// Its subscribers, in the order in which they were attached.
    pub subscribers: Vec<Subscriber<H::Endpoint>>,
    page: Option<PageWriter>,
    newest: Vec<Sequence>,
    channel: Sequence,
    now: Nanos,
}

impl<H: Harness> fmt::Debug for Market<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (newest, now) = (&self.newest, self.now);
        f.debug_struct("Market").field("newest", newest).field("now", &now).finish_non_exhaustive()
    }
}

impl<H: Harness> Market<H> {
    /// A market with the default settings and `instruments` instruments.
    #[must_use]
    pub fn with_instruments(instruments: u32) -> Self {
        let mut market = Self::start(&Settings::default());
        for _ in 0..instruments {
            market.announce();
        }
        market
    }

    /// A market without instruments.
    #[must_use]
    pub fn start(settings: &Settings) -> Self {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        Self {
            harness: H::start(settings, &pool),
            pool,
            subscribers: Vec::new(),
            page: None,
            newest: Vec::new(),
            channel: Sequence(0),
            now: Nanos(1_700_000_000_000_000_000),
        }
    }

    /// The time now; it passes with each turn.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Newest sequence of an instrument; 0 for none.
    #[must_use]
    pub fn newest(&self, instrument: InstrumentId) -> Sequence {
        self.newest[instrument.index()]
    }

    /// Instruments announced.
    pub fn instruments(&self) -> impl Iterator<Item = InstrumentId> {
        (0..self.newest.len() as u32).map(InstrumentId)
    }

    /// Announces one more instrument.
    pub fn announce(&mut self) -> InstrumentId {
        let id = InstrumentId(self.newest.len() as u32);
        self.try_announce(id, 0).unwrap();
        self.newest.push(Sequence(0));
        id
    }

    /// Announces an instrument, or changes its entry.
    ///
    /// # Errors
    /// [`DirectoryFull`] when it has no place.
    pub fn try_announce(&mut self, id: InstrumentId, lot: u32) -> Result<(), DirectoryFull> {
        let mut instrument = Instrument::new(id, &symbol_of(id), "XTST");
        instrument.lot_size = lot;
        self.harness.fabric_mut().upsert_instrument(&instrument.to_wire())
    }

    /// Publishes the next snapshot of an instrument. The channel must not be gated.
    pub fn publish(&mut self, instrument: InstrumentId) {
        self.try_publish(instrument).unwrap();
    }

    /// Publishes the next snapshot of an instrument, and makes turns while the channel is gated.
    pub fn publish_patiently(&mut self, instrument: InstrumentId) {
        for _ in 0..TURNS_MAX {
            if self.try_publish(instrument).is_ok() {
                return;
            }
            self.turn();
        }
        panic!("the channel stays gated");
    }

    /// Publishes the next snapshot of an instrument.
    ///
    /// # Errors
    /// [`Gated`] when a lossless session has no room; nothing has happened then.
    pub fn try_publish(&mut self, instrument: InstrumentId) -> Result<(), Gated> {
        let sequence = self.newest(instrument).next();
        let channel_sequence = self.channel.next();
        let shared = self.encode(instrument, sequence, channel_sequence);
        let before = shared.bytes().to_vec();
        match self.harness.fabric_mut().publish(shared) {
            Ok(()) => {
                self.newest[instrument.index()] = sequence;
                self.channel = channel_sequence;
                if sequence == Sequence(1) {
                    for subscriber in self.subscribers.iter_mut().filter(|each| each.is_live) {
                        subscriber.born_live.insert(instrument);
                    }
                }
                Ok(())
            }
            Err(full) => {
                assert_eq!(full.0.bytes(), before, "what is handed back is what was given");
                Err(Gated)
            }
        }
    }

    fn encode(
        &mut self,
        instrument: InstrumentId,
        sequence: Sequence,
        channel_sequence: Sequence,
    ) -> Shared {
        let fields = SnapshotFields {
            instrument_id: instrument,
            flags: Flags::NONE,
            trading_status: TradingStatus::Trading,
            epoch: Epoch(7),
            channel_sequence,
            instrument_sequence: sequence,
            feed_sequence: channel_sequence.0 * 3,
            ts_event: self.now.0,
            ts_recv: self.now.0,
            last_trade_price: UNDEFINED_PRICE,
            last_trade_quantity: 0,
        };
        let (bids, asks) = levels_of(instrument, sequence);
        let len_max = record_bytes_max(DEFAULT_LEVELS_PER_SIDE);
        loop {
            let page = self.page.get_or_insert_with(|| self.pool.loan().expect("a free page"));
            let appended =
                page.append(len_max, |room| encode_snapshot(room, &fields, &bids, &asks));
            match appended {
                Ok(mut filled) => {
                    filled.stamp_publish(self.now);
                    return filled.share();
                }
                Err(AppendError::NoRoom { .. }) => self.page = None,
                Err(AppendError::Write(error)) => panic!("{error}"),
            }
        }
    }

    /// Attaches a subscriber. Returns its index.
    pub fn attach(&mut self, policy: Policy, interest: &Interest) -> usize {
        match self.try_attach(policy, interest) {
            Ok(index) => index,
            Err(error) => panic!("{error}"),
        }
    }

    /// Attaches a subscriber. Returns its index.
    ///
    /// # Errors
    /// [`AttachError`] when it is refused.
    pub fn try_attach(
        &mut self,
        policy: Policy,
        interest: &Interest,
    ) -> Result<usize, AttachError<<H::Fabric as Fabric>::Session>> {
        self.try_attach_with(&wish(policy, interest))
    }

    /// Attaches a subscriber. Returns its index.
    pub fn attach_with(&mut self, wish: &Wish<'_>) -> usize {
        match self.try_attach_with(wish) {
            Ok(index) => index,
            Err(error) => panic!("{error}"),
        }
    }

    fn try_attach_with(
        &mut self,
        wish: &Wish<'_>,
    ) -> Result<usize, AttachError<<H::Fabric as Fabric>::Session>> {
        let (session, ticket) = self.harness.prepare(wish);
        let id = self.harness.fabric_mut().attach(session)?;
        let endpoint = self.harness.open(ticket, wish);
        let Wish { policy, interest, .. } = *wish;
        let had = |id: &InstrumentId| self.newest(*id).0 > 0;
        let joined_at = self.instruments().filter(had).map(|id| (id, self.newest(id))).collect();
        self.subscribers.push(Subscriber::new(id, policy, endpoint, interest, joined_at));
        Ok(self.subscribers.len() - 1)
    }

    /// Attaches a conflating subscriber to everything. Returns its index.
    pub fn join(&mut self) -> usize {
        self.attach(Policy::Conflate, &Interest::All)
    }

    /// Takes a subscriber out. The indices after it move down.
    pub fn detach(&mut self, index: usize) -> SessionId {
        let subscriber = self.subscribers.remove(index);
        assert!(self.harness.fabric_mut().detach(subscriber.session).is_some());
        subscriber.session
    }

    /// Ends a batch, without anybody polling. Returns how much the fabric had to do.
    pub fn turn_without_polls(&mut self) -> usize {
        self.now.0 += TURN_NS;
        let now = self.now;
        let fabric = self.harness.fabric_mut();
        fabric.flush(now);
        fabric.turn(now)
    }

    /// Ends a batch, then lets every subscriber that is not stopped poll once. Returns how much
    /// there was to do.
    pub fn turn(&mut self) -> usize {
        let mut work = self.turn_without_polls();
        for subscriber in self.subscribers.iter_mut().filter(|each| !each.stopped) {
            work += subscriber.poll(POLL_LIMIT, self.now).unwrap();
            work += usize::from(subscriber.receiver.is_ready());
            work += H::in_flight(subscriber.receiver.endpoint_mut());
        }
        work
    }

    /// Makes turns until nothing moves any more.
    pub fn settle(&mut self) {
        let mut idle = 0;
        for _ in 0..TURNS_MAX {
            idle = if self.turn() == 0 { idle + 1 } else { 0 };
            // More than one: credit that was given in a poll is seen in the turn after it.
            if idle == 3 {
                // Checks the fabric's own invariants, where it has some.
                let _checked = self.harness.fabric();
                for subscriber in self.subscribers.iter_mut().filter(|each| !each.stopped) {
                    subscriber.is_live = true;
                }
                return;
            }
        }
        panic!("the fabric does not come to rest");
    }

    /// Ends the channel.
    pub fn close(&mut self) {
        let now = self.now;
        self.harness.fabric_mut().close(now, Farewell::Closing);
    }

    /// Lets go of the page that is being filled.
    pub fn drop_page(&mut self) {
        self.page = None;
    }

    /// Checks the books of every subscriber that is not stopped: what was delivered, what each end
    /// counted. Everything is at rest.
    pub fn check_books(&self) {
        for subscriber in self.subscribers.iter().filter(|each| !each.stopped) {
            let mut delivered = BTreeMap::new();
            for id in self.instruments() {
                if subscriber.receiver.account().wants(id) {
                    subscriber.check_instrument(id, self.newest(id));
                }
                delivered.insert(id, subscriber.of(id).count());
            }
            let totals = subscriber.receiver.totals();
            assert_eq!(totals.delivered, delivered.values().sum::<usize>() as u64);
            assert_eq!(totals.published, totals.delivered + totals.conflated);
            assert_eq!(totals.lost, 0);
            if subscriber.policy != Policy::Conflate {
                assert_eq!(totals.conflated, 0);
            }
            let stats = self.harness.fabric().session_stats(subscriber.session).unwrap();
            let counts = stats.counts;
            assert_eq!(
                (counts.delivered, counts.conflated, counts.lost, counts.initial_images),
                (totals.delivered, totals.conflated, totals.lost, totals.initial_images),
            );
            assert_eq!((stats.lag_bytes, stats.faults), (0, 0));
            assert_eq!(stats.policy, subscriber.policy);
        }
    }
}
