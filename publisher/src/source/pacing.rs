//! How fast a recorded or simulated feed is played.
//!
//! The pacer keeps no clock and does not sleep: it is told the feed's time and the host's, and says
//! how long to wait. What is due follows from one anchor, so waiting a little too long each time
//! does not add up.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tapecast_wire::Nanos;

/// Slowest and fastest multiples of real time.
const MULTIPLE_MIN: f64 = 0.001;
const MULTIPLE_MAX: f64 = 1_000_000.0;

/// The feed's clock may step back by this much between sources of one feed; further back, the feed
/// has started again.
const BACKSTEP_NS_MAX: u64 = 1_000_000_000;

/// Speed of a feed. Written `max`, `1x`, `10x`, `0.5x`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pace {
    /// As fast as it can be read.
    #[default]
    AsFast,
    /// By the feed's own clock.
    RealTime,
    /// This many times as fast as the feed's own clock.
    Multiple(f64),
}

/// Text that is not a [`Pace`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "pace `{text}` is neither `max` nor a multiple of real time from 0.001x to 1000000x: write \
     for example `1x`, `10x` or `0.5x`"
)]
pub struct PaceError {
    text: String,
}

impl FromStr for Pace {
    type Err = PaceError;

    fn from_str(text: &str) -> Result<Self, PaceError> {
        let error = || PaceError { text: text.to_owned() };
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("max") {
            return Ok(Self::AsFast);
        }
        let number = trimmed.strip_suffix(['x', 'X']).ok_or_else(error)?;
        let multiple: f64 = number.parse().map_err(|_| error())?;
        if !(MULTIPLE_MIN..=MULTIPLE_MAX).contains(&multiple) {
            return Err(error());
        }
        Ok(if multiple == 1.0 { Self::RealTime } else { Self::Multiple(multiple) })
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsFast => f.write_str("max"),
            Self::RealTime => f.write_str("1x"),
            Self::Multiple(multiple) => write!(f, "{multiple}x"),
        }
    }
}

impl TryFrom<String> for Pace {
    type Error = PaceError;

    fn try_from(text: String) -> Result<Self, PaceError> {
        text.parse()
    }
}

impl From<Pace> for String {
    fn from(pace: Pace) -> Self {
        pace.to_string()
    }
}

/// Where feed time and host time meet.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    feed_ns: u64,
    host: Nanos,
}

/// Says when a feed's events are due.
///
/// An event that comes late is due at once and moves nothing: the feed catches up. Where the feed's
/// clock leaps ahead by more than the longest gap (a night, a closed market), only that gap is
/// waited for. Where it falls back by more than a second (the feed is played again), it goes on
/// from there without waiting.
#[derive(Clone, Debug)]
pub struct Pacer {
    multiple: Option<f64>,
    gap_ns_max: u64,
    anchor: Option<Anchor>,
    feed_ns_max: u64,
}

impl Pacer {
    /// A pacer that waits `gap_max` at most for what is next, in feed time; `None` waits however
    /// long the feed's gap is.
    #[must_use]
    pub fn new(pace: Pace, gap_max: Option<Duration>) -> Self {
        Self {
            multiple: match pace {
                Pace::AsFast => None,
                Pace::RealTime => Some(1.0),
                Pace::Multiple(multiple) => Some(multiple),
            },
            gap_ns_max: gap_max
                .map_or(u64::MAX, |gap| u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX)),
            anchor: None,
            feed_ns_max: 0,
        }
    }

    /// Whether events are ever waited for. If not, there is no need to read a clock for
    /// [`Pacer::wait`].
    #[must_use]
    pub const fn is_paced(&self) -> bool {
        self.multiple.is_some()
    }

    /// How long to wait at `now` before the event at `feed_ns` is published; zero when it is due.
    #[must_use]
    pub fn wait(&mut self, feed_ns: u64, now: Nanos) -> Duration {
        Duration::from_nanos(self.due(feed_ns, now).since(now).get())
    }

    /// When the event at `feed_ns` is published, by the host's clock: in the past when it is late,
    /// and `now` where events are never waited for.
    #[must_use]
    pub fn due(&mut self, feed_ns: u64, now: Nanos) -> Nanos {
        let Some(multiple) = self.multiple else {
            return now;
        };
        let mut anchor = match self.anchor {
            Some(anchor) if feed_ns.saturating_add(BACKSTEP_NS_MAX) >= self.feed_ns_max => anchor,
            Some(anchor) => self.restarted(anchor, feed_ns, now, multiple),
            None => self.anchored(feed_ns, now),
        };
        let gap_ns = feed_ns.saturating_sub(self.feed_ns_max);
        if gap_ns > self.gap_ns_max {
            // What is beyond the longest gap never happened.
            anchor.feed_ns = anchor.feed_ns.saturating_add(gap_ns - self.gap_ns_max);
        }
        self.feed_ns_max = self.feed_ns_max.max(feed_ns);
        self.anchor = Some(anchor);
        due(anchor, feed_ns, multiple)
    }

    fn anchored(&mut self, feed_ns: u64, host: Nanos) -> Anchor {
        self.feed_ns_max = feed_ns;
        Anchor { feed_ns, host }
    }

    /// The first event of another round is due when the last one of the round before was, or now.
    fn restarted(&mut self, anchor: Anchor, feed_ns: u64, now: Nanos, multiple: f64) -> Anchor {
        let last = due(anchor, self.feed_ns_max, multiple);
        self.anchored(feed_ns, last.max(now))
    }

    /// The feed starts again, or from another place: the next event is due at once.
    pub const fn restart(&mut self) {
        self.anchor = None;
        self.feed_ns_max = 0;
    }
}

fn due(anchor: Anchor, feed_ns: u64, multiple: f64) -> Nanos {
    let elapsed_ns = feed_ns.saturating_sub(anchor.feed_ns);
    // Exact for 104 days of feed time; afterwards within nanoseconds.
    let host_ns = if multiple == 1.0 { elapsed_ns } else { (elapsed_ns as f64 / multiple) as u64 };
    Nanos(anchor.host.get().saturating_add(host_ns))
}
