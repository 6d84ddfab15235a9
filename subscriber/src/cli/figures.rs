//! Numbers for people.

use std::time::Duration;

/// `12,345,678`.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `count` in `time` as a number per second, rounded, grouped.
pub(crate) fn per_second(count: u64, time: Duration) -> String {
    grouped(rate(count, time).round() as u64)
}

/// `count` in `time` as a number per second; 0 in no time.
pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// `0 B`, `12.3 KiB`, `4.0 MiB`.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// `16 ms`, `4.2 s`, `3 min 05 s`, `2 h 07 min`.
pub(crate) fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{:.1} s", time.as_secs_f64().min(59.9)),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// `1 instrument`, `2 instruments`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped_from_the_right() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        for (value, text) in cases {
            assert_eq!(grouped(value), text);
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn bytes_never_show_a_thousand_of_a_unit() {
        let cases = [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (1_048_575, "1.0 MiB")];
        for (value, text) in cases {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn times_use_the_units_that_matter() {
        let cases = [
            (0.016, "16 ms"),
            (4.2, "4.2 s"),
            (59.99, "59.9 s"),
            (185.0, "3 min 05 s"),
            (7_620.0, "2 h 07 min"),
        ];
        for (seconds, text) in cases {
            assert_eq!(elapsed(Duration::from_secs_f64(seconds)), text);
        }
    }

    #[test]
    fn a_rate_over_no_time_is_zero() {
        assert_eq!(per_second(5, Duration::ZERO), "0");
        assert_eq!(per_second(5_000, Duration::from_millis(500)), "10,000");
    }
}
