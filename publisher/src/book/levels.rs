//! Price levels of one side of one book, best level last.

use std::collections::BTreeMap;

use tapecast_wire::Level;
use tapecast_wire::limits::MAX_LEVELS_PER_SIDE;

use crate::source::Side;

/// Levels kept in the array; the worse half moves to the tree when there are more.
const NEAR_MAX: usize = 256;
/// The array is refilled from the tree when it gets shorter than this.
const NEAR_MIN: usize = 96;

const _: () = assert!(MAX_LEVELS_PER_SIDE <= NEAR_MIN && NEAR_MIN < NEAR_MAX);

/// A level's totals would exceed 64 bits (quantity) or 32 bits (orders).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelOverflow;

/// How far a changed level is from the best one: 0 is the best.
pub(crate) type Depth = usize;

/// Depth of a level that is in the tree, so never visible.
const FAR: Depth = usize::MAX;

#[derive(Clone, Copy, Debug)]
struct Totals {
    quantity: u64,
    order_count: u32,
}

/// The levels of one side.
///
/// The best ones are in a sorted array with the best last, so that a change near the top moves few
/// bytes. What is worse than [`NEAR_MAX`] levels is in a tree, so that no sequence of prices makes
/// an update cost more than the logarithm of the number of levels.
///
/// # Invariants
/// - ranks in `near` rise strictly, and are all greater than those in `far`;
/// - `near` holds every visible level: it is shorter than [`NEAR_MIN`] only when `far` is empty.
#[derive(Debug)]
pub(crate) struct Levels {
    near: Vec<Level>,
    far: BTreeMap<i64, Totals>,
    /// `price ^ flip` ranks prices: the better, the greater. 0 for bids, -1 for asks.
    flip: i64,
}

impl Levels {
    pub(crate) const fn new(side: Side) -> Self {
        let flip = match side {
            Side::Bid => 0,
            Side::Ask => -1,
        };
        Self { near: Vec::new(), far: BTreeMap::new(), flip }
    }

    pub(crate) fn len(&self) -> usize {
        self.near.len() + self.far.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        const NODE_BYTES: usize = size_of::<(i64, Totals)>() * 2;
        self.near.capacity() * size_of::<Level>() + self.far.len() * NODE_BYTES
    }

    /// The `count` best levels, best first.
    pub(crate) fn best(&self, count: usize) -> impl ExactSizeIterator<Item = &Level> {
        self.near.iter().rev().take(count)
    }

    pub(crate) fn clear(&mut self) {
        self.near.clear();
        self.far.clear();
    }

    /// Replaces everything by these levels, best first. Levels that are not worse than the one
    /// before them have no place in a book; their number is returned.
    pub(crate) fn replace(&mut self, levels: impl Iterator<Item = Level>) -> u64 {
        self.clear();
        let mut refused = 0;
        for level in levels {
            let rank = level.price ^ self.flip;
            if self.near.last().is_some_and(|last| rank >= last.price ^ self.flip) {
                refused += 1;
            } else {
                self.near.push(Level::new(level.price, level.quantity, level.order_count));
            }
        }
        self.near.reverse();
        if self.near.len() > NEAR_MAX {
            self.demote(self.near.len() - NEAR_MAX / 2);
        }
        refused
    }

    /// Adds one order.
    #[inline]
    pub(crate) fn add(&mut self, price: i64, quantity: u64) -> Result<Depth, LevelOverflow> {
        let rank = price ^ self.flip;
        if self.is_far(rank) {
            return self.add_far(rank, quantity);
        }
        match self.locate(rank) {
            Ok(index) => {
                let level = &mut self.near[index];
                let total = level.quantity.checked_add(quantity).ok_or(LevelOverflow)?;
                let orders = level.order_count.checked_add(1).ok_or(LevelOverflow)?;
                (level.quantity, level.order_count) = (total, orders);
                Ok(self.near.len() - 1 - index)
            }
            Err(index) => {
                let depth = self.near.len() - index;
                self.near.insert(index, Level::new(price, quantity, 1));
                if self.near.len() > NEAR_MAX {
                    self.demote(NEAR_MAX / 2);
                }
                Ok(depth)
            }
        }
    }

    /// Takes `quantity` and `orders` from a level, which goes when nothing is left. `None` when
    /// there is no such level.
    #[inline]
    pub(crate) fn reduce(&mut self, price: i64, quantity: u64, orders: u32) -> Option<Depth> {
        let rank = price ^ self.flip;
        if self.is_far(rank) {
            return self.reduce_far(rank, quantity, orders);
        }
        let index = self.locate(rank).ok()?;
        let depth = self.near.len() - 1 - index;
        let level = &mut self.near[index];
        level.quantity = level.quantity.saturating_sub(quantity);
        level.order_count = level.order_count.saturating_sub(orders);
        if level.quantity == 0 {
            self.near.remove(index);
            if self.near.len() < NEAR_MIN && !self.far.is_empty() {
                self.promote();
            }
        }
        Some(depth)
    }

    #[inline]
    fn is_far(&self, rank: i64) -> bool {
        !self.far.is_empty()
            && self.near.first().is_some_and(|worst| rank < worst.price ^ self.flip)
    }

    /// Where the rank is, or where it belongs. Looks ever further from the best, then in between:
    /// the nearer the top, the sooner found.
    #[inline]
    fn locate(&self, rank: i64) -> Result<usize, usize> {
        let count = self.near.len();
        let mut step = 1;
        let mut high = count;
        while step <= count {
            let index = count - step;
            let there = self.near[index].price ^ self.flip;
            if there == rank {
                return Ok(index);
            }
            if there < rank {
                return self.locate_between(index + 1, high, rank);
            }
            high = index;
            step *= 2;
        }
        self.locate_between(0, high, rank)
    }

    #[inline]
    fn locate_between(&self, low: usize, high: usize, rank: i64) -> Result<usize, usize> {
        let found =
            self.near[low..high].binary_search_by(|there| (there.price ^ self.flip).cmp(&rank));
        found.map(|index| low + index).map_err(|index| low + index)
    }

    fn add_far(&mut self, rank: i64, quantity: u64) -> Result<Depth, LevelOverflow> {
        let totals = self.far.entry(rank).or_insert(Totals { quantity: 0, order_count: 0 });
        let total = totals.quantity.checked_add(quantity).ok_or(LevelOverflow)?;
        let orders = totals.order_count.checked_add(1).ok_or(LevelOverflow)?;
        *totals = Totals { quantity: total, order_count: orders };
        Ok(FAR)
    }

    fn reduce_far(&mut self, rank: i64, quantity: u64, orders: u32) -> Option<Depth> {
        let totals = self.far.get_mut(&rank)?;
        totals.quantity = totals.quantity.saturating_sub(quantity);
        totals.order_count = totals.order_count.saturating_sub(orders);
        if totals.quantity == 0 {
            self.far.remove(&rank);
        }
        Some(FAR)
    }

    /// Moves the `count` worst levels of the array into the tree.
    #[cold]
    fn demote(&mut self, count: usize) {
        for level in self.near.drain(..count) {
            let totals = Totals { quantity: level.quantity, order_count: level.order_count };
            self.far.insert(level.price ^ self.flip, totals);
        }
    }

    /// Moves the best levels of the tree into the array.
    #[cold]
    fn promote(&mut self) {
        let mut moved = Vec::with_capacity(NEAR_MIN);
        while moved.len() < NEAR_MIN {
            let Some((rank, totals)) = self.far.pop_last() else { break };
            moved.push(Level::new(rank ^ self.flip, totals.quantity, totals.order_count));
        }
        self.near.splice(..0, moved.into_iter().rev());
    }

    #[cfg(test)]
    fn assert_invariants(&self) {
        let ranks: Vec<i64> = self.near.iter().map(|level| level.price ^ self.flip).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "ranks rise strictly");
        assert!(self.near.iter().all(|level| level.quantity > 0), "no empty level");
        assert!(self.near.len() <= NEAR_MAX);
        if let Some((best_far, _)) = self.far.last_key_value() {
            assert!(ranks.first().is_some_and(|worst| best_far < worst), "far is worse than near");
            assert!(self.near.len() >= NEAR_MIN, "visible levels are all near");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn side_of(bid: bool) -> Side {
        if bid { Side::Bid } else { Side::Ask }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Any sequence of additions and reductions leaves what a plain sorted map would hold.
        #[test]
        fn levels_equal_a_sorted_map(
            bid in any::<bool>(),
            operations in
                prop::collection::vec((0_i64..1500, 1_u64..5, prop::bool::weighted(0.7)), 1..4000),
        ) {
            let mut levels = Levels::new(side_of(bid));
            let mut model: BTreeMap<i64, (u64, u32)> = BTreeMap::new();
            for (turn, (price, quantity, add)) in operations.into_iter().enumerate() {
                if add {
                    levels.add(price, quantity).unwrap();
                    let entry = model.entry(price).or_default();
                    *entry = (entry.0 + quantity, entry.1 + 1);
                } else {
                    // Whole levels go, as when their last order is deleted.
                    let removed = model.remove(&price);
                    let (total, orders) = removed.unwrap_or((1, 1));
                    prop_assert_eq!(
                        levels.reduce(price, total, orders).is_some(), removed.is_some());
                }
                if turn.is_multiple_of(50) {
                    levels.assert_invariants();
                }
            }
            levels.assert_invariants();
            prop_assert_eq!(levels.len(), model.len());
            let expected: Vec<Level> = if bid {
                model.iter().rev().take(83).map(|(p, t)| Level::new(*p, t.0, t.1)).collect()
            } else {
                model.iter().take(83).map(|(p, t)| Level::new(*p, t.0, t.1)).collect()
            };
            prop_assert_eq!(levels.best(83).copied().collect::<Vec<_>>(), expected);
        }
    }

    /// Fills far beyond the array and empties again from the best: the tree hands levels back.
    #[test]
    fn thousands_of_levels_come_back_from_the_tree_in_order() {
        for side in [Side::Bid, Side::Ask] {
            let mut levels = Levels::new(side);
            for price in 0..5000 {
                levels.add(price, 1).unwrap();
            }
            levels.assert_invariants();
            assert_eq!(levels.len(), 5000);
            assert!(!levels.far.is_empty());
            for step in 0..5000 {
                let price = if side == Side::Bid { 4999 - step } else { step };
                assert_eq!(levels.best(1).next().unwrap().price, price);
                assert_eq!(levels.reduce(price, 1, 1), Some(0));
                if step % 50 == 0 {
                    levels.assert_invariants();
                }
            }
            assert_eq!(levels.len(), 0);
        }
    }

    #[test]
    fn the_extreme_prices_are_ordinary_prices() {
        for side in [Side::Bid, Side::Ask] {
            let mut levels = Levels::new(side);
            for price in [i64::MIN, 0, i64::MAX - 1, -1] {
                levels.add(price, 1).unwrap();
            }
            let best = levels.best(1).next().unwrap().price;
            assert_eq!(best, if side == Side::Bid { i64::MAX - 1 } else { i64::MIN });
        }
    }

    #[test]
    fn a_level_total_that_would_overflow_is_refused_and_the_level_stays() {
        let mut levels = Levels::new(Side::Bid);
        assert_eq!(levels.add(5, u64::MAX), Ok(0));
        assert_eq!(levels.add(5, 1), Err(LevelOverflow));
        assert_eq!(levels.best(1).next(), Some(&Level::new(5, u64::MAX, 1)));
    }

    #[test]
    fn levels_given_out_of_order_are_refused_and_counted() {
        let mut levels = Levels::new(Side::Ask);
        let given = [3, 4, 4, 2, 9].map(|price| Level::new(price, 1, 1));
        assert_eq!(levels.replace(given.into_iter()), 2);
        assert_eq!(levels.best(9).map(|level| level.price).collect::<Vec<_>>(), [3, 4, 9]);
        levels.assert_invariants();
    }
}
