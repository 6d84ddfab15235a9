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
            // How long the driver keeps what it has read, in milliseconds: no counter.
            if file != "lifespan" {
                out.named_counter(format!("rdma_{file}_total"), help(&file), &labels, value);
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
