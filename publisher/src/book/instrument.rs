//! The book of one instrument.

use tapecast_wire::{Flags, InstrumentId, Level, TradingStatus, UNDEFINED_PRICE};

use super::levels::{Depth, Levels};
use super::orders::{Generations, OrderKey, OrderTable};
use super::{BookStats, SnapshotDraft};
use crate::source::{FeedStamp, MarketEvent, Side};

/// One side: its levels, and how many orders made them.
#[derive(Debug)]
struct BookSide {
    levels: Levels,
    /// Live orders in the order table.
    orders: usize,
    /// Orders of another generation are stale, see [`OrderTable`].
    generation: u32,
    /// A visible level may differ from what was published.
    touched: bool,
}

impl BookSide {
    const fn new(side: Side) -> Self {
        Self { levels: Levels::new(side), orders: 0, generation: 0, touched: false }
    }
}

/// What subscribers were last told. Levels best first.
#[derive(Debug, Default)]
struct Published {
    bids: Vec<Level>,
    asks: Vec<Level>,
    flags: Flags,
    status: TradingStatus,
}

/// Shared by all books while an event is applied.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) orders: OrderTable,
    pub(crate) stats: BookStats,
    pub(crate) levels_per_side: usize,
}

/// The book of one instrument, and what was published of it.
#[derive(Debug)]
pub(crate) struct Book {
    id: InstrumentId,
    sides: [BookSide; 2],
    published: Published,
    stamp: FeedStamp,
    last_trade: Option<(i64, u64)>,
    status: TradingStatus,
    /// [`Flags::SUSPECT`], [`Flags::RECOVERING`] and [`Flags::END_OF_SESSION`] as they stand.
    standing: Flags,
    /// In the builder's list of books to look at when the event ends.
    pub(crate) queued: bool,
}

impl Book {
    pub(crate) fn new(id: InstrumentId) -> Self {
        Self {
            id,
            sides: [BookSide::new(Side::Bid), BookSide::new(Side::Ask)],
            published: Published::default(),
            stamp: FeedStamp::default(),
            last_trade: None,
            status: TradingStatus::Unknown,
            standing: Flags::NONE,
            queued: false,
        }
    }

    pub(crate) const fn generations(&self) -> Generations {
        [self.sides[0].generation, self.sides[1].generation]
    }

    pub(crate) fn side_counts(&self, side: Side) -> (usize, usize) {
        let side = &self.sides[side as usize];
        (side.levels.len(), side.orders)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let levels: usize = self.sides.iter().map(|side| side.levels.heap_bytes()).sum();
        let published = self.published.bids.capacity() + self.published.asks.capacity();
        levels + published * size_of::<Level>()
    }

    /// Applies one event. Returns whether something that a snapshot shows may have changed.
    #[inline]
    pub(crate) fn apply(
        &mut self,
        stamp: &FeedStamp,
        event: MarketEvent<'_>,
        shared: &mut Shared,
    ) -> bool {
        self.stamp = *stamp;
        self.standing = self.standing.with_if(Flags::SUSPECT, stamp.flags.contains(Flags::SUSPECT));
        match event {
            MarketEvent::Add { order_id, side, price, quantity } => {
                let key = OrderKey { instrument: self.id, id: order_id };
                self.add(key, side, (price, quantity), shared);
            }
            MarketEvent::Modify { order_id, side, price, quantity } => {
                let key = OrderKey { instrument: self.id, id: order_id };
                self.modify(key, side, (price, quantity), shared);
            }
            MarketEvent::Reduce { order_id, quantity } => {
                self.reduce(order_id, quantity, shared);
            }
            MarketEvent::Delete { order_id } => {
                self.take(order_id, shared);
            }
            MarketEvent::Execute { order_id, quantity, price, printable } => {
                let own_price = self.reduce(order_id, quantity, shared);
                if let Some(price) = price.or(own_price).filter(|_| printable) {
                    self.last_trade = Some((price, quantity));
                }
            }
            MarketEvent::Replace { old_order_id, order_id, price, quantity } => {
                if let Some((side, _)) = self.take(old_order_id, shared) {
                    let key = OrderKey { instrument: self.id, id: order_id };
                    self.add(key, side, (price, quantity), shared);
                }
            }
            MarketEvent::Trade { price, quantity } => self.last_trade = Some((price, quantity)),
            other => return self.apply_rare(other, shared),
        }
        self.sides[0].touched | self.sides[1].touched | (self.standing != self.shown())
    }

    /// Events that concern the whole book or its state; always worth a look at the event's end.
    #[cold]
    fn apply_rare(&mut self, event: MarketEvent<'_>, shared: &mut Shared) -> bool {
        match event {
            MarketEvent::Depth { bids, asks } => {
                self.replace_side(Side::Bid, bids, shared);
                self.replace_side(Side::Ask, asks, shared);
            }
            MarketEvent::TopOfBook { side, level } => {
                self.replace_side(side, level.as_slice(), shared);
            }
            MarketEvent::Clear => {
                self.clear(shared);
                self.standing.0 &= !(Flags::SUSPECT.0 | Flags::END_OF_SESSION.0);
            }
            MarketEvent::RecoveryStart => {
                self.clear(shared);
                self.standing = Flags::RECOVERING;
            }
            MarketEvent::RecoveryEnd => self.standing.0 &= !Flags::RECOVERING.0,
            MarketEvent::Status(status) => self.status = status,
            MarketEvent::Gap => self.standing = self.standing.with(Flags::SUSPECT),
            MarketEvent::EndOfSession => {
                self.standing = self.standing.with(Flags::END_OF_SESSION);
            }
            _ => {}
        }
        true
    }

    /// The standing flags that subscribers were last told.
    const fn shown(&self) -> Flags {
        let standing = Flags::SUSPECT.with(Flags::RECOVERING).with(Flags::END_OF_SESSION);
        Flags(self.published.flags.0 & standing.0)
    }

    #[inline]
    fn add(&mut self, key: OrderKey, side: Side, wanted: (i64, u64), shared: &mut Shared) {
        let (price, quantity) = wanted;
        if quantity == 0 || price == UNDEFINED_PRICE {
            shared.stats.refused += 1;
            return;
        }
        let Ok(depth) = self.sides[side as usize].levels.add(price, quantity) else {
            shared.stats.refused += 1;
            self.standing = self.standing.with(Flags::SUSPECT);
            return;
        };
        self.touch(side, depth, shared.levels_per_side);
        self.sides[side as usize].orders += 1;
        let displaced = shared.orders.put(key.order(side, price, quantity), self.generations());
        if let Some(old) = displaced {
            shared.stats.duplicate_orders += 1;
            self.take_from_level(old.side(), (old.price, old.quantity), 1, shared);
        }
    }

    /// DBN's `M`: the order has a new price or quantity, or is new to us.
    fn modify(&mut self, key: OrderKey, side: Side, wanted: (i64, u64), shared: &mut Shared) {
        self.take(key.id, shared);
        if wanted.1 > 0 {
            self.add(key, side, wanted, shared);
        }
    }

    /// Takes `quantity` from an order and from its level. Returns the order's price.
    #[inline]
    fn reduce(&mut self, order_id: u64, quantity: u64, shared: &mut Shared) -> Option<i64> {
        let key = OrderKey { instrument: self.id, id: order_id };
        let Some(taken) = shared.orders.take(key, self.generations(), quantity) else {
            shared.stats.unknown_orders += 1;
            return None;
        };
        shared.stats.excess_reductions += u64::from(taken.quantity < quantity);
        let what = (taken.price, taken.quantity);
        self.take_from_level(taken.side, what, taken.orders, shared);
        Some(taken.price)
    }

    /// Takes an order away. Returns its side and price.
    #[inline]
    fn take(&mut self, order_id: u64, shared: &mut Shared) -> Option<(Side, i64)> {
        let key = OrderKey { instrument: self.id, id: order_id };
        let Some(taken) = shared.orders.take(key, self.generations(), u64::MAX) else {
            shared.stats.unknown_orders += 1;
            return None;
        };
        self.take_from_level(taken.side, (taken.price, taken.quantity), taken.orders, shared);
        Some((taken.side, taken.price))
    }

    #[inline]
    fn take_from_level(&mut self, side: Side, what: (i64, u64), orders: u32, shared: &Shared) {
        let book_side = &mut self.sides[side as usize];
        book_side.orders -= orders as usize;
        if let Some(depth) = book_side.levels.reduce(what.0, what.1, orders) {
            self.touch(side, depth, shared.levels_per_side);
        }
    }

    #[inline]
    fn touch(&mut self, side: Side, depth: Depth, levels_per_side: usize) {
        self.sides[side as usize].touched |= depth < levels_per_side;
    }

    fn clear(&mut self, shared: &mut Shared) {
        self.clear_side(Side::Bid, shared);
        self.clear_side(Side::Ask, shared);
    }

    fn clear_side(&mut self, side: Side, shared: &mut Shared) {
        let side = &mut self.sides[side as usize];
        side.touched |= side.levels.len() > 0;
        side.levels.clear();
        if side.orders > 0 {
            shared.orders.mark_stale(std::mem::take(&mut side.orders));
            side.generation = side.generation.wrapping_add(1);
            if side.generation == u32::MAX {
                // Before it wraps, no order of an early generation may be left to come alive again.
                shared.orders.demand_sweep();
            }
        }
    }

    /// The feed gives the whole side, best first.
    fn replace_side(&mut self, side: Side, levels: &[Level], shared: &mut Shared) {
        self.clear_side(side, shared);
        let there = |level: &&Level| level.price != UNDEFINED_PRICE && level.quantity > 0;
        let book_side = &mut self.sides[side as usize];
        let refused = book_side.levels.replace(levels.iter().filter(there).copied());
        book_side.touched = true;
        shared.stats.refused += refused;
    }

    /// Brings what was published up to date. Returns the draft of a snapshot if that changed it.
    pub(crate) fn refresh(&mut self, levels_per_side: usize) -> Option<SnapshotDraft> {
        let [bids, asks] = &mut self.sides;
        let published = &mut self.published;
        let mut changed = take_over(&mut published.bids, bids, levels_per_side);
        changed |= take_over(&mut published.asks, asks, levels_per_side);
        let flags = self.standing.with(self.derived_flags());
        changed |= flags != self.published.flags || self.status != self.published.status;
        if !changed {
            return None;
        }
        self.published.flags = flags;
        self.published.status = self.status;
        Some(SnapshotDraft {
            instrument: self.id,
            flags: flags.with(self.stamp.flags),
            status: self.status,
            feed_sequence: self.stamp.feed_sequence,
            ts_event: self.stamp.ts_event,
            ts_recv: self.stamp.ts_recv,
            last_trade: self.last_trade,
        })
    }

    /// Takes over a snapshot that is published as it is: the book is what it shows.
    pub(crate) fn adopt(
        &mut self,
        draft: &SnapshotDraft,
        (bids, asks): (&[Level], &[Level]),
        shared: &mut Shared,
    ) {
        self.replace_side(Side::Bid, bids, shared);
        self.replace_side(Side::Ask, asks, shared);
        self.sides.iter_mut().for_each(|side| side.touched = false);
        self.published.bids.clear();
        self.published.bids.extend_from_slice(bids);
        self.published.asks.clear();
        self.published.asks.extend_from_slice(asks);
        let standing = Flags::SUSPECT.with(Flags::RECOVERING).with(Flags::END_OF_SESSION);
        self.standing = Flags(draft.flags.0 & standing.0);
        self.status = draft.status;
        self.published.status = draft.status;
        self.published.flags = self.standing.with(self.derived_flags());
        self.last_trade = draft.last_trade;
        self.stamp = FeedStamp {
            feed_sequence: draft.feed_sequence,
            ts_event: draft.ts_event,
            ts_recv: draft.ts_recv,
            flags: Flags::NONE,
        };
    }

    /// Flags that follow from the published levels and the status.
    fn derived_flags(&self) -> Flags {
        let halted = matches!(self.status, TradingStatus::Halted | TradingStatus::Paused);
        let flags = Flags::NONE.with_if(Flags::HALTED, halted);
        let (Some(bid), Some(ask)) = (self.published.bids.first(), self.published.asks.first())
        else {
            return flags;
        };
        flags
            .with_if(Flags::CROSSED, bid.price > ask.price)
            .with_if(Flags::LOCKED, bid.price == ask.price)
    }

    /// Published levels, best first: bids, asks.
    pub(crate) fn published_levels(&self) -> (&[Level], &[Level]) {
        (&self.published.bids, &self.published.asks)
    }
}

/// Copies the visible levels of a touched side, if they differ from those published.
fn take_over(published: &mut Vec<Level>, side: &mut BookSide, levels_per_side: usize) -> bool {
    if !std::mem::take(&mut side.touched) {
        return false;
    }
    let visible = side.levels.best(levels_per_side);
    if visible.len() == published.len() && visible.eq(published.iter()) {
        return false;
    }
    published.clear();
    published.extend(side.levels.best(levels_per_side).copied());
    true
}
