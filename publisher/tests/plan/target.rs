//! "1.8 µs on average, ± 0.5 µs": where it is possible, to the byte and the lane.

use tapecast_publisher::plan::target::{self, Reason, Remedies, Smaller, Verdict};
use tapecast_publisher::plan::{BaseLatency, Demand, Scenario};

use super::{alone, scenario};

fn holds(scenario: &Scenario) -> bool {
    target::holds(&alone(*scenario))
}

fn judge(scenario: &Scenario) -> Verdict {
    target::judge(&alone(*scenario))
}

fn with_lanes(lanes: u32, payload_bytes: u32, line_gbps: f64) -> Scenario {
    Scenario { lanes, ..scenario(payload_bytes, line_gbps) }
}

/// The mean allows 15.38 ns between copies, which are 192 bytes at 100 Gb/s; the skew 15.87 ns.
#[test]
fn at_100g_it_holds_up_to_192_bytes_on_the_wire() {
    assert!(holds(&with_lanes(8, 88, 100.0)));
    assert!(!holds(&with_lanes(8, 92, 100.0)));
    let at_96 = with_lanes(8, 96, 100.0).arrivals();
    assert!(at_96.skew_ns <= 1000.0 && at_96.mean_ns > 1800.0, "{at_96:?}");
    assert!(with_lanes(8, 97, 100.0).arrivals().skew_ns > 1000.0);
}

#[test]
fn at_200g_and_400g_it_holds_as_long_as_the_payload_stands_in_the_work_request() {
    for gbps in [200.0, 400.0] {
        assert!(holds(&with_lanes(8, 220, gbps)), "{gbps}");
        assert!(!holds(&with_lanes(64, 221, gbps)), "{gbps}");
    }
    let anyway = BaseLatency { inline_max_bytes: 4096, ..BaseLatency::OPTIMISTIC };
    let at = |payload| Scenario { base: anyway, ..with_lanes(64, payload, 200.0) };
    assert!(holds(&at(280)) && !holds(&at(284)), "the wire alone would allow 283 bytes");
}

#[test]
fn at_25g_and_with_4_kb_it_never_holds() {
    for payload in [1, 64, 220] {
        assert!(!holds(&with_lanes(64, payload, 25.0)), "{payload}");
    }
    for gbps in [25.0, 100.0, 200.0, 400.0] {
        assert!(!holds(&with_lanes(64, 4096, gbps)), "{gbps}");
        assert_eq!(judge(&with_lanes(1, 4096, gbps)).remedies.port_inline_gbps, None);
    }
}

#[test]
fn it_takes_4_6_7_or_10_lanes_by_what_a_post_costs() {
    for (post_ns, lanes) in [(60.0, 4), (80.0, 6), (100.0, 7), (150.0, 10)] {
        let asked = Scenario { post_ns, ..scenario(64, 200.0) };
        assert_eq!(judge(&asked).remedies.lanes, Some(lanes), "{post_ns} ns");
    }
}

#[test]
fn with_the_base_latency_of_cards_before_it_never_holds() {
    let base = BaseLatency { inline_ns: 1900.0, ..BaseLatency::OPTIMISTIC };
    for gbps in [25.0, 100.0, 200.0, 400.0] {
        let asked = Scenario { base, ..with_lanes(64, 64, gbps) };
        assert!(!holds(&asked), "{gbps}");
        assert_eq!(judge(&asked).remedies.smaller, None);
    }
}

#[test]
fn what_would_make_it_hold_does() {
    let asked = scenario(256, 100.0);
    let verdict = judge(&asked);
    assert!(!verdict.holds);
    assert_eq!(verdict.remedies.lanes, None, "more lanes alone do not");
    assert_eq!(verdict.remedies.smaller, Some(Smaller { payload_bytes: 88, lanes: 6 }));
    assert!(holds(&with_lanes(6, 88, 100.0)) && !holds(&with_lanes(5, 88, 100.0)));

    let asked = with_lanes(8, 128, 100.0);
    let remedies = judge(&asked).remedies;
    assert_eq!(remedies.port_gbps, Some(200.0));
    let most = remedies.subscribers.unwrap();
    assert!(holds(&Scenario { subscribers: most, ..asked }));
    assert!(!holds(&Scenario { subscribers: most + 1, ..asked }));

    let slow = BaseLatency { inline_ns: 1500.0, ..BaseLatency::OPTIMISTIC };
    let asked = Scenario { base: slow, ..with_lanes(8, 64, 100.0) };
    let base_ns = judge(&asked).remedies.base_ns.unwrap();
    let at = |inline_ns| Scenario { base: BaseLatency { inline_ns, ..slow }, ..asked };
    assert!(holds(&at(base_ns - 0.001)) && !holds(&at(base_ns + 0.001)));
}

#[test]
fn where_it_holds_nothing_has_to_change() {
    let verdict = judge(&with_lanes(8, 64, 100.0));
    assert!(verdict.holds);
    assert_eq!(verdict.remedies, Remedies::default());
    assert_eq!(verdict.reasons, []);
}

/// Eight lanes, 64 bytes inline at 100 Gb/s: 1.73 µs and 0.84 µs, were it not for the network.
fn fast() -> Demand {
    alone(with_lanes(8, 64, 100.0))
}

#[test]
fn a_queue_at_the_subscribers_port_can_take_it_beyond() {
    let together = Demand { behind_port: 64, port_gbps: 25.0, ..fast() };
    let verdict = target::judge(&together);
    // Each copy waits 39.84 ns more than the one before it: 166 bytes at 25 instead of 100 Gb/s.
    assert!((verdict.port_mean_ns - 39.84 * 65.0 / 2.0).abs() < 1e-6, "{verdict:?}");
    assert!((verdict.port_skew_ns - 39.84 * 63.0).abs() < 1e-6, "{verdict:?}");
    assert_eq!(verdict.reasons, [Reason::Mean, Reason::Skew, Reason::PortQueue]);
    // The mean leaves 68.4 ns, which the wait of two copies keeps within and that of three not.
    assert_eq!(verdict.remedies.behind_port, Some(2));
    assert!(target::holds(&Demand { behind_port: 2, ..together }));
    assert!(!target::holds(&Demand { behind_port: 3, ..together }));
    assert_eq!(verdict.remedies.subscriber_port_gbps, Some(100.0));
    assert_eq!(verdict.remedies.lanes, None);
}

#[test]
fn a_port_that_is_sent_more_than_it_carries_makes_it_impossible_even_where_no_burst_queues() {
    // One post each 500 ns lets the port drain between copies; two subscribers are near enough.
    let scenario = Scenario { subscribers: 2, post_ns: 500.0, ..scenario(64, 100.0) };
    let demand = Demand { publishers: 4, behind_port: 2, port_gbps: 25.0, ..alone(scenario) };
    // Eight copies of 166 bytes at 25 Gb/s take 424.96 ns.
    let most = (1e9_f64 / 424.96).floor();
    let at = |snapshots_per_s| Demand { snapshots_per_s, ..demand };
    assert!((at(most).port_share() - 1.0).abs() < 1e-6);
    assert!(at(most + 1.0).port_share() > 1.0);
    let verdict = target::judge(&at(most + 1.0));
    assert!(verdict.reasons.contains(&Reason::PortOverloaded), "{verdict:?}");
    assert!(!target::judge(&at(1e5)).reasons.contains(&Reason::PortOverloaded));
}

#[test]
fn a_rate_that_is_not_sustained_makes_it_impossible() {
    // 64 copies each 13.28 ns let 1,176,581 snapshots through.
    let verdict = target::judge(&Demand { snapshots_per_s: 1e7, ..fast() });
    assert!(!verdict.holds);
    assert_eq!(verdict.reasons, [Reason::NotSustained]);
    assert_eq!(verdict.remedies.snapshots_per_s, Some(1_176_581.0));
    assert!(target::holds(&Demand { snapshots_per_s: 1_176_581.0, ..fast() }));
    assert!(!target::holds(&Demand { snapshots_per_s: 1_176_582.0, ..fast() }));
    assert_eq!(verdict.remedies.base_ns, None, "a faster card does not mend a rate");
}

#[test]
fn publishers_in_step_can_take_it_beyond() {
    let verdict = target::judge(&Demand { publishers: 100, ..fast() });
    // Every copy waits for those of the others, so the mean alone suffers.
    assert_eq!(verdict.reasons, [Reason::Mean, Reason::PortQueue]);
    let most = verdict.remedies.publishers.unwrap();
    assert!(target::holds(&Demand { publishers: most, ..fast() }));
    assert!(!target::holds(&Demand { publishers: most + 1, ..fast() }));
}
