//! What must hold whatever is asked for.

use proptest::prelude::*;
use tapecast_publisher::plan::dcqcn::ReactionPoint;
use tapecast_publisher::plan::target::{Smaller, holds, judge};
use tapecast_publisher::plan::{BaseLatency, Demand, Scenario, wire_bytes};
use tapecast_wire::rdma::PathMtu;

fn path_mtu() -> impl Strategy<Value = PathMtu> {
    (1..=5_u8).prop_map(|code| PathMtu::from_code(code).unwrap())
}

prop_compose! {
    fn any_scenario()(
        (subscribers, lanes) in (1..=64_u32, 1..=64_u32),
        payload_bytes in 1..=4096_u32,
        path_mtu in path_mtu(),
        line_gbps in 1.0..1600.0,
        (post_ns, device_ns) in (1.0..1000.0, 1.0..100.0),
        pcie_bytes_per_ns in 0.5..50.0,
        (inline_ns, fetch_ns) in (100.0..5000.0, 0.0..1000.0),
        inline_max_bytes in 0..=220_u32,
    ) -> Scenario {
        let base = BaseLatency { inline_ns, fetch_ns, inline_max_bytes };
        Scenario {
            subscribers, payload_bytes, path_mtu, line_gbps, lanes, post_ns, device_ns,
            pcie_bytes_per_ns, base,
        }
    }
}

prop_compose! {
    fn any_demand()(
        scenario in any_scenario(),
        snapshots_per_s in 1.0..1e7_f64,
        (behind_port, publishers) in (1..=64_u32, 1..=8_u32),
        port_gbps in 1.0..1600.0,
    ) -> Demand {
        Demand { scenario, snapshots_per_s, behind_port, port_gbps, publishers }
    }
}

fn with(demand: &Demand, change: impl FnOnce(&mut Scenario)) -> Demand {
    let mut changed = *demand;
    change(&mut changed.scenario);
    changed
}

proptest! {
    #[test]
    fn the_first_comes_before_the_mean_and_the_mean_before_the_last(asked in any_scenario()) {
        for arrivals in [asked.arrivals(), asked.floor().arrivals(), asked.arrivals_per_request()] {
            prop_assert!(arrivals.first_ns <= arrivals.mean_ns, "{arrivals:?}");
            prop_assert!(arrivals.mean_ns <= arrivals.last_ns, "{arrivals:?}");
            let skew_ns = arrivals.last_ns - arrivals.first_ns;
            prop_assert!((skew_ns - arrivals.skew_ns).abs() < 1e-6, "{arrivals:?}");
        }
    }

    #[test]
    fn another_lane_or_a_faster_line_never_makes_it_slower(asked in any_scenario()) {
        let now = asked.arrivals();
        let lane = Scenario { lanes: asked.lanes + 1, ..asked }.arrivals();
        let line = Scenario { line_gbps: asked.line_gbps * 1.5, ..asked }.arrivals();
        let free = asked.floor().arrivals();
        for better in [lane, line, free] {
            prop_assert!(better.mean_ns <= now.mean_ns && better.last_ns <= now.last_ns);
        }
    }

    #[test]
    fn a_larger_payload_never_takes_fewer_bytes(
        payload in 0..8192_u32, more in 0..4096_u32, mtu in path_mtu(),
    ) {
        prop_assert!(wire_bytes(payload, mtu) <= wire_bytes(payload + more, mtu));
        prop_assert!(wire_bytes(payload, mtu) >= payload + 102);
        prop_assert!(wire_bytes(payload, PathMtu::Bytes4096) <= wire_bytes(payload, mtu));
    }

    #[test]
    fn gathering_never_carries_less(asked in any_scenario(), count in 1..=16_u32) {
        let slot = asked.payload_bytes.next_multiple_of(64);
        let gathered = asked.gathered_per_s(count, slot);
        // What is between records travels too, and may cost up to what it is of the payload.
        let waste = f64::from(slot) / f64::from(asked.payload_bytes);
        prop_assert!(gathered * waste >= asked.snapshots_per_s() * 0.999);
    }

    #[test]
    fn what_is_said_to_make_the_headline_hold_does(asked in any_demand()) {
        let remedies = judge(&asked).remedies;
        let smaller = |scenario: &mut Scenario, smaller: Smaller| {
            scenario.payload_bytes = smaller.payload_bytes;
            scenario.lanes = smaller.lanes;
        };
        for changed in [
            remedies.lanes.map(|lanes| with(&asked, |scenario| scenario.lanes = lanes)),
            remedies.subscribers.map(|count| with(&asked, |scenario| scenario.subscribers = count)),
            remedies.smaller.map(|fits| with(&asked, |scenario| smaller(scenario, fits))),
            remedies.port_gbps.map(|gbps| Demand {
                port_gbps: asked.port_gbps.max(gbps),
                ..with(&asked, |scenario| {
                    scenario.line_gbps = gbps;
                    scenario.lanes = scenario.subscribers;
                })
            }),
            remedies.snapshots_per_s.map(|snapshots_per_s| Demand { snapshots_per_s, ..asked }),
            remedies.behind_port.map(|behind_port| Demand { behind_port, ..asked }),
            remedies.subscriber_port_gbps.map(|port_gbps| Demand { port_gbps, ..asked }),
            remedies.publishers.map(|publishers| Demand { publishers, ..asked }),
        ]
        .into_iter()
        .flatten()
        {
            prop_assert!(holds(&changed), "{changed:?}");
        }
    }

    #[test]
    fn there_is_a_reason_just_where_the_headline_does_not_hold(asked in any_demand()) {
        let verdict = judge(&asked);
        prop_assert_eq!(verdict.holds, verdict.reasons.is_empty(), "{:?}", verdict);
    }

    #[test]
    fn the_network_never_brings_a_copy_sooner(asked in any_demand()) {
        let (sent, arrivals) = (asked.scenario.arrivals(), asked.arrivals());
        prop_assert!(arrivals.first_ns >= sent.first_ns && arrivals.last_ns >= sent.last_ns);
        prop_assert!(arrivals.first_ns <= arrivals.mean_ns * (1.0 + 1e-12), "{arrivals:?}");
        prop_assert!(arrivals.mean_ns <= arrivals.last_ns * (1.0 + 1e-12), "{arrivals:?}");
    }

    #[test]
    fn a_longer_train_never_leaves_a_higher_rate(
        train_us in 1.0..400.0_f64, longer_us in 0.0..400.0_f64, gbps in 1.0..400.0_f64,
    ) {
        let card = ReactionPoint::connectx(gbps);
        let (short, long) = (card.after_train(train_us), card.after_train(train_us + longer_us));
        prop_assert!(long.lowest_mbps <= short.lowest_mbps);
        prop_assert!(long.lowest_mbps >= card.min_mbps && short.lowest_mbps < card.line_mbps);
    }
}
