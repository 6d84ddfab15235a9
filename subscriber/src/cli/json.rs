//! Snapshots as one JSON object per line.

use std::io::{self, Write};

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use tapecast_subscriber::{BookLevel, Price, Quantity, Side, Snapshot};

/// One line of `tail --json`. Field order is part of the format.
///
/// Prices, quantities and times are text, because they do not fit into the binary fractions that
/// most JSON readers make of numbers. Times are Unix nanoseconds.
#[derive(Serialize)]
struct Line<'a> {
    symbol: &'a str,
    venue: &'a str,
    instrument_id: u32,
    epoch: Text<u64>,
    channel_sequence: u64,
    instrument_sequence: u64,
    feed_sequence: u64,
    ts_event: Text<u64>,
    ts_recv: Text<u64>,
    ts_publish: Text<u64>,
    latency_ns: Option<u64>,
    status: &'static str,
    flags: Names<'a>,
    conflated_count: u32,
    last_trade: Option<(Price, Quantity)>,
    bids: Depth<'a>,
    asks: Depth<'a>,
}

/// Writes `s` with at most `levels` levels a side, and a line feed.
pub(crate) fn write_line(out: &mut impl Write, s: &Snapshot<'_>, levels: usize) -> io::Result<()> {
    let line = Line {
        symbol: s.symbol(),
        venue: &s.instrument().venue,
        instrument_id: s.instrument_id().get(),
        epoch: Text(s.epoch().get()),
        channel_sequence: s.channel_sequence().get(),
        instrument_sequence: s.instrument_sequence().get(),
        feed_sequence: s.feed_sequence(),
        ts_event: Text(s.ts_event().get()),
        ts_recv: Text(s.ts_recv().get()),
        ts_publish: Text(s.ts_publish().get()),
        latency_ns: s.latency_ns(),
        status: s.trading_status().name(),
        flags: Names(s),
        conflated_count: s.conflated_count(),
        last_trade: s.last_trade().map(|trade| (trade.price, trade.quantity)),
        bids: Depth { side: s.bids(), levels },
        asks: Depth { side: s.asks(), levels },
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

struct Text<T>(T);

impl<T: std::fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

struct Names<'a>(&'a Snapshot<'a>);

impl Serialize for Names<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.flags().names())
    }
}

/// Levels as `[price, quantity, orders]`, best first.
struct Depth<'a> {
    side: Side<'a>,
    levels: usize,
}

impl Serialize for Depth<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        for BookLevel { price, quantity, order_count } in self.side.iter().take(self.levels) {
            seq.serialize_element(&(price, quantity, order_count))?;
        }
        seq.end()
    }
}
