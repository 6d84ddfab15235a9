//! Once nothing goes wrong any more, everybody who is attached soon has everything, up to the last
//! snapshot, and whatever was asked for again.

use super::{Cells, Checker, ensure};
use crate::simulator::event::Event;
use crate::simulator::history::{Attachment, History};

#[derive(Debug, Default)]
pub(super) struct Liveness {
    delivered: Cells<u64>,
    /// The turn of the last delivery.
    turn: Cells<u64>,
}

impl Checker for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Delivered { attachment, seen } => {
                *self.delivered.at(attachment, seen.instrument()) = seen.sequence();
                *self.turn.at(attachment, seen.instrument()) = history.turn;
                Ok(())
            }
            Event::Restless { what, turns } => Err(format!("{what} in {turns} turns")),
            Event::Rested => {
                let mut open = history.open();
                open.try_for_each(|(number, terms)| self.check(number, terms, history))
            }
            Event::Ended { attachment } => {
                ensure(history.closed, || format!("{attachment} sees an end that is none"))?;
                self.check(attachment, &history.attachments[attachment], history)
            }
            _ => Ok(()),
        }
    }
}

impl Liveness {
    fn check(&self, number: usize, terms: &Attachment, history: &History) -> Result<(), String> {
        for (instrument, track) in history.tracks.iter().enumerate() {
            let delivered = self.delivered.get(number, instrument).copied().unwrap_or(0);
            // A channel that has ended need not answer any more.
            let wants = if history.closed {
                terms.named(instrument) || delivered > 0
            } else {
                terms.wants(instrument)
            };
            ensure(!wants || delivered == track.newest(), || {
                format!(
                    "attachment {number} is left at {delivered} of {instrument}, {} is out",
                    track.newest()
                )
            })?;
            let came = self.turn.get(number, instrument).copied().unwrap_or(0);
            let asked = terms.refreshed.get(&instrument).copied().unwrap_or(0);
            ensure(came >= asked || track.newest() == 0 || history.closed, || {
                format!(
                    "attachment {number} asked for {instrument} again in turn {asked}, and got it \
                     last in turn {came}"
                )
            })?;
        }
        Ok(())
    }
}
