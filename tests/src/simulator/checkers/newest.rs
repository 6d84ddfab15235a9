//! What is sent in place of older snapshots is the newest state when it is sent.
//!
//! Nobody tells when a record was staged, but a ring is first-in first-out: whatever a subscriber
//! finds behind a snapshot was sent after that one was published. So a snapshot must be the newest
//! of its instrument as of the latest publish that the records before it have shown.

use super::{Cells, Checker, ensure};
use crate::simulator::event::Event;
use crate::simulator::history::History;

#[derive(Debug, Default)]
pub(super) struct Newest {
    /// Highest channel sequence delivered, by attachment.
    shown: Cells<u64>,
}

impl Checker for Newest {
    fn name(&self) -> &'static str {
        "newest"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        let Event::Delivered { attachment, seen } = *event else { return Ok(()) };
        let terms = &history.attachments[attachment];
        if terms.lied {
            return Ok(());
        }
        let shown = self.shown.at(attachment, 0);
        let as_of = terms.channel.max(*shown);
        *shown = as_of.max(seen.header.channel_sequence);
        let (instrument, sequence) = (seen.instrument(), seen.sequence());
        let track = history.tracks.get(instrument);
        let newest = track.map_or(0, |track| track.newest_at(as_of));
        ensure(sequence >= newest, || {
            format!(
                "attachment {attachment}: snapshot {sequence} of {instrument} was sent when {newest} \
                 was out (channel {as_of})"
            )
        })
    }
}
