//! What a snapshot says, in a form that can be compared, and the first difference in words.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use tapecast_journal::Record;
use tapecast_subscriber::{Flags, TradingStatus};
use tapecast_wire::{Level, Snapshot, SnapshotHeader, UNDEFINED_PRICE};
use zerocopy::IntoBytes;

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    header: SnapshotHeader,
    levels: Box<[Level]>,
    /// When it was written down or delivered; 0 unless that counts.
    stamp_ns: u64,
}

impl Content {
    /// Unless `exact`, without what differs between two lives of a publisher, and between both
    /// ends.
    pub(super) fn of(
        record: &Record<'_>,
        snapshot: &Snapshot<'_>,
        exponent: i8,
        exact: bool,
    ) -> Self {
        let mut header = *snapshot.header();
        if !exact {
            let received = Flags::INITIAL_IMAGE.with(Flags::CONFLATED);
            header.flags = Flags(header.flags.0 & !received.0);
            header.conflated_count = 0;
            header.epoch = 0;
            (header.channel_sequence, header.instrument_sequence) = (0, 0);
            (header.ts_recv, header.ts_publish) = (0, 0);
            // Ids may be dealt anew; what quantities are measured in may not.
            header.instrument_id = u32::from(exponent.cast_unsigned());
        }
        let levels = snapshot.bids().iter().chain(snapshot.asks()).copied().collect();
        Self { header, levels, stamp_ns: if exact { record.stamp.get() } else { 0 } }
    }

    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.header.as_bytes().hash(&mut hasher);
        self.levels.as_bytes().hash(&mut hasher);
        self.stamp_ns.hash(&mut hasher);
        hasher.finish()
    }

    /// The first thing that is not the same, as the end of a sentence.
    pub(super) fn difference(&self, b: &Self) -> String {
        let (x, y) = (&self.header, &b.header);
        let status = |header: &SnapshotHeader| TradingStatus::from_wire(header.trading_status);
        if status(x) != status(y) {
            return told("status", &status(x).name(), &status(y).name());
        }
        if x.flags != y.flags {
            return told("flags", &names(x.flags), &names(y.flags));
        }
        for (what, x, y) in [
            ("feed sequence", x.feed_sequence, y.feed_sequence),
            ("venue time", x.ts_event, y.ts_event),
            ("last trade's quantity", x.last_trade_quantity, y.last_trade_quantity),
        ] {
            if x != y {
                return told(what, &x, &y);
            }
        }
        if x.last_trade_price != y.last_trade_price {
            return told("last trade", &price(x.last_trade_price), &price(y.last_trade_price));
        }
        self.level_difference(b).unwrap_or_else(|| self.exact_difference(b))
    }

    fn level_difference(&self, b: &Self) -> Option<String> {
        let sides = |content: &Self| {
            let (bids, asks) = content.levels.split_at(usize::from(content.header.bid_count));
            [("bid", bids.to_vec()), ("ask", asks.to_vec())]
        };
        for ((side, x), (_, y)) in sides(self).into_iter().zip(sides(b)) {
            for depth in 0..x.len().max(y.len()) {
                let (x, y) = (x.get(depth), y.get(depth));
                if x != y {
                    return Some(told(&format!("{side} {}", depth + 1), &level(x), &level(y)));
                }
            }
        }
        None
    }

    /// What only counts when everything does.
    fn exact_difference(&self, b: &Self) -> String {
        let (x, y) = (&self.header, &b.header);
        let fields = [
            ("epoch", x.epoch, y.epoch),
            ("channel sequence", x.channel_sequence, y.channel_sequence),
            ("instrument sequence", x.instrument_sequence, y.instrument_sequence),
            ("conflated count", x.conflated_count.into(), y.conflated_count.into()),
            ("receive time", x.ts_recv, y.ts_recv),
            ("publish time", x.ts_publish, y.ts_publish),
            ("time of writing", self.stamp_ns, b.stamp_ns),
        ];
        let found = fields.into_iter().find(|(_, x, y)| x != y);
        found.map_or_else(
            || "id or scale of the instrument".to_owned(),
            |(what, x, y)| told(what, &x, &y),
        )
    }
}

fn told(what: &str, a: &dyn std::fmt::Display, b: &dyn std::fmt::Display) -> String {
    format!("{what} is {a} in A and {b} in B")
}

fn names(flags: Flags) -> String {
    let names: Vec<&str> = flags.names().collect();
    if names.is_empty() { "none".to_owned() } else { names.join("+") }
}

fn level(level: Option<&Level>) -> String {
    level.map_or_else(
        || "absent".to_owned(),
        |level| {
            let Level { quantity, order_count, .. } = level;
            format!("{quantity} at {} in {order_count} orders", price(level.price))
        },
    )
}

/// Exact, without trailing zeros.
fn price(nanos: i64) -> String {
    if nanos == UNDEFINED_PRICE {
        return "none".to_owned();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let whole = nanos.unsigned_abs() / 1_000_000_000;
    let text = format!("{sign}{whole}.{:09}", nanos.unsigned_abs() % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_exact() {
        for (nanos, text) in [
            (0, "0"),
            (1_500_000_000, "1.5"),
            (-1, "-0.000000001"),
            (20_000_000_000, "20"),
            (UNDEFINED_PRICE, "none"),
        ] {
            assert_eq!(price(nanos), text);
        }
    }
}
