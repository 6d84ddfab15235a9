//! Prices and quantities as exact decimal text.

use core::fmt;

use serde::{Serialize, Serializer};
use tapecast_wire::{PRICE_SCALE, UNDEFINED_PRICE};

/// Decimals of a [`Price`].
const PRICE_DECIMALS: u32 = 9;
/// Longest text of a quantity: 20 digits of a `u64`, up to 128 zeros, a point and a zero.
const TEXT_BYTES: usize = 160;

/// A price, exact: a whole number of 1e-9 of the currency unit.
///
/// `Display` writes every digit that matters and no more: `189.95`, `0.0001`, `-3`. A precision
/// asks for *at least* that many decimals (`{:.2}` gives `190.00`); digits are never rounded away.
///
/// ```
/// use tapecast_subscriber::Price;
///
/// let price = Price::from_nanos(189_950_000_000);
/// assert_eq!(price.to_string(), "189.95");
/// assert_eq!(format!("{price:>8.4}"), "189.9500");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price(i64);

impl Price {
    /// A price from a whole number of 1e-9 of the currency unit.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The price of a wire field, `None` where it says that there is none.
    pub(crate) const fn from_wire(nanos: i64) -> Option<Self> {
        if nanos == UNDEFINED_PRICE { None } else { Some(Self(nanos)) }
    }

    /// A whole number of 1e-9 of the currency unit: use this for arithmetic.
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// The nearest binary fraction. Good for charts, wrong for money: compare and add
    /// [`Price::nanos`] instead.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / PRICE_SCALE as f64
    }

    /// How far above `other` this is; negative when it is below. Saturates.
    #[must_use]
    pub const fn above(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Text::of(self.0.unsigned_abs(), PRICE_DECIMALS, f.precision());
        f.pad_integral(self.0 >= 0, "", text.as_str())
    }
}

impl fmt::Debug for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As its exact text, because a JSON number would be read as a binary fraction.
impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A quantity, exact: `units` × 10^`exponent` shares, contracts or coins.
///
/// `Display` writes every digit that matters: `300`, `0.015`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quantity {
    units: u64,
    exponent: i8,
}

impl Quantity {
    /// `units` × 10^`exponent`.
    #[must_use]
    pub const fn new(units: u64, exponent: i8) -> Self {
        Self { units, exponent }
    }

    /// The whole number that travels on the wire. Comparable between snapshots of one instrument.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.units
    }

    /// Power of ten that one unit stands for; 0 for whole shares.
    #[must_use]
    pub const fn exponent(self) -> i8 {
        self.exponent
    }

    /// The nearest binary fraction.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.units as f64 * 10_f64.powi(i32::from(self.exponent))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = if self.exponent < 0 {
            Text::of(self.units, u32::from(self.exponent.unsigned_abs()), f.precision())
        } else {
            Text::of(self.units, 0, None)
        };
        if self.units != 0 {
            for _ in 0..self.exponent.max(0) {
                text.push(b'0');
            }
        }
        f.pad_integral(true, "", text.as_str())
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As its exact text, because a JSON number would be read as a binary fraction.
impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// ASCII text on the stack.
struct Text {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

impl Text {
    /// `magnitude` × 10^-`decimals`, without trailing zeros beyond `at_least` decimals.
    fn of(magnitude: u64, decimals: u32, at_least: Option<usize>) -> Self {
        let mut digits = [0_u8; 20];
        let mut count = 0;
        let mut rest = magnitude;
        while rest > 0 {
            digits[count] = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
        }
        // `digits[i]` is the digit of weight 10^(i - decimals).
        let decimals = decimals as usize;
        let digit = |weight: usize| if weight < count { digits[weight] } else { b'0' };
        let mut text = Self { bytes: [0; TEXT_BYTES], len: 0 };
        for weight in (decimals..count.max(decimals + 1)).rev() {
            text.push(digit(weight));
        }
        let zeros = (0..decimals).take_while(|weight| digit(*weight) == b'0').count();
        let shown = (decimals - zeros).max(at_least.unwrap_or(0).min(decimals));
        if shown > 0 {
            text.push(b'.');
        }
        for weight in (decimals - shown..decimals).rev() {
            text.push(digit(weight));
        }
        text
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_shows_every_digit_that_matters_and_no_more() {
        let cases = [
            (0, "0"),
            (1, "0.000000001"),
            (-1, "-0.000000001"),
            (10_000_000, "0.01"),
            (189_950_000_000, "189.95"),
            (190_000_000_000, "190"),
            (-3_000_000_000, "-3"),
            (123_456_789_123_456_789, "123456789.123456789"),
            (i64::MAX, "9223372036.854775807"),
            (i64::MIN, "-9223372036.854775808"),
        ];
        for (nanos, text) in cases {
            assert_eq!(Price::from_nanos(nanos).to_string(), text);
        }
    }

    #[test]
    fn a_precision_adds_zeros_but_never_takes_digits_away() {
        assert_eq!(format!("{:.2}", Price::from_nanos(190_000_000_000)), "190.00");
        assert_eq!(format!("{:.2}", Price::from_nanos(190_123_400_000)), "190.1234");
        assert_eq!(format!("{:.40}", Price::from_nanos(1_500_000_000)), "1.500000000");
        assert_eq!(format!("{:>10.2}|", Price::from_nanos(-1_500_000_000)), "     -1.50|");
    }

    #[test]
    fn a_quantity_is_exact_whatever_its_exponent() {
        let cases = [
            (300, 0, "300"),
            (0, 0, "0"),
            (0, 5, "0"),
            (15, -3, "0.015"),
            (1_500, -3, "1.5"),
            (7, 2, "700"),
            (u64::MAX, -8, "184467440737.09551615"),
        ];
        for (units, exponent, text) in cases {
            assert_eq!(Quantity::new(units, exponent).to_string(), text);
        }
    }

    #[test]
    fn no_exponent_that_a_peer_can_send_makes_a_quantity_panic() {
        for exponent in i8::MIN..=i8::MAX {
            for units in [0, 1, u64::MAX] {
                let text = Quantity::new(units, exponent).to_string();
                assert!(!text.is_empty() && text.bytes().all(|b| b == b'.' || b.is_ascii_digit()));
            }
        }
    }

    #[test]
    fn json_carries_prices_as_text() {
        let level = (Price::from_nanos(100_000_000), Quantity::new(5, -1));
        assert_eq!(serde_json::to_string(&level).unwrap(), r#"["0.1","0.5"]"#);
    }
}
