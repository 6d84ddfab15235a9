//! Types of single configuration values. Each knows its own range, so a wrong value cannot get past
//! reading, and each reads text as well as numbers, because environment and flags carry only text.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

    /// The value, if it is in range.
    #[must_use]
    pub fn checked(value: u64) -> Option<Self> {
        (MIN..=MAX).contains(&value).then_some(Self(value))
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
