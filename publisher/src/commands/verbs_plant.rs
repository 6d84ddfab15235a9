//! Makes the RDMA fabric that the configuration asks for.

use anyhow::{Context, Result};
use tapecast_fabric::pool::Pool;
use tapecast_fabric::verbs::{
    DeviceChoice, RouteConfig, Verbs, VerbsConfig, VerbsFabric, VerbsHost,
};
use tapecast_wire::rdma::PathMtu;
use tapecast_wire::{Epoch, Nanos};

use super::plant::Made;
use crate::config::{Config, LargestMtu, RdmaConfig};
use crate::metrics::Device;

/// Opens the device and registers the pool with it.
///
/// # Errors
/// When there is no such device, or it cannot do what is configured.
pub(super) fn make(
    config: &Config,
    epoch: Epoch,
    pool: Pool,
) -> Result<Made<VerbsHost, VerbsFabric>> {
    let created = VerbsHost::create(&verbs_config(config, epoch), pool);
    let Verbs { host, fabric } = created.context("the RDMA fabric (rdma.device, rdma.address)")?;
    let device = Device {
        name: host.device_name().to_owned(),
        port: host.port_number(),
        class: "/sys/class/infiniband".into(),
    };
    Ok(Made { host, fabric, waker: None, device: Some(device) })
}

fn verbs_config(config: &Config, epoch: Epoch) -> VerbsConfig {
    let rdma = &config.rdma;
    VerbsConfig {
        epoch,
        instruments: config.shm.instruments_max.count(),
        levels_per_side: config.book.levels.count(),
        allow_lossless: config.access.lossless.0,
        lossless_silence_limit: Nanos(config.access.stall_max_s.get() * 1_000_000_000),
        device: DeviceChoice {
            device: rdma.device.clone(),
            address: rdma.address,
            port: rdma.port_number.map(|port| port.get() as u8),
        },
        route: route(rdma),
        sessions_max: config.access.sessions_max.count(),
        send_depth: rdma.send_depth.get() as u32,
        completion_depth: rdma.completion_depth.get() as u32,
        signal_every: rdma.signal_every.get() as u32,
        gather: rdma.gather.get() as u32,
        ring_bytes_max: rdma.ring_bytes_max.get(),
        receive_depth_max: rdma.receive_depth_max.get() as u32,
    }
}

/// Every number was checked when it was read, and fits.
fn route(rdma: &RdmaConfig) -> RouteConfig {
    RouteConfig {
        traffic_class: rdma.traffic_class.get() as u8,
        service_level: rdma.service_level.get() as u8,
        hop_limit: rdma.hop_limit.get() as u8,
        flow_labels: rdma.flow_labels.0,
        path_mtu_max: match rdma.path_mtu {
            LargestMtu::Auto | LargestMtu::Bytes4096 => PathMtu::Bytes4096,
            LargestMtu::Bytes2048 => PathMtu::Bytes2048,
            LargestMtu::Bytes1024 => PathMtu::Bytes1024,
            LargestMtu::Bytes512 => PathMtu::Bytes512,
            LargestMtu::Bytes256 => PathMtu::Bytes256,
        },
        timeout: rdma.timeout.get() as u8,
        retry_count: rdma.retry_count.get() as u8,
        rnr_retry: rdma.rnr_retry.get() as u8,
        min_rnr_timer: rdma.min_rnr_timer.get() as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_configuration_are_those_of_the_fabric() {
        let mapped = verbs_config(&Config::default(), Epoch(7));
        let fabric = VerbsConfig { instruments: mapped.instruments, ..VerbsConfig::new(Epoch(7)) };
        assert_eq!(format!("{mapped:?}"), format!("{fabric:?}"));
        assert!(mapped.check().is_ok());
    }

    #[test]
    fn what_is_the_least_and_the_most_in_the_configuration_suits_the_fabric() {
        let mut config = Config::default();
        let rdma = &mut config.rdma;
        for word in ["256", "512", "1024", "2048", "4096"] {
            rdma.path_mtu = word.parse().unwrap();
            assert_eq!(route(rdma).path_mtu_max.bytes().to_string(), word);
        }
        let least = "port_number = 1\nreceive_depth_max = 1\nsend_depth = 2\n\
                     completion_depth = 128\nsignal_every = 1\ngather = 1\ntraffic_class = 0\n\
                     service_level = 0\nhop_limit = 1\nring_bytes_max = \"64 KiB\"\n\
                     flow_labels = false\npath_mtu = 256\ntimeout = 1\nretry_count = 0\n\
                     rnr_retry = 0\nmin_rnr_timer = 1";
        let most = "port_number = 254\nreceive_depth_max = 16384\nsend_depth = 4096\n\
                    completion_depth = 4194304\nsignal_every = 2048\ngather = 16\n\
                    traffic_class = 255\nservice_level = 7\nhop_limit = 255\n\
                    ring_bytes_max = \"16 GiB\"\nflow_labels = true\npath_mtu = 4096\n\
                    timeout = 31\nretry_count = 7\nrnr_retry = 7\nmin_rnr_timer = 31";
        for text in [least, most] {
            config.rdma = toml::from_str(text).unwrap();
            assert!(verbs_config(&config, Epoch(1)).check().is_ok(), "{text}");
        }
    }
}
