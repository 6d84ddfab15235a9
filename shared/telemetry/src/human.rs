//! Nanoseconds for people.

use std::fmt;

/// Shows nanoseconds with three significant digits in the unit that fits: `840 ns`, `1.84 µs`,
/// `12.3 ms`, `1.20 s`. Rounds half up, and never shows `1000` of a unit that has a larger one.
/// Width, fill and alignment of the format are honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanNanos(pub u64);

const UNITS: [(u64, &str); 3] = [(1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s")];

impl fmt::Display for HumanNanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&text(self.0))
    }
}

fn text(ns: u64) -> String {
    if ns < 1_000 {
        return format!("{ns} ns");
    }
    let (largest_ns, largest) = UNITS[UNITS.len() - 1];
    UNITS
        .iter()
        .find_map(|(unit_ns, unit)| Some(format!("{} {unit}", digits(ns, *unit_ns)?)))
        .unwrap_or_else(|| format!("{} {largest}", rounded(ns, largest_ns)))
}

/// Three significant digits of `ns / unit_ns`; nothing when that rounds to 1000 or more.
fn digits(ns: u64, unit_ns: u64) -> Option<String> {
    let hundredths = rounded(ns, unit_ns / 100);
    if hundredths < 1000 {
        return Some(format!("{}.{:02}", hundredths / 100, hundredths % 100));
    }
    let tenths = rounded(ns, unit_ns / 10);
    if tenths < 1000 {
        return Some(format!("{}.{}", tenths / 10, tenths % 10));
    }
    let whole = rounded(ns, unit_ns);
    (whole < 1000).then(|| whole.to_string())
}

/// `ns / step_ns`, rounded half up. `step_ns` is even, so half of it is exact.
fn rounded(ns: u64, step_ns: u64) -> u64 {
    ns / step_ns + u64::from(ns % step_ns >= step_ns / 2)
}

#[cfg(test)]
mod tests {
    use super::HumanNanos;

    #[test]
    fn every_unit_has_three_significant_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (7, "7 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (1_840, "1.84 µs"),
            (12_300, "12.3 µs"),
            (123_456, "123 µs"),
            (1_200_000_000, "1.20 s"),
            (60_000_000_000, "60.0 s"),
            (3_600_000_000_000, "3600 s"),
            (u64::MAX, "18446744074 s"),
        ] {
            assert_eq!(HumanNanos(ns).to_string(), text);
        }
    }

    #[test]
    fn rounding_is_half_up_and_carries_into_the_next_digit_and_unit() {
        for (ns, text) in [
            (1_844, "1.84 µs"),
            (1_845, "1.85 µs"),
            (9_994, "9.99 µs"),
            (9_995, "10.0 µs"),
            (99_949, "99.9 µs"),
            (99_950, "100 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (999_999_999, "1.00 s"),
            (999_500_000_000, "1000 s"),
        ] {
            assert_eq!(HumanNanos(ns).to_string(), text, "{ns}");
        }
    }

    #[test]
    fn width_and_alignment_are_those_of_the_format() {
        assert_eq!(format!("{:>9}|", HumanNanos(1_840)), "  1.84 µs|");
        assert_eq!(format!("{:<9}|", HumanNanos(1_840)), "1.84 µs  |");
    }
}
