//! One line of `tail --json`, and the order of lines.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::Deserialize;

/// What is read of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) symbol: String,
    pub(super) epoch: u64,
    pub(super) channel_sequence: u64,
    pub(super) instrument_sequence: u64,
    pub(super) conflated_count: u64,
    pub(super) ts_event_ns: u64,
    /// Over all that is the same for every subscriber and in every life of the publisher.
    pub(super) content: u64,
}

/// The line as it is written; what is not named here is passed over.
#[derive(Deserialize)]
struct Written<'a> {
    symbol: String,
    epoch: &'a str,
    channel_sequence: u64,
    instrument_sequence: u64,
    feed_sequence: u64,
    ts_event: &'a str,
    conflated_count: u64,
}

impl Line {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let complaint = |why: &dyn std::fmt::Display| format!("a line that is none, {why}: {text}");
        let written: Written<'_> = serde_json::from_str(text).map_err(|why| complaint(&why))?;
        let number = |text: &str| text.parse::<u64>().map_err(|why| complaint(&why));
        // The books come last: the order of fields is part of the format.
        let books = text.find("\"bids\"").ok_or_else(|| complaint(&"without books"))?;
        let mut hasher = DefaultHasher::new();
        (&written.symbol, written.instrument_sequence, written.feed_sequence).hash(&mut hasher);
        (written.ts_event, &text[books..]).hash(&mut hasher);
        Ok(Self {
            epoch: number(written.epoch)?,
            ts_event_ns: number(written.ts_event)?,
            symbol: written.symbol,
            channel_sequence: written.channel_sequence,
            instrument_sequence: written.instrument_sequence,
            conflated_count: written.conflated_count,
            content: hasher.finish(),
        })
    }
}

/// Sees that nothing is missing, twice or in the wrong order.
#[derive(Debug, Default)]
pub(super) struct Order {
    epoch: u64,
    last: HashMap<String, u64>,
}

impl Order {
    /// Looks at the next line.
    pub(super) fn on_line(&mut self, line: &Line) -> Result<(), String> {
        if line.epoch < self.epoch {
            return Err(format!("epoch {} after epoch {}", line.epoch, self.epoch));
        }
        if line.epoch > self.epoch {
            self.epoch = line.epoch;
            self.last.clear();
        }
        let (now, conflated) = (line.instrument_sequence, line.conflated_count);
        let accounted = match self.last.get_mut(&line.symbol) {
            Some(last) => std::mem::replace(last, now) + conflated + 1 == now,
            None => {
                self.last.insert(line.symbol.clone(), now);
                // Those before it came before this session, or are conflated.
                conflated < now
            }
        };
        if accounted {
            return Ok(());
        }
        Err(format!("{} {now} with {conflated} conflated does not follow", line.symbol))
    }

    /// Instruments of which the present epoch has shown something.
    pub(super) fn instruments(&self) -> usize {
        self.last.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(epoch: u64, instrument_sequence: u64, conflated_count: u64) -> Line {
        Line {
            symbol: "AAPL".to_owned(),
            epoch,
            channel_sequence: 0,
            instrument_sequence,
            conflated_count,
            ts_event_ns: 0,
            content: 0,
        }
    }

    #[test]
    fn a_jump_must_be_accounted_for_and_nothing_comes_twice() {
        let mut order = Order::default();
        order.on_line(&line(1, 5, 0)).expect("an image may begin anywhere");
        order.on_line(&line(1, 6, 0)).expect("the next one");
        order.on_line(&line(1, 9, 2)).expect("two were conflated");
        order.on_line(&line(1, 11, 0)).expect_err("one is missing");
        order.on_line(&line(1, 11, 0)).expect_err("twice");
    }

    #[test]
    fn a_new_epoch_begins_anew_and_an_old_one_does_not_come_back() {
        let mut order = Order::default();
        order.on_line(&line(1, 5, 0)).expect("an image");
        order.on_line(&line(2, 1, 0)).expect("an image of the new epoch");
        assert_eq!(order.instruments(), 1);
        order.on_line(&line(1, 6, 0)).expect_err("the old epoch");
    }

    #[test]
    fn content_is_what_everybody_gets_and_not_when_or_how() {
        let text = |latency: u32, sequence: u32, price: &str| {
            format!(
                "{{\"symbol\":\"AAPL\",\"epoch\":\"1\",\"channel_sequence\":3,\
                 \"instrument_sequence\":{sequence},\"feed_sequence\":7,\"ts_event\":\"5\",\
                 \"latency_ns\":{latency},\"flags\":[],\"conflated_count\":0,\
                 \"bids\":[[\"{price}\",\"1\",1]],\"asks\":[]}}"
            )
        };
        let content = |text: &str| Line::parse(text).expect("a line").content;
        let one = content(&text(1, 2, "3"));
        assert_eq!(one, content(&text(9, 2, "3")));
        assert_ne!(one, content(&text(1, 3, "3")));
        assert_ne!(one, content(&text(1, 2, "4")));
        Line::parse("{}").expect_err("no line");
    }
}
