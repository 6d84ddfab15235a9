//! Numbers for people: three digits that count, and a unit.

use std::fmt;

/// Nanoseconds, as microseconds or what is larger, with three digits that count.
pub(super) struct Time(pub(super) f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ns) = *self;
        let (value, unit) = match ns {
            ..999.5 => return f.pad(&format!("{} ns", digits(ns))),
            ..999_500.0 => (ns / 1e3, "µs"),
            ..999_500_000.0 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        f.pad(&format!("{} {unit}", digits(value)))
    }
}

/// Three digits that count, no exponent.
fn digits(value: f64) -> String {
    match value {
        ..0.0005 => "0".to_owned(),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Bytes as switches count them, in thousands.
pub(super) struct Bytes(pub(super) f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        let text = match bytes {
            ..999.5 => format!("{bytes:.0} B"),
            ..999_500.0 => format!("{} KB", digits(bytes / 1e3)),
            _ => format!("{} MB", digits(bytes / 1e6)),
        };
        f.pad(&text)
    }
}

/// Gigabits per second.
pub(super) struct Gbps(pub(super) f64);

impl fmt::Display for Gbps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Gb/s", self.0)
    }
}

/// Memory, in powers of 1024.
pub(super) struct Memory(pub(super) u64);

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        let kib = bytes as f64 / 1024.0;
        match bytes {
            0..1024 => write!(f, "{bytes} B"),
            1024..0x10_0000 => write!(f, "{} KiB", digits(kib)),
            0x10_0000..0x4000_0000 => write!(f, "{} MiB", digits(kib / 1024.0)),
            _ => write!(f, "{} GiB", digits(kib / 1_048_576.0)),
        }
    }
}

/// A whole number in groups of three.
pub(super) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share as per cent.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", digits(share * 100.0))
}

/// `1 lane`, `2 lanes`.
pub(super) fn counted(number: u32, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_the_unit_that_fits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (5.0, "5.00 ns"),
            (28.64, "28.6 ns"),
            (999.4, "999 ns"),
            (999.6, "1.00 µs"),
            (2731.56, "2.73 µs"),
            (296_000.0, "296 µs"),
            (33_584_000.0, "33.6 ms"),
            (1.5e9, "1.50 s"),
        ] {
            assert_eq!(Time(ns).to_string(), text, "{ns}");
        }
    }

    #[test]
    fn sizes_of_switches_are_in_thousands_and_of_memory_in_powers_of_1024() {
        assert_eq!(Bytes(358.0).to_string(), "358 B");
        assert_eq!(Bytes(25_188.0).to_string(), "25.2 KB");
        assert_eq!(Bytes(12e6).to_string(), "12.0 MB");
        assert_eq!(Memory(1 << 20).to_string(), "1.00 MiB");
        assert_eq!(Memory(4_456_448).to_string(), "4.25 MiB");
    }

    #[test]
    fn counts_are_grouped_in_threes() {
        for (value, text) in
            [(0.0, "0"), (999.0, "999"), (1000.0, "1,000"), (2_182_262.6, "2,182,263")]
        {
            assert_eq!(count(value), text);
        }
    }
}
