//! Which device and port to use, and how packets travel.

use std::net::IpAddr;

use tapecast_wire::rdma::PathMtu;

/// Which RDMA device and port to use: by name, by IP address, or the only one there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Name as `ibv_devices` prints it, for example `mlx5_0`.
    pub device: Option<String>,
    /// IP address of the network interface that the device belongs to.
    pub address: Option<IpAddr>,
    /// Number of the port, from 1.
    pub port: Option<u8>,
}

/// How the packets of a queue pair travel and when it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// IP traffic class: DSCP in the upper six bits, ECN in the lower two. Default 106: DSCP 26,
    /// ECN capable.
    pub traffic_class: u8,
    /// Service level, which becomes the Ethernet priority where switches trust that. 0..=7,
    /// default 0.
    pub service_level: u8,
    /// IP hop limit, 1..=255, default 64.
    pub hop_limit: u8,
    /// Give every queue pair a UDP source port of its own, so that equal-cost paths share the
    /// load. Default: yes.
    pub flow_labels: bool,
    /// Largest packet payload to use even when both ends could use more. Default 4096 bytes.
    pub path_mtu_max: PathMtu,
    /// Wait for an acknowledgement: 4.096 us times two to this power. 1..=31, default 14 (67 ms).
    pub timeout: u8,
    /// Times to send again before the peer counts as gone. 0..=7, default 6.
    pub retry_count: u8,
    /// Times to send again to a peer that is not ready to receive. 0..=7 where 7 means for ever,
    /// default 6.
    pub rnr_retry: u8,
    /// Pause asked of a sender when this end is not ready to receive, as the specification's code:
    /// 1 is 10 us, 12 is 0.64 ms, 31 is 491 ms. 1..=31, default 12.
    pub min_rnr_timer: u8,
}

impl Default for RouteConfig {
    fn default() -> Self {
        Self {
            traffic_class: 106,
            service_level: 0,
            hop_limit: 64,
            flow_labels: true,
            path_mtu_max: PathMtu::Bytes4096,
            timeout: 14,
            retry_count: 6,
            rnr_retry: 6,
            min_rnr_timer: 12,
        }
    }
}

/// A number in a [`RouteConfig`] is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// A number is outside what the field allows.
    #[error("{field} = {value} is outside {min}..={max}{note}: choose a value in that range")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u8,
        /// Smallest value allowed.
        min: u8,
        /// Largest value allowed.
        max: u8,
        /// Why, where that is not obvious; begins with a blank.
        note: &'static str,
    },
}

impl RouteConfig {
    /// Checks that every number is one that a queue pair can have.
    ///
    /// # Errors
    /// [`RouteError::Range`] for the first that is not.
    pub fn check(&self) -> Result<(), RouteError> {
        let endless = " (0 would wait for ever)";
        let longest = " (0 would mean 655 ms)";
        for (field, value, min, max, note) in [
            ("service_level", self.service_level, 0, 7, " (RoCE has eight priorities)"),
            ("hop_limit", self.hop_limit, 1, u8::MAX, " (0 would leave no host)"),
            ("timeout", self.timeout, 1, 31, endless),
            ("retry_count", self.retry_count, 0, 7, ""),
            ("rnr_retry", self.rnr_retry, 0, 7, ""),
            ("min_rnr_timer", self.min_rnr_timer, 1, 31, longest),
        ] {
            if !(min..=max).contains(&value) {
                return Err(RouteError::Range { field, value, min, max, note });
            }
        }
        Ok(())
    }
}

/// Bits of a UDP source port that a flow label decides.
const PORT_BITS: u32 = 14;
const PORT_MASK: u32 = (1 << PORT_BITS) - 1;

/// Flow label, 20 bits and never 0 (which drivers take for "none given"), of a queue pair.
///
/// Drivers fold a label into the UDP source port `0xC000 | ((label & 0x3FFF) ^ (label >> 14))`. The
/// label is built so that this fold gives the queue pair number times an odd constant: any 16 384
/// consecutive numbers have as many ports, and neighbours' ports are far apart.
#[must_use]
pub fn flow_label(queue_pair_number: u32) -> u32 {
    let port = queue_pair_number.wrapping_mul(0x9E37_79B1) & PORT_MASK;
    let upper = 1 + (queue_pair_number >> PORT_BITS) % 63;
    (upper << PORT_BITS) | (port ^ upper)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// `ibv_flow_label_to_udp_sport`.
    fn source_port(label: u32) -> u32 {
        0xC000 | ((label & 0x3FFF) ^ (label >> 14))
    }

    #[test]
    fn neighbouring_queue_pairs_send_from_different_ports_wherever_the_numbers_start() {
        for start in [0, 17, 16_383 - 31, 16_384, 0x00FF_FFC0, 0x0012_3456] {
            let labels: Vec<_> = (start..start + 64).map(flow_label).collect();
            let ports: HashSet<_> = labels.iter().copied().map(source_port).collect();
            assert_eq!(ports.len(), 64, "from {start}");
            assert!(labels.iter().all(|label| (1..1 << 20).contains(label)), "{labels:?}");
            assert!(ports.iter().all(|port| (0xC000..=0xFFFF).contains(port)));
        }
    }

    #[test]
    fn the_defaults_are_in_range() {
        assert_eq!(RouteConfig::default().check(), Ok(()));
    }

    #[test]
    fn a_number_outside_its_range_is_refused_by_name() {
        type Change = fn(&mut RouteConfig);
        let cases: [(&str, Change); 8] = [
            ("service_level", |route| route.service_level = 8),
            ("hop_limit", |route| route.hop_limit = 0),
            ("timeout", |route| route.timeout = 0),
            ("timeout", |route| route.timeout = 32),
            ("retry_count", |route| route.retry_count = 8),
            ("rnr_retry", |route| route.rnr_retry = 8),
            ("min_rnr_timer", |route| route.min_rnr_timer = 0),
            ("min_rnr_timer", |route| route.min_rnr_timer = 32),
        ];
        for (name, change) in cases {
            let mut route = RouteConfig::default();
            change(&mut route);
            let RouteError::Range { field, .. } = route.check().unwrap_err();
            assert_eq!(field, name);
        }
    }
}
