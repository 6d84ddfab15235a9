//! Every queue is bounded, and what is evicted lets go of its places soon.

use super::{Cells, Checker, ensure};
use crate::simulator::event::{Event, SessionFacts};
use crate::simulator::history::History;

/// Turns in which the completions of an evicted session are reaped: 4096 at most, 1024 a turn.
const FLUSH_TURNS: u64 = 6;

#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Turns since the eviction, by attachment.
    evicted: Cells<u64>,
}

impl Checker for Queues {
    fn name(&self) -> &'static str {
        "queues"
    }

    fn on(&mut self, event: &Event<'_>, history: &History) -> Result<(), String> {
        let Event::Turned { facts } = event else { return Ok(()) };
        for session in &facts.sessions {
            self.check(session, history)?;
        }
        let liars = history.attachments.iter().any(|attachment| attachment.lied);
        ensure(liars || facts.receiver_not_ready == 0, || {
            "an immediate found no receive, and nobody has lied about them".to_owned()
        })
    }
}

impl Queues {
    fn check(&mut self, session: &SessionFacts, history: &History) -> Result<(), String> {
        let network = &history.plan.network;
        let (depth, gather) = (network.send_depth as usize, network.gather as usize);
        let holds = session.outstanding <= depth
            && session.records <= depth * gather
            && session.lag_bytes <= network.ring_bytes;
        ensure(holds, || format!("{session:?}, but {depth} places, {} bytes", network.ring_bytes))?;
        let evicted = self.evicted.at(session.attachment, 0);
        *evicted += u64::from(session.eviction.is_some());
        ensure(*evicted < FLUSH_TURNS || session.outstanding == 0, || {
            format!("{session:?} was evicted {evicted} turns ago and is not flushed")
        })
    }
}
