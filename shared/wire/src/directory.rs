//! The instrument directory: what an instrument id means.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{InstrumentId, WireError};

/// Bytes of a symbol on the wire, zero-padded.
pub const SYMBOL_BYTES: usize = 24;
/// Bytes of a venue code on the wire (an ISO 10383 MIC where there is one), zero-padded.
pub const VENUE_BYTES: usize = 8;

/// One directory entry, 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstrumentEntry {
    /// Dense index, from 0.
    pub instrument_id: u32,
    /// Prices are in 10^this of the currency unit; always -9 in this version.
    pub price_exponent: i8,
    /// Quantities are in 10^this of a share, contract or coin; 0 for whole units.
    pub quantity_exponent: i8,
    /// Zero.
    pub reserved: u16,
    /// Smallest price step in 1e-9; 0 when the feed does not say.
    pub tick_size: i64,
    /// Round lot in quantity units; 0 when the feed does not say.
    pub lot_size: u32,
    /// The feed's own number for the instrument (ITCH stock locate, DBN `instrument_id`).
    pub feed_instrument_id: u32,
    /// Symbol, UTF-8, zero-padded.
    pub symbol: [u8; SYMBOL_BYTES],
    /// Venue code, ASCII, zero-padded.
    pub venue: [u8; VENUE_BYTES],
    /// Zero.
    pub reserved2: u64,
}

const _: () = assert!(size_of::<InstrumentEntry>() == 64 && align_of::<InstrumentEntry>() == 8);

/// A directory entry in a form for programs: owned, with text as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instrument {
    /// Dense index, from 0.
    pub instrument_id: InstrumentId,
    /// Symbol as the venue writes it, without padding.
    pub symbol: String,
    /// Venue code.
    pub venue: String,
    /// Quantities are in 10^this units.
    pub quantity_exponent: i8,
    /// Smallest price step in 1e-9; 0 when unknown.
    pub tick_size: i64,
    /// Round lot; 0 when unknown.
    pub lot_size: u32,
    /// The feed's own number for the instrument.
    pub feed_instrument_id: u32,
}

impl Instrument {
    /// An instrument with whole-unit quantities, unknown tick and lot.
    #[must_use]
    pub fn new(instrument_id: InstrumentId, symbol: &str, venue: &str) -> Self {
        Self {
            instrument_id,
            symbol: symbol.to_owned(),
            venue: venue.to_owned(),
            quantity_exponent: 0,
            tick_size: 0,
            lot_size: 0,
            feed_instrument_id: 0,
        }
    }

    /// The wire form. Text that is too long is cut at a character boundary.
    #[must_use]
    pub fn to_wire(&self) -> InstrumentEntry {
        InstrumentEntry {
            instrument_id: self.instrument_id.0,
            price_exponent: -9,
            quantity_exponent: self.quantity_exponent,
            reserved: 0,
            tick_size: self.tick_size,
            lot_size: self.lot_size,
            feed_instrument_id: self.feed_instrument_id,
            symbol: padded(&self.symbol),
            venue: padded(&self.venue),
            reserved2: 0,
        }
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// [`WireError::Field`] when the text is not UTF-8 or the price exponent is not -9.
    pub fn from_wire(entry: &InstrumentEntry) -> Result<Self, WireError> {
        if entry.price_exponent != -9 {
            let value = u64::from(entry.price_exponent.unsigned_abs());
            return Err(WireError::Field { field: "price_exponent", value });
        }
        Ok(Self {
            instrument_id: InstrumentId(entry.instrument_id),
            symbol: text("symbol", &entry.symbol)?,
            venue: text("venue", &entry.venue)?,
            quantity_exponent: entry.quantity_exponent,
            tick_size: entry.tick_size,
            lot_size: entry.lot_size,
            feed_instrument_id: entry.feed_instrument_id,
        })
    }
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut end = text.len().min(N);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut bytes = [0; N];
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

fn text(field: &'static str, bytes: &[u8]) -> Result<String, WireError> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    core::str::from_utf8(&bytes[..end])
        .map(str::to_owned)
        .map_err(|error| WireError::Field { field, value: error.valid_up_to() as u64 })
}
