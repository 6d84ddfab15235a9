//! What kind of day the exchange has.

use std::time::Duration;

use jiff::civil::{Date, date};

use crate::source::itch::MessageError;

/// Most instruments of one exchange.
pub const SYNTHETIC_INSTRUMENTS_MAX: usize = 10_000;

/// When the session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionLength {
    /// After exactly this many messages, those that end the session included.
    Messages(u64),
    /// So long after the open, by the exchange's own clock.
    Duration(Duration),
    /// Never. Memory stays bounded.
    Endless,
}

/// A simulated exchange. The same configuration always gives the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntheticConfig {
    /// Everything random follows from it. Default 1.
    pub seed: u64,
    /// Instruments, `TC0001` and on, 1 ..= [`SYNTHETIC_INSTRUMENTS_MAX`]. The first is the busiest;
    /// activity falls with the rank (Zipf). Default 100.
    pub instruments: usize,
    /// Default: 60 s after the open.
    pub length: SessionLength,
    /// Day of the session, for absolute times. Default 2 January 2025.
    pub date: Date,
    /// Live orders that an instrument tends to, both sides together, 8 ..= 2,000; never more than
    /// twice as many. Default 100.
    pub orders_per_instrument: u32,
    /// Messages per second when the market opens, 1 ..= 1,000,000,000. Default 1,000,000.
    pub burst_rate: u64,
    /// How long the opening burst lasts; afterwards what it has above the steady rate halves in
    /// each such time. Zero for no burst. Default 100 ms.
    pub burst: Duration,
    /// Messages per second in calm trading, 1 ..= 1,000,000,000. Default 20,000.
    pub steady_rate: u64,
    /// Mean time between halts of single instruments; zero for none. Default 2 s.
    pub halt_every: Duration,
    /// Mean time between quiet spells of the whole market; zero for none. Default 5 s.
    pub quiet_every: Duration,
}

impl Default for SyntheticConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            instruments: 100,
            length: SessionLength::Duration(Duration::from_secs(60)),
            date: date(2025, 1, 2),
            orders_per_instrument: 100,
            burst_rate: 1_000_000,
            burst: Duration::from_millis(100),
            steady_rate: 20_000,
            halt_every: Duration::from_secs(2),
            quiet_every: Duration::from_secs(5),
        }
    }
}

/// A configuration that no exchange can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyntheticError {
    /// A number out of its range.
    #[error("synthetic {name} is {value}: choose {min} to {max}")]
    Range {
        /// Setting.
        name: &'static str,
        /// Value found.
        value: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// Too few messages to open and close the session.
    #[error(
        "synthetic length is {messages} messages, but {instruments} instruments need at least \
         {least}: ask for more messages or fewer instruments"
    )]
    TooFewMessages {
        /// Messages asked for.
        messages: u64,
        /// Instruments.
        instruments: usize,
        /// Messages needed.
        least: u64,
    },
    /// A date outside what Unix nanoseconds hold.
    #[error("synthetic date {date} is outside 1970 to 2554: choose a date in between")]
    Date {
        /// Date found.
        date: Date,
    },
    /// A symbol that the exchange does not list.
    #[error("the synthetic exchange has no symbol `{symbol}`: it lists {first} to {last}")]
    UnknownSymbol {
        /// Symbol asked for.
        symbol: String,
        /// First symbol listed.
        first: String,
        /// Last symbol listed.
        last: String,
    },
    /// The decoder refuses what the exchange wrote.
    #[error("the synthetic exchange wrote what the decoder refuses ({0}): please report this")]
    Refused(#[from] MessageError),
}

/// Longest session, in seconds: the exchange's clock is a time of day, and the day ends.
const LENGTH_SECONDS_MAX: u64 = 6 * 3600;
const RATE_MAX: u64 = 1_000_000_000;

impl SyntheticConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// [`SyntheticError`] names the first setting that cannot be.
    pub fn check(&self) -> Result<(), SyntheticError> {
        let instruments = self.instruments as u64;
        let orders = u64::from(self.orders_per_instrument);
        range("instruments", instruments, 1, SYNTHETIC_INSTRUMENTS_MAX as u64)?;
        range("orders_per_instrument", orders, 8, 2_000)?;
        range("burst_rate", self.burst_rate, 1, RATE_MAX)?;
        range("steady_rate", self.steady_rate, 1, RATE_MAX)?;
        range("burst in seconds", self.burst.as_secs(), 0, 3600)?;
        range("halt_every in seconds", self.halt_every.as_secs(), 0, LENGTH_SECONDS_MAX)?;
        range("quiet_every in seconds", self.quiet_every.as_secs(), 0, LENGTH_SECONDS_MAX)?;
        match self.length {
            SessionLength::Messages(messages) if messages < self.least_messages() => {
                Err(SyntheticError::TooFewMessages {
                    messages,
                    instruments: self.instruments,
                    least: self.least_messages(),
                })
            }
            SessionLength::Duration(length) => {
                range("length in seconds", length.as_secs(), 0, LENGTH_SECONDS_MAX)
            }
            _ => Ok(()),
        }
    }

    /// Messages of a session in which nobody trades: three system events before the open, a
    /// directory entry and a status for each instrument, three system events at the end.
    #[must_use]
    pub const fn least_messages(&self) -> u64 {
        6 + 2 * self.instruments as u64
    }

    /// Symbol of the instrument with this rank, from 0.
    #[must_use]
    pub fn symbol(&self, rank: usize) -> String {
        format!("TC{:04}", rank + 1)
    }
}

const fn range(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), SyntheticError> {
    if value < min || value > max {
        return Err(SyntheticError::Range { name, value, min, max });
    }
    Ok(())
}
