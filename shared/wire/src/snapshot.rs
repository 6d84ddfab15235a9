//! The snapshot record and a checked, borrowed view of it.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::limits::{HEADER_BYTES, LEVEL_BYTES, PAGE_BYTES, WORD_BYTES};
use crate::{Epoch, InstrumentId, Nanos, Sequence, UNDEFINED_PRICE, WIRE_VERSION, WireError};

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Fills a ring up to its end; carries nothing.
    Padding = 1,
    /// An order-book snapshot.
    Snapshot = 2,
    /// A directory entry: the payload after the header is one [`crate::InstrumentEntry`].
    Directory = 3,
}

impl Kind {
    /// Reads the wire value.
    ///
    /// # Errors
    /// [`WireError::Field`] for an unknown kind.
    pub const fn from_wire(value: u8) -> Result<Self, WireError> {
        match value {
            1 => Ok(Self::Padding),
            2 => Ok(Self::Snapshot),
            3 => Ok(Self::Directory),
            other => Err(WireError::Field { field: "kind", value: other as u64 }),
        }
    }
}

/// Whether an instrument trades, as the venue last said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TradingStatus {
    /// The feed has not said.
    #[default]
    Unknown = 0,
    /// Before the opening.
    PreOpen = 1,
    /// Continuous trading.
    Trading = 2,
    /// Halted; the book is kept.
    Halted = 3,
    /// Paused by a volatility rule.
    Paused = 4,
    /// Quotations only, no trading (Nasdaq: quotation-only period).
    QuoteOnly = 5,
    /// In an auction.
    Auction = 6,
    /// Closed for the day.
    Closed = 7,
}

impl TradingStatus {
    /// Reads the wire value; a value from a later release reads as [`TradingStatus::Unknown`].
    #[must_use]
    pub const fn from_wire(value: u8) -> Self {
        match value {
            1 => Self::PreOpen,
            2 => Self::Trading,
            3 => Self::Halted,
            4 => Self::Paused,
            5 => Self::QuoteOnly,
            6 => Self::Auction,
            7 => Self::Closed,
            _ => Self::Unknown,
        }
    }

    /// Lower-case name, for people and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::PreOpen => "pre-open",
            Self::Trading => "trading",
            Self::Halted => "halted",
            Self::Paused => "paused",
            Self::QuoteOnly => "quote-only",
            Self::Auction => "auction",
            Self::Closed => "closed",
        }
    }
}

/// Facts about one snapshot, as bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Flags(pub u32);

impl Flags {
    /// First snapshot of this instrument that this session receives. Set by the receiving end.
    pub const INITIAL_IMAGE: Self = Self(1 << 0);
    /// Stands for more than itself, see [`SnapshotHeader::conflated_count`]. Set by the receiving
    /// end.
    pub const CONFLATED: Self = Self(1 << 1);
    /// The feed lost messages before this snapshot, or the book may be wrong: do not trade on it.
    pub const SUSPECT: Self = Self(1 << 2);
    /// Best bid above best ask, as the feed says.
    pub const CROSSED: Self = Self(1 << 3);
    /// Best bid equals best ask, as the feed says.
    pub const LOCKED: Self = Self(1 << 4);
    /// Trading is halted or paused.
    pub const HALTED: Self = Self(1 << 5);
    /// The feed has ended its session; nothing follows for this instrument.
    pub const END_OF_SESSION: Self = Self(1 << 6);
    /// The book is being rebuilt from a snapshot in the feed and is not complete yet.
    pub const RECOVERING: Self = Self(1 << 7);
    /// `ts_recv` is not trustworthy, as the feed says.
    pub const BAD_TS_RECV: Self = Self(1 << 8);

    /// No flag.
    pub const NONE: Self = Self(0);

    const NAMES: [(Self, &'static str); 9] = [
        (Self::INITIAL_IMAGE, "initial-image"),
        (Self::CONFLATED, "conflated"),
        (Self::SUSPECT, "suspect"),
        (Self::CROSSED, "crossed"),
        (Self::LOCKED, "locked"),
        (Self::HALTED, "halted"),
        (Self::END_OF_SESSION, "end-of-session"),
        (Self::RECOVERING, "recovering"),
        (Self::BAD_TS_RECV, "bad-ts-recv"),
    ];

    /// Whether every bit of `other` is set here.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `other` added when `condition` holds.
    #[must_use]
    pub const fn with_if(self, other: Self, condition: bool) -> Self {
        if condition { self.with(other) } else { self }
    }

    /// This set less `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Names of the set bits, for people and JSON.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.contains(*bit)).map(|(_, name)| name)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// One price level of one side.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Level {
    /// Price in 1e-9 of the currency unit; [`UNDEFINED_PRICE`] for none.
    pub price: i64,
    /// Quantity in units of 10^`quantity_exponent` of the instrument's directory entry.
    pub quantity: u64,
    /// Orders at this price; 0 when the feed does not say.
    pub order_count: u32,
    /// Zero.
    pub reserved: u32,
}

impl Level {
    /// What an empty side shows: undefined price, quantity and count 0.
    pub const EMPTY: Self =
        Self { price: UNDEFINED_PRICE, quantity: 0, order_count: 0, reserved: 0 };

    /// A level.
    #[must_use]
    pub const fn new(price: i64, quantity: u64, order_count: u32) -> Self {
        Self { price, quantity, order_count, reserved: 0 }
    }
}

/// Fixed part of every record. All integers little-endian; all times Unix nanoseconds.
///
/// ```text
///  0 record_len u16 | header_len u16 | version u16 | kind u8 | trading_status u8
///  8 flags u32      | bid_count u16  | ask_count u16
/// 16 instrument_id u32 | conflated_count u32
/// 24 epoch u64
/// 32 channel_sequence u64
/// 40 instrument_sequence u64
/// 48 feed_sequence u64
/// 56 ts_event u64
/// 64 ts_recv u64
/// 72 ts_publish u64
/// 80 last_trade_price i64
/// 88 last_trade_quantity u64
/// 96 bids, then asks
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SnapshotHeader {
    /// Bytes of the whole record, header included; a multiple of 8, at most one page.
    pub record_len: u16,
    /// Bytes of the header: where the levels start. A later version may be longer.
    pub header_len: u16,
    /// [`WIRE_VERSION`].
    pub version: u16,
    /// [`Kind`] as its wire value.
    pub kind: u8,
    /// [`TradingStatus`] as its wire value.
    pub trading_status: u8,
    /// Facts about the snapshot.
    pub flags: Flags,
    /// Bid levels that follow the header.
    pub bid_count: u16,
    /// Ask levels that follow the bids.
    pub ask_count: u16,
    /// Index into the publisher's directory.
    pub instrument_id: u32,
    /// Older snapshots of this instrument that this one replaces for this session. 0 as published;
    /// the receiving end fills it in, because only it knows what the session has seen.
    pub conflated_count: u32,
    /// Life of the publisher.
    pub epoch: u64,
    /// Number of this snapshot in the channel, from 1.
    pub channel_sequence: u64,
    /// Number of this snapshot among its instrument's, from 1.
    pub instrument_sequence: u64,
    /// Sequence number of the last feed message that is in this book.
    pub feed_sequence: u64,
    /// When the venue says it happened.
    pub ts_event: u64,
    /// When the feed message was received, by the capture or by this host.
    pub ts_recv: u64,
    /// When the sender handed the snapshot to the fabric.
    pub ts_publish: u64,
    /// Price of the last trade in 1e-9; [`UNDEFINED_PRICE`] when there was none.
    pub last_trade_price: i64,
    /// Quantity of the last trade.
    pub last_trade_quantity: u64,
}

/// Byte offset of `ts_publish`, which the sender stamps into an encoded record.
pub(crate) const TS_PUBLISH_OFFSET: usize = core::mem::offset_of!(SnapshotHeader, ts_publish);

const _: () = {
    assert!(size_of::<SnapshotHeader>() == 96 && align_of::<SnapshotHeader>() == 8);
    assert!(core::mem::offset_of!(SnapshotHeader, flags) == 8);
    assert!(core::mem::offset_of!(SnapshotHeader, instrument_id) == 16);
    assert!(core::mem::offset_of!(SnapshotHeader, epoch) == 24);
    assert!(core::mem::offset_of!(SnapshotHeader, channel_sequence) == 32);
    assert!(core::mem::offset_of!(SnapshotHeader, instrument_sequence) == 40);
    assert!(TS_PUBLISH_OFFSET == 72);
    assert!(core::mem::offset_of!(SnapshotHeader, last_trade_quantity) == 88);
    assert!(size_of::<Level>() == 24 && align_of::<Level>() == 8);
};

impl SnapshotHeader {
    /// Byte offset of `ts_publish` in a record.
    pub const TS_PUBLISH_OFFSET: usize = TS_PUBLISH_OFFSET;
    /// Byte offset of `instrument_id` (u32) and `conflated_count` (u32) in a record.
    pub const INSTRUMENT_ID_OFFSET: usize = 16;
    /// Byte offset of `instrument_sequence` in a record.
    pub const INSTRUMENT_SEQUENCE_OFFSET: usize = 40;
}

/// Record length in the first word of a record, or `None` if it is not one that can exist.
///
/// `first_word` is the record's first eight bytes as a little-endian integer. A reader of a shared
/// ring uses this before it trusts anything else.
#[must_use]
pub const fn record_len_of(first_word: u64) -> Option<usize> {
    let len = (first_word & 0xffff) as usize;
    if len >= WORD_BYTES && len <= PAGE_BYTES && len.is_multiple_of(WORD_BYTES) {
        Some(len)
    } else {
        None
    }
}

/// A checked view of one record of kind snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    bytes: &'a [u8],
    header: &'a SnapshotHeader,
    bids: &'a [Level],
    asks: &'a [Level],
}

impl<'a> Snapshot<'a> {
    /// Parses a record.
    ///
    /// # Errors
    /// [`WireError`] when the bytes are short, misaligned, of another version or kind, or when
    /// lengths and counts contradict each other. Never panics, whatever the bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = Self::header_of(bytes)?;
        if Kind::from_wire(header.kind)? != Kind::Snapshot {
            return Err(WireError::Field { field: "kind", value: u64::from(header.kind) });
        }
        let (start, levels) = Self::levels_range(header)?;
        let record = &bytes[..usize::from(header.record_len)];
        let all = <[Level]>::ref_from_bytes(&record[start..start + levels * LEVEL_BYTES])
            .map_err(|_| WireError::Misaligned)?;
        let (bids, asks) = all.split_at(usize::from(header.bid_count));
        Ok(Self { bytes: record, header, bids, asks })
    }

    /// Header of a record of any kind, with version and length checked.
    ///
    /// # Errors
    /// As [`Snapshot::parse`].
    #[inline]
    pub fn header_of(bytes: &'a [u8]) -> Result<&'a SnapshotHeader, WireError> {
        let have = bytes.len();
        let Some(head) = bytes.get(..HEADER_BYTES) else {
            return Err(WireError::Short { what: "snapshot header", have, need: HEADER_BYTES });
        };
        let header = SnapshotHeader::ref_from_bytes(head).map_err(|_| WireError::Misaligned)?;
        if header.version != WIRE_VERSION {
            return Err(WireError::Version { theirs: header.version, ours: WIRE_VERSION });
        }
        let len = usize::from(header.record_len);
        if !(HEADER_BYTES..=PAGE_BYTES).contains(&len) || !len.is_multiple_of(WORD_BYTES) {
            return Err(WireError::Field { field: "record_len", value: len as u64 });
        }
        if len > have {
            return Err(WireError::Short { what: "snapshot", have, need: len });
        }
        Ok(header)
    }

    #[inline]
    fn levels_range(header: &SnapshotHeader) -> Result<(usize, usize), WireError> {
        let start = usize::from(header.header_len);
        if start < HEADER_BYTES || !start.is_multiple_of(WORD_BYTES) {
            return Err(WireError::Field { field: "header_len", value: start as u64 });
        }
        let levels = usize::from(header.bid_count) + usize::from(header.ask_count);
        let need = start + levels * LEVEL_BYTES;
        if need > usize::from(header.record_len) {
            return Err(WireError::Field { field: "level count", value: levels as u64 });
        }
        Ok((start, levels))
    }

    /// The whole record as it is on the wire, to be stored or sent on.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The fixed part, every field of it.
    #[must_use]
    pub const fn header(&self) -> &'a SnapshotHeader {
        self.header
    }

    /// Bid levels, best first.
    #[must_use]
    pub const fn bids(&self) -> &'a [Level] {
        self.bids
    }

    /// Ask levels, best first.
    #[must_use]
    pub const fn asks(&self) -> &'a [Level] {
        self.asks
    }

    /// Best bid, or [`Level::EMPTY`].
    #[must_use]
    pub fn best_bid(&self) -> Level {
        self.bids.first().copied().unwrap_or(Level::EMPTY)
    }

    /// Best ask, or [`Level::EMPTY`].
    #[must_use]
    pub fn best_ask(&self) -> Level {
        self.asks.first().copied().unwrap_or(Level::EMPTY)
    }

    /// Instrument of the book.
    #[must_use]
    pub const fn instrument_id(&self) -> InstrumentId {
        InstrumentId(self.header.instrument_id)
    }

    /// Flags of the snapshot.
    #[must_use]
    pub const fn flags(&self) -> Flags {
        self.header.flags
    }

    /// Trading status of the instrument.
    #[must_use]
    pub const fn trading_status(&self) -> TradingStatus {
        TradingStatus::from_wire(self.header.trading_status)
    }

    /// Life of the publisher that wrote this.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        Epoch(self.header.epoch)
    }

    /// Number in the channel.
    #[must_use]
    pub const fn channel_sequence(&self) -> Sequence {
        Sequence(self.header.channel_sequence)
    }

    /// Number among the instrument's snapshots.
    #[must_use]
    pub const fn instrument_sequence(&self) -> Sequence {
        Sequence(self.header.instrument_sequence)
    }

    /// When the sender handed it to the fabric.
    #[must_use]
    pub const fn ts_publish(&self) -> Nanos {
        Nanos(self.header.ts_publish)
    }

    /// When the venue says it happened.
    #[must_use]
    pub const fn ts_event(&self) -> Nanos {
        Nanos(self.header.ts_event)
    }

    /// Price and quantity of the last trade, if there was one.
    #[must_use]
    pub const fn last_trade(&self) -> Option<(i64, u64)> {
        if self.header.last_trade_price == UNDEFINED_PRICE {
            None
        } else {
            Some((self.header.last_trade_price, self.header.last_trade_quantity))
        }
    }
}
