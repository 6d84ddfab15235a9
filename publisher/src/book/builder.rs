//! The builder: all books, and which of them to publish when an event ends.

use tapecast_wire::limits::{MAX_INSTRUMENTS, MAX_LEVELS_PER_SIDE};
use tapecast_wire::{Instrument, InstrumentId, Level};

use super::instrument::{Book, Shared};
use super::orders::OrderTable;
use super::{BookStats, SnapshotDraft, SnapshotSink};
use crate::source::{EventSink, FeedStamp, MarketEvent, Side};

/// Size of one book, all levels and not only those visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookDepth {
    /// Bid levels.
    pub bid_levels: usize,
    /// Ask levels.
    pub ask_levels: usize,
    /// Live bid orders.
    pub bid_orders: usize,
    /// Live ask orders.
    pub ask_orders: usize,
}

/// Builds every instrument's book from a source's events and hands on what changed.
///
/// Before the first snapshot of an instrument, subscribers are taken to know an empty book of
/// unknown status: an instrument that stays so is never handed on.
#[derive(Debug)]
pub struct BookBuilder<K> {
    books: Vec<Book>,
    /// Books to look at when the event ends, in order of their first change.
    touched: Vec<u32>,
    shared: Shared,
    sink: K,
}

impl<K: SnapshotSink> BookBuilder<K> {
    /// A builder that shows `levels_per_side` levels (held to 1 ..= [`MAX_LEVELS_PER_SIDE`]).
    pub fn new(levels_per_side: usize, sink: K) -> Self {
        Self::with_order_capacity(levels_per_side, sink, 0)
    }

    /// As [`BookBuilder::new`], with room for `orders` live orders, so that the order table need
    /// not grow (each time it doubles, one event waits for the copy). Do not ask for much more than
    /// there will be: a table that fits the caches is several times faster.
    pub fn with_order_capacity(levels_per_side: usize, sink: K, orders: usize) -> Self {
        let shared = Shared {
            orders: OrderTable::with_capacity(orders),
            stats: BookStats::default(),
            levels_per_side: levels_per_side.clamp(1, MAX_LEVELS_PER_SIDE),
        };
        Self { books: Vec::new(), touched: Vec::new(), shared, sink }
    }

    /// Counts so far.
    pub const fn stats(&self) -> BookStats {
        self.shared.stats
    }

    /// Live orders in all books.
    pub fn live_orders(&self) -> usize {
        self.shared.orders.len()
    }

    /// Size of one book; zeros for an instrument that is not known.
    pub fn depth(&self, instrument: InstrumentId) -> BookDepth {
        let Some(book) = self.books.get(instrument.index()) else { return BookDepth::default() };
        let (bid_levels, bid_orders) = book.side_counts(Side::Bid);
        let (ask_levels, ask_orders) = book.side_counts(Side::Ask);
        BookDepth { bid_levels, ask_levels, bid_orders, ask_orders }
    }

    /// Bytes that the builder has allocated, its sink's not counted.
    pub fn heap_bytes(&self) -> usize {
        let books: usize = self.books.iter().map(Book::heap_bytes).sum();
        let lists = self.books.capacity() * size_of::<Book>() + self.touched.capacity() * 4;
        self.shared.orders.heap_bytes() + books + lists
    }

    /// The sink.
    pub const fn sink(&self) -> &K {
        &self.sink
    }

    /// The sink, to change it between events.
    pub const fn sink_mut(&mut self) -> &mut K {
        &mut self.sink
    }

    /// The sink back.
    pub fn into_sink(self) -> K {
        self.sink
    }

    /// Makes a book for this instrument if there is none. `false` when no directory could hold it.
    #[cold]
    fn open_book(&mut self, instrument: InstrumentId) -> bool {
        if instrument.index() >= MAX_INSTRUMENTS {
            return false;
        }
        for id in self.books.len()..=instrument.index() {
            self.books.push(Book::new(InstrumentId(id as u32)));
        }
        true
    }

    #[cold]
    fn sweep(&mut self) {
        let books = &self.books;
        self.shared.orders.sweep(|instrument| books[instrument.index()].generations());
    }
}

impl<K: SnapshotSink> EventSink for BookBuilder<K> {
    fn on_instrument(&mut self, instrument: &Instrument) {
        if self.open_book(instrument.instrument_id) {
            self.sink.on_instrument(instrument);
        } else {
            self.shared.stats.unknown_instruments += 1;
        }
    }

    #[inline]
    fn on_event(&mut self, instrument: InstrumentId, stamp: &FeedStamp, event: MarketEvent<'_>) {
        if instrument.index() >= self.books.len() && !self.open_book(instrument) {
            self.shared.stats.unknown_instruments += 1;
            return;
        }
        self.shared.stats.events += 1;
        self.shared.stats.gaps += u64::from(matches!(event, MarketEvent::Gap));
        let book = &mut self.books[instrument.index()];
        if book.apply(stamp, event, &mut self.shared) && !book.queued {
            book.queued = true;
            self.touched.push(instrument.0);
        }
        if self.shared.orders.wants_sweep() {
            self.sweep();
        }
    }

    fn on_event_end(&mut self) {
        for index in self.touched.drain(..) {
            let book = &mut self.books[index as usize];
            book.queued = false;
            if let Some(draft) = book.refresh(self.shared.levels_per_side) {
                let (bids, asks) = book.published_levels();
                self.shared.stats.snapshots += 1;
                self.sink.on_snapshot(&draft, bids, asks);
            }
        }
    }

    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        let index = draft.instrument.index();
        if index >= self.books.len() && !self.open_book(draft.instrument) {
            self.shared.stats.unknown_instruments += 1;
            return;
        }
        self.shared.stats.events += 1;
        self.shared.stats.snapshots += 1;
        self.books[index].adopt(draft, (bids, asks), &mut self.shared);
        self.sink.on_snapshot(draft, bids, asks);
    }
}
