//! Pairs what two journals say, and counts.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;
use tapecast_journal::OpenError;

use super::content::Content;
use super::side::{Found, Key, Name, Pairing, Side};

/// Contents that wait for their other half are kept whole up to this many per instrument and side;
/// of later ones only a digest is kept, so that a journal which lacks an instrument does not take
/// memory for all of it.
const WHOLE_MAX: usize = 1024;

/// What became of snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Tally {
    pub(super) identical: u64,
    pub(super) different: u64,
    pub(super) only_a: u64,
    pub(super) only_b: u64,
}

impl Tally {
    pub(super) const fn is_same(&self) -> bool {
        self.different == 0 && self.only_a == 0 && self.only_b == 0
    }

    const fn add(&mut self, other: &Self) {
        self.identical += other.identical;
        self.different += other.different;
        self.only_a += other.only_a;
        self.only_b += other.only_b;
    }
}

/// A snapshot that waits for its other half.
#[derive(Debug)]
struct Waiting {
    key: Key,
    digest: u64,
    content: Option<Content>,
}

/// One instrument.
#[derive(Debug, Default)]
struct Pair {
    a: VecDeque<Waiting>,
    b: VecDeque<Waiting>,
    tally: Tally,
}

/// A comparison that was made.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pairs: HashMap<Name, Pair>,
    first: Option<String>,
}

impl Comparison {
    /// Reads both to their ends.
    pub(super) fn run(
        (a, b): (&mut Side, &mut Side),
        pairing: Pairing,
        exact: bool,
    ) -> Result<Self, OpenError> {
        let mut comparison = Self::default();
        loop {
            let (from_a, from_b) = (a.next(pairing, exact)?, b.next(pairing, exact)?);
            if from_a.is_none() && from_b.is_none() {
                break;
            }
            if let Some(found) = from_a {
                comparison.take(found, true);
            }
            if let Some(found) = from_b {
                comparison.take(found, false);
            }
        }
        comparison.end();
        Ok(comparison)
    }

    /// Counts of each instrument.
    pub(super) fn tallies(&self) -> impl Iterator<Item = ((&str, &str), Tally)> {
        self.pairs.iter().map(|((symbol, venue), pair)| ((&**symbol, &**venue), pair.tally))
    }

    pub(super) fn totals(&self) -> Tally {
        let mut totals = Tally::default();
        self.pairs.values().for_each(|pair| totals.add(&pair.tally));
        totals
    }

    pub(super) fn first_difference(&self) -> Option<&str> {
        self.first.as_deref()
    }

    fn take(&mut self, found: Found, is_a: bool) {
        let Found { name, key, content } = found;
        let Self { pairs, first } = self;
        let pair = pairs.entry(name.clone()).or_default();
        let queue = if is_a { &mut pair.a } else { &mut pair.b };
        let digest = content.digest();
        let is_kept = first.is_none() && queue.len() < WHOLE_MAX;
        queue.push_back(Waiting { key, digest, content: is_kept.then_some(content) });
        pair.settle(&name, first);
    }

    /// What still waits has no other half.
    fn end(&mut self) {
        let mut names: Vec<Name> = self.pairs.keys().cloned().collect();
        names.sort();
        for name in names {
            let Some(pair) = self.pairs.get_mut(&name) else { continue };
            while let Some(alone) = pair.a.pop_front() {
                pair.miss(&name, &alone, true, &mut self.first);
            }
            while let Some(alone) = pair.b.pop_front() {
                pair.miss(&name, &alone, false, &mut self.first);
            }
        }
    }
}

impl Pair {
    /// Pairs what can be paired.
    fn settle(&mut self, name: &Name, first: &mut Option<String>) {
        while let (Some(a), Some(b)) = (self.a.front(), self.b.front()) {
            let (in_a, in_b) = (a.key <= b.key, b.key <= a.key);
            let a = if in_a { self.a.pop_front() } else { None };
            let b = if in_b { self.b.pop_front() } else { None };
            match (a, b) {
                (Some(a), Some(b)) => self.compare(name, &a, &b, first),
                (Some(alone), None) => self.miss(name, &alone, true, first),
                (None, Some(alone)) => self.miss(name, &alone, false, first),
                (None, None) => {}
            }
        }
    }

    fn compare(&mut self, name: &Name, a: &Waiting, b: &Waiting, first: &mut Option<String>) {
        if a.digest == b.digest {
            self.tally.identical += 1;
            return;
        }
        self.tally.different += 1;
        first.get_or_insert_with(|| {
            let what = match (&a.content, &b.content) {
                (Some(a), Some(b)) => a.difference(b),
                _ => "the contents differ".to_owned(),
            };
            format!("{} {}: {what}", name.0, a.key.number)
        });
    }

    fn miss(&mut self, name: &Name, alone: &Waiting, is_a: bool, first: &mut Option<String>) {
        let side = if is_a { "A" } else { "B" };
        *(if is_a { &mut self.tally.only_a } else { &mut self.tally.only_b }) += 1;
        first.get_or_insert_with(|| format!("{} {} is only in {side}", name.0, alone.key.number));
    }
}
