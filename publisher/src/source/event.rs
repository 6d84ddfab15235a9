//! What every source says, in one vocabulary: the feed's messages, normalised.
//!
//! Prices are `i64` in 1e-9, quantities `u64` in the instrument's units, times Unix nanoseconds.

use tapecast_wire::{Flags, InstrumentId, Level, TradingStatus};

use super::SourceStats;
use crate::book::SnapshotDraft;

/// Side of an order or level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Buyers.
    Bid,
    /// Sellers.
    Ask,
}

/// Where in the feed an event stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStamp {
    /// The feed's own sequence number, or the message's number in the file, from 1.
    pub feed_sequence: u64,
    /// Venue time.
    pub ts_event: u64,
    /// Capture or receive time; equals `ts_event` when the feed has none.
    pub ts_recv: u64,
    /// Facts that the feed attaches, e.g. [`Flags::BAD_TS_RECV`] or [`Flags::SUSPECT`]. A message
    /// marked suspect makes its instrument's book suspect until that is cleared.
    pub flags: Flags,
}

/// One change that a feed message makes. The builder never matches orders: an execution is
/// external.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarketEvent<'a> {
    /// A new order.
    Add {
        /// The feed's order number, unique within the instrument's feed.
        order_id: u64,
        /// Its side.
        side: Side,
        /// Its price.
        price: i64,
        /// Its quantity.
        quantity: u64,
    },
    /// The order now has this side, price and quantity (DBN `M`); added if it was unknown.
    Modify {
        /// The order.
        order_id: u64,
        /// Side.
        side: Side,
        /// New price.
        price: i64,
        /// New quantity.
        quantity: u64,
    },
    /// The order loses this much; it is gone when nothing is left (ITCH `X`, DBN `C`).
    Reduce {
        /// The order.
        order_id: u64,
        /// Quantity taken away.
        quantity: u64,
    },
    /// The order is gone (ITCH `D`).
    Delete {
        /// The order.
        order_id: u64,
    },
    /// The order was executed in part or whole (ITCH `E`, `C`). The level is the order's own price.
    Execute {
        /// The order.
        order_id: u64,
        /// Quantity executed.
        quantity: u64,
        /// Trade price where it differs from the order's (ITCH `C`).
        price: Option<i64>,
        /// Whether the execution counts as a trade for the tape (ITCH `C` printable).
        printable: bool,
    },
    /// A new order takes the place of an old one on the same side, with no priority (ITCH `U`).
    Replace {
        /// The order that goes.
        old_order_id: u64,
        /// The order that comes.
        order_id: u64,
        /// Its price.
        price: i64,
        /// Its quantity.
        quantity: u64,
    },
    /// A trade that changes no visible order (ITCH `P`, `Q`; DBN `T`).
    Trade {
        /// Price.
        price: i64,
        /// Quantity.
        quantity: u64,
    },
    /// The whole visible book at once (DBN `mbp-10`), best first, no empty levels.
    Depth {
        /// Bids.
        bids: &'a [Level],
        /// Asks.
        asks: &'a [Level],
    },
    /// One side now consists of this one level, or of nothing (DBN `F_TOB`).
    TopOfBook {
        /// Side.
        side: Side,
        /// The level; `None` empties the side.
        level: Option<Level>,
    },
    /// The book is empty from here on (DBN `R`). It is no longer [`Flags::SUSPECT`], and if the
    /// session had ended, this is another one.
    Clear,
    /// A snapshot in the feed starts: the book is emptied as by [`MarketEvent::Clear`], and is
    /// [`Flags::RECOVERING`] until [`MarketEvent::RecoveryEnd`]. Orders that follow rebuild it.
    RecoveryStart,
    /// The feed's snapshot is complete.
    RecoveryEnd,
    /// Trading status changed. The book stays.
    Status(TradingStatus),
    /// Messages were lost: the book is [`Flags::SUSPECT`] until it is cleared and rebuilt.
    Gap,
    /// Nothing follows for this instrument in this session.
    EndOfSession,
}

/// Receives a source's events in feed order.
pub trait EventSink {
    /// A new or changed directory entry. Ids are dense and given by the source, from 0.
    fn on_instrument(&mut self, instrument: &tapecast_wire::Instrument);

    /// One change to one instrument.
    fn on_event(&mut self, instrument: InstrumentId, stamp: &FeedStamp, event: MarketEvent<'_>);

    /// The venue event is complete: what changed may be published.
    fn on_event_end(&mut self);

    /// A whole snapshot that was published before, an event of its own. Only journals have any;
    /// a sink that looks at single changes has no use for them.
    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        let _unused = (draft, bids, asks);
    }

    /// The input pauses: nothing more of it has come for a moment, and whoever reads it is about to
    /// wait, perhaps for long. `stats` are the source's counts as they will stay meanwhile.
    fn on_pause(&mut self, stats: impl FnOnce() -> SourceStats) {
        drop(stats);
    }
}
