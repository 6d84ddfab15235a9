//! Publishers that live and whose feed is silent.

use tapecast_subscriber::{
    AbSide, AbSubscriber, Event, FeedState, Nanos, State, Subscriber, WaitStrategy, Wakeup,
};

use crate::stage::{Book, CENT, OPEN_NS, Setup, Stage};
use crate::{AWHILE, builder, place, receive, until_event};

const PRICE: i64 = 100 * CENT;
const SINCE: Nanos = Nanos(OPEN_NS);

fn silent(since: Nanos) -> FeedState {
    FeedState::Silent { since }
}

/// Waits, without a poll, until something has happened; what.
fn wait_for_events(subscriber: &mut Subscriber) -> Vec<Event> {
    loop {
        let wakeup = subscriber.wait(AWHILE).expect("a wait");
        let events: Vec<_> = subscriber.events().collect();
        if !events.is_empty() {
            assert_eq!(wakeup, Wakeup::Ready);
            return events;
        }
        subscriber.poll(|_| {}).expect("a subscription that goes on");
    }
}

#[test]
fn a_silent_feed_ends_a_wait_of_every_kind_and_so_does_one_that_is_heard_again() {
    for strategy in [WaitStrategy::Spin, WaitStrategy::Yield, WaitStrategy::Block, WaitStrategy::Fd]
    {
        let (_folder, socket) = place();
        let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
        let mut subscriber = builder(&socket).wait(strategy).connect().unwrap();
        stage.publish(0, PRICE);
        let id = subscriber.find("AAPL").unwrap().instrument_id;
        receive(&mut subscriber, 1);
        assert_eq!(subscriber.feed(), FeedState::Live);

        stage.show_feed(SINCE);
        let told = wait_for_events(&mut subscriber);
        assert_eq!(told, [Event::FeedSilent { since: SINCE }], "{strategy:?}");
        assert_eq!(subscriber.feed(), silent(SINCE));
        assert_eq!(subscriber.state(), &State::Live, "the publisher lives");
        assert!(!subscriber.is_stale(id), "there is nothing newer to be had");
        assert!(!subscriber.source_ended());

        stage.show_feed(Nanos(0));
        assert_eq!(wait_for_events(&mut subscriber), [Event::FeedHeard], "{strategy:?}");
        assert_eq!(subscriber.feed(), FeedState::Live);
    }
}

#[test]
fn one_that_only_polls_is_told_and_so_is_one_that_attaches_later() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let mut early = builder(&socket).connect().unwrap();
    stage.show_feed(SINCE);
    while early.feed() == FeedState::Live {
        early.poll(|_| {}).unwrap();
    }
    let mut late = builder(&socket).connect().unwrap();
    for subscriber in [&mut early, &mut late] {
        assert_eq!(subscriber.feed(), silent(SINCE));
        let told: Vec<_> = subscriber.events().collect();
        assert_eq!(told, [Event::FeedSilent { since: SINCE }]);
    }
    // The end of the silence is seen by the poll that delivers what ended it, once it is shown.
    stage.show_feed(Nanos(0));
    stage.publish(0, PRICE);
    receive(&mut early, 1);
    assert_eq!(early.events().collect::<Vec<_>>(), [Event::FeedHeard]);
}

#[test]
fn the_next_publisher_says_how_its_own_feed_is() {
    let (_folder, socket) = place();
    let first = Stage::open(&socket, Setup { epoch: 1, ..Setup::default() }, &["AAPL"]);
    first.show_feed(SINCE);
    let mut subscriber = builder(&socket).connect().unwrap();
    until_event(&mut subscriber, |event| *event == Event::FeedSilent { since: SINCE });
    drop(first);
    let setup = Setup { epoch: 2, ..Setup::default() };
    let _second = Stage::open_after(&socket, setup, &["AAPL"], vec![Book::of(0, PRICE)]);
    let (told, _) = until_event(&mut subscriber, |event| *event == Event::FeedHeard);
    let [.., Event::Reattached { .. }, Event::FeedHeard] = &told[..] else { panic!("{told:?}") };
    assert_eq!((subscriber.feed(), subscriber.state()), (FeedState::Live, &State::Live));
}

#[test]
fn of_two_publishers_each_side_says_how_its_feed_is() {
    let ((_folder_a, a), (_folder_b, b)) = (place(), place());
    let stage_a = Stage::open(&a, Setup { epoch: 1, ..Setup::default() }, &["AAPL"]);
    let _stage_b = Stage::open(&b, Setup { epoch: 2, ..Setup::default() }, &["AAPL"]);
    let mut subscriber = AbSubscriber::connect(builder(&a), builder(&b)).unwrap();
    stage_a.show_feed(SINCE);
    let mut told = Vec::new();
    while told.is_empty() {
        subscriber.wait(AWHILE).unwrap();
        subscriber.poll(|_| {}).unwrap();
        told.extend(subscriber.events());
    }
    assert_eq!(told, [(AbSide::A, Event::FeedSilent { since: SINCE })]);
    let feeds = AbSide::BOTH.map(|side| subscriber.side(side).feed());
    assert_eq!(feeds, [silent(SINCE), FeedState::Live]);
    let figures = AbSide::BOTH.map(|side| subscriber.side_figures(side).feed);
    assert_eq!(figures, ["silent since 14:30:00 UTC", "live"]);
    assert_eq!(subscriber.state(), &State::Live);
}
