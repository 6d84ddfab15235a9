//! Whoever lies is evicted at once; nobody else ever is without a reason.
//!
//! Reasons are a lie, a refused write, death, for a session that will not be conflated that it
//! would have to be, and, for a lossless session, silence for longer than its limit by the
//! publisher's clock. The checker knows when a subscriber said something and how late that may have
//! arrived, so it knows the silence within bounds.

use std::collections::BTreeMap;

use tapecast_core::session::Eviction;
use tapecast_wire::attach::Policy;

use super::{Checker, ensure};
use crate::simulator::event::{Event, Facts, Harm, SessionFacts};
use crate::simulator::history::History;

/// What is known of one attachment.
#[derive(Debug, Default)]
struct Record {
    harmed: bool,
    /// The turn of a lie that cannot be true.
    lied_at: Option<u64>,
    credit_delay: u64,
    beat: Option<u64>,
    /// Turns in which it said something new, the newest last.
    said: Vec<u64>,
    /// Its eviction was judged when it happened; what the clock does afterwards is no matter.
    judged: bool,
}

#[derive(Debug, Default)]
pub(super) struct Justice {
    records: BTreeMap<usize, Record>,
    /// The publisher's clock after each turn.
    clock: Vec<u64>,
}

impl Checker for Justice {
    fn name(&self) -> &'static str {
        "justice"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        match *event {
            Event::Attached { attachment } => {
                let record = Record { said: vec![history.turn], ..Record::default() };
                self.records.insert(attachment, record);
            }
            Event::Left { attachment } => {
                self.records.remove(&attachment);
            }
            Event::Stopped { .. } => self.records.clear(),
            Event::Harmed { attachment, harm } => {
                if let Some(record) = self.records.get_mut(&attachment) {
                    record.on_harm(harm, history.turn);
                }
            }
            Event::Reported { attachment, beat } => {
                if let Some(record) = self.records.get_mut(&attachment)
                    && record.beat.replace(beat) != Some(beat)
                {
                    record.said.push(history.turn);
                }
            }
            Event::Broke { attachment, evicted: true, .. } => {
                let harmed = self.records.get(&attachment).is_none_or(|record| record.harmed);
                let policy = history.attachments[attachment].policy;
                return ensure(harmed || policy != Policy::Conflate, || {
                    format!("attachment {attachment} is told that it was evicted, without reason")
                });
            }
            Event::Turned { facts } => return self.on_turned(facts, history),
            _ => {}
        }
        Ok(())
    }
}

impl Record {
    fn on_harm(&mut self, harm: Harm, turn: u64) {
        match harm {
            Harm::Paused | Harm::SlowCompletions(_) => {}
            Harm::SlowCredit(turns) => self.credit_delay = self.credit_delay.max(turns.into()),
            Harm::Killed | Harm::Refuses | Harm::LiesPlausibly => self.harmed = true,
            Harm::Lies => {
                self.harmed = true;
                self.lied_at.get_or_insert(turn);
            }
        }
    }
}

impl Justice {
    fn on_turned(&mut self, facts: &Facts, history: &History) -> Result<(), String> {
        let before = self.clock.last().copied().unwrap_or(facts.now);
        self.clock.resize(history.turn as usize + 1, before);
        self.clock[history.turn as usize] = facts.now;
        for session in &facts.sessions {
            self.check(session, facts.now, history)?;
        }
        Ok(())
    }

    fn check(&mut self, session: &SessionFacts, now: u64, history: &History) -> Result<(), String> {
        let Some(record) = self.records.get_mut(&session.attachment) else { return Ok(()) };
        if core::mem::replace(&mut record.judged, session.eviction.is_some()) {
            return Ok(());
        }
        let limit = history.plan.network.lossless_silence_limit.0;
        let terms = &history.attachments[session.attachment];
        let harmed = record.harmed;
        let (lossless, disconnects) = (terms.is_lossless(), terms.policy == Policy::Disconnect);
        // What was said later may not have arrived, or not have been looked at.
        let arrived = history.turn.saturating_sub(record.credit_delay + 2);
        let heard = record.said.iter().rev().find(|turn| **turn <= arrived);
        let (heard, last) = (heard.copied(), record.said.last().copied());
        let since = |turn: Option<u64>| self.clock[turn.unwrap_or(0) as usize..].iter();
        // The clock may have gone back since: whatever could be its excuse is.
        let most = now.saturating_sub(since(heard).min().copied().unwrap_or(now));
        let arrives = since(last).take(record.credit_delay as usize + 3);
        let least = now.saturating_sub(arrives.max().copied().unwrap_or(now));
        match session.eviction {
            // Of a liar's cell nothing may be believed any more, its heartbeat included.
            Some(Eviction::Silent { .. }) => ensure(lossless && (most > limit || harmed), || {
                format!("{session:?} was silent for {most} ns at most, {limit} are allowed")
            }),
            // Whether it would have been conflated is for another checker.
            Some(Eviction::Overrun) => {
                ensure(disconnects, || format!("{session:?} was to be conflated, and is evicted"))
            }
            Some(reason) => ensure(record.harmed, || format!("{session:?} is innocent: {reason}")),
            None => {
                let lied = record.lied_at.is_some_and(|turn| turn < history.turn);
                ensure(!lied, || format!("{session:?} has lied and is served all the same"))?;
                ensure(!lossless || least <= limit, || {
                    format!("{session:?} is silent for {least} ns and gates the channel")
                })
            }
        }
    }
}
