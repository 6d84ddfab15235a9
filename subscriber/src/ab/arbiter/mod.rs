//! Which snapshots of two sides the application gets: each place in the feed once, from whichever
//! side brings it first.
//!
//! No I/O, no clock, no allocation but in [`Arbiter::add_instrument`].
//!
//! # The order key
//! A feed sequence alone does not name a snapshot: a feed may number packets and not messages, so
//! that several snapshots of an instrument carry the same number, or none (0); the mark of the
//! source's end repeats the last number with another flag; and a feed counts afresh on another day,
//! or when an input is played again. One feed message that changes several instruments is no
//! problem, because each instrument has an order of its own. So the key, per instrument, is
//!
//! ```text
//! (round, feed sequence, occurrence, soundness)
//! round        grows when the feed sequence drops on a side; both see it drop at the same place
//! occurrence   the how-manieth snapshot with this feed sequence, from the side's own numbers
//! soundness    a copy that is neither suspect nor being rebuilt repairs one that is
//! ```
//!
//! A greater key than the newest delivered is delivered, anything else is not. A side that joins or
//! skips into the middle of a feed sequence does not know the occurrence: then venue time decides,
//! and then the content. See [`place::Newest::relation`].
//!
//! # Conflated counts
//! A merged snapshot stands for those between it and the one delivered before that *neither* side
//! delivered. Which of its skipped snapshots the other side has delivered is known as soon as both
//! sides have brought one and the same snapshot since they attached, because from then on their
//! numbers differ by a constant. Before that, the side's own count is an upper bound.

mod place;
#[cfg(test)]
mod tests;

use core::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::side::AbSide;
use place::{Course, Newest, Place};

pub(crate) use place::Notice;

/// Snapshots of an instrument whose arrival is remembered, to know how late the other copy is.
const RECENT: usize = 16;

/// What becomes of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The application gets it. It stands for so many that neither side delivered.
    Deliver {
        /// How many.
        conflated: u64,
    },
    /// The application has it already, or a newer one.
    Withhold {
        /// How much later than the first copy it came, in nanoseconds, where that is known and it
        /// was not an image.
        lateness_ns: Option<u64>,
    },
}

/// What one side has contributed.
///
/// `received == wins + repairs + late + repeated`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbSideCounts {
    /// Snapshots that the side's session handed over.
    pub received: u64,
    /// Delivered from this side, because it was the first to bring them.
    pub wins: u64,
    /// Delivered from this side although the other one had brought them, because that one's book
    /// was suspect or being rebuilt.
    pub repairs: u64,
    /// Not delivered: the other side had brought the same or something newer.
    pub late: u64,
    /// Not delivered: images, after an attach, of what had been delivered already.
    pub repeated: u64,
    /// Times that the side skipped snapshots of an instrument because it did not keep up.
    pub gaps: u64,
    /// Snapshots that it skipped.
    pub skipped: u64,
    /// Those of them that the other side had made up for when this side went on: delivered, or
    /// overtaken by something newer.
    pub filled: u64,
}

/// When a snapshot came first.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    place: Place,
    side: AbSide,
    sequence: u64,
    received_ns: Option<u64>,
}

/// All that is remembered of one instrument.
#[derive(Clone, Debug, Default)]
struct Entry {
    newest: Option<Newest>,
    courses: [Course; 2],
    /// Side B's number less side A's for the same snapshot, once it is known.
    offset: Option<u64>,
    recent: [Option<Arrival>; RECENT],
    /// Where the next arrival is noted.
    cursor: usize,
}

/// Judges the snapshots of two sides. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Arbiter {
    entries: Vec<Entry>,
    counts: [AbSideCounts; 2],
    live: [bool; 2],
}

impl Arbiter {
    /// An arbiter that need not allocate for its first `capacity` instruments.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            entries: Vec::with_capacity(capacity),
            counts: [AbSideCounts::default(); 2],
            live: [true; 2],
        }
    }

    /// One more instrument; its index is the number of those before.
    pub(crate) fn add_instrument(&mut self) {
        self.entries.push(Entry::default());
    }

    /// Whether a side's books are current.
    pub(crate) const fn set_live(&mut self, side: AbSide, live: bool) {
        self.live[side.index()] = live;
    }

    pub(crate) const fn counts(&self, side: AbSide) -> AbSideCounts {
        self.counts[side.index()]
    }

    /// Judges one snapshot of an instrument that was added, and counts it. Each side's snapshots
    /// come in that side's order. `received_ns`: any clock that both sides share.
    pub(crate) fn on_snapshot(
        &mut self,
        instrument: usize,
        side: AbSide,
        notice: &Notice,
        received_ns: Option<u64>,
    ) -> Verdict {
        let entry = &mut self.entries[instrument];
        let counts = &mut self.counts[side.index()];
        counts.received += 1;
        counts.gaps += u64::from(notice.skipped > 0);
        counts.skipped += notice.skipped;
        let alone = !self.live[side.other().index()];
        let place = entry.follow(side, notice, alone);
        let (verdict, filled) = match entry.relation(place, side, notice) {
            Ordering::Greater => {
                counts.wins += 1;
                let conflated = entry.conflated(side, notice);
                entry.deliver(place, side, notice, received_ns);
                (Verdict::Deliver { conflated }, notice.skipped - conflated)
            }
            Ordering::Equal if entry.is_repaired_by(notice) => {
                counts.repairs += 1;
                (Verdict::Deliver { conflated: 0 }, notice.skipped)
            }
            Ordering::Equal | Ordering::Less => {
                let lateness_ns = entry.withhold(place, side, notice, received_ns);
                counts.repeated += u64::from(notice.initial);
                counts.late += u64::from(!notice.initial);
                (Verdict::Withhold { lateness_ns }, notice.skipped)
            }
        };
        counts.filled += filled;
        verdict
    }
}

impl Entry {
    /// Follows a side to its next snapshot.
    fn follow(&mut self, side: AbSide, notice: &Notice, alone: bool) -> Place {
        if notice.initial {
            // Another session may number otherwise.
            self.offset = None;
            if let Some(newest) = &mut self.newest {
                newest.sequences[side.index()] = None;
            }
        }
        self.courses[side.index()].advance(notice, self.newest.as_ref(), alone)
    }

    /// How a snapshot relates to the newest delivered. Learns from one that is the same.
    fn relation(&mut self, place: Place, side: AbSide, notice: &Notice) -> Ordering {
        let Some(newest) = &mut self.newest else { return Ordering::Greater };
        let assumed = self.courses[side.index()].is_assumed();
        let relation = newest.relation(place, assumed, notice);
        if relation.is_ge() {
            self.courses[side.index()].confirm();
        }
        let is_certain = notice.digest == newest.digest || place.is_exactly(newest.place);
        if relation.is_ne() || !is_certain {
            return relation;
        }
        if newest.place.occurrence == 0 {
            newest.place.occurrence = place.occurrence;
        }
        self.courses[side.index()].place.occurrence = newest.place.occurrence;
        newest.sequences[side.index()] = Some(notice.sequence);
        if let [Some(a), Some(b)] = newest.sequences {
            self.offset = Some(b.wrapping_sub(a));
        }
        relation
    }

    /// Snapshots between the newest delivered and this one, which will be delivered, that were not.
    fn conflated(&self, side: AbSide, notice: &Notice) -> u64 {
        let Some(newest) = &self.newest else { return notice.skipped };
        match self.sequence_of(newest, side) {
            Some(last) => {
                let between = notice.sequence.saturating_sub(last).saturating_sub(1);
                notice.skipped.min(between)
            }
            None => notice.skipped,
        }
    }

    /// The newest delivered snapshot's number on a side.
    fn sequence_of(&self, newest: &Newest, side: AbSide) -> Option<u64> {
        newest.sequences[side.index()].or_else(|| {
            let theirs = newest.sequences[side.other().index()]?;
            let offset = self.offset?;
            Some(match side {
                AbSide::A => theirs.wrapping_sub(offset),
                AbSide::B => theirs.wrapping_add(offset),
            })
        })
    }

    fn deliver(&mut self, place: Place, side: AbSide, notice: &Notice, received_ns: Option<u64>) {
        let mut sequences = [None; 2];
        sequences[side.index()] = Some(notice.sequence);
        self.newest = Some(Newest {
            place,
            ts_event: notice.ts_event,
            digest: notice.digest,
            sound: notice.sound,
            sequences,
        });
        let arrival = Arrival { place, side, sequence: notice.sequence, received_ns };
        self.recent[self.cursor] = Some(arrival);
        self.cursor = (self.cursor + 1) % RECENT;
    }

    /// Whether this copy of the newest delivered snapshot is sound and that was not. If so, it
    /// takes its place.
    fn is_repaired_by(&mut self, notice: &Notice) -> bool {
        let Some(newest) = &mut self.newest else { return false };
        if newest.sound || !notice.sound {
            return false;
        }
        newest.sound = true;
        newest.digest = notice.digest;
        true
    }

    /// Learns from a copy that is not delivered. Returns how late it is.
    fn withhold(
        &mut self,
        place: Place,
        side: AbSide,
        notice: &Notice,
        received_ns: Option<u64>,
    ) -> Option<u64> {
        let first = self.first_arrival(place, side).copied();
        if let Some(first) = first
            && first.place.is_exactly(place)
        {
            self.offset = Some(match side {
                AbSide::A => first.sequence.wrapping_sub(notice.sequence),
                AbSide::B => notice.sequence.wrapping_sub(first.sequence),
            });
        }
        if notice.initial {
            return None;
        }
        Some(received_ns?.saturating_sub(first?.received_ns?))
    }

    /// When the other side brought this, if that was not too long ago.
    fn first_arrival(&self, place: Place, side: AbSide) -> Option<&Arrival> {
        self.recent
            .iter()
            .flatten()
            .find(|arrival| arrival.side != side && arrival.place.may_be(place))
    }
}
