//! Decides when the publisher is alive: by time, and by the duty cycles of the sender itself.

use std::time::{Duration, Instant};

/// What the threads that must not hang have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs {
    /// Duty cycles of the sender. They go on in an idle market.
    pub(crate) sender_beats: u64,
    /// Steps of the feed. They stand still while its source has nothing.
    pub(crate) feed_beats: u64,
    /// Whether the feed publishes something at this moment, and so waits for no source.
    pub(crate) feed_works: bool,
}

/// Feeds the service manager's watchdog at half of its time, and only when the sender has gone
/// round since, and the feed does not hang in what it publishes. So a hung thread is noticed
/// within one and a half of the watchdog's time, and one that was only late is not: it has that
/// whole time to go round once. Keeps no clock.
#[derive(Debug)]
pub(super) struct Watchdog {
    every: Duration,
    /// When it was fed last, and the signs then.
    fed: Option<(Instant, Signs)>,
}

impl Watchdog {
    /// For a service manager that waits `patience`; none where it does not wait for ever so little.
    pub(super) fn new(patience: Duration) -> Option<Self> {
        (!patience.is_zero()).then_some(Self { every: patience / 2, fed: None })
    }

    /// Whether to feed it now.
    pub(super) fn on_look(&mut self, signs: Signs, now: Instant) -> bool {
        let is_due = self.fed.is_none_or(|(when, _)| now.duration_since(when) >= self.every);
        let feeds = is_due && self.are_alive(signs);
        if feeds {
            self.fed = Some((now, signs));
        }
        feeds
    }

    fn are_alive(&self, signs: Signs) -> bool {
        let Some((_, before)) = self.fed else { return signs.sender_beats > 0 };
        let feed_hangs = signs.feed_works && signs.feed_beats == before.feed_beats;
        signs.sender_beats != before.sender_beats && !feed_hangs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);
    const LOOK: Duration = Duration::from_millis(100);

    /// Looks at threads every tenth of a second; counts how often the watchdog was fed.
    fn fed(looks: u32, signs: impl Fn(u64) -> Signs) -> usize {
        let mut watchdog = Watchdog::new(PATIENCE).expect("a watchdog");
        let begin = Instant::now();
        (0..looks).filter(|n| watchdog.on_look(signs(u64::from(*n)), begin + LOOK * *n)).count()
    }

    fn idle_feed(sender_beats: u64) -> Signs {
        Signs { sender_beats, feed_beats: 7, feed_works: false }
    }

    #[test]
    fn a_sender_that_goes_round_is_alive_in_an_idle_market() {
        // At 0.1 s, 1.1 s, and so on to 9.1 s.
        assert_eq!(fed(100, idle_feed), 10);
    }

    #[test]
    fn a_sender_that_has_not_begun_is_not_alive() {
        assert_eq!(fed(100, |_| idle_feed(0)), 0);
    }

    #[test]
    fn a_sender_that_hangs_is_noticed_within_the_patience_and_one_that_was_late_is_fed_at_once() {
        assert_eq!(
            fed(100, |look| idle_feed(look.min(5))),
            1 + 1,
            "at 0.1 s, and for beats 2 to 5"
        );
        assert_eq!(fed(100, |look| idle_feed(if look < 90 { look.min(1) } else { look })), 1 + 1);
    }

    #[test]
    fn a_feed_that_hangs_while_it_publishes_is_noticed_and_one_that_waits_for_its_source_is_not() {
        let signs = |sender_beats, feed_works| Signs { feed_works, ..idle_feed(sender_beats) };
        assert_eq!(fed(100, |look| signs(look, look > 5)), 1);
        assert_eq!(fed(100, |look| signs(look, false)), 10);
        let busy = |look| Signs { sender_beats: look, feed_beats: look, feed_works: true };
        assert_eq!(fed(100, busy), 10);
    }

    #[test]
    fn a_service_manager_without_patience_is_not_fed() {
        assert!(Watchdog::new(Duration::ZERO).is_none());
    }
}
