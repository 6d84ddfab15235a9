//! From the initial image to live.

use tapecast_core::account::Account;
use tapecast_wire::Sequence;

/// Where a session is on its way from the initial image to live.
///
/// The account's joining phase ends when everything that there was when the session began has been
/// delivered, because from then on an instrument's first snapshot is its first of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joining {
    /// The table is being walked. Snapshots that are newer than `start` will come from the ring,
    /// and with them those in between; the last of these has number `skipped`.
    Image {
        /// Channel sequence at which the session begins.
        start: Sequence,
        /// Channel sequence of the newest snapshot left to the ring; 0 for none.
        skipped: Sequence,
    },
    /// The walk is over; what it left to the ring ends at `until`.
    Ring {
        /// Channel sequence.
        until: Sequence,
    },
    /// Everything that there was at the start has been delivered.
    Live,
    /// The table is gone before it was walked: of every instrument the first snapshot that the ring
    /// still has stands for itself.
    Abandoned,
}

impl Joining {
    /// A session that begins after `start`.
    pub(super) const fn new(start: Sequence) -> Self {
        Self::Image { start, skipped: Sequence(0) }
    }

    /// Whether a snapshot found in the table is delivered from there.
    pub(super) fn takes(&mut self, sequence: Sequence) -> bool {
        match self {
            Self::Image { start, skipped } if sequence > *start => {
                *skipped = sequence.max(*skipped);
                false
            }
            _ => true,
        }
    }

    /// The table has been walked.
    pub(super) const fn on_walked(&mut self) {
        if let Self::Image { skipped, .. } = *self {
            *self = Self::Ring { until: skipped };
        }
    }

    /// The table is another life's, and will never be walked to its end.
    pub(super) const fn on_abandoned(&mut self) {
        if !matches!(self, Self::Live) {
            *self = Self::Abandoned;
        }
    }

    /// The ring has been read up to `sequence`.
    #[inline]
    pub(super) fn on_read(&mut self, sequence: Sequence, account: &mut Account) {
        if matches!(*self, Self::Ring { until } if until <= sequence) {
            account.begin_live();
            *self = Self::Live;
        }
    }

    /// After a lap everything comes from the table, however new it is. A session `from_first`, that
    /// is one which began before the channel's first snapshot, has no image to wait for: it counts
    /// every instrument from its first snapshot, although the lap hides that one.
    pub(super) fn on_lap(&mut self, from_first: bool, account: &mut Account) {
        if from_first && *self != Self::Live {
            account.begin_live();
            *self = Self::Live;
        }
        if *self != Self::Live {
            *self = Self::new(Sequence(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapecast_core::Interest;

    fn account() -> Account {
        Account::new(&Interest::All, 1)
    }

    #[test]
    fn without_anything_newer_in_the_table_the_session_is_live_after_the_walk() {
        let (mut joining, mut account) = (Joining::new(Sequence(5)), account());
        assert!(joining.takes(Sequence(5)));
        joining.on_read(Sequence(5), &mut account);
        assert!(account.is_joining(), "the walk is not over");
        joining.on_walked();
        joining.on_read(Sequence(5), &mut account);
        assert!(!account.is_joining());
    }

    #[test]
    fn what_is_newer_than_the_start_is_left_to_the_ring_and_awaited_there() {
        let (mut joining, mut account) = (Joining::new(Sequence(5)), account());
        assert!(!joining.takes(Sequence(9)));
        assert!(!joining.takes(Sequence(6)));
        joining.on_walked();
        joining.on_read(Sequence(8), &mut account);
        assert!(account.is_joining());
        joining.on_read(Sequence(9), &mut account);
        assert_eq!((joining, account.is_joining()), (Joining::Live, false));
    }

    #[test]
    fn after_a_lap_the_table_is_all_there_is() {
        let (mut joining, mut account) = (Joining::new(Sequence(5)), account());
        assert!(!joining.takes(Sequence(9)));
        joining.on_walked();
        joining.on_lap(false, &mut account);
        assert!(joining.takes(Sequence(10)));
        joining.on_walked();
        joining.on_read(Sequence(0), &mut account);
        assert_eq!(joining, Joining::Live);
        joining.on_lap(false, &mut account);
        assert!(joining.takes(Sequence(u64::MAX)));
    }

    #[test]
    fn a_session_from_the_first_snapshot_on_counts_from_there_even_when_lapped_at_once() {
        let (mut joining, mut account) = (Joining::new(Sequence(0)), account());
        joining.on_lap(true, &mut account);
        assert_eq!((joining, account.is_joining()), (Joining::Live, false));
    }
}
