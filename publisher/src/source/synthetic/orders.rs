//! Live orders of one simulated instrument, in the order in which they would trade.

use crate::source::Side;

/// A resting order. 16 bytes: there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) reference: u64,
    /// In ticks of one cent.
    pub(super) ticks: u32,
    pub(super) shares: u32,
}

/// Both sides. The last order of a side is the first to trade: best price, then oldest.
#[derive(Debug, Default)]
pub(super) struct Orders {
    sides: [Vec<Order>; 2],
}

impl Orders {
    pub(super) fn len(&self) -> usize {
        self.sides[0].len() + self.sides[1].len()
    }

    pub(super) fn side(&self, side: Side) -> &[Order] {
        &self.sides[side as usize]
    }

    pub(super) fn best(&self, side: Side) -> Option<Order> {
        self.side(side).last().copied()
    }

    /// Queues an order behind those of its price.
    pub(super) fn insert(&mut self, side: Side, order: Order) {
        let orders = &mut self.sides[side as usize];
        let place = match side {
            Side::Bid => orders.partition_point(|there| there.ticks < order.ticks),
            Side::Ask => orders.partition_point(|there| there.ticks > order.ticks),
        };
        orders.insert(place, order);
    }

    pub(super) fn remove(&mut self, side: Side, index: usize) -> Order {
        self.sides[side as usize].remove(index)
    }

    /// Takes shares from an order, which goes when none are left. Returns what was taken.
    pub(super) fn reduce(&mut self, side: Side, index: usize, shares: u32) -> u32 {
        let orders = &mut self.sides[side as usize];
        let taken = shares.min(orders[index].shares);
        orders[index].shares -= taken;
        if orders[index].shares == 0 {
            orders.remove(index);
        }
        taken
    }
}

/// The other side.
pub(super) const fn opposite(side: Side) -> Side {
    match side {
        Side::Bid => Side::Ask,
        Side::Ask => Side::Bid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(reference: u64, ticks: u32) -> Order {
        Order { reference, ticks, shares: 100 }
    }

    #[test]
    fn the_best_price_trades_first_and_the_oldest_within_it() {
        let mut orders = Orders::default();
        for (reference, ticks) in [(1, 100), (2, 101), (3, 101), (4, 99)] {
            orders.insert(Side::Bid, order(reference, ticks));
            orders.insert(Side::Ask, order(reference + 10, ticks + 50));
        }
        let trades = |orders: &mut Orders, side| {
            let mut turn = Vec::new();
            while let Some(best) = orders.best(side) {
                turn.push(best.reference);
                let last = orders.side(side).len() - 1;
                orders.reduce(side, last, 100);
            }
            turn
        };
        assert_eq!(trades(&mut orders, Side::Bid), [2, 3, 1, 4]);
        assert_eq!(trades(&mut orders, Side::Ask), [14, 11, 12, 13]);
    }
}
