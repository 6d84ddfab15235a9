//! One run: faults, then none, then everything must arrive.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tapecast_core::planted::Planted;
use tapecast_fabric::pool::{Pool, PoolConfig};
use tapecast_fabric::{ChannelState, Fabric};
use tapecast_wire::Nanos;
use tapecast_wire::attach::Farewell;

use super::bounds::Bounds;
use super::event::Event;
use super::observers::{Observers, Violation};
use super::panics;
use super::plan::Plan;
use super::world::World;

/// Turns without anything to do after which a world is at rest: credit that was given in a poll is
/// seen in the turn after it, and what that lets go in the one after that.
const IDLE_TURNS: u64 = 4;

/// What a run is asked for beside its seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Write down what happens.
    pub logs: bool,
    /// The bug that is active.
    pub planted: Option<Planted>,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The sum of everything that happened.
    pub hash: u64,
    /// Snapshots published.
    pub published: u64,
    /// Snapshots delivered.
    pub delivered: u64,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// What happened, when that was asked for.
    pub log: Vec<String>,
}

/// Makes runs, one after the other. Keeps the pool, whose memory costs more than a run.
#[derive(Debug)]
pub struct Runner {
    pool: Pool,
}

impl Default for Runner {
    fn default() -> Self {
        Self::new()
    }
}

impl Runner {
    /// A runner with a pool.
    ///
    /// # Panics
    /// When there is no memory for a pool.
    #[must_use]
    pub fn new() -> Self {
        Self { pool: Pool::new(PoolConfig::default()).expect("memory for a pool") }
    }

    /// Makes the run of a seed. A panic of the code under test is a violation like any other.
    pub fn run(&mut self, seed: u64, options: Options) -> Report {
        plant(options.planted);
        let pool = &self.pool;
        let made = panics::quietly(|| {
            catch_unwind(AssertUnwindSafe(|| play(Plan::from_seed(seed), pool, options)))
        });
        plant(None);
        let observers = made.unwrap_or_else(|_| {
            let mut observers = Observers::new(false);
            let (checker, what) = ("panic".to_owned(), panics::take());
            observers.violation = Some(Violation { checker, turn: 0, what });
            observers
        });
        self.report(seed, observers)
    }

    fn report(&mut self, seed: u64, mut observers: Observers) -> Report {
        if observers.violation.is_some() {
            // Pages may be lost: the next run must not suffer from this one.
            *self = Self::new();
        }
        Report {
            seed,
            hash: observers.hash(),
            published: observers.published,
            delivered: observers.delivered,
            log: observers.take_log(),
            violation: observers.violation,
        }
    }
}

#[cfg(feature = "planted")]
fn plant(bug: Option<Planted>) {
    tapecast_core::planted::plant(bug);
}

#[cfg(not(feature = "planted"))]
fn plant(bug: Option<Planted>) {
    assert!(bug.is_none(), "this program was built without planted bugs");
}

fn play(plan: Plan, pool: &Pool, options: Options) -> Observers {
    // With a bug on purpose only the independent checkers count.
    let checks_itself = options.planted.is_none();
    let turns = plan.turns;
    let mut world = World::new(plan, pool, Observers::new(options.logs), checks_itself);
    for _ in 0..turns {
        world.turn(true);
        if world.observers.violation.is_some() {
            return world.end();
        }
    }
    world.heal();
    world.publish_a_last_round();
    if world.history.plan.closes_early {
        world.close();
    }
    world.come_to_rest();
    if world.observers.violation.is_none() {
        world.tell(&Event::Rested);
        world.ask_again();
        world.tell_counts();
        world.close();
        world.wait_for_the_end();
    }
    world.end()
}

impl World {
    /// The faults are over. Who is past help is taken out; everybody is attached.
    fn heal(&mut self) {
        self.history.healed = true;
        self.squeeze.clear();
        let (turn, now) = (self.history.turn, self.now);
        for who in 0..self.seats.len() {
            let seat = &mut self.seats[who];
            seat.back_at = seat.back_at.min(turn + 1);
            let Some(attached) = &mut seat.attached else { continue };
            attached.heal();
            attached.show_life(now, &self.history, &mut self.observers);
            let evicted = self.fabric.evicted().any(|(id, _)| id == attached.session);
            if attached.doomed || attached.silent || evicted {
                self.detach(who, turn + 1);
            }
        }
        self.tell(&Event::Healed);
    }

    /// One more snapshot of every instrument, after somebody has attached for the last time.
    fn publish_a_last_round(&mut self) {
        self.turn(false);
        if self.history.tracks.is_empty() {
            self.announce();
        }
        self.feed.last_round = (0..self.history.tracks.len() as u32).collect();
        let (mut left, mut turns, most) = (usize::MAX, 0, 2 * self.turns_to_rest());
        while !self.feed.last_round.is_empty() && self.observers.violation.is_none() {
            self.turn(true);
            let before = core::mem::replace(&mut left, self.feed.last_round.len());
            turns = if left < before { 0 } else { turns + 1 };
            if turns > most {
                self.tell(&Event::Restless { what: "nothing can be published", turns });
            }
        }
    }

    /// Turns after which a world without faults must be at rest. Sessions wait for each other only
    /// where the pool is too small for all of them.
    fn turns_to_rest(&self) -> u64 {
        let bounds = Bounds::of(&self.history.plan.network);
        let is_small = self.history.plan.hoarded_pages > 0;
        let share = if is_small { 1 + self.seats.len() as u64 } else { 1 };
        bounds.turns_for(bounds.backlog) * share + 200
    }

    fn come_to_rest(&mut self) {
        self.feed.page = None;
        let most = self.turns_to_rest();
        let mut idle = 0;
        for _ in 0..most {
            idle = if self.turn(false) == 0 { idle + 1 } else { 0 };
            if idle == IDLE_TURNS || self.observers.violation.is_some() {
                return;
            }
        }
        self.tell(&Event::Restless { what: "the network does not come to rest", turns: most });
    }

    /// While nothing is published, nothing but an answer brings a snapshot that was asked for.
    fn ask_again(&mut self) {
        for who in 0..self.seats.len() {
            self.refresh_one(who);
        }
        self.come_to_rest();
        if self.observers.violation.is_none() {
            self.tell(&Event::Rested);
        }
    }

    /// The channel ends, once.
    fn close(&mut self) {
        if !core::mem::replace(&mut self.history.closed, true) {
            self.fabric.close(Nanos(self.now), Farewell::Closing);
        }
    }

    /// Everybody is told of the end.
    fn wait_for_the_end(&mut self) {
        let most = self.turns_to_rest();
        for _ in 0..most {
            self.turn(false);
            let told = |seat: &super::seat::Seat| {
                let attached = seat.attached.as_ref();
                attached.is_none_or(|each| each.receiver.state() == ChannelState::Closed)
            };
            if self.seats.iter().all(told) || self.observers.violation.is_some() {
                return;
            }
        }
        self.tell(&Event::Restless { what: "not everybody is told of the end", turns: most });
    }
}
