//! Encodes what the books hand on into pool pages, and queues it for the sender.

use std::sync::Arc;

use tapecast_fabric::pool::{AppendError, Filled, PageWriter, Pool};
use tapecast_wire::limits::{HEADER_BYTES, LEVEL_BYTES};
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentId, Level, Nanos, Sequence, SnapshotFields,
    UNDEFINED_PRICE, WireError, encode_snapshot,
};

use super::directory::Directory;
use super::queue::{FeedQueue, Patience, Stopped};
use super::sequencer::Sequencer;
use super::suspects::Suspects;
use crate::book::{SnapshotDraft, SnapshotSink};
use crate::clock::unix_now;
use crate::journal::JournalTap;
use crate::sender::FeedItem;

/// Why the feed cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The directory is full.
    #[error(
        "the source lists more than {capacity} instruments ({symbol} is one too many): raise \
         shm.instruments_max, or choose fewer with source.symbols (--symbols)"
    )]
    TooManyInstruments {
        /// Room in the directory.
        capacity: usize,
        /// The instrument that has no place.
        symbol: String,
    },
    /// A snapshot that cannot be encoded.
    #[error("instrument {instrument}: {source}")]
    Snapshot {
        /// Its instrument.
        instrument: InstrumentId,
        /// Why.
        source: WireError,
    },
    /// The publisher stops.
    #[error("the publisher stops")]
    Stopped,
}

impl From<Stopped> for EncodeError {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}

/// The end of the feed: gives each snapshot its sequence numbers, writes it into a page, once, and
/// queues it.
///
/// The first failure is kept ([`Encoder::failure`]), and nothing is queued after it.
#[derive(Debug)]
pub struct Encoder {
    sequencer: Sequencer,
    directory: Arc<Directory>,
    pool: Pool,
    page: Option<PageWriter>,
    queue: FeedQueue,
    suspects: Suspects,
    /// Channel sequence at the last ring.
    rung: Sequence,
    journal: Option<JournalTap>,
    /// Whether each snapshot says when it was queued, until the sender says when it was published.
    stamps: bool,
    /// When this host received what is queued next, where that is told instead of the feed's word.
    received: Option<Nanos>,
    failure: Option<EncodeError>,
}

impl Encoder {
    /// An encoder that numbers from 1, writes into pages of `pool` and queues to `queue`.
    #[must_use]
    pub fn new(epoch: Epoch, directory: Arc<Directory>, pool: Pool, queue: FeedQueue) -> Self {
        let sequencer = Sequencer::new(epoch, directory.capacity());
        Self {
            sequencer,
            directory,
            pool,
            page: None,
            queue,
            suspects: Suspects::default(),
            rung: Sequence(0),
            journal: None,
            stamps: false,
            received: None,
            failure: None,
        }
    }

    /// The same, with a journal of everything that it queues.
    #[must_use]
    pub fn with_journal(self, journal: Option<JournalTap>) -> Self {
        Self { journal, ..self }
    }

    /// The same, which stamps each snapshot with the time of its queueing. That costs a look at the
    /// clock, so it is for those who ask how long snapshots wait for the sender.
    #[must_use]
    pub fn with_stamps(self, stamps: bool) -> Self {
        Self { stamps, ..self }
    }

    /// From now on snapshots say that this host received them at `at`, whatever the feed says.
    #[inline]
    pub const fn receive_at(&mut self, at: Nanos) {
        self.received = Some(at);
    }

    /// Hands over to the journal what it has not been given yet.
    pub fn hand_over_journal(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.hand_over();
        }
    }

    /// Why nothing is queued any more, if so.
    #[must_use]
    pub const fn failure(&self) -> Option<&EncodeError> {
        self.failure.as_ref()
    }

    /// The sequence numbers given so far.
    #[must_use]
    pub const fn sequencer(&self) -> &Sequencer {
        &self.sequencer
    }

    /// The queue.
    #[must_use]
    pub const fn queue(&self) -> &FeedQueue {
        &self.queue
    }

    /// Rings the sender if anything was queued since the last ring.
    #[inline]
    pub fn ring_if_queued(&mut self) {
        let queued = self.sequencer.channel_sequence();
        if queued != self.rung {
            self.rung = queued;
            self.queue.ring();
            if let Some(journal) = &mut self.journal {
                journal.hand_over_early();
            }
        }
    }

    fn enter_instrument(&mut self, instrument: &Instrument) -> Result<(), EncodeError> {
        if !self.directory.upsert(instrument) {
            return Err(EncodeError::TooManyInstruments {
                capacity: self.directory.capacity(),
                symbol: instrument.symbol.clone(),
            });
        }
        let entry = instrument.to_wire();
        if let Some(journal) = &mut self.journal {
            journal.on_instrument(&entry);
        }
        self.queue.push(FeedItem::Instrument(entry))?;
        Ok(())
    }

    fn queue_snapshot(
        &mut self,
        draft: &SnapshotDraft,
        bids: &[Level],
        asks: &[Level],
    ) -> Result<(), EncodeError> {
        if !self.directory.has_place(draft.instrument) {
            return Err(EncodeError::TooManyInstruments {
                capacity: self.directory.capacity(),
                symbol: format!("number {}", draft.instrument),
            });
        }
        let place = self.sequencer.next(draft.instrument);
        let (last_trade_price, last_trade_quantity) =
            draft.last_trade.unwrap_or((UNDEFINED_PRICE, 0));
        let (flags, ts_recv) = match self.received {
            None => (draft.flags, draft.ts_recv),
            Some(at) => (draft.flags.without(Flags::BAD_TS_RECV), at.get()),
        };
        let fields = SnapshotFields {
            instrument_id: draft.instrument,
            flags,
            trading_status: draft.status,
            epoch: place.epoch,
            channel_sequence: place.channel_sequence,
            instrument_sequence: place.instrument_sequence,
            feed_sequence: draft.feed_sequence,
            ts_event: draft.ts_event,
            ts_recv,
            last_trade_price,
            last_trade_quantity,
        };
        let mut filled = self.encode(&fields, bids, asks)?;
        if let Some(journal) = &mut self.journal {
            journal.on_snapshot(filled.bytes(), place.channel_sequence);
        }
        if self.stamps {
            filled.stamp_publish(unix_now());
        }
        self.queue.push(FeedItem::Snapshot(filled))?;
        if self.suspects.on_snapshot(draft.instrument, flags) {
            self.queue.gauges().show_suspect(self.suspects.count());
        }
        Ok(())
    }

    fn encode(
        &mut self,
        fields: &SnapshotFields,
        bids: &[Level],
        asks: &[Level],
    ) -> Result<Filled, EncodeError> {
        let len = HEADER_BYTES + (bids.len() + asks.len()) * LEVEL_BYTES;
        loop {
            let mut page = match self.page.take() {
                Some(page) => page,
                None => self.loan()?,
            };
            match page.append(len, |out| encode_snapshot(out, fields, bids, asks)) {
                Ok(filled) => {
                    self.page = Some(page);
                    return Ok(filled);
                }
                // The page is full: dropping it here lets it return when its records are sent. A
                // fresh one that is too small means that the record fits into no page at all.
                Err(AppendError::NoRoom { need, have }) if have == page_bytes() => {
                    let source = WireError::NoRoom { need, have };
                    return Err(EncodeError::Snapshot { instrument: fields.instrument_id, source });
                }
                Err(AppendError::NoRoom { .. }) => {}
                Err(AppendError::Write(source)) => {
                    return Err(EncodeError::Snapshot { instrument: fields.instrument_id, source });
                }
            }
        }
    }

    /// Takes a page, and waits while there is none: the feed is slowed down to the sender's speed.
    fn loan(&mut self) -> Result<PageWriter, Stopped> {
        let gauges = self.queue.gauges();
        gauges.on_loan(self.pool.pages().saturating_sub(self.pool.free_pages()));
        if let Some(page) = self.pool.loan() {
            return Ok(page);
        }
        let _stall = gauges.on_pool_empty();
        let mut patience = Patience::default();
        loop {
            self.queue.wait(&mut patience)?;
            if let Some(page) = self.pool.loan() {
                return Ok(page);
            }
        }
    }

    fn keep_failure(&mut self, outcome: Result<(), EncodeError>) {
        if let Err(error) = outcome {
            self.failure = Some(error);
        }
    }
}

const fn page_bytes() -> usize {
    tapecast_wire::limits::PAGE_BYTES
}

impl SnapshotSink for Encoder {
    fn on_instrument(&mut self, instrument: &Instrument) {
        if self.failure.is_none() {
            let outcome = self.enter_instrument(instrument);
            self.keep_failure(outcome);
        }
    }

    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        if self.failure.is_none() {
            let outcome = self.queue_snapshot(draft, bids, asks);
            self.keep_failure(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, bounded};
    use tapecast_fabric::park::{Bell, Parker};
    use tapecast_fabric::pool::PoolConfig;
    use tapecast_wire::limits::{MAX_LEVELS_PER_SIDE, POOL_PAGES};
    use tapecast_wire::{Flags, Snapshot, TradingStatus};

    use super::super::queue::StopFlag;
    use super::*;

    struct Bench {
        encoder: Encoder,
        items: Receiver<FeedItem>,
        pool: Pool,
        stop: StopFlag,
    }

    fn bench(capacity: usize, queue_items: usize) -> Bench {
        let (to_sender, items) = bounded(queue_items);
        let stop = StopFlag::default();
        let queue = FeedQueue::new(to_sender, Bell::new(Parker::new().ringer()), stop.clone());
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let directory = Arc::new(Directory::new(capacity));
        let encoder = Encoder::new(Epoch(77), directory, pool.clone(), queue);
        Bench { encoder, items, pool, stop }
    }

    fn draft(instrument: u32) -> SnapshotDraft {
        SnapshotDraft {
            instrument: InstrumentId(instrument),
            flags: Flags::LOCKED,
            status: TradingStatus::Trading,
            feed_sequence: 5,
            ts_event: 6,
            ts_recv: 7,
            last_trade: None,
        }
    }

    const LEVEL: Level = Level::new(1_000_000_000, 100, 2);

    #[test]
    fn a_snapshot_carries_what_the_book_says_and_the_numbers_of_the_sequencer() {
        let mut bench = bench(4, 8);
        bench.encoder.on_instrument(&Instrument::new(InstrumentId(0), "AAPL", "XNAS"));
        bench.encoder.on_snapshot(&draft(0), &[LEVEL, LEVEL], &[LEVEL]);
        let traded = SnapshotDraft { last_trade: Some((9, 8)), ..draft(0) };
        bench.encoder.on_snapshot(&traded, &[], &[]);
        assert!(matches!(bench.items.recv().unwrap(), FeedItem::Instrument(_)));
        let FeedItem::Snapshot(first) = bench.items.recv().unwrap() else { panic!("no snapshot") };
        let first = Snapshot::parse(first.bytes()).unwrap();
        let header = first.header();
        assert_eq!((first.bids(), first.asks()), (&[LEVEL, LEVEL][..], &[LEVEL][..]));
        assert_eq!((first.epoch(), first.flags()), (Epoch(77), Flags::LOCKED));
        assert_eq!((header.feed_sequence, header.ts_event, header.ts_recv), (5, 6, 7));
        assert_eq!((first.last_trade(), header.ts_publish), (None, 0));
        let FeedItem::Snapshot(second) = bench.items.recv().unwrap() else { panic!("no snapshot") };
        let second = Snapshot::parse(second.bytes()).unwrap();
        assert_eq!(second.last_trade(), Some((9, 8)));
        assert_eq!(second.channel_sequence(), Sequence(2));
        assert_eq!(second.instrument_sequence(), Sequence(2));
    }

    #[test]
    fn where_this_host_says_when_it_received_what_the_feed_says_of_that_is_gone() {
        let mut bench = bench(1, 8);
        let doubtful = SnapshotDraft { flags: Flags::LOCKED.with(Flags::BAD_TS_RECV), ..draft(0) };
        bench.encoder.on_snapshot(&doubtful, &[], &[]);
        bench.encoder.receive_at(Nanos(99));
        bench.encoder.on_snapshot(&doubtful, &[], &[]);
        for (flags, ts_recv) in [(doubtful.flags, 7), (Flags::LOCKED, 99)] {
            let FeedItem::Snapshot(told) = bench.items.recv().unwrap() else { panic!("none") };
            let told = Snapshot::parse(told.bytes()).unwrap();
            assert_eq!((told.flags(), told.header().ts_recv), (flags, ts_recv));
            assert_eq!(told.header().ts_event, 6);
        }
    }

    #[test]
    fn the_largest_snapshot_fits_and_pages_return_when_they_are_sent() {
        let mut bench = bench(1, 8);
        let levels = [LEVEL; MAX_LEVELS_PER_SIDE];
        for _ in 0..3 * POOL_PAGES {
            bench.encoder.on_snapshot(&draft(0), &levels, &levels);
            bench.encoder.on_snapshot(&draft(0), &[], &[]);
            assert_eq!(bench.items.try_iter().count(), 2);
        }
        assert_eq!(bench.encoder.failure(), None);
        drop(bench.encoder);
        assert_eq!(bench.pool.free_pages(), POOL_PAGES);
    }

    #[test]
    fn an_empty_pool_slows_the_feed_down_and_loses_nothing() {
        const COUNT: usize = 3 * POOL_PAGES;
        let Bench { mut encoder, items, .. } = bench(1, COUNT);
        let levels = [LEVEL; MAX_LEVELS_PER_SIDE];
        let feed = std::thread::spawn(move || {
            (0..COUNT).for_each(|_| encoder.on_snapshot(&draft(0), &levels, &levels));
            let told = encoder.queue().gauges().read(unix_now());
            (told, encoder.failure().cloned())
        });
        while items.len() < POOL_PAGES {
            std::thread::yield_now();
        }
        let taken = (0..COUNT).map_while(|_| items.recv().ok()).count();
        let (told, failure) = feed.join().unwrap();
        assert_eq!((taken, failure), (COUNT, None));
        assert!(told.pool_stalls > 0, "all pages were queued, so the feed had to wait");
        assert!(told.stalled_ns > 0, "and that took time");
        assert_eq!((told.pool_used_max, told.queue_stalls), (POOL_PAGES as u64, 0));
    }

    #[test]
    fn a_stop_ends_a_feed_that_waits_for_a_page_and_is_not_forgotten() {
        let Bench { mut encoder, items, stop, .. } = bench(1, 2 * POOL_PAGES);
        let levels = [LEVEL; MAX_LEVELS_PER_SIDE];
        let feed = std::thread::spawn(move || {
            (0..2 * POOL_PAGES).for_each(|_| encoder.on_snapshot(&draft(0), &levels, &levels));
            encoder.failure().cloned()
        });
        while items.len() < POOL_PAGES {
            std::thread::yield_now();
        }
        stop.stop();
        assert_eq!(feed.join().unwrap(), Some(EncodeError::Stopped));
        assert_eq!(items.len(), POOL_PAGES);
    }

    #[test]
    fn an_instrument_without_a_place_is_named_and_nothing_follows() {
        let mut bench = bench(1, 8);
        for (id, symbol) in [(0, "A"), (1, "B")] {
            bench.encoder.on_instrument(&Instrument::new(InstrumentId(id), symbol, "XNAS"));
        }
        bench.encoder.on_snapshot(&draft(0), &[], &[]);
        let error = bench.encoder.failure().unwrap().to_string();
        assert!(error.contains("more than 1") && error.contains('B'), "{error}");
        assert!(error.contains("shm.instruments_max"), "{error}");
        assert_eq!(bench.items.len(), 1);
    }

    #[test]
    fn more_levels_than_a_page_holds_are_an_error_and_no_loop() {
        let mut bench = bench(1, 8);
        let levels = [LEVEL; MAX_LEVELS_PER_SIDE + 1];
        bench.encoder.on_snapshot(&draft(0), &levels, &levels);
        assert!(matches!(bench.encoder.failure(), Some(EncodeError::Snapshot { .. })));
    }
}
