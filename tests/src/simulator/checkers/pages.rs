//! No page is out of the pool without somebody who refers to it, and none stays out.

use tapecast_wire::limits::POOL_PAGES;

use super::{Checker, ensure};
use crate::simulator::event::{Event, Facts};
use crate::simulator::history::History;

#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Free and kept pages after the last turn.
    last: (usize, usize),
}

impl Checker for Pages {
    fn name(&self) -> &'static str {
        "pages"
    }

    fn on(&mut self, event: &Event<'_>, _history: &History) -> Result<(), String> {
        match *event {
            Event::Turned { facts } => self.on_turned(facts),
            Event::Rested => {
                let (free, kept) = self.last;
                ensure(free + kept == POOL_PAGES, || {
                    format!("at rest {free} pages are free and {kept} are kept")
                })
            }
            Event::Stopped { free_pages, kept_pages } => {
                ensure(free_pages + kept_pages == POOL_PAGES, || {
                    format!("without a publisher {free_pages} pages are free, {kept_pages} kept")
                })
            }
            _ => Ok(()),
        }
    }
}

impl Pages {
    fn on_turned(&mut self, facts: &Facts) -> Result<(), String> {
        self.last = (facts.free_pages, facts.kept_pages);
        let referred: usize = facts.sessions.iter().map(|session| session.records).sum();
        let out = POOL_PAGES.saturating_sub(facts.free_pages);
        let holds = (facts.kept_pages..=facts.kept_pages + referred).contains(&out);
        ensure(holds, || {
            format!("{out} pages are out, {} kept, {referred} records refer to", facts.kept_pages)
        })
    }
}
