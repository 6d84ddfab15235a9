//! Credit is conserved: what a session has consumed never goes back, is whole units, and at rest is
//! exactly what was put into its ring, by this checker's own arithmetic.

use tapecast_core::session::DIRECTORY_RECORD_BYTES;
use tapecast_wire::limits::{RECORD_ALIGN_BYTES, record_bytes_max};

use super::{Cells, Checker, ensure};
use crate::simulator::event::{Event, Facts};
use crate::simulator::history::History;

const UNIT: u64 = RECORD_ALIGN_BYTES as u64;

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    consumed: u64,
    sent: u64,
    lag_bytes: u64,
    /// Bytes of the snapshots that were delivered, as they lie in a ring.
    delivered: u64,
    /// Directory entries that changed while it was attached.
    changes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Credit {
    flows: Cells<Flow>,
}

impl Checker for Credit {
    fn name(&self) -> &'static str {
        "credit"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Turned { facts } => self.on_turned(facts, history),
            Event::Delivered { attachment, seen } => {
                let bytes = u64::from(seen.header.record_len).next_multiple_of(UNIT);
                self.flows.at(attachment, 0).delivered += bytes;
                Ok(())
            }
            Event::Announced { .. } => {
                for (number, _) in history.open() {
                    self.flows.at(number, 0).changes += 1;
                }
                Ok(())
            }
            Event::Counted { attachment, .. } => self.on_counted(attachment, history),
            _ => Ok(()),
        }
    }
}

impl Credit {
    fn on_turned(&mut self, facts: &Facts, history: &History) -> Result<(), String> {
        for session in &facts.sessions {
            if history.attachments[session.attachment].lied {
                continue;
            }
            let flow = self.flows.at(session.attachment, 0);
            let sent = session.consumed + session.lag_bytes;
            let holds = session.consumed >= flow.consumed
                && sent >= flow.sent
                && session.consumed.is_multiple_of(UNIT);
            ensure(holds, || format!("{session:?} after {flow:?}"))?;
            // A backlog is shown as one unit at least, sent or not.
            let shown = if session.lag_bytes > UNIT { sent } else { session.consumed };
            flow.consumed = session.consumed;
            flow.sent = flow.sent.max(shown);
            flow.lag_bytes = session.lag_bytes;
        }
        Ok(())
    }

    fn on_counted(&mut self, attachment: usize, history: &History) -> Result<(), String> {
        let flow = *self.flows.at(attachment, 0);
        let network = &history.plan.network;
        let entry = (DIRECTORY_RECORD_BYTES as u64).next_multiple_of(UNIT);
        let least = flow.delivered + entry * history.tracks.len() as u64;
        let largest = record_bytes_max(network.levels_per_side) as u64;
        let padding = largest.next_multiple_of(UNIT).max(entry) - UNIT;
        let most = least + entry * flow.changes + (flow.consumed / network.ring_bytes) * padding;
        ensure(flow.lag_bytes == 0 && (least..=most).contains(&flow.consumed), || {
            format!(
                "attachment {attachment} at rest: {flow:?}, expected {least} to {most} consumed"
            )
        })
    }
}
