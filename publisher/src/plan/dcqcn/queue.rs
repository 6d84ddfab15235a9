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

    /// The largest queues of one burst from idle.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        let filled = f64::from(self.behind_port) * f64::from(self.wire_bytes);
        let drained = filled * self.port_gbps / self.publisher_gbps;
        let port_bytes = (f64::from(self.publishers) * filled - drained).max(0.0);
        // While one port is filled, those before it drain.
        let ports = self.subscribers.div_ceil(self.behind_port.max(1));
        let left = |port: u32| (port_bytes - f64::from(port) * drained).max(0.0);
        let all_bytes: f64 = (0..ports).map(left).sum();
        Backlog { port_bytes, publisher_bytes: all_bytes / f64::from(self.publishers.max(1)) }
    }
}
