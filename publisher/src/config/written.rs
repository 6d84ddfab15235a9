//! Values that are written in a small notation of their own: sizes, paces, days, lengths.

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tapecast_wire::limits::{MAX_RING_BYTES, MIN_RING_BYTES};

use super::value::ScalarText;
use crate::source::pacing::Pace;

/// A ring's size: a power of two of bytes between the limits of the wire crate.
///
/// Written as a number of bytes or with a binary unit: `16 MiB`, `64KiB`, `1 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingBytes(u64);

impl RingBytes {
    /// A size known at compile time to be allowed.
    ///
    /// # Panics
    /// When it is not: use it in a `const`.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        assert!(bytes >= MIN_RING_BYTES && bytes <= MAX_RING_BYTES && bytes.is_power_of_two());
        Self(bytes)
    }

    /// Bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl fmt::Display for RingBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bytes(f, self.0)
    }
}

/// Bytes in the largest unit that fits.
fn write_bytes(f: &mut fmt::Formatter<'_>, bytes: u64) -> fmt::Result {
    let (unit, size) =
        UNITS.into_iter().find(|(_, size)| bytes.is_multiple_of(*size)).unwrap_or(("B", 1));
    write!(f, "{} {unit}", bytes / size)
}

/// Reads a number of bytes, with or without a unit.
fn bytes_of(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
    let unit = text[digits.len()..].trim_start();
    let size = match unit {
        "" => 1,
        _ => UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|(_, size)| *size)
            .ok_or_else(|| format!("{text:?} has the unknown unit {unit:?}"))?,
    };
    let count: u64 = digits.parse().map_err(|_| format!("{text:?} is not a size"))?;
    count.checked_mul(size).ok_or_else(|| format!("{text:?} is out of range"))
}

/// A number of bytes from `MIN` to `MAX`, both included, written as a ring's size is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Size<MIN, MAX> {
    /// A size known at compile time to be allowed.
    ///
    /// # Panics
    /// When it is not: use it in a `const`.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        assert!(bytes >= MIN && bytes <= MAX, "size out of range");
        Self(bytes)
    }

    /// Bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64> fmt::Display for Size<MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bytes(f, self.0)
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Size<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Size<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(ScalarText)?;
        let bytes = bytes_of(&text).map_err(D::Error::custom)?;
        match (MIN..=MAX).contains(&bytes) {
            true => Ok(Self(bytes)),
            false => Err(D::Error::custom(format!("{text:?} is out of range"))),
        }
    }
}

impl FromStr for RingBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = bytes_of(text)?;
        if !(MIN_RING_BYTES..=MAX_RING_BYTES).contains(&bytes) {
            return Err(format!("{text:?} is out of range"));
        }
        if !bytes.is_power_of_two() {
            return Err(format!("{text:?} is not a power of two"));
        }
        Ok(Self(bytes))
    }
}

/// How fast a source is played: a [`Pace`], which can also be written `realtime` here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlayPace(pub Pace);

const REAL_TIME: &str = "realtime";

impl FromStr for PlayPace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == REAL_TIME {
            return Ok(Self(Pace::RealTime));
        }
        text.parse().map(Self).map_err(|_| format!("{text:?} is not a pace"))
    }
}

impl fmt::Display for PlayPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Pace::RealTime => f.write_str(REAL_TIME),
            other => other.fmt(f),
        }
    }
}

/// Day of a feed that only says the time since midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedDate {
    /// Taken from the file's name where it has one; otherwise times count from 1 January 1970.
    Auto,
    /// This day.
    Day(jiff::civil::Date),
}

impl FromStr for FeedDate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Day).map_err(|_| format!("{text:?} is not a day")),
        }
    }
}

impl fmt::Display for FeedDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Day(day) => write!(f, "{day}"),
        }
    }
}

/// How long the simulated exchange trades.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionSpan {
    /// Until it is stopped.
    Endless,
    /// So many seconds after the open.
    Seconds(u64),
    /// So many messages.
    Messages(u64),
}

/// Most seconds of a simulated session: it must end within its day.
const SPAN_SECONDS_MAX: u64 = 6 * 3600;

impl FromStr for SessionSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "endless" {
            return Ok(Self::Endless);
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim_end();
        let unit = text[digits.len()..].trim_start();
        let count: u64 = digits.parse().map_err(|_| format!("{text:?} is not a length"))?;
        match unit {
            "s" if (1..=SPAN_SECONDS_MAX).contains(&count) => Ok(Self::Seconds(count)),
            "messages" if count > 0 => Ok(Self::Messages(count)),
            "s" | "messages" => Err(format!("{text:?} is out of range")),
            _ => Err(format!("{text:?} has neither the unit s nor messages")),
        }
    }
}

impl fmt::Display for SessionSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endless => f.write_str("endless"),
            Self::Seconds(count) => write!(f, "{count} s"),
            Self::Messages(count) => write!(f, "{count} messages"),
        }
    }
}

/// Reads and writes a type as its text.
macro_rules! as_text {
    ($($name:ident),+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(ScalarText)?.parse().map_err(D::Error::custom)
            }
        }
    )+};
}

as_text!(RingBytes, PlayPace, FeedDate, SessionSpan);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_size_reads_bytes_and_binary_units_and_prints_the_largest_unit_that_fits() {
        for (text, bytes, shown) in [
            ("65536", 1 << 16, "64 KiB"),
            ("64KiB", 1 << 16, "64 KiB"),
            ("16 MiB", 1 << 24, "16 MiB"),
            ("16 mib", 1 << 24, "16 MiB"),
            ("1 GiB", 1 << 30, "1 GiB"),
            ("131072 B", 1 << 17, "128 KiB"),
        ] {
            let size: RingBytes = text.parse().unwrap();
            assert_eq!((size.get(), size.to_string().as_str()), (bytes, shown), "{text}");
        }
    }

    #[test]
    fn a_size_may_be_any_number_of_bytes_in_its_range() {
        for (text, shown) in [("\"3 MiB\"", Ok("3 MiB")), ("\"4194305\"", Err("out of range"))] {
            let read = serde_json::from_str::<Size<1, { 4 << 20 }>>(text);
            match shown {
                Ok(shown) => assert_eq!(read.unwrap().to_string(), shown),
                Err(reason) => assert!(read.unwrap_err().to_string().contains(reason), "{text}"),
            }
        }
    }

    #[test]
    fn a_ring_size_that_cannot_be_is_refused_with_the_reason() {
        for (text, reason) in [
            ("32 KiB", "out of range"),
            ("32 GiB", "out of range"),
            ("99999999999 GiB", "out of range"),
            ("100000", "not a power of two"),
            ("16 MB", "unknown unit"),
            ("MiB", "not a size"),
            ("-1", "not a size"),
            ("1.5 MiB", "not a size"),
            ("", "not a size"),
            ("é", "not a size"),
        ] {
            let error = text.parse::<RingBytes>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
