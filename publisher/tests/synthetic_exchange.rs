//! The simulated exchange: repeatable, genuine, consistent and bounded.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use tapecast_publisher::book::{BookBuilder, SnapshotDraft, SnapshotSink};
use tapecast_publisher::source::itch::{ItchOptions, ItchSource, midnight_unix_ns};
use tapecast_publisher::source::synthetic::{
    Exchange, SessionLength, SyntheticConfig, SyntheticError, SyntheticSource,
};
use tapecast_publisher::source::{EventSink, FeedStamp, MarketEvent, Progress, Source};
use tapecast_wire::{Flags, Instrument, InstrumentId, Level, TradingStatus};

const OPEN_NS: u64 = (9 * 3600 + 30 * 60) * 1_000_000_000;

fn messages(config: &SyntheticConfig, count: u64) -> SyntheticConfig {
    SyntheticConfig { length: SessionLength::Messages(count), ..config.clone() }
}

/// The whole day as a file would hold it.
fn day(config: &SyntheticConfig) -> Vec<u8> {
    let mut exchange = Exchange::new(config).unwrap();
    let mut bytes = Vec::new();
    while exchange.step(&mut bytes) {}
    bytes
}

/// (type, locate, timestamp) of each message.
fn heads(mut bytes: &[u8]) -> Vec<(u8, u16, u64)> {
    let mut heads = Vec::new();
    while let Some((prefix, rest)) = bytes.split_first_chunk::<2>() {
        let (message, rest) = rest.split_at(usize::from(u16::from_be_bytes(*prefix)));
        let mut timestamp = [0; 8];
        timestamp[2..].copy_from_slice(&message[5..11]);
        let locate = u16::from_be_bytes([message[1], message[2]]);
        heads.push((message[0], locate, u64::from_be_bytes(timestamp)));
        bytes = rest;
    }
    heads
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_seed_gives_the_same_bytes_for_ever() {
    let few = day(&messages(&SyntheticConfig::default(), 50_000));
    assert_eq!(sha256(&few), "0efaf0383e556a8cd5d666684c0158a73a8cbb22504060dd78d94e1c0360806a");
    let many = SyntheticConfig { seed: 42, instruments: 10_000, ..SyntheticConfig::default() };
    assert_eq!(
        sha256(&day(&messages(&many, 100_000))),
        "1c4cd40f2a8f600a07d2b4a3abb5867290cbb1d394f587d5004d243941c29dc4"
    );
}

#[test]
fn another_seed_gives_another_day() {
    let config = messages(&SyntheticConfig::default(), 10_000);
    let other = SyntheticConfig { seed: 2, ..config };
    assert_ne!(day(&config), day(&other));
}

#[test]
fn every_message_type_that_makes_a_book_occurs() {
    let kinds: Vec<u8> = heads(&day(&messages(&SyntheticConfig::default(), 300_000)))
        .iter()
        .map(|head| head.0)
        .collect();
    for kind in *b"SRHAFECXDUPQ" {
        assert!(kinds.contains(&kind), "no message of type {}", char::from(kind));
    }
    assert_eq!(kinds.len(), 300_000);
}

#[test]
fn the_day_starts_a_second_before_the_open_and_time_never_goes_back() {
    let config = messages(&SyntheticConfig::default(), 100_000);
    let heads = heads(&day(&config));
    assert_eq!(heads[0], (b'S', 0, OPEN_NS - 1_000_000_000));
    assert!(heads.is_sorted_by_key(|head| head.2));
    let first_execution = heads.iter().find(|head| matches!(head.0, b'E' | b'C')).unwrap();
    assert!(first_execution.2 >= OPEN_NS, "nothing trades before the open");
}

#[test]
fn the_opening_burst_reaches_its_rate_and_then_decays_to_the_steady_one() {
    let config = SyntheticConfig {
        length: SessionLength::Duration(Duration::from_secs(3)),
        quiet_every: Duration::ZERO,
        ..SyntheticConfig::default()
    };
    let heads = heads(&day(&config));
    let within = |from_ms: u64, to_ms: u64| {
        let range = OPEN_NS + from_ms * 1_000_000..OPEN_NS + to_ms * 1_000_000;
        heads.iter().filter(|head| range.contains(&head.2)).count()
    };
    let burst = within(0, 100);
    assert!((85_000..140_000).contains(&burst), "{burst} messages in the first 100 ms");
    let decay = within(200, 300);
    assert!((25_000..60_000).contains(&decay), "{decay} messages between 200 and 300 ms");
    let steady = within(2_000, 3_000);
    assert!((17_000..27_000).contains(&steady), "{steady} messages in the third second");
}

#[test]
fn quiet_spells_occur() {
    let config = SyntheticConfig {
        length: SessionLength::Duration(Duration::from_secs(20)),
        burst: Duration::ZERO,
        steady_rate: 2_000,
        quiet_every: Duration::from_secs(1),
        instruments: 5,
        ..SyntheticConfig::default()
    };
    let heads = heads(&day(&config));
    let from = OPEN_NS + 1_000_000_000;
    let gaps =
        heads.windows(2).filter(|pair| pair[0].2 > from && pair[1].2 - pair[0].2 > 20_000_000);
    assert!(gaps.count() > 10, "at 2,000 messages a second, 20 ms without any are a quiet spell");
}

#[test]
fn activity_falls_with_the_rank() {
    let config = messages(&SyntheticConfig::default(), 400_000);
    let heads = heads(&day(&config));
    let of = |locate: u16| heads.iter().filter(|head| head.1 == locate && head.2 > OPEN_NS).count();
    assert!(of(1) > 15 * of(100) && of(100) > 0, "{} against {}", of(1), of(100));
}

/// Checks what the exchange promises about its books and remembers the statuses.
#[derive(Default)]
struct Books {
    snapshots: u64,
    statuses: Vec<(InstrumentId, TradingStatus)>,
}

impl SnapshotSink for Books {
    fn on_instrument(&mut self, _: &Instrument) {}

    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        self.snapshots += 1;
        assert!(!draft.flags.contains(Flags::CROSSED), "crossed: {draft:?} {bids:?} {asks:?}");
        assert!(!draft.flags.contains(Flags::LOCKED), "locked: {draft:?} {bids:?} {asks:?}");
        assert!(!draft.flags.contains(Flags::SUSPECT), "suspect: {draft:?}");
        let change = (draft.instrument, draft.status);
        if self.statuses.last() != Some(&change) {
            self.statuses.push(change);
        }
    }
}

/// Runs a day through decoder and books; every book must stay true to the exchange's own.
fn run_checked(config: &SyntheticConfig, events: u64) -> (u64, BookBuilder<Books>) {
    let mut source = SyntheticSource::new(config.clone(), &[]).unwrap();
    let mut builder = BookBuilder::new(10, Books::default());
    for event in 0..events {
        let progress = source.advance(&mut builder).unwrap();
        if event % 1_000 == 0 || progress == Progress::End {
            assert_eq!(builder.live_orders(), source.live_orders());
        }
        if progress == Progress::End {
            break;
        }
    }
    let (stats, decoded) = (builder.stats(), source.stats());
    assert_eq!(stats.unknown_orders, 0);
    assert_eq!(stats.duplicate_orders, 0);
    assert_eq!(stats.excess_reductions, 0);
    assert_eq!(stats.refused, 0);
    assert_eq!(stats.unknown_instruments, 0);
    assert_eq!(decoded.unknown, 0);
    assert_eq!(decoded.by_type.iter().map(|(_, count)| count).sum::<u64>(), decoded.messages);
    (decoded.messages, builder)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_exchange_is_decoded_without_a_doubt_and_never_crosses_its_books(
        seed in any::<u64>(),
        instruments in 1_usize..40,
        extra in 0_u64..10_000,
        orders_per_instrument in 8_u32..200,
        (burst_rate, steady_rate) in (1_u64..2_000_000, 1_u64..100_000),
        (burst_ms, halt_ms, quiet_ms) in (0_u64..500, 0_u64..200, 0_u64..200),
    ) {
        let config = SyntheticConfig {
            seed,
            instruments,
            orders_per_instrument,
            burst_rate,
            steady_rate,
            burst: Duration::from_millis(burst_ms),
            halt_every: Duration::from_millis(halt_ms),
            quiet_every: Duration::from_millis(quiet_ms),
            ..SyntheticConfig::default()
        };
        let config = messages(&config, config.least_messages() + extra);
        let (count, builder) = run_checked(&config, u64::MAX);
        prop_assert_eq!(SessionLength::Messages(count), config.length, "exactly as many");
        prop_assert!(builder.live_orders() <= 2 * instruments * orders_per_instrument as usize);
    }
}

#[test]
fn the_books_have_a_depth_like_real_ones() {
    let config = messages(&SyntheticConfig::default(), 200_000);
    let (_, builder) = run_checked(&config, u64::MAX);
    let deep = (0..100).filter(|id| {
        let depth = builder.depth(InstrumentId(*id));
        depth.bid_levels >= 8 && depth.ask_levels >= 8
    });
    assert!(deep.count() > 90, "most books show eight levels a side or more");
    assert!(builder.sink().snapshots > 50_000);
}

#[test]
fn an_endless_exchange_keeps_its_orders_within_bounds() {
    let config = SyntheticConfig {
        length: SessionLength::Endless,
        instruments: 3,
        orders_per_instrument: 20,
        ..SyntheticConfig::default()
    };
    let (count, builder) = run_checked(&config, 300_000);
    assert!(count >= 300_000);
    assert!(builder.live_orders() <= 2 * 3 * 20);
}

#[test]
fn a_halted_instrument_does_not_trade_and_comes_back_through_quotation_and_a_cross() {
    let config = SyntheticConfig {
        length: SessionLength::Duration(Duration::from_secs(20)),
        instruments: 3,
        steady_rate: 2_000,
        burst: Duration::ZERO,
        halt_every: Duration::from_millis(500),
        ..SyntheticConfig::default()
    };
    let mut source = SyntheticSource::new(config, &[]).unwrap();
    let mut watch = HaltWatch::default();
    while source.advance(&mut watch).unwrap() != Progress::End {}
    assert!(watch.halts > 10, "{} halts", watch.halts);
    assert!(watch.resumptions > 10, "{} resumptions", watch.resumptions);
    assert!(watch.orders_while_halted > 10, "orders come and go during a halt");
}

#[derive(Default)]
struct HaltWatch {
    status: [TradingStatus; 3],
    halts: u64,
    resumptions: u64,
    orders_while_halted: u64,
}

impl EventSink for HaltWatch {
    fn on_instrument(&mut self, _: &Instrument) {}
    fn on_event_end(&mut self) {}

    fn on_event(&mut self, instrument: InstrumentId, _: &FeedStamp, event: MarketEvent<'_>) {
        use TradingStatus::{Closed, Halted, Paused, QuoteOnly, Trading};
        let status = &mut self.status[instrument.index()];
        match event {
            MarketEvent::Status(next) => {
                match (*status, next) {
                    (Trading, Halted | Paused) => self.halts += 1,
                    (QuoteOnly, Trading) => self.resumptions += 1,
                    (Halted | Paused, QuoteOnly)
                    | (TradingStatus::Unknown, Trading)
                    | (_, Closed) => {}
                    other => panic!("from and to {other:?}"),
                }
                *status = next;
            }
            // The cross that resumes trading executes orders off the tape.
            MarketEvent::Execute { printable, .. } => {
                assert!(*status == Trading || !printable, "trades while {status:?}");
            }
            MarketEvent::Add { .. } | MarketEvent::Delete { .. } => {
                self.orders_while_halted += u64::from(*status != Trading);
            }
            _ => {}
        }
    }
}

/// Everything said, as text.
#[derive(Default)]
struct Said(Vec<String>);

impl EventSink for Said {
    fn on_instrument(&mut self, instrument: &Instrument) {
        self.0.push(format!("{instrument:?}"));
    }

    fn on_event(&mut self, instrument: InstrumentId, stamp: &FeedStamp, event: MarketEvent<'_>) {
        self.0.push(format!("{instrument} {stamp:?} {event:?}"));
    }

    fn on_event_end(&mut self) {
        self.0.push("end".to_owned());
    }
}

fn said<S: Source>(mut source: S) -> Vec<String> {
    let mut said = Said::default();
    while source.advance(&mut said).unwrap() != Progress::End {}
    said.0
}

#[test]
fn as_a_source_it_says_what_its_file_says() {
    let config = messages(&SyntheticConfig::default(), 20_000);
    let options = ItchOptions { date: Some(config.date), ..ItchOptions::default() };
    let file = ItchSource::from_bytes(day(&config), options).unwrap();
    let live = SyntheticSource::new(config, &[]).unwrap();
    assert_eq!(live.instruments(), file.instruments());
    assert_eq!(said(live), said(file));
}

#[test]
fn feed_times_are_those_of_the_configured_day() {
    let config = SyntheticConfig::default();
    let midnight = midnight_unix_ns(config.date).unwrap();
    let mut source = SyntheticSource::new(config, &[]).unwrap();
    let progress = source.advance(&mut Said::default()).unwrap();
    let feed_time_ns = midnight + OPEN_NS - 1_000_000_000;
    assert_eq!(progress, Progress::Event { feed_time_ns });
}

#[test]
fn only_chosen_symbols_are_delivered() {
    let config = messages(&SyntheticConfig::default(), 20_000);
    let symbols = ["TC0007".to_owned(), "TC0001".to_owned()];
    let source = SyntheticSource::new(config, &symbols).unwrap();
    let names: Vec<&str> = source.instruments().iter().map(|i| i.symbol.as_str()).collect();
    assert_eq!(names, ["TC0001", "TC0007"]);
    let said = said(source);
    assert!(said.iter().any(|line| line.starts_with("1 ")));
    assert!(
        said.iter().all(|line| line == "end" || line.starts_with("0 ") || line.starts_with("1 "))
    );
}

#[test]
fn rewound_it_says_the_same_again_after_clearing_its_books() {
    let config = messages(&SyntheticConfig::default(), 5_000);
    let mut source = SyntheticSource::new(config, &[]).unwrap();
    let mut first = Said::default();
    while source.advance(&mut first).unwrap() != Progress::End {}
    source.rewind().unwrap();
    let mut second = Said::default();
    while source.advance(&mut second).unwrap() != Progress::End {}
    let first_add = second.0.iter().position(|line| line.contains("Add {")).unwrap();
    for id in 0..100 {
        let cleared =
            |line: &String| line.starts_with(&format!("{id} ")) && line.ends_with(" Clear");
        assert!(second.0[..first_add].iter().any(cleared), "book {id} is not cleared");
    }
    let adds = |said: &Said| -> Vec<String> {
        said.0.iter().filter(|line| line.contains("Add {")).cloned().collect()
    };
    assert_eq!(adds(&first), adds(&second));
}

#[test]
fn configurations_that_cannot_be_are_refused_in_one_line_with_the_range() {
    let good = SyntheticConfig::default();
    let cases = [
        (SyntheticConfig { instruments: 0, ..good.clone() }, "choose 1 to 10000"),
        (SyntheticConfig { instruments: 10_001, ..good.clone() }, "choose 1 to 10000"),
        (SyntheticConfig { orders_per_instrument: 7, ..good.clone() }, "choose 8 to 2000"),
        (SyntheticConfig { steady_rate: 0, ..good.clone() }, "steady_rate"),
        (SyntheticConfig { burst_rate: u64::MAX, ..good.clone() }, "burst_rate"),
        (SyntheticConfig { quiet_every: Duration::MAX, ..good.clone() }, "quiet_every"),
        (messages(&good, 205), "at least 206"),
    ];
    for (config, expected) in cases {
        let text = Exchange::new(&config).unwrap_err().to_string();
        assert!(text.contains(expected), "{text:?} does not say {expected:?}");
        assert_eq!(text.lines().count(), 1);
    }
    let error = SyntheticSource::new(good, &["AAPL".to_owned()]).unwrap_err();
    assert!(matches!(error, SyntheticError::UnknownSymbol { .. }));
    assert_eq!(
        error.to_string(),
        "the synthetic exchange has no symbol `AAPL`: it lists TC0001 to TC0100"
    );
}

#[test]
fn the_shortest_day_opens_and_closes_and_has_exactly_its_messages() {
    for instruments in [1, 2, 100] {
        for extra in 0..40 {
            let config = SyntheticConfig { instruments, ..SyntheticConfig::default() };
            let total = config.least_messages() + extra;
            let heads = heads(&day(&messages(&config, total)));
            assert_eq!(heads.len() as u64, total);
            let events: Vec<u8> = heads.iter().map(|head| head.0).filter(|k| *k == b'S').collect();
            assert_eq!(events.len(), 6);
        }
    }
}
