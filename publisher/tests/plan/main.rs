//! The model of `tapecast-publisher plan`, judged by figures that were worked out by other means,
//! and the command as a user meets it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod command;
mod congestion;
mod fluid;
mod latency;
mod plot;
mod properties;
mod sizes;
mod stability;
mod target;

use tapecast_publisher::plan::{BaseLatency, Demand, Scenario};
use tapecast_wire::rdma::PathMtu;

/// What posting a work request costs one core, in nanoseconds.
const ONE_CORE_NS: f64 = 80.0;

/// 64 subscribers, one lane, 5 ns a message in the device, PCIe without limit, optimistic base.
fn scenario(payload_bytes: u32, line_gbps: f64) -> Scenario {
    Scenario {
        subscribers: 64,
        payload_bytes,
        path_mtu: PathMtu::Bytes4096,
        line_gbps,
        lanes: 1,
        post_ns: ONE_CORE_NS,
        device_ns: 5.0,
        pcie_bytes_per_ns: f64::INFINITY,
        base: BaseLatency::OPTIMISTIC,
    }
}

/// A snapshot a second, each subscriber behind a port of its own, as fast as the publisher's.
const fn alone(scenario: Scenario) -> Demand {
    Demand {
        scenario,
        snapshots_per_s: 1.0,
        behind_port: 1,
        port_gbps: scenario.line_gbps,
        publishers: 1,
    }
}
