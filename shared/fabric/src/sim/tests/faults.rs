//! Runs with faults at random: whom nobody harmed must not notice.

use proptest::prelude::*;

use super::*;

/// One step of a run with faults. Numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Publish(u32, usize),
    Turn,
    Join(bool),
    Detach(usize),
    Pause(usize),
    Resume(usize),
    Kill(usize),
    FailNextWrite(usize),
    DelayCompletions(usize, u32),
    ClaimConsumed(usize, u64),
    ClaimReceives(usize, u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let who = || 0..5_usize;
    prop_oneof![
        12 => (0..2_u32, 1..40_usize).prop_map(|(id, count)| Step::Publish(id, count)),
        12 => Just(Step::Turn),
        4 => prop::bool::weighted(0.3).prop_map(Step::Join),
        1 => who().prop_map(Step::Detach),
        2 => who().prop_map(Step::Pause),
        3 => who().prop_map(Step::Resume),
        1 => who().prop_map(Step::Kill),
        1 => who().prop_map(Step::FailNextWrite),
        2 => (who(), 0..60_u32).prop_map(|(who, ticks)| Step::DelayCompletions(who, ticks)),
        1 => (who(), 0..30_000_u64).prop_map(|(who, at)| Step::ClaimConsumed(who, at)),
        1 => (who(), 0..600_u64).prop_map(|(who, posted)| Step::ClaimReceives(who, posted)),
    ]
}

/// A run with faults: which subscribers were harmed on purpose is remembered, the others must not
/// notice.
struct Run {
    network: Network,
    subscribers: Vec<(Subscriber, bool)>,
}

impl Run {
    fn play(&mut self, step: &Step) {
        match *step {
            Step::Publish(id, count) => {
                for _ in 0..count {
                    self.network.publish(InstrumentId(id));
                }
            }
            Step::Turn => self.turn(),
            Step::Join(lossless) if self.subscribers.len() < 5 => {
                let policy = if lossless { Policy::Lossless } else { Policy::Conflate };
                let subscriber = self.network.join(policy);
                self.subscribers.push((subscriber, false));
            }
            Step::Detach(who) if !self.subscribers.is_empty() => {
                let (subscriber, _) = self.subscribers.remove(who % self.subscribers.len());
                assert!(self.network.fabric.detach(subscriber.id).is_some());
            }
            Step::Pause(who) => self.with(who, false, |faults| faults.pause()),
            Step::Resume(who) => self.with(who, false, |faults| faults.resume()),
            Step::DelayCompletions(who, ticks) => {
                self.with(who, false, |faults| faults.delay_completions(ticks));
            }
            Step::Kill(who) => self.with(who, true, |faults| faults.kill()),
            Step::FailNextWrite(who) => self.with(who, true, |faults| faults.fail_next_write()),
            Step::ClaimConsumed(who, at) => {
                self.with(who, true, |faults| faults.claim_consumed(Position(at)));
            }
            Step::ClaimReceives(who, posted) => {
                self.with(who, true, |faults| faults.claim_receives(posted));
            }
            Step::Join(_) | Step::Detach(_) => {}
        }
    }

    fn with(&mut self, who: usize, harms: bool, act: impl FnOnce(&SimFaults)) {
        if self.subscribers.is_empty() {
            return;
        }
        let count = self.subscribers.len();
        let (subscriber, harmed) = &mut self.subscribers[who % count];
        act(&subscriber.faults);
        *harmed |= harms;
    }

    fn turn(&mut self) {
        self.network.turn();
        for (subscriber, harmed) in &mut self.subscribers {
            let polled = subscriber.poll(self.network.now);
            assert!(polled.is_ok() || *harmed, "{polled:?}");
        }
    }

    /// The safety phase is over: everybody who can goes on, and all must come to rest.
    fn heal_and_check(mut self) {
        for (subscriber, _) in &self.subscribers {
            subscriber.faults.resume();
            subscriber.faults.delay_completions(0);
        }
        let mut all: Vec<_> = self.subscribers.iter_mut().map(|(each, _)| each).collect();
        self.network.settle(&mut all);
        for (subscriber, _) in self.subscribers.iter().filter(|(_, harmed)| !harmed) {
            self.check(subscriber);
        }
        assert_eq!(self.network.fabric.outstanding(), 0);
        assert_eq!(self.network.free_pages_at_rest(), self.network.pool.pages());
    }

    fn check(&self, subscriber: &Subscriber) {
        assert!(subscriber.evictions(&self.network).is_empty());
        let totals = subscriber.receiver.totals();
        assert_eq!((totals.published, totals.lost), (totals.delivered + totals.conflated, 0));
        for (index, newest) in self.network.newest.iter().enumerate() {
            let id = InstrumentId(index as u32);
            let mine: Vec<_> = subscriber.seen.iter().filter(|seen| seen.0 == id.0).collect();
            assert_eq!(mine.last().map_or(0, |seen| seen.1), *newest);
            assert!(mine.windows(2).all(|pair| pair[0].1 < pair[1].1));
            let received = subscriber.receiver.instrument_totals(id).unwrap();
            let sent = self.network.fabric.sent(subscriber.id, id).unwrap();
            assert_eq!(
                (sent.published, sent.sent, sent.conflated),
                (received.published, received.delivered, received.conflated),
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn faults_of_some_sessions_are_not_noticed_by_the_others(
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 1..150),
    ) {
        let mut config = config();
        config.seed = seed;
        (config.receive_depth, config.send_depth, config.signal_every) = (16, 12, 4);
        let mut run = Run { network: Network::new(&config), subscribers: Vec::new() };
        for step in &steps {
            run.play(step);
        }
        run.heal_and_check();
    }
}
