//! Feed inputs behind one trait.
//!
//! A source decodes; it keeps no book, and it publishes nothing.

pub mod dbn;
mod event;
mod input_file;
pub mod itch;
pub mod itch_encode;
pub mod journal;
pub mod pacing;
pub mod progress;
pub mod synthetic;

pub use event::{EventSink, FeedStamp, MarketEvent, Side};
pub use input_file::InputFile;

use tapecast_wire::Instrument;

/// What one call of [`Source::advance`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Messages were decoded up to an event end. `feed_time_ns` is the feed's clock there
    /// (Unix nanoseconds), for pacing.
    Event {
        /// Feed clock at the event end.
        feed_time_ns: u64,
    },
    /// Nothing more will come.
    End,
}

/// Counts of what a source has read, for progress bars and reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Messages by type, as the feed names them, e.g. `("A", 4997)`. Sums to `messages`.
    pub by_type: Vec<(String, u64)>,
    /// Messages read.
    pub messages: u64,
    /// Messages of a type that this release does not know; skipped.
    pub unknown: u64,
    /// Bytes read of the (compressed) input.
    pub bytes_read: u64,
    /// Size of the input, if it has one.
    pub bytes_total: Option<u64>,
}

/// A feed input.
pub trait Source: Send {
    /// What can go wrong while reading.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Instruments known so far, by id; when the source was just opened, those that its directory
    /// lists. [`EventSink::on_instrument`] tells of later ones and of changes, and may not repeat
    /// these.
    fn instruments(&self) -> &[Instrument];

    /// Decodes up to the next event end.
    ///
    /// # Errors
    /// When the input is damaged. What was good before the damage has been delivered.
    fn advance<S: EventSink>(&mut self, sink: &mut S) -> Result<Progress, Self::Error>;

    /// Counts so far.
    fn stats(&self) -> SourceStats;

    /// Types of messages that such an input has, as [`SourceStats::by_type`] names them; others may
    /// come all the same.
    fn message_types(&self) -> Vec<String> {
        Vec::new()
    }

    /// Where the input was cut, if it was and the source was told to accept that: the byte offset
    /// (unpacked) of the first thing that is not whole.
    fn truncated_at(&self) -> Option<u64> {
        None
    }

    /// Starts from the beginning again (looping).
    ///
    /// # Errors
    /// When the input cannot be opened again.
    fn rewind(&mut self) -> Result<(), Self::Error>;
}
