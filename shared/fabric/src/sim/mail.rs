//! What a subscriber writes into its cell, on its way to the publisher's memory.
//!
//! A queue pair keeps the order of what is posted to it, so mail arrives in the order in which it
//! was sent, however long it takes. Everything in a cell is cumulative: a write that arrives late
//! says no more than a later one does, and is as good as lost.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tapecast_ring::WordsMut;
use tapecast_ring::cell::{
    CELL_WORDS, COUNTER_WORDS, CREDIT_WORDS, HEARTBEAT_WORDS, LATENCY_WORDS, REQUEST_COUNT_WORDS,
    REQUEST_ID_WORDS, TIMING_WORDS,
};

use crate::rings::News;

/// One push: words and where they go.
#[derive(Debug)]
struct Letter {
    due: u64,
    words: Vec<(usize, u64)>,
}

/// Pushes that have not arrived.
#[derive(Debug, Default)]
pub(super) struct Mail {
    letters: Mutex<VecDeque<Letter>>,
    /// Turns that the publisher's network has made.
    tick: AtomicU64,
}

impl Mail {
    /// Copies what has changed from the subscriber's `shadow` to `cell`: at once, or after `delay`
    /// turns and whatever was sent before.
    pub(super) fn send(&self, news: News, shadow: &WordsMut, cell: &WordsMut, delay: u32) {
        let mut letters = self.letters();
        if delay == 0 && letters.is_empty() {
            parts_of(news).flatten().for_each(|word| copy_word(shadow, cell, word));
            return;
        }
        let due = self.tick.load(Ordering::Relaxed) + u64::from(delay);
        let before = letters.back().map_or(0, |letter| letter.due);
        let words = parts_of(news).flatten().filter_map(|word| Some((word, shadow.load(word)?)));
        letters.push_back(Letter { due: due.max(before), words: words.collect() });
    }

    /// One turn has passed: what is due arrives, and everything once there is no `delay`. Returns
    /// how many letters there were.
    pub(super) fn step(&self, tick: u64, cell: &WordsMut, delay: u32) -> usize {
        self.tick.store(tick, Ordering::Relaxed);
        let mut letters = self.letters();
        let count = letters.len();
        while letters.front().is_some_and(|next| next.due <= tick || delay == 0) {
            let Some(letter) = letters.pop_front() else { break };
            for (word, value) in letter.words {
                let _stored = cell.store(word, value);
            }
        }
        count
    }

    /// Nothing that was sent arrives any more.
    pub(super) fn lose(&self) {
        self.letters().clear();
    }

    fn letters(&self) -> MutexGuard<'_, VecDeque<Letter>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies a whole cell: what a subscriber finds when it opens its session.
pub(super) fn copy_cell(from: &WordsMut, to: &WordsMut) {
    (0..CELL_WORDS).for_each(|word| copy_word(from, to, word));
}

fn copy_word(from: &WordsMut, to: &WordsMut, word: usize) {
    let _stored = from.load(word).and_then(|value| to.store(word, value));
}

/// The words that are pushed, in the order in which a device would write them.
fn parts_of(news: News) -> impl Iterator<Item = Range<usize>> {
    [
        (news.requests, REQUEST_ID_WORDS),
        (news.requests, REQUEST_COUNT_WORDS),
        (news.counters, COUNTER_WORDS),
        (news.figures, LATENCY_WORDS),
        (news.figures, HEARTBEAT_WORDS),
        (news.timing, TIMING_WORDS),
        (news.credit, CREDIT_WORDS),
    ]
    .into_iter()
    .filter_map(|(is_news, words)| is_news.then_some(words))
}
