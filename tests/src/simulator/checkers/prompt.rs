//! In quiet times a subscriber that keeps up is served at once, whatever the others do.
//!
//! Where its ring, its receives and its send queue are far from exhausted and pages are plenty, a
//! snapshot is posted in the turn in which it is published, executes at most `E` turns later, and
//! is handed over in that turn. [`Delay`](super::delay) holds always and is loose; this one holds
//! where the configuration is ample, and is exact.

use tapecast_fabric::sim::SimConfig;
use tapecast_wire::limits::POOL_PAGES;

use super::{Cells, Checker, ensure};
use crate::simulator::event::{Event, Facts};
use crate::simulator::history::{Attachment, History};

/// Snapshots that may have been published while it is called quiet: with padding, images and
/// heartbeats they stay below half of what an ample window takes.
const QUIET: u64 = 20;

#[derive(Debug, Default)]
pub(super) struct Prompt {
    delivered: Cells<u64>,
    /// The last turn after which nothing was waiting, by attachment.
    caught_up: Cells<u64>,
    /// Snapshots published before each turn's end.
    published: Vec<u64>,
    count: u64,
    /// The last turn in which something out of the ordinary happened.
    unquiet: u64,
}

impl Checker for Prompt {
    fn name(&self) -> &'static str {
        "prompt"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Delivered { attachment, seen } => {
                *self.delivered.at(attachment, seen.instrument()) = seen.sequence();
            }
            Event::Published { .. } => self.count += 1,
            Event::Announced { .. } | Event::Started { .. } => self.unquiet = history.turn,
            Event::Turned { facts } if is_ample(&history.plan.network) => {
                return self.on_turned(facts, history);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether a quiet feed comes nowhere near the end of anything.
fn is_ample(network: &SimConfig) -> bool {
    network.send_depth >= 64
        && network.receive_depth >= 64
        && network.ring_bytes >= 64 << 10
        && network.levels_per_side <= 10
        && network.instruments <= 12
}

impl Prompt {
    fn on_turned(&mut self, facts: &Facts, history: &History) -> Result<(), String> {
        let before = self.published.last().copied().unwrap_or(0);
        self.published.resize(history.turn as usize + 1, before);
        self.published[history.turn as usize] = self.count;
        if facts.free_pages < POOL_PAGES * 3 / 4 {
            self.unquiet = history.turn;
        }
        for (number, terms) in history.open().filter(|(_, terms)| terms.swift) {
            self.check(number, terms, history)?;
        }
        Ok(())
    }

    fn check(
        &mut self,
        number: usize,
        terms: &Attachment,
        history: &History,
    ) -> Result<(), String> {
        let tracks = history.tracks.iter().enumerate();
        let waiting = tracks.filter(|(instrument, _)| terms.named(*instrument)).filter_map(
            |(instrument, track)| {
                let delivered = self.delivered.get(number, instrument).copied().unwrap_or(0);
                let first = delivered.max(track.newest_at(terms.channel).saturating_sub(1)) + 1;
                Some((track.issue(first)?.turn.max(terms.turn), instrument))
            },
        );
        let oldest = waiting.min();
        let Some((since, instrument)) = oldest else {
            *self.caught_up.at(number, 0) = history.turn;
            return Ok(());
        };
        let network = &history.plan.network;
        let [executes, completes] =
            [network.execute_ticks_max, network.complete_ticks_max].map(u64::from);
        // An image is sent as if it had just been published.
        let caught_up = terms.turn.max(*self.caught_up.at(number, 0));
        // Work requests of before are still outstanding when it has caught up.
        let from = caught_up.saturating_sub(executes + completes + 4);
        let published = self.count - self.published[from as usize];
        let mut asked = terms.watched.values().chain(terms.refreshed.values());
        let asked = asked.any(|turn| *turn > from);
        if self.unquiet > from || asked || published > QUIET {
            return Ok(());
        }
        let (age, most) = (history.turn - since, executes.max(1) - 1);
        ensure(age <= most, || {
            format!(
                "attachment {number} keeps up in quiet times, and has waited {age} turns for \
                 {instrument}; at most {most}"
            )
        })
    }
}
