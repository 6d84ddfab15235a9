//! A fan-out as it is asked for: through which ports, and how often.

use super::dcqcn::Incast;
use super::fan_out::{Arrivals, Scenario};

/// What is asked of publisher and network together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The fan-out of one snapshot, up to the switch.
    pub scenario: Scenario,
    /// Snapshots per second to each subscriber.
    pub snapshots_per_s: f64,
    /// Subscribers behind one port of the switch.
    pub behind_port: u32,
    /// Rate of a subscriber's port, in Gb/s.
    pub port_gbps: f64,
    /// Publishers that send at the same instant.
    pub publishers: u32,
}

impl Demand {
    /// The burst that one snapshot is in the switch.
    #[must_use]
    pub fn incast(&self) -> Incast {
        let scenario = &self.scenario;
        Incast {
            publishers: self.publishers,
            subscribers: scenario.subscribers,
            // There may be fewer than fit behind a port.
            behind_port: self.behind_port.min(scenario.subscribers).max(1),
            publisher_gbps: scenario.line_gbps,
            port_gbps: self.port_gbps,
            wire_bytes: scenario.wire_bytes(),
            spacing_ns: scenario.spacing_ns(),
        }
    }

    /// Transfers that share one port of the switch.
    #[must_use]
    pub fn flows(&self) -> u32 {
        self.incast().behind_port * self.publishers
    }

    /// Share of a subscribers' port that all publishers take.
    #[must_use]
    pub fn port_share(&self) -> f64 {
        f64::from(self.flows()) * self.snapshots_per_s * self.incast().port_ns() / 1e9
    }

    /// Whether the publisher keeps up with one snapshot in each work request. Where it has to
    /// gather, snapshots wait for one another.
    #[must_use]
    pub fn is_sustained(&self) -> bool {
        self.snapshots_per_s <= self.scenario.snapshots_per_s()
    }

    /// Arrivals after the instant of publishing, with the wait at the subscribers' ports.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        let (sent, incast) = (self.scenario.arrivals(), self.incast());
        let (mut delays_ns, mut last_ns) = (0.0, sent.last_ns);
        for copy in 0..self.scenario.subscribers {
            let delay_ns = incast.delay_ns(copy % incast.behind_port);
            let at_ns = sent.first_ns + f64::from(copy) * incast.spacing_ns + delay_ns;
            delays_ns += delay_ns;
            last_ns = at_ns.max(last_ns);
        }
        let first_ns = sent.first_ns + incast.delay_ns(0);
        let mean_ns = sent.mean_ns + delays_ns / f64::from(self.scenario.subscribers.max(1));
        Arrivals { first_ns, mean_ns, last_ns, skew_ns: last_ns - first_ns }
    }
}
