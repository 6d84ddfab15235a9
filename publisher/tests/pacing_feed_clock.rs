//! When a feed's events are due, by its own clock.

use std::time::Duration;

use proptest::prelude::*;
use tapecast_publisher::source::pacing::{Pace, Pacer};
use tapecast_wire::Nanos;

const SECOND: u64 = 1_000_000_000;
const FEED: u64 = 1_700_000_000 * SECOND;
const HOST: u64 = 1_800_000_000 * SECOND;

fn wait(pacer: &mut Pacer, feed_s: f64, host_s: f64) -> f64 {
    let at = |base: u64, seconds: f64| base + (seconds * 1e9) as u64;
    pacer.wait(at(FEED, feed_s), Nanos(at(HOST, host_s))).as_secs_f64()
}

#[test]
fn paces_are_read_from_text_and_written_back() {
    for (text, pace) in [
        ("max", Pace::AsFast),
        ("1x", Pace::RealTime),
        ("10x", Pace::Multiple(10.0)),
        ("0.5x", Pace::Multiple(0.5)),
    ] {
        assert_eq!(text.parse(), Ok(pace));
        assert_eq!(pace.to_string(), text);
        let json = format!("\"{text}\"");
        assert_eq!(serde_json::from_str::<Pace>(&json).unwrap(), pace);
        assert_eq!(serde_json::to_string(&pace).unwrap(), json);
    }
    assert_eq!(" MAX ".parse(), Ok(Pace::AsFast));
    assert_eq!("1.0X".parse(), Ok(Pace::RealTime));
}

#[test]
fn text_that_is_no_pace_is_refused_with_examples() {
    for text in ["", "x", "fast", "10", "-1x", "0x", "NaNx", "infx", "1e9x", "1xx", "0.0001x"] {
        let error = text.parse::<Pace>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{text}`")), "{error}");
        assert!(error.contains("`max`") && error.contains("`0.5x`"), "{error}");
    }
}

#[test]
fn as_fast_as_possible_never_waits() {
    let mut pacer = Pacer::new(Pace::AsFast, None);
    assert!(!pacer.is_paced());
    assert_eq!(wait(&mut pacer, 0.0, 0.0), 0.0);
    assert_eq!(wait(&mut pacer, 1e6, 0.0), 0.0);
}

#[test]
fn the_first_event_is_due_at_once_and_the_others_by_the_feeds_clock() {
    let mut pacer = Pacer::new(Pace::RealTime, None);
    assert!(pacer.is_paced());
    assert_eq!(wait(&mut pacer, 0.0, 0.0), 0.0);
    assert_eq!(wait(&mut pacer, 0.25, 0.0), 0.25);
    assert_eq!(wait(&mut pacer, 2.0, 0.5), 1.5);
}

#[test]
fn a_multiple_shortens_or_lengthens_the_time_between_events() {
    let mut fast = Pacer::new(Pace::Multiple(10.0), None);
    let mut slow = Pacer::new(Pace::Multiple(0.5), None);
    wait(&mut fast, 0.0, 0.0);
    wait(&mut slow, 0.0, 0.0);
    assert_eq!(wait(&mut fast, 10.0, 0.0), 1.0);
    assert_eq!(wait(&mut slow, 10.0, 0.0), 20.0);
}

#[test]
fn waiting_too_long_each_time_does_not_add_up() {
    let mut pacer = Pacer::new(Pace::RealTime, None);
    let mut host_ns = HOST;
    for event in 0..10_000_u64 {
        let wait = pacer.wait(FEED + event * 1_000_000, Nanos(host_ns));
        // The host's timer always oversleeps by 60 µs.
        host_ns += wait.as_nanos() as u64 + 60_000;
        assert_eq!(host_ns, HOST + event * 1_000_000 + 60_000);
    }
}

#[test]
fn an_event_that_comes_late_is_due_at_once_and_the_feed_catches_up() {
    let mut pacer = Pacer::new(Pace::RealTime, None);
    wait(&mut pacer, 0.0, 0.0);
    assert_eq!(wait(&mut pacer, 1.0, 5.0), 0.0);
    assert_eq!(wait(&mut pacer, 4.5, 5.0), 0.0);
    assert_eq!(wait(&mut pacer, 6.0, 5.0), 1.0);
}

#[test]
fn what_is_late_was_due_when_the_feeds_clock_says_and_unpaced_everything_is_due_now() {
    let mut pacer = Pacer::new(Pace::RealTime, None);
    assert_eq!(pacer.due(FEED, Nanos(HOST)), Nanos(HOST));
    assert_eq!(pacer.due(FEED + SECOND, Nanos(HOST + 5 * SECOND)), Nanos(HOST + SECOND));
    assert_eq!(pacer.due(FEED + 9 * SECOND, Nanos(HOST + 5 * SECOND)), Nanos(HOST + 9 * SECOND));
    let mut unpaced = Pacer::new(Pace::AsFast, None);
    assert_eq!(unpaced.due(FEED, Nanos(HOST + SECOND)), Nanos(HOST + SECOND));
}

#[test]
fn a_gap_longer_than_the_longest_is_waited_for_only_so_long() {
    let mut pacer = Pacer::new(Pace::RealTime, Some(Duration::from_secs(10)));
    wait(&mut pacer, 0.0, 0.0);
    assert_eq!(wait(&mut pacer, 10.0, 0.0), 10.0, "a gap of just that length is kept");
    let overnight = 60_000.0;
    assert_eq!(wait(&mut pacer, 10.0 + overnight, 10.0), 10.0);
    assert_eq!(wait(&mut pacer, 10.5 + overnight, 20.0), 0.5, "and then by the clock again");
}

#[test]
fn a_longest_gap_is_in_feed_time() {
    let mut pacer = Pacer::new(Pace::Multiple(10.0), Some(Duration::from_secs(10)));
    wait(&mut pacer, 0.0, 0.0);
    assert_eq!(wait(&mut pacer, 5_000.0, 0.0), 1.0);
}

#[test]
fn a_small_step_back_of_the_feeds_clock_is_due_at_once_and_moves_nothing() {
    let mut pacer = Pacer::new(Pace::RealTime, None);
    wait(&mut pacer, 10.0, 0.0);
    assert_eq!(wait(&mut pacer, 9.5, 0.0), 0.0);
    assert_eq!(wait(&mut pacer, 11.0, 0.0), 1.0);
}

#[test]
fn a_feed_that_is_played_again_goes_on_without_waiting_and_keeps_its_pace() {
    let mut pacer = Pacer::new(Pace::RealTime, None);
    wait(&mut pacer, 0.0, 0.0);
    assert_eq!(wait(&mut pacer, 100.0, 100.0), 0.0);
    assert_eq!(wait(&mut pacer, 0.0, 100.25), 0.0, "the second round begins");
    assert_eq!(wait(&mut pacer, 2.0, 100.25), 2.0);
}

#[test]
fn a_round_that_begins_early_waits_for_the_one_before() {
    let mut pacer = Pacer::new(Pace::RealTime, None);
    wait(&mut pacer, 0.0, 0.0);
    assert_eq!(wait(&mut pacer, 100.0, 90.0), 10.0);
    assert_eq!(wait(&mut pacer, 0.0, 90.0), 10.0);
    assert_eq!(wait(&mut pacer, 1.0, 90.0), 11.0);
}

#[test]
fn told_to_restart_the_next_event_is_due_at_once_wherever_it_is() {
    let mut pacer = Pacer::new(Pace::RealTime, None);
    wait(&mut pacer, 0.0, 0.0);
    pacer.restart();
    assert_eq!(wait(&mut pacer, 50_000.0, 1.0), 0.0);
    assert_eq!(wait(&mut pacer, 50_001.0, 1.0), 1.0);
}

proptest! {
    #[test]
    fn no_times_however_wild_make_it_panic(
        events in prop::collection::vec((any::<u64>(), any::<u64>()), 1..50),
        multiple in 0.001_f64..1e6,
    ) {
        let mut pacer = Pacer::new(Pace::Multiple(multiple), Some(Duration::from_secs(1)));
        for (feed_ns, host_ns) in events {
            let _ = pacer.wait(feed_ns, Nanos(host_ns));
        }
    }

    #[test]
    fn with_a_host_that_obeys_every_event_is_published_exactly_when_due(
        gaps_ns in prop::collection::vec(0_u64..5_000_000_000, 1..100),
    ) {
        let mut pacer = Pacer::new(Pace::RealTime, None);
        let (mut feed_ns, mut host_ns) = (FEED, HOST);
        let _ = pacer.wait(feed_ns, Nanos(host_ns));
        for gap_ns in gaps_ns {
            feed_ns += gap_ns;
            host_ns += pacer.wait(feed_ns, Nanos(host_ns)).as_nanos() as u64;
            prop_assert_eq!(host_ns - HOST, feed_ns - FEED);
        }
    }
}
