//! A session that will not be conflated never is, once it has caught up.
//!
//! It has when it was handed everything that there is, nothing is on its way to it, and no
//! directory entry was announced of late, which would have to go first.

use std::collections::BTreeSet;

use tapecast_core::session::Eviction;
use tapecast_wire::attach::Policy;

use super::{Cells, Checker, ensure};
use crate::simulator::event::{Event, Facts};
use crate::simulator::history::History;

#[derive(Debug, Default)]
pub(super) struct Disconnect {
    /// Attachments for which nothing was waiting after some turn.
    caught_up: BTreeSet<usize>,
    delivered: Cells<u64>,
    /// Attachments that were overrun.
    fallen: BTreeSet<usize>,
    /// The last turn in which a snapshot was published.
    published: u64,
    /// The last turn in which a directory entry was announced, or could not be sent for want of
    /// a page.
    announced: u64,
}

/// Free pages below which a session's directory may have to wait for one.
const SHORT_PAGES: usize = 80;
/// Turns in which an entry is sent to a session to which nothing else is.
const ENTRY_TURNS: u64 = 2;

impl Checker for Disconnect {
    fn name(&self) -> &'static str {
        "disconnect"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Announced { .. } => {
                self.announced = history.turn;
                Ok(())
            }
            Event::Published { .. } => {
                self.published = history.turn;
                Ok(())
            }
            Event::Turned { facts } => self.on_turned(facts, history),
            Event::Delivered { attachment, seen } => {
                *self.delivered.at(attachment, seen.instrument()) = seen.sequence();
                let terms = &history.attachments[attachment];
                let bound = terms.policy == Policy::Disconnect && !terms.lied;
                let allowed = !bound || !self.caught_up.contains(&attachment);
                ensure(allowed || seen.conflated == 0, || {
                    format!(
                        "attachment {attachment} will not be conflated, had caught up, and is \
                         handed {} of {} in place of {} others",
                        seen.sequence(),
                        seen.instrument(),
                        seen.conflated
                    )
                })
            }
            _ => Ok(()),
        }
    }
}

impl Disconnect {
    fn on_turned(&mut self, facts: &Facts, history: &History) -> Result<(), String> {
        if facts.free_pages < SHORT_PAGES {
            self.announced = history.turn;
        }
        for session in &facts.sessions {
            // It may catch up and fall within one turn, but only by a publish of that turn.
            let is_overrun = matches!(session.eviction, Some(Eviction::Overrun));
            if is_overrun && self.fallen.insert(session.attachment) {
                ensure(self.published == history.turn, || {
                    format!("{session:?} is overrun in a turn without a snapshot")
                })?;
            }
            let is_idle = session.lag_bytes == 0 && session.outstanding == 0;
            let is_told = history.turn > self.announced + ENTRY_TURNS;
            if is_idle && is_told && self.has_all(session.attachment, history) {
                self.caught_up.insert(session.attachment);
            }
        }
        Ok(())
    }

    fn has_all(&self, attachment: usize, history: &History) -> bool {
        let terms = &history.attachments[attachment];
        history.tracks.iter().enumerate().all(|(instrument, track)| {
            let delivered = self.delivered.get(attachment, instrument).copied().unwrap_or(0);
            !terms.wants(instrument) || delivered == track.newest()
        })
    }
}
