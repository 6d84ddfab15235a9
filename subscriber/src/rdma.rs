//! Choices of the RDMA fabric.

use std::net::IpAddr;

#[cfg(feature = "verbs")]
use tapecast_fabric::verbs::{DeviceChoice, EndpointConfig, RouteConfig};

/// Choices of a session over RDMA. How long to wait for acknowledgements is the publisher's choice
/// (its `rdma.timeout` and `rdma.retry_count`), for both ends. All have a default; say
/// only what differs:
///
/// ```
/// use tapecast_subscriber::RdmaChoices;
///
/// let choices = RdmaChoices { device: Some("mlx5_0".into()), ..RdmaChoices::default() };
/// assert_eq!(choices.ring_bytes, 1 << 20);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaChoices {
    /// Device to use, as `ibv_devices` prints it, for example `mlx5_0`. Default: the only one there
    /// is, or the one that has `address`.
    pub device: Option<String>,
    /// IP address, on this machine, of the network interface to use. Default: the device's.
    pub address: Option<IpAddr>,
    /// Number of the device's port, from 1. Default: the one that is up, or has `address`.
    pub port: Option<u8>,
    /// Bytes of the ring that the publisher writes into: a power of two of at least 8 KiB. They
    /// are locked in memory. Default 1 MiB.
    pub ring_bytes: u64,
    /// Receives that are kept posted, 1 to 16384: how many writes may be under way. Default 256.
    pub receive_depth: u32,
    /// Put the ring into 2 MiB pages. Default no.
    pub huge_pages: bool,
    /// IP traffic class: DSCP in the upper six bits, ECN in the lower two. Default 106: DSCP 26,
    /// ECN capable.
    pub traffic_class: u8,
    /// Service level, 0 to 7, which becomes the Ethernet priority where switches trust that.
    /// Default 0.
    pub service_level: u8,
    /// IP hop limit, 1 to 255. Default 64.
    pub hop_limit: u8,
    /// Times to send again to a publisher that is not ready to receive, 0 to 7 where 7 means for
    /// ever. Default 6.
    pub rnr_retry: u8,
    /// Pause asked of the publisher when no receive is posted, as the specification's code, 1 to
    /// 31: 12 is 0.64 ms. Default 12.
    pub min_rnr_timer: u8,
}

impl Default for RdmaChoices {
    fn default() -> Self {
        Self {
            device: None,
            address: None,
            port: None,
            ring_bytes: 1 << 20,
            receive_depth: 256,
            huge_pages: false,
            traffic_class: 106,
            service_level: 0,
            hop_limit: 64,
            rnr_retry: 6,
            min_rnr_timer: 12,
        }
    }
}

#[cfg(feature = "verbs")]
impl RdmaChoices {
    /// The fabric's configuration with these choices, and its defaults for the rest.
    pub(crate) fn to_config(&self) -> EndpointConfig {
        EndpointConfig {
            device: DeviceChoice {
                device: self.device.clone(),
                address: self.address,
                port: self.port,
            },
            route: RouteConfig {
                traffic_class: self.traffic_class,
                service_level: self.service_level,
                hop_limit: self.hop_limit,
                rnr_retry: self.rnr_retry,
                min_rnr_timer: self.min_rnr_timer,
                ..RouteConfig::default()
            },
            ring_bytes: self.ring_bytes,
            receive_depth: self.receive_depth,
            huge_pages: self.huge_pages,
            ..EndpointConfig::new()
        }
    }
}

#[cfg(all(test, feature = "verbs"))]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_fabrics() {
        let (ours, theirs) = (RdmaChoices::default().to_config(), EndpointConfig::new());
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }

    #[test]
    fn every_choice_reaches_the_fabric() {
        let choices = RdmaChoices {
            device: Some("mlx5_7".into()),
            address: Some(IpAddr::from([10, 9, 0, 2])),
            port: Some(2),
            ring_bytes: 8 << 20,
            receive_depth: 32,
            huge_pages: true,
            traffic_class: 104,
            service_level: 3,
            hop_limit: 2,
            rnr_retry: 4,
            min_rnr_timer: 9,
        };
        let config = choices.to_config();
        assert_eq!(config.device.device, choices.device);
        assert_eq!(config.device.address, choices.address);
        assert_eq!(config.device.port, choices.port);
        assert_eq!(config.ring_bytes, 8 << 20);
        assert_eq!(config.receive_depth, 32);
        assert!(config.huge_pages);
        let route = config.route;
        assert_eq!((route.traffic_class, route.service_level, route.hop_limit), (104, 3, 2));
        assert_eq!((route.rnr_retry, route.min_rnr_timer), (4, 9));
    }
}
