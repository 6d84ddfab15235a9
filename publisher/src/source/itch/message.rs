//! Message types of Nasdaq TotalView-ITCH 5.0 and their fields. All integers are big-endian.

use thiserror::Error;

/// Type, stock locate, tracking number and timestamp: the start of every message.
pub(crate) const HEADER_BYTES: usize = 11;

/// Bytes of each known message type, by type byte; 0 for types that this release does not know.
const KNOWN_BYTES: [u8; 256] = {
    let known: [(u8, u8); 23] = [
        (b'S', 12), // system event
        (b'R', 39), // stock directory
        (b'H', 25), // trading action
        (b'Y', 20), // Reg SHO restriction
        (b'L', 26), // market participant position
        (b'V', 35), // market-wide circuit breaker: levels
        (b'W', 12), // market-wide circuit breaker: status
        (b'K', 28), // IPO quoting period
        (b'J', 35), // limit-up limit-down auction collar
        (b'h', 21), // operational halt
        (b'A', 36), // add
        (b'F', 40), // add with attribution
        (b'E', 31), // executed
        (b'C', 36), // executed with price
        (b'X', 23), // cancel
        (b'D', 19), // delete
        (b'U', 35), // replace
        (b'P', 44), // trade of a hidden order
        (b'Q', 40), // cross trade
        (b'B', 19), // broken trade
        (b'I', 50), // net order imbalance
        (b'N', 20), // retail price improvement
        (b'O', 48), // direct listing with capital raise
    ];
    let mut table = [0; 256];
    let mut index = 0;
    while index < known.len() {
        table[known[index].0 as usize] = known[index].1;
        index += 1;
    }
    table
};

/// Bytes that a message of this type has at least; `None` for an unknown type.
#[inline]
pub(crate) const fn known_bytes(kind: u8) -> Option<usize> {
    match KNOWN_BYTES[kind as usize] {
        0 => None,
        bytes => Some(bytes as usize),
    }
}

/// What a type is called in figures.
pub(crate) fn name_of(kind: u8) -> String {
    kind.escape_ascii().to_string()
}

/// The names of all known types.
pub(crate) fn known_types() -> Vec<String> {
    (0..=u8::MAX).filter(|kind| known_bytes(*kind).is_some()).map(name_of).collect()
}

/// Whether a message of this type speaks of orders or trades, so that the directory is over.
pub(crate) const fn is_order_flow(kind: u8) -> bool {
    matches!(kind, b'A' | b'F' | b'E' | b'C' | b'X' | b'D' | b'U' | b'P' | b'Q')
}

/// A message that cannot be read. Whatever was decoded before it is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// No bytes at all, so no type.
    #[error("a message of length zero")]
    Empty,
    /// Fewer bytes than the type has.
    #[error("a message of type {kind:?} has {have} bytes, but that type has at least {need}")]
    Short {
        /// Its type.
        kind: char,
        /// Its bytes.
        have: usize,
        /// Bytes of that type.
        need: usize,
    },
}

/// The known prefix of a message; a longer message's rest is not looked at.
#[inline]
pub(crate) fn body<const BYTES: usize>(message: &[u8]) -> Result<&[u8; BYTES], MessageError> {
    message.first_chunk().ok_or_else(|| short(message, BYTES))
}

#[cold]
pub(crate) fn short(message: &[u8], need: usize) -> MessageError {
    match message.first() {
        None => MessageError::Empty,
        Some(kind) => MessageError::Short { kind: char::from(*kind), have: message.len(), need },
    }
}

/// `BYTES` bytes at `AT`. The bounds are checked when this is compiled into its caller.
#[inline]
const fn field<const AT: usize, const BYTES: usize, const ALL: usize>(
    message: &[u8; ALL],
) -> [u8; BYTES] {
    const { assert!(AT + BYTES <= ALL) };
    let mut bytes = [0; BYTES];
    let mut index = 0;
    while index < BYTES {
        bytes[index] = message[AT + index];
        index += 1;
    }
    bytes
}

#[inline]
pub(crate) const fn u16_at<const AT: usize, const ALL: usize>(message: &[u8; ALL]) -> u16 {
    u16::from_be_bytes(field::<AT, 2, ALL>(message))
}

#[inline]
pub(crate) const fn u32_at<const AT: usize, const ALL: usize>(message: &[u8; ALL]) -> u32 {
    u32::from_be_bytes(field::<AT, 4, ALL>(message))
}

#[inline]
pub(crate) const fn u64_at<const AT: usize, const ALL: usize>(message: &[u8; ALL]) -> u64 {
    u64::from_be_bytes(field::<AT, 8, ALL>(message))
}

/// A `Price(4)`: 1e-4 on the wire, 1e-9 here.
#[inline]
pub(crate) const fn price_at<const AT: usize, const ALL: usize>(message: &[u8; ALL]) -> i64 {
    u32_at::<AT, ALL>(message) as i64 * 100_000
}

/// Eight characters, padded with spaces on the right.
pub(crate) type Stock = [u8; 8];

#[inline]
pub(crate) const fn stock_at<const AT: usize, const ALL: usize>(message: &[u8; ALL]) -> Stock {
    field::<AT, 8, ALL>(message)
}

/// Nanoseconds since midnight in New York: six bytes.
#[inline]
pub(crate) const fn timestamp<const ALL: usize>(message: &[u8; ALL]) -> u64 {
    let high = u16_at::<5, ALL>(message) as u64;
    let low = u32_at::<7, ALL>(message) as u64;
    high << 32 | low
}

/// The stock locate code.
#[inline]
pub(crate) const fn locate<const ALL: usize>(message: &[u8; ALL]) -> u16 {
    u16_at::<1, ALL>(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_three_types_are_known() {
        let known = (0..=u8::MAX).filter(|kind| known_bytes(*kind).is_some()).count();
        assert_eq!(known, 23);
        assert!((0..=u8::MAX).filter_map(known_bytes).all(|bytes| bytes >= HEADER_BYTES));
    }

    #[test]
    fn all_six_bytes_of_the_timestamp_count() {
        let mut message = [0_u8; HEADER_BYTES];
        message[5..].copy_from_slice(&[0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc]);
        assert_eq!(timestamp(&message), 0x1234_5678_9abc);
    }

    #[test]
    fn the_largest_price_fits() {
        assert_eq!(price_at::<0, 4>(&[0xff; 4]), 429_496_729_500_000);
    }
}
