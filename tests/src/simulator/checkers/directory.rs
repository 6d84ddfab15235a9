//! At rest every subscriber has the whole directory, as it was announced last.

use super::{Checker, ensure};
use crate::simulator::event::Event;
use crate::simulator::history::History;

#[derive(Debug, Default)]
pub(super) struct Directory;

impl Checker for Directory {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        let Event::Counted { attachment, counts } = *event else { return Ok(()) };
        let entry = |(id, lot): (usize, u32)| (format!("SYM{id}"), lot);
        let lots = history.tracks.iter().map(|track| track.lot);
        let expected: Vec<_> = lots.enumerate().map(entry).collect();
        ensure(counts.directory == expected, || {
            format!("attachment {attachment} knows {:?}, not {expected:?}", counts.directory)
        })
    }
}
