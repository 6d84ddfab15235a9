//! Sequences rise strictly within each instrument, unless one is asked for again. A lossless
//! session sees every one of them, and after its image the channel in order.

use super::{Cells, Checker, ensure};
use crate::simulator::event::{Event, Seen};
use crate::simulator::history::History;

#[derive(Debug, Default)]
pub(super) struct Order {
    last: Cells<u64>,
    /// Channel sequence of the last snapshot that is no image, by attachment.
    channel: Cells<u64>,
}

impl Checker for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        let Event::Delivered { attachment, seen } = *event else { return Ok(()) };
        let terms = &history.attachments[attachment];
        if terms.lied {
            return Ok(());
        }
        let (instrument, sequence) = (seen.instrument(), seen.sequence());
        let last = core::mem::replace(self.last.at(attachment, instrument), sequence);
        let is_again = sequence == last && terms.has_refreshed(instrument);
        ensure(sequence > last || is_again, || {
            format!("attachment {attachment}: {instrument} is at {sequence} after {last}")
        })?;
        if terms.is_lossless() && terms.named(instrument) && !is_again {
            let image = history.newest_at_attach(terms, instrument);
            self.check_lossless(attachment, seen, last, image)?;
        }
        Ok(())
    }
}

impl Order {
    fn check_lossless(
        &mut self,
        attachment: usize,
        seen: &Seen<'_>,
        last: u64,
        image: u64,
    ) -> Result<(), String> {
        let (instrument, sequence) = (seen.instrument(), seen.sequence());
        let expected = if last == 0 { image.max(1) } else { last + 1 };
        ensure(sequence == expected, || {
            format!("lossless {attachment}: {instrument} is at {sequence}, not {expected}")
        })?;
        if last == 0 && image > 0 {
            return Ok(());
        }
        let channel = seen.header.channel_sequence;
        let before = core::mem::replace(self.channel.at(attachment, 0), channel);
        ensure(channel > before, || {
            format!("lossless {attachment}: channel at {channel} after {before}")
        })
    }
}
