//! Where long transfers through one port settle (the fluid model of the DCQCN authors).
//!
//! The model counts in packets. A mark comes with probability `p`; a queue pair is cut at most once
//! in `cnp_interval`, and raised again by a timer and by a byte counter. Where cuts and raises
//! balance is the one fixed point. Whether the rates also stay there is another question, which
//! depends on the delay of the loop (`stability`).

use serde::Serialize;

/// Parameters of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FluidModel {
    /// Rate of the congested port, in Gb/s.
    pub port_gbps: f64,
    /// Bytes of a packet.
    pub packet_bytes: f64,
    /// Least time between two congestion notifications to one queue pair, in seconds.
    pub cnp_interval_s: f64,
    /// Time between two updates of the congestion estimate, in seconds.
    pub alpha_interval_s: f64,
    /// Time between two raises by the timer, in seconds.
    pub timer_s: f64,
    /// Bytes between two raises by the byte counter.
    pub byte_counter: f64,
    /// Raises in fast recovery, before the target itself is raised.
    pub fast_recovery: f64,
    /// What the target is raised by, in Mb/s.
    pub additive_mbps: f64,
    /// Weight of the newest mark in the congestion estimate.
    pub gain: f64,
}

/// The balance of `flows` equal transfers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FixedPoint {
    /// Probability that a packet is marked.
    pub marked: f64,
    /// The authors' approximation of it.
    pub marked_approximately: f64,
    /// Estimate of congestion at the sender.
    pub alpha: f64,
    /// Rate of each transfer, in Gb/s.
    pub rate_gbps: f64,
    /// Rate that each aims at, in Gb/s.
    pub target_gbps: f64,
}

/// Events per packet, at one rate and mark probability.
pub(super) struct Events {
    /// Probability of a cut in one notification interval.
    pub(super) cut: f64,
    /// Raises of the rate, by byte counter and timer.
    pub(super) raise: f64,
    /// Raises of the target, by byte counter and timer.
    pub(super) raise_target: f64,
    pub(super) alpha: f64,
}

impl FluidModel {
    /// The parameters of the authors' paper, at another port rate.
    #[must_use]
    pub const fn paper(port_gbps: f64) -> Self {
        Self {
            port_gbps,
            packet_bytes: 1000.0,
            cnp_interval_s: 50e-6,
            alpha_interval_s: 55e-6,
            timer_s: 55e-6,
            byte_counter: 10e6,
            fast_recovery: 5.0,
            additive_mbps: 40.0,
            gain: 1.0 / 256.0,
        }
    }

    fn packet_bits(&self) -> f64 {
        self.packet_bytes * 8.0
    }

    pub(super) fn port_packets(&self) -> f64 {
        self.port_gbps * 1e9 / self.packet_bits()
    }

    pub(super) fn additive_packets(&self) -> f64 {
        self.additive_mbps * 1e6 / self.packet_bits()
    }

    pub(super) fn events(&self, marked: f64, rate: f64) -> Events {
        let ln = (-marked).ln_1p();
        let seen_within = |packets: f64| -(packets * ln).exp_m1();
        let (bytes, timer) = (self.byte_counter / self.packet_bytes, self.timer_s * rate);
        let raise = |packets: f64| marked / (-packets * ln).exp_m1();
        let target = |packets: f64| raise(packets) * (self.fast_recovery * packets * ln).exp();
        Events {
            cut: seen_within(self.cnp_interval_s * rate),
            raise: raise(bytes) + raise(timer),
            raise_target: target(bytes) + target(timer),
            alpha: seen_within(self.alpha_interval_s * rate),
        }
    }

    /// Whether cuts outweigh raises at this mark probability.
    fn cuts_prevail(&self, marked: f64, rate: f64) -> bool {
        let Events { cut, raise, raise_target, alpha } = self.events(marked, rate);
        let raised = self.cnp_interval_s.powi(2) * self.additive_packets() * rate;
        cut * cut * alpha > raised * raise * raise_target
    }

    /// The fixed point of so many equal transfers through the port.
    #[must_use]
    pub fn fixed_point(&self, flows: u32) -> FixedPoint {
        let rate = self.port_packets() / f64::from(flows.max(1));
        let (mut low, mut high) = (1e-12_f64, 0.5_f64);
        for _ in 0..200 {
            let middle = (low * high).sqrt();
            if self.cuts_prevail(middle, rate) {
                high = middle;
            } else {
                low = middle;
            }
        }
        let Events { cut, raise, alpha, .. } = self.events(low, rate);
        let target = rate + cut * alpha / (self.cnp_interval_s * raise);
        let gbps = |packets: f64| packets * self.packet_bits() / 1e9;
        FixedPoint {
            marked: low,
            marked_approximately: self.approximation(flows),
            alpha,
            rate_gbps: gbps(rate),
            target_gbps: gbps(target),
        }
    }

    pub(super) fn approximation(&self, flows: u32) -> f64 {
        let (flows, port) = (f64::from(flows), self.port_packets());
        let raises = self.packet_bytes / self.byte_counter + flows / (self.timer_s * port);
        let gain = self.additive_packets() * flows * flows / (self.alpha_interval_s * port * port);
        (gain * raises * raises).cbrt()
    }
}
