//! What happens in a run, as everybody who watches is told.

use std::hash::{Hash, Hasher};

use tapecast_core::account::{InstrumentTotals, Totals};
use tapecast_core::session::{Eviction, SentTotals};
use tapecast_fabric::SessionCounts;
use tapecast_wire::{Level, SnapshotHeader};

/// Something that is done to a subscriber, or that it does.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Harm {
    /// It stops; its memory goes on taking writes.
    Paused,
    /// It dies: the next write into its memory fails.
    Killed,
    /// The next write into its memory fails.
    Refuses,
    /// It claims what cannot be true.
    Lies,
    /// It claims what is not true and could be.
    LiesPlausibly,
    /// Completions are late from now on by so many turns.
    SlowCompletions(u32),
    /// What it says is late from now on by so many turns.
    SlowCredit(u32),
}

/// One snapshot as a subscriber was handed it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its header.
    pub header: &'a SnapshotHeader,
    /// Its bids.
    pub bids: &'a [Level],
    /// Its asks.
    pub asks: &'a [Level],
    /// Whether it says that it is the first of its instrument.
    pub initial: bool,
    /// Older ones that it says it replaces.
    pub conflated: u64,
}

impl Seen<'_> {
    /// Its instrument.
    #[must_use]
    pub const fn instrument(&self) -> usize {
        self.header.instrument_id as usize
    }

    /// Its number among the instrument's.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        self.header.instrument_sequence
    }
}

impl Hash for Seen<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.instrument(), self.sequence(), self.header.channel_sequence).hash(state);
        (self.initial, self.conflated, self.header.flags.0).hash(state);
        self.bids.iter().chain(self.asks).for_each(|level| level.price.hash(state));
    }
}

/// One session after a turn, as its publisher shows it.
#[derive(Clone, Copy, Debug)]
pub struct SessionFacts {
    /// Its attachment.
    pub attachment: usize,
    /// Up to where its subscriber has consumed.
    pub consumed: u64,
    /// What it has still to consume.
    pub lag_bytes: u64,
    /// Work requests that are not retired.
    pub outstanding: usize,
    /// Records that these refer to.
    pub records: usize,
    /// Why it was evicted.
    pub eviction: Option<Eviction>,
}

/// The publisher after a turn.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Its clock.
    pub now: u64,
    /// Pages in the pool.
    pub free_pages: usize,
    /// Pages that the run itself keeps: hoard, squeeze and the page that is being filled.
    pub kept_pages: usize,
    /// Immediates that found no receive.
    pub receiver_not_ready: u64,
    /// Its sessions.
    pub sessions: Vec<SessionFacts>,
}

impl Hash for Facts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.now, self.free_pages, self.receiver_not_ready).hash(state);
        for session in &self.sessions {
            (session.attachment, session.consumed, session.lag_bytes).hash(state);
            (session.outstanding, session.eviction.is_some()).hash(state);
        }
    }
}

/// What both ends have counted for one attachment, when everything is at rest.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The subscriber's, by instrument.
    pub received: Vec<InstrumentTotals>,
    /// The publisher's, by instrument.
    pub sent: Vec<SentTotals>,
    /// The subscriber's totals over all its attachments.
    pub totals: Totals,
    /// What the publisher shows of these.
    pub shown: SessionCounts,
    /// Instruments in the subscriber's directory, with their lot sizes.
    pub directory: Vec<(String, u32)>,
}

impl Hash for Counts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.totals.published, self.totals.delivered).hash(state);
    }
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, Hash)]
#[expect(missing_docs, reason = "fields say what they are")]
pub enum Event<'a> {
    /// A publisher starts.
    Started { epoch: u64 },
    /// An instrument is listed, or its entry changes.
    Announced { instrument: u32, lot: u32 },
    /// A snapshot was published.
    Published { instrument: u32, sequence: u64 },
    /// A snapshot was not published, because a lossless session has no room for it.
    Refused { instrument: u32 },
    /// A session begins.
    Attached { attachment: usize },
    /// A subscriber asks for one more instrument.
    Watched { attachment: usize, instrument: u32 },
    /// A subscriber asks for the newest snapshot of an instrument again.
    Refreshed { attachment: usize, instrument: u32 },
    /// Something is done to a subscriber, or by it.
    Harmed { attachment: usize, harm: Harm },
    /// A subscriber's clock, as it has said.
    Reported { attachment: usize, beat: u64 },
    /// A snapshot was delivered.
    Delivered { attachment: usize, seen: &'a Seen<'a> },
    /// A poll ended the session: as evicted, or because something is wrong.
    Broke { attachment: usize, evicted: bool, why: &'a str },
    /// A subscriber was told that nothing follows what it has been handed.
    Ended { attachment: usize },
    /// A session is taken out.
    Left { attachment: usize },
    /// The publisher is gone, and all its sessions with it.
    Stopped { free_pages: usize, kept_pages: usize },
    /// The publisher's clock jumps to here.
    Jumped { now: u64 },
    /// A turn has ended, and after it the subscribers poll.
    Turned { facts: &'a Facts },
    /// No fault happens from now on, and none is left.
    Healed,
    /// Nothing moves any more.
    Rested,
    /// Something has not come to an end in the turns that it may take.
    Restless { what: &'a str, turns: u64 },
    /// What both ends have counted, at rest.
    Counted { attachment: usize, counts: &'a Counts },
}

/// Sums up events: the same run has the same sum.
#[derive(Clone, Copy, Debug)]
pub struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Trace {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x0100_0000_01b3);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
