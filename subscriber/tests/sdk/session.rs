//! Attaching, receiving, conflating.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use tapecast_subscriber::{
    ConnectError, Flags, Policy, Price, Quantity, State, Subscriber, TradingStatus, WaitStrategy,
    Wakeup,
};

use crate::stage::{Book, CENT, OPEN_NS, Setup, Stage, unix_now};
use crate::{AWHILE, assert_balanced, builder, place, receive, receive_until};

const PRICE: i64 = 18_995 * CENT;

#[test]
fn a_late_joiner_sees_the_newest_image_of_every_instrument_and_then_every_change_in_order() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL", "MSFT", "IDLE"]);
    for step in 0..5 {
        stage.publish(0, PRICE + step * CENT);
    }
    stage.publish(1, 2 * PRICE);
    let mut subscriber = builder(&socket).connect().unwrap();

    let mut images = receive(&mut subscriber, 2);
    images.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    assert!(images.iter().all(|seen| seen.initial && seen.conflated == 0));
    assert_eq!((images[0].symbol.as_str(), images[0].sequence), ("AAPL", 5));
    assert_eq!((images[1].symbol.as_str(), images[1].bid), ("MSFT", 2 * PRICE));

    for step in 0..20 {
        stage.publish(0, PRICE - step * CENT);
    }
    let live = receive(&mut subscriber, 20);
    let sequences: Vec<_> = live.iter().map(|seen| seen.sequence).collect();
    assert_eq!(sequences, (6..=25).collect::<Vec<_>>());
    assert!(live.iter().all(|seen| !seen.initial && seen.conflated == 0));
    assert_eq!(subscriber.state(), &State::Live);
    let statistics = subscriber.statistics();
    assert_eq!((statistics.published, statistics.delivered), (22, 22));
    assert_eq!((statistics.initial_images, statistics.conflated), (2, 0));
    assert_eq!(statistics.latency.count, 20, "initial images have no latency");
    assert_balanced(&mut subscriber);
    let silent = subscriber.find("IDLE").unwrap().instrument_id;
    let known = subscriber.find("AAPL").unwrap().instrument_id;
    assert!(subscriber.is_stale(silent) && !subscriber.is_stale(known));
}

#[test]
fn a_snapshot_says_everything_the_publisher_said() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let halted = Book { flags: Flags::HALTED, status: TradingStatus::Halted, ..Book::of(0, PRICE) };
    stage.publish_all(vec![halted]);
    let mut subscriber = builder(&socket).connect().unwrap();
    let mut kept = None;
    while kept.is_none() {
        subscriber.poll(|snapshot| kept = Some(snapshot.to_owned())).unwrap();
    }
    let kept = kept.unwrap();
    let view = kept.view();
    assert_eq!(view.instrument().venue, "XTST");
    assert_eq!(view.best_bid().unwrap().price, Price::from_nanos(PRICE));
    assert_eq!(view.bids().len(), 2);
    assert_eq!(view.bids().get(1).unwrap().quantity, Quantity::new(1_200, 0));
    assert_eq!(view.spread(), Some(Price::from_nanos(CENT)));
    assert_eq!(view.last_trade().unwrap().price.nanos(), PRICE);
    assert_eq!(view.trading_status(), TradingStatus::Halted);
    assert!(view.flags().contains(Flags::HALTED.with(Flags::INITIAL_IMAGE)));
    assert_eq!(view.ts_event().get(), OPEN_NS + 1_000);
    assert_eq!((view.feed_sequence(), view.channel_sequence().get()), (1, 1));
}

#[test]
fn only_the_symbols_asked_for_are_received() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL", "MSFT", "NVDA"]);
    let mut subscriber = builder(&socket).symbols(["MSFT"]).connect().unwrap();
    for id in [0, 1, 2, 1] {
        stage.publish(id, PRICE);
    }
    let seen = receive(&mut subscriber, 2);
    assert!(seen.iter().all(|seen| seen.symbol == "MSFT"));
    assert_eq!(subscriber.statistics().published, 2);
}

#[test]
fn a_symbol_that_does_not_exist_is_refused_by_name() {
    let (_folder, socket) = place();
    let _stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let error = builder(&socket).symbols(["APPL"]).connect().unwrap_err();
    assert!(error.to_string().contains("APPL"), "{error}");
}

#[test]
fn a_symbol_that_is_awaited_is_received_as_soon_as_it_exists() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let mut subscriber =
        builder(&socket).symbols(["IPO"]).allow_unknown_symbols().connect().unwrap();
    stage.publish(0, PRICE);
    let id = stage.list("IPO");
    stage.publish(id, PRICE);
    let seen = receive(&mut subscriber, 1);
    assert_eq!((seen[0].symbol.as_str(), seen[0].initial), ("IPO", true));
    assert_balanced(&mut subscriber);
}

#[test]
fn instruments_that_appear_while_polling_have_their_names_and_all_their_snapshots() {
    const LISTED: usize = 300;
    let (_folder, socket) = place();
    let setup = Setup { ring_bytes: 1 << 20, ..Setup::default() };
    let stage = Stage::open(&socket, setup, &[]);
    let mut subscriber = builder(&socket).wait(WaitStrategy::Yield).connect().unwrap();
    let publishing = thread::spawn(move || {
        for index in 0..LISTED {
            let id = stage.list(&format!("NEW{index}"));
            stage.publish_all(vec![Book::of(id, PRICE), Book::of(id, PRICE + CENT)]);
        }
        stage
    });
    let seen = receive(&mut subscriber, 2 * LISTED);
    publishing.join().unwrap();
    for (index, pair) in seen.chunks(2).enumerate() {
        let name = format!("NEW{index}");
        assert!(pair.iter().all(|seen| seen.symbol == name), "{pair:?}");
        assert_eq!([pair[0].sequence, pair[1].sequence], [1, 2]);
    }
    assert_balanced(&mut subscriber);
}

#[test]
fn a_slow_subscriber_sees_the_newest_state_and_the_count_it_stands_for() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL", "MSFT"]);
    stage.publish_all(vec![Book::of(0, PRICE), Book::of(1, PRICE)]);
    let mut subscriber = builder(&socket).connect().unwrap();
    receive(&mut subscriber, 2);
    // Many times what the ring holds.
    for round in 1..=2_000 {
        stage.publish_all(vec![Book::of(0, PRICE + round), Book::of(1, PRICE - round)]);
    }
    let newest = |seen: &[crate::Seen], symbol: &str| {
        seen.iter().any(|s| s.symbol == symbol && s.sequence == 2_001)
    };
    let seen = receive_until(&mut subscriber, |seen| newest(seen, "AAPL") && newest(seen, "MSFT"));
    let statistics = subscriber.statistics();
    assert!(statistics.laps > 0, "{statistics:?}");
    let marked: u64 = seen.iter().map(|seen| u64::from(seen.conflated)).sum();
    assert!(marked > 0);
    assert_eq!(marked, statistics.conflated);
    assert_eq!(statistics.published, 2 * 2_001);
    assert_balanced(&mut subscriber);
}

#[test]
fn a_lossless_subscriber_gets_every_snapshot_however_small_the_ring() {
    const ROUNDS: i64 = 3_000;
    let (_folder, socket) = place();
    let setup = Setup { lossless: true, ..Setup::default() };
    let stage = Stage::open(&socket, setup, &["AAPL"]);
    stage.publish(0, PRICE);
    let mut subscriber = builder(&socket).policy(Policy::Lossless).connect().unwrap();
    receive(&mut subscriber, 1);
    let publishing = thread::spawn(move || {
        (1..=ROUNDS).for_each(|round| stage.publish(0, PRICE + round));
        stage
    });
    let seen = receive(&mut subscriber, ROUNDS as usize);
    publishing.join().unwrap();
    let expected: Vec<_> = (1..=ROUNDS).map(|round| PRICE + round).collect();
    assert_eq!(seen.iter().map(|seen| seen.bid).collect::<Vec<_>>(), expected);
    assert_eq!(subscriber.statistics().conflated, 0);
    assert_balanced(&mut subscriber);
}

#[test]
fn a_book_that_the_feed_made_suspect_is_counted_as_a_gap_once() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let mut subscriber = builder(&socket).connect().unwrap();
    let suspect = Book { flags: Flags::SUSPECT, ..Book::of(0, PRICE) };
    let good = Book::of(0, PRICE);
    stage.publish_all(vec![good.clone(), suspect.clone(), suspect.clone(), good, suspect]);
    receive(&mut subscriber, 5);
    let statistics = subscriber.statistics();
    assert_eq!((statistics.suspect, statistics.feed_gaps), (3, 2));
}

#[test]
fn every_way_of_waiting_wakes_up_and_times_out() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    for wait in [WaitStrategy::Spin, WaitStrategy::Yield, WaitStrategy::Block, WaitStrategy::Fd] {
        let mut subscriber = builder(&socket).wait(wait).connect().unwrap();
        while subscriber.poll(|_| {}).unwrap() > 0 || !subscriber.is_drained() {}
        assert_eq!(
            subscriber.wait(Duration::from_millis(1)).unwrap(),
            Wakeup::TimedOut,
            "{wait:?}"
        );
        stage.publish(0, PRICE);
        assert_eq!(subscriber.wait(AWHILE).unwrap(), Wakeup::Ready, "{wait:?}");
        receive(&mut subscriber, 1);
    }
}

#[test]
fn a_poll_delivers_at_most_its_limit() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let mut subscriber = builder(&socket).poll_limit(3).connect().unwrap();
    stage.publish_all(vec![Book::of(0, PRICE); 7]);
    let mut counts = Vec::new();
    while counts.iter().sum::<usize>() < 7 {
        counts.push(subscriber.poll(|_| {}).unwrap());
    }
    assert!(counts.iter().all(|count| *count <= 3), "{counts:?}");
}

#[test]
fn without_a_publisher_the_error_names_the_path_and_asks_the_right_question() {
    let (_folder, socket) = place();
    let error = builder(&socket).connect().unwrap_err();
    let text = error.to_string();
    assert!(text.contains(socket.to_str().unwrap()), "{text}");
    assert!(text.contains("is the publisher running"), "{text}");
}

#[test]
fn a_patient_subscriber_attaches_when_the_publisher_comes() {
    let (_folder, socket) = place();
    let patient = builder(&socket).wait_for_publisher(Duration::from_secs(600));
    let connecting = thread::spawn(move || patient.connect());
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let mut subscriber: Subscriber = connecting.join().unwrap().unwrap();
    stage.publish(0, PRICE);
    receive(&mut subscriber, 1);

    let (_folder, nowhere) = place();
    let impatient = builder(&nowhere).wait_for_publisher(Duration::from_millis(1));
    assert!(matches!(impatient.connect(), Err(ConnectError::NoPublisher { .. })));
}

#[test]
fn a_publisher_of_another_wire_version_is_named_with_both_versions() {
    let (_folder, socket) = place();
    let listener = UnixListener::bind(&socket).unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 8];
        stream.read_exact(&mut head).unwrap();
        // Nothing in it, message 2, version 99.
        stream.write_all(&[0, 0, 0, 0, 2, 0, 99, 0]).unwrap();
        // Held open until the subscriber has read the answer and gone.
        stream.read_to_end(&mut Vec::new()).ok();
    });
    let text = builder(&socket).connect().unwrap_err().to_string();
    let ours = tapecast_subscriber::WIRE_VERSION.to_string();
    assert!(text.contains("99") && text.contains(&ours), "{text}");
    assert!(text.contains("same release"), "{text}");
    answering.join().unwrap();
}

#[test]
fn the_lag_is_that_of_the_oldest_snapshot_that_is_not_polled() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let mut subscriber = builder(&socket).connect().unwrap();
    stage.publish(0, PRICE);
    receive(&mut subscriber, 1);
    let none = subscriber.statistics();
    assert_eq!((none.lag_bytes, none.lag_ns, none.lag_snapshots), (0, 0, Some(0)));

    for step in 1..=3 {
        stage.publish(0, PRICE + step * CENT);
    }
    let (before, told, after) = (unix_now(), subscriber.statistics(), unix_now());
    assert!(told.lag_bytes > 0);
    assert_eq!(told.lag_snapshots, Some(3));
    let mut published = Vec::new();
    while published.len() < 3 {
        subscriber.poll(|snapshot| published.push(snapshot.ts_publish())).unwrap();
    }
    let ages = before.since(published[0]).get()..=after.since(published[0]).get();
    assert!(ages.contains(&told.lag_ns), "{} is not in {ages:?}", told.lag_ns);
    assert_eq!(subscriber.statistics().lag_ns, 0);
    assert!(told.clock.one_host && told.clock.one_way_reliable);
}
