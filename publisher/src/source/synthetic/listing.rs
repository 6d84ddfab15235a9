//! One simulated instrument: what its participants do, as ITCH messages.
//!
//! Prices follow a hidden value that walks at random. Orders rest around it and never cross; those
//! that the value has passed are soon taken, so the book follows.

use super::draws::Draws;
use super::orders::{Order, Orders, opposite};
use crate::source::Side;
use crate::source::itch_encode::{ItchHeader, ItchMessage, Stock, encode_itch};

/// One cent in the prices of the wire (1e-4).
const TICK: u32 = 100;
/// The value stays within these.
const VALUE_TICKS_MIN: u32 = 500;
const VALUE_TICKS_MAX: u32 = 100_000;
/// Orders one taker trades with at most.
const FILLS_MAX: u64 = 8;
/// Mean distance of a new order from the value.
const DISTANCE_TICKS_MEAN: u64 = 5;
const DISTANCE_TICKS_MAX: u64 = 200;

/// Whether orders may trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trading {
    Open,
    /// Halted, paused or quotation only: orders come and go, none trades.
    Halted,
}

/// Numbers that are unique over the whole exchange.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    reference: u64,
    match_number: u64,
}

impl Numbers {
    const fn next_reference(&mut self) -> u64 {
        self.reference += 1;
        self.reference
    }

    pub(super) const fn next_match(&mut self) -> u64 {
        self.match_number += 1;
        self.match_number
    }
}

/// Where messages go: one event of one instrument.
#[derive(Debug)]
pub(super) struct Tape<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) header: ItchHeader,
    pub(super) numbers: &'a mut Numbers,
    /// Messages that may still be written.
    pub(super) room: u64,
    /// Messages written.
    pub(super) written: u64,
}

impl Tape<'_> {
    pub(super) fn write(&mut self, message: &ItchMessage) {
        encode_itch(self.out, self.header, message);
        self.written += 1;
        self.room = self.room.saturating_sub(1);
    }
}

/// One instrument.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) stock: Stock,
    pub(super) trading: Trading,
    pub(super) orders: Orders,
    value_ticks: u32,
}

impl Listing {
    pub(super) fn new(stock: Stock, draws: &mut Draws) -> Self {
        let value_ticks = 1_000 + draws.below(40_000);
        Self { stock, trading: Trading::Open, orders: Orders::default(), value_ticks }
    }

    /// One thing that happens in an instrument with about `target` orders.
    pub(super) fn act(&mut self, target: usize, draws: &mut Draws, tape: &mut Tape<'_>) {
        let (bids, asks) = (self.orders.side(Side::Bid).len(), self.orders.side(Side::Ask).len());
        let thin = target / 8 + 1;
        if self.orders.len() >= 2 * target {
            return self.delete(draws, tape);
        }
        if bids < thin || asks < thin {
            let side = if bids < asks { Side::Bid } else { Side::Ask };
            return self.add(side, draws, tape);
        }
        if self.trading == Trading::Halted {
            return self.come_or_go(500, target, draws, tape);
        }
        self.walk(draws);
        if self.is_passed() && draws.chance(100) {
            return self.take(draws, tape);
        }
        match draws.below(1000) {
            0..12 => self.take(draws, tape),
            12..92 => self.replace(draws, tape),
            92..117 => self.cancel(draws, tape),
            117..127 => self.trade_hidden(draws, tape),
            _ => self.come_or_go(530, target, draws, tape),
        }
    }

    /// Adds or deletes: at the target `adds` in a thousand are added, at twice the target none.
    fn come_or_go(&mut self, adds: u32, target: usize, draws: &mut Draws, tape: &mut Tape<'_>) {
        let (live, target) = (self.orders.len() as u64, target as u64);
        let deletes = 1_000 - adds;
        let adds = (u64::from(adds) * (2 * target).saturating_sub(live) / target) as u32;
        if draws.below(adds + deletes) < adds {
            let side = any_side(draws);
            self.add(side, draws, tape);
        } else {
            self.delete(draws, tape);
        }
    }

    fn walk(&mut self, draws: &mut Draws) {
        match draws.below(128) {
            0 => self.value_ticks = (self.value_ticks + 1).min(VALUE_TICKS_MAX),
            1 => self.value_ticks = (self.value_ticks - 1).max(VALUE_TICKS_MIN),
            _ => {}
        }
    }

    /// Whether the value has moved past the best order of a side.
    fn is_passed(&self) -> bool {
        self.orders.best(Side::Ask).is_some_and(|ask| ask.ticks <= self.value_ticks)
            || self.orders.best(Side::Bid).is_some_and(|bid| bid.ticks > self.value_ticks)
    }

    /// A price for a new order that does not reach the other side.
    fn price_ticks(&self, side: Side, draws: &mut Draws) -> u32 {
        let distance = draws.exponential(DISTANCE_TICKS_MEAN).min(DISTANCE_TICKS_MAX) as u32;
        match side {
            Side::Bid => {
                let wanted = self.value_ticks - distance;
                self.orders.best(Side::Ask).map_or(wanted, |ask| wanted.min(ask.ticks - 1))
            }
            Side::Ask => {
                let wanted = self.value_ticks + 1 + distance;
                self.orders.best(Side::Bid).map_or(wanted, |bid| wanted.max(bid.ticks + 1))
            }
        }
    }

    /// A new order.
    pub(super) fn add(&mut self, side: Side, draws: &mut Draws, tape: &mut Tape<'_>) {
        let ticks = self.price_ticks(side, draws);
        let (reference, shares) = (tape.numbers.next_reference(), size(draws));
        self.orders.insert(side, Order { reference, ticks, shares });
        let (stock, price) = (self.stock, ticks * TICK);
        tape.write(&if draws.chance(50) {
            let mpid = *b"TAPE";
            ItchMessage::AddAttributed { reference, side, shares, stock, price, mpid }
        } else {
            ItchMessage::Add { reference, side, shares, stock, price }
        });
    }

    fn delete(&mut self, draws: &mut Draws, tape: &mut Tape<'_>) {
        if let Some((side, index)) = self.any_order(draws) {
            let order = self.orders.remove(side, index);
            tape.write(&ItchMessage::Delete { reference: order.reference });
        }
    }

    /// A partial cancel.
    fn cancel(&mut self, draws: &mut Draws, tape: &mut Tape<'_>) {
        let Some((side, index)) = self.any_order(draws) else { return };
        let order = self.orders.side(side)[index];
        if order.shares > 1 {
            let shares = 1 + draws.below(order.shares - 1);
            self.orders.reduce(side, index, shares);
            tape.write(&ItchMessage::Cancel { reference: order.reference, shares });
        } else {
            self.orders.remove(side, index);
            tape.write(&ItchMessage::Delete { reference: order.reference });
        }
    }

    fn replace(&mut self, draws: &mut Draws, tape: &mut Tape<'_>) {
        let Some((side, index)) = self.any_order(draws) else { return };
        let old = self.orders.remove(side, index);
        let ticks = self.price_ticks(side, draws);
        let (reference, shares) = (tape.numbers.next_reference(), size(draws));
        self.orders.insert(side, Order { reference, ticks, shares });
        let (old_reference, price) = (old.reference, ticks * TICK);
        tape.write(&ItchMessage::Replace { old_reference, reference, shares, price });
    }

    /// A taker trades with the best orders of one side, never with its last one.
    fn take(&mut self, draws: &mut Draws, tape: &mut Tape<'_>) {
        let passed_ask =
            self.orders.best(Side::Ask).is_some_and(|ask| ask.ticks <= self.value_ticks);
        let passed_bid =
            self.orders.best(Side::Bid).is_some_and(|bid| bid.ticks > self.value_ticks);
        let side = match (passed_bid, passed_ask) {
            (false, true) => Side::Ask,
            (true, false) => Side::Bid,
            _ => any_side(draws),
        };
        let mut wanted = size(draws).saturating_mul(1 + draws.below(3));
        for _ in 0..FILLS_MAX.min(tape.room) {
            let resting = self.orders.side(side);
            let (true, Some(best)) = (wanted > 0 && resting.len() > 1, resting.last().copied())
            else {
                return;
            };
            let index = resting.len() - 1;
            let shares = self.orders.reduce(side, index, wanted);
            wanted -= shares;
            self.report(best, shares, draws, tape);
        }
    }

    /// An execution, now and then at a better price than the order's own.
    fn report(&self, order: Order, shares: u32, draws: &mut Draws, tape: &mut Tape<'_>) {
        let (reference, match_number) = (order.reference, tape.numbers.next_match());
        tape.write(&if draws.chance(100) {
            let price = order.ticks * TICK + TICK / 2;
            let printable = draws.chance(900);
            ItchMessage::ExecutedWithPrice { reference, shares, match_number, printable, price }
        } else {
            ItchMessage::Executed { reference, shares, match_number }
        });
    }

    /// A trade with an order that nobody saw, between the best prices.
    fn trade_hidden(&self, draws: &mut Draws, tape: &mut Tape<'_>) {
        let side = any_side(draws);
        let (shares, stock, price) = (size(draws), self.stock, self.middle());
        let match_number = tape.numbers.next_match();
        tape.write(&ItchMessage::Trade { side, shares, stock, price, match_number });
    }

    /// A cross. With room for it, the best orders of both sides trade in it first.
    pub(super) fn cross(&mut self, kind: u8, draws: &mut Draws, tape: &mut Tape<'_>) {
        let price = self.middle();
        let mut shares = 0;
        if tape.room >= 3 && self.orders.side(Side::Bid).len() > 1 {
            shares = self.pair_best(price, tape);
        }
        let (stock, match_number) = (self.stock, tape.numbers.next_match());
        let shares = u64::from(shares) + 100 * u64::from(draws.below(1_000));
        tape.write(&ItchMessage::Cross { shares, stock, price, match_number, kind });
    }

    /// The best orders of both sides trade with each other, off the tape: the cross is on it.
    fn pair_best(&mut self, price: u32, tape: &mut Tape<'_>) -> u32 {
        let (Some(bid), Some(ask)) = (self.orders.best(Side::Bid), self.orders.best(Side::Ask))
        else {
            return 0;
        };
        let shares = bid.shares.min(ask.shares);
        for (side, order) in [(Side::Bid, bid), (Side::Ask, ask)] {
            let index = self.orders.side(side).len() - 1;
            self.orders.reduce(side, index, shares);
            let (reference, printable) = (order.reference, false);
            let match_number = tape.numbers.next_match();
            let message = ItchMessage::ExecutedWithPrice {
                reference,
                shares,
                match_number,
                printable,
                price,
            };
            tape.write(&message);
        }
        shares
    }

    /// Price between the best bid and the best ask.
    fn middle(&self) -> u32 {
        match (self.orders.best(Side::Bid), self.orders.best(Side::Ask)) {
            (Some(bid), Some(ask)) => (bid.ticks + ask.ticks) * (TICK / 2),
            _ => self.value_ticks * TICK,
        }
    }

    fn any_order(&self, draws: &mut Draws) -> Option<(Side, usize)> {
        let side = any_side(draws);
        let side = if self.orders.side(side).is_empty() { opposite(side) } else { side };
        let count = self.orders.side(side).len() as u32;
        (count > 0).then(|| (side, draws.below(count) as usize))
    }
}

fn any_side(draws: &mut Draws) -> Side {
    if draws.chance(500) { Side::Bid } else { Side::Ask }
}

/// Round lots mostly, some odd lots, a few blocks.
fn size(draws: &mut Draws) -> u32 {
    match draws.below(10) {
        0..7 => 100 * (1 + draws.below(5)),
        7..9 => 1 + draws.below(99),
        _ => 1_000 * (1 + draws.below(10)),
    }
}
