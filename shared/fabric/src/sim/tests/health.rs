//! Sessions, pages and completions while nobody harms anybody.

use super::*;

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let trace = |seed| {
        let mut config = config();
        config.seed = seed;
        config.execute_ticks_max = 9;
        let mut network = Network::new(&config);
        let mut subscriber = network.join(Policy::Conflate);
        let mut trace = Vec::new();
        for nth in 0..200 {
            network.publish(InstrumentId(nth % 2));
            network.turn();
            trace.push(subscriber.poll(network.now).unwrap());
        }
        trace
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

#[test]
fn numbers_that_make_no_network_are_refused() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let refused = |change: fn(&mut SimConfig)| {
        let mut config = config();
        change(&mut config);
        SimHost::create(&config, pool.clone()).unwrap_err()
    };
    assert!(matches!(refused(|c| c.ring_bytes = 4096), SimError::Window(_)));
    assert!(matches!(refused(|c| c.gather = MAX_GATHER as u32 + 1), SimError::Gather { .. }));
    assert!(matches!(refused(|c| c.signal_every = c.send_depth / 2 + 1), SimError::Signal { .. }));
    assert!(matches!(refused(|c| c.signal_every = 0), SimError::Signal { .. }));
    let many = |c: &mut SimConfig| c.instruments = MAX_INSTRUMENTS + 1;
    assert!(matches!(refused(many), SimError::Shape { .. }));
}

#[test]
fn a_ticket_that_was_not_attached_opens_nothing() {
    let network = Network::new(&config());
    let (_session, ticket) = network.host.prepare(Policy::Conflate, &Interest::All).unwrap();
    assert!(SimEndpoint::open(ticket).is_err());
}

#[test]
fn a_page_stays_out_until_a_completion_is_polled_and_then_returns() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.delay_completions(50);
    network.publish(A);
    network.page = None;
    for _ in 0..10 {
        network.turn();
        subscriber.poll(network.now).unwrap();
    }
    assert_eq!(subscriber.seen, [(0, 1)], "it has arrived");
    assert_eq!(network.pool.free_pages(), network.pool.pages() - 1, "and is not retired");
    for _ in 0..50 {
        network.turn();
    }
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
}

#[test]
fn late_completions_cost_send_queue_places_and_nothing_else() {
    let mut config = config();
    (config.send_depth, config.signal_every) = (4, 2);
    let mut network = Network::new(&config);
    let mut slow = network.join(Policy::Conflate);
    let mut quick = network.join(Policy::Conflate);
    network.settle(&mut [&mut slow, &mut quick]);
    slow.faults.delay_completions(40);
    for _ in 0..100 {
        network.publish(A);
        network.turn();
        slow.poll(network.now).unwrap();
        quick.poll(network.now).unwrap();
    }
    slow.faults.delay_completions(0);
    network.settle(&mut [&mut slow, &mut quick]);
    assert_eq!(quick.receiver.totals().delivered, 100);
    let totals = slow.receiver.totals();
    assert!(totals.conflated > 0, "{totals:?}");
    assert_eq!(totals.published, 100);
    assert_eq!(slow.seen.last(), Some(&(0, 100)));
    assert_eq!(network.fabric.sent(slow.id, A).unwrap().conflated, totals.conflated);
}

#[test]
fn each_session_shows_how_full_its_own_send_queue_is_and_was() {
    let mut config = config();
    (config.send_depth, config.signal_every) = (4, 2);
    let mut network = Network::new(&config);
    let (session, ticket) = network.host.prepare(Policy::Conflate, &Interest::All).unwrap();
    let monitor = session.monitor();
    let id = network.fabric.attach(session).unwrap();
    let endpoint = SimEndpoint::open(ticket).unwrap();
    let faults = endpoint.faults();
    let receiver = Receiver::new(endpoint, &Interest::All);
    let mut slow = Subscriber { id, receiver, faults, seen: Vec::new() };
    let mut quick = network.join(Policy::Conflate);
    network.settle(&mut [&mut slow, &mut quick]);
    slow.faults.delay_completions(1_000);
    for _ in 0..20 {
        network.publish(A);
        network.turn();
        slow.poll(network.now).unwrap();
        quick.poll(network.now).unwrap();
    }
    let full = SendQueueStats { outstanding: 4, high_water: 4 };
    assert_eq!(monitor.stats().send_queue, Some(full));
    let other = network.fabric.session_stats(quick.id).unwrap().send_queue.unwrap();
    assert!(other.outstanding < 4, "nothing holds this one up: {other:?}");
    slow.faults.delay_completions(0);
    network.settle(&mut [&mut slow, &mut quick]);
    let rested = monitor.stats().send_queue.unwrap();
    assert!(rested.outstanding < 4, "{rested:?}");
    assert_eq!(rested.high_water, 4, "it stays");
}

#[test]
fn a_paused_subscriber_takes_writes_and_goes_on_where_it_was() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.pause();
    for _ in 0..500 {
        network.publish(A);
        network.turn();
        assert_eq!(subscriber.poll(network.now), Ok(0));
    }
    network.settle(&mut []);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages(), "writes complete all the same");
    subscriber.faults.resume();
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.seen.first(), Some(&(0, 1)));
    assert_eq!(subscriber.seen.last(), Some(&(0, 500)));
    assert_eq!(subscriber.receiver.totals().published, 500);
}

#[test]
fn in_health_no_immediate_ever_finds_an_empty_receive_queue() {
    let mut config = config();
    (config.receive_depth, config.gather) = (3, 1);
    let mut network = Network::new(&config);
    let mut subscriber = network.join(Policy::Lossless);
    for nth in 0..2000_u32 {
        network.publish_patiently(InstrumentId(nth % 2), &mut subscriber);
    }
    network.settle(&mut [&mut subscriber]);
    assert_eq!(network.fabric.receiver_not_ready(), 0);
    assert_eq!(subscriber.receiver.totals().delivered, 2000);
}

#[test]
fn a_subscriber_is_never_sent_what_it_was_not_granted_whatever_it_asks_for_later() {
    let mut network = Network::new(&config());
    let symbols = ["SYM0".to_owned()];
    let only = Interest::Only(vec![A]);
    let wish = Wish {
        policy: Policy::Conflate,
        interest: &only,
        symbols: Some(&symbols),
        min_interval: Nanos(0),
        offer: None,
    };
    let prepared = network.host.prepare_for(&wish);
    let (session, ticket) = prepared.unwrap();
    let id = network.fabric.attach(session).unwrap();
    let endpoint = SimEndpoint::open(ticket).unwrap();
    let faults = endpoint.faults();
    let receiver = Receiver::new(endpoint, &only);
    let mut subscriber = Subscriber { id, receiver, faults, seen: Vec::new() };
    network.publish(InstrumentId(1));
    network.settle(&mut [&mut subscriber]);
    assert!(subscriber.receiver.watch(InstrumentId(1)));
    network.settle(&mut [&mut subscriber]);
    network.publish(InstrumentId(1));
    network.publish(A);
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.seen, [(0, 1)]);
    assert_eq!(network.fabric.session_stats(id).unwrap().faults, 1);
}

#[test]
fn a_lagging_session_is_told_of_the_end_after_its_last_snapshot() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.pause();
    for nth in 0..200 {
        network.publish(InstrumentId(nth % 2));
        network.turn();
    }
    network.fabric.close(network.now, tapecast_wire::attach::Farewell::Closing);
    network.settle(&mut []);
    assert_eq!(subscriber.receiver.state(), ChannelState::Closing);
    subscriber.faults.resume();
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.receiver.state(), ChannelState::Closed);
    assert_eq!(subscriber.seen.iter().filter(|seen| seen.1 == 100).count(), 2);
}
