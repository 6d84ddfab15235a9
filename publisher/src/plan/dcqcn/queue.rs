//! How much one burst piles up in a switch: the same snapshot to every subscriber, at once.

use serde::Serialize;

/// Who sends to whom. All subscribers are spread over ports alike, and the copies for one port come
/// one behind the other, which is the worst order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incast {
    /// Publishers that send at the same instant, from a port each.
    pub publishers: u32,
    /// Subscribers of each of them.
    pub subscribers: u32,
    /// Subscribers behind one port of the switch.
    pub behind_port: u32,
    /// Rate of a publisher's port, in Gb/s.
    pub publisher_gbps: f64,
    /// Rate of a subscriber's port, in Gb/s.
    pub port_gbps: f64,
    /// Bytes of one copy on the wire.
    pub wire_bytes: u32,
    /// Time between two copies of one publisher, in nanoseconds. What posting, PCIe or the device
    /// holds back comes slower than the line is.
    pub spacing_ns: f64,
}

/// The largest queues, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Backlog {
    /// At one subscriber's port, which is what ECN looks at.
    pub port_bytes: f64,
    /// Of what came from one publisher, at all ports together, which is what PFC looks at.
    pub publisher_bytes: f64,
}

impl Incast {
    /// Time of one copy on the wire of a subscriber's port, in nanoseconds.
    #[must_use]
    pub fn port_ns(&self) -> f64 {
        f64::from(self.wire_bytes) * 8.0 / self.port_gbps
    }

    /// Bytes that a subscriber's port sends meanwhile.
    fn drained(&self, ns: f64) -> f64 {
        self.port_gbps * ns / 8.0
    }

    /// Queue at a port, in bytes, just after so many copies for it and one more have come. The
    /// first comes at line rate, from every publisher; then as much drains from one copy to the
    /// next as their spacing allows.
    fn queue_after(&self, copies: u32) -> f64 {
        let wire_bytes = f64::from(self.wire_bytes);
        let arrives = f64::from(self.publishers) * wire_bytes;
        let first = arrives - self.drained(wire_bytes * 8.0 / self.publisher_gbps);
        let grows = arrives - self.drained(self.spacing_ns);
        first.max(0.0) + f64::from(copies) * grows.max(0.0)
    }

    /// What the queue at its port adds to the latency of a copy before which so many others came
    /// for the same port, in nanoseconds.
    #[must_use]
    pub fn delay_ns(&self, copies: u32) -> f64 {
        self.queue_after(copies) * 8.0 / self.port_gbps
    }

    /// The largest queues of one burst from idle.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let behind = self.behind_port.max(1);
        let port_bytes = self.queue_after(behind - 1);
        let all_bytes = (0..self.subscribers).map(|copy| {
            let (ports, copies) = (copy / behind, copy % behind);
            // While one port is filled, those before it drain.
            let left = |port| {
                let since = f64::from(copies + 1 + port * behind);
                (port_bytes - since * self.drained(self.spacing_ns)).max(0.0)
            };
            self.queue_after(copies) + (0..ports).map(left).sum::<f64>()
        });
        let all_bytes = all_bytes.fold(0.0, f64::max);
        Backlog { port_bytes, publisher_bytes: all_bytes / f64::from(self.publishers.max(1)) }
    }
}
