//! Once nothing goes wrong any more, everybody who is attached soon has everything, up to the last
//! snapshot.

use super::{Cells, Checker, ensure};
use crate::simulator::event::Event;
use crate::simulator::history::{Attachment, History};

#[derive(Debug, Default)]
pub(super) struct Liveness {
    delivered: Cells<u64>,
}

impl Checker for Liveness {
    fn name(&self) -> &'static str {
        "liveness"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Delivered { attachment, seen } => {
                *self.delivered.at(attachment, seen.instrument()) = seen.sequence();
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
            ensure(!terms.wants(instrument) || delivered == track.newest(), || {
                format!(
                    "attachment {number} is left at {delivered} of {instrument}, {} is out",
                    track.newest()
                )
            })?;
        }
        Ok(())
    }
}
