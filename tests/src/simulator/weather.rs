//! What goes wrong in a turn.

use tapecast_wire::{InstrumentId, Position};

use super::event::{Event, Harm};
use super::seat::Attached;
use super::world::World;

impl World {
    /// Ends what is over and begins what the plan's chances bring.
    pub(super) fn strike(&mut self) {
        self.recover();
        let faults = self.history.plan.faults;
        if self.dice.chance(faults.pause) {
            self.harm(Self::pause);
        }
        if self.dice.chance(faults.kill) {
            self.harm(Self::kill);
        }
        if self.dice.chance(faults.refuse) {
            self.harm(Self::refuse);
        }
        if self.dice.chance(faults.lie) {
            self.harm(Self::lie);
        }
        if self.dice.chance(faults.plausible_lie) {
            self.harm(Self::lie_plausibly);
        }
        if self.dice.chance(faults.slow_completions) {
            self.harm(Self::slow_completions);
        }
        if self.dice.chance(faults.slow_credit) {
            self.harm(Self::slow_credit);
        }
        self.strike_all();
    }

    /// What concerns no single subscriber, or does it no harm.
    fn strike_all(&mut self) {
        let faults = self.history.plan.faults;
        if self.dice.chance(faults.leave) {
            self.leave_one();
        }
        if self.dice.chance(faults.storm) {
            self.storm();
        }
        if self.dice.chance(faults.restart) {
            self.restart();
        }
        if self.dice.chance(faults.clock_jump) {
            self.jump();
        }
        if self.dice.chance(faults.feed_gap) {
            self.feed.has_gap = true;
        }
        if self.dice.chance(faults.watch) {
            self.watch();
        }
        if self.dice.chance(faults.refresh) {
            self.refresh();
        }
        if self.dice.chance(faults.announce) {
            self.announce();
        }
        if self.dice.chance(faults.squeeze) {
            let left = self.dice.below(80) as usize;
            while self.pool.free_pages() > left
                && let Some(page) = self.pool.loan()
            {
                self.squeeze.push(page);
            }
            self.squeezed_until = self.history.turn + self.dice.within(3, 40);
        }
    }

    fn recover(&mut self) {
        let turn = self.history.turn;
        if self.squeezed_until <= turn {
            self.squeeze.clear();
        }
        for seat in &mut self.seats {
            let Some(attached) = &mut seat.attached else { continue };
            if attached.paused_until == turn {
                attached.faults.resume();
            }
            if attached.slow_until == turn {
                attached.faults.delay_completions(0);
                attached.faults.delay_credit(0);
            }
        }
    }

    /// Does something to one subscriber that is well and not promised to be left alone.
    fn harm(&mut self, act: fn(&mut Self, &mut Attached) -> Option<Harm>) {
        let Some(who) = self.choose(|world, who| {
            let swift = world.history.plan.subscribers[who].swift;
            !swift && world.seats[who].attached.as_ref().is_some_and(|each| !each.doomed)
        }) else {
            return;
        };
        let Some(mut attached) = self.seats[who].attached.take() else { return };
        let (harm, attachment) = (act(self, &mut attached), attached.attachment);
        self.seats[who].attached = Some(attached);
        if let Some(harm) = harm {
            if matches!(harm, Harm::Lies | Harm::LiesPlausibly) {
                self.history.attachments[attachment].lied = true;
            }
            self.tell(&Event::Harmed { attachment, harm });
        }
    }

    /// One of the subscribers that fit.
    fn choose(&mut self, fits: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let fitting: Vec<_> = (0..self.seats.len()).filter(|who| fits(self, *who)).collect();
        let nth = self.dice.below(fitting.len() as u64) as usize;
        fitting.get(nth).copied()
    }

    fn pause(&mut self, attached: &mut Attached) -> Option<Harm> {
        let most = self.dice.pick(&[5, 30, 30, 200]);
        attached.faults.pause();
        attached.paused_until = self.history.turn + self.dice.within(1, most);
        Some(Harm::Paused)
    }

    fn kill(&mut self, attached: &mut Attached) -> Option<Harm> {
        attached.faults.kill();
        (attached.doomed, attached.silent) = (true, true);
        attached.gone_at = Some(self.history.turn + self.dice.within(1, 80));
        Some(Harm::Killed)
    }

    fn refuse(&mut self, attached: &mut Attached) -> Option<Harm> {
        attached.faults.fail_next_write();
        attached.doomed = true;
        Some(Harm::Refuses)
    }

    /// A claim that cannot be true whatever is sent meanwhile.
    fn lie(&mut self, attached: &mut Attached) -> Option<Harm> {
        let consumed = self.stats(attached.session).consumed.0;
        let ring_bytes = self.history.plan.network.ring_bytes;
        match self.dice.below(5) {
            0 => attached.faults.claim_receives(1 << 40),
            1 => attached.faults.claim_receives(0),
            2 if consumed > 0 => attached.faults.claim_consumed(Position(consumed - 64)),
            3 => attached.faults.claim_consumed(Position(consumed + 8)),
            _ => {
                let ahead = ring_bytes + 64 * self.dice.within(1, 100);
                attached.faults.claim_consumed(Position(consumed + ahead));
            }
        }
        (attached.doomed, attached.silent) = (true, true);
        Some(Harm::Lies)
    }

    /// A claim that may be true as far as the publisher can know.
    fn lie_plausibly(&mut self, attached: &mut Attached) -> Option<Harm> {
        let stats = self.stats(attached.session);
        if self.dice.chance(500) {
            attached.faults.claim_consumed(Position(stats.consumed.0 + stats.lag_bytes));
        } else {
            let posted = self.dice.within(1, 300);
            attached.faults.claim_receives(posted);
        }
        attached.doomed = true;
        Some(Harm::LiesPlausibly)
    }

    fn slow_completions(&mut self, attached: &mut Attached) -> Option<Harm> {
        let turns = self.dice.within(1, 60) as u32;
        attached.faults.delay_completions(turns);
        attached.slow_until = self.history.turn + self.dice.within(5, 120);
        Some(Harm::SlowCompletions(turns))
    }

    fn slow_credit(&mut self, attached: &mut Attached) -> Option<Harm> {
        let turns = self.dice.within(1, 40) as u32;
        attached.faults.delay_credit(turns);
        attached.slow_until = self.history.turn + self.dice.within(5, 120);
        Some(Harm::SlowCredit(turns))
    }

    fn leave_one(&mut self) {
        let is_there = |world: &Self, who: usize| world.seats[who].attached.is_some();
        let Some(who) = self.choose(is_there) else { return };
        let away = self.dice.pick(&[1, 20, 10_000]);
        self.detach(who, self.history.turn + away);
    }

    /// Half of those who are there leave, everybody who is away comes.
    fn storm(&mut self) {
        for who in 0..self.seats.len() {
            if self.seats[who].attached.is_none() {
                self.attach(who);
            } else if self.dice.chance(500) {
                let away = self.dice.within(0, 3);
                self.detach(who, self.history.turn + away);
            }
        }
    }

    fn jump(&mut self) {
        let by = self.dice.pick(&[1_000_000, 60_000_000, 300_000_000, 15_000_000_000]);
        self.now = if self.dice.chance(600) { self.now + by } else { self.now - by };
        let now = self.now;
        self.tell(&Event::Jumped { now });
    }

    /// A subscriber that is well asks for a few snapshots again.
    fn refresh(&mut self) {
        let is_well = |world: &Self, who: usize| {
            world.seats[who].attached.as_ref().is_some_and(|each| !each.doomed && !each.silent)
        };
        let Some(who) = self.choose(is_well) else { return };
        for _ in 0..self.dice.within(1, 4) {
            self.refresh_one(who);
        }
    }

    pub(super) fn refresh_one(&mut self, who: usize) {
        let capacity = self.history.plan.network.instruments as u64;
        let instrument = self.dice.below(capacity) as u32;
        let Some(attached) = &mut self.seats[who].attached else { return };
        let attachment = attached.attachment;
        if attached.receiver.refresh(InstrumentId(instrument)) {
            let turn = self.history.turn;
            self.history.attachments[attachment].refreshed.insert(instrument as usize, turn);
            self.tell(&Event::Refreshed { attachment, instrument });
        }
    }

    fn watch(&mut self) {
        let is_well = |world: &Self, who: usize| {
            world.seats[who].attached.as_ref().is_some_and(|each| !each.doomed && !each.silent)
        };
        let Some(who) = self.choose(is_well) else { return };
        let capacity = self.history.plan.network.instruments as u64;
        for _ in 0..self.dice.within(1, 4) {
            let instrument = self.dice.below(capacity) as u32;
            let Some(attached) = &mut self.seats[who].attached else { return };
            let attachment = attached.attachment;
            if attached.receiver.watch(InstrumentId(instrument)) {
                let turn = self.history.turn;
                let watched = &mut self.history.attachments[attachment].watched;
                watched.insert(instrument as usize, turn);
                self.tell(&Event::Watched { attachment, instrument });
            }
        }
    }
}
