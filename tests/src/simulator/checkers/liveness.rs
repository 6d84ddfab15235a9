//! Once nothing goes wrong any more, everybody who is attached soon has everything, up to the last
//! snapshot.

use super::{Cells, Checker, ensure};
use crate::simulator::event::Event;
use crate::simulator::history::History;

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
            Event::Rested => self.check_all(history),
            _ => Ok(()),
        }
    }
}

impl Liveness {
    fn check_all(&self, history: &History) -> Result<(), String> {
        for (number, terms) in history.open() {
            for (instrument, track) in history.tracks.iter().enumerate() {
                let delivered = self.delivered.get(number, instrument).copied().unwrap_or(0);
                let holds = !terms.wants(instrument) || delivered == track.newest();
                ensure(holds, || {
                    format!(
                        "attachment {number} rests at {delivered} of {instrument}, {} is out",
                        track.newest()
                    )
                })?;
            }
        }
        Ok(())
    }
}
