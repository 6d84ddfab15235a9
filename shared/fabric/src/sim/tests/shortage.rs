//! What is done while pages or credit are short.

use super::*;

#[test]
fn without_a_free_page_the_backlog_waits_and_nothing_is_lost() {
    let mut network = Network::new(&config());
    network.publish(A);
    network.settle(&mut []);
    network.page = None;
    let hoard: Vec<_> = core::iter::from_fn(|| network.pool.loan()).collect();
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    assert!(subscriber.seen.is_empty(), "its image needs a page");
    assert_eq!(subscriber.receiver.instrument_count(), 0, "and so does the directory");
    drop(hoard);
    network.settle(&mut [&mut subscriber]);
    assert_eq!(subscriber.seen, [(0, 1)]);
}

#[test]
fn peers_that_do_not_acknowledge_leave_a_quarter_of_the_pool_to_the_feed() {
    let mut network = Network::new(&config());
    let mut healthy = network.join(Policy::Conflate);
    // Each wants another instrument, so that between them no page is shared.
    let mut silent = [0, 1].map(|id| network.join_for(Interest::Only(vec![InstrumentId(id)])));
    let [first, second] = &mut silent;
    network.settle(&mut [&mut healthy, first, second]);
    first.faults.delay_completions(1_000_000);
    second.faults.delay_completions(1_000_000);
    let mut fewest = network.pool.pages();
    for nth in 0..300 * 16 {
        network.publish(InstrumentId(nth % 2));
        // Every record in a page of its own: the worst there can be.
        network.page = None;
        fewest = fewest.min(network.pool.free_pages());
        if nth % 16 == 15 {
            network.turn();
            for subscriber in [&mut healthy, first, second] {
                subscriber.poll(network.now).unwrap();
            }
        }
    }
    assert!(fewest >= network.pool.pages() / 4, "{fewest} free");
    assert!(fewest < network.pool.pages() / 2, "{fewest} free: the pool was never short");
    first.faults.delay_completions(0);
    second.faults.delay_completions(0);
    network.settle(&mut [&mut healthy, first, second]);
    assert_eq!(network.free_pages_at_rest(), network.pool.pages());
    let totals = healthy.receiver.totals();
    assert_eq!((totals.published, totals.lost), (4800, 0));
    for subscriber in [first, second] {
        let totals = subscriber.receiver.totals();
        assert_eq!((totals.published, totals.lost), (2400, 0));
        assert_eq!(subscriber.seen.last().map(|seen| seen.1), Some(2400));
    }
}

#[test]
fn a_feed_that_queues_much_does_not_make_those_conflate_who_keep_up() {
    let mut config = config();
    config.ring_bytes = 256 << 10;
    let mut network = Network::new(&config);
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    let queued: Vec<_> = (0..600).map(|_| network.pool.loan().unwrap()).collect();
    for nth in 0..300 * 16 {
        assert!(network.publish(InstrumentId(nth % 2)));
        if nth % 16 == 15 {
            network.turn();
            subscriber.poll(network.now).unwrap();
        }
    }
    network.settle(&mut [&mut subscriber]);
    let totals = subscriber.receiver.totals();
    assert_eq!((totals.delivered, totals.conflated), (4800, 0));
    drop(queued);
}

#[test]
fn one_that_was_idle_since_pages_were_short_before_is_not_taken_for_gone() {
    let mut config = config();
    config.ring_bytes = 256 << 10;
    (config.execute_ticks_max, config.complete_ticks_max) = (0, 0);
    let mut network = Network::new(&config);
    let mut subscriber = network.join(Policy::Conflate);
    let hoard =
        |network: &Network| -> Vec<_> { (0..600).map(|_| network.pool.loan().unwrap()).collect() };
    let queued = hoard(&network);
    network.settle(&mut [&mut subscriber]);
    drop(queued);
    network.settle(&mut [&mut subscriber]);
    network.now.0 += 1_000_000_000;
    // Less than what counts as standing still, and more than one look.
    subscriber.faults.delay_completions(3);
    let queued = hoard(&network);
    for _ in 0..10 {
        (0..16).for_each(|_| assert!(network.publish(A)));
        network.turn();
    }
    drop(queued);
    network.settle(&mut [&mut subscriber]);
    let totals = subscriber.receiver.totals();
    assert_eq!((totals.delivered, totals.conflated), (160, 0));
}

#[test]
fn credit_that_is_late_costs_room_and_nothing_else() {
    let mut network = Network::new(&config());
    let mut subscriber = network.join(Policy::Conflate);
    network.settle(&mut [&mut subscriber]);
    subscriber.faults.delay_credit(30);
    for _ in 0..200 {
        network.publish(A);
        network.turn();
        subscriber.poll(network.now).unwrap();
    }
    let late = subscriber.receiver.totals();
    assert!(late.conflated > 0, "{late:?}");
    subscriber.faults.delay_credit(0);
    network.settle(&mut [&mut subscriber]);
    let totals = subscriber.receiver.totals();
    assert_eq!((totals.published, totals.lost), (200, 0));
    assert_eq!(subscriber.seen.last(), Some(&(0, 200)));
    let stats = network.fabric.session_stats(subscriber.id).unwrap();
    assert_eq!((stats.lag_bytes, stats.faults), (0, 0));
}
