//! What sending cost: work requests, doorbells, bytes, system calls.

use serde::Serialize;
use tapecast_fabric::verbs::{VerbsFabric, VerbsLine};

/// Largest packet payload of the path.
const MTU: u64 = 4096;
/// What surrounds the first packet of an RDMA Write with immediate: Ethernet 14, IPv4 20, UDP 8,
/// base header 12, RDMA header 16, immediate 4, check sum 4.
const FIRST_HEADERS: u64 = 78;
/// What surrounds each further one: all that but the RDMA header and the immediate.
const MORE_HEADERS: u64 = 58;

/// Sums over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) work_requests: u64,
    pub(crate) doorbells: u64,
    pub(crate) bytes: u64,
}

impl Counts {
    /// What a fabric's lines have sent so far.
    pub(crate) fn of(fabric: &VerbsFabric) -> Self {
        let mut sum = Self::default();
        for counts in fabric.lines().map(VerbsLine::counts) {
            sum.work_requests += counts.work_requests;
            sum.doorbells += counts.doorbells;
            sum.bytes += counts.bytes;
        }
        sum
    }

    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            work_requests: self.work_requests - earlier.work_requests,
            doorbells: self.doorbells - earlier.doorbells,
            bytes: self.bytes - earlier.bytes,
        }
    }

    /// Bytes with all headers, as if every work request carried an immediate and filled its
    /// packets.
    pub(crate) fn wire_bytes(self) -> u64 {
        let more = self.bytes.div_ceil(MTU).saturating_sub(self.work_requests);
        self.bytes + self.work_requests * FIRST_HEADERS + more * MORE_HEADERS
    }
}

/// Calls of `write(2)` and its like by this thread so far. `None` where the kernel does not count
/// them. Soft-RoCE's doorbell is one; completions and receives need none.
pub(crate) fn write_calls() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscw: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_work_request_is_several_packets() {
        let counts = Counts { work_requests: 1, doorbells: 1, bytes: 4 * MTU };
        assert_eq!(counts.wire_bytes(), 4 * MTU + FIRST_HEADERS + 3 * MORE_HEADERS);
    }
}
