//! What a snapshot says: it follows from its epoch, instrument and sequence, so that nobody has to
//! remember it, and no two snapshots say the same.

use tapecast_wire::Level;

use super::dice::mix;

/// The varying part of one snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Book {
    /// Bid levels.
    pub bids: Vec<Level>,
    /// Ask levels.
    pub asks: Vec<Level>,
    /// When it happened.
    pub ts_event: u64,
    /// Price of the last trade.
    pub last_trade_price: i64,
}

impl Book {
    /// The book of one snapshot, of at most `levels` levels on each side.
    #[must_use]
    pub(super) fn of(epoch: u64, instrument: u32, sequence: u64, levels: usize) -> Self {
        let mark = mix(mix(epoch ^ u64::from(instrument) << 40) ^ sequence);
        let side = |salt: u64, count: u64| -> Vec<Level> {
            let level = |depth| {
                let number = mix(mark ^ salt << 32 ^ depth);
                Level::new(number as i64 >> 1, number.rotate_left(17), number as u32)
            };
            (0..count).map(level).collect()
        };
        let most = levels as u64 + 1;
        Self {
            bids: side(1, (mark >> 8) % most),
            asks: side(2, (mark >> 24) % most),
            ts_event: mark ^ 0x7473,
            last_trade_price: (mark >> 3) as i64,
        }
    }
}
