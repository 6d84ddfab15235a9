//! How busy the market is, and when.

use std::time::Duration;

use super::config::SyntheticConfig;
use super::draws::Draws;

pub(super) const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// 09:29:59: the exchange starts to speak.
pub(super) const START_NS: u64 = (9 * 3600 + 29 * 60 + 59) * NANOS_PER_SECOND;
/// 09:30:00.
pub(super) const OPEN_NS: u64 = START_NS + NANOS_PER_SECOND;

/// In a quiet spell there is this fraction of the steady rate.
const QUIET_DIVISOR: u64 = 50;
/// Mean length of a quiet spell.
const QUIET_MEAN_NS: u64 = 300_000_000;

/// The exchange's clock while the market is open.
#[derive(Debug)]
pub(super) struct Clock {
    now_ns: u64,
    burst_rate: u64,
    burst_ns: u64,
    steady_rate: u64,
    quiet_every_ns: u64,
    quiet_from_ns: u64,
    quiet_until_ns: u64,
}

impl Clock {
    pub(super) fn new(config: &SyntheticConfig, draws: &mut Draws) -> Self {
        let quiet_every_ns = nanos(config.quiet_every);
        let burst_ns = nanos(config.burst);
        let calm_ns = OPEN_NS + 4 * burst_ns;
        Self {
            now_ns: OPEN_NS,
            burst_rate: config.burst_rate.max(config.steady_rate),
            burst_ns,
            steady_rate: config.steady_rate,
            quiet_every_ns,
            quiet_from_ns: match quiet_every_ns {
                0 => u64::MAX,
                mean => calm_ns + draws.exponential(mean),
            },
            quiet_until_ns: 0,
        }
    }

    pub(super) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Moves to the next event.
    #[inline]
    pub(super) fn tick(&mut self, draws: &mut Draws) {
        let mean = (NANOS_PER_SECOND / self.rate()).max(1);
        self.now_ns += draws.exponential(mean).max(1);
        if self.now_ns >= self.quiet_from_ns {
            self.quiet_until_ns = self.now_ns + draws.exponential(QUIET_MEAN_NS);
            self.quiet_from_ns = self.quiet_until_ns + draws.exponential(self.quiet_every_ns);
        }
    }

    /// Moves to a point in time, if that is ahead.
    pub(super) const fn advance_to(&mut self, at_ns: u64) {
        if at_ns > self.now_ns {
            self.now_ns = at_ns;
        }
    }

    /// Messages per second at this time.
    #[inline]
    fn rate(&self) -> u64 {
        if self.now_ns < self.quiet_until_ns {
            return (self.steady_rate / QUIET_DIVISOR).max(1);
        }
        self.steady_rate + self.excess_at(self.now_ns - OPEN_NS)
    }

    /// What the opening burst adds: constant, then halved in each further burst time.
    #[inline]
    const fn excess_at(&self, since_open_ns: u64) -> u64 {
        let full = self.burst_rate - self.steady_rate;
        if self.burst_ns == 0 {
            return 0;
        }
        let halvings = since_open_ns / self.burst_ns;
        match halvings {
            0 => full,
            1..=40 => {
                let high = full >> (halvings - 1);
                // A straight line to the next half, in steps of 1/1024.
                let within = (since_open_ns % self.burst_ns) * 1024 / self.burst_ns;
                high - high * within / 2048
            }
            _ => 0,
        }
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        let config = SyntheticConfig {
            burst: Duration::from_millis(100),
            burst_rate: 1_000_000,
            steady_rate: 20_000,
            ..SyntheticConfig::default()
        };
        Clock::new(&config, &mut Draws::new(1))
    }

    #[test]
    fn the_burst_holds_and_then_halves() {
        let clock = clock();
        let at = |ms: u64| clock.excess_at(ms * 1_000_000);
        assert_eq!((at(0), at(99)), (980_000, 980_000));
        assert_eq!((at(100), at(200), at(300)), (980_000, 490_000, 245_000));
        assert_eq!(at(150), 735_000);
        assert_eq!(at(100_000), 0);
    }

    #[test]
    fn without_a_burst_the_rate_is_steady_from_the_open() {
        let config = SyntheticConfig { burst: Duration::ZERO, ..SyntheticConfig::default() };
        let clock = Clock::new(&config, &mut Draws::new(1));
        assert_eq!(clock.rate(), config.steady_rate);
    }
}
