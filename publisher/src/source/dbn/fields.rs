//! What single records say, without any state.

use dbn::{
    InstrumentDefMsg, MboMsg, StatusAction, StatusMsg, SymbolMappingMsg, UNDEF_ORDER_SIZE,
    UNDEF_PRICE, v1, v2,
};
use tapecast_wire::{Level, TradingStatus};

use super::records::Frame;
use crate::source::{MarketEvent, Side};

/// What an `mbo` record does to its book; `None` when nothing.
pub(super) fn order_event(record: &MboMsg) -> Option<MarketEvent<'static>> {
    let &MboMsg { order_id, price, size, .. } = record;
    let quantity = u64::from(size);
    let priced = price != UNDEF_PRICE;
    if record.flags.is_tob() && matches!(record.action as u8, b'A' | b'C' | b'M') {
        let level = (priced && size > 0 && record.action as u8 != b'C')
            .then(|| Level::new(price, quantity, 0));
        return side(record.side as u8).map(|side| MarketEvent::TopOfBook { side, level });
    }
    match record.action as u8 {
        b'A' if priced && has_size(size) => {
            side(record.side as u8).map(|side| MarketEvent::Add { order_id, side, price, quantity })
        }
        b'M' if priced && has_size(size) => side(record.side as u8)
            .map(|side| MarketEvent::Modify { order_id, side, price, quantity }),
        b'M' => Some(MarketEvent::Delete { order_id }),
        b'C' => Some(MarketEvent::Reduce { order_id, quantity }),
        b'R' => Some(MarketEvent::Clear),
        b'T' if priced => Some(MarketEvent::Trade { price, quantity }),
        _ => None,
    }
}

const fn has_size(size: u32) -> bool {
    size > 0 && size != UNDEF_ORDER_SIZE
}

const fn side(side: u8) -> Option<Side> {
    match side {
        b'B' => Some(Side::Bid),
        b'A' => Some(Side::Ask),
        _ => None,
    }
}

/// Copies the levels that exist and says how many they are.
pub(super) fn fill_levels(
    levels: &mut [Level; 10],
    from: impl Iterator<Item = (i64, u32, u32)>,
) -> usize {
    let mut count = 0;
    for (price, size, orders) in from {
        if price != UNDEF_PRICE && size > 0 && count < levels.len() {
            levels[count] = Level::new(price, u64::from(size), orders);
            count += 1;
        }
    }
    count
}

/// `None` for actions that do not say whether the instrument trades.
pub(super) fn trading_status(record: &StatusMsg) -> Option<TradingStatus> {
    let trading = record.is_trading as u8 == b'Y';
    Some(match StatusAction::try_from(record.action).ok()? {
        StatusAction::PreOpen => TradingStatus::PreOpen,
        StatusAction::PreCross | StatusAction::Cross | StatusAction::Rotation => {
            TradingStatus::Auction
        }
        StatusAction::Quoting => TradingStatus::QuoteOnly,
        StatusAction::Trading => TradingStatus::Trading,
        StatusAction::Pause => TradingStatus::Paused,
        StatusAction::PreClose if trading => TradingStatus::Trading,
        StatusAction::PreClose => TradingStatus::Auction,
        StatusAction::Close | StatusAction::PostClose => TradingStatus::Closed,
        StatusAction::Halt | StatusAction::Suspend | StatusAction::NotAvailableForTrading => {
            TradingStatus::Halted
        }
        // No change, a price indication, a short sale restriction, or from a later release.
        _ => return None,
    })
}

/// Symbol that a symbol mapping record gives to its instrument id.
pub(super) fn mapped_symbol(frame: Frame<'_>) -> Option<&str> {
    let offset = match frame.version() {
        1 => core::mem::offset_of!(v1::SymbolMappingMsg, stype_out_symbol),
        _ => core::mem::offset_of!(SymbolMappingMsg, stype_out_symbol),
    };
    text_at(frame, offset, symbol_bytes(frame))
}

const fn symbol_bytes(frame: Frame<'_>) -> usize {
    match frame.version() {
        1 => v1::SYMBOL_CSTR_LEN,
        _ => dbn::SYMBOL_CSTR_LEN,
    }
}

/// What is used of a definition. Its layout differs between versions, and two of them hold enums
/// that any byte may be in a file, so the fields are read where the crate says they are.
pub(super) struct Definition<'a> {
    pub(super) symbol: &'a str,
    /// In 1e-9; 0 when unknown.
    pub(super) tick_size: i64,
    /// 0 when unknown.
    pub(super) lot_size: u32,
}

impl<'a> Definition<'a> {
    pub(super) fn of(frame: Frame<'a>) -> Option<Self> {
        macro_rules! offsets {
            ($record:ty) => {
                (
                    core::mem::offset_of!($record, raw_symbol),
                    core::mem::offset_of!($record, min_price_increment),
                    core::mem::offset_of!($record, min_lot_size_round_lot),
                )
            };
        }
        let (symbol, tick, lot) = match frame.version() {
            1 => offsets!(v1::InstrumentDefMsg),
            2 => offsets!(v2::InstrumentDefMsg),
            _ => offsets!(InstrumentDefMsg),
        };
        let tick_size = i64::from_le_bytes(bytes_at(frame, tick)?);
        let lot_size = i32::from_le_bytes(bytes_at(frame, lot)?);
        Some(Self {
            symbol: text_at(frame, symbol, symbol_bytes(frame))?,
            tick_size: if tick_size == UNDEF_PRICE { 0 } else { tick_size.max(0) },
            lot_size: if lot_size == i32::MAX { 0 } else { lot_size.max(0).cast_unsigned() },
        })
    }
}

fn bytes_at<const N: usize>(frame: Frame<'_>, offset: usize) -> Option<[u8; N]> {
    frame.bytes().get(offset..offset + N)?.try_into().ok()
}

fn text_at(frame: Frame<'_>, offset: usize, bytes: usize) -> Option<&str> {
    let field = frame.bytes().get(offset..offset + bytes)?;
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    core::str::from_utf8(&field[..end]).ok()
}
