//! The arbiter against a model that knows what no side can know: each snapshot's number in the
//! feed.

use proptest::prelude::*;

use super::{AbSide, Arbiter, Notice, Verdict};

const HOUR_NS: u64 = 3_600_000_000_000;
const OPEN_NS: u64 = 1_709_303_400_000_000_000;

/// One instrument's snapshots as the feed makes them.
#[derive(Clone, Debug)]
struct Feed {
    /// (feed sequence, venue time) of each.
    snapshots: Vec<(u64, u64)>,
}

impl Feed {
    /// Each step adds so much to the feed sequence; `DROP` lets it count afresh.
    fn of(steps: &[u64], step_ns: u64) -> Self {
        let (mut sequence, mut time) = (1_000, OPEN_NS);
        let snapshots = steps
            .iter()
            .map(|step| {
                time += step_ns;
                sequence = if *step == DROP { 1 } else { sequence + step };
                (sequence, time)
            })
            .collect();
        Self { snapshots }
    }

    fn notice(&self, index: usize, numbered_from: u64, skipped: u64, initial: bool) -> Notice {
        let (feed_sequence, ts_event) = self.snapshots[index];
        Notice {
            feed_sequence,
            ts_event,
            sequence: numbered_from + index as u64,
            skipped,
            initial,
            sound: true,
            // Books come back to what they were before.
            digest: (index % 3) as u64,
        }
    }
}

/// Marks a step at which the feed counts afresh.
const DROP: u64 = u64::MAX;

/// One side brings the next of the feed's snapshots, after leaving so many out.
#[derive(Clone, Copy, Debug)]
struct Move {
    side: AbSide,
    skip: usize,
    attaches: bool,
}

fn moves(skip_max: usize, attach: bool) -> impl Strategy<Value = Vec<Move>> {
    let side = prop_oneof![Just(AbSide::A), Just(AbSide::B)];
    let attaches = if attach { prop::bool::weighted(0.1).boxed() } else { Just(false).boxed() };
    let skip = prop_oneof![3 => Just(0), 1 => 0..=skip_max];
    let one =
        (side, skip, attaches).prop_map(|(side, skip, attaches)| Move { side, skip, attaches });
    prop::collection::vec(one, 0..300)
}

/// What the application ends up with: (number in the feed, conflated count) of each delivery.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    delivered: Vec<usize>,
    conflated: u64,
}

/// Plays the moves. The model: a snapshot is delivered exactly when its number in the feed is
/// greater than every number before. Checks each verdict against that, and each count.
fn play(feed: &Feed, moves: &[Move], numbered_from: [u64; 2]) -> Outcome {
    let mut arbiter = Arbiter::new(1);
    arbiter.add_instrument();
    let mut next = [0_usize; 2];
    let mut joined = [false; 2];
    let mut newest: Option<usize> = None;
    let mut outcome = Outcome { delivered: Vec::new(), conflated: 0 };
    let mut wins = [0_u64; 2];
    for Move { side, skip, attaches } in moves.iter().copied() {
        let at = side.index();
        let initial = attaches || !joined[at];
        let index = next[at] + skip;
        if index >= feed.snapshots.len() {
            continue;
        }
        joined[at] = true;
        next[at] = index + 1;
        let skipped = if initial { 0 } else { skip as u64 };
        let notice = feed.notice(index, numbered_from[at], skipped, initial);
        let verdict = arbiter.on_snapshot(0, side, &notice, None);
        let is_newer = newest.is_none_or(|newest| index > newest);
        match verdict {
            Verdict::Deliver { conflated } => {
                assert!(is_newer, "{index} was delivered after {newest:?}");
                let missing = newest.map_or(0, |newest| (index - newest - 1) as u64);
                // An image stands for itself.
                assert!(initial || conflated >= missing.min(skipped), "{conflated} of {missing}");
                outcome.conflated += conflated;
                outcome.delivered.push(index);
                wins[at] += 1;
                newest = Some(index);
            }
            Verdict::Withhold { .. } => {
                assert!(!is_newer, "{index} was withheld after {newest:?}");
            }
        }
    }
    for side in AbSide::BOTH {
        let counts = arbiter.counts(side);
        let judged = counts.wins + counts.repairs + counts.late + counts.repeated;
        assert_eq!(counts.received, judged, "{counts:?}");
        assert_eq!(counts.wins, wins[side.index()]);
        assert!(counts.filled <= counts.skipped && counts.gaps <= counts.skipped, "{counts:?}");
    }
    outcome
}

/// Both sides keep up and were there from the start: conflated counts are exact from then on.
fn play_from_the_start(feed: &Feed, moves: &[Move]) -> Outcome {
    let both = AbSide::BOTH.map(|side| Move { side, skip: 0, attaches: false });
    play(feed, &[&both, moves].concat(), [1, 1])
}

/// (is A's, feed sequence, venue time, number, skipped, initial, sound, other side live).
type Claim = (bool, u64, u64, u64, u16, bool, bool, bool);

proptest! {
    #[test]
    fn each_snapshot_is_delivered_once_and_in_order_whatever_the_sides_skip(
        steps in prop::collection::vec(1_u64..4, 1..200),
        moves in moves(5, true),
        numbered_from in [1_u64..9, 1_u64..9],
    ) {
        play(&Feed::of(&steps, 0), &moves, numbered_from);
    }

    #[test]
    fn what_is_delivered_and_what_it_stands_for_add_up_to_the_feed(
        steps in prop::collection::vec(1_u64..4, 1..200),
        moves in moves(5, false),
    ) {
        let outcome = play_from_the_start(&Feed::of(&steps, 0), &moves);
        let last = *outcome.delivered.last().expect("the first snapshot") as u64;
        prop_assert_eq!(outcome.delivered.len() as u64 + outcome.conflated, last + 1);
    }

    #[test]
    fn snapshots_that_share_a_feed_sequence_are_told_apart_by_their_occurrence(
        steps in prop::collection::vec(0_u64..2, 1..200),
        moves in moves(0, false),
    ) {
        play_from_the_start(&Feed::of(&steps, 0), &moves);
    }

    #[test]
    fn a_side_that_joins_within_a_feed_sequence_goes_by_venue_time(
        steps in prop::collection::vec(0_u64..2, 1..200),
        moves in moves(5, true),
        numbered_from in [1_u64..9, 1_u64..9],
    ) {
        play(&Feed::of(&steps, 1), &moves, numbered_from);
    }

    #[test]
    fn a_feed_that_counts_afresh_goes_on(
        steps in prop::collection::vec(prop_oneof![9 => 1_u64..4, 1 => Just(DROP)], 1..200),
        moves in moves(0, false),
    ) {
        play_from_the_start(&Feed::of(&steps, 0), &moves);
    }

    #[test]
    fn a_side_that_joins_on_another_day_is_not_taken_for_late(
        steps in prop::collection::vec(prop_oneof![9 => 1_u64..4, 1 => Just(DROP)], 1..200),
        moves in moves(0, true),
    ) {
        // An hour and more passes from one snapshot to the next.
        play(&Feed::of(&steps, HOUR_NS), &moves, [1, 1]);
    }

    #[test]
    fn whatever_two_sides_claim_nothing_breaks(
        claims in prop::collection::vec(any::<Claim>(), 0..99),
    ) {
        let mut arbiter = Arbiter::new(1);
        arbiter.add_instrument();
        for (is_a, feed_sequence, ts_event, sequence, skipped, initial, sound, live) in claims {
            let side = if is_a { AbSide::A } else { AbSide::B };
            arbiter.set_live(side.other(), live);
            let (skipped, digest) = (u64::from(skipped), ts_event % 3);
            let notice =
                Notice { feed_sequence, ts_event, sequence, skipped, initial, sound, digest };
            arbiter.on_snapshot(0, side, &notice, Some(ts_event));
        }
        for counts in AbSide::BOTH.map(|side| arbiter.counts(side)) {
            let judged = counts.wins + counts.repairs + counts.late + counts.repeated;
            prop_assert_eq!(counts.received, judged);
            prop_assert!(counts.filled <= counts.skipped);
        }
    }
}

fn judge(arbiter: &mut Arbiter, side: AbSide, notice: Notice, at_ns: u64) -> Verdict {
    arbiter.on_snapshot(0, side, &notice, Some(at_ns))
}

fn arbiter() -> Arbiter {
    let mut arbiter = Arbiter::new(1);
    arbiter.add_instrument();
    arbiter
}

const DELIVER: Verdict = Verdict::Deliver { conflated: 0 };
const fn withhold(lateness_ns: Option<u64>) -> Verdict {
    Verdict::Withhold { lateness_ns }
}

/// Snapshot `sequence` of one numbering, with this feed sequence.
const fn live(sequence: u64, feed_sequence: u64) -> Notice {
    let ts_event = OPEN_NS + feed_sequence;
    let (skipped, initial, sound, digest) = (0, false, true, sequence);
    Notice { feed_sequence, ts_event, sequence, skipped, initial, sound, digest }
}

#[test]
fn the_second_copy_tells_how_late_it_is_also_when_newer_ones_have_come() {
    let mut arbiter = arbiter();
    for (sequence, at_ns) in [(1, 100), (2, 200), (3, 300)] {
        assert_eq!(judge(&mut arbiter, AbSide::A, live(sequence, sequence), at_ns), DELIVER);
    }
    assert_eq!(judge(&mut arbiter, AbSide::B, live(1, 1), 150), withhold(Some(50)));
    assert_eq!(judge(&mut arbiter, AbSide::B, live(3, 3), 1_300), withhold(Some(1_000)));
    let counts = arbiter.counts(AbSide::B);
    assert_eq!((counts.received, counts.late, counts.wins), (2, 2, 0));
}

#[test]
fn the_mark_of_the_sources_end_repeats_a_feed_sequence_and_is_delivered_once() {
    let mut arbiter = arbiter();
    assert_eq!(judge(&mut arbiter, AbSide::A, live(1, 7), 0), DELIVER);
    assert_eq!(judge(&mut arbiter, AbSide::A, live(2, 7), 1), DELIVER);
    assert_eq!(judge(&mut arbiter, AbSide::B, live(1, 7), 2), withhold(Some(2)));
    assert_eq!(judge(&mut arbiter, AbSide::B, live(2, 7), 3), withhold(Some(2)));
    // The same mark as the image of a session that begins after it.
    let image = Notice { initial: true, ..live(2, 7) };
    assert_eq!(judge(&mut arbiter, AbSide::B, image, 4), withhold(None));
    assert_eq!(arbiter.counts(AbSide::B).repeated, 1);
    // What differs in content at the same place is never swallowed.
    let halted = Notice { initial: true, digest: 99, ..live(2, 7) };
    assert_eq!(judge(&mut arbiter, AbSide::B, halted, 5), DELIVER);
}

#[test]
fn a_sound_copy_repairs_a_suspect_one_and_not_the_other_way_round() {
    let mut arbiter = arbiter();
    let suspect = |notice| Notice { sound: false, digest: 50, ..notice };
    assert_eq!(judge(&mut arbiter, AbSide::A, suspect(live(1, 1)), 0), DELIVER);
    assert_eq!(judge(&mut arbiter, AbSide::B, live(1, 1), 1), DELIVER);
    assert_eq!(judge(&mut arbiter, AbSide::B, live(2, 2), 2), DELIVER);
    assert_eq!(judge(&mut arbiter, AbSide::A, suspect(live(2, 2)), 3), withhold(Some(1)));
    assert_eq!(arbiter.counts(AbSide::B).repairs, 1);
}

#[test]
fn a_gap_on_one_side_that_the_other_has_filled_stands_for_nothing() {
    let mut arbiter = arbiter();
    for side in AbSide::BOTH {
        judge(&mut arbiter, side, live(1, 1), 0);
    }
    assert_eq!(judge(&mut arbiter, AbSide::B, live(2, 2), 0), DELIVER);
    assert_eq!(judge(&mut arbiter, AbSide::B, live(3, 3), 0), DELIVER);
    // A has skipped 2 to 5; of these, 4 and 5 were delivered by nobody.
    let after_gap = Notice { skipped: 4, ..live(6, 6) };
    let verdict = judge(&mut arbiter, AbSide::A, after_gap, 0);
    assert_eq!(verdict, Verdict::Deliver { conflated: 2 });
    let counts = arbiter.counts(AbSide::A);
    assert_eq!((counts.gaps, counts.skipped, counts.filled), (1, 4, 2));
}

#[test]
fn the_side_that_is_left_is_heard_although_it_missed_that_the_feed_counts_afresh() {
    let mut arbiter = arbiter();
    for side in AbSide::BOTH {
        judge(&mut arbiter, side, live(1, 100), 0);
    }
    // The feed rebuilds its book with old numbers; B skips that.
    for (sequence, feed_sequence) in [(2, 50), (3, 101)] {
        assert_eq!(judge(&mut arbiter, AbSide::A, live(sequence, feed_sequence), 0), DELIVER);
    }
    let skips = Notice { skipped: 1, ..live(3, 101) };
    assert_eq!(judge(&mut arbiter, AbSide::B, skips, 0), withhold(None));
    arbiter.set_live(AbSide::A, false);
    assert_eq!(judge(&mut arbiter, AbSide::B, live(4, 102), 0), DELIVER);
    assert_eq!(judge(&mut arbiter, AbSide::B, live(5, 103), 0), DELIVER);
}

#[test]
fn a_publisher_that_replays_the_day_is_not_heard_before_it_has_caught_up() {
    let mut arbiter = arbiter();
    for sequence in 1..=5 {
        assert_eq!(judge(&mut arbiter, AbSide::A, live(sequence, sequence), 0), DELIVER);
    }
    arbiter.set_live(AbSide::A, false);
    let image = Notice { initial: true, ..live(1, 1) };
    assert_eq!(judge(&mut arbiter, AbSide::B, image, 0), withhold(None));
    for sequence in 2..=5 {
        let verdict = judge(&mut arbiter, AbSide::B, live(sequence, sequence), 0);
        assert_eq!(verdict, withhold(Some(0)));
    }
    assert_eq!(judge(&mut arbiter, AbSide::B, live(6, 6), 0), DELIVER);
}
