//! When to try to attach again.

use core::time::Duration;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// What the SDK does when its session ends before the application leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// Attach again by itself, the first time at once, then with growing, jittered pauses.
    Backoff(Backoff),
    /// Stop: what is still in the ring is delivered, then `poll` says why it is over.
    Never,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self::Backoff(Backoff::default())
    }
}

/// Pauses between attempts: `first`, then twice as long each time, at most `max`.
///
/// Each pause is shortened at random to between half and all of it, so that 64 subscribers of a
/// restarted publisher do not all knock at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Pause after the first attempt that failed. Default 2 ms.
    pub first: Duration,
    /// Longest pause. Default 100 ms.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(2), max: Duration::from_millis(100) }
    }
}

impl Backoff {
    /// Pause before attempt number `attempt` (from 0), drawn with `random`.
    pub(crate) fn pause(self, attempt: u32, random: u64) -> Duration {
        let Some(doublings) = attempt.checked_sub(1) else {
            return Duration::ZERO;
        };
        let full = self.first.saturating_mul(1_u32 << doublings.min(30)).min(self.max);
        // The top 53 bits as a fraction of one.
        let fraction = (random >> 11) as f64 / (1_u64 << 53) as f64;
        full.mul_f64(0.5 + fraction / 2.0)
    }
}

/// Random numbers good enough to spread attempts: SplitMix64 from a seed of the process.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_is_made_at_once() {
        assert_eq!(Backoff::default().pause(0, u64::MAX), Duration::ZERO);
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_stay_between_half_and_all_of_it() {
        let backoff = Backoff::default();
        let full = [2, 4, 8, 16, 32, 64, 100, 100, 100];
        for (attempt, full_ms) in (1..).zip(full) {
            let full = Duration::from_millis(full_ms);
            assert_eq!(backoff.pause(attempt, 0), full / 2);
            let longest = backoff.pause(attempt, u64::MAX);
            assert!(longest <= full && longest > full.mul_f64(0.99), "{attempt}: {longest:?}");
        }
        assert_eq!(backoff.pause(u32::MAX, 0), Duration::from_millis(50));
    }

    #[test]
    fn two_subscribers_do_not_draw_the_same_pauses() {
        let (mut one, mut other) = (Jitter::new(), Jitter::new());
        let draw = |jitter: &mut Jitter| (0..4).map(|_| jitter.next()).collect::<Vec<_>>();
        assert_ne!(draw(&mut one), draw(&mut other));
    }
}
