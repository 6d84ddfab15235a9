//! What is delivered is, byte for byte, what was published: never torn, never another epoch's, and
//! never from a page that was used again. Nobody is handed what it did not ask for.

use tapecast_wire::Flags;

use super::{Checker, ensure};
use crate::simulator::book::Book;
use crate::simulator::event::{Event, Seen};
use crate::simulator::history::History;

#[derive(Debug, Default)]
pub(super) struct Content;

impl Checker for Content {
    fn name(&self) -> &'static str {
        "content"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Delivered { attachment, seen } if !history.attachments[attachment].lied => {
                check(attachment, seen, history)
            }
            Event::Broke { attachment, evicted: false, why } => {
                let lied = history.attachments[attachment].lied;
                ensure(lied, || format!("attachment {attachment} cannot read its ring: {why}"))
            }
            _ => Ok(()),
        }
    }
}

fn check(attachment: usize, seen: &Seen<'_>, history: &History) -> Result<(), String> {
    let (instrument, sequence) = (seen.instrument(), seen.sequence());
    let what = || format!("attachment {attachment}: snapshot {sequence} of {instrument}");
    let terms = &history.attachments[attachment];
    ensure(terms.wants(instrument), || format!("{} was not asked for", what()))?;
    let issue = history.tracks.get(instrument).and_then(|track| track.issue(sequence));
    let Some(issue) = issue else {
        return Err(format!("{} was never published", what()));
    };
    let header = seen.header;
    let levels = history.plan.network.levels_per_side;
    let book = Book::of(history.epoch, instrument as u32, sequence, levels);
    let is_same = seen.bids == book.bids
        && seen.asks == book.asks
        && header.ts_event == book.ts_event
        && header.last_trade_price == book.last_trade_price;
    ensure(is_same, || format!("{} has another book than was published", what()))?;
    let expected = (history.epoch, issue.channel, issue.feed_sequence);
    let found = (header.epoch, header.channel_sequence, header.feed_sequence);
    ensure(found == expected, || {
        format!("{}: epoch, channel and feed are {found:?}, not {expected:?}", what())
    })?;
    let flags = Flags::NONE
        .with_if(Flags::SUSPECT, issue.suspect)
        .with_if(Flags::INITIAL_IMAGE, seen.initial)
        .with_if(Flags::CONFLATED, seen.conflated > 0);
    ensure(header.flags == flags, || {
        format!("{} has the flags {:?}, not {flags:?}", what(), header.flags)
    })?;
    ensure(u64::from(header.conflated_count) == seen.conflated, || {
        format!("{}: {} conflated in its header", what(), header.conflated_count)
    })
}
