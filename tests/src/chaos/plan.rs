//! What a round does, to whom, and when.

use crate::simulator::dice::{Dice, mix};

/// What becomes of one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing is done to it.
    Spared,
    /// SIGKILL.
    Killed,
    /// SIGSTOP, and much later SIGCONT.
    Stopped,
    /// Stopped and continued in short bursts.
    Slow,
    /// It joins in the middle.
    Late,
    /// It joins in the middle and is killed at once, often while it attaches.
    Brief,
    /// It is asked to end (SIGTERM).
    Leaving,
}

impl Fate {
    /// Whether it is not there before the first snapshot.
    pub(super) const fn comes_late(self) -> bool {
        matches!(self, Self::Late | Self::Brief)
    }

    /// Whether its end may be SIGKILL.
    pub(super) const fn may_be_killed(self) -> bool {
        matches!(self, Self::Killed | Self::Brief)
    }
}

/// Something that is done to a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
    /// It is started.
    Start,
    /// SIGTERM.
    Leave,
}

/// A deed in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harm {
    /// When the first witness has read so much of the day, in thousandths.
    pub at_per_mille: u64,
    /// To whom.
    pub subscriber: usize,
    /// What.
    pub deed: Deed,
}

/// A round, drawn from the seed and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundPlan {
    /// What becomes of each subscriber. The first one is always spared.
    pub fates: Vec<Fate>,
    /// Subscribers whose lines are read; the first one gives the progress.
    pub witnesses: Vec<usize>,
    /// What is done, in order.
    pub harms: Vec<Harm>,
    /// Size of the broadcast ring: with a small one, who is stopped is lapped.
    pub ring_bytes: u64,
}

/// Progress that is reached when the first witness has ended.
pub(super) const AFTER_THE_DAY: u64 = 1_001;
/// Subscribers whose lines are read, at most.
const WITNESSES: usize = 3;
/// Rounds of a thousand in which half of all subscribers are killed.
const MASSACRE_PER_MILLE: u64 = 100;
/// How long each burst of a slow subscriber is.
const BURST_PER_MILLE: u64 = 15;
/// How long who joins briefly lives, at most: about as long as a process takes to attach.
const BRIEF_PER_MILLE: u64 = 30;
const RING_BYTES: [u64; 3] = [64 << 10, 256 << 10, 16 << 20];

impl RoundPlan {
    /// The plan of a round for so many subscribers.
    #[must_use]
    pub fn new(seed: u64, round: u64, subscribers: usize) -> Self {
        let mut dice = Dice::new(mix(seed) ^ mix(round.wrapping_add(1)));
        let fates = fates(&mut dice, subscribers);
        let mut harms = Vec::new();
        for (subscriber, fate) in fates.iter().enumerate() {
            for (at_per_mille, deed) in deeds(&mut dice, *fate) {
                harms.push(Harm { at_per_mille, subscriber, deed });
            }
        }
        harms.sort_by_key(|harm| harm.at_per_mille);
        let mut witnesses = vec![0];
        while witnesses.len() < WITNESSES.min(subscribers) {
            let other = dice.below(subscribers as u64) as usize;
            if !witnesses.contains(&other) {
                witnesses.push(other);
            }
        }
        Self { fates, witnesses, harms, ring_bytes: dice.pick(&RING_BYTES) }
    }

    /// Subscribers that are there before the first snapshot.
    #[must_use]
    pub fn first_to_come(&self) -> usize {
        self.fates.iter().filter(|fate| !fate.comes_late()).count()
    }
}

/// A quarter of them is spared, and always the first: others' harm must not be felt by anybody.
fn fates(dice: &mut Dice, subscribers: usize) -> Vec<Fate> {
    let mut fates = vec![Fate::Spared; subscribers];
    let mut others: Vec<usize> = (1..subscribers).collect();
    let spared = subscribers.div_ceil(4).saturating_sub(1);
    let all = [Fate::Stopped, Fate::Slow, Fate::Late, Fate::Brief, Fate::Leaving, Fate::Killed];
    for fate in all {
        let massacre = fate == Fate::Killed && dice.chance(MASSACRE_PER_MILLE);
        let most = subscribers.div_ceil(8) as u64;
        let count = if massacre { subscribers as u64 / 2 } else { dice.within(0, most) };
        for _ in 0..count {
            if others.len() <= spared {
                break;
            }
            let chosen = others.swap_remove(dice.below(others.len() as u64) as usize);
            fates[chosen] = fate;
        }
    }
    fates
}

fn deeds(dice: &mut Dice, fate: Fate) -> Vec<(u64, Deed)> {
    match fate {
        Fate::Spared => Vec::new(),
        // From the first snapshot on.
        Fate::Killed => vec![(dice.within(1, 950), Deed::Kill)],
        Fate::Leaving => vec![(dice.within(1, 950), Deed::Leave)],
        Fate::Late => vec![(dice.within(1, 900), Deed::Start)],
        Fate::Brief => {
            let at = dice.within(1, 900);
            vec![(at, Deed::Start), (at + dice.below(BRIEF_PER_MILLE), Deed::Kill)]
        }
        Fate::Stopped => {
            let at = dice.within(1, 800);
            // One of three goes on only when the day is over and all others have gone.
            let until = if dice.chance(333) { AFTER_THE_DAY } else { dice.within(at + 50, 950) };
            vec![(at, Deed::Stop), (until, Deed::Continue)]
        }
        Fate::Slow => {
            let (first, bursts) = (dice.within(1, 600), dice.within(3, 10));
            let burst = |number| {
                let at = first + number * 2 * BURST_PER_MILLE;
                [(at, Deed::Stop), (at + BURST_PER_MILLE, Deed::Continue)]
            };
            (0..bursts).flat_map(burst).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_round_give_the_same_plan_and_others_give_another() {
        assert_eq!(RoundPlan::new(3, 5, 64), RoundPlan::new(3, 5, 64));
        assert_ne!(RoundPlan::new(3, 5, 64), RoundPlan::new(3, 6, 64));
        assert_ne!(RoundPlan::new(3, 5, 64), RoundPlan::new(4, 5, 64));
    }

    #[test]
    fn the_first_is_always_spared_with_a_quarter_of_all() {
        for round in 0..500 {
            let plan = RoundPlan::new(1, round, 64);
            let spared = plan.fates.iter().filter(|fate| **fate == Fate::Spared).count();
            assert_eq!(plan.fates[0], Fate::Spared);
            assert!(spared >= 16, "round {round}: {spared}");
        }
    }

    #[test]
    fn who_is_stopped_goes_on_and_everything_happens_at_some_time() {
        let mut seen = Vec::new();
        for round in 0..200 {
            let plan = RoundPlan::new(1, round, 64);
            let mut stopped = [false; 64];
            for harm in &plan.harms {
                seen.push(harm.deed);
                match harm.deed {
                    Deed::Stop => stopped[harm.subscriber] = true,
                    Deed::Continue => stopped[harm.subscriber] = false,
                    _ => {}
                }
            }
            assert_eq!(stopped, [false; 64], "round {round}");
        }
        for deed in [Deed::Kill, Deed::Stop, Deed::Continue, Deed::Start, Deed::Leave] {
            assert!(seen.contains(&deed), "{deed:?}");
        }
    }

    #[test]
    fn a_single_subscriber_makes_a_plan_too() {
        let plan = RoundPlan::new(1, 0, 1);
        assert_eq!((plan.fates, plan.witnesses), (vec![Fate::Spared], vec![0]));
    }
}
