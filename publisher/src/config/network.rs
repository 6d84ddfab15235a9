//! Sections for the fabric, RDMA, the control plane's port, and TLS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tapecast_wire::rdma::MAX_RECEIVE_DEPTH;

use super::choice::{FabricKind, LargestMtu, TlsMode};
use super::value::{Switch, Whole};
use super::written::RingBytes;

/// Port of the control plane when nothing says otherwise.
const DEFAULT_PORT: u16 = 7411;
/// Most work requests outstanding for each session.
const SEND_DEPTH_MAX: u64 = 4096;
/// Most completions that one queue can hold.
const COMPLETION_DEPTH_MAX: u64 = 1 << 22;
/// Records that one work request can gather.
const GATHER_MAX: u64 = 16;

/// `[fabric]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricConfig {
    /// How snapshots reach subscribers.
    pub kind: FabricKind,
}

/// `[rdma]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RdmaConfig {
    /// RDMA device; unset for the one with `address`, or the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// IP address of the network interface that the device belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Port of the device, from 1; unset for the one with `address`, or the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_number: Option<Whole<1, 254>>,
    /// Largest ring that a subscriber may bring, in bytes.
    pub ring_bytes_max: RingBytes,
    /// Most receives that a subscriber may keep posted.
    pub receive_depth_max: Whole<1, { MAX_RECEIVE_DEPTH as u64 }>,
    /// Work requests that may be outstanding for each session.
    pub send_depth: Whole<2, SEND_DEPTH_MAX>,
    /// Depth of the one completion queue.
    pub completion_depth: Whole<2, COMPLETION_DEPTH_MAX>,
    /// At least each so-manieth work request is signaled.
    pub signal_every: Whole<1, { SEND_DEPTH_MAX / 2 }>,
    /// Records that one work request gathers at most.
    pub gather: Whole<1, GATHER_MAX>,
    /// IP traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: Whole<0, 255>,
    /// Service level, which becomes the Ethernet priority where switches trust that.
    pub service_level: Whole<0, 7>,
    /// IP hop limit.
    pub hop_limit: Whole<1, 255>,
    /// A UDP source port for each queue pair, so that equal-cost paths share the load.
    pub flow_labels: Switch,
    /// Largest packet payload.
    pub path_mtu: LargestMtu,
    /// Wait for an acknowledgement: 4.096 us times two to this power.
    pub timeout: Whole<1, 31>,
    /// Times to send again before a subscriber counts as gone.
    pub retry_count: Whole<0, 7>,
    /// Times to send again to a subscriber that is not ready to receive; 7 for ever.
    pub rnr_retry: Whole<0, 7>,
    /// Pause asked of a sender that this end is not ready for, as the specification's code.
    pub min_rnr_timer: Whole<1, 31>,
}

/// `[listen]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenConfig {
    /// TCP address where subscribers attach over RDMA.
    pub address: SocketAddr,
}

/// `[tls]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Whether the TCP control plane is protected.
    pub mode: TlsMode,
    /// PEM file: the publisher's certificate, and those between it and the authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file: its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// PEM file: the authority that signs certificates of subscribers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
}

impl TlsConfig {
    /// Whether connections to `address` are protected. Whoever names a file wants protection, on
    /// loopback too.
    #[must_use]
    pub fn is_on(&self, address: SocketAddr) -> bool {
        match self.mode {
            TlsMode::On => true,
            TlsMode::Off => false,
            TlsMode::Auto => !address.ip().to_canonical().is_loopback() || self.names_a_file(),
        }
    }

    const fn names_a_file(&self) -> bool {
        self.certificate.is_some() || self.key.is_some() || self.client_ca.is_some()
    }
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self { kind: FabricKind::Shm }
    }
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            device: None,
            address: None,
            port_number: None,
            ring_bytes_max: RingBytes::new(64 << 20),
            receive_depth_max: Whole::new(4096),
            send_depth: Whole::new(64),
            completion_depth: Whole::new(4096),
            signal_every: Whole::new(16),
            gather: Whole::new(GATHER_MAX),
            traffic_class: Whole::new(106),
            service_level: Whole::new(0),
            hop_limit: Whole::new(64),
            flow_labels: Switch(true),
            path_mtu: LargestMtu::Auto,
            timeout: Whole::new(14),
            retry_count: Whole::new(6),
            rnr_retry: Whole::new(6),
            min_rnr_timer: Whole::new(12),
        }
    }
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)) }
    }
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self { mode: TlsMode::Auto, certificate: None, key: None, client_ca: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_on_beyond_loopback_unless_the_mode_says_otherwise() {
        for (mode, address, on) in [
            (TlsMode::Auto, "127.0.0.1:1", false),
            (TlsMode::Auto, "[::1]:1", false),
            (TlsMode::Auto, "[::ffff:127.0.0.1]:1", false),
            (TlsMode::Auto, "192.0.2.1:1", true),
            (TlsMode::Auto, "0.0.0.0:1", true),
            (TlsMode::Auto, "[::]:1", true),
            (TlsMode::On, "127.0.0.1:1", true),
            (TlsMode::Off, "192.0.2.1:1", false),
        ] {
            let tls = TlsConfig { mode, ..TlsConfig::default() };
            assert_eq!(tls.is_on(address.parse().unwrap()), on, "{mode:?} {address}");
        }
    }

    #[test]
    fn tls_is_on_by_itself_where_one_of_its_files_is_named() {
        let file = || Some(PathBuf::from("x.pem"));
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        for tls in [
            TlsConfig { certificate: file(), ..TlsConfig::default() },
            TlsConfig { key: file(), ..TlsConfig::default() },
            TlsConfig { client_ca: file(), ..TlsConfig::default() },
        ] {
            assert!(tls.is_on(loopback), "{tls:?}");
            assert!(!TlsConfig { mode: TlsMode::Off, ..tls }.is_on(loopback));
        }
    }
}
