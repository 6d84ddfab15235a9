//! When the copies of one snapshot arrive: latency, skew, and what holds the fan-out back.
//!
//! One publisher writes to each subscriber in turn. The copies come one *spacing* apart, which is
//! the dearest of four steps that each copy passes: the posting of its work request, the fetch over
//! PCIe, the device's own rate, the wire. The first copy arrives after the base latency and its own
//! time on the wire; the last one after as many spacings as there are other subscribers.

use serde::Serialize;
use tapecast_wire::rdma::PathMtu;

use super::wire::wire_bytes;

/// From posting a work request to its bytes being visible at the receiver, one switch between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BaseLatency {
    /// When the payload stands in the work request itself, in nanoseconds.
    pub inline_ns: f64,
    /// What is added when the device fetches the payload from memory, in nanoseconds.
    pub fetch_ns: f64,
    /// Largest payload that stands in the work request, in bytes. tapecast's snapshots never do.
    pub inline_max_bytes: u32,
}

impl BaseLatency {
    /// A fast card of today, in bytes that mlx5 takes inline with one doorbell: optimistic.
    pub const OPTIMISTIC: Self =
        Self { inline_ns: 1300.0, fetch_ns: 500.0, inline_max_bytes: INLINE_MAX_BYTES };

    /// Of a payload of so many bytes, in nanoseconds.
    #[must_use]
    pub fn of(self, payload_bytes: u32) -> f64 {
        let fetched = payload_bytes > self.inline_max_bytes;
        self.inline_ns + if fetched { self.fetch_ns } else { 0.0 }
    }
}

/// Most payload that fits a work request that mlx5 takes with one write to the device, in bytes.
pub const INLINE_MAX_BYTES: u32 = 220;

/// Who is sent what, and what each step costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// Subscribers, each of which gets its own copy.
    pub subscribers: u32,
    /// Bytes of a snapshot.
    pub payload_bytes: u32,
    /// Largest payload of one packet.
    pub path_mtu: PathMtu,
    /// Rate of the publisher's port, in Gb/s.
    pub line_gbps: f64,
    /// Threads that post, each for its share of the subscribers.
    pub lanes: u32,
    /// What posting one work request costs a lane, in nanoseconds.
    pub post_ns: f64,
    /// The device's own time for a message, in nanoseconds.
    pub device_ns: f64,
    /// What the device can fetch over PCIe, in bytes per nanosecond; infinite for no limit.
    pub pcie_bytes_per_ns: f64,
    /// The way of a single copy.
    pub base: BaseLatency,
}

/// A step that every copy passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Posting the work request.
    Posting,
    /// Fetching the payload over PCIe.
    Pcie,
    /// The device's message rate.
    Device,
    /// The wire.
    Wire,
}

/// What one copy costs at each step, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Posting the work request, shared out among the lanes.
    pub posting_ns: f64,
    /// Fetching the payload over PCIe.
    pub pcie_ns: f64,
    /// The device's message rate.
    pub device_ns: f64,
    /// The wire.
    pub wire_ns: f64,
}

impl Costs {
    /// Every step with its cost.
    #[must_use]
    pub const fn steps(self) -> [(Step, f64); 4] {
        [
            (Step::Posting, self.posting_ns),
            (Step::Pcie, self.pcie_ns),
            (Step::Device, self.device_ns),
            (Step::Wire, self.wire_ns),
        ]
    }

    /// The dearest step and its cost: the time between two copies, in nanoseconds.
    #[must_use]
    pub fn bottleneck(self) -> (Step, f64) {
        let dearer = |a: (Step, f64), b: (Step, f64)| if a.1 > b.1 { a } else { b };
        self.steps().into_iter().fold((Step::Wire, self.wire_ns), dearer)
    }
}

/// When the copies of one snapshot are visible, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Arrivals {
    /// The first one.
    pub first_ns: f64,
    /// The mean of all.
    pub mean_ns: f64,
    /// The last one.
    pub last_ns: f64,
    /// From the first to the last.
    pub skew_ns: f64,
}

impl Arrivals {
    fn spaced(first_ns: f64, spacing_ns: f64, copies: u32) -> Self {
        let skew_ns = spacing_ns * f64::from(copies.saturating_sub(1));
        let (mean_ns, last_ns) = (first_ns + skew_ns / 2.0, first_ns + skew_ns);
        Self { first_ns, mean_ns, last_ns, skew_ns }
    }
}

impl Scenario {
    /// Bytes on the wire for one subscriber.
    #[must_use]
    pub fn wire_bytes(&self) -> u32 {
        wire_bytes(self.payload_bytes, self.path_mtu)
    }

    /// Time on the wire for one subscriber, in nanoseconds.
    #[must_use]
    pub fn wire_ns(&self) -> f64 {
        f64::from(self.wire_bytes()) * 8.0 / self.line_gbps
    }

    /// What each step costs one copy. More lanes than subscribers have nothing to do.
    #[must_use]
    pub fn costs(&self) -> Costs {
        let lanes = self.lanes.min(self.subscribers).max(1);
        Costs {
            posting_ns: self.post_ns / f64::from(lanes),
            pcie_ns: f64::from(self.payload_bytes) / self.pcie_bytes_per_ns,
            device_ns: self.device_ns,
            wire_ns: self.wire_ns(),
        }
    }

    /// Time between two copies, in nanoseconds.
    #[must_use]
    pub fn spacing_ns(&self) -> f64 {
        self.costs().bottleneck().1
    }

    fn single_ns(&self) -> f64 {
        self.base.of(self.payload_bytes) + self.wire_ns()
    }

    /// Arrivals after the instant of publishing, which is the same for all.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        Arrivals::spaced(self.single_ns(), self.spacing_ns(), self.subscribers)
    }

    /// Arrivals, each after the posting of its own work request. It leaves out the time that a
    /// subscriber waits for its turn, so it looks better than what a subscriber sees.
    #[must_use]
    pub fn arrivals_per_request(&self) -> Arrivals {
        let unposted = self.spacing_ns() - self.costs().posting_ns;
        Arrivals::spaced(self.single_ns(), unposted, self.subscribers)
    }

    /// The same, were posting free: nothing that a program does makes it faster.
    #[must_use]
    pub const fn floor(&self) -> Self {
        Self { post_ns: 0.0, ..*self }
    }

    /// Snapshots per second to all subscribers that the dearest step lets through.
    #[must_use]
    pub fn snapshots_per_s(&self) -> f64 {
        1e9 / (self.spacing_ns() * f64::from(self.subscribers.max(1)))
    }

    /// The same when each work request gathers `count` snapshots, which start `slot_bytes` apart.
    #[must_use]
    pub fn gathered_per_s(&self, count: u32, slot_bytes: u32) -> f64 {
        let payload_bytes = slot_bytes * count.saturating_sub(1) + self.payload_bytes;
        Self { payload_bytes, ..*self }.snapshots_per_s() * f64::from(count)
    }
}
