//! Series of this host's clock.

use std::io;

use tapecast_fabric::KernelClock;
use tapecast_telemetry::families::{Families, Named, flag, seconds};

/// What the kernel says of its clock; where it is refused, only that.
pub(super) fn collect(out: &mut Families, state: &io::Result<KernelClock>) {
    out.gauge(
        Named(
            "tapecast_clock_state_readable",
            "Whether the kernel's state of this host's clock can be read (adjtimex). systemd's \
             ProtectClock=yes refuses it: see the drop-in clock.conf.",
        ),
        flag(state.is_ok()),
    );
    let Ok(KernelClock { synchronised, max_error_ns, estimated_error_ns }) = *state else { return };
    out.gauge(
        Named(
            "tapecast_clock_synchronised",
            "Whether this host's clock is synchronised with another, by the kernel's state: as \
             ptp4l with phc2sys, chronyd or ntpd set it.",
        ),
        flag(synchronised),
    );
    out.gauge(
        Named(
            "tapecast_clock_max_error_seconds",
            "How wrong this host's clock may be at most. Grows by itself between two corrections, \
             to 16 s.",
        ),
        seconds(max_error_ns),
    );
    out.gauge(
        Named(
            "tapecast_clock_estimated_error_seconds",
            "How wrong this host's clock is, as whoever disciplines it thinks; 0 where that is \
             not told.",
        ),
        seconds(estimated_error_ns),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(state: &io::Result<KernelClock>) -> Vec<(String, f64)> {
        let mut out = Families::default();
        collect(&mut out, state);
        let families = out.into_inner();
        let value = |family: &prometheus::proto::MetricFamily| {
            (family.name().to_owned(), family.get_metric()[0].get_gauge().get_value())
        };
        families.iter().map(value).collect()
    }

    #[test]
    fn the_state_is_told_in_seconds() {
        let state =
            KernelClock { synchronised: true, max_error_ns: 1_500_000, estimated_error_ns: 12_000 };
        let expected = [
            ("tapecast_clock_state_readable", 1.0),
            ("tapecast_clock_synchronised", 1.0),
            ("tapecast_clock_max_error_seconds", 0.001_5),
            ("tapecast_clock_estimated_error_seconds", 0.000_012),
        ];
        assert_eq!(told(&Ok(state)), expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn a_sandbox_that_refuses_leaves_no_figure_that_could_be_believed() {
        let refused = Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(told(&refused), [("tapecast_clock_state_readable".to_owned(), 0.0)]);
    }
}
