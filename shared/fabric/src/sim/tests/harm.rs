//! What a harmed or hostile subscriber costs: itself.

use super::*;

#[test]
fn a_killed_subscriber_is_evicted_flushed_and_harms_nobody() {
    let mut network = Network::new(&config());
    let mut dead = network.join(Policy::Lossless);
    let mut alive = network.join(Policy::Lossless);
    network.settle(&mut [&mut dead, &mut alive]);
    dead.faults.kill();
    for _ in 0..50 {
        network.publish_patiently(A, &mut alive);
    }
    network.settle(&mut [&mut alive]);
    assert_eq!(dead.evictions(&network), [Eviction::Unreachable]);
    assert_eq!(alive.receiver.totals().delivered, 50);
    assert_eq!(network.fabric.outstanding(), 0);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
    assert!(network.fabric.detach(dead.id).is_some());
}

#[test]
fn a_failed_write_flushes_every_outstanding_one_and_the_subscriber_is_told() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    network.publish(A);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.delay_completions(1000);
    for _ in 0..12 {
        network.publish(A);
        network.turn();
    }
    subscriber.faults.fail_next_write();
    network.publish(A);
    for _ in 0..10 {
        network.turn();
    }
    assert_eq!(subscriber.evictions(&network), [Eviction::Unreachable]);
    assert_eq!(network.fabric.outstanding(), 0);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
    let polled = core::iter::repeat_with(|| subscriber.poll(network.now));
    let end = polled.take(64).find(Result::is_err);
    assert!(matches!(end, Some(Err(PollError::Evicted { .. }))), "{end:?}");
    assert_eq!(subscriber.seen.len(), 13, "what had arrived is delivered before");
}

#[test]
fn a_lying_cursor_evicts_the_liar_and_nobody_else() {
    let mut network = Network::new(&config());
    let mut honest = network.join(Policy::Conflate);
    let mut liar = network.join(Policy::Lossless);
    network.settle(&mut [&mut honest, &mut liar]);
    let (sent, said) = (network.fabric.session_stats(liar.id).unwrap().consumed, Position(1 << 40));
    liar.faults.claim_consumed(said);
    network.turn();
    let lie = Liar::ConsumedAhead { sent, said };
    assert_eq!(liar.evictions(&network), [Eviction::Liar(lie)]);
    assert_eq!(network.fabric.session_stats(liar.id).unwrap().faults, 1);
    for _ in 0..200 {
        assert!(network.publish(A), "a liar gates nobody");
        network.turn();
        honest.poll(network.now).unwrap();
    }
    network.settle(&mut [&mut honest]);
    assert_eq!(honest.receiver.totals().delivered, 200);
    assert_eq!(network.fabric.session_stats(honest.id).unwrap().faults, 0);
}

#[test]
fn a_cursor_that_goes_back_evicts() {
    let mut network = Network::new(&config());
    let mut liar = network.join(Policy::Conflate);
    network.publish(A);
    network.settle(&mut [&mut liar]);
    liar.faults.claim_consumed(Position(0));
    network.turn();
    let evictions = liar.evictions(&network);
    let is_backwards = |why: &Eviction| {
        matches!(why, Eviction::Liar(Liar::ConsumedBackwards { said: Position(0), .. }))
    };
    assert!(evictions.iter().all(is_backwards) && evictions.len() == 1, "{evictions:?}");
}

#[test]
fn receives_that_were_never_posted_evict_the_one_who_claims_them() {
    let mut config = config();
    config.receive_depth = 2;
    let mut network = Network::new(&config);
    let mut liar = network.join(Policy::Conflate);
    network.settle(&mut [&mut liar]);
    liar.faults.pause();
    // Within what its queue could hold, so it is believed, and found out when a write arrives.
    for extra in 1..8 {
        let posted = network.fabric.session_stats(liar.id).map(|_| extra);
        liar.faults.claim_receives(posted.unwrap() + 4);
        network.publish(A);
        network.turn();
    }
    network.settle(&mut []);
    let evictions = liar.evictions(&network);
    assert_eq!(evictions.len(), 1, "{evictions:?}");
    assert_eq!(network.fabric.outstanding(), 0);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
}

#[test]
fn a_silent_lossless_subscriber_is_evicted_and_a_conflating_one_is_not() {
    let mut network = Network::new(&config());
    let mut strict = network.join(Policy::Lossless);
    let mut patient = network.join(Policy::Conflate);
    network.settle(&mut [&mut strict, &mut patient]);
    strict.faults.pause();
    patient.faults.pause();
    network.turn();
    network.now.0 += config().lossless_silence_limit.0 - TURN_NS;
    network.turn();
    assert!(strict.evictions(&network).is_empty(), "silent for just as long as it may be");
    network.turn();
    assert!(matches!(strict.evictions(&network)[..], [Eviction::Silent { .. }]));
    assert!(patient.evictions(&network).is_empty());
    assert!(network.publish(A));
}

#[test]
fn a_connection_that_breaks_after_the_end_was_told_is_no_failure() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.publish(A);
    network.fabric.close(network.now, tapecast_wire::attach::Farewell::Closing);
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.receiver.state(), ChannelState::Closed);
    assert!(network.fabric.detach(subscriber.id).is_some(), "this breaks it off");
    assert_eq!(subscriber.poll(network.now), Ok(0));
    assert!(!subscriber.receiver.is_ready());
    assert_eq!(subscriber.seen, [(0, 1)]);
}
