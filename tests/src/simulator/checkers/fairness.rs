//! Nobody overtakes: what waits is sent in the order in which it began to wait.
//!
//! An instrument has waited since the oldest snapshot that was not sent of it, so deliveries of one
//! attachment come in the order of the oldest snapshot that each of them stands for. Images are not
//! in that order (they go first, by id), nor are those that were asked for late or again, nor what
//! had to rest.

use super::{Cells, Checker, ensure};
use crate::simulator::event::Event;
use crate::simulator::history::History;

#[derive(Debug, Default)]
pub(super) struct Fairness {
    last: Cells<u64>,
    /// Channel sequence of the oldest snapshot that the last delivery stood for, by attachment.
    waited_since: Cells<u64>,
}

impl Checker for Fairness {
    fn name(&self) -> &'static str {
        "fairness"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        let Event::Delivered { attachment, seen } = *event else { return Ok(()) };
        let terms = &history.attachments[attachment];
        let (instrument, sequence) = (seen.instrument(), seen.sequence());
        let last = core::mem::replace(self.last.at(attachment, instrument), sequence);
        let born_after =
            terms.named(instrument) && history.newest_at_attach(terms, instrument) == 0;
        let is_out_of_turn = terms.has_refreshed(instrument) || terms.min_interval_ns > 0;
        if terms.lied || is_out_of_turn || (last == 0 && !born_after) {
            return Ok(());
        }
        let issue = history.tracks.get(instrument).and_then(|track| track.issue(last + 1));
        let Some(oldest) = issue.map(|issue| issue.channel) else { return Ok(()) };
        let before = core::mem::replace(self.waited_since.at(attachment, 0), oldest);
        ensure(oldest > before, || {
            format!(
                "attachment {attachment}: {instrument} waited since {oldest} (channel) and came \
                 after one that waited since {before}"
            )
        })
    }
}
