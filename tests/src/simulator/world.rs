//! A publisher, its subscribers and a clock, in one thread.

use tapecast_core::Interest;
use tapecast_fabric::pool::{PageWriter, Pool};
use tapecast_fabric::rings::Line;
use tapecast_fabric::sim::{Sim, SimEndpoint, SimFabric, SimHost};
use tapecast_fabric::{Fabric, Receiver, SessionStats, Wish};
use tapecast_wire::{Epoch, InstrumentId, Nanos, SessionId};

use super::dice::Dice;
use super::event::{Counts, Event, Facts, SessionFacts};
use super::feed::FeedState;
use super::history::{Attachment, History};
use super::observers::Observers;
use super::plan::Plan;
use super::seat::{Attached, Seat};

/// Time at the start of a run.
const START_NS: u64 = 1_700_000_000_000_000_000;
/// Turns between two looks at the invariants that the code under test knows itself.
const SELF_CHECK_EVERY: u64 = 16;

/// Everything that there is in one run.
#[derive(Debug)]
pub(super) struct World {
    pub(super) history: History,
    pub(super) observers: Observers,
    pub(super) dice: Dice,
    pub(super) pool: Pool,
    hoard: Vec<PageWriter>,
    pub(super) squeeze: Vec<PageWriter>,
    pub(super) squeezed_until: u64,
    host: SimHost,
    pub(super) fabric: SimFabric,
    pub(super) feed: FeedState,
    pub(super) seats: Vec<Seat>,
    /// The publisher's clock.
    pub(super) now: u64,
    /// Whether the code under test checks its own invariants too.
    checks_itself: bool,
}

impl World {
    pub(super) fn new(plan: Plan, pool: &Pool, observers: Observers, checks_itself: bool) -> Self {
        let mut dice = Dice::new(plan.seed ^ 0x0077_6f72_6c64);
        let hoard = (0..plan.hoarded_pages).map_while(|_| pool.loan()).collect();
        let seats = plan.subscribers.iter().map(|_| Seat {
            back_at: if dice.chance(700) { 0 } else { dice.below(plan.turns) },
            account: None,
            attached: None,
        });
        let seats = seats.collect();
        let Sim { host, fabric } = sim(&plan, plan.network.epoch, plan.network.seed, pool);
        let mut world = Self {
            feed: FeedState::new(dice.fork()),
            history: History::new(plan),
            observers,
            dice,
            pool: pool.clone(),
            hoard,
            squeeze: Vec::new(),
            squeezed_until: 0,
            host,
            fabric,
            seats,
            now: START_NS,
            checks_itself,
        };
        world.begin_epoch(world.history.plan.network.epoch);
        world
    }

    pub(super) fn tell(&mut self, event: &Event<'_>) {
        self.observers.tell(event, &self.history);
    }

    fn begin_epoch(&mut self, epoch: Epoch) {
        self.history.epoch = epoch.0;
        self.history.channel = 0;
        self.history.tracks.clear();
        self.tell(&Event::Started { epoch: epoch.0 });
        for _ in 0..self.history.plan.feed.listed {
            self.announce();
        }
    }

    /// The publisher dies, and another one starts.
    pub(super) fn restart(&mut self) {
        let epoch = Epoch(self.history.epoch + 1 + self.dice.below(1000));
        let seed = self.dice.draw();
        self.leave_all();
        let sim = sim(&self.history.plan, epoch, seed, &self.pool);
        (self.host, self.fabric) = (sim.host, sim.fabric);
        self.tell_stopped();
        self.begin_epoch(epoch);
    }

    /// The publisher is gone, and every session with it.
    pub(super) fn leave_all(&mut self) {
        let back = |dice: &mut Dice, turn: u64| turn + dice.below(10);
        for who in 0..self.seats.len() {
            let back_at = back(&mut self.dice, self.history.turn);
            if let Some(attached) = self.seats[who].attached.take() {
                self.keep_account(who, *attached, back_at);
            }
        }
        self.feed.page = None;
    }

    pub(super) fn tell_stopped(&mut self) {
        let (free_pages, kept_pages) = (self.pool.free_pages(), self.kept_pages());
        self.tell(&Event::Stopped { free_pages, kept_pages });
    }

    /// What a publisher that stops for good leaves behind.
    pub(super) fn end(mut self) -> Observers {
        self.leave_all();
        let Self { fabric, pool, hoard, squeeze, history, mut observers, .. } = self;
        drop(fabric);
        let (free_pages, kept_pages) = (pool.free_pages(), hoard.len() + squeeze.len());
        observers.tell(&Event::Stopped { free_pages, kept_pages }, &history);
        observers
    }

    fn kept_pages(&self) -> usize {
        self.hoard.len() + self.squeeze.len() + usize::from(self.feed.page.is_some())
    }

    /// A subscriber attaches.
    pub(super) fn attach(&mut self, who: usize) {
        let habits = self.history.plan.subscribers[who].clone();
        let wish = Wish {
            policy: habits.policy,
            interest: &habits.interest,
            symbols: None,
            min_interval: Nanos(habits.min_interval_ns),
            offer: None,
        };
        let prepared = self.host.prepare_for(&wish);
        let (session, ticket) = prepared.expect("a plan's sizes make a session");
        let session = self.fabric.attach(session).expect("there is a place for each subscriber");
        let endpoint = SimEndpoint::open(ticket).expect("it is attached");
        let faults = endpoint.faults();
        let kept = self.seats[who].account.take();
        let resumed = kept.is_some();
        let receiver = match kept {
            Some(account) => Receiver::resume(endpoint, account, &habits.interest),
            None => Receiver::new(endpoint, &habits.interest),
        };
        let attachment = self.history.attachments.len();
        self.seats[who].attached = Some(Box::new(Attached {
            attachment,
            session,
            receiver,
            faults,
            paused_until: 0,
            slow_until: 0,
            doomed: false,
            silent: false,
            gone_at: None,
        }));
        self.remember(who, session, resumed, habits.interest);
        self.tell(&Event::Attached { attachment });
    }

    fn remember(&mut self, who: usize, session: SessionId, resumed: bool, interest: Interest) {
        let habits = &self.history.plan.subscribers[who];
        self.history.attachments.push(Attachment {
            subscriber: who,
            session: session.0,
            policy: habits.policy,
            interest,
            watched: std::collections::BTreeMap::new(),
            refreshed: std::collections::BTreeMap::new(),
            min_interval_ns: habits.min_interval_ns,
            epoch: self.history.epoch,
            turn: self.history.turn,
            channel: self.history.channel,
            swift: habits.swift,
            resumed,
            lied: false,
            ended: false,
        });
    }

    /// The conductor takes a subscriber's session out.
    pub(super) fn detach(&mut self, who: usize, back_at: u64) {
        let Some(attached) = self.seats[who].attached.take() else { return };
        assert!(self.fabric.detach(attached.session).is_some(), "it was attached");
        let attachment = attached.attachment;
        self.keep_account(who, *attached, back_at);
        self.tell(&Event::Left { attachment });
    }

    fn keep_account(&mut self, who: usize, attached: Attached, back_at: u64) {
        self.history.attachments[attached.attachment].ended = true;
        let (_, account) = attached.receiver.into_parts();
        let seat = &mut self.seats[who];
        seat.account = self.history.plan.subscribers[who].resumes.then_some(account);
        seat.back_at = back_at;
    }

    /// Sessions that were evicted, whose subscriber is known to be gone, or that are due to begin.
    fn conduct(&mut self) {
        let turn = self.history.turn;
        let evicted: Vec<_> = self.fabric.evicted().map(|(id, _)| id).collect();
        for who in 0..self.seats.len() {
            let Some(attached) = &mut self.seats[who].attached else {
                if self.seats[who].back_at <= turn && !self.history.closed {
                    self.attach(who);
                }
                continue;
            };
            if evicted.contains(&attached.session) {
                let delay = self.dice.below(12);
                attached.gone_at.get_or_insert(turn + delay);
            }
            if attached.gone_at.is_some_and(|gone_at| gone_at <= turn) {
                let away = self.dice.pick(&[1, 10, 50]);
                self.detach(who, turn + away);
            }
        }
    }

    /// One turn of everybody. Returns how much there was to do.
    pub(super) fn turn(&mut self, feeds: bool) -> usize {
        self.history.turn += 1;
        self.now += self.history.plan.turn_ns;
        if !self.history.healed {
            self.strike();
        }
        self.conduct();
        if feeds {
            self.play_feed();
        }
        let now = Nanos(self.now);
        self.fabric.flush(now);
        let mut work = self.fabric.turn(now);
        if self.checks_itself && self.history.turn.is_multiple_of(SELF_CHECK_EVERY) {
            self.fabric.assert_invariants();
        }
        let facts = self.facts();
        self.tell(&Event::Turned { facts: &facts });
        work += self.poll_all();
        work
    }

    fn poll_all(&mut self) -> usize {
        let Self { history, observers, seats, now, .. } = self;
        let mut work = 0;
        let count = seats.len();
        for nth in 0..count {
            // Nobody is always first.
            let who = (nth + history.turn as usize) % count;
            let habits = &history.plan.subscribers[who];
            let Some(attached) = &mut seats[who].attached else { continue };
            let is_due =
                history.healed || (history.turn + who as u64).is_multiple_of(habits.cadence);
            if attached.silent || !is_due || attached.paused_until > history.turn {
                continue;
            }
            let limit = if history.healed { usize::MAX } else { habits.limit };
            let before = observers.delivered;
            attached.poll(limit, now.saturating_sub(habits.skew_ns), history, observers);
            work += (observers.delivered - before) as usize;
            work += usize::from(attached.receiver.is_ready());
        }
        work
    }

    /// What the publisher shows now.
    fn facts(&self) -> Facts {
        let mut sessions: Vec<_> =
            self.seats.iter().filter_map(|seat| seat.attached.as_deref()).collect();
        sessions.sort_unstable_by_key(|attached| attached.session);
        let reasons: Vec<_> = self.fabric.evicted().collect();
        let facts = sessions.iter().zip(self.fabric.lines()).map(|(attached, line)| {
            let stats = self.stats(attached.session);
            let reason = reasons.iter().find(|(id, _)| *id == attached.session);
            SessionFacts {
                attachment: attached.attachment,
                consumed: stats.consumed.0,
                lag_bytes: stats.lag_bytes,
                outstanding: line.outstanding(),
                records: line.records(),
                eviction: reason.map(|(_, reason)| *reason),
            }
        });
        Facts {
            now: self.now,
            free_pages: self.pool.free_pages(),
            kept_pages: self.kept_pages(),
            receiver_not_ready: self.fabric.receiver_not_ready(),
            sessions: facts.collect(),
        }
    }

    pub(super) fn stats(&self, session: SessionId) -> SessionStats {
        self.fabric.session_stats(session).unwrap_or_default()
    }

    /// Tells what both ends have counted, for each attachment.
    pub(super) fn tell_counts(&mut self) {
        let Self { fabric, seats, history, observers, .. } = self;
        for attached in seats.iter().filter_map(|seat| seat.attached.as_deref()) {
            let receiver = &attached.receiver;
            let ids = || (0..history.tracks.len() as u32).map(InstrumentId);
            let sent = |id| fabric.sent(attached.session, id).unwrap_or_default();
            let known = (0..receiver.instrument_count() as u32).map(InstrumentId);
            let entries = known.filter_map(|id| receiver.instrument(id));
            let stats = fabric.session_stats(attached.session).unwrap_or_default();
            let counts = Counts {
                received: ids().filter_map(|id| receiver.instrument_totals(id)).collect(),
                sent: ids().map(sent).collect(),
                totals: receiver.totals(),
                shown: stats.counts,
                directory: entries.map(|entry| (entry.symbol, entry.lot_size)).collect(),
            };
            let attachment = attached.attachment;
            observers.tell(&Event::Counted { attachment, counts: &counts }, history);
        }
    }
}

fn sim(plan: &Plan, epoch: Epoch, seed: u64, pool: &Pool) -> Sim {
    let mut config = plan.network;
    (config.epoch, config.seed) = (epoch, seed);
    SimHost::create(&config, pool.clone()).expect("a plan's numbers make a network")
}
