//! From DBN records to market events.
//!
//! | action | meaning here |
//! | --- | --- |
//! | `A` | add; with `F_TOB` the side becomes this level, or nothing when the price is undefined |
//! | `C` | reduce by size: a partial or a full cancel |
//! | `M` | modify |
//! | `R` | clear |
//! | `T` | last trade; the book stays |
//! | `F`, `N` | nothing: the cancel or modify that follows a fill changes the book |
//!
//! A record flagged as snapshot starts a recovery, which the snapshot's last record ends, or the
//! first record that is not of it. `F_LAST` ends an event for one instrument; what changed is
//! released when no other instrument is within an event of its own.

use dbn::{FlagSet, MboMsg, Mbp10Msg, StatusMsg, UNDEF_PRICE, UNDEF_TIMESTAMP, rtype};
use tapecast_wire::{Flags, InstrumentId, Level};

use super::bindings::{Bindings, Bound, FeedKey};
use super::fields::{Definition, fill_levels, mapped_symbol, order_event, trading_status};
use super::records::Frame;
use crate::source::{EventSink, FeedStamp, MarketEvent};

/// Event ends that may wait for another instrument's; a feed that leaves an event open for ever
/// must not hold back everybody.
const DEFERRED_EVENT_ENDS_MAX: u32 = 256;

/// Which records make the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BookKind {
    /// The metadata leaves it open: the first book record decides.
    Undecided,
    /// `mbo`.
    Orders,
    /// `mbp-10`.
    Levels,
}

/// What a record led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An event goes on.
    Within,
    /// The event is complete.
    EventEnd,
    /// The directory is full.
    DirectoryFull,
}

#[derive(Clone, Copy, Default)]
struct BookState {
    recovering: bool,
    suspect: bool,
    within_event: bool,
}

/// Translates the records of one input.
pub(super) struct Translator {
    pub(super) bindings: Bindings,
    kind: BookKind,
    books: Vec<BookState>,
    within_event: usize,
    deferred: u32,
    last_sequence: u64,
    feed_time_ns: u64,
    restarted: bool,
}

impl Translator {
    pub(super) fn new(bindings: Bindings, kind: BookKind) -> Self {
        let books = vec![BookState::default(); bindings.instruments().len()];
        Self {
            bindings,
            kind,
            books,
            within_event: 0,
            deferred: 0,
            last_sequence: 0,
            feed_time_ns: 0,
            restarted: false,
        }
    }

    /// Feed clock at the last record.
    pub(super) const fn feed_time_ns(&self) -> u64 {
        self.feed_time_ns
    }

    pub(super) const fn kind(&self) -> BookKind {
        self.kind
    }

    /// The input starts again: every book is over.
    pub(super) fn restart(&mut self) {
        self.books.fill(BookState::default());
        (self.within_event, self.deferred) = (0, 0);
        self.restarted = true;
    }

    /// Clears the books of the round before, once.
    pub(super) fn announce_restart<S: EventSink>(&mut self, sink: &mut S) {
        if core::mem::take(&mut self.restarted) {
            let stamp = self.stamp_without_record();
            for instrument in self.bindings.instruments() {
                sink.on_event(instrument.instrument_id, &stamp, MarketEvent::Clear);
            }
        }
    }

    /// Ends the recoveries that the end of the input ends. True when there was one.
    pub(super) fn end_recoveries<S: EventSink>(&mut self, sink: &mut S) -> bool {
        let stamp = self.stamp_without_record();
        let mut any = false;
        for (index, book) in self.books.iter_mut().enumerate() {
            if core::mem::take(&mut book.recovering) {
                sink.on_event(InstrumentId(index as u32), &stamp, MarketEvent::RecoveryEnd);
                any = true;
            }
        }
        any
    }

    /// Translates one record.
    pub(super) fn on_record<S: EventSink>(&mut self, frame: Frame<'_>, sink: &mut S) -> Step {
        match frame.rtype() {
            rtype::MBO => match frame.get::<MboMsg>() {
                Some(record) if self.takes(BookKind::Orders) => self.on_order(record, sink),
                _ => Step::Within,
            },
            rtype::MBP_10 => match frame.get::<Mbp10Msg>() {
                Some(record) if self.takes(BookKind::Levels) => self.on_levels(record, sink),
                _ => Step::Within,
            },
            rtype::STATUS => match frame.get::<StatusMsg>() {
                Some(record) => self.on_status(record, sink),
                None => Step::Within,
            },
            rtype::SYMBOL_MAPPING => {
                if let Some(symbol) = mapped_symbol(frame) {
                    self.bindings.on_symbol(frame.header().instrument_id, symbol);
                }
                Step::Within
            }
            rtype::INSTRUMENT_DEF => self.on_definition(frame, sink),
            _ => Step::Within,
        }
    }

    fn takes(&mut self, kind: BookKind) -> bool {
        if self.kind == BookKind::Undecided {
            self.kind = kind;
        }
        self.kind == kind
    }

    fn on_order<S: EventSink>(&mut self, record: &MboMsg, sink: &mut S) -> Step {
        let stamp = self.stamp(record.hd.ts_event, record.ts_recv, record.sequence, record.flags);
        let id = match self.book(&record.hd, &stamp, sink) {
            Ok(Some(id)) => id,
            Ok(None) => return self.end_event_if(record.flags.is_last(), sink),
            Err(full) => return full,
        };
        self.follow_snapshot(id, record, &stamp, sink);
        if record.action as u8 == b'R' {
            self.books[id.index()].suspect = false;
        } else {
            self.follow_gap(id, record.flags, &stamp, sink);
        }
        if let Some(event) = order_event(record) {
            sink.on_event(id, &stamp, event);
        }
        let (snapshot, last) = (record.flags.is_snapshot(), record.flags.is_last());
        if snapshot && last {
            self.books[id.index()].recovering = false;
            sink.on_event(id, &stamp, MarketEvent::RecoveryEnd);
        }
        // A snapshot may have no last record; its book says RECOVERING and holds back nobody.
        self.mark_within_event(id, !last && !snapshot);
        self.end_event_if(last, sink)
    }

    fn on_levels<S: EventSink>(&mut self, record: &Mbp10Msg, sink: &mut S) -> Step {
        let stamp = self.stamp(record.hd.ts_event, record.ts_recv, record.sequence, record.flags);
        let id = match self.book(&record.hd, &stamp, sink) {
            Ok(Some(id)) => id,
            Ok(None) => return self.end_event_if(record.flags.is_last(), sink),
            Err(full) => return full,
        };
        // Every record is a whole book, so the first good one after a suspect one starts afresh.
        let suspect = record.flags.is_maybe_bad_book();
        let was_suspect = core::mem::replace(&mut self.books[id.index()].suspect, suspect);
        if record.action as u8 == b'R' || (was_suspect && !suspect) {
            sink.on_event(id, &stamp, MarketEvent::Clear);
        }
        if record.action as u8 == b'T' && record.price != UNDEF_PRICE {
            let quantity = u64::from(record.size);
            sink.on_event(id, &stamp, MarketEvent::Trade { price: record.price, quantity });
        }
        let mut bids = [Level::EMPTY; 10];
        let mut asks = [Level::EMPTY; 10];
        let pairs = record.levels.iter();
        let bid_count = fill_levels(
            &mut bids,
            pairs.clone().map(|pair| (pair.bid_px, pair.bid_sz, pair.bid_ct)),
        );
        let ask_count =
            fill_levels(&mut asks, pairs.map(|pair| (pair.ask_px, pair.ask_sz, pair.ask_ct)));
        let depth = MarketEvent::Depth { bids: &bids[..bid_count], asks: &asks[..ask_count] };
        sink.on_event(id, &stamp, depth);
        self.mark_within_event(id, !record.flags.is_last());
        self.end_event_if(record.flags.is_last(), sink)
    }

    fn on_status<S: EventSink>(&mut self, record: &StatusMsg, sink: &mut S) -> Step {
        let sequence = self.last_sequence as u32;
        let stamp = self.stamp(record.hd.ts_event, record.ts_recv, sequence, FlagSet::empty());
        let Some(status) = trading_status(record) else {
            return Step::Within;
        };
        match self.book(&record.hd, &stamp, sink) {
            Ok(Some(id)) => sink.on_event(id, &stamp, MarketEvent::Status(status)),
            Ok(None) => {}
            Err(full) => return full,
        }
        self.end_event_if(true, sink)
    }

    fn on_definition<S: EventSink>(&mut self, frame: Frame<'_>, sink: &mut S) -> Step {
        let Some(definition) = Definition::of(frame) else {
            return Step::Within;
        };
        self.bindings.on_symbol(frame.header().instrument_id, definition.symbol);
        let stamp = self.stamp_without_record();
        match self.book(frame.header(), &stamp, sink) {
            Ok(Some(id)) => {
                self.bindings.on_terms(id, definition.tick_size, definition.lot_size, sink);
                Step::Within
            }
            Ok(None) => Step::Within,
            Err(full) => full,
        }
    }

    /// The book of a record, or `None` when it is not wanted.
    fn book<S: EventSink>(
        &mut self,
        header: &dbn::RecordHeader,
        stamp: &FeedStamp,
        sink: &mut S,
    ) -> Result<Option<InstrumentId>, Step> {
        let key =
            FeedKey { publisher_id: header.publisher_id, instrument_id: header.instrument_id };
        let id = match self.bindings.resolve(key, stamp.ts_recv, sink) {
            Bound::Unwanted => return Ok(None),
            Bound::Full => return Err(Step::DirectoryFull),
            Bound::Book(id) => id,
            Bound::Rebound(id) => {
                self.mark_within_event(id, false);
                self.books[id.index()] = BookState::default();
                sink.on_event(id, stamp, MarketEvent::Clear);
                id
            }
        };
        if id.index() >= self.books.len() {
            self.books.resize(id.index() + 1, BookState::default());
        }
        Ok(Some(id))
    }

    fn follow_snapshot<S: EventSink>(
        &mut self,
        id: InstrumentId,
        record: &MboMsg,
        stamp: &FeedStamp,
        sink: &mut S,
    ) {
        let book = &mut self.books[id.index()];
        let snapshot = record.flags.is_snapshot();
        if snapshot && !book.recovering {
            book.recovering = true;
            book.suspect = false;
            sink.on_event(id, stamp, MarketEvent::RecoveryStart);
            if record.action as u8 != b'R' {
                sink.on_event(id, stamp, MarketEvent::Clear);
            }
        } else if !snapshot && book.recovering {
            book.recovering = false;
            sink.on_event(id, stamp, MarketEvent::RecoveryEnd);
        }
    }

    fn follow_gap<S: EventSink>(
        &mut self,
        id: InstrumentId,
        flags: FlagSet,
        stamp: &FeedStamp,
        sink: &mut S,
    ) {
        let book = &mut self.books[id.index()];
        if flags.is_maybe_bad_book() && !book.suspect {
            sink.on_event(id, stamp, MarketEvent::Gap);
        }
        book.suspect = flags.is_maybe_bad_book();
    }

    fn mark_within_event(&mut self, id: InstrumentId, within: bool) {
        let Some(book) = self.books.get_mut(id.index()) else {
            return;
        };
        match (book.within_event, within) {
            (false, true) => self.within_event += 1,
            (true, false) => self.within_event -= 1,
            _ => {}
        }
        book.within_event = within;
    }

    fn end_event_if<S: EventSink>(&mut self, last: bool, sink: &mut S) -> Step {
        if !last {
            return Step::Within;
        }
        if self.within_event > 0 {
            self.deferred += 1;
            if self.deferred < DEFERRED_EVENT_ENDS_MAX {
                return Step::Within;
            }
            self.books.iter_mut().for_each(|book| book.within_event = false);
            self.within_event = 0;
        }
        self.deferred = 0;
        sink.on_event_end();
        Step::EventEnd
    }

    fn stamp(&mut self, ts_event: u64, ts_recv: u64, sequence: u32, flags: FlagSet) -> FeedStamp {
        let ts_recv = if ts_recv == UNDEF_TIMESTAMP { ts_event } else { ts_recv };
        let ts_event = if ts_event == UNDEF_TIMESTAMP { ts_recv } else { ts_event };
        self.last_sequence = u64::from(sequence);
        if ts_recv != UNDEF_TIMESTAMP {
            self.feed_time_ns = ts_recv;
        }
        FeedStamp {
            feed_sequence: u64::from(sequence),
            ts_event,
            ts_recv,
            flags: Flags::NONE
                .with_if(Flags::SUSPECT, flags.is_maybe_bad_book())
                .with_if(Flags::BAD_TS_RECV, flags.is_bad_ts_recv()),
        }
    }

    const fn stamp_without_record(&self) -> FeedStamp {
        FeedStamp {
            feed_sequence: self.last_sequence,
            ts_event: self.feed_time_ns,
            ts_recv: self.feed_time_ns,
            flags: Flags::NONE,
        }
    }
}
