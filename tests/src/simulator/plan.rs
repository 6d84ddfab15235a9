//! Everything that a seed decides before the run begins.

use tapecast_core::Interest;
use tapecast_fabric::sim::SimConfig;
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::POOL_PAGES;
use tapecast_wire::{Epoch, InstrumentId, Nanos};

use super::dice::Dice;

/// What one run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed that all of this follows from.
    pub seed: u64,
    /// The network and the windows of its sessions; the epoch is the first one.
    pub network: SimConfig,
    /// Pages that are never in the pool, so that it is smaller than it is.
    pub hoarded_pages: usize,
    /// Time that one turn takes.
    pub turn_ns: u64,
    /// Turns with faults.
    pub turns: u64,
    /// Whether the channel ends while there is still something to deliver.
    pub closes_early: bool,
    /// The subscribers.
    pub subscribers: Vec<Habits>,
    /// How the feed behaves.
    pub feed: Feed,
    /// What goes wrong, and how often.
    pub faults: Faults,
}

/// How one subscriber behaves.
#[derive(Clone, Debug)]
pub struct Habits {
    /// What it asks the publisher to do when it does not keep up.
    pub policy: Policy,
    /// Least time between two snapshots of one instrument that it asks for; 0 for none.
    pub min_interval_ns: u64,
    /// What it wants.
    pub interest: Interest,
    /// It polls in each so-manieth turn.
    pub cadence: u64,
    /// Snapshots that it takes in a poll.
    pub limit: usize,
    /// It polls everything in every turn and nothing is ever done to it: its delay is bounded.
    pub swift: bool,
    /// Whether it keeps its account when it attaches again.
    pub resumes: bool,
    /// How far its clock is behind the publisher's.
    pub skew_ns: u64,
}

/// How the feed behaves.
#[derive(Clone, Copy, Debug)]
pub struct Feed {
    /// Instruments that there are at the start of an epoch.
    pub listed: u32,
    /// Snapshots of a burst.
    pub burst: u64,
    /// How often it changes between silence, trickle, steady and burst, in a thousand turns.
    pub moods: u64,
    /// How often a record gets a page of its own.
    pub own_pages: u64,
    /// How often a batch ends within a turn.
    pub splits: u64,
}

/// How often each kind of fault happens, in a thousand turns; 0 for one that is off in this run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A subscriber stops, and goes on later.
    pub pause: u64,
    /// A subscriber dies, and may come back.
    pub kill: u64,
    /// A subscriber's memory refuses a write.
    pub refuse: u64,
    /// A subscriber claims what cannot be true.
    pub lie: u64,
    /// A subscriber claims what could be true and is not.
    pub plausible_lie: u64,
    /// Completions of a session are late.
    pub slow_completions: u64,
    /// What a subscriber says is late.
    pub slow_credit: u64,
    /// A subscriber leaves and may come back.
    pub leave: u64,
    /// Many leave and join at once.
    pub storm: u64,
    /// The publisher dies or closes, and starts again.
    pub restart: u64,
    /// The publisher's clock jumps.
    pub clock_jump: u64,
    /// The feed loses messages.
    pub feed_gap: u64,
    /// A subscriber asks for more instruments.
    pub watch: u64,
    /// A subscriber asks for snapshots again.
    pub refresh: u64,
    /// A directory entry changes, or an instrument is new.
    pub announce: u64,
    /// The feed's queue takes most pages for a while.
    pub squeeze: u64,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let count = match dice.below(10) {
            0..6 => dice.within(1, 4),
            6..9 => dice.within(5, 12),
            _ => dice.within(13, 64),
        };
        let network = network(&mut dice, count);
        let capacity = network.instruments as u64;
        let faults = Faults::drawn(&mut dice);
        let turn_ns = dice.pick(&[1_000, 100_000, 1_000_000, 1_000_000]);
        let shares = Shares {
            lossless: dice.pick(&[0, 0, 150, 400]),
            disconnect: dice.pick(&[0, 0, 200, 500]),
            paced: dice.pick(&[0, 0, 200, 500]),
        };
        let subscribers = (0..count).map(|_| Habits::drawn(&mut dice, capacity, shares, turn_ns));
        Self {
            subscribers: subscribers.collect(),
            hoarded_pages: match dice.below(4) {
                0 => POOL_PAGES - dice.within(12, 64) as usize,
                1 => POOL_PAGES - dice.within(64, 520) as usize,
                _ => 0,
            },
            turn_ns,
            turns: dice.within(40, if count > 12 { 120 } else { 320 }),
            closes_early: dice.chance(400),
            feed: Feed {
                listed: dice.below(capacity + 1) as u32,
                burst: dice.pick(&[8, 40, 120, 300]),
                moods: dice.pick(&[20, 100, 400]),
                own_pages: dice.pick(&[0, 0, 100, 1000]),
                splits: dice.pick(&[0, 0, 200]),
            },
            faults,
            network,
            seed,
        }
    }
}

fn network(dice: &mut Dice, subscribers: u64) -> SimConfig {
    let mut config = SimConfig::new(Epoch(dice.within(1, 1 << 40)));
    config.seed = dice.draw();
    config.instruments = dice.pick(&[1, 2, 5, 12, 12, 40, 130]);
    config.levels_per_side = dice.pick(&[1, 5, 10, 10, 30, 83]);
    if dice.chance(4) {
        // More than one pump passes over, and then the records must be small.
        (config.instruments, config.levels_per_side) = (1500, 2);
    }
    let largest = if subscribers > 12 { 3 } else { 7 };
    config.ring_bytes = 8192 << dice.below(largest);
    config.receive_depth = dice.pick(&[1, 2, 3, 8, 64, 256]);
    config.send_depth = dice.pick(&[2, 3, 4, 8, 16, 64]);
    config.gather = dice.pick(&[1, 2, 8, 16]);
    if dice.chance(300) {
        // As it is configured in earnest: then delays are bounded exactly.
        (config.receive_depth, config.send_depth) = (256, 64);
        config.ring_bytes = config.ring_bytes.max(64 << 10);
        config.levels_per_side = config.levels_per_side.min(10);
        config.instruments = config.instruments.min(12);
    }
    config.signal_every = dice.within(1, u64::from(config.send_depth / 2)) as u32;
    config.execute_ticks_max = dice.pick(&[0, 1, 2, 6]);
    config.complete_ticks_max = dice.pick(&[0, 1, 2, 6]);
    config.allow_lossless = true;
    config.lossless_silence_limit = Nanos(dice.pick(&[20_000_000, 200_000_000, 10_000_000_000]));
    config
}

/// Shares of subscribers, in a thousand.
#[derive(Clone, Copy, Debug)]
struct Shares {
    lossless: u64,
    disconnect: u64,
    /// Of those that are neither.
    paced: u64,
}

impl Habits {
    fn drawn(dice: &mut Dice, capacity: u64, shares: Shares, turn_ns: u64) -> Self {
        let policy = if dice.chance(shares.lossless) {
            Policy::Lossless
        } else if dice.chance(shares.disconnect) {
            Policy::Disconnect
        } else {
            Policy::Conflate
        };
        let rests = policy == Policy::Conflate && dice.chance(shares.paced);
        let min_interval_ns = if rests { turn_ns * dice.within(1, 40) } else { 0 };
        // What rests is late, and what is disconnected is not promised to stay.
        let swift = policy != Policy::Disconnect && !rests && dice.chance(350);
        let named = |dice: &mut Dice| {
            let count = dice.within(1, capacity);
            let ids = (0..count).map(|_| InstrumentId(dice.below(capacity) as u32));
            Interest::Only(ids.collect())
        };
        Self {
            policy,
            min_interval_ns,
            interest: if dice.chance(600) { Interest::All } else { named(dice) },
            cadence: if swift { 1 } else { dice.pick(&[1, 1, 2, 5, 17]) },
            limit: if swift { usize::MAX } else { dice.pick(&[1, 3, 20, usize::MAX]) },
            swift,
            resumes: dice.chance(700),
            skew_ns: dice.pick(&[0, 0, 1_000, 3_600_000_000_000]),
        }
    }
}

impl Faults {
    /// Each kind is on in about half of the runs, and then rare, frequent or constant.
    fn drawn(dice: &mut Dice) -> Self {
        if dice.chance(60) {
            return Self::default();
        }
        let mut often = || if dice.chance(450) { dice.pick(&[3, 15, 60]) } else { 0 };
        Self {
            pause: often(),
            kill: often(),
            refuse: often(),
            lie: often(),
            plausible_lie: often() / 2,
            slow_completions: often(),
            slow_credit: often(),
            leave: often(),
            storm: often() / 3,
            restart: often() / 3,
            clock_jump: often() / 2,
            feed_gap: often(),
            watch: often() * 2,
            refresh: often() * 2,
            announce: often(),
            squeeze: often(),
        }
    }
}
