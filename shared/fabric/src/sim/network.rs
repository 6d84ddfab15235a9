//! The sender's side of the simulated network.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tapecast_core::credit::Placement;
use tapecast_ring::WordsMut;
use tapecast_wire::SessionId;
use tapecast_wire::limits::MAX_SUBSCRIBERS;

use super::completions::CompletionQueue;
use super::link::{Link, SimFaults};
use super::queue_pair::{Delays, Dice, QueuePair};
use super::{SimConfig, SimFabric};
use crate::pool::Shared;
use crate::rings::{Breaker, Completion, Control, Line, Lines, Network, PostFailed, Status};

/// A network that exists in this process only.
#[derive(Debug)]
pub struct SimNetwork {
    completions: CompletionQueue,
    dice: Dice,
    tick: u64,
}

impl SimNetwork {
    pub(super) fn new(config: &SimConfig) -> Self {
        let depth = MAX_SUBSCRIBERS * config.send_depth as usize;
        Self { completions: CompletionQueue::new(depth), dice: Dice::new(config.seed), tick: 0 }
    }
}

/// One session's queue pair.
#[derive(Debug)]
pub struct SimLine {
    link: Arc<Link>,
    queue_pair: QueuePair,
}

impl SimLine {
    pub(super) fn new(link: Arc<Link>, config: &SimConfig) -> Self {
        let delays =
            Delays { execute: config.execute_ticks_max, complete: config.complete_ticks_max };
        let (depth, every) = (config.send_depth, config.signal_every);
        let queue_pair = QueuePair::new(Arc::clone(&link), depth, every, delays);
        Self { link, queue_pair }
    }
}

/// Kills one session's subscriber.
#[derive(Clone, Debug)]
pub struct SimBreaker(SimFaults);

impl Breaker for SimBreaker {
    fn break_off(&self) {
        self.0.kill();
    }
}

impl Line for SimLine {
    type Breaker = SimBreaker;

    fn cell(&self) -> &WordsMut {
        &self.link.cell
    }

    fn outstanding(&self) -> usize {
        self.queue_pair.outstanding()
    }

    fn retired(&self) -> u64 {
        self.queue_pair.retired()
    }

    fn records(&self) -> usize {
        self.queue_pair.records()
    }

    fn drop_staged(&mut self) -> u32 {
        self.queue_pair.drop_staged()
    }

    fn breaker(&self) -> SimBreaker {
        SimBreaker(SimFaults::new(Arc::clone(&self.link)))
    }
}

impl Network for SimNetwork {
    type Line = SimLine;

    fn connect(&mut self, _id: SessionId, _line: &mut SimLine) {}

    fn stage(&mut self, line: &mut SimLine, record: Shared, placement: &Placement) {
        let queue_pair = &mut line.queue_pair;
        if let Some(padding) = placement.padding {
            queue_pair.stage_padding(padding);
        }
        if placement.opens {
            queue_pair.stage_open(record, placement.position, placement.end());
        } else {
            queue_pair.stage_more(record, placement.position, placement.end());
        }
    }

    fn post(&mut self, line: &mut SimLine) -> Result<(), PostFailed> {
        line.queue_pair.post(self.tick, &mut self.dice);
        Ok(())
    }

    fn stage_control(&mut self, line: &mut SimLine, control: Control) {
        line.queue_pair.stage_control(control);
    }

    fn break_off(&mut self, id: SessionId, line: &mut SimLine) {
        if !line.queue_pair.is_in_error() {
            line.queue_pair.enter_error(id, Status::Flushed, &mut self.completions);
        }
    }

    const TIME_IS_TURNS: bool = true;

    /// Lets every session's device do what is due at this tick.
    fn step(&mut self, lines: &mut Lines<SimLine>) -> usize {
        self.tick += 1;
        let mut moved = 0;
        // Another session is first at each tick: devices keep no order between queue pairs.
        let first = self.tick as usize % lines.len().max(1);
        let (late, early) = lines.split_at_mut(first);
        let early = early.iter_mut().zip(first as u32..);
        for (side, index) in early.chain(late.iter_mut().zip(0..)) {
            let Some(side) = side else { continue };
            let (line, tick) = (&mut side.line, self.tick);
            moved += line.queue_pair.step(SessionId(index), tick, &mut self.completions);
            let delay = line.link.switches.credit_delay.load(Ordering::Relaxed);
            moved += line.link.mail.step(tick, &line.link.cell, delay);
        }
        moved
    }

    fn poll(&mut self, lines: &mut Lines<SimLine>) -> Option<Completion> {
        let completion = self.completions.poll()?;
        if let Some(side) = &mut lines[completion.session.index()] {
            side.line.queue_pair.retire(completion.retires);
        }
        Some(completion)
    }

    fn linger(&self) -> bool {
        false
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<SimFabric>();
};
