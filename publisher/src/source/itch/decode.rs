//! Messages into events, one at a time.

use tapecast_wire::{Flags, Instrument, InstrumentId, TradingStatus};

use super::directory::{Directory, Listed};
use super::message::{
    HEADER_BYTES, MessageError, Stock, body, known_bytes, locate, name_of, price_at, short,
    stock_at, timestamp, u32_at, u64_at,
};
use crate::source::{EventSink, FeedStamp, MarketEvent, Side, SourceStats};

/// When a venue event is over. ITCH has no marker for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventEnd {
    /// After a run of messages with equal timestamps.
    #[default]
    Timestamp,
    /// After every message.
    Message,
}

/// Whether an instrument trades: by rule, and by Nasdaq's own operation.
#[derive(Clone, Copy, Debug, Default)]
struct TradingState {
    regulatory: TradingStatus,
    operational_halt: bool,
}

impl TradingState {
    const fn status(self) -> TradingStatus {
        if self.operational_halt { TradingStatus::Halted } else { self.regulatory }
    }
}

/// How far the day has come. Each step is taken once, however often the feed says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Closed,
    Ended,
}

/// Decodes ITCH 5.0 messages into events: no framing, no input, no book.
///
/// Instrument ids are dense in order of first mention and stay with their symbol for the decoder's
/// life; locate codes mean something only within one session (one feed and day).
///
/// - Unknown types are counted and skipped; of messages longer than known, the known part is read.
/// - A message about a locate code that nothing has listed yet is counted ([`Self::unlisted`]).
///   Messages that carry their symbol list it by themselves, so a recording may start mid-day; the
///   orders from before are missing then, so the book has a gap ([`MarketEvent::Gap`]).
/// - A side that is neither `B` nor `S` means that an order is lost to us: [`MarketEvent::Gap`].
#[derive(Debug)]
pub struct ItchDecoder {
    midnight_unix_ns: u64,
    event_end: EventEnd,
    directory: Directory,
    /// By instrument.
    states: Vec<TradingState>,
    stamp: FeedStamp,
    /// The last message's own timestamp.
    timestamp: u64,
    /// Events were handed on since the last event end.
    pending: bool,
    /// Events were handed on in this session.
    spoke: bool,
    phase: Phase,
    /// Books of the session before are to be cleared first.
    restart: bool,
    counts: Box<[u64; 256]>,
    unknown: u64,
    unlisted: u64,
}

impl ItchDecoder {
    /// A decoder for one feed. Timestamps count from `midnight_unix_ns` (Unix nanoseconds; 0 when
    /// the date is not known: times are then those of 1 January 1970, UTC). Only these `symbols`
    /// get instruments; all do when the list is empty.
    pub fn new(midnight_unix_ns: u64, event_end: EventEnd, symbols: &[String]) -> Self {
        Self {
            midnight_unix_ns,
            event_end,
            directory: Directory::new(symbols),
            states: Vec::new(),
            stamp: FeedStamp::default(),
            timestamp: 0,
            pending: false,
            spoke: false,
            phase: Phase::Running,
            restart: false,
            counts: Box::new([0; 256]),
            unknown: 0,
            unlisted: 0,
        }
    }

    /// Instruments listed so far, by id.
    pub fn instruments(&self) -> &[Instrument] {
        self.directory.instruments()
    }

    /// When a venue event is over.
    pub const fn event_end(&self) -> EventEnd {
        self.event_end
    }

    /// Messages decoded in this session; the number of the last one.
    pub const fn messages(&self) -> u64 {
        self.stamp.feed_sequence
    }

    /// Messages about locate codes that no message has listed.
    pub const fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Time of the last message, Unix nanoseconds.
    pub const fn time_unix_ns(&self) -> u64 {
        self.midnight_unix_ns.saturating_add(self.timestamp)
    }

    /// Counts of this session. The bytes are the input's to say.
    pub fn stats(&self) -> SourceStats {
        let seen = (0..=u8::MAX).zip(&*self.counts).filter(|(_, count)| **count > 0);
        SourceStats {
            by_type: seen.map(|(kind, count)| (name_of(kind), *count)).collect(),
            messages: self.messages(),
            unknown: self.unknown,
            ..SourceStats::default()
        }
    }

    /// A new day, or the same one again: locate codes and message numbers start afresh. Books are
    /// cleared with the next message. Instruments keep their ids.
    pub fn begin_session(&mut self, midnight_unix_ns: u64) {
        self.midnight_unix_ns = midnight_unix_ns;
        self.directory.forget_locates();
        self.stamp = FeedStamp::default();
        self.timestamp = 0;
        self.pending = false;
        self.restart |= self.spoke;
        self.spoke = false;
        self.phase = Phase::Running;
        self.counts.fill(0);
        (self.unknown, self.unlisted) = (0, 0);
    }

    /// Learns from a directory message (`R`) ahead of time, without counting it; of other messages
    /// and of damaged ones, nothing.
    pub fn preload(&mut self, message: &[u8]) {
        if let (Some(b'R'), Some(bytes)) = (message.first(), message.first_chunk::<39>()) {
            self.list_directory(bytes, &mut Unheard);
        }
    }

    /// Whether the venue event that is going on ends before this message.
    #[inline]
    pub fn ends_event(&self, message: &[u8]) -> bool {
        self.pending
            && self.event_end == EventEnd::Timestamp
            && known_bytes(message.first().copied().unwrap_or(0)).is_some()
            && message.first_chunk::<HEADER_BYTES>().map(timestamp) != Some(self.timestamp)
    }

    /// Decodes one message, without its length prefix. Calls [`EventSink::on_event_end`] before it
    /// or after it as [`EventEnd`] says; the caller ends the last event ([`Self::end_event`]).
    ///
    /// # Errors
    /// When the message is shorter than its type. Nothing of it has been applied or counted.
    pub fn decode<S: EventSink>(
        &mut self,
        message: &[u8],
        sink: &mut S,
    ) -> Result<(), MessageError> {
        if self.ends_event(message) {
            self.end_event(sink);
        }
        self.decode_on(message, sink)
    }

    /// As [`Self::decode`], for a message that is known not to end an event by coming.
    #[inline]
    pub(super) fn decode_on<S: EventSink>(
        &mut self,
        message: &[u8],
        sink: &mut S,
    ) -> Result<(), MessageError> {
        let kind = *message.first().ok_or(MessageError::Empty)?;
        let Some(need) = known_bytes(kind) else {
            self.skip_unknown(kind);
            return Ok(());
        };
        if message.len() < need {
            return Err(short(message, need));
        }
        self.timestamp = timestamp(body::<HEADER_BYTES>(message)?);
        let now = self.time_unix_ns();
        let feed_sequence = self.stamp.feed_sequence + 1;
        self.stamp = FeedStamp { feed_sequence, ts_event: now, ts_recv: now, flags: Flags::NONE };
        self.counts[usize::from(kind)] += 1;
        if self.restart {
            self.clear_books(sink);
        }
        self.dispatch(kind, message, sink)?;
        if self.event_end == EventEnd::Message {
            self.end_event(sink);
        }
        Ok(())
    }

    /// Ends the venue event that is going on, if one is.
    #[inline]
    pub fn end_event<S: EventSink>(&mut self, sink: &mut S) {
        if std::mem::take(&mut self.pending) {
            sink.on_event_end();
        }
    }

    #[inline]
    fn dispatch<S: EventSink>(
        &mut self,
        kind: u8,
        message: &[u8],
        sink: &mut S,
    ) -> Result<(), MessageError> {
        match kind {
            b'A' | b'F' => self.add(body(message)?, sink),
            b'D' => self.delete(body(message)?, sink),
            b'X' => self.cancel(body(message)?, sink),
            b'E' => self.executed(body(message)?, sink),
            b'U' => self.replace(body(message)?, sink),
            b'C' => self.executed_with_price(body(message)?, sink),
            b'P' => self.trade(body(message)?, sink),
            b'Q' => self.cross(body(message)?, sink),
            b'R' => self.list_directory(body(message)?, sink),
            b'H' => self.trading_action(body(message)?, sink),
            b'h' => self.operational_halt(body(message)?, sink),
            b'S' => self.system_event(body(message)?, sink),
            // Known, counted, and no part of a book: Y L V W K J B I N O.
            _ => {}
        }
        Ok(())
    }

    #[cold]
    fn skip_unknown(&mut self, kind: u8) {
        self.stamp.feed_sequence += 1;
        self.counts[usize::from(kind)] += 1;
        self.unknown += 1;
    }

    #[inline]
    fn emit<S: EventSink>(&mut self, id: InstrumentId, event: MarketEvent<'_>, sink: &mut S) {
        self.pending = true;
        self.spoke = true;
        sink.on_event(id, &self.stamp, event);
    }

    /// Hands on an event of the instrument that the locate code stands for.
    #[inline]
    fn emit_at<S: EventSink>(&mut self, locate: u16, event: MarketEvent<'_>, sink: &mut S) {
        match self.directory.at(locate) {
            Listed::Instrument(id) => self.emit(id, event, sink),
            Listed::Unwanted => {}
            Listed::No => self.unlisted += 1,
        }
    }

    /// Hands on an event of a message that carries its symbol.
    #[inline]
    fn emit_for<S: EventSink>(
        &mut self,
        listed: (u16, Stock),
        event: MarketEvent<'_>,
        sink: &mut S,
    ) {
        if let Some(id) = self.instrument_of(listed, sink) {
            self.emit(id, event, sink);
        }
    }

    #[inline]
    fn instrument_of<S: EventSink>(
        &mut self,
        listed: (u16, Stock),
        sink: &mut S,
    ) -> Option<InstrumentId> {
        match self.directory.at_with(listed.0, listed.1) {
            Listed::Instrument(id) => Some(id),
            Listed::Unwanted => None,
            Listed::No => self.list_late(listed, sink),
        }
    }

    /// A symbol that no directory message has announced: the start of its day is missing.
    #[cold]
    fn list_late<S: EventSink>(
        &mut self,
        listed: (u16, Stock),
        sink: &mut S,
    ) -> Option<InstrumentId> {
        let id = self.directory.list(listed, None, sink)?;
        self.emit(id, MarketEvent::Gap, sink);
        Some(id)
    }

    fn add<S: EventSink>(&mut self, message: &[u8; 36], sink: &mut S) {
        let side = match message[19] {
            b'B' => Side::Bid,
            b'S' => Side::Ask,
            _ => {
                self.lose_order(message, sink);
                return;
            }
        };
        let event = MarketEvent::Add {
            order_id: u64_at::<11, 36>(message),
            side,
            price: price_at::<32, 36>(message),
            quantity: u64::from(u32_at::<20, 36>(message)),
        };
        self.emit_for((locate(message), stock_at::<24, 36>(message)), event, sink);
    }

    #[cold]
    fn lose_order<S: EventSink>(&mut self, message: &[u8; 36], sink: &mut S) {
        let listed = (locate(message), stock_at::<24, 36>(message));
        self.emit_for(listed, MarketEvent::Gap, sink);
    }

    fn delete<S: EventSink>(&mut self, message: &[u8; 19], sink: &mut S) {
        let event = MarketEvent::Delete { order_id: u64_at::<11, 19>(message) };
        self.emit_at(locate(message), event, sink);
    }

    fn cancel<S: EventSink>(&mut self, message: &[u8; 23], sink: &mut S) {
        let event = MarketEvent::Reduce {
            order_id: u64_at::<11, 23>(message),
            quantity: u64::from(u32_at::<19, 23>(message)),
        };
        self.emit_at(locate(message), event, sink);
    }

    fn executed<S: EventSink>(&mut self, message: &[u8; 31], sink: &mut S) {
        let event = MarketEvent::Execute {
            order_id: u64_at::<11, 31>(message),
            quantity: u64::from(u32_at::<19, 31>(message)),
            price: None,
            printable: true,
        };
        self.emit_at(locate(message), event, sink);
    }

    fn executed_with_price<S: EventSink>(&mut self, message: &[u8; 36], sink: &mut S) {
        let event = MarketEvent::Execute {
            order_id: u64_at::<11, 36>(message),
            quantity: u64::from(u32_at::<19, 36>(message)),
            price: Some(price_at::<32, 36>(message)),
            printable: message[31] == b'Y',
        };
        self.emit_at(locate(message), event, sink);
    }

    fn replace<S: EventSink>(&mut self, message: &[u8; 35], sink: &mut S) {
        let event = MarketEvent::Replace {
            old_order_id: u64_at::<11, 35>(message),
            order_id: u64_at::<19, 35>(message),
            price: price_at::<31, 35>(message),
            quantity: u64::from(u32_at::<27, 35>(message)),
        };
        self.emit_at(locate(message), event, sink);
    }

    fn trade<S: EventSink>(&mut self, message: &[u8; 44], sink: &mut S) {
        let event = MarketEvent::Trade {
            price: price_at::<32, 44>(message),
            quantity: u64::from(u32_at::<20, 44>(message)),
        };
        self.emit_for((locate(message), stock_at::<24, 44>(message)), event, sink);
    }

    /// A cross in which nothing traded is also said, with quantity 0: that is no trade.
    fn cross<S: EventSink>(&mut self, message: &[u8; 40], sink: &mut S) {
        let listed = (locate(message), stock_at::<19, 40>(message));
        let quantity = u64_at::<11, 40>(message);
        if quantity > 0 {
            let event = MarketEvent::Trade { price: price_at::<27, 40>(message), quantity };
            self.emit_for(listed, event, sink);
        }
    }

    fn list_directory<S: EventSink>(&mut self, message: &[u8; 39], sink: &mut S) {
        let lot_size = u32_at::<21, 39>(message);
        let listed = (locate(message), stock_at::<11, 39>(message));
        self.directory.list(listed, Some(lot_size), sink);
    }

    fn trading_action<S: EventSink>(&mut self, message: &[u8; 25], sink: &mut S) {
        let status = match message[19] {
            b'H' => TradingStatus::Halted,
            b'P' => TradingStatus::Paused,
            b'Q' => TradingStatus::QuoteOnly,
            b'T' => TradingStatus::Trading,
            _ => TradingStatus::Unknown,
        };
        let listed = (locate(message), stock_at::<11, 25>(message));
        self.change_state(listed, |state| state.regulatory = status, sink);
    }

    /// Nasdaq's own halt; those of its sister markets do not concern this book.
    fn operational_halt<S: EventSink>(&mut self, message: &[u8; 21], sink: &mut S) {
        if message[19] == b'Q' {
            let halted = message[20] == b'H';
            let listed = (locate(message), stock_at::<11, 21>(message));
            self.change_state(listed, |state| state.operational_halt = halted, sink);
        }
    }

    fn change_state<S: EventSink>(
        &mut self,
        listed: (u16, Stock),
        change: impl FnOnce(&mut TradingState),
        sink: &mut S,
    ) {
        if let Some(id) = self.instrument_of(listed, sink) {
            let state = self.state_mut(id);
            change(state);
            let status = state.status();
            self.emit(id, MarketEvent::Status(status), sink);
        }
    }

    fn state_mut(&mut self, id: InstrumentId) -> &mut TradingState {
        if self.states.len() <= id.index() {
            self.states.resize(id.index() + 1, TradingState::default());
        }
        &mut self.states[id.index()]
    }

    fn system_event<S: EventSink>(&mut self, message: &[u8; 12], sink: &mut S) {
        match message[11] {
            // Start of messages: a second one starts another day in the same input.
            b'O' if self.spoke => {
                self.directory.forget_locates();
                self.clear_books(sink);
            }
            // End of system hours: orders are no longer accepted, deletions may follow.
            b'E' if self.phase == Phase::Running => {
                self.phase = Phase::Closed;
                for id in self.directory.ids() {
                    let state = self.state_mut(id);
                    state.regulatory = TradingStatus::Closed;
                    let status = state.status();
                    self.emit(id, MarketEvent::Status(status), sink);
                }
            }
            // End of messages.
            b'C' if self.phase != Phase::Ended => {
                self.phase = Phase::Ended;
                self.emit_to_all(MarketEvent::EndOfSession, sink);
            }
            _ => {}
        }
    }

    /// Nothing of an earlier session is left in the books.
    #[cold]
    fn clear_books<S: EventSink>(&mut self, sink: &mut S) {
        self.restart = false;
        self.states.fill(TradingState::default());
        self.emit_to_all(MarketEvent::Status(TradingStatus::Unknown), sink);
        self.emit_to_all(MarketEvent::Clear, sink);
        self.phase = Phase::Running;
        self.spoke = false;
    }

    fn emit_to_all<S: EventSink>(&mut self, event: MarketEvent<'_>, sink: &mut S) {
        for id in self.directory.ids() {
            self.emit(id, event, sink);
        }
    }
}

/// Hears nothing: for what happens before anyone listens.
struct Unheard;

impl EventSink for Unheard {
    fn on_instrument(&mut self, _: &Instrument) {}
    fn on_event(&mut self, _: InstrumentId, _: &FeedStamp, _: MarketEvent<'_>) {}
    fn on_event_end(&mut self) {}
}
