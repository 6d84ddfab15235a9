//! Bytes on the wire, latency and skew: the table of 64 receivers, cell by cell.

use tapecast_publisher::plan::{
    ACKNOWLEDGEMENT_BYTES, Arrivals, Scenario, Step, device_mtu, packets, wire_bytes,
};
use tapecast_wire::rdma::PathMtu;

use super::scenario;

const RATES_GBPS: [f64; 4] = [25.0, 100.0, 200.0, 400.0];

/// Payload; mean/last/skew in microseconds at 25, 100, 200 and 400 Gb/s with posting free, then
/// the same with one core of 80 ns a work request.
const TABLE: &str = "
64   3.03/4.70/3.35 1.73/2.15/0.84 1.52/1.72/0.42 1.46/1.62/0.32 3.87/6.39/5.04 3.83/6.35/5.04 3.83/6.35/5.04 3.82/6.34/5.04
128  3.69/6.01/4.64 1.90/2.48/1.16 1.60/1.89/0.58 1.46/1.62/0.32 3.89/6.41/5.04 3.84/6.36/5.04 3.83/6.35/5.04 3.82/6.34/5.04
256  5.52/9.13/7.22 2.73/3.63/1.80 2.27/2.72/0.90 2.03/2.26/0.45 5.52/9.13/7.22 4.35/6.87/5.04 4.33/6.85/5.04 4.33/6.85/5.04
512  8.19/14.4/12.4 3.40/4.94/3.09 2.60/3.37/1.55 2.20/2.59/0.77 8.19/14.4/12.4 4.37/6.89/5.04 4.34/6.86/5.04 4.33/6.85/5.04
1024 13.5/24.9/22.7 4.73/7.57/5.68 3.26/4.68/2.84 2.53/3.24/1.42 13.5/24.9/22.7 4.73/7.57/5.68 4.37/6.89/5.04 4.34/6.86/5.04
2048 24.2/45.8/43.3 7.39/12.8/10.8 4.59/7.30/5.42 3.20/4.55/2.71 24.2/45.8/43.3 7.39/12.8/10.8 4.59/7.30/5.42 4.36/6.88/5.04
4096 45.5/87.8/84.6 12.7/23.3/21.2 7.26/12.5/10.6 4.53/7.17/5.29 45.5/87.8/84.6 12.7/23.3/21.2 7.26/12.5/10.6 4.53/7.17/5.29
";

/// With as many decimals as the cell has. Half a unit of its last digit either way is the same:
/// the table was rounded by other means.
fn is_near(ns: f64, cell: &str) -> bool {
    let decimals = cell.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let unit = 10_f64.powi(-(decimals as i32));
    (ns / 1e3 - cell.parse::<f64>().unwrap()).abs() <= unit * 0.501
}

fn assert_cell(arrivals: &Arrivals, cell: &str, what: &str) {
    let [mean, last, skew] = cell.split('/').collect::<Vec<_>>()[..] else { panic!("{cell}") };
    assert!(is_near(arrivals.mean_ns, mean), "{what}: mean {mean}: {arrivals:?}");
    assert!(is_near(arrivals.last_ns, last), "{what}: last {last}: {arrivals:?}");
    assert!(is_near(arrivals.skew_ns, skew), "{what}: skew {skew}: {arrivals:?}");
}

#[test]
fn every_cell_of_the_table_of_64_receivers_comes_out() {
    let mut cells = 0;
    for line in TABLE.trim().lines() {
        let mut columns = line.split_whitespace();
        let payload = columns.next().unwrap().parse().unwrap();
        for post in ["free", "one core"] {
            for gbps in RATES_GBPS {
                let one_core = scenario(payload, gbps);
                let asked = if post == "free" { one_core.floor() } else { one_core };
                let what = format!("{payload} B at {gbps} Gb/s, posting {post}");
                assert_cell(&asked.arrivals(), columns.next().unwrap(), &what);
                cells += 1;
            }
        }
        assert_eq!(columns.next(), None);
    }
    assert_eq!(cells, 56);
}

#[test]
fn eight_lanes_bring_small_snapshots_near_the_wire_and_large_ones_nowhere() {
    for (payload, gbps, cell) in [
        (64, 100.0, "1.73/2.15/0.84"),
        (96, 100.0, "1.81/2.31/1.00"),
        (128, 200.0, "1.62/1.94/0.63"),
        (220, 200.0, "1.72/2.12/0.81"),
        (220, 400.0, "1.62/1.94/0.63"),
        (4096, 100.0, "12.7/23.3/21.2"),
    ] {
        let asked = Scenario { lanes: 8, ..scenario(payload, gbps) };
        assert_cell(&asked.arrivals(), cell, &format!("{payload} B at {gbps} Gb/s, 8 lanes"));
    }
}

#[test]
fn a_write_with_immediate_takes_its_payload_and_102_bytes_while_it_is_one_packet() {
    for (payload, wire) in [
        (64, 166),
        (128, 230),
        (220, 322),
        (256, 358),
        (512, 614),
        (1024, 1126),
        (2048, 2150),
        (4096, 4198),
    ] {
        assert_eq!(wire_bytes(payload, PathMtu::Bytes4096), wire, "{payload}");
        assert_eq!(packets(payload, PathMtu::Bytes4096), 1);
    }
    assert_eq!(wire_bytes(4096, PathMtu::Bytes1024), 4444);
    assert_eq!(packets(4096, PathMtu::Bytes1024), 4);
    assert_eq!(packets(4097 - 1024, PathMtu::Bytes1024), 4);
    assert_eq!(packets(0, PathMtu::Bytes256), 1);
}

#[test]
fn payloads_are_padded_to_four_bytes() {
    assert_eq!(wire_bytes(61, PathMtu::Bytes4096), 166);
    assert_eq!(wire_bytes(65, PathMtu::Bytes4096), 170);
}

#[test]
fn an_acknowledgement_takes_86_bytes_and_a_path_mtu_needs_96_more_of_the_interface() {
    assert_eq!(ACKNOWLEDGEMENT_BYTES, 86);
    assert_eq!(device_mtu(PathMtu::Bytes4096), 4192);
    assert!(device_mtu(PathMtu::Bytes1024) <= 1500 && device_mtu(PathMtu::Bytes2048) > 1500);
}

#[test]
fn a_copys_time_on_the_wire_is_its_bytes_over_the_rate() {
    for (payload, times_ns) in [
        (64, ["53.1", "13.3", "6.6", "3.3"]),
        (256, ["114.6", "28.6", "14.3", "7.2"]),
        (1024, ["360.3", "90.1", "45.0", "22.5"]),
        (4096, ["1343.4", "335.8", "167.9", "84.0"]),
    ] {
        for (gbps, time_ns) in RATES_GBPS.into_iter().zip(times_ns) {
            let ns = scenario(payload, gbps).wire_ns();
            assert_eq!(format!("{ns:.1}"), time_ns, "{payload} B at {gbps} Gb/s");
        }
    }
}

#[test]
fn the_line_carries_so_many_snapshots_to_64_receivers() {
    for (payload, rates) in [
        (4096, [11_631.0, 46_525.0, 93_050.0, 186_101.0]),
        (256, [136_391.0, 545_566.0, 1_091_131.0, 2_182_263.0]),
    ] {
        for (gbps, rate) in RATES_GBPS.into_iter().zip(rates) {
            let most = scenario(payload, gbps).floor().snapshots_per_s();
            assert_eq!(most.round(), rate, "{payload} B at {gbps} Gb/s");
        }
    }
}

#[test]
fn the_dearest_step_is_the_bottleneck() {
    let asked = scenario(4096, 100.0);
    assert_eq!(asked.costs().bottleneck().0, Step::Wire);
    assert_eq!(scenario(64, 100.0).costs().bottleneck(), (Step::Posting, 80.0));
    let narrow = Scenario { pcie_bytes_per_ns: 6.25, ..asked };
    assert_eq!(narrow.costs().bottleneck(), (Step::Pcie, 655.36));
    let slow_device = Scenario { device_ns: 90.0, ..scenario(64, 400.0) };
    assert_eq!(slow_device.costs().bottleneck(), (Step::Device, 90.0));
}

#[test]
fn from_its_own_posting_a_copy_waits_for_the_wire_alone() {
    let posting_bound = scenario(64, 100.0);
    let own = posting_bound.arrivals_per_request();
    assert_eq!((own.skew_ns, own.mean_ns), (0.0, posting_bound.arrivals().first_ns));
    let wire_bound = scenario(4096, 100.0);
    let own = wire_bound.arrivals_per_request();
    assert!((own.skew_ns - 63.0 * (335.84 - 80.0)).abs() < 1e-6, "{own:?}");
}
