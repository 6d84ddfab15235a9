//! What was done in a run: the truth that checkers judge by. It is written down when an order is
//! given, and knows nothing of what the code under test made of it.

use std::collections::BTreeMap;

use tapecast_core::Interest;
use tapecast_wire::InstrumentId;
use tapecast_wire::attach::Policy;

use super::plan::Plan;

/// One snapshot that was published.
#[derive(Clone, Copy, Debug)]
pub struct Issue {
    /// Its number in the channel.
    pub channel: u64,
    /// The turn in which it was published.
    pub turn: u64,
    /// The feed's number of it.
    pub feed_sequence: u64,
    /// Whether the feed had lost something before it.
    pub suspect: bool,
}

/// One instrument of the present epoch.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// Its lot size, which changes with its entry.
    pub lot: u32,
    /// Its snapshots: the first has sequence 1.
    pub issues: Vec<Issue>,
}

impl Track {
    /// Its newest sequence; 0 for none.
    #[must_use]
    pub const fn newest(&self) -> u64 {
        self.issues.len() as u64
    }

    /// One snapshot, by its sequence.
    #[must_use]
    pub fn issue(&self, sequence: u64) -> Option<&Issue> {
        self.issues.get(usize::try_from(sequence.checked_sub(1)?).ok()?)
    }

    /// Newest sequence when the channel was at `channel`.
    #[must_use]
    pub fn newest_at(&self, channel: u64) -> u64 {
        self.issues.partition_point(|issue| issue.channel <= channel) as u64
    }
}

/// One session of one subscriber.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Which subscriber it is.
    pub subscriber: usize,
    /// Place that the publisher gave it.
    pub session: u32,
    /// What was agreed.
    pub policy: Policy,
    /// What it asked for at first.
    pub interest: Interest,
    /// What it asked for later, and in which turn.
    pub watched: BTreeMap<usize, u64>,
    /// Instruments of which it asked for the newest snapshot again, and in which turn last.
    pub refreshed: BTreeMap<usize, u64>,
    /// Least time between two snapshots of one instrument; 0 for none.
    pub min_interval_ns: u64,
    /// Life of its publisher.
    pub epoch: u64,
    /// The turn in which it began.
    pub turn: u64,
    /// The channel's number then.
    pub channel: u64,
    /// Whether nothing is ever done to it.
    pub swift: bool,
    /// Whether it goes on with the account of an earlier one.
    pub resumed: bool,
    /// It has lied: what it is handed is worth nothing.
    pub lied: bool,
    /// It is over.
    pub ended: bool,
}

impl Attachment {
    /// Whether it asked for an instrument when it began.
    #[must_use]
    pub fn named(&self, instrument: usize) -> bool {
        let id = InstrumentId(instrument as u32);
        self.interest.wants_unnamed() || self.interest.named().contains(&id)
    }

    /// Whether it has ever asked for an instrument.
    #[must_use]
    pub fn wants(&self, instrument: usize) -> bool {
        self.named(instrument) || self.watched.contains_key(&instrument)
    }

    /// Whether it has ever asked for the newest snapshot of an instrument again.
    #[must_use]
    pub fn has_refreshed(&self, instrument: usize) -> bool {
        self.refreshed.contains_key(&instrument)
    }

    /// Whether it is lossless.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        self.policy == Policy::Lossless
    }
}

/// The truth about a run.
#[derive(Debug)]
pub struct History {
    /// What was planned.
    pub plan: Plan,
    /// Turns so far.
    pub turn: u64,
    /// Whether faults are over.
    pub healed: bool,
    /// Whether the channel has ended.
    pub closed: bool,
    /// Life of the present publisher.
    pub epoch: u64,
    /// Snapshots that it has published.
    pub channel: u64,
    /// Its instruments.
    pub tracks: Vec<Track>,
    /// Every session there has been.
    pub attachments: Vec<Attachment>,
}

impl History {
    /// Before anything has happened.
    #[must_use]
    pub const fn new(plan: Plan) -> Self {
        Self {
            plan,
            turn: 0,
            healed: false,
            closed: false,
            epoch: 0,
            channel: 0,
            tracks: Vec::new(),
            attachments: Vec::new(),
        }
    }

    /// Sessions that are not over, with their numbers.
    pub fn open(&self) -> impl Iterator<Item = (usize, &Attachment)> {
        self.attachments.iter().enumerate().filter(|(_, attachment)| !attachment.ended)
    }

    /// Newest sequence of an instrument when a session began; 0 for none.
    #[must_use]
    pub fn newest_at_attach(&self, attachment: &Attachment, instrument: usize) -> u64 {
        let track = self.tracks.get(instrument);
        track.map_or(0, |track| track.newest_at(attachment.channel))
    }
}
