//! Passes every event on to the checkers, sums it up, and remembers the first complaint.

use std::hash::{Hash, Hasher};

use super::checkers::{self, Checker};
use super::event::{Event, Trace};
use super::history::History;

/// A promise was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Who noticed.
    pub checker: String,
    /// The turn in which that was.
    pub turn: u64,
    /// What is wrong.
    pub what: String,
}

/// Everybody who watches a run.
#[derive(Debug)]
pub struct Observers {
    checkers: Vec<Box<dyn Checker>>,
    trace: Trace,
    log: Option<Vec<String>>,
    /// The first complaint; nothing is looked at after it.
    pub violation: Option<Violation>,
    /// Snapshots published.
    pub published: u64,
    /// Snapshots delivered.
    pub delivered: u64,
}

impl Observers {
    /// All checkers, and a log of what happens when it is asked for.
    #[must_use]
    pub fn new(logs: bool) -> Self {
        Self {
            checkers: checkers::all(),
            trace: Trace::default(),
            log: logs.then(Vec::new),
            violation: None,
            published: 0,
            delivered: 0,
        }
    }

    /// Something has happened.
    pub fn tell(&mut self, event: &Event<'_>, history: &History) {
        if self.violation.is_some() {
            return;
        }
        event.hash(&mut self.trace);
        self.published += u64::from(matches!(event, Event::Published { .. }));
        self.delivered += u64::from(matches!(event, Event::Delivered { .. }));
        if let Some(log) = &mut self.log {
            log.extend(line(event).map(|text| format!("{:>5}  {text}", history.turn)));
        }
        for checker in &mut self.checkers {
            if let Err(what) = checker.on(event, history) {
                let (checker, turn) = (checker.name().to_owned(), history.turn);
                self.violation = Some(Violation { checker, turn, what });
                return;
            }
        }
    }

    /// The sum of all events.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.trace.finish()
    }

    /// The log, when there is one.
    pub fn take_log(&mut self) -> Vec<String> {
        self.log.take().unwrap_or_default()
    }
}

/// One line of the log; nothing for what happens in every turn.
fn line(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Delivered { attachment, seen } => {
            let (instrument, sequence) = (seen.instrument(), seen.sequence());
            let mark = if seen.initial { " initial" } else { "" };
            let conflated = seen.conflated;
            Some(format!("  {attachment} takes {instrument}:{sequence}{mark} (+{conflated})"))
        }
        Event::Published { instrument, sequence } => Some(format!("{instrument}:{sequence}")),
        Event::Turned { facts } => {
            let evicted = facts.sessions.iter().filter_map(|session| session.eviction);
            let reasons: Vec<_> = evicted.map(|reason| reason.to_string()).collect();
            (!reasons.is_empty()).then(|| format!("evicted: {}", reasons.join("; ")))
        }
        Event::Reported { .. } | Event::Counted { .. } => None,
        other => Some(format!("{other:?}")),
    }
}
