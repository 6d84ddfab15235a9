//! A subscriber that keeps up is never late, whatever the others do.
//!
//! The bound is [`Bounds::turns_for`] the whole backlog that a session can have; it depends on the
//! configuration alone. A directory entry that changes goes first and allows one more cycle. Turns
//! that end without a free page do not count: then the feed itself has none.

use super::{Cells, Checker, ensure};
use crate::simulator::bounds::Bounds;
use crate::simulator::event::Event;
use crate::simulator::history::{Attachment, History};

/// The check walks instruments, so it is not made in every turn.
const EVERY: u64 = 4;

#[derive(Debug, Default)]
pub(super) struct Delay {
    delivered: Cells<u64>,
    /// Turns that counted, up to each turn.
    counted: Vec<u64>,
    /// Turns in which a directory entry changed.
    announced: Vec<u64>,
}

impl Checker for Delay {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Delivered { attachment, seen } => {
                *self.delivered.at(attachment, seen.instrument()) = seen.sequence();
            }
            Event::Announced { .. } => self.announced.push(history.turn),
            Event::Turned { facts } => {
                let before = self.counted.last().copied().unwrap_or(0);
                let counts = u64::from(facts.free_pages > 0);
                self.counted.resize(history.turn as usize + 1, before);
                self.counted[history.turn as usize] = before + counts;
                if history.turn.is_multiple_of(EVERY) {
                    return self.check_all(history);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Delay {
    fn check_all(&self, history: &History) -> Result<(), String> {
        let bounds = Bounds::of(&history.plan.network);
        for (number, terms) in history.open().filter(|(_, terms)| terms.swift) {
            for instrument in 0..history.tracks.len() {
                let Some(since) = self.waits_since(number, terms, instrument, history) else {
                    continue;
                };
                let count = |turn: u64| self.counted.get(turn as usize).copied().unwrap_or(0);
                let age = count(history.turn) - count(since);
                let entries = self.announced.iter().rev().take_while(|turn| **turn >= since);
                let allowed =
                    bounds.turns_for(bounds.backlog) + bounds.cycle * entries.count() as u64;
                ensure(age <= allowed, || {
                    format!(
                        "attachment {number} keeps up, and has waited {age} turns for \
                         {instrument}; at most {allowed}"
                    )
                })?;
            }
        }
        Ok(())
    }

    /// The turn since when an instrument has something for an attachment.
    fn waits_since(
        &self,
        number: usize,
        terms: &Attachment,
        instrument: usize,
        history: &History,
    ) -> Option<u64> {
        let track = &history.tracks[instrument];
        let delivered = self.delivered.get(number, instrument).copied().unwrap_or(0);
        if !terms.wants(instrument) || delivered == track.newest() {
            return None;
        }
        let first =
            if delivered == 0 { track.newest_at(terms.channel).max(1) } else { delivered + 1 };
        let issued = track.issue(first)?.turn;
        let asked = if terms.named(instrument) { 0 } else { terms.watched[&instrument] };
        Some(issued.max(asked).max(terms.turn))
    }
}
