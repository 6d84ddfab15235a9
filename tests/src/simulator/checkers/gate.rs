//! The publisher is held up by a lossless session that has no room, and by nobody else; by one that
//! keeps up, not for long.

use std::collections::BTreeSet;

use super::{Checker, ensure};
use crate::simulator::bounds::Bounds;
use crate::simulator::event::Event;
use crate::simulator::history::History;

#[derive(Debug, Default)]
pub(super) struct Gate {
    evicted: BTreeSet<usize>,
    /// The turn of the first refusal in a row.
    since: Option<u64>,
}

impl Checker for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Turned { facts } => {
                let evicted = facts.sessions.iter().filter(|each| each.eviction.is_some());
                self.evicted.extend(evicted.map(|each| each.attachment));
            }
            Event::Published { .. } | Event::Healed | Event::Started { .. } => self.since = None,
            Event::Refused { instrument } => return self.on_refused(instrument as usize, history),
            _ => {}
        }
        Ok(())
    }
}

impl Gate {
    fn on_refused(&mut self, instrument: usize, history: &History) -> Result<(), String> {
        let mut gates = history.open().filter(|(number, terms)| {
            terms.is_lossless() && terms.wants(instrument) && !self.evicted.contains(number)
        });
        ensure(gates.next().is_some(), || {
            format!("a snapshot of {instrument} was refused, and nobody may gate it")
        })?;
        let since = *self.since.get_or_insert(history.turn);
        let bounds = Bounds::of(&history.plan.network);
        let (turns, most) = (history.turn - since, 2 * bounds.turns_for(bounds.backlog));
        ensure(!history.healed || turns <= most, || {
            format!("the channel is gated for {turns} turns by subscribers that keep up")
        })
    }
}
