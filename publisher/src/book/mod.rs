//! Order books: from a feed's events to snapshots worth publishing.
//!
//! [`BookBuilder`] keeps the full book of every instrument, by order, and at the end of each venue
//! event hands on those whose visible levels or state differ from what was last handed on. It
//! believes the feed: it never matches, repairs or asserts. What cannot be true is counted
//! ([`BookStats`]) and leaves the book as it was; it never panics, whatever the events.
//!
//! ```text
//! order table (one, by instrument and order number; 32 B an order)
//!       │ side, price, quantity
//!       ▼
//! book ── side ── levels: [ worst … best ] array, the far ones in a tree
//!   └─ published: levels, flags and status that subscribers were last told
//! ```
//!
//! A live order costs [`ORDER_BYTES`] (33 B) in a table that is between 7/16 and 7/8 full, so 38 to
//! 75 B, and twice that when comings and goings made the table grow early; a level costs 24 B. Ten
//! thousand instruments with a million live orders take 95 to 170 MB.

mod builder;
mod instrument;
mod levels;
mod orders;

pub use builder::{BookBuilder, BookDepth};
pub use orders::ORDER_BYTES;

use tapecast_wire::{Flags, Instrument, InstrumentId, Level, TradingStatus};

/// A snapshot before it gets its sequence numbers: what the builder says besides the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotDraft {
    /// Instrument.
    pub instrument: InstrumentId,
    /// Crossed, locked, halted, suspect, recovering, end of session, and what the feed attached to
    /// the last message.
    pub flags: Flags,
    /// Trading status.
    pub status: TradingStatus,
    /// Sequence number of the last feed message in the book.
    pub feed_sequence: u64,
    /// Venue time of that message, Unix nanoseconds.
    pub ts_event: u64,
    /// Receive time of that message, Unix nanoseconds.
    pub ts_recv: u64,
    /// Price (1e-9) and quantity of the last trade, if there was one. A trade alone makes no
    /// snapshot.
    pub last_trade: Option<(i64, u64)>,
}

/// Takes what the builder finds worth publishing.
pub trait SnapshotSink {
    /// A new or changed directory entry, before any snapshot that needs it.
    fn on_instrument(&mut self, instrument: &Instrument);

    /// The visible book or the state of one instrument changed. Levels are best first; an empty
    /// side is an empty slice.
    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]);
}

/// What a builder has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookStats {
    /// Events applied.
    pub events: u64,
    /// Gaps that the feed has told of, by instrument.
    pub gaps: u64,
    /// Snapshots handed on.
    pub snapshots: u64,
    /// Events for an order that is not in the book; ignored (a modification adds it instead).
    pub unknown_orders: u64,
    /// Orders that came again while still live; the later one counts.
    pub duplicate_orders: u64,
    /// Reductions and executions of more than the order had; the order is gone.
    pub excess_reductions: u64,
    /// Orders and levels without a price or quantity, out of order or beyond 64 bits; ignored.
    pub refused: u64,
    /// Events for an instrument number beyond every directory's size; ignored.
    pub unknown_instruments: u64,
}
