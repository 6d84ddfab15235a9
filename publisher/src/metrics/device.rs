//! The RDMA device's own counters: every file that its driver shows, passed through.

use std::fs;
use std::path::{Path, PathBuf};

use tapecast_telemetry::families::{Families, Named, flag};

/// Words of four bytes are what the specification counts in.
const DATA_WORD_BYTES: f64 = 4.0;

/// One port of an RDMA device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name, e.g. `mlx5_0`.
    pub name: String,
    /// Its port, from 1.
    pub port: u8,
    /// Where devices are: `/sys/class/infiniband`.
    pub class: PathBuf,
}

impl Device {
    fn folder(&self) -> PathBuf {
        self.class.join(&self.name).join("ports").join(self.port.to_string())
    }

    /// Counters of the hardware and of the port, as far as there are any.
    pub(super) fn collect(&self, out: &mut Families) {
        let folder = self.folder();
        let port = self.port.to_string();
        let labels = [("device", self.name.as_str()), ("port", port.as_str())];
        for (file, value) in counters(&folder.join("hw_counters")) {
            match Kind::of(&file) {
                Kind::Counter => {
                    out.named_counter(format!("rdma_{file}_total"), help(&file), &labels, value);
                }
                Kind::Level => {
                    out.named_gauge(format!("rdma_{file}"), level(&file), &labels, value)
                }
                Kind::Setting => {}
            }
        }
        for (file, value) in counters(&folder.join("counters")) {
            let (name, value) = match file.as_str() {
                "port_xmit_data" => {
                    ("rdma_port_xmit_bytes_total".to_owned(), value * DATA_WORD_BYTES)
                }
                "port_rcv_data" => {
                    ("rdma_port_rcv_bytes_total".to_owned(), value * DATA_WORD_BYTES)
                }
                file => {
                    let file = file.strip_prefix("port_").unwrap_or(file);
                    (format!("rdma_port_{file}_total"), value)
                }
            };
            out.named_counter(name, help(&file), &labels, value);
        }
        if let Ok(state) = fs::read_to_string(folder.join("state")) {
            out.gauge_of(
                Named("rdma_port_active", "Whether the port is active."),
                &labels,
                flag(state.contains("ACTIVE")),
            );
        }
    }
}

/// What a file of the hardware's is. Nothing in it says so; these are the names that drivers give
/// to what is no counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A count that only rises.
    Counter,
    /// A number that comes and goes, e.g. queue pairs in use, and the most there were (bnxt_re).
    Level,
    /// How long the driver keeps what it has read, in milliseconds.
    Setting,
}

impl Kind {
    fn of(file: &str) -> Self {
        match file {
            "lifespan" => Self::Setting,
            _ if file.starts_with("active_") || file.starts_with("watermark_") => Self::Level,
            _ => Self::Counter,
        }
    }
}

fn level(file: &str) -> String {
    format!("The device's number {file}: no counter, it may fall.")
}

fn help(file: &str) -> String {
    format!("The device's counter {file}.")
}

/// Files that hold one number each, in order of their names.
fn counters(folder: &Path) -> Vec<(String, f64)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let number = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let value: u64 = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        plain.then_some((name, value as f64))
    };
    let mut found: Vec<_> =
        entries.filter_map(Result::ok).filter_map(|entry| number(entry.path())).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[cfg(test)]
mod tests {
    use prometheus::proto::MetricType;

    use super::*;

    #[test]
    fn what_comes_and_goes_is_a_gauge_and_what_only_rises_a_counter() {
        let class = tempfile::tempdir().unwrap();
        let folder = class.path().join("bnxt_re0/ports/1/hw_counters");
        fs::create_dir_all(&folder).unwrap();
        let files =
            ["active_qps", "rx_write_req", "lifespan", "watermark_qps", "rnr_nak_retry_err"];
        for (file, value) in files.iter().zip(1..) {
            fs::write(folder.join(file), format!("{value}\n")).unwrap();
        }
        let name = "bnxt_re0".to_owned();
        let device = Device { name, port: 1, class: class.path().to_owned() };
        let mut out = Families::default();
        device.collect(&mut out);
        let told: Vec<_> = out
            .into_inner()
            .into_iter()
            .map(|family| {
                let metric = &family.get_metric()[0];
                let value = metric.get_gauge().get_value() + metric.get_counter().get_value();
                (family.name().to_owned(), family.get_field_type(), value)
            })
            .collect();
        let expected = [
            ("rdma_active_qps", MetricType::GAUGE, 1.0),
            ("rdma_rnr_nak_retry_err_total", MetricType::COUNTER, 5.0),
            ("rdma_rx_write_req_total", MetricType::COUNTER, 2.0),
            ("rdma_watermark_qps", MetricType::GAUGE, 4.0),
        ];
        let expected = expected.map(|(name, kind, value)| (name.to_owned(), kind, value));
        assert_eq!(told, expected);
    }
}
