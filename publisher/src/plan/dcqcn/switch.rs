//! Where switches mark packets (ECN), and where they pause the sender instead (PFC).

use serde::Serialize;

/// Which packets a switch marks: none below `kmin`, all above `kmax`, in between ever more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MarkingCurve {
    /// Whose defaults these are.
    pub name: &'static str,
    /// Queue from which on packets are marked, in bytes.
    pub kmin_bytes: f64,
    /// Queue from which on every packet is marked, in bytes.
    pub kmax_bytes: f64,
    /// Probability just below `kmax`; unknown where its maker does not say.
    pub pmax: Option<f64>,
}

/// Defaults in use, for a port of so many Gb/s.
#[must_use]
pub fn marking_curves(port_gbps: f64) -> [MarkingCurve; 4] {
    let curve = |name, kmin_kb: f64, kmax_kb: f64, pmax| MarkingCurve {
        name,
        kmin_bytes: kmin_kb * 1e3,
        kmax_bytes: kmax_kb * 1e3,
        pmax,
    };
    [
        curve("DCQCN paper, 40G", 5.0, 200.0, Some(0.01)),
        curve("ns-3 sample, 40G", 40.0, 1000.0, Some(1.0)),
        curve("Onyx, Cumulus", 150.0, 1500.0, None),
        curve("HPCC, by port rate", scaled(port_gbps), 4.0 * scaled(port_gbps), Some(0.2)),
    ]
}

/// HPCC's authors take 100 KB at 25 Gb/s, 200 KB at 50 and 400 KB at 100.
fn scaled(port_gbps: f64) -> f64 {
    4.0 * port_gbps
}

impl MarkingCurve {
    /// Probability of a mark at this queue, in bytes; unknown where the curve is.
    #[must_use]
    pub fn marked(&self, queue_bytes: f64) -> Option<f64> {
        if queue_bytes <= self.kmin_bytes {
            return Some(0.0);
        }
        if queue_bytes > self.kmax_bytes {
            return Some(1.0);
        }
        let along = (queue_bytes - self.kmin_bytes) / (self.kmax_bytes - self.kmin_bytes);
        self.pmax.map(|pmax| along * pmax)
    }

    /// Queue in bytes at which this share of packets is marked; `None` when that is beyond the
    /// curve, where the queue hangs about `kmax`, or the curve is not known.
    #[must_use]
    pub fn queue_at(&self, marked: f64) -> Option<f64> {
        let pmax = self.pmax.filter(|pmax| marked <= *pmax)?;
        Some(self.kmin_bytes + marked / pmax * (self.kmax_bytes - self.kmin_bytes))
    }
}

/// A switch whose ports share one buffer, with eight priorities each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SharedBuffer {
    /// All of it, in bytes.
    pub buffer_bytes: f64,
    /// Ports.
    pub ports: u32,
    /// What may still arrive after a pause was sent, for each port and priority, in bytes.
    pub headroom_bytes: f64,
}

const PRIORITIES: f64 = 8.0;
/// Share of the free buffer that a dynamic threshold lets one queue take.
const DYNAMIC_SHARE: f64 = 8.0;

impl SharedBuffer {
    /// The switch of the DCQCN paper: 12 MB, 32 ports of 40 Gb/s.
    pub const PAPER: Self = Self { buffer_bytes: 12e6, ports: 32, headroom_bytes: 22_400.0 };

    fn queues(&self) -> f64 {
        PRIORITIES * f64::from(self.ports)
    }

    /// Bytes from one port at which the switch has to pause it in the worst case, when every port
    /// and priority has as many. Not positive where the buffer is smaller than the headroom.
    #[must_use]
    pub fn pause_bytes(&self) -> f64 {
        (self.buffer_bytes - self.queues() * self.headroom_bytes) / self.queues()
    }

    /// Kmin below which ECN always comes before PFC, with dynamic thresholds, in bytes.
    #[must_use]
    pub fn marks_first_below_bytes(&self) -> f64 {
        self.pause_bytes() * DYNAMIC_SHARE / (DYNAMIC_SHARE + 1.0)
    }
}
