//! What the device itself has counted.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::process::Command;
use std::sync::Once;

/// The device under test, or `None`, said aloud, where there is none.
pub(crate) fn device() -> Option<String> {
    let found = fs::read_dir("/sys/class/infiniband").ok().and_then(|mut all| all.next());
    match found {
        Some(Ok(entry)) => Some(entry.file_name().to_string_lossy().into_owned()),
        _ => {
            let required = std::env::var_os("TAPECAST_TEST_NEEDS_DEVICE").is_some();
            assert!(!required, "this machine was to have an RDMA device");
            // Straight to the stream, so that it is seen although the tests pass.
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                let said = "SKIPPED: no RDMA device here; tests/vm/run.sh has one";
                let _unseen = writeln!(io::stderr(), "{said}");
            });
            None
        }
    }
}

/// Every counter of the device's first port.
pub(crate) fn counters(device: &str) -> BTreeMap<String, u64> {
    let folder = format!("/sys/class/infiniband/{device}/ports/1/hw_counters");
    let entries = fs::read_dir(&folder).expect("counters");
    entries
        .map(|entry| entry.expect("a counter"))
        .filter(|entry| entry.file_name() != "lifespan")
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).expect("a readable counter");
            let value = text.trim().parse().expect("a number");
            (entry.file_name().to_string_lossy().into_owned(), value)
        })
        .collect()
}

/// What must not happen while all is well: a receiver that is not ready, and giving up.
const SIGNS_OF_TROUBLE: [&str; 4] =
    ["send_rnr_err", "rcvd_rnr_err", "retry_rnr_exceeded_err", "retry_exceeded_err"];

/// Counters before something happened.
pub(crate) struct Before {
    device: String,
    counters: BTreeMap<String, u64>,
}

impl Before {
    pub(crate) fn of(device: &str) -> Self {
        Self { device: device.to_owned(), counters: counters(device) }
    }

    /// How much a counter has grown. One that the device does not have cannot be checked.
    pub(crate) fn grown(&self, name: &str) -> u64 {
        let after = counters(&self.device);
        let at = |counters: &BTreeMap<String, u64>| {
            *counters.get(name).unwrap_or_else(|| panic!("no counter {name} in {counters:?}"))
        };
        at(&after) - at(&self.counters)
    }

    /// Nothing happened that does not happen in health, and something was sent at all.
    pub(crate) fn assert_health(&self) {
        for name in SIGNS_OF_TROUBLE {
            assert_eq!(self.grown(name), 0, "{name}");
        }
        assert!(self.grown("sent_pkts") > 0, "nothing went over the device");
    }
}

/// Queue pairs, completion queues, memory regions and protection domains that processes have now.
pub(crate) fn resources() -> BTreeMap<String, usize> {
    ["qp", "cq", "mr", "pd"]
        .into_iter()
        .map(|kind| {
            let output = Command::new("rdma").args(["resource", "show", kind]).output();
            let output = output.expect("the rdma command of iproute2");
            assert!(output.status.success(), "rdma resource show {kind}");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // Those of the kernel itself have no process.
            let count = text.lines().filter(|line| line.contains(" pid ")).count();
            (kind.to_owned(), count)
        })
        .collect()
}
