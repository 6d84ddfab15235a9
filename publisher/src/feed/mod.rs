//! The feed thread: source → books → encoder → queue.

mod directory;
mod encoder;
mod figures;
mod gauges;
mod pulse;
mod queue;
mod run;
mod sequencer;
mod suspects;

pub(crate) use directory::near_symbols;
pub use directory::{Directory, UnknownSymbols};
pub use encoder::{EncodeError, Encoder};
pub use figures::{FeedFigures, FeedReading};
pub use gauges::{FeedGauges, FeedGaugesReading};
pub use pulse::{FeedPulse, InputBeats, InputPulse, SilentSince};
pub use queue::{FeedQueue, Patience, QUEUE_ITEMS, QueueLength, StopFlag, Stopped};
pub use run::{Feed, FeedEnd, FeedOutcome, Playback};
pub use sequencer::{Place, Sequencer};
