//! Two publishers of one synthetic day, of which one is killed: what is delivered is what one
//! undisturbed publisher gives, snapshot for snapshot.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use rustix::process::Signal;
use tapecast_subscriber::AbSummary;

use super::programs::{Lines, Processes, folder, json, stderr, wait_until};

/// How many rounds to play; `make ab` plays more.
const ROUNDS: &str = "TAPECAST_TEST_AB_ROUNDS";
/// Repeats the choices of a run that printed this seed.
const SEED: &str = "TAPECAST_TEST_AB_SEED";
const ROUNDS_DEFAULT: u64 = 4;

/// Feed sequences of each symbol in the order in which they came.
type Delivered = BTreeMap<String, Vec<u64>>;

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// Numbers that look random and are the same for the same seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Starts a publisher of the day. It begins when its subscriber is there, and waits for it, so that
/// a busy machine conflates nothing.
fn publisher(processes: &mut Processes, socket: &Path) -> usize {
    let day = ["--seed", "11", "--instruments", "6", "--seconds", "2", "--pace", "4x"];
    let rates = ["--steady-rate", "4000", "--burst-rate", "8000"];
    let terms = ["--lossless", "--wait-for", "1", "--exit-at-end", "--no-progress"];
    let socket = socket.display().to_string();
    let mut words = vec!["run", "--log-level", "warn", "--socket", &socket];
    words.extend(day.into_iter().chain(rates).chain(terms));
    let index = processes.start("tapecast-publisher", &words);
    wait_until("the publisher's socket", || Path::new(&socket).exists());
    index
}

fn tail(processes: &mut Processes, words: &[&str]) -> (usize, Lines) {
    let usual = ["tail", "--json", "--levels", "1", "--until-end", "--policy", "lossless"];
    let words: Vec<_> = usual.iter().chain(words).copied().collect();
    let index = processes.start("tapecast-subscriber", &words);
    let lines = Lines::of(processes, index);
    (index, lines)
}

/// Reads to the end and calls `on_line` with the number of lines before each.
fn read(mut lines: Lines, mut on_line: impl FnMut(u64)) -> Delivered {
    let mut delivered = Delivered::new();
    let mut count = 0;
    while let Some(line) = lines.next_if_any() {
        on_line(count);
        count += 1;
        let line: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let symbol = line["symbol"].as_str().expect("a symbol").to_owned();
        let sequence = line["feed_sequence"].as_u64().expect("a feed sequence");
        assert_eq!(line["conflated_count"], 0, "{line}");
        delivered.entry(symbol).or_default().push(sequence);
    }
    delivered
}

/// The day as one subscriber of one publisher sees it.
fn undisturbed() -> Delivered {
    let folder = folder();
    let socket = folder.path().join("s");
    let mut processes = Processes::default();
    publisher(&mut processes, &socket);
    let (tail, lines) = tail(&mut processes, &["--socket", &socket.display().to_string()]);
    let delivered = read(lines, |_| {});
    let output = processes.finish(tail);
    assert!(output.status.success(), "{}", stderr(&output));
    delivered
}

/// What one round does to one side.
#[derive(Clone, Copy, Debug)]
struct Harm {
    side: usize,
    /// After so many lines.
    after: u64,
    /// Whether the publisher is started again at once, and replays the day from its beginning.
    restarts: bool,
}

fn disturbed(harm: Harm) -> (Delivered, AbSummary) {
    let folder = folder();
    let sockets = ["a", "b"].map(|name| folder.path().join(name));
    let file = folder.path().join("summary.json");
    let mut processes = Processes::default();
    let publishers = sockets.each_ref().map(|socket| publisher(&mut processes, socket));
    let [a, b] = sockets.each_ref().map(|socket| socket.display().to_string());
    let summary = file.display().to_string();
    let words = ["--socket", &a, "--socket-b", &b, "--summary-json", &summary];
    let (tail, lines) = tail(&mut processes, &words);
    let delivered = read(lines, |line| {
        if line == harm.after {
            processes.signal(publishers[harm.side], Signal::KILL);
            processes.finish(publishers[harm.side]);
            if harm.restarts {
                publisher(&mut processes, &sockets[harm.side]);
            }
        }
    });
    let output = processes.finish(tail);
    assert!(output.status.success(), "{harm:?}: {}", stderr(&output));
    let summary = serde_json::from_value(json(&file)).expect("a summary");
    (delivered, summary)
}

fn assert_same(delivered: &Delivered, expected: &Delivered, harm: Harm) {
    assert!(delivered.keys().eq(expected.keys()), "{harm:?}");
    for (symbol, sequences) in delivered {
        let expected = &expected[symbol];
        let differs = sequences.iter().zip(expected).position(|(have, want)| have != want);
        let at = differs.map(|at| (at, sequences[at], expected[at]));
        assert_eq!(at, None, "{harm:?}: {symbol}: (position, delivered, expected)");
        assert_eq!(sequences.len(), expected.len(), "{harm:?}: {symbol}");
    }
}

#[test]
fn a_side_that_is_killed_at_any_moment_costs_no_snapshot_and_doubles_none() {
    let seed = from_environment(SEED).unwrap_or_else(|| RandomState::new().hash_one(0_u64));
    let rounds = from_environment(ROUNDS).unwrap_or(ROUNDS_DEFAULT);
    println!("{SEED}={seed} {ROUNDS}={rounds}");
    let mut random = Random(seed);
    let expected = undisturbed();
    let count = expected.values().map(|sequences| sequences.len() as u64).sum();
    assert!(count > 1_000, "a day of {count} snapshots shows little");
    let mut wins = [0, 0];
    for round in 0..rounds {
        let harm = Harm {
            side: random.below(2) as usize,
            after: random.below(count),
            restarts: random.below(2) == 0,
        };
        let (delivered, summary) = disturbed(harm);
        assert_same(&delivered, &expected, harm);
        let merged = &summary.merged.statistics;
        assert_eq!((merged.delivered, merged.conflated, merged.lost), (count, 0, 0), "{harm:?}");
        for (sum, side) in wins.iter_mut().zip(&summary.sides) {
            assert_eq!(side.counts.gaps, 0, "{harm:?}");
            *sum += side.counts.wins;
        }
        println!("round {round}: {harm:?}: {count} snapshots, each once; wins so far {wins:?}");
    }
    assert_eq!(wins.iter().sum::<u64>(), rounds * count);
}
