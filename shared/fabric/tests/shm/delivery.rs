//! Shared memory within one process: what is delivered, what is counted, what is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{EPOCH, Publisher, Seen, Source, drain, open, small};
use tapecast_core::Interest;
use tapecast_fabric::park::Parker;
use tapecast_fabric::shm::{CreateError, MappingError, OpenError, ShmConfig, ShmEndpoint, ShmHost};
use tapecast_fabric::{
    AttachError, ChannelState, Fabric, Full, LatencyReport, PollError, WaitStrategy,
};
use tapecast_wire::attach::{Farewell, Policy};
use tapecast_wire::limits::{MAX_SUBSCRIBERS, POOL_PAGES};
use tapecast_wire::{Instrument, InstrumentId, Nanos, SessionId};

const BOTH: [Policy; 2] = [Policy::Conflate, Policy::Lossless];

fn only(ids: &[u32]) -> Interest {
    Interest::Only(ids.iter().copied().map(InstrumentId).collect())
}

/// Snapshots of one instrument that surely lap a small ring.
fn a_lap_of(instrument: u32) -> impl Iterator<Item = u32> {
    std::iter::repeat_n(instrument, 2048)
}

#[test]
fn a_late_joiner_gets_the_newest_snapshot_of_each_instrument_then_what_follows() {
    for policy in BOTH {
        let mut publisher = Publisher::new(&small());
        publisher.publish([0, 1, 0, 2, 0]);
        let mut receiver = publisher.receiver(policy, &Interest::All);
        let images = [Seen::initial(0, 3), Seen::initial(1, 1), Seen::initial(2, 1)];
        assert_eq!(drain(&mut receiver), images);
        publisher.publish([1, 3, 0]);
        let live = [Seen::plain(1, 2), Seen::initial(3, 1), Seen::plain(0, 4)];
        assert_eq!(drain(&mut receiver), live);
        let totals = receiver.totals();
        assert_eq!((totals.published, totals.delivered, totals.initial_images), (6, 6, 4));
    }
}

#[test]
fn what_is_published_between_attach_and_first_poll_is_delivered_one_by_one_and_replaces_the_image()
{
    for policy in BOTH {
        let mut publisher = Publisher::new(&small());
        publisher.publish([0, 1, 0, 2, 0]);
        let mut receiver = publisher.receiver(policy, &Interest::All);
        publisher.publish([1, 3, 1]);
        publisher.publish([3]);
        let seen = [
            Seen::initial(0, 3),
            Seen::initial(2, 1),
            Seen::initial(1, 2),
            Seen::initial(3, 1),
            Seen::plain(1, 3),
            Seen::plain(3, 2),
        ];
        assert_eq!(drain(&mut receiver), seen, "{policy:?}");
        publisher.publish([4, 0, 1, 2, 3]);
        let first = Seen::initial(4, 1);
        let live = [(0, 4), (1, 4), (2, 2), (3, 3)].map(|(id, seq)| Seen::plain(id, seq));
        assert_eq!(drain(&mut receiver), [&[first], &live[..]].concat());
        let totals = receiver.totals();
        assert_eq!((totals.published, totals.delivered), (11, 11));
        receiver.account().assert_invariants();
    }
}

#[test]
fn nothing_is_seen_before_the_flush_and_attaching_in_a_batch_misses_nothing() {
    for policy in BOTH {
        let mut publisher = Publisher::new(&small());
        let mut early = publisher.receiver(policy, &Interest::All);
        publisher.stage(0);
        assert_eq!(drain(&mut early), []);
        let mut late = publisher.receiver(policy, &Interest::All);
        publisher.stage(0);
        publisher.flush();
        assert_eq!(drain(&mut early), [Seen::initial(0, 1), Seen::plain(0, 2)]);
        // The first was published before the late one was attached, and is no longer the newest.
        assert_eq!(drain(&mut late), [Seen::initial(0, 2)]);
    }
}

#[test]
fn what_is_not_wanted_is_neither_delivered_nor_counted() {
    for policy in BOTH {
        let mut publisher = Publisher::new(&small());
        publisher.publish([5, 6]);
        let mut receiver = publisher.receiver(policy, &only(&[5]));
        publisher.publish([6, 6, 5, 7]);
        assert_eq!(drain(&mut receiver), [Seen::initial(5, 2)]);
        assert_eq!(receiver.totals().published, 1);
    }
}

#[test]
fn watching_one_more_instrument_brings_its_newest_snapshot_first() {
    for policy in BOTH {
        let mut publisher = Publisher::new(&small());
        publisher.publish([1, 2, 2]);
        let mut receiver = publisher.receiver(policy, &only(&[1]));
        assert_eq!(drain(&mut receiver), [Seen::initial(1, 1)]);
        publisher.publish([1, 2]);
        assert!(receiver.watch(InstrumentId(2)));
        publisher.publish([2]);
        assert_eq!(drain(&mut receiver), [Seen::initial(2, 4), Seen::plain(1, 2)]);
        publisher.publish([2, 1]);
        assert!(receiver.unwatch(InstrumentId(1)));
        assert_eq!(drain(&mut receiver), [Seen::plain(2, 5)]);
        receiver.account().assert_invariants();
    }
}

#[test]
fn a_lapped_receiver_goes_on_with_the_newest_snapshots_and_counts_the_rest() {
    let mut publisher = Publisher::new(&small());
    publisher.publish([0, 1, 2]);
    let mut receiver = publisher.receiver(Policy::Conflate, &Interest::All);
    drain(&mut receiver);
    publisher.publish([1]);
    publisher.publish(a_lap_of(0));
    publisher.publish([3, 3]);
    let lapped = [
        Seen::conflated(0, 2049, 2047),
        Seen::plain(1, 2),
        Seen { initial: true, ..Seen::conflated(3, 2, 1) },
    ];
    assert_eq!(drain(&mut receiver), lapped);
    assert_eq!(receiver.laps(), 1);
    publisher.publish([0, 1, 2, 3]);
    let live = [(0, 2050), (1, 3), (2, 2), (3, 3)].map(|(id, seq)| Seen::plain(id, seq));
    assert_eq!(drain(&mut receiver), live);
    let totals = receiver.totals();
    assert_eq!(totals.published, totals.delivered + totals.conflated);
    assert_eq!((totals.published, totals.lost), (3 + 1 + 2048 + 2 + 4, 0));
    receiver.account().assert_invariants();
}

#[test]
fn a_receiver_that_was_lapped_before_its_first_poll_joins_from_the_table() {
    let mut publisher = Publisher::new(&small());
    publisher.publish([0, 1]);
    let mut receiver = publisher.receiver(Policy::Conflate, &Interest::All);
    publisher.publish(a_lap_of(0));
    assert_eq!(drain(&mut receiver), [Seen::initial(1, 1), Seen::initial(0, 2049)]);
    publisher.publish([2, 0]);
    assert_eq!(drain(&mut receiver), [Seen::initial(2, 1), Seen::plain(0, 2050)]);
    assert_eq!((receiver.totals().conflated, receiver.totals().lost), (0, 0));
}

#[test]
fn a_receiver_that_is_lapped_again_and_again_leaves_no_instrument_behind() {
    let mut publisher = Publisher::new(&small());
    let mut receiver = publisher.receiver(Policy::Conflate, &Interest::All);
    let mut reached = [0; 64];
    for round in 0..64 {
        publisher.publish((0..2048).map(|n| n % 64));
        for _ in 0..2 {
            let polled = receiver.poll(4, |delivery| {
                let seen = Seen::of(&delivery);
                reached[seen.instrument as usize] = seen.sequence;
            });
            polled.unwrap();
        }
        assert_eq!(receiver.totals().lost, 0, "round {round}");
    }
    assert!(receiver.laps() > 5);
    assert!(reached.iter().all(|sequence| *sequence > 0), "{reached:?}");
    drain(&mut receiver);
    for id in 0..64 {
        let totals = receiver.instrument_totals(InstrumentId(id)).unwrap();
        assert_eq!(totals.last_sequence.0, publisher.source.sequence(id));
    }
    receiver.account().assert_invariants();
}

#[test]
fn a_lossless_session_holds_the_writer_and_loses_nothing() {
    let mut publisher = Publisher::new(&small());
    let mut receiver = publisher.receiver(Policy::Lossless, &Interest::All);
    let mut fast = publisher.receiver(Policy::Conflate, &Interest::All);
    let mut received = 0;
    let mut held = 0;
    for _ in 0..5000 {
        let mut shared = publisher.source.next(0).share();
        while let Err(Full(back)) = publisher.fabric.publish(shared) {
            held += 1;
            shared = back;
            publisher.flush();
            let polled = receiver.poll(usize::MAX, |delivery| {
                received += 1;
                assert_eq!(Seen::of(&delivery).sequence, received);
            });
            assert_ne!(polled, Ok(0), "held, but there is nothing to read");
        }
        publisher.flush();
        drain(&mut fast);
    }
    received += drain(&mut receiver).len() as u64;
    assert!(held > 5, "the ring held everything");
    assert_eq!((received, receiver.laps()), (5000, 0));
    assert_eq!(fast.totals().delivered, 5000, "the others keep up with it");
}

#[test]
fn the_slowest_lossless_session_counts_and_detaching_it_frees_the_writer() {
    let mut publisher = Publisher::new(&small());
    let (slow, _descriptors) = publisher.attach(Policy::Lossless);
    let mut quick = publisher.receiver(Policy::Lossless, &Interest::All);
    let full = |publisher: &mut Publisher| {
        for count in 0..10_000 {
            let shared = publisher.source.next(1).share();
            if publisher.fabric.publish(shared).is_err() {
                return count;
            }
            publisher.flush();
        }
        10_000
    };
    let room = full(&mut publisher);
    assert!((100..10_000).contains(&room), "{room}");
    drain(&mut quick);
    assert_eq!(full(&mut publisher), 0, "the slow one still holds it");
    assert!(publisher.fabric.detach(slow).is_some());
    assert!(full(&mut publisher) > 50, "what the quick one has consumed is free");
}

#[test]
fn a_lossless_session_that_was_evicted_while_it_read_is_told() {
    let mut publisher = Publisher::new(&small());
    let (id, descriptors) = publisher.attach(Policy::Lossless);
    let mut receiver = open(descriptors, Policy::Lossless, WaitStrategy::Block, &Interest::All);
    publisher.publish([0, 0, 0]);
    let mut publisher = Some(publisher);
    let polled = receiver.poll(2, |_| {
        if let Some(mut publisher) = publisher.take() {
            publisher.fabric.detach(id).unwrap();
            publisher.publish(a_lap_of(0));
        }
    });
    assert!(matches!(polled, Err(PollError::Evicted { .. })), "{polled:?}");
}

#[test]
fn torn_records_are_never_delivered_while_the_writer_laps_its_readers_all_the_time() {
    let config = small();
    let mut publisher = Publisher::new(&config);
    let receivers: Vec<_> =
        (0..3).map(|_| publisher.receiver(Policy::Conflate, &Interest::All)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = receivers
            .into_iter()
            .map(|mut receiver| {
                let done = &done;
                scope.spawn(move || {
                    let mut last = [0; 64];
                    loop {
                        let finished = done.load(Ordering::Acquire);
                        let polled = receiver.poll(64, |delivery| {
                            // Checks every word.
                            let seen = Seen::of(&delivery);
                            let last = &mut last[seen.instrument as usize];
                            assert!(seen.sequence > *last, "out of order");
                            *last = seen.sequence;
                        });
                        polled.unwrap();
                        if finished && !receiver.is_ready() {
                            return receiver;
                        }
                    }
                })
            })
            .collect();
        for n in 0..150_000u32 {
            publisher.stage(n % 5 * (n % 13) % 64);
            if n % 17 == 0 {
                publisher.flush();
            }
        }
        publisher.flush();
        done.store(true, Ordering::Release);
        for reader in readers {
            let receiver = reader.join().unwrap();
            let totals = receiver.totals();
            assert_eq!(totals.lost, 0);
            assert_eq!(totals.published, totals.delivered + totals.conflated);
            for id in 0..64 {
                let totals = receiver.instrument_totals(InstrumentId(id)).unwrap();
                assert_eq!(totals.last_sequence.0, publisher.source.sequence(id));
            }
        }
    });
    drop(publisher.source.next(0));
    let Source { pool, .. } = publisher.source;
    assert!(pool.free_pages() >= POOL_PAGES - 1, "shared memory keeps no page");
}

#[test]
fn a_reader_that_inspects_in_place_sees_each_wanted_record_once() {
    let mut publisher = Publisher::new(&small());
    let mut receiver = publisher.receiver(Policy::Conflate, &only(&[2]));
    assert_eq!(drain(&mut receiver), []);
    receiver.poll(1, |_| ()).unwrap();
    publisher.publish([1, 2, 3, 2]);
    let mut look = || receiver.inspect(|raw| raw.header().unwrap().instrument_sequence);
    assert_eq!([look(), look(), look()], [Ok(Some(1)), Ok(Some(2)), Ok(None)]);
    publisher.publish(a_lap_of(2));
    assert_eq!(receiver.inspect(|_| ()), Ok(None), "the writer got there first");
    assert_eq!(drain(&mut receiver), [Seen::conflated(2, 2050, 2047)]);
    receiver.account().assert_invariants();
}

#[test]
fn sixty_four_sessions_attach_and_the_next_one_is_refused_and_handed_back() {
    let mut publisher = Publisher::new(&small());
    let sessions: Vec<_> =
        (0..MAX_SUBSCRIBERS).map(|_| publisher.attach(Policy::Conflate)).collect();
    let ids: Vec<_> = sessions.iter().map(|(id, _)| id.0).collect();
    assert_eq!(ids, (0..64).collect::<Vec<u32>>());
    let (session, _descriptors) = publisher.host.prepare(Policy::Conflate).unwrap();
    let error = publisher.fabric.attach(session).unwrap_err();
    assert!(error.to_string().contains("all 64 sessions are taken"), "{error}");
    assert!(publisher.fabric.detach(SessionId(63)).is_some());
    assert_eq!(publisher.fabric.attach(error.into_session()).unwrap(), SessionId(63));
    assert!(publisher.fabric.detach(SessionId(64)).is_none());
}

#[test]
fn lossless_needs_the_publishers_permission_and_a_closed_fabric_takes_nobody() {
    let mut publisher = Publisher::new(&ShmConfig { allow_lossless: false, ..small() });
    let (session, _descriptors) = publisher.host.prepare(Policy::Lossless).unwrap();
    let error = publisher.fabric.attach(session).unwrap_err();
    assert!(matches!(error, AttachError::LosslessNotAllowed(_)));
    publisher.fabric.close(publisher.now, Farewell::Closing);
    let (session, _descriptors) = publisher.host.prepare(Policy::Conflate).unwrap();
    assert!(matches!(publisher.fabric.attach(session), Err(AttachError::Closing(_))));
}

#[test]
fn closing_is_seen_after_everything_that_was_published() {
    let mut publisher = Publisher::new(&small());
    let mut receiver = publisher.receiver(Policy::Conflate, &Interest::All);
    assert_eq!(receiver.state(), ChannelState::Running);
    publisher.stage(0);
    publisher.fabric.close(Nanos(5), Farewell::EndOfSource);
    assert_eq!(receiver.state(), ChannelState::Closed);
    assert_eq!(drain(&mut receiver), [Seen::initial(0, 1)]);
}

#[test]
fn a_channel_that_closes_between_a_look_at_its_state_and_the_wait_is_not_slept_on() {
    const LONG: Duration = Duration::from_secs(24 * 3600);
    let strategies =
        [WaitStrategy::Spin, WaitStrategy::Yield, WaitStrategy::Block, WaitStrategy::Fd];
    for strategy in strategies {
        let mut publisher = Publisher::with_waker(&small());
        let (_, descriptors) = publisher.attach(Policy::Conflate);
        let mut receiver = open(descriptors, Policy::Conflate, strategy, &Interest::All);
        publisher.publish([0]);
        assert!(receiver.wait(LONG).unwrap());
        drain(&mut receiver);
        assert_eq!(receiver.state(), ChannelState::Running);
        publisher.fabric.close(publisher.now, Farewell::Closing);
        assert!(!receiver.wait(LONG).unwrap(), "{strategy:?}");
        assert_eq!(receiver.state(), ChannelState::Closed);
        assert!(!receiver.wait(Duration::from_millis(1)).unwrap(), "told once");
    }
}

#[test]
fn a_feed_that_falls_silent_or_is_heard_again_ends_a_wait_and_is_announced_once() {
    const LONG: Duration = Duration::from_secs(24 * 3600);
    let strategies =
        [WaitStrategy::Spin, WaitStrategy::Yield, WaitStrategy::Block, WaitStrategy::Fd];
    for strategy in strategies {
        let mut publisher = Publisher::with_waker(&small());
        let (_, descriptors) = publisher.attach(Policy::Conflate);
        let mut receiver = open(descriptors, Policy::Conflate, strategy, &Interest::All);
        drain(&mut receiver);
        assert_eq!(receiver.feed_silent_since(), None);
        for (said, shown) in [(7, Some(Nanos(7))), (0, None), (9, Some(Nanos(9)))] {
            publisher.fabric.show_feed(Nanos(said));
            assert!(!receiver.wait(LONG).unwrap(), "{strategy:?}: nothing is to be polled");
            assert_eq!(receiver.feed_silent_since(), shown);
            publisher.fabric.show_feed(Nanos(said));
            assert!(!receiver.wait(Duration::from_millis(1)).unwrap(), "told once");
        }
    }
}

#[test]
fn the_heartbeat_follows_the_clock_also_when_it_was_set_back() {
    let mut publisher = Publisher::new(&small());
    let receiver = publisher.receiver(Policy::Conflate, &Interest::All);
    for now in [1_000_000_000_000, 1_000_100_000_000, 500_000_000_000] {
        publisher.fabric.turn(Nanos(now));
        assert_eq!(receiver.heartbeat(), Nanos(now));
    }
}

#[test]
fn the_directory_is_read_as_it_was_written_and_as_it_changes() {
    let config = ShmConfig { instruments: 2, ..small() };
    let mut publisher = Publisher::new(&config);
    let receiver = publisher.receiver(Policy::Conflate, &Interest::All);
    assert_eq!(receiver.instrument_count(), 2);
    let mut instrument = Instrument::new(InstrumentId(1), "SYM1", "XNAS");
    assert_eq!(receiver.instrument(InstrumentId(1)), Some(instrument.clone()));
    instrument.tick_size = 10_000_000;
    publisher.fabric.upsert_instrument(&instrument.to_wire()).unwrap();
    assert_eq!(receiver.instrument(InstrumentId(1)), Some(instrument));
    assert_eq!(receiver.instrument(InstrumentId(2)), None);
    let third = Instrument::new(InstrumentId(2), "NEW", "XNAS");
    let error = publisher.fabric.upsert_instrument(&third.to_wire()).unwrap_err();
    assert!(error.to_string().contains("room for 2"), "{error}");
}

#[test]
fn both_ends_agree_on_a_sessions_counts() {
    let mut publisher = Publisher::new(&small());
    let (session, descriptors) = publisher.host.prepare(Policy::Conflate).unwrap();
    let monitor = session.monitor();
    let id = publisher.fabric.attach(session).unwrap();
    let mut receiver = open(descriptors, Policy::Conflate, WaitStrategy::Block, &Interest::All);
    publisher.publish([0, 1]);
    publisher.publish(a_lap_of(0));
    let behind = publisher.fabric.session_stats(id).unwrap();
    assert!(behind.lag_bytes > 64 * 1024, "{behind:?}");
    drain(&mut receiver);
    let latency = LatencyReport { count: 5, p50_ns: 1, p99_ns: 2, p99_9_ns: 3, max_ns: 4 };
    receiver.report(Nanos(9), latency);
    let stats = monitor.stats();
    assert_eq!(publisher.fabric.session_stats(id), Some(stats));
    let totals = receiver.totals();
    assert_eq!(stats.counts.delivered, totals.delivered);
    assert_eq!(stats.counts.conflated, totals.conflated);
    assert_eq!(stats.counts.initial_images, totals.initial_images);
    assert_eq!((stats.counts.lost, stats.counts.laps, stats.faults), (0, 1, 0));
    assert_eq!((stats.lag_bytes, stats.latency, stats.heartbeat), (0, latency, Nanos(9)));
    assert_eq!(stats.counts.channel_sequence.0, publisher.source.channel());
}

#[test]
fn a_resumed_receiver_keeps_its_totals_across_publishers() {
    let mut publisher = Publisher::new(&small());
    publisher.publish([0, 0]);
    let mut receiver = publisher.receiver(Policy::Conflate, &Interest::All);
    assert_eq!(drain(&mut receiver).len(), 1);
    let (_, account) = receiver.into_parts();
    let mut successor = Publisher::new(&small());
    successor.publish([0, 1]);
    let (_, descriptors) = successor.attach(Policy::Conflate);
    let endpoint =
        ShmEndpoint::open(descriptors.into_vec(), Policy::Conflate, WaitStrategy::Block).unwrap();
    let mut receiver = tapecast_fabric::Receiver::resume(endpoint, account, &Interest::All);
    assert_eq!(drain(&mut receiver), [Seen::initial(0, 1), Seen::initial(1, 1)]);
    assert_eq!(receiver.totals().delivered, 3);
}

#[test]
fn a_session_is_not_opened_from_the_wrong_descriptors() {
    let mut publisher = Publisher::new(&small());
    let open = |fds| ShmEndpoint::open(fds, Policy::Conflate, WaitStrategy::Block).unwrap_err();
    let mut descriptors = || publisher.attach(Policy::Conflate).1.into_vec();

    let mut two = descriptors();
    two.pop();
    assert!(matches!(open(two), OpenError::Descriptors { have: 2 }));

    let mut swapped = descriptors();
    swapped.swap(0, 1);
    assert!(matches!(open(swapped), OpenError::Region(_)));

    let mut unsealed = descriptors();
    unsealed[0] = tempfile::tempfile().unwrap().into();
    assert!(matches!(open(unsealed), OpenError::Mapping(MappingError::NotSealed { .. })));

    let mut foreign = descriptors();
    let other_life = ShmConfig { epoch: tapecast_wire::Epoch(EPOCH.0 + 1), ..small() };
    let mut other = Publisher::new(&other_life);
    foreign[0] = other.attach(Policy::Conflate).1.into_vec().remove(0);
    assert!(matches!(open(foreign), OpenError::Epoch { .. }));

    let conflating = descriptors();
    let error = ShmEndpoint::open(conflating, Policy::Lossless, WaitStrategy::Block).unwrap_err();
    assert!(matches!(error, OpenError::NotGated));
}

#[test]
fn too_little_memory_is_refused_before_running_and_the_needed_number_is_named() {
    let config = ShmConfig { instruments: 1 << 20, levels_per_side: 83, ..small() };
    let config = ShmConfig { ring_bytes: 1 << 34, ..config };
    let needed = config.needed_bytes().unwrap();
    if tapecast_fabric::shm::check_memory(needed).is_ok() {
        eprintln!("SKIPPED: this machine has {needed} bytes of memory to spare");
        return;
    }
    let error = ShmHost::create(&config, Parker::new().ringer()).unwrap_err();
    assert!(matches!(error, CreateError::Memory(MappingError::Memory(_))));
    let text = error.to_string();
    assert!(text.contains(&format!("{needed} bytes")), "{text}");
    assert!(text.contains("make the ring smaller"), "{text}");
}

#[test]
fn impossible_sizes_are_refused_with_the_possible_ones() {
    let config = ShmConfig { ring_bytes: 100_000, ..small() };
    let text = ShmHost::create(&config, Parker::new().ringer()).unwrap_err().to_string();
    assert!(text.contains("power of two"), "{text}");
}
