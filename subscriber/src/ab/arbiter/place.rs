//! Where in the feed a snapshot stands, as far as its side tells.

use core::cmp::Ordering;

/// Venue times further apart than this (one hour) belong to different numberings of the feed, where
/// the feed sequence says the opposite.
const APART_NS: u64 = 3_600_000_000_000;

/// What a side says of one snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    /// Number of the last feed message in the book, the same on both sides.
    pub(crate) feed_sequence: u64,
    /// Venue time of that message in Unix nanoseconds, the same on both sides.
    pub(crate) ts_event: u64,
    /// Number among the instrument's snapshots, this side's own.
    pub(crate) sequence: u64,
    /// Snapshots between the side's last one and this one that it did not hand over.
    pub(crate) skipped: u64,
    /// First snapshot of the instrument in the side's session.
    pub(crate) initial: bool,
    /// Neither suspect nor being rebuilt.
    pub(crate) sound: bool,
    /// Of all that the feed determines: levels, flags, status, last trade.
    pub(crate) digest: u64,
}

/// Position in the feed, for one instrument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// How often the feed had begun to count afresh; the first numbering is 1.
    pub(super) round: u32,
    pub(super) feed_sequence: u64,
    /// Which of the snapshots with this feed sequence, from 1; 0 when it is not known because the
    /// side joined or skipped in the middle.
    pub(super) occurrence: u64,
}

impl Place {
    /// Whether both are certainly the same.
    pub(super) fn is_exactly(self, other: Self) -> bool {
        self == other && self.occurrence > 0
    }

    /// Whether both can be the same.
    pub(super) const fn may_be(self, other: Self) -> bool {
        self.round == other.round
            && self.feed_sequence == other.feed_sequence
            && (self.occurrence == other.occurrence
                || self.occurrence == 0
                || other.occurrence == 0)
    }
}

/// The newest snapshot that was delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub(super) place: Place,
    pub(super) ts_event: u64,
    pub(super) digest: u64,
    pub(super) sound: bool,
    /// Its number among the instrument's snapshots on each side, as far as it is known.
    pub(super) sequences: [Option<u64>; 2],
}

impl Newest {
    /// How a snapshot relates to this one.
    ///
    /// Where the occurrence is not known, venue time decides, then the content: what is the same is
    /// the same, and what differs is taken for newer, because something that the application must
    /// see could be in it. Only an unsound book never follows a sound one like that. `assumed`: the
    /// place's round is a guess, so that venue times that lie far apart are believed first.
    pub(super) fn relation(&self, place: Place, assumed: bool, notice: &Notice) -> Ordering {
        let by_number =
            (place.round, place.feed_sequence).cmp(&(self.place.round, self.place.feed_sequence));
        if by_number.is_ne() {
            return by_number;
        }
        let apart = self.apart(notice);
        if assumed && apart.is_ne() {
            return apart;
        }
        if place.occurrence > 0 && self.place.occurrence > 0 {
            return place.occurrence.cmp(&self.place.occurrence);
        }
        notice.ts_event.cmp(&self.ts_event).then_with(|| {
            let same = notice.digest == self.digest || (self.sound && !notice.sound);
            if same { Ordering::Equal } else { Ordering::Greater }
        })
    }

    /// Which numbering of the feed a snapshot belongs to whose side has just joined. Sequences of
    /// two numberings overlap, so it is this one unless venue time says clearly otherwise.
    fn round_of(&self, notice: &Notice) -> u32 {
        let (theirs, ours) = (notice.feed_sequence, self.place.feed_sequence);
        match self.apart(notice) {
            Ordering::Greater if theirs < ours => self.place.round.saturating_add(1),
            Ordering::Less if theirs > ours => self.place.round.saturating_sub(1),
            _ => self.place.round,
        }
    }

    /// Whether a snapshot's venue time is clearly later or earlier than this one's.
    fn apart(&self, notice: &Notice) -> Ordering {
        let (theirs, ours) = (notice.ts_event, self.ts_event);
        // An undefined time is one of these.
        let is_known = [theirs, ours].iter().all(|time| ![0, u64::MAX].contains(time));
        if is_known && theirs.abs_diff(ours) >= APART_NS {
            theirs.cmp(&ours)
        } else {
            Ordering::Equal
        }
    }
}

/// One side's course through one instrument.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    /// Of its last snapshot; round 0 before the first.
    pub(super) place: Place,
    /// Its last number.
    sequence: u64,
    /// The round is a guess: the side has joined and has not yet been level with what was
    /// delivered.
    assumed: bool,
}

impl Course {
    /// Follows the side to its next snapshot and says where that stands. `alone`: the other side is
    /// not live, so nothing that this side has to say may be left out for being of an earlier
    /// numbering.
    pub(super) fn advance(
        &mut self,
        notice: &Notice,
        newest: Option<&Newest>,
        alone: bool,
    ) -> Place {
        let joins = notice.initial || self.place.round == 0;
        let mut place = if joins { Self::joined(notice, newest) } else { self.next(notice) };
        if let Some(newest) = newest
            && !joins
        {
            let guess = newest.round_of(notice);
            let round = match (alone && place.round < newest.place.round, self.assumed) {
                (true, _) => guess,
                (false, true) => guess.min(place.round),
                (false, false) => place.round,
            };
            if round != place.round {
                place = Place { round, occurrence: 0, ..place };
            }
        }
        self.assumed = if joins { newest.is_some() } else { self.assumed };
        self.place = place;
        self.sequence = notice.sequence;
        place
    }

    pub(super) const fn is_assumed(&self) -> bool {
        self.assumed
    }

    /// The side is level with what was delivered, or ahead of it.
    pub(super) const fn confirm(&mut self) {
        self.assumed = false;
    }

    fn joined(notice: &Notice, newest: Option<&Newest>) -> Place {
        Place {
            round: newest.map_or(1, |newest| newest.round_of(notice)),
            feed_sequence: notice.feed_sequence,
            occurrence: u64::from(notice.sequence == 1),
        }
    }

    /// One publisher says every instrument's snapshots in feed order, so a feed sequence that drops
    /// means that the feed counts afresh: another day, or an input that is played again.
    fn next(&self, notice: &Notice) -> Place {
        let Place { round, feed_sequence, occurrence } = self.place;
        let steps = notice.sequence.wrapping_sub(self.sequence);
        let round = round.saturating_add(u32::from(notice.feed_sequence < feed_sequence));
        let occurrence = match (notice.feed_sequence == feed_sequence, occurrence) {
            (true, 0) => 0,
            (true, known) => known.saturating_add(steps),
            (false, _) => u64::from(steps == 1),
        };
        Place { round, feed_sequence: notice.feed_sequence, occurrence }
    }
}
