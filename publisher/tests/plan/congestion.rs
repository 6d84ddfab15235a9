//! Queues, marks, pauses, and what congestion notifications do to a queue pair.

use tapecast_publisher::plan::dcqcn::{
    FluidModel, Incast, MarkingCurve, ReactionPoint, SharedBuffer, marking_curves,
};

const FULL_PAGE: u32 = 4198;

fn fan_out(behind_port: u32, port_gbps: f64) -> Incast {
    Incast {
        publishers: 1,
        subscribers: 64,
        behind_port,
        publisher_gbps: 100.0,
        port_gbps,
        wire_bytes: FULL_PAGE,
        spacing_ns: wire_ns(FULL_PAGE, 100.0),
    }
}

fn wire_ns(wire_bytes: u32, gbps: f64) -> f64 {
    f64::from(wire_bytes) * 8.0 / gbps
}

fn queue_kb(incast: Incast) -> String {
    format!("{:.1}", incast.backlog().port_bytes / 1e3)
}

#[test]
fn a_burst_to_slower_ports_queues_what_does_not_drain_meanwhile() {
    assert_eq!(queue_kb(fan_out(1, 25.0)), "3.1");
    assert_eq!(queue_kb(fan_out(8, 25.0)), "25.2");
    assert_eq!(queue_kb(fan_out(64, 25.0)), "201.5");
    assert_eq!(queue_kb(fan_out(1, 100.0)), "0.0");
    assert_eq!(queue_kb(fan_out(1, 400.0)), "0.0", "a faster port queues nothing");
}

#[test]
fn publishers_in_step_queue_all_but_one_copy() {
    let in_step = |publishers| Incast { publishers, ..fan_out(1, 100.0) };
    assert_eq!(queue_kb(in_step(8)), "29.4");
    assert_eq!(queue_kb(in_step(37)), "151.1");
}

/// Plays the burst in small steps of time: each copy comes in its turn, at line rate and then not
/// at all until the next, while every port drains.
fn played(incast: Incast) -> (f64, f64) {
    const STEPS: u32 = 2000;
    let ports = incast.subscribers.div_ceil(incast.behind_port) as usize;
    let step_ns = incast.spacing_ns / f64::from(STEPS);
    let copy_ns = wire_ns(incast.wire_bytes, incast.publisher_gbps);
    let arrives = f64::from(incast.publishers) * incast.publisher_gbps * step_ns / 8.0;
    let leaves = incast.port_gbps * step_ns / 8.0;
    let mut queues = vec![0.0_f64; ports];
    let (mut port_max, mut all_max) = (0.0_f64, 0.0_f64);
    for copy in 0..incast.subscribers {
        for step in 0..STEPS {
            if f64::from(step) * step_ns < copy_ns {
                queues[(copy / incast.behind_port) as usize] += arrives;
            }
            queues.iter_mut().for_each(|queue| *queue = (*queue - leaves).max(0.0));
            port_max = queues.iter().copied().fold(port_max, f64::max);
            all_max = all_max.max(queues.iter().sum());
        }
    }
    (port_max, all_max / f64::from(incast.publishers))
}

fn assert_as_played(incast: Incast) {
    let (port_bytes, publisher_bytes) = played(incast);
    let backlog = incast.backlog();
    // A step brings a thousandth of a copy of each publisher, and never more than a few bytes.
    let near = |a: f64, b: f64| (a - b).abs() <= 0.005 * b + 0.5;
    assert!(near(backlog.port_bytes, port_bytes), "{incast:?} {backlog:?} {port_bytes}");
    assert!(
        near(backlog.publisher_bytes, publisher_bytes),
        "{incast:?} {backlog:?} {publisher_bytes}"
    );
}

#[test]
fn the_largest_queues_are_those_of_a_burst_that_is_played() {
    for (behind_port, port_gbps, publishers) in
        [(1, 25.0, 1), (4, 25.0, 1), (8, 10.0, 1), (64, 25.0, 1), (1, 100.0, 3), (5, 40.0, 2)]
    {
        assert_as_played(Incast { publishers, ..fan_out(behind_port, port_gbps) });
    }
}

#[test]
fn they_are_also_where_copies_come_slower_than_the_line_is() {
    for (wire_bytes, behind_port, port_gbps, publishers) in [
        (358, 64, 40.0, 1),
        (358, 64, 25.0, 1),
        (166, 64, 25.0, 1),
        (358, 8, 25.0, 1),
        (358, 7, 10.0, 1),
        (614, 1, 25.0, 4),
        (614, 6, 40.0, 2),
    ] {
        let burst = Incast { wire_bytes, publishers, ..fan_out(behind_port, port_gbps) };
        assert_as_played(Incast { spacing_ns: 80.0, ..burst });
    }
}

/// 358 bytes each 80 ns are 35.8 Gb/s, 166 bytes are 16.6 Gb/s.
#[test]
fn a_port_that_keeps_up_with_posting_queues_a_part_of_one_copy() {
    let queue = |wire_bytes, port_gbps| {
        let burst = Incast { wire_bytes, spacing_ns: 80.0, ..fan_out(64, port_gbps) };
        format!("{:.1}", burst.backlog().port_bytes)
    };
    assert_eq!(queue(358, 40.0), "214.8");
    assert_eq!(queue(166, 25.0), "124.5");
    assert_eq!(queue(358, 25.0), "7072.5", "and one that does not, what is left each time");
}

#[test]
fn the_papers_switch_pauses_from_24_47_kb_and_marks_first_below_21_75_kb() {
    let switch = SharedBuffer::PAPER;
    assert!((switch.pause_bytes() - 24_475.0).abs() < 1.0, "{}", switch.pause_bytes());
    let least = switch.marks_first_below_bytes();
    assert!((least - 21_755.6).abs() < 1.0, "{least}");
}

#[test]
fn a_marking_curve_marks_nothing_below_kmin_and_everything_above_kmax() {
    let curve = marking_curves(40.0)[0];
    assert_eq!(curve.marked(5_000.0), Some(0.0));
    assert_eq!(curve.marked(102_500.0), Some(0.005));
    assert_eq!(curve.marked(200_001.0), Some(1.0));
    let untold = MarkingCurve { pmax: None, ..curve };
    assert_eq!(untold.marked(102_500.0), None);
    assert_eq!(untold.queue_at(0.001), None);
}

#[test]
fn hpccs_thresholds_grow_with_the_port() {
    for (gbps, kmin, kmax) in [(25.0, 100e3, 400e3), (50.0, 200e3, 800e3), (100.0, 400e3, 1600e3)] {
        let curve = marking_curves(gbps)[3];
        assert_eq!((curve.kmin_bytes, curve.kmax_bytes), (kmin, kmax));
    }
}

fn assert_close(value: f64, expected: f64, digits: f64, what: &str) {
    assert!((value - expected).abs() <= digits, "{what}: {value}, expected {expected}");
}

#[test]
fn long_transfers_settle_at_the_fixed_point_of_the_papers_parameters() {
    for (flows, marked, about, queue_kb, alpha, rate, target) in [
        (2, 7.7699e-4, 9.2469e-4, 20.15, 0.10136, 20.0, 20.218),
        (4, 1.88767e-3, 2.31952e-3, 41.81, 0.12182, 10.0, 10.160),
        (8, 4.55211e-3, 5.83151e-3, 93.77, 0.14516, 5.0, 5.115),
        (10, 6.03196e-3, 7.84866e-3, 122.62, 0.15328, 4.0, 4.103),
    ] {
        let point = FluidModel::paper(40.0).fixed_point(flows);
        let what = format!("{flows} flows");
        assert_close(point.marked, marked, 6e-9, &what);
        assert_close(point.marked_approximately, about, 6e-9, &what);
        assert_close(point.alpha, alpha, 6e-6, &what);
        assert_close(point.rate_gbps, rate, 1e-9, &what);
        assert_close(point.target_gbps, target, 6e-4, &what);
        let queue = marking_curves(40.0)[0].queue_at(point.marked).unwrap();
        assert_close(queue / 1e3, queue_kb, 6e-3, &what);
    }
}

#[test]
fn at_100g_the_fixed_point_lies_lower() {
    let paper = marking_curves(100.0)[0];
    for (flows, queue_kb) in [(2, 9.65), (10, 41.81), (32, 165.4)] {
        let point = FluidModel::paper(100.0).fixed_point(flows);
        let queue = paper.queue_at(point.marked).unwrap();
        assert_close(queue / 1e3, queue_kb, 0.05, &format!("{flows} flows"));
    }
    assert_close(FluidModel::paper(100.0).fixed_point(2).marked, 2.38717e-4, 6e-10, "marked");
}

#[test]
fn sixteen_transfers_at_40g_are_beyond_the_curve() {
    let point = FluidModel::paper(40.0).fixed_point(16);
    assert!(point.marked > 0.01);
    assert_eq!(marking_curves(40.0)[0].queue_at(point.marked), None);
}

#[test]
fn the_fixed_point_balances_cuts_and_raises() {
    let model = FluidModel::paper(40.0);
    for flows in [2, 5, 10, 30] {
        let point = model.fixed_point(flows);
        // From dR_T/dt = 0 and dR_C/dt = 0, with the rates in packets per second.
        let packets = |gbps: f64| gbps * 1e9 / 8000.0;
        let (rate, target) = (packets(point.rate_gbps), packets(point.target_gbps));
        let unmarked = 1.0 - point.marked;
        let cut = 1.0 - unmarked.powf(50e-6 * rate);
        let raises = |packets: f64| point.marked / (unmarked.powf(-packets) - 1.0);
        let (bytes, timer) = (10_000.0, 55e-6 * rate);
        let raise = raises(bytes) + raises(timer);
        let falls = rate * point.alpha * cut / (2.0 * 50e-6);
        let rises = (target - rate) / 2.0 * rate * raise;
        assert!((falls / rises - 1.0).abs() < 1e-6, "{flows}: {falls} {rises}");
        let raised =
            raises(bytes) * unmarked.powf(5.0 * bytes) + raises(timer) * unmarked.powf(5.0 * timer);
        let (down, up) = ((target - rate) * cut / 50e-6, 5_000.0 * rate * raised);
        assert!((down / up - 1.0).abs() < 1e-6, "{flows}: {down} {up}");
    }
}

#[test]
fn a_train_of_notifications_cuts_a_queue_pair_to_a_fraction_of_the_line() {
    let card = ReactionPoint::connectx(100.0);
    for (train_us, share) in [(4.0, "51.0"), (20.0, "7.2"), (40.0, "0.4")] {
        let after = card.after_train(train_us);
        assert_eq!(format!("{:.1}", after.lowest_share * 100.0), share, "{train_us} µs");
    }
    let after = card.after_train(40.0);
    assert_eq!(format!("{:.0}", after.lowest_mbps), "357");
    assert_eq!(format!("{:.0}", after.at_lowest_us(FULL_PAGE)), "94");
    assert_eq!(card.after_train(4.0).notifications, 1);
    assert_eq!(card.after_train(40.0).notifications, 10);
}

#[test]
fn a_long_train_leaves_the_lowest_rate_that_is_configured() {
    let card = ReactionPoint::connectx(100.0);
    for train_us in [100.0, 200.0, 1000.0] {
        let after = card.after_train(train_us);
        assert_eq!(after.lowest_mbps, 1.0);
        assert_eq!(format!("{:.1}", after.at_lowest_us(FULL_PAGE) / 1e3), "33.6");
        let raised = ReactionPoint { min_mbps: 1700.0, ..card }.after_train(train_us);
        assert_eq!(raised.lowest_mbps, 1700.0);
        assert!(raised.at_lowest_us(FULL_PAGE) < 20.0);
    }
}

#[test]
fn a_rate_comes_back_within_two_milliseconds_whatever_the_train_was() {
    let card = ReactionPoint::connectx(100.0);
    for train_us in [20.0, 40.0, 100.0, 200.0] {
        let recovery = card.after_train(train_us).recovery;
        let near = |time: Option<f64>, us: f64| (time.unwrap() - us).abs() < 1.0;
        assert!(near(recovery.half_us, 296.0), "{recovery:?}");
        assert!(near(recovery.ninety_us, 1196.0), "{recovery:?}");
        assert!(near(recovery.ninety_nine_us, 2096.0), "{recovery:?}");
    }
    let alone = card.after_train(4.0).recovery;
    assert_eq!(alone.half_us, Some(0.0), "one notification leaves more than one half");
    assert_eq!(format!("{:.1}", alone.ninety_us.unwrap() / 1e3), "0.9");
    assert_eq!(format!("{:.1}", alone.ninety_nine_us.unwrap() / 1e3), "1.8");
}

#[test]
fn a_clamped_target_makes_recovery_take_tenths_of_a_second() {
    let clamped = |gbps, train_us| {
        let card = ReactionPoint { clamps_target: true, ..ReactionPoint::connectx(gbps) };
        card.after_train(train_us).recovery
    };
    for train_us in [20.0, 100.0] {
        let recovery = clamped(25.0, train_us);
        let (half, ninety) = (recovery.half_us.unwrap(), recovery.ninety_us.unwrap());
        assert!((55_000.0..=76_500.0).contains(&half), "{train_us}: {recovery:?}");
        assert!((115_000.0..=136_500.0).contains(&ninety), "{train_us}: {recovery:?}");
        assert!(clamped(100.0, train_us).half_us.is_none_or(|us| us > 200_000.0));
    }
}

#[test]
fn alpha_stays_while_every_update_sees_a_notification_and_fades_when_none_does() {
    let card = ReactionPoint { initial_alpha: 1.0, ..ReactionPoint::connectx(100.0) };
    let slow_alpha = ReactionPoint { alpha_interval_ns: card.cnp_interval_ns, ..card };
    // The first cut comes just after the second notification, and stands for both.
    let after = slow_alpha.after_train(40.0);
    assert_eq!(after.notifications, 10);
    assert_close(after.lowest_share, 0.5_f64.powi(9), 1e-12, "nine cuts of one half");
    // One alone: four idle updates before the cut leave (1 - g)^4.
    let alpha = (1.0 - card.gain).powi(4);
    assert_close(card.after_train(4.0).lowest_share, 1.0 - alpha / 2.0, 1e-12, "one cut");
}

/// Raises halve the gap to the target, which nothing has lowered.
#[test]
fn each_raise_leaves_half_the_gap() {
    let card = ReactionPoint { fast_recovery: 31, ..ReactionPoint::connectx(100.0) };
    let after = card.after_train(4.0);
    let gap = 1.0 - after.lowest_share;
    // Half of the line is exceeded before the first raise; the k-th leaves gap / 2^k.
    let raises = (gap / 0.01).log2().ceil();
    let expected = raises * 300.0;
    let took = after.recovery.ninety_nine_us.unwrap();
    assert!((took - expected).abs() < 1.0, "{took} {expected}");
}

#[test]
fn the_next_snapshot_is_late_by_what_the_lowest_rate_takes_longer() {
    let after = ReactionPoint::connectx(100.0).after_train(40.0);
    let rarely = after.lateness(FULL_PAGE, 100.0);
    let slow_us = after.at_lowest_us(FULL_PAGE) - f64::from(FULL_PAGE) * 8.0 / 1e5;
    assert_close(rarely.first_us, slow_us, 1e-6, "alone");
    assert_eq!((rarely.late, rarely.waiting_max), (1, 1));
    let often = after.lateness(FULL_PAGE, 20_000.0);
    assert!(often.worst_us > rarely.worst_us && often.waiting_max > 1, "{often:?}");
    assert!(often.over_after_us.unwrap() > 296.0, "{often:?}");
}

#[test]
fn a_stopped_queue_pair_delivers_when_its_timer_raises_it() {
    let after = ReactionPoint::connectx(100.0).after_train(100.0);
    let next = after.lateness(FULL_PAGE, 1000.0);
    assert_close(next.first_us, 296.0, 1.0, "300 µs after the last cut");
    assert_eq!(next.late, 1);
}
