//! Between two snapshots of an instrument lies the time that its session asked for.
//!
//! Nobody tells when a record was sent. But it was not sent before it was published, and it was
//! delivered after it was sent: so from when one was *published* to when the next is *delivered* it
//! is at least as long, by the publisher's clock, where that did not jump. A snapshot that was
//! asked for comes at once.

use super::{Cells, Checker, ensure};
use crate::simulator::event::{Event, Seen};
use crate::simulator::history::History;

#[derive(Debug, Default)]
pub(super) struct Rest {
    /// The turn in which the last one was published, and 1.
    published: Cells<u64>,
    /// The last turn in which the clock jumped, or a publisher began, which knows no time before
    /// its first turn.
    jumped: u64,
}

impl Checker for Rest {
    fn name(&self) -> &'static str {
        "rest"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Jumped { .. } => self.jumped = history.turn,
            Event::Started { .. } => self.jumped = history.turn + 1,
            Event::Delivered { attachment, seen } => return self.check(attachment, seen, history),
            _ => {}
        }
        Ok(())
    }
}

impl Rest {
    fn check(
        &mut self,
        attachment: usize,
        seen: &Seen<'_>,
        history: &History,
    ) -> Result<(), String> {
        let terms = &history.attachments[attachment];
        let instrument = seen.instrument();
        let issue = history.tracks.get(instrument).and_then(|track| track.issue(seen.sequence()));
        if terms.min_interval_ns == 0 || terms.lied || terms.has_refreshed(instrument) {
            return Ok(());
        }
        let issued = issue.map_or(0, |issue| issue.turn);
        let before = core::mem::replace(self.published.at(attachment, instrument), issued + 1);
        // The publisher's time is that of its last turn, and ends with the channel.
        if before == 0 || self.jumped + 1 >= before || history.closed {
            return Ok(());
        }
        let passed = (history.turn + 2 - before) * history.plan.turn_ns;
        ensure(passed >= terms.min_interval_ns, || {
            format!(
                "attachment {attachment} asked for {} ns between two snapshots, and is handed \
                 {instrument}:{} after {passed} ns at most",
                terms.min_interval_ns,
                seen.sequence()
            )
        })
    }
}
