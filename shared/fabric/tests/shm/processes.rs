//! Subscribers in processes of their own.

use std::time::Duration;

use rustix::process::Signal;
use tapecast_core::Interest;
use tapecast_fabric::shm::ShmEndpoint;
use tapecast_fabric::{ChannelState, Fabric, Receiver, WaitStrategy};
use tapecast_wire::attach::{Farewell, Policy};

use crate::process::{Parent, Subscriber};
use crate::support::{Publisher, Seen, small};

/// Longer than any test run.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// What the child is started as: this test, which does nothing in any other process.
const CHILD: &str = "processes::a_subscriber_process";

#[test]
fn a_subscriber_process() {
    let Some(mut parent) = Parent::find() else { return };
    let role = parent.role.clone();
    let (task, rest) = role.split_once(' ').unwrap();
    let (policy, strategy) = parse(rest);
    let descriptors = std::mem::take(&mut parent.descriptors);
    let endpoint = ShmEndpoint::open(descriptors, policy, strategy).unwrap();
    // Nobody looks by itself here: a lost wake-up is a test that hangs.
    let receiver = Receiver::new(endpoint.with_sleep_limit(LONG), &Interest::All);
    match task {
        "follow" => follow(parent, receiver),
        "echo" => echo(parent, receiver),
        other => panic!("no task {other}"),
    }
}

fn role(task: &str, policy: Policy, strategy: WaitStrategy) -> String {
    format!("{task} {policy:?} {strategy:?}")
}

fn parse(text: &str) -> (Policy, WaitStrategy) {
    let policies = [Policy::Conflate, Policy::Lossless];
    let strategies =
        [WaitStrategy::Spin, WaitStrategy::Yield, WaitStrategy::Block, WaitStrategy::Fd];
    let (policy, strategy) = text.split_once(' ').unwrap();
    let policy = policies.into_iter().find(|known| format!("{known:?}") == policy).unwrap();
    let strategy = strategies.into_iter().find(|known| format!("{known:?}") == strategy).unwrap();
    (policy, strategy)
}

/// Takes everything until the publisher closes, then says its totals.
fn follow(mut parent: Parent, mut receiver: Receiver<ShmEndpoint>) {
    let mut last = vec![0; receiver.instrument_count()];
    while receiver.state() != ChannelState::Closed || receiver.is_ready() {
        receiver.wait(LONG).unwrap();
        let polled = receiver.poll(256, |delivery| {
            let seen = Seen::of(&delivery);
            let last = &mut last[seen.instrument as usize];
            assert!(seen.sequence > *last, "{seen:?} after {last}");
            *last = seen.sequence;
        });
        polled.unwrap();
    }
    receiver.account().assert_invariants();
    let totals = receiver.totals();
    let sum: u64 = last.iter().sum();
    parent.tell(&format!(
        "{} {} {} {} {} {sum}",
        totals.published,
        totals.delivered,
        totals.conflated,
        totals.lost,
        receiver.laps()
    ));
}

/// Sleeps until something comes, and says the newest sequence of instrument 0.
fn echo(mut parent: Parent, mut receiver: Receiver<ShmEndpoint>) {
    let mut newest = 0;
    while receiver.state() != ChannelState::Closed || receiver.is_ready() {
        receiver.wait(LONG).unwrap();
        let before = newest;
        receiver.poll(256, |delivery| newest = Seen::of(&delivery).sequence).unwrap();
        if newest != before {
            parent.tell(&newest.to_string());
        }
    }
    parent.tell("closed");
}

/// A child's figures at the end.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    published: u64,
    delivered: u64,
    conflated: u64,
    lost: u64,
    laps: u64,
    last_sequences: u64,
}

fn figures(subscriber: &mut Subscriber) -> Figures {
    let line = subscriber.hear();
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    let [published, delivered, conflated, lost, laps, last_sequences] = numbers[..] else {
        panic!("{line}");
    };
    Figures { published, delivered, conflated, lost, laps, last_sequences }
}

fn start(
    publisher: &mut Publisher,
    task: &str,
    policy: Policy,
    strategy: WaitStrategy,
) -> Subscriber {
    let (_, descriptors) = publisher.attach(policy);
    Subscriber::start(CHILD, &role(task, policy, strategy), descriptors)
}

#[test]
fn processes_that_attach_late_get_the_image_then_everything_whatever_way_they_wait() {
    const INSTRUMENTS: u64 = 20;
    const PER_INSTRUMENT: u64 = 2_000;
    let config = tapecast_fabric::shm::ShmConfig { ring_bytes: 1 << 24, ..small() };
    let mut publisher = Publisher::with_waker(&config);
    let all = || 0..INSTRUMENTS as u32;
    (0..100).for_each(|_| publisher.publish(all()));
    let strategies =
        [WaitStrategy::Spin, WaitStrategy::Yield, WaitStrategy::Block, WaitStrategy::Fd];
    let mut subscribers = Vec::new();
    for (index, strategy) in strategies.into_iter().enumerate() {
        let policy = if index % 2 == 0 { Policy::Conflate } else { Policy::Lossless };
        subscribers.push(start(&mut publisher, "follow", policy, strategy));
        publisher.publish(all());
    }
    (0..PER_INSTRUMENT).for_each(|_| publisher.publish(all()));
    publisher.fabric.close(publisher.now, Farewell::EndOfSource);
    publisher.bell.ring();
    for (index, mut subscriber) in subscribers.into_iter().enumerate() {
        let after_attach = PER_INSTRUMENT + (strategies.len() - index) as u64;
        let figures = figures(&mut subscriber);
        assert_eq!(figures.last_sequences, INSTRUMENTS * publisher.source.sequence(0));
        assert_eq!((figures.lost, figures.laps, figures.conflated), (0, 0, 0), "{figures:?}");
        assert_eq!(figures.published, figures.delivered);
        // The image counts as one, unless something newer came before it was read.
        let images = figures.published - INSTRUMENTS * after_attach;
        assert!(images <= INSTRUMENTS, "{figures:?}");
        assert!(subscriber.ended_well());
    }
}

#[test]
fn a_process_that_is_stopped_while_the_ring_laps_it_recovers_and_its_counts_balance() {
    let mut publisher = Publisher::with_waker(&small());
    let mut stopped = start(&mut publisher, "follow", Policy::Conflate, WaitStrategy::Block);
    publisher.publish(0..64);
    for round in 1..=3 {
        stopped.stop();
        publisher.publish((0..64).cycle().take(64 * 60));
        stopped.signal(Signal::CONT);
        // It has recovered when it has told how far it is.
        let id = tapecast_wire::SessionId(0);
        while publisher.fabric.session_stats(id).unwrap().counts.laps < round {
            std::thread::yield_now();
        }
    }
    publisher.fabric.close(publisher.now, Farewell::Closing);
    publisher.bell.ring();
    let figures = figures(&mut stopped);
    assert_eq!(figures.lost, 0, "{figures:?}");
    assert_eq!(figures.published, figures.delivered + figures.conflated);
    assert_eq!(figures.last_sequences, 64 * publisher.source.sequence(0));
    assert!(figures.laps >= 3 && figures.conflated > 64 * 60, "{figures:?}");
    assert!(stopped.ended_well());
}

#[test]
fn lossless_processes_receive_every_snapshot_in_order_through_a_ring_that_is_much_smaller() {
    const COUNT: u64 = 20_000;
    let mut publisher = Publisher::with_waker(&small());
    let strategies = [WaitStrategy::Block, WaitStrategy::Fd, WaitStrategy::Yield];
    let mut subscribers =
        strategies.map(|strategy| start(&mut publisher, "follow", Policy::Lossless, strategy));
    for n in 0..COUNT as u32 {
        let mut shared = publisher.source.next(n % 64).share();
        while let Err(full) = publisher.fabric.publish(shared) {
            shared = full.0;
            publisher.flush();
            std::thread::yield_now();
        }
    }
    publisher.fabric.close(publisher.now, Farewell::EndOfSource);
    publisher.bell.ring();
    for subscriber in &mut subscribers {
        let figures = figures(subscriber);
        let all = Figures {
            published: COUNT,
            delivered: COUNT,
            conflated: 0,
            lost: 0,
            laps: 0,
            last_sequences: COUNT,
        };
        assert_eq!(figures, all);
    }
}

#[test]
fn sleeping_processes_are_all_woken_while_one_after_the_other_is_stopped_in_the_wake_tree() {
    const ROUNDS: usize = 40;
    let mut publisher = Publisher::with_waker(&small());
    let strategies =
        [WaitStrategy::Block, WaitStrategy::Block, WaitStrategy::Block, WaitStrategy::Fd];
    let mut subscribers: Vec<_> = strategies
        .into_iter()
        .cycle()
        .take(8)
        .map(|strategy| start(&mut publisher, "echo", Policy::Conflate, strategy))
        .collect();
    for round in 1..=ROUNDS {
        let victim = round % subscribers.len();
        subscribers.iter().for_each(Subscriber::until_asleep);
        // Every second time it is stopped while the others are being woken, perhaps by it.
        if round % 2 == 0 {
            subscribers[victim].stop();
        }
        publisher.publish([0]);
        if round % 2 == 1 {
            subscribers[victim].stop();
        }
        for (index, subscriber) in subscribers.iter_mut().enumerate() {
            if index != victim {
                assert_eq!(subscriber.hear(), round.to_string());
            }
        }
        subscribers[victim].signal(Signal::CONT);
        assert_eq!(subscribers[victim].hear(), round.to_string());
    }
    publisher.fabric.close(publisher.now, Farewell::Closing);
    publisher.bell.ring();
    for mut subscriber in subscribers {
        assert_eq!(subscriber.hear(), "closed");
        assert!(subscriber.ended_well());
    }
}

#[test]
fn a_killed_process_costs_the_others_nothing_and_its_session_can_be_taken_out() {
    let mut publisher = Publisher::with_waker(&small());
    let mut survivor = start(&mut publisher, "echo", Policy::Conflate, WaitStrategy::Block);
    let (id, descriptors) = publisher.attach(Policy::Conflate);
    let role = role("echo", Policy::Conflate, WaitStrategy::Fd);
    let killed = Subscriber::start(CHILD, &role, descriptors);
    killed.until_asleep();
    killed.signal(Signal::KILL);
    drop(killed);
    publisher.publish([0]);
    assert_eq!(survivor.hear(), "1");
    assert!(publisher.fabric.detach(id).is_some());
    publisher.publish([0]);
    assert_eq!(survivor.hear(), "2");
}
