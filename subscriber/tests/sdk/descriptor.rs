//! One descriptor for an event loop.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapecast_subscriber::{Event, StaleCause, Subscriber, WaitStrategy};

use crate::stage::{Book, CENT, Setup, Stage};
use crate::{builder, place};

const PRICE: i64 = 100 * CENT;

fn is_readable(subscriber: &Subscriber, timeout: Duration) -> bool {
    let descriptor = subscriber.as_fd().expect("a descriptor");
    let mut awaited = [PollFd::new(&descriptor, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).expect("a timeout");
    poll(&mut awaited, Some(&timeout)).expect("a poll") == 1
}

/// Does what an event loop does: polls only when the descriptor is readable.
fn loop_until(subscriber: &mut Subscriber, mut done: impl FnMut(&mut Subscriber, usize) -> bool) {
    let mut delivered = 0;
    while !done(subscriber, delivered) {
        if is_readable(subscriber, Duration::from_secs(60)) {
            delivered += subscriber.poll(|_| {}).expect("a subscription that goes on");
        }
    }
}

#[test]
fn there_is_a_descriptor_only_for_those_that_asked_for_it() {
    let (_folder, socket) = place();
    let _stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    assert!(builder(&socket).connect().unwrap().as_fd().is_none());
    let subscriber = builder(&socket).wait(WaitStrategy::Fd).connect().unwrap();
    assert!(subscriber.as_fd().unwrap().as_fd().try_clone_to_owned().is_ok());
}

#[test]
fn it_is_readable_exactly_while_a_poll_would_find_something() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    stage.publish(0, PRICE);
    let mut subscriber = builder(&socket).wait(WaitStrategy::Fd).poll_limit(4).connect().unwrap();
    // The initial image is there from the start.
    loop_until(&mut subscriber, |_, delivered| delivered == 1);
    while is_readable(&subscriber, Duration::ZERO) {
        assert_eq!(subscriber.poll(|_| {}).unwrap(), 0);
    }
    // More than one poll takes: it stays readable until all is taken, though nothing new comes.
    stage.publish_all(vec![Book::of(0, PRICE); 10]);
    loop_until(&mut subscriber, |_, delivered| delivered == 10);
    while is_readable(&subscriber, Duration::ZERO) {
        assert_eq!(subscriber.poll(|_| {}).unwrap(), 0);
    }
    for _ in 0..50 {
        stage.publish(0, PRICE);
        loop_until(&mut subscriber, |_, delivered| delivered == 1);
    }
}

#[test]
fn it_stays_the_same_when_the_publisher_goes_and_comes_back() {
    let (_folder, socket) = place();
    let first = Stage::open(&socket, Setup { epoch: 1, ..Setup::default() }, &["AAPL"]);
    let mut subscriber = builder(&socket).wait(WaitStrategy::Fd).connect().unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&subscriber.as_fd().unwrap());
    loop_until(&mut subscriber, |subscriber, _| subscriber.is_drained());
    drop(first);
    let mut events = Vec::new();
    loop_until(&mut subscriber, |subscriber, _| {
        events.extend(subscriber.events());
        events.contains(&Event::Stale(StaleCause::Crashed))
    });
    let second = Stage::open(&socket, Setup { epoch: 2, ..Setup::default() }, &["AAPL"]);
    loop_until(&mut subscriber, |subscriber, _| {
        events.extend(subscriber.events());
        events.iter().any(|event| matches!(event, Event::Reattached { .. }))
    });
    second.publish(0, PRICE);
    loop_until(&mut subscriber, |_, delivered| delivered == 1);
    assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&subscriber.as_fd().unwrap()), number);
}

#[test]
fn it_is_quiet_while_nobody_publishes_any_more() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    stage.publish(0, PRICE);
    let mut subscriber = builder(&socket).wait(WaitStrategy::Fd).connect().unwrap();
    loop_until(&mut subscriber, |_, delivered| delivered == 1);
    drop(stage);
    let mut failed = false;
    loop_until(&mut subscriber, |subscriber, _| {
        failed |= subscriber.events().any(|event| matches!(event, Event::AttachFailed(_)));
        failed
    });
    // The keeper says it once for each cause; what is left of the old session says nothing.
    let mut polls = 0;
    while is_readable(&subscriber, Duration::ZERO) {
        assert_eq!(subscriber.poll(|_| {}).unwrap(), 0);
        polls += 1;
        assert!(polls < 1_000, "readable again and again with nothing to find");
    }
}
