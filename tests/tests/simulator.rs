//! The simulator finds nothing in tapecast, and everything that was planted in it.

use tapecast_tests::simulator::{Options, Runner, Swarm};

/// Seeds that are always tried.
const FIXED_SEEDS: u64 = 1000;
const FRESH_SEEDS: u64 = 500;

/// Runs that fail, as lines that say how to see it again.
fn failures(from: u64, count: u64) -> Vec<String> {
    let options = Options::default();
    let swarm = Swarm { from, count: Some(count), time: None, keeps_going: true, options };
    let tally = swarm.fly(|_, _| {});
    assert_eq!(tally.runs, count);
    let line = |seed, broken| format!("make sim SEED={seed}: {broken:?}");
    tally.failures.iter().map(|report| line(report.seed, &report.violation)).collect()
}

#[test]
fn no_promise_is_broken_on_fixed_seeds() {
    let failures = failures(0, FIXED_SEEDS);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn no_promise_is_broken_on_fresh_seeds() {
    use std::hash::{BuildHasher, RandomState};
    let from = RandomState::new().hash_one(0) >> 16;
    println!("from seed {from}");
    let failures = failures(from, FRESH_SEEDS);
    assert!(failures.is_empty(), "from seed {from}:\n{}", failures.join("\n"));
}

#[test]
fn the_same_seed_is_the_same_run_and_another_seed_is_another() {
    let hash = |runner: &mut Runner, seed| runner.run(seed, Options::default()).hash;
    let (mut first, mut second) = (Runner::new(), Runner::new());
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..25 {
        let made = hash(&mut first, seed);
        assert_eq!(made, hash(&mut first, seed), "seed {seed} after itself");
        hashes.insert(made);
    }
    // A runner that has made other runs before makes the same one.
    for seed in (0..25).rev() {
        assert!(hashes.contains(&hash(&mut second, seed)), "seed {seed} in another order");
    }
    assert_eq!(hashes.len(), 25);
}

#[test]
fn what_happens_is_told_only_when_it_is_asked_for() {
    let mut runner = Runner::new();
    let silent = runner.run(1, Options::default());
    let told = runner.run(1, Options { logs: true, ..Options::default() });
    assert!(silent.log.is_empty() && !told.log.is_empty());
    assert_eq!(silent.hash, told.hash, "telling changes nothing");
}

#[cfg(feature = "planted")]
mod planted {
    use std::sync::Mutex;
    use std::thread;

    use tapecast_core::planted::Planted;
    use tapecast_tests::simulator::{Options, Runner};

    /// Seeds that are tried before a bug counts as not found.
    const SEEDS_MAX: u64 = 2000;

    /// How many seeds it takes to find a bug, and who does.
    fn seeds_until_found(bug: Planted) -> Option<(u64, String)> {
        let mut runner = Runner::new();
        let options = Options { planted: Some(bug), ..Options::default() };
        (0..SEEDS_MAX).find_map(|seed| {
            let violation = runner.run(seed, options).violation?;
            Some((seed + 1, violation.checker))
        })
    }

    #[test]
    fn every_planted_bug_is_found() {
        let left = Mutex::new(Planted::ALL.to_vec());
        let missed = Mutex::new(Vec::new());
        let seek = || {
            while let Some(bug) = { left.lock().unwrap().pop() } {
                match seeds_until_found(bug) {
                    Some((seeds, by)) => println!("{:<32} {seeds:>4} seeds, {by}", bug.name()),
                    None => missed.lock().unwrap().push(bug.name()),
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, core::num::NonZero::get) {
                scope.spawn(seek);
            }
        });
        let missed = missed.into_inner().unwrap();
        assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds: {missed:?}");
    }
}
