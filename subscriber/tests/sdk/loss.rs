//! Publishers that go, come back, fall silent or say goodbye.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tapecast_subscriber::{
    EndReason, Event, PollError, Reconnect, StaleCause, State, WaitStrategy, Wakeup,
};
use tapecast_wire::attach::Farewell;

use crate::stage::{Book, CENT, Setup, Stage};
use crate::{AWHILE, assert_balanced, builder, place, receive, until_event};

const PRICE: i64 = 100 * CENT;
/// Names the socket when this program is started as a publisher.
const SOCKET: &str = "TAPECAST_TEST_PUBLISHER_SOCKET";
/// Names its epoch.
const EPOCH: &str = "TAPECAST_TEST_PUBLISHER_EPOCH";

fn is_reattached(event: &Event) -> bool {
    matches!(event, Event::Reattached { .. })
}

#[test]
fn books_are_stale_after_a_crash_and_live_with_the_next_publisher_and_the_account_goes_on() {
    let (_folder, socket) = place();
    let first = Stage::open(&socket, Setup { epoch: 1, ..Setup::default() }, &["AAPL", "MSFT"]);
    let mut subscriber = builder(&socket).connect().unwrap();
    first.publish_all(vec![Book::of(0, PRICE), Book::of(1, PRICE), Book::of(0, PRICE + CENT)]);
    receive(&mut subscriber, 3);
    // Published, not polled when the publisher goes: it is delivered all the same.
    first.publish(1, PRICE + CENT);
    drop(first);
    let (events, delivered) =
        until_event(&mut subscriber, |event| *event == Event::Stale(StaleCause::Crashed));
    assert_eq!(events[0], Event::Stale(StaleCause::Crashed));
    let stale = State::Stale { since: stale_since(subscriber.state()), cause: StaleCause::Crashed };
    assert_eq!(subscriber.state(), &stale);
    let msft = subscriber.find("MSFT").unwrap().instrument_id;
    assert!(subscriber.is_stale(msft));
    let left = if delivered == 0 { receive(&mut subscriber, 1).len() } else { delivered };
    assert_eq!(left, 1);

    // Ids are dealt in another order, and there is one more.
    let second = Setup { epoch: 2, ..Setup::default() };
    let books = vec![Book::of(2, PRICE), Book::of(2, 2 * PRICE)];
    let second = Stage::open_after(&socket, second, &["NVDA", "MSFT", "AAPL"], books);
    let (events, early) = until_event(&mut subscriber, is_reattached);
    let Some(Event::Reattached { epoch, .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!(epoch.get(), 2);
    assert_eq!(subscriber.state(), &State::Live);
    if early == 0 {
        let image = receive(&mut subscriber, 1);
        assert_eq!((image[0].symbol.as_str(), image[0].bid), ("AAPL", 2 * PRICE));
        assert!(image[0].initial && image[0].epoch == 2);
    }
    second.publish(0, PRICE);
    let live = receive(&mut subscriber, 1);
    assert_eq!(live[0].symbol, "NVDA");

    let statistics = subscriber.statistics();
    assert_eq!(statistics.reconnects, 1);
    assert_eq!((statistics.published, statistics.delivered), (4 + 2, 4 + 2));
    assert_balanced(&mut subscriber);
    let accounts = subscriber.accounts();
    let delivered: Vec<_> = accounts.iter().map(|a| (a.symbol.as_str(), a.delivered)).collect();
    assert_eq!(delivered, [("AAPL", 3), ("MSFT", 2), ("NVDA", 1)]);
}

fn stale_since(state: &State) -> std::time::Instant {
    match state {
        State::Stale { since, .. } => *since,
        other => panic!("{other}"),
    }
}

#[test]
fn a_symbol_that_the_restarted_publisher_does_not_know_yet_is_received_when_it_does() {
    let (_folder, socket) = place();
    let first = Stage::open(&socket, Setup { epoch: 1, ..Setup::default() }, &["AAPL"]);
    let mut subscriber = builder(&socket).symbols(["AAPL"]).connect().unwrap();
    drop(first);
    until_event(&mut subscriber, |event| *event == Event::Stale(StaleCause::Crashed));
    let second = Stage::open(&socket, Setup { epoch: 2, ..Setup::default() }, &["MSFT"]);
    until_event(&mut subscriber, is_reattached);
    let id = second.list("AAPL");
    second.publish_all(vec![Book::of(0, PRICE), Book::of(id, PRICE)]);
    assert_eq!(receive(&mut subscriber, 1)[0].symbol, "AAPL");
    assert_balanced(&mut subscriber);
}

#[test]
fn a_farewell_is_not_a_crash_and_its_sentence_is_told() {
    let cases = [
        (Farewell::Closing, EndReason::Closing("SIGTERM".into())),
        (Farewell::EndOfSource, EndReason::EndOfSource),
    ];
    for (farewell, reason) in cases {
        let (_folder, socket) = place();
        let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
        let mut subscriber = builder(&socket).reconnect(Reconnect::Never).connect().unwrap();
        stage.publish_all(vec![Book::of(0, PRICE), Book::of(0, PRICE + CENT)]);
        stage.close(farewell, "SIGTERM");
        let (events, delivered) =
            until_event(&mut subscriber, |event| matches!(event, Event::Ended(_)));
        assert_eq!(delivered, 2, "what was published before the farewell is delivered");
        assert_eq!(events.last(), Some(&Event::Ended(reason.clone())));
        assert!(!events.contains(&Event::Stale(StaleCause::Crashed)), "{events:?}");
        assert_eq!(subscriber.poll(|_| {}), Err(PollError::Ended(reason.clone())));
        assert_eq!(subscriber.wait(AWHILE).unwrap(), Wakeup::Ended);
        assert_eq!(subscriber.source_ended(), farewell == Farewell::EndOfSource);
        assert_balanced(&mut subscriber);
    }
}

#[test]
fn a_subscriber_that_reconnects_knows_that_the_source_has_ended() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup { epoch: 1, ..Setup::default() }, &["AAPL"]);
    let mut subscriber = builder(&socket).connect().unwrap();
    stage.publish(0, PRICE);
    receive(&mut subscriber, 1);
    assert!(!subscriber.source_ended());
    stage.close(Farewell::EndOfSource, "");
    until_event(&mut subscriber, |event| *event == Event::Stale(StaleCause::EndOfSource));
    assert!(subscriber.source_ended() && subscriber.is_drained());
    let _next = Stage::open(&socket, Setup { epoch: 2, ..Setup::default() }, &["AAPL"]);
    until_event(&mut subscriber, is_reattached);
    assert!(!subscriber.source_ended());
}

#[test]
fn an_evicted_subscriber_attaches_again_to_the_same_publisher() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup { epoch: 7, ..Setup::default() }, &["AAPL"]);
    let mut subscriber = builder(&socket).connect().unwrap();
    stage.publish(0, PRICE);
    receive(&mut subscriber, 1);
    stage.evict("too slow");
    let (events, delivered) = until_event(&mut subscriber, is_reattached);
    assert!(
        events.contains(&Event::Farewell(StaleCause::Evicted, "too slow".into())),
        "{events:?}"
    );
    if delivered == 0 {
        assert!(receive(&mut subscriber, 1)[0].initial);
    }
    // The same snapshot of the same epoch, delivered in two sessions, is two on both sides.
    let statistics = subscriber.statistics();
    assert_eq!((statistics.published, statistics.delivered), (2, 2));
    assert_balanced(&mut subscriber);
}

#[test]
fn a_publisher_without_a_heartbeat_makes_books_stale_until_it_is_heard_again() {
    for wait in [WaitStrategy::Block, WaitStrategy::Fd] {
        let (_folder, socket) = place();
        let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
        let mut subscriber = builder(&socket)
            .wait(wait)
            .heartbeat_timeout(Duration::from_millis(200))
            .connect()
            .unwrap();
        let thaw = stage.freeze();
        let (events, _) = until_event(&mut subscriber, |event| matches!(event, Event::Stale(_)));
        assert_eq!(events.last(), Some(&Event::Stale(StaleCause::Silent)));
        drop(thaw);
        until_event(&mut subscriber, |event| *event == Event::Heard);
        assert_eq!(subscriber.state(), &State::Live);
        assert_eq!(subscriber.statistics().reconnects, 0, "silence is no reason to leave");
    }
}

/// A publisher in a process of its own, to be killed.
struct Process(Child);

impl Process {
    fn start(socket: &Path, epoch: u64) -> Self {
        let program = env::current_exe().expect("this program");
        let test = "loss::the_publisher_process_of_other_tests";
        let child = Command::new(program)
            .args(["--exact", test, "--nocapture"])
            .env(SOCKET, socket)
            .env(EPOCH, epoch.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().expect("a process that can be killed");
        self.0.wait().expect("its end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Publishes for ever when it is told where; otherwise there is nothing for it to do.
#[test]
fn the_publisher_process_of_other_tests() {
    let (Some(socket), Ok(epoch)) = (env::var_os(SOCKET), env::var(EPOCH)) else { return };
    let setup = Setup { epoch: epoch.parse().unwrap(), ..Setup::default() };
    let stage = Stage::open(&PathBuf::from(socket), setup, &["AAPL", "MSFT"]);
    // Ends when the test that started it goes, however it goes.
    std::thread::spawn(|| {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        std::process::exit(0);
    });
    for round in 0.. {
        stage.publish_all(vec![Book::of(0, PRICE + round), Book::of(1, PRICE - round)]);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_publisher_that_is_killed_and_started_again_is_found_again_each_time() {
    for wait in [WaitStrategy::Spin, WaitStrategy::Block, WaitStrategy::Fd] {
        let (_folder, socket) = place();
        let mut process = Process::start(&socket, 1);
        let mut subscriber =
            builder(&socket).wait(wait).wait_for_publisher(AWHILE * 60).connect().unwrap();
        for epoch in 2..=4 {
            crate::receive_until(&mut subscriber, |seen| seen.len() >= 10);
            process.kill();
            until_event(&mut subscriber, |event| *event == Event::Stale(StaleCause::Crashed));
            process = Process::start(&socket, epoch);
            let (events, _) = until_event(&mut subscriber, is_reattached);
            let Some(Event::Reattached { epoch: found, .. }) = events.last() else { panic!() };
            assert_eq!(found.get(), epoch);
        }
        crate::receive_until(&mut subscriber, |seen| seen.iter().any(|s| s.epoch == 4));
        assert_eq!(subscriber.statistics().reconnects, 3);
        assert_balanced(&mut subscriber);
    }
}
