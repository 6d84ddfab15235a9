//! Every live order of every book, by instrument and order number.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tapecast_wire::InstrumentId;
use tapecast_wire::limits::MAX_INSTRUMENTS;

use crate::source::Side;

/// Bytes of one order in the table, without the table's free space.
pub const ORDER_BYTES: usize = size_of::<Order>() + 1;

const _: () = assert!(size_of::<Order>() == 32, "two orders share a cache line");
const _: () = assert!(MAX_INSTRUMENTS <= (u32::MAX >> 1) as usize, "owner has room for the side");

/// Stale orders that are let alone before the table is swept at all.
const STALE_MIN: usize = 1024;
/// A sweep reads the whole table: it waits until one in so many places is held by a stale order.
const STALE_SHARE: usize = 8;
/// Instruments whose equal order numbers meet in the same places of the table.
const INSTRUMENTS_TOGETHER: u32 = 1024;

/// Instrument and side of an order, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner(u32);

impl Owner {
    const fn new(instrument: InstrumentId, side: Side) -> Self {
        Self(instrument.0 << 1 | side as u32)
    }

    const fn instrument(self) -> InstrumentId {
        InstrumentId(self.0 >> 1)
    }

    const fn side(self) -> Side {
        if self.0 & 1 == 0 { Side::Bid } else { Side::Ask }
    }
}

/// One order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    id: u64,
    pub(crate) price: i64,
    pub(crate) quantity: u64,
    owner: Owner,
    /// The side's generation when the order came. An order of an earlier one is stale: its side was
    /// cleared since, and it is as if it were not in the table.
    pub(crate) generation: u32,
}

impl Order {
    pub(crate) const fn side(&self) -> Side {
        self.owner.side()
    }
}

/// Names an order: order numbers are unique only within an instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderKey {
    pub(crate) instrument: InstrumentId,
    pub(crate) id: u64,
}

impl OrderKey {
    pub(crate) const fn order(self, side: Side, price: i64, quantity: u64) -> Order {
        let owner = Owner::new(self.instrument, side);
        Order { id: self.id, price, quantity, owner, generation: 0 }
    }

    fn is(self, order: &Order) -> bool {
        order.id == self.id && order.owner.instrument() == self.instrument
    }
}

/// What was taken from an order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) side: Side,
    pub(crate) price: i64,
    pub(crate) quantity: u64,
    /// 1 when the order is gone, else 0.
    pub(crate) orders: u32,
}

/// Generations of the two sides of one book, by [`Side`].
pub(crate) type Generations = [u32; 2];

/// The table of orders.
#[derive(Debug)]
pub(crate) struct OrderTable {
    orders: HashTable<Order>,
    /// Unknown to whoever makes a feed, so that order numbers cannot be chosen to collide.
    seed: u64,
    stale: usize,
    sweep_demanded: bool,
}

impl OrderTable {
    pub(crate) fn with_capacity(orders: usize) -> Self {
        let seed = RandomState::new().hash_one(0_u8);
        Self { orders: HashTable::with_capacity(orders), seed, stale: 0, sweep_demanded: false }
    }

    /// Live orders.
    pub(crate) fn len(&self) -> usize {
        self.orders.len() - self.stale
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.orders.allocation_size()
    }

    /// Puts the order in; returns the live one whose number it takes, if there was one.
    #[inline]
    pub(crate) fn put(&mut self, order: Order, generations: Generations) -> Option<Order> {
        let key = OrderKey { instrument: order.owner.instrument(), id: order.id };
        let seed = self.seed;
        let hash = hash_of(seed, key);
        let order = Order { generation: generations[order.side() as usize], ..order };
        match self.orders.entry(hash, |there| key.is(there), |there| rehash(seed, there)) {
            Entry::Vacant(vacant) => {
                vacant.insert(order);
                None
            }
            Entry::Occupied(mut occupied) => {
                let old = std::mem::replace(occupied.get_mut(), order);
                if is_live(&old, generations) {
                    return Some(old);
                }
                self.stale -= 1;
                None
            }
        }
    }

    /// Takes up to `quantity` from an order; it goes when nothing is left. `None` if it is unknown.
    #[inline]
    pub(crate) fn take(
        &mut self,
        key: OrderKey,
        generations: Generations,
        quantity: u64,
    ) -> Option<Taken> {
        let hash = hash_of(self.seed, key);
        let mut found = self.orders.find_entry(hash, |there| key.is(there)).ok()?;
        let order = found.get_mut();
        if !is_live(order, generations) {
            found.remove();
            self.stale -= 1;
            return None;
        }
        let (side, price) = (order.side(), order.price);
        if quantity < order.quantity {
            order.quantity -= quantity;
            return Some(Taken { side, price, quantity, orders: 0 });
        }
        let quantity = order.quantity;
        found.remove();
        Some(Taken { side, price, quantity, orders: 1 })
    }

    /// Says that `count` orders have become stale because their side was cleared.
    pub(crate) const fn mark_stale(&mut self, count: usize) {
        self.stale += count;
    }

    /// Asks for a sweep at once.
    pub(crate) const fn demand_sweep(&mut self) {
        self.sweep_demanded = true;
    }

    /// Whether a sweep was demanded, or so many orders are stale that it pays for
    /// itself.
    pub(crate) fn wants_sweep(&self) -> bool {
        self.sweep_demanded
            || self.stale > STALE_MIN && self.stale > self.orders.capacity() / STALE_SHARE
    }

    /// Drops stale orders for good.
    #[cold]
    pub(crate) fn sweep(&mut self, generations: impl Fn(InstrumentId) -> Generations) {
        self.orders.retain(|order| is_live(order, generations(order.owner.instrument())));
        self.stale = 0;
        self.sweep_demanded = false;
    }
}

fn is_live(order: &Order, generations: Generations) -> bool {
    order.generation == generations[order.side() as usize]
}

fn rehash(seed: u64, order: &Order) -> u64 {
    hash_of(seed, OrderKey { instrument: order.owner.instrument(), id: order.id })
}

/// Where an order goes in the table (the low bits) and its tag there (the top seven).
///
/// Feeds number orders as they come, and most orders go soon after they came. So the numbers of one
/// block are neighbours in the table: what is hot in the market is hot in the cache. Where a block
/// lies depends on the seed, so no choice of numbers makes blocks collide. Instruments may use the
/// same numbers; their tags differ, and at most [`INSTRUMENTS_TOGETHER`] of them share a block.
#[inline]
fn hash_of(seed: u64, key: OrderKey) -> u64 {
    const BLOCK: u64 = 64;
    let group = u64::from(key.instrument.0 / INSTRUMENTS_TOGETHER);
    let group = group.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x9e37_79b9_7f4a_7c15;
    let place = fold((key.id / BLOCK) ^ seed, group);
    let tag = (key.id ^ u64::from(key.instrument.0) << 3).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let low = (place & !(BLOCK - 1)) | (key.id & (BLOCK - 1));
    (low & (u64::MAX >> 7)) | (tag & !(u64::MAX >> 7))
}

/// A folded multiplication: every bit of both reaches every bit of the result.
#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: Generations = [0, 0];

    fn key(instrument: u32, id: u64) -> OrderKey {
        OrderKey { instrument: InstrumentId(instrument), id }
    }

    #[test]
    fn the_same_order_number_in_two_instruments_is_two_orders() {
        let mut table = OrderTable::with_capacity(0);
        assert!(table.put(key(1, 7).order(Side::Bid, 10, 5), LIVE).is_none());
        assert!(table.put(key(2, 7).order(Side::Ask, 20, 6), LIVE).is_none());
        assert_eq!(table.take(key(1, 7), LIVE, 5).unwrap().price, 10);
        assert!(table.take(key(1, 7), LIVE, 1).is_none());
        assert_eq!(table.take(key(2, 7), LIVE, 1).unwrap().side, Side::Ask);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn orders_of_an_earlier_generation_are_unknown_and_swept_away() {
        let mut table = OrderTable::with_capacity(0);
        for id in 0..5000_u64 {
            table.put(key(0, id).order(Side::Bid, 1, 1), LIVE);
        }
        table.put(key(1, 0).order(Side::Bid, 1, 1), LIVE);
        table.mark_stale(5000);
        let cleared = [1, 0];
        assert_eq!(table.len(), 1);
        assert!(table.take(key(0, 3), cleared, 1).is_none());
        assert!(table.put(key(0, 4).order(Side::Bid, 1, 1), cleared).is_none());
        assert_eq!(table.len(), 2);
        assert!(table.wants_sweep());
        table.sweep(|instrument| if instrument.0 == 0 { cleared } else { LIVE });
        assert_eq!((table.len(), table.orders.len()), (2, 2));
        assert!(!table.wants_sweep());
        table.demand_sweep();
        assert!(table.wants_sweep());
    }

    #[test]
    fn neither_equal_low_bits_nor_equal_numbers_pile_up_in_one_place() {
        const SEED: u64 = 0x1357_9bdf_0246_8ace;
        let spread = |keys: &mut dyn Iterator<Item = OrderKey>| {
            let mut places: Vec<u64> = keys.map(|key| hash_of(SEED, key) & 0xffff).collect();
            places.sort_unstable();
            places.dedup();
            places.len()
        };
        assert!(spread(&mut (0..4096).map(|step| key(3, step << 32))) > 512);
        assert!(spread(&mut (0..4096).map(|step| key(3, step))) > 3500);
        assert!(spread(&mut (0..1 << 20).map(|step| key(step, 5))) > 500);
    }

    #[test]
    fn taking_more_than_there_is_takes_what_there_is() {
        let mut table = OrderTable::with_capacity(0);
        table.put(key(0, 1).order(Side::Ask, 3, 10), LIVE);
        let part = table.take(key(0, 1), LIVE, 9).unwrap();
        assert_eq!((part.quantity, part.orders), (9, 0));
        let rest = table.take(key(0, 1), LIVE, u64::MAX).unwrap();
        assert_eq!((rest.quantity, rest.orders), (1, 1));
    }
}
