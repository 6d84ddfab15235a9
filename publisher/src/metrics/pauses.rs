//! Pause frames of the network card under the RDMA device: what its driver counts for itself, under
//! one name for all drivers.

use std::fs;

use tapecast_fabric::interface_statistics;
use tapecast_telemetry::families::{Families, Named};

use super::device::Device;

const FRAMES: Named = Named(
    "rdma_pause_frames_total",
    "Pause frames of the network card: received, it had to stop sending; transmitted, it made the \
     other end stop. By priority (PFC), or all for pauses of the whole link.",
);
const SECONDS: Named = Named(
    "rdma_pause_seconds_total",
    "How long those frames stopped this end (received) or the other (transmitted), where the \
     driver counts that: mlx5.",
);
/// mlx5 counts durations in microseconds.
const US_PER_S: f64 = 1e6;

/// One of a driver's counters, by what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause<'a> {
    family: Family,
    direction: &'static str,
    priority: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Frames,
    Microseconds,
}

impl Device {
    /// Pause frames, as far as the driver counts them.
    pub(super) fn collect_pauses(&self, out: &mut Families) {
        let port = self.port.to_string();
        let place = self.class.join(&self.name).join("ports").join(&port).join("gid_attrs/ndevs/0");
        let Ok(interface) = fs::read_to_string(place) else { return };
        // Where a sandbox refuses, there are no such figures.
        let Ok(statistics) = interface_statistics(interface.trim()) else { return };
        for (name, value) in &statistics {
            let Some(Pause { family, direction, priority }) = pause_of(name) else { continue };
            let labels = [
                ("device", self.name.as_str()),
                ("port", port.as_str()),
                ("direction", direction),
                ("priority", priority),
            ];
            let (named, value) = match family {
                Family::Frames => (FRAMES, *value as f64),
                Family::Microseconds => (SECONDS, *value as f64 / US_PER_S),
            };
            out.counter_of(named, &labels, value);
        }
    }
}

/// What a driver's counter says of pauses: `rx_prio3_pause`, `rx_prio3_pause_duration`,
/// `rx_global_pause` of mlx5 (Documentation/networking/device_drivers/ethernet/mellanox/mlx5/
/// counters.rst), `rx_pfc_ena_frames_pri3`, `rx_pause_frames` of bnxt_en.
fn pause_of(name: &str) -> Option<Pause<'_>> {
    let (direction, what) = match name.split_once('_')? {
        ("rx", what) => ("received", what),
        ("tx", what) => ("transmitted", what),
        _ => return None,
    };
    let (family, priority) = match what.strip_suffix("_duration") {
        Some(what) => (Family::Microseconds, priority_of(what)?),
        None => (Family::Frames, priority_of(what)?),
    };
    Some(Pause { family, direction, priority })
}

fn priority_of(what: &str) -> Option<&str> {
    if matches!(what, "global_pause" | "pause_frames") {
        return Some("all");
    }
    let mlx5 = what.strip_prefix("prio").and_then(|rest| rest.strip_suffix("_pause"));
    let number = mlx5.or_else(|| what.strip_prefix("pfc_ena_frames_pri"))?;
    matches!(number.as_bytes(), [b'0'..=b'7']).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_both_drivers_have_one_name() {
        let frames =
            |direction, priority| Some(Pause { family: Family::Frames, direction, priority });
        for (name, pause) in [
            ("rx_prio3_pause", frames("received", "3")),
            ("tx_prio0_pause", frames("transmitted", "0")),
            ("rx_global_pause", frames("received", "all")),
            ("rx_pfc_ena_frames_pri7", frames("received", "7")),
            ("tx_pause_frames", frames("transmitted", "all")),
        ] {
            assert_eq!(pause_of(name), pause, "{name}");
        }
        let duration = Pause { family: Family::Microseconds, direction: "received", priority: "3" };
        assert_eq!(pause_of("rx_prio3_pause_duration"), Some(duration));
    }

    #[test]
    fn nothing_else_is_taken_for_a_pause() {
        for name in [
            "rx_packets",
            "rx_prio3_bytes",
            "rx_prio8_pause",
            "rx_prio_pause",
            "rx_prio3_pause_transition",
            "rx_pause_ctrl_phy",
            "ch0_rx_prio3_pause",
            "tx_pause_storm_warning_events",
            "pause",
            "",
        ] {
            assert_eq!(pause_of(name), None, "{name}");
        }
    }
}
