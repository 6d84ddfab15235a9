//! A region that outlives its publisher.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tapecast_core::Interest;
use tapecast_fabric::shm::{
    MappingError, OpenError, RegionIdentity, RegionLife, ResumeError, Sealing, ShmConfig,
    ShmEndpoint,
};
use tapecast_fabric::{ChannelState, Fabric, PollError, Receiver, WaitStrategy};
use tapecast_wire::attach::{Farewell, Policy};
use tapecast_wire::{Epoch, InstrumentId};

use crate::support::{EPOCH, Publisher, Seen, drain, open, small};

/// A region that may be taken over, in the so-manieth life after the first.
fn kept(life: u64) -> ShmConfig {
    ShmConfig { sealing: Sealing::Owner, keep: true, epoch: Epoch(EPOCH.0 + life), ..small() }
}

/// The publisher goes without a word: its mappings stay as they are, and the descriptor.
fn crash(publisher: Publisher) -> OwnedFd {
    publisher.kept.expect("a region that is kept")
}

fn succeed(publisher: Publisher, life: u64) -> Publisher {
    Publisher::resume(crash(publisher), &kept(life)).unwrap()
}

/// A session that follows one of life `before`.
fn follow(publisher: &mut Publisher, policy: Policy, before: RegionLife) -> Receiver<ShmEndpoint> {
    let descriptors = publisher.attach(policy).1.into_vec();
    let opened = ShmEndpoint::open_after(descriptors, policy, WaitStrategy::Block, Some(before));
    Receiver::new(opened.unwrap(), &Interest::All)
}

#[test]
fn readers_of_the_old_life_get_what_was_committed_and_those_of_the_new_one_all_of_it() {
    for policy in [Policy::Conflate, Policy::Lossless] {
        let mut first = Publisher::new(&kept(0));
        let mut old = first.receiver(policy, &Interest::All);
        let mut idle = first.receiver(policy, &Interest::All);
        first.publish([0, 1, 0]);
        assert_eq!(drain(&mut old).len(), 3);
        first.publish([0, 2]);
        // In table and ring, but never committed: nobody sees it.
        first.stage(3);
        let mut second = succeed(first, 1);
        second.publish([0, 1, 1]);
        assert_eq!(drain(&mut old), [Seen::plain(0, 3), Seen::initial(2, 1)], "{policy:?}");
        assert_eq!((old.state(), old.is_ready()), (ChannelState::Closed, false));
        assert_eq!(old.poll(16, |_| panic!("of another life")), Ok(0));
        assert_eq!(drain(&mut idle).len(), 5);

        let mut new = follow(&mut second, policy, old.endpoint().life());
        let continued = policy == Policy::Conflate;
        assert_eq!(new.endpoint().is_continued(), continued);
        let seen = drain(&mut new);
        match continued {
            true => {
                let all = [Seen::initial(0, 1), Seen::initial(1, 1), Seen::plain(1, 2)];
                assert_eq!(seen, all);
            }
            // It is waited for from where it was attached.
            false => assert_eq!(seen, [Seen::initial(0, 1), Seen::initial(1, 2)]),
        }
        second.publish([2, 0]);
        assert_eq!(drain(&mut new), [Seen::initial(2, 1), Seen::plain(0, 2)]);
        assert_eq!((new.totals().lost, new.epoch()), (0, Epoch(EPOCH.0 + 1)));
        new.account().assert_invariants();
        old.account().assert_invariants();
    }
}

#[test]
fn a_session_that_comes_after_a_take_over_joins_as_ever() {
    let mut first = Publisher::new(&kept(0));
    first.publish([0, 1, 2, 0]);
    let mut second = succeed(first, 1);
    second.publish([1, 1, 4]);
    let mut late = second.receiver(Policy::Conflate, &Interest::All);
    assert_eq!(drain(&mut late), [Seen::initial(1, 2), Seen::initial(4, 1)]);
    second.publish([0, 1]);
    assert_eq!(drain(&mut late), [Seen::initial(0, 1), Seen::plain(1, 3)]);
}

#[test]
fn a_continued_session_that_is_lapped_at_once_accounts_for_everything_from_the_first_on() {
    let mut first = Publisher::new(&kept(0));
    let old = first.receiver(Policy::Conflate, &Interest::All);
    let mut second = succeed(first, 1);
    for _ in 0..2048 {
        second.publish([0, 1]);
    }
    let mut new = follow(&mut second, Policy::Conflate, old.endpoint().life());
    let (seen, conflated) = (drain(&mut new), 2047);
    let newest = |id| Seen { instrument: id, sequence: 2048, initial: true, conflated };
    assert_eq!(seen, [newest(0), newest(1)]);
    let totals = new.totals();
    assert_eq!((totals.published, totals.delivered, totals.lost), (4096, 2, 0));
    assert_eq!(new.laps(), 1);
}

#[test]
fn a_continued_session_announces_nothing_that_the_publisher_counts_as_consumed_already() {
    let mut first = Publisher::new(&kept(0));
    let old = first.receiver(Policy::Conflate, &Interest::All);
    let mut second = succeed(first, 1);
    second.publish(0..10);
    let (id, descriptors) = second.attach(Policy::Conflate);
    let (before, strategy) = (Some(old.endpoint().life()), WaitStrategy::Block);
    let opened =
        ShmEndpoint::open_after(descriptors.into_vec(), Policy::Conflate, strategy, before);
    let mut new = Receiver::new(opened.unwrap(), &Interest::All);
    let granted = second.fabric.session_stats(id).unwrap().consumed;
    assert_eq!(new.poll(5, |_| ()), Ok(5));
    let stats = second.fabric.session_stats(id).unwrap();
    assert_eq!((stats.consumed, stats.faults), (granted, 0));
    drain(&mut new);
    second.publish([3]);
    drain(&mut new);
    let stats = second.fabric.session_stats(id).unwrap();
    assert!(stats.consumed > granted);
    assert_eq!((stats.faults, stats.lag_bytes, stats.counts.delivered), (0, 0, 11));
}

#[test]
fn a_reader_that_is_behind_when_the_new_life_laps_it_is_over_or_if_it_was_promised_all_told_so() {
    for policy in [Policy::Conflate, Policy::Lossless] {
        let mut first = Publisher::new(&kept(0));
        let mut old = first.receiver(policy, &Interest::All);
        first.publish([0, 1, 2]);
        assert_eq!(old.poll(1, |_| ()), Ok(1));
        let mut second = succeed(first, 1);
        for _ in 0..2048 {
            second.publish([5]);
        }
        let polled = old.poll(16, |_| panic!("of another life"));
        match policy {
            Policy::Conflate | Policy::Disconnect => assert_eq!(polled, Ok(0)),
            Policy::Lossless => assert!(matches!(polled, Err(PollError::Evicted { .. }))),
        }
        assert_eq!(old.state(), ChannelState::Closed);
        assert_eq!((old.totals().published, old.totals().delivered), (1, 1));
    }
}

#[test]
fn a_walk_over_the_table_takes_nothing_from_the_life_after_it() {
    let mut first = Publisher::new(&kept(0));
    first.publish([0, 1, 2, 3]);
    let mut walking = first.receiver(Policy::Conflate, &Interest::All);
    assert_eq!(walking.poll(2, |_| ()), Ok(2));
    let mut second = succeed(first, 1);
    second.publish([0, 1, 2, 3, 4]);
    assert_eq!(drain(&mut walking), []);
    assert_eq!((walking.state(), walking.totals().delivered), (ChannelState::Closed, 2));
}

#[test]
fn a_joiner_whose_images_are_gone_still_gets_what_the_ring_has_and_counts_no_loss() {
    let mut first = Publisher::new(&kept(0));
    first.publish([0, 0, 1, 1]);
    let mut joining = first.receiver(Policy::Conflate, &Interest::All);
    first.publish([0, 2]);
    let mut second = succeed(first, 1);
    second.publish([0, 1]);
    assert_eq!(drain(&mut joining), [Seen::initial(0, 3), Seen::initial(2, 1)]);
    assert_eq!((joining.totals().published, joining.totals().lost), (2, 0));
    joining.account().assert_invariants();
}

#[test]
fn a_reader_that_recovers_from_a_lap_when_the_table_goes_is_over() {
    let mut first = Publisher::new(&kept(0));
    let mut lapped = first.receiver(Policy::Conflate, &Interest::All);
    for _ in 0..2048 {
        first.publish([0, 1, 2]);
    }
    // The first poll finds the lap, the second takes the first of three.
    while lapped.totals().delivered == 0 {
        lapped.poll(1, |_| ()).unwrap();
    }
    first.publish([0, 1, 2]);
    let _second = succeed(first, 1);
    assert_eq!(drain(&mut lapped), []);
    assert_eq!((lapped.state(), lapped.totals().lost), (ChannelState::Closed, 0));
    lapped.account().assert_invariants();
}

#[test]
fn what_waits_for_an_instruments_rest_when_the_table_goes_is_not_taken_for_lost() {
    let mut first = Publisher::new(&kept(0));
    let (_, descriptors) = first.attach(Policy::Conflate);
    let strategy = WaitStrategy::Block;
    let opened = ShmEndpoint::open(descriptors.into_vec(), Policy::Conflate, strategy).unwrap();
    let endpoint = opened.with_min_interval(Duration::from_secs(3600));
    let mut resting = Receiver::new(endpoint, &Interest::All);
    first.publish([0]);
    assert_eq!(drain(&mut resting), [Seen::initial(0, 1)]);
    first.publish([0, 0, 1]);
    assert_eq!(drain(&mut resting), [Seen::initial(1, 1)]);
    first.publish([0, 2]);
    let mut second = succeed(first, 1);
    second.publish([0, 1]);
    assert_eq!(drain(&mut resting), []);
    assert_eq!((resting.state(), resting.totals().lost), (ChannelState::Closed, 0));
    resting.account().assert_invariants();
}

#[test]
fn a_session_that_would_rather_end_than_miss_something_reads_on_as_well() {
    let mut first = Publisher::new(&kept(0));
    let mut old = first.receiver(Policy::Disconnect, &Interest::All);
    first.publish([0, 1]);
    let mut second = succeed(first, 1);
    second.publish([0, 0]);
    assert_eq!(drain(&mut old).len(), 2);
    let mut new = follow(&mut second, Policy::Disconnect, old.endpoint().life());
    assert_eq!(drain(&mut new), [Seen::initial(0, 1), Seen::plain(0, 2)]);
}

#[test]
fn the_directory_of_the_old_life_does_not_become_the_new_ones() {
    let mut first = Publisher::new(&kept(0));
    let mut old = first.receiver(Policy::Conflate, &Interest::All);
    let count = old.instrument_count();
    assert!(old.instrument(InstrumentId(1)).is_some());
    let _second = succeed(first, 1);
    assert_eq!(old.instrument_count(), count, "it never shrinks");
    assert_eq!(old.instrument(InstrumentId(1)), None);
    assert_eq!(drain(&mut old), []);
}

#[test]
fn an_orderly_end_keeps_the_region_too_and_several_lives_follow_each_other() {
    let mut publisher = Publisher::new(&kept(0));
    let mut session = publisher.receiver(Policy::Conflate, &Interest::All);
    let identity = session.endpoint().life().region;
    for life in 1..5 {
        publisher.publish([0, 1, 0]);
        publisher.fabric.close(publisher.now, Farewell::Closing);
        assert_eq!(drain(&mut session).len(), 3);
        assert_eq!(session.state(), ChannelState::Closed);
        publisher = succeed(publisher, life);
        session = follow(&mut publisher, Policy::Conflate, session.endpoint().life());
        assert!(session.endpoint().is_continued());
        assert_eq!(session.state(), ChannelState::Running);
        assert_eq!(
            session.endpoint().life(),
            RegionLife { region: identity, epoch: Epoch(EPOCH.0 + life) }
        );
    }
    assert_eq!(RegionIdentity::of(publisher.kept.unwrap()).unwrap(), identity);
}

#[test]
fn a_session_of_the_same_life_begins_afresh() {
    let mut publisher = Publisher::new(&kept(0));
    publisher.publish([0, 0]);
    let before = publisher.receiver(Policy::Conflate, &Interest::All);
    let mut again = follow(&mut publisher, Policy::Conflate, before.endpoint().life());
    assert!(!again.endpoint().is_continued());
    assert_eq!(drain(&mut again), [Seen::initial(0, 2)]);
    let mut other = Publisher::new(&kept(1));
    other.publish([0, 0]);
    let mut again = follow(&mut other, Policy::Conflate, before.endpoint().life());
    assert!(!again.endpoint().is_continued(), "another region");
    assert_eq!(drain(&mut again), [Seen::initial(0, 2)]);
}

#[test]
fn a_region_that_does_not_fit_is_refused_with_the_reason_and_left_alone() {
    let mut first = Publisher::new(&kept(0));
    let mut old = first.receiver(Policy::Conflate, &Interest::All);
    let kept_file = || first.kept.as_ref().unwrap().try_clone().unwrap();
    let refused = |file, config| Publisher::resume(file, &config).map(|_| ()).unwrap_err();
    let layout = ShmConfig { instruments: 65, ..kept(1) };
    assert!(matches!(refused(kept_file(), layout), ResumeError::Memory(MappingError::Kept { .. })));
    // As many bytes in all, but otherwise divided.
    let text = refused(kept_file(), kept(0)).to_string();
    assert!(text.contains("epoch"), "{text}");
    let read_only = first.host.region_file().as_fd().try_clone_to_owned().unwrap();
    assert!(matches!(refused(read_only, kept(1)), ResumeError::Memory(_)));
    let anything = memfd_create("other", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&anything, kept(0).needed_bytes().unwrap()).unwrap();
    let unsealed = refused(anything.try_clone().unwrap(), kept(1));
    assert!(matches!(unsealed, ResumeError::Memory(MappingError::NotSealed { .. })), "{unsealed}");
    fcntl_add_seals(&anything, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    let empty = refused(anything, kept(1)).to_string();
    assert!(empty.contains("not a tapecast region"), "{empty}");
    first.publish([0]);
    assert_eq!(drain(&mut old), [Seen::initial(0, 1)]);
    assert_eq!(old.state(), ChannelState::Running);
}

#[test]
fn a_session_that_is_opened_only_after_the_next_life_has_begun_is_refused() {
    let mut first = Publisher::new(&kept(0));
    first.publish([0]);
    let descriptors = first.attach(Policy::Conflate).1.into_vec();
    let _second = succeed(first, 1);
    let opened = ShmEndpoint::open(descriptors, Policy::Conflate, WaitStrategy::Block);
    assert!(matches!(opened, Err(OpenError::Epoch { .. })), "{opened:?}");
}

#[test]
fn a_region_that_nobody_may_write_any_more_cannot_be_taken_over() {
    let first = Publisher::new(&ShmConfig { sealing: Sealing::FutureWrite, ..kept(0) });
    let refused = Publisher::resume(crash(first), &kept(1)).map(|_| ()).unwrap_err();
    assert!(matches!(refused, ResumeError::Memory(_)), "{refused}");
}

#[test]
fn without_keeping_there_is_no_descriptor_to_keep() {
    let mut publisher = Publisher::new(&small());
    assert!(publisher.kept.is_none());
    let (_, descriptors) = publisher.attach(Policy::Lossless);
    let mut lent = open(descriptors, Policy::Lossless, WaitStrategy::Block, &Interest::All);
    publisher.publish([0]);
    assert_eq!(drain(&mut lent), [Seen::initial(0, 1)]);
}
