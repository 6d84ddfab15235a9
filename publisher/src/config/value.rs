//! Types of single configuration values. Each knows its own range, so a wrong value cannot get past
//! reading, and each reads text as well as numbers, because environment and flags carry only text.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tapecast_wire::limits::{MAX_RING_BYTES, MIN_RING_BYTES};

use crate::source::pacing::Pace;

/// A whole number from `MIN` to `MAX`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    /// A value known at compile time to be in range.
    ///
    /// # Panics
    /// When it is not: use it in a `const`.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        assert!(value >= MIN && value <= MAX, "value out of range");
        Self(value)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as a count of things in memory.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0 as usize
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Whole<MIN, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(ScalarText)?;
        match text.parse::<u64>() {
            Ok(value) if (MIN..=MAX).contains(&value) => Ok(Self(value)),
            Ok(_) => Err(D::Error::custom(format!("{text} is out of range"))),
            Err(_) => Err(D::Error::custom(format!("{text:?} is not a whole number"))),
        }
    }
}

/// Yes or no.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch(pub bool);

impl Serialize for Switch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(self.0)
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(ScalarText)?;
        match text.as_str() {
            "true" => Ok(Self(true)),
            "false" => Ok(Self(false)),
            _ => Err(D::Error::custom(format!("{text:?} is neither true nor false"))),
        }
    }
}

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
        let (unit, size) =
            UNITS.into_iter().find(|(_, size)| self.0.is_multiple_of(*size)).unwrap_or(("B", 1));
        write!(f, "{} {unit}", self.0 / size)
    }
}

impl FromStr for RingBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
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
        let bytes = count.checked_mul(size).ok_or_else(|| format!("{text:?} is out of range"))?;
        if !(MIN_RING_BYTES..=MAX_RING_BYTES).contains(&bytes) {
            return Err(format!("{text:?} is out of range"));
        }
        if !bytes.is_power_of_two() {
            return Err(format!("{text:?} is not a power of two"));
        }
        Ok(Self(bytes))
    }
}

/// How fast a source is played: as a [`source::pacing::Pace`](crate::source::pacing::Pace), which can
/// also be written `realtime` here.
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

/// A list of names: a TOML array, or one text with commas between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Names(pub Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor;
        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Names, E> {
                checked_names(text.split(',').map(|name| name.trim().to_owned())).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some(ScalarOwned(name)) = items.next_element()? {
                    names.push(name.trim().to_owned());
                }
                checked_names(names.into_iter()).map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(NamesVisitor)
    }
}

fn checked_names(names: impl Iterator<Item = String>) -> Result<Names, String> {
    let names: Vec<String> = names.collect();
    if names.len() == 1 && names[0].is_empty() {
        return Ok(Names::default());
    }
    match names.iter().any(String::is_empty) {
        true => Err("the list has an empty name in it".to_owned()),
        false => Ok(Names(names)),
    }
}

/// A whole number or text inside a list, as text.
struct ScalarOwned(String);

impl<'de> Deserialize<'de> for ScalarOwned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarText).map(Self)
    }
}

/// Accepts text, a whole number or a truth value, and gives it as text, so that a value means the
/// same in a file, in the environment and in a flag.
pub(super) struct ScalarText;

impl Visitor<'_> for ScalarText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.trim().to_owned())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }
}

/// Declares a type whose values are a few fixed words.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$case_doc])* $case,)+ }

        impl $name {
            /// The word that stands for this value.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$case => $word,)+ }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$case),)+
                    _ => Err(format!("{text:?} is not a known value")),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(ScalarText)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

choice! {
    /// Where market data comes from.
    SourceKind {
        /// A Nasdaq TotalView-ITCH 5.0 file.
        Itch = "itch",
        /// A Databento DBN file.
        Dbn = "dbn",
        /// The simulated exchange.
        Synthetic = "synthetic",
    }
}

choice! {
    /// When a venue event of an ITCH feed, which has no mark for it, is over.
    EventEnd {
        /// After a run of messages with equal timestamps.
        Timestamp = "timestamp",
        /// After every message.
        Message = "message",
    }
}

choice! {
    /// What the sender does when it has nothing to do.
    Idle {
        /// Burns its core: lowest latency.
        Spin = "spin",
        /// Yields its core to others that want it.
        Yield = "yield",
        /// Sleeps until there is work.
        Block = "block",
    }
}

choice! {
    /// How the shared region is protected from writes by subscribers.
    Seal {
        /// The kernel refuses every new writable mapping.
        FutureWrite = "future-write",
        /// Mode 0600: only the publisher's own user could map it writable.
        Owner = "owner",
    }
}

choice! {
    /// Least severe log line that is written.
    LogLevel {
        /// Errors only.
        Error = "error",
        /// And warnings.
        Warn = "warn",
        /// And one line for each attach, detach and change of state.
        Info = "info",
        /// And detail for support.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// Form of log lines.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

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
