//! What an application sees of one snapshot.

use core::iter::FusedIterator;
use std::sync::Arc;

use tapecast_wire::{Epoch, Flags, Instrument, InstrumentId, Level, Nanos, Sequence};
use tapecast_wire::{Snapshot as Record, SnapshotHeader, TradingStatus};

use crate::clock::transit_ns;
use crate::decimal::{Price, Quantity};
use crate::owned::{OwnedRecord, OwnedSnapshot};

/// One price level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BookLevel {
    /// Price of the level.
    pub price: Price,
    /// Quantity at this price.
    pub quantity: Quantity,
    /// Orders at this price; 0 when the feed does not say.
    pub order_count: u32,
}

/// The last trade that the feed reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trade {
    /// Price of the trade.
    pub price: Price,
    /// Quantity of the trade.
    pub quantity: Quantity,
}

/// The newest state of one instrument's book, borrowed for the length of the callback.
///
/// Nothing is allocated to make one. To keep something, copy the fields that you need, or all of it
/// with [`Snapshot::to_owned`].
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    record: Record<'a>,
    instrument: &'a Arc<Instrument>,
    received: Option<Nanos>,
    /// As the record has them, unless two publishers' snapshots are merged.
    id: InstrumentId,
    flags: Flags,
    conflated_count: u32,
}

impl<'a> Snapshot<'a> {
    /// A view of `record`, which describes `instrument` and was received at that time. Programs
    /// need this only to test what they do with snapshots.
    #[must_use]
    pub const fn new(
        record: Record<'a>,
        instrument: &'a Arc<Instrument>,
        received: Option<Nanos>,
    ) -> Self {
        let (id, flags) = (record.instrument_id(), record.flags());
        let conflated_count = record.header().conflated_count;
        Self { record, instrument, received, id, flags, conflated_count }
    }

    /// The same snapshot as one of a merged stream, where the instrument has another id and this
    /// many snapshots were delivered by neither side.
    pub(crate) fn merged(self, instrument: &'a Arc<Instrument>, conflated: u64) -> Self {
        let conflated_count = u32::try_from(conflated).unwrap_or(u32::MAX);
        let flags = Flags(self.flags.0 & !Flags::CONFLATED.0)
            .with_if(Flags::CONFLATED, conflated_count > 0);
        Self { instrument, id: instrument.instrument_id, flags, conflated_count, ..self }
    }

    /// The directory entry, shared.
    pub(crate) const fn entry(&self) -> &'a Arc<Instrument> {
        self.instrument
    }

    /// Symbol as the venue writes it; `#` and the instrument id when the directory has no entry.
    #[must_use]
    pub fn symbol(&self) -> &'a str {
        &self.instrument.symbol
    }

    /// The directory entry: symbol, venue, scale, tick, lot.
    #[must_use]
    pub fn instrument(&self) -> &'a Instrument {
        self.instrument
    }

    /// Index in this epoch's directory. Another epoch deals other ids: remember symbols, not ids.
    /// From an [`crate::AbSubscriber`]: its own id of the instrument, the same on both sides and
    /// over all sessions.
    #[must_use]
    pub const fn instrument_id(&self) -> InstrumentId {
        self.id
    }

    /// Bid levels, best (highest) first.
    #[must_use]
    pub fn bids(&self) -> Side<'a> {
        Side { levels: self.record.bids(), exponent: self.instrument.quantity_exponent }
    }

    /// Ask levels, best (lowest) first.
    #[must_use]
    pub fn asks(&self) -> Side<'a> {
        Side { levels: self.record.asks(), exponent: self.instrument.quantity_exponent }
    }

    /// Best bid, `None` when nobody bids.
    #[must_use]
    pub fn best_bid(&self) -> Option<BookLevel> {
        self.bids().first()
    }

    /// Best ask, `None` when nobody offers.
    #[must_use]
    pub fn best_ask(&self) -> Option<BookLevel> {
        self.asks().first()
    }

    /// Best ask less best bid, `None` when a side is empty. Negative in a crossed book.
    #[must_use]
    pub fn spread(&self) -> Option<Price> {
        Some(self.best_ask()?.price.above(self.best_bid()?.price))
    }

    /// The last trade that the feed reported.
    #[must_use]
    pub fn last_trade(&self) -> Option<Trade> {
        let header = self.record.header();
        let price = Price::from_wire(header.last_trade_price)?;
        let exponent = self.instrument.quantity_exponent;
        Some(Trade { price, quantity: Quantity::new(header.last_trade_quantity, exponent) })
    }

    /// Whether the instrument trades, as the venue last said.
    #[must_use]
    pub const fn trading_status(&self) -> TradingStatus {
        self.record.trading_status()
    }

    /// Every flag of the snapshot.
    #[must_use]
    pub const fn flags(&self) -> Flags {
        self.flags
    }

    /// First snapshot of this instrument in this session: replace whatever you hold of it.
    #[must_use]
    pub const fn is_initial_image(&self) -> bool {
        self.flags().contains(Flags::INITIAL_IMAGE)
    }

    /// The feed lost messages before this snapshot, or the book may be wrong: do not trade on it.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.flags().contains(Flags::SUSPECT)
    }

    /// Older snapshots of this instrument that this one replaces because the subscriber did not
    /// keep up; 0 when it did.
    #[must_use]
    pub const fn conflated_count(&self) -> u32 {
        self.conflated_count
    }

    /// When the venue says it happened.
    #[must_use]
    pub const fn ts_event(&self) -> Nanos {
        self.record.ts_event()
    }

    /// When the feed message was received by the capture or by the publisher's host.
    #[must_use]
    pub const fn ts_recv(&self) -> Nanos {
        Nanos(self.record.header().ts_recv)
    }

    /// When the publisher handed the snapshot to the fabric.
    #[must_use]
    pub const fn ts_publish(&self) -> Nanos {
        self.record.ts_publish()
    }

    /// When this process took it from the fabric; `None` when latency is not measured
    /// ([`crate::SubscriberBuilder::latency`]).
    #[must_use]
    pub const fn ts_delivered(&self) -> Option<Nanos> {
        self.received
    }

    /// From publish to delivery, in nanoseconds. `None` when it is not measured, for an initial
    /// image, whose age says nothing about the path, and where it is negative
    /// ([`Self::transit_ns`]).
    #[must_use]
    pub const fn latency_ns(&self) -> Option<u64> {
        match self.transit_ns() {
            Some(transit_ns) if transit_ns >= 0 => Some(transit_ns.cast_unsigned()),
            _ => None,
        }
    }

    /// As [`Self::latency_ns`], and negative where by the two clocks it was delivered before it was
    /// published: this host's is behind the publisher's.
    #[must_use]
    pub const fn transit_ns(&self) -> Option<i64> {
        match self.received {
            Some(received) if !self.is_initial_image() => {
                Some(transit_ns(self.ts_publish(), received))
            }
            _ => None,
        }
    }

    /// Life of the publisher that wrote this.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.record.epoch()
    }

    /// Number of this snapshot in the channel.
    #[must_use]
    pub const fn channel_sequence(&self) -> Sequence {
        self.record.channel_sequence()
    }

    /// Number of this snapshot among its instrument's.
    #[must_use]
    pub const fn instrument_sequence(&self) -> Sequence {
        self.record.instrument_sequence()
    }

    /// Sequence number of the last feed message that is in this book.
    #[must_use]
    pub const fn feed_sequence(&self) -> u64 {
        self.record.header().feed_sequence
    }

    /// The record as it travels: raw integers, every header field. From an
    /// [`crate::AbSubscriber`], the header's id, flags and conflated count are those of the side
    /// that it came from.
    #[must_use]
    pub const fn record(&self) -> Record<'a> {
        self.record
    }

    /// A copy that outlives the callback.
    #[must_use]
    pub fn to_owned(&self) -> OwnedSnapshot {
        let header = SnapshotHeader {
            instrument_id: self.id.0,
            flags: self.flags,
            conflated_count: self.conflated_count,
            ..*self.record.header()
        };
        let record = OwnedRecord::with_header(&self.record, &header);
        OwnedSnapshot::new(record, Arc::clone(self.instrument), self.received)
    }
}

/// One side of a book, best level first.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    levels: &'a [Level],
    exponent: i8,
}

impl<'a> Side<'a> {
    /// Levels that there are; at most what the publisher is configured for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.levels.len()
    }

    /// Whether nobody is on this side.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Level `depth`, 0 being the best.
    #[must_use]
    pub fn get(&self, depth: usize) -> Option<BookLevel> {
        self.levels.get(depth).and_then(|level| book_level(level, self.exponent))
    }

    /// The best level.
    #[must_use]
    pub fn first(&self) -> Option<BookLevel> {
        self.get(0)
    }

    /// Every level, best first.
    #[must_use]
    pub fn iter(&self) -> Levels<'a> {
        Levels { levels: self.levels.iter(), exponent: self.exponent }
    }
}

impl<'a> IntoIterator for Side<'a> {
    type Item = BookLevel;
    type IntoIter = Levels<'a>;

    fn into_iter(self) -> Levels<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Side<'a> {
    type Item = BookLevel;
    type IntoIter = Levels<'a>;

    fn into_iter(self) -> Levels<'a> {
        self.iter()
    }
}

/// Levels of one side, best first.
#[derive(Clone, Debug)]
pub struct Levels<'a> {
    levels: core::slice::Iter<'a, Level>,
    exponent: i8,
}

impl Iterator for Levels<'_> {
    type Item = BookLevel;

    fn next(&mut self) -> Option<BookLevel> {
        // A side that is empty may be written as one undefined level; it ends the side.
        self.levels.next().and_then(|level| book_level(level, self.exponent))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.levels.len()))
    }
}

impl FusedIterator for Levels<'_> {}

fn book_level(level: &Level, exponent: i8) -> Option<BookLevel> {
    Some(BookLevel {
        price: Price::from_wire(level.price)?,
        quantity: Quantity::new(level.quantity, exponent),
        order_count: level.order_count,
    })
}

#[cfg(test)]
mod tests {
    use tapecast_wire::{SnapshotFields, UNDEFINED_PRICE, encode_snapshot};

    use super::*;

    fn fields() -> SnapshotFields {
        SnapshotFields {
            instrument_id: InstrumentId(3),
            flags: Flags::NONE,
            trading_status: TradingStatus::Trading,
            epoch: Epoch(7),
            channel_sequence: Sequence(11),
            instrument_sequence: Sequence(5),
            feed_sequence: 99,
            ts_event: 1_000,
            ts_recv: 1_100,
            last_trade_price: UNDEFINED_PRICE,
            last_trade_quantity: 0,
        }
    }

    fn instrument(exponent: i8) -> Arc<Instrument> {
        let plain = Instrument::new(InstrumentId(3), "BTC", "X");
        Arc::new(Instrument { quantity_exponent: exponent, ..plain })
    }

    /// Eight-byte aligned memory for one record.
    #[repr(align(8))]
    struct Aligned([u8; 4096]);

    fn with_view<T>(
        fields: &SnapshotFields,
        sides: (&[Level], &[Level]),
        check: impl FnOnce(Snapshot<'_>) -> T,
    ) -> T {
        let mut memory = Aligned([0; 4096]);
        encode_snapshot(&mut memory.0, fields, sides.0, sides.1).unwrap();
        let instrument = instrument(-2);
        let record = Record::parse(&memory.0).unwrap();
        check(Snapshot::new(record, &instrument, Some(Nanos(5_000))))
    }

    #[test]
    fn levels_come_out_scaled_by_the_directory() {
        let bids = [Level::new(2_000_000_000, 150, 2), Level::new(1_500_000_000, 10, 1)];
        let asks = [Level::new(2_500_000_000, 7, 0)];
        with_view(&fields(), (&bids, &asks), |snapshot| {
            let best = snapshot.best_bid().unwrap();
            assert_eq!(
                (best.price.to_string(), best.quantity.to_string()),
                ("2".into(), "1.5".into())
            );
            assert_eq!(snapshot.bids().iter().count(), 2);
            assert_eq!(snapshot.asks().get(1), None);
            assert_eq!(snapshot.spread().unwrap().to_string(), "0.5");
        });
    }

    #[test]
    fn an_empty_side_has_no_best_level_however_it_is_written() {
        with_view(&fields(), (&[], &[Level::EMPTY]), |snapshot| {
            assert_eq!(snapshot.best_bid(), None);
            assert_eq!(snapshot.best_ask(), None);
            assert_eq!(snapshot.asks().iter().count(), 0);
            assert_eq!(snapshot.spread(), None);
            assert_eq!(snapshot.last_trade(), None);
        });
    }

    #[test]
    fn an_initial_image_has_no_latency() {
        let image = SnapshotFields { flags: Flags::INITIAL_IMAGE, ..fields() };
        with_view(&image, (&[], &[]), |snapshot| assert_eq!(snapshot.latency_ns(), None));
        with_view(&fields(), (&[], &[]), |snapshot| assert_eq!(snapshot.latency_ns(), Some(5_000)));
        with_view(&fields(), (&[], &[]), |snapshot| assert_eq!(snapshot.transit_ns(), Some(5_000)));
    }
}
