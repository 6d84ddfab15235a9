//! What the book builder does with a feed's events, and what it hands on.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use tapecast_publisher::book::{BookBuilder, ORDER_BYTES};
use tapecast_publisher::source::{EventSink, FeedStamp, MarketEvent, Side};
use tapecast_wire::limits::MAX_INSTRUMENTS;
use tapecast_wire::{Flags, InstrumentId, Level, TradingStatus, UNDEFINED_PRICE};

use crate::support::{DOLLAR, Recorder, Seen, level};

const A: InstrumentId = InstrumentId(0);
const B: InstrumentId = InstrumentId(1);

fn builder() -> BookBuilder<Recorder> {
    BookBuilder::new(10, Recorder::default())
}

fn stamp(feed_sequence: u64) -> FeedStamp {
    FeedStamp { feed_sequence, ts_event: 1000 + feed_sequence, ts_recv: 5, flags: Flags::NONE }
}

fn add(order_id: u64, side: Side, dollars: i64, quantity: u64) -> MarketEvent<'static> {
    MarketEvent::Add { order_id, side, price: dollars * DOLLAR, quantity }
}

/// Applies events to one instrument as one venue event; returns what was handed on.
fn event(
    builder: &mut BookBuilder<Recorder>,
    instrument: InstrumentId,
    events: &[MarketEvent<'_>],
) -> Vec<Seen> {
    for (index, event) in events.iter().enumerate() {
        builder.on_event(instrument, &stamp(index as u64 + 1), *event);
    }
    builder.on_event_end();
    builder.sink_mut().take()
}

#[test]
fn an_event_that_leaves_the_visible_book_as_it_was_hands_on_nothing() {
    let mut builder = builder();
    let fleeting = [add(1, Side::Bid, 10, 5), MarketEvent::Delete { order_id: 1 }];
    assert_eq!(event(&mut builder, A, &fleeting), []);
    event(&mut builder, A, &[add(1, Side::Bid, 10, 5)]);
    let other_order_same_level = [add(2, Side::Bid, 10, 5), MarketEvent::Delete { order_id: 1 }];
    assert_eq!(event(&mut builder, A, &other_order_same_level), []);
}

#[test]
fn a_change_below_the_visible_levels_hands_on_nothing_until_it_rises_into_them() {
    let mut builder = BookBuilder::new(2, Recorder::default());
    event(&mut builder, A, &[add(1, Side::Ask, 1, 1), add(2, Side::Ask, 2, 1)]);
    assert_eq!(event(&mut builder, A, &[add(3, Side::Ask, 3, 7)]), []);
    let seen = event(&mut builder, A, &[MarketEvent::Delete { order_id: 1 }]);
    assert_eq!(seen[0].asks, [level(2, 1, 1), level(3, 7, 1)]);
}

#[test]
fn quantity_alone_and_order_count_alone_are_changes() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Bid, 10, 5), add(2, Side::Bid, 10, 5)]);
    let seen = event(&mut builder, A, &[MarketEvent::Reduce { order_id: 1, quantity: 1 }]);
    assert_eq!(seen[0].bids, [level(10, 9, 2)]);
    let same_quantity = [
        MarketEvent::Delete { order_id: 1 },
        MarketEvent::Modify { order_id: 2, side: Side::Bid, price: 10 * DOLLAR, quantity: 9 },
    ];
    assert_eq!(event(&mut builder, A, &same_quantity)[0].bids, [level(10, 9, 1)]);
}

#[test]
fn instruments_are_handed_on_in_the_order_of_their_first_change() {
    let mut builder = builder();
    builder.on_event(B, &stamp(1), add(1, Side::Bid, 10, 5));
    builder.on_event(A, &stamp(2), add(1, Side::Bid, 20, 5));
    builder.on_event(B, &stamp(3), add(2, Side::Ask, 11, 5));
    assert!(builder.sink().seen.is_empty(), "nothing before the event ends");
    builder.on_event_end();
    let seen = builder.sink_mut().take();
    let order = seen.iter().map(|seen| (seen.draft.instrument, seen.draft.feed_sequence));
    assert_eq!(order.collect::<Vec<_>>(), [(B, 3), (A, 2)]);
    assert_eq!((seen[0].draft.ts_event, seen[0].draft.ts_recv), (1003, 5));
}

#[test]
fn a_fill_report_changes_no_book_and_a_partial_cancel_takes_only_its_size() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Bid, 10, 5)]);
    let trade = MarketEvent::Trade { price: 11 * DOLLAR, quantity: 5 };
    assert_eq!(event(&mut builder, A, &[trade]), []);
    let seen = event(&mut builder, A, &[MarketEvent::Reduce { order_id: 1, quantity: 2 }]);
    assert_eq!(seen[0].bids, [level(10, 3, 1)]);
    assert_eq!(seen[0].draft.last_trade, Some((11 * DOLLAR, 5)), "said with the next change");
    let seen = event(&mut builder, A, &[MarketEvent::Reduce { order_id: 1, quantity: 3 }]);
    assert_eq!(seen[0].bids, []);
}

#[test]
fn an_execution_reduces_the_orders_own_level_whatever_the_trade_price() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Ask, 10, 9)]);
    let at = |price, printable| MarketEvent::Execute { order_id: 1, quantity: 2, price, printable };
    let seen = event(&mut builder, A, &[at(None, true)]);
    assert_eq!(seen[0].asks, [level(10, 7, 1)]);
    assert_eq!(seen[0].draft.last_trade, Some((10 * DOLLAR, 2)));
    let seen = event(&mut builder, A, &[at(Some(9 * DOLLAR), true)]);
    assert_eq!(seen[0].asks, [level(10, 5, 1)]);
    assert_eq!(seen[0].draft.last_trade, Some((9 * DOLLAR, 2)));
    let seen = event(&mut builder, A, &[at(Some(8 * DOLLAR), false)]);
    assert_eq!(seen[0].draft.last_trade, Some((9 * DOLLAR, 2)), "not for the tape");
}

#[test]
fn the_builder_never_matches_so_an_aggressive_order_rests_as_the_feed_says() {
    let mut builder = builder();
    let seen = event(&mut builder, A, &[add(1, Side::Ask, 10, 5), add(2, Side::Bid, 12, 5)]);
    assert_eq!(seen[0].asks, [level(10, 5, 1)]);
    assert_eq!(seen[0].bids, [level(12, 5, 1)]);
}

#[test]
fn crossed_and_locked_books_are_handed_on_as_they_are_with_their_flag() {
    let mut builder = builder();
    let flags = |seen: &[Seen]| seen[0].draft.flags;
    let seen = event(&mut builder, A, &[add(1, Side::Ask, 10, 5), add(2, Side::Bid, 11, 5)]);
    assert_eq!(flags(&seen), Flags::CROSSED);
    let seen =
        event(&mut builder, A, &[add(3, Side::Ask, 11, 1), MarketEvent::Delete { order_id: 1 }]);
    assert_eq!(flags(&seen), Flags::LOCKED);
    let seen = event(&mut builder, A, &[MarketEvent::Delete { order_id: 2 }]);
    assert_eq!(flags(&seen), Flags::NONE);
}

#[test]
fn a_replacement_inherits_the_side_and_takes_the_old_orders_place() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Ask, 10, 5)]);
    let replace = |old_order_id, order_id| MarketEvent::Replace {
        old_order_id,
        order_id,
        price: 12 * DOLLAR,
        quantity: 3,
    };
    let seen = event(&mut builder, A, &[replace(1, 2)]);
    assert_eq!(seen[0].asks, [level(12, 3, 1)]);
    assert_eq!(seen[0].bids, []);
    assert_eq!(event(&mut builder, A, &[replace(1, 3)]), [], "the old order is gone");
    assert_eq!(event(&mut builder, A, &[MarketEvent::Delete { order_id: 3 }]), []);
    assert_eq!(builder.stats().unknown_orders, 2);
}

#[test]
fn events_for_unknown_orders_are_counted_and_ignored() {
    let mut builder = builder();
    let unknown = [
        MarketEvent::Delete { order_id: 1 },
        MarketEvent::Reduce { order_id: 2, quantity: 1 },
        MarketEvent::Execute { order_id: 3, quantity: 1, price: None, printable: true },
        MarketEvent::Replace { old_order_id: 4, order_id: 5, price: DOLLAR, quantity: 1 },
    ];
    assert_eq!(event(&mut builder, A, &unknown), []);
    assert_eq!(builder.stats().unknown_orders, 4);
    assert_eq!(builder.live_orders(), 0);
}

#[test]
fn a_modification_moves_the_order_or_adds_it_when_it_is_unknown() {
    let mut builder = builder();
    let modify = |side, dollars: i64, quantity| MarketEvent::Modify {
        order_id: 1,
        side,
        price: dollars * DOLLAR,
        quantity,
    };
    assert_eq!(event(&mut builder, A, &[modify(Side::Bid, 9, 4)])[0].bids, [level(9, 4, 1)]);
    let seen = event(&mut builder, A, &[modify(Side::Ask, 11, 2)]);
    assert_eq!((&seen[0].bids[..], &seen[0].asks[..]), (&[][..], &[level(11, 2, 1)][..]));
    assert_eq!(event(&mut builder, A, &[modify(Side::Ask, 11, 0)])[0].asks, []);
    assert_eq!(builder.live_orders(), 0);
}

#[test]
fn a_gap_makes_the_book_suspect_until_it_is_cleared() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Bid, 10, 5)]);
    let seen = event(&mut builder, A, &[MarketEvent::Gap]);
    assert_eq!((seen[0].draft.flags, seen[0].bids.len()), (Flags::SUSPECT, 1));
    let seen =
        event(&mut builder, A, &[MarketEvent::Delete { order_id: 9 }, add(2, Side::Bid, 9, 1)]);
    assert_eq!(seen[0].draft.flags, Flags::SUSPECT);
    let seen = event(&mut builder, A, &[MarketEvent::Clear, add(3, Side::Bid, 8, 1)]);
    assert_eq!((seen[0].draft.flags, &seen[0].bids[..]), (Flags::NONE, &[level(8, 1, 1)][..]));
}

#[test]
fn a_message_that_the_feed_marks_suspect_makes_the_book_suspect() {
    let mut builder = builder();
    let suspect = FeedStamp { flags: Flags::SUSPECT, ..stamp(1) };
    builder.on_event(A, &suspect, MarketEvent::Delete { order_id: 1 });
    builder.on_event_end();
    assert_eq!(builder.sink().last().draft.flags, Flags::SUSPECT);
    let seen = event(&mut builder, A, &[add(1, Side::Bid, 1, 1)]);
    assert_eq!(seen[0].draft.flags, Flags::SUSPECT, "a wrong book does not heal by itself");
}

#[test]
fn a_bad_receive_time_is_told_but_is_no_change() {
    let mut builder = builder();
    let bad = FeedStamp { flags: Flags::BAD_TS_RECV, ..stamp(1) };
    builder.on_event(A, &bad, add(1, Side::Bid, 1, 1));
    builder.on_event_end();
    assert_eq!(builder.sink_mut().take()[0].draft.flags, Flags::BAD_TS_RECV);
    builder.on_event(A, &stamp(2), MarketEvent::Trade { price: 1, quantity: 1 });
    builder.on_event_end();
    assert_eq!(builder.sink().seen, []);
}

#[test]
fn a_snapshot_in_the_feed_clears_the_book_and_marks_it_recovering_until_it_ends() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Bid, 10, 5), MarketEvent::Gap]);
    let seen = event(&mut builder, A, &[MarketEvent::RecoveryStart, add(2, Side::Bid, 9, 1)]);
    assert_eq!(seen[0].draft.flags, Flags::RECOVERING);
    assert_eq!(seen[0].bids, [level(9, 1, 1)]);
    let seen = event(&mut builder, A, &[add(3, Side::Ask, 11, 1), MarketEvent::RecoveryEnd]);
    assert_eq!(seen[0].draft.flags, Flags::NONE);
    assert_eq!(event(&mut builder, A, &[MarketEvent::Delete { order_id: 1 }]), []);
}

#[test]
fn orders_from_before_a_clear_are_unknown_after_it() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Bid, 10, 5), add(2, Side::Ask, 11, 5)]);
    event(&mut builder, B, &[add(1, Side::Bid, 10, 5)]);
    let seen = event(&mut builder, A, &[MarketEvent::Clear]);
    assert_eq!((seen[0].bids.len(), seen[0].asks.len()), (0, 0));
    assert_eq!(builder.live_orders(), 1, "only B's");
    event(&mut builder, A, &[MarketEvent::Delete { order_id: 1 }]);
    assert_eq!(builder.stats().unknown_orders, 1);
    let seen = event(&mut builder, A, &[add(2, Side::Bid, 7, 1)]);
    assert_eq!(seen[0].bids, [level(7, 1, 1)]);
    assert_eq!((builder.stats().duplicate_orders, builder.live_orders()), (0, 2));
}

#[test]
fn clearing_again_and_again_does_not_fill_the_order_table() {
    let mut builder = builder();
    for round in 0..200 {
        for id in 0..200 {
            builder.on_event(A, &stamp(1), add(round * 1000 + id, Side::Bid, 1, 1));
        }
        builder.on_event(A, &stamp(1), MarketEvent::Clear);
        builder.on_event_end();
    }
    assert_eq!(builder.live_orders(), 0);
    assert!(builder.heap_bytes() < 1 << 20, "{} bytes", builder.heap_bytes());
}

#[test]
fn an_order_without_a_price_or_quantity_is_on_no_level() {
    let mut builder = builder();
    let orders = [
        MarketEvent::Add { order_id: 1, side: Side::Bid, price: UNDEFINED_PRICE, quantity: 5 },
        MarketEvent::Add { order_id: 2, side: Side::Ask, price: DOLLAR, quantity: 0 },
    ];
    assert_eq!(event(&mut builder, A, &orders), []);
    assert_eq!((builder.stats().refused, builder.live_orders()), (2, 0));
}

#[test]
fn a_top_of_book_without_a_price_empties_that_side_and_no_other() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Bid, 9, 1), add(2, Side::Ask, 11, 1)]);
    let top = |side, level| MarketEvent::TopOfBook { side, level };
    let seen = event(&mut builder, A, &[top(Side::Bid, Some(level(10, 4, 2)))]);
    assert_eq!((&seen[0].bids[..], seen[0].asks.len()), (&[level(10, 4, 2)][..], 1));
    let seen = event(&mut builder, A, &[top(Side::Bid, None)]);
    assert_eq!((seen[0].bids.len(), seen[0].asks.len()), (0, 1));
    let undefined = Level::new(UNDEFINED_PRICE, 0, 0);
    let seen = event(&mut builder, A, &[top(Side::Ask, Some(undefined))]);
    assert_eq!((seen[0].bids.len(), seen[0].asks.len()), (0, 0));
    event(&mut builder, A, &[MarketEvent::Delete { order_id: 2 }]);
    assert_eq!(builder.stats().unknown_orders, 1, "its side was replaced");
}

#[test]
fn a_depth_record_is_the_whole_book_without_its_empty_levels() {
    let mut builder = BookBuilder::new(2, Recorder::default());
    event(&mut builder, A, &[add(1, Side::Bid, 99, 1)]);
    let bids = [level(10, 1, 1), level(9, 2, 1), level(8, 3, 1)];
    let asks = [level(11, 4, 2), Level::EMPTY, Level::EMPTY];
    let seen = event(&mut builder, A, &[MarketEvent::Depth { bids: &bids, asks: &asks }]);
    assert_eq!(seen[0].bids, bids[..2]);
    assert_eq!(seen[0].asks, asks[..1]);
    assert_eq!(event(&mut builder, A, &[MarketEvent::Depth { bids: &bids, asks: &asks }]), []);
    assert_eq!(builder.live_orders(), 0);
}

#[test]
fn a_halt_keeps_the_book_and_is_handed_on() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Bid, 10, 5)]);
    for (status, flags) in [
        (TradingStatus::Halted, Flags::HALTED),
        (TradingStatus::Paused, Flags::HALTED),
        (TradingStatus::QuoteOnly, Flags::NONE),
        (TradingStatus::Trading, Flags::NONE),
    ] {
        let seen = event(&mut builder, A, &[MarketEvent::Status(status)]);
        assert_eq!((seen[0].draft.status, seen[0].draft.flags), (status, flags));
        assert_eq!(seen[0].bids, [level(10, 5, 1)]);
        assert_eq!(event(&mut builder, A, &[MarketEvent::Status(status)]), []);
    }
}

#[test]
fn the_end_of_the_session_is_handed_on_once_with_the_book() {
    let mut builder = builder();
    event(&mut builder, A, &[add(1, Side::Bid, 10, 5)]);
    let seen = event(&mut builder, A, &[MarketEvent::EndOfSession]);
    assert_eq!((seen[0].draft.flags, seen[0].bids.len()), (Flags::END_OF_SESSION, 1));
    assert_eq!(event(&mut builder, A, &[MarketEvent::EndOfSession]), []);
    let seen = event(&mut builder, A, &[MarketEvent::Clear]);
    assert_eq!(seen[0].draft.flags, Flags::NONE, "another session");
}

#[test]
fn an_order_number_that_comes_again_is_the_later_order() {
    let mut builder = builder();
    let seen = event(&mut builder, A, &[add(1, Side::Bid, 10, 5), add(1, Side::Ask, 12, 3)]);
    assert_eq!((seen[0].bids.len(), &seen[0].asks[..]), (0, &[level(12, 3, 1)][..]));
    assert_eq!((builder.stats().duplicate_orders, builder.live_orders()), (1, 1));
}

#[test]
fn quantities_beyond_64_bits_are_refused_and_the_book_is_suspect() {
    let mut builder = builder();
    let seen = event(&mut builder, A, &[add(1, Side::Bid, 1, u64::MAX), add(2, Side::Bid, 1, 1)]);
    assert_eq!(seen[0].bids, [level(1, u64::MAX, 1)]);
    assert_eq!((seen[0].draft.flags, builder.stats().refused), (Flags::SUSPECT, 1));
}

#[test]
fn an_instrument_number_beyond_every_directory_is_counted_and_ignored() {
    let mut builder = builder();
    assert_eq!(event(&mut builder, InstrumentId(u32::MAX), &[add(1, Side::Bid, 1, 1)]), []);
    let last = InstrumentId(MAX_INSTRUMENTS as u32);
    assert_eq!(event(&mut builder, last, &[add(1, Side::Bid, 1, 1)]), []);
    assert_eq!(builder.stats().unknown_instruments, 2);
}

/// 10,000 instruments with a hundred orders each on about 40 levels.
#[test]
fn a_million_orders_in_ten_thousand_books_stay_far_below_250_megabytes() {
    let mut builder = builder();
    for id in 0..1_000_000_u64 {
        let instrument = InstrumentId((id % 10_000) as u32);
        let turn = id / 10_000;
        let side = if turn.is_multiple_of(2) { Side::Bid } else { Side::Ask };
        let dollars =
            if side == Side::Bid { 100 - turn as i64 % 40 } else { 101 + turn as i64 % 40 };
        builder.on_event(instrument, &stamp(id), add(id, side, dollars, 100));
    }
    builder.on_event_end();
    assert_eq!(builder.live_orders(), 1_000_000);
    let bytes = builder.heap_bytes();
    println!("{bytes} bytes, {} an order, of them {ORDER_BYTES} its record", bytes / 1_000_000);
    assert!(bytes < 150_000_000, "{bytes} bytes");
}

/// What one instrument's book must show, recomputed from scratch.
#[derive(Default)]
struct Model {
    orders: HashMap<(u32, u64), (Side, i64, u64)>,
}

impl Model {
    fn side(&self, instrument: u32, side: Side) -> Vec<Level> {
        let mut levels: BTreeMap<i64, (u64, u32)> = BTreeMap::new();
        for ((owner, _), (there, price, quantity)) in &self.orders {
            if *owner == instrument && *there == side {
                let entry = levels.entry(*price).or_default();
                *entry = (entry.0 + quantity, entry.1 + 1);
            }
        }
        let all = levels.iter().map(|(price, total)| Level::new(*price, total.0, total.1));
        if side == Side::Bid { all.rev().take(3).collect() } else { all.take(3).collect() }
    }

    fn apply(&mut self, instrument: u32, event: MarketEvent<'_>) {
        match event {
            MarketEvent::Add { order_id, side, price, quantity }
            | MarketEvent::Modify { order_id, side, price, quantity } => {
                self.orders.insert((instrument, order_id), (side, price, quantity));
            }
            MarketEvent::Reduce { order_id, quantity }
            | MarketEvent::Execute { order_id, quantity, .. } => {
                let key = (instrument, order_id);
                if let Some(order) = self.orders.get_mut(&key) {
                    order.2 = order.2.saturating_sub(quantity);
                    if order.2 == 0 {
                        self.orders.remove(&key);
                    }
                }
            }
            MarketEvent::Delete { order_id } => {
                self.orders.remove(&(instrument, order_id));
            }
            MarketEvent::Replace { old_order_id, order_id, price, quantity } => {
                if let Some(old) = self.orders.remove(&(instrument, old_order_id)) {
                    self.orders.insert((instrument, order_id), (old.0, price, quantity));
                }
            }
            MarketEvent::Clear => self.orders.retain(|(owner, _), _| *owner != instrument),
            _ => {}
        }
    }
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Bid), Just(Side::Ask)]
}

/// Events over few orders and prices, so that they meet.
fn small_event() -> impl Strategy<Value = MarketEvent<'static>> {
    let (id, price, quantity) = (0_u64..12, 95_i64..105, 1_u64..20);
    prop_oneof![
        6 => (id.clone(), side(), price.clone(), quantity.clone()).prop_map(
            |(order_id, side, price, quantity)|
                MarketEvent::Add { order_id, side, price, quantity }),
        1 => (id.clone(), side(), price.clone(), quantity.clone()).prop_map(
            |(order_id, side, price, quantity)|
                MarketEvent::Modify { order_id, side, price, quantity }),
        2 => (id.clone(), quantity.clone()).prop_map(
            |(order_id, quantity)| MarketEvent::Reduce { order_id, quantity }),
        2 => (id.clone(), quantity.clone()).prop_map(|(order_id, quantity)|
            MarketEvent::Execute { order_id, quantity, price: None, printable: true }),
        2 => id.clone().prop_map(|order_id| MarketEvent::Delete { order_id }),
        2 => (id.clone(), id, price, quantity).prop_map(
            |(old_order_id, order_id, price, quantity)|
                MarketEvent::Replace { old_order_id, order_id, price, quantity }),
        1 => Just(MarketEvent::Clear),
    ]
}

/// Any event with any numbers.
fn any_event() -> impl Strategy<Value = MarketEvent<'static>> {
    const DEPTH: [Level; 3] =
        [Level::new(i64::MAX, 1, 0), Level::new(i64::MIN, u64::MAX, 1), Level::new(5, 1, 1)];
    let edge = || prop_oneof![Just(0), Just(1), Just(u64::MAX), any::<u64>(), 0_u64..4];
    let price = || prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>(), 0_i64..4];
    (0_u8..16, edge(), edge(), price(), edge(), side()).prop_map(
        |(kind, order_id, other, price, quantity, side)| match kind {
            0..4 => MarketEvent::Add { order_id, side, price, quantity },
            4 => MarketEvent::Modify { order_id, side, price, quantity },
            5 => MarketEvent::Reduce { order_id, quantity },
            6 => MarketEvent::Delete { order_id },
            7 => MarketEvent::Execute { order_id, quantity, price: Some(price), printable: true },
            8 => MarketEvent::Replace { old_order_id: other, order_id, price, quantity },
            9 => MarketEvent::Trade { price, quantity },
            10 => MarketEvent::Depth { bids: &DEPTH, asks: &DEPTH },
            11 => MarketEvent::TopOfBook {
                side,
                level: Some(Level::new(price, quantity, order_id as u32)),
            },
            12 => MarketEvent::Clear,
            13 => MarketEvent::RecoveryStart,
            14 => MarketEvent::Gap,
            _ => MarketEvent::EndOfSession,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Snapshots come exactly when the recomputed visible book differs, and equal it.
    #[test]
    fn snapshots_equal_a_book_recomputed_from_scratch(
        events in prop::collection::vec((0_u32..2, small_event(), any::<bool>()), 1..150),
    ) {
        let mut builder = BookBuilder::new(3, Recorder::default());
        let mut model = Model::default();
        let mut shown: [(Vec<Level>, Vec<Level>); 2] = Default::default();
        for (instrument, event, ends) in events {
            builder.on_event(InstrumentId(instrument), &stamp(1), event);
            model.apply(instrument, event);
            if !ends {
                continue;
            }
            builder.on_event_end();
            let mut seen = builder.sink_mut().take();
            seen.sort_by_key(|seen| seen.draft.instrument);
            let mut expected = Vec::new();
            for (id, shown) in (0_u32..).zip(&mut shown) {
                let book = (model.side(id, Side::Bid), model.side(id, Side::Ask));
                if *shown != book {
                    *shown = book;
                    expected.push((id, shown.clone()));
                }
            }
            let seen: Vec<_> = seen
                .into_iter()
                .map(|seen| (seen.draft.instrument.0, (seen.bids, seen.asks)))
                .collect();
            prop_assert_eq!(seen, expected);
            prop_assert_eq!(builder.live_orders(), model.orders.len());
        }
    }

    #[test]
    fn no_sequence_of_events_makes_the_builder_panic_or_lose_count(
        events in prop::collection::vec((0_u32..3, any_event()), 1..300),
    ) {
        let mut builder = BookBuilder::new(83, Recorder::default());
        for (instrument, event) in &events {
            builder.on_event(InstrumentId(*instrument), &stamp(1), *event);
            builder.on_event_end();
            builder.sink_mut().take();
        }
        let per_book: usize = (0..3)
            .map(|id| builder.depth(InstrumentId(id)))
            .map(|depth| depth.bid_orders + depth.ask_orders)
            .sum();
        prop_assert_eq!(per_book, builder.live_orders());
        prop_assert_eq!(builder.stats().events, events.len() as u64);
    }
}
