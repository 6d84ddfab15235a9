//! The subscriber's end of a fabric.

use std::time::Duration;

use tapecast_core::account::{Account, Totals};
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos, Position, WireError};

use crate::{Delivery, LatencyReport, Timing};

/// The subscriber's end of a fabric: one session.
///
/// An endpoint finds records and knows what a hole between them means on its fabric; what is
/// wanted, new or stale it asks the [`Account`]. Applications use it through [`crate::Receiver`].
pub trait Endpoint {
    /// Life of the publisher.
    fn epoch(&self) -> Epoch;

    /// Most instruments that the directory can hold.
    fn instrument_capacity(&self) -> usize;

    /// Instruments in the directory now. Never shrinks.
    fn instrument_count(&self) -> usize;

    /// A directory entry. `None` when the directory does not have it, or it cannot be read.
    fn instrument(&self, id: InstrumentId) -> Option<Instrument>;

    /// Whether the publisher goes on publishing.
    fn state(&self) -> ChannelState;

    /// The publisher's clock when it last showed life (at least every 100 ms).
    fn heartbeat(&self) -> Nanos;

    /// Since when the publisher's feed is silent, by the publisher's clock: its source is connected
    /// and sends nothing. `None` while it is not. Costs loads only.
    fn feed_silent_since(&self) -> Option<Nanos>;

    /// Times that this session was lapped and recovered.
    fn laps(&self) -> u64;

    /// Hands at most `limit` records that `account` wants to `deliver`, oldest first, and returns
    /// how many. The work is bounded also when nothing is wanted, so zero does not mean that
    /// there is nothing more: [`Endpoint::is_ready`] says that.
    ///
    /// # Errors
    /// [`PollError`]; records delivered before it stay counted.
    fn poll<F: FnMut(Delivery<'_>)>(
        &mut self,
        account: &mut Account,
        limit: usize,
        deliver: F,
    ) -> Result<usize, PollError>;

    /// Whether a poll would find something to do.
    fn is_ready(&self) -> bool;

    /// Asks for the newest snapshot of an instrument that the account wants. It is delivered, also
    /// when it is the one that was delivered last.
    fn request_image(&mut self, id: InstrumentId);

    /// Whether records of an instrument that was dropped and is watched again may still be on their
    /// way, and come before the answer to the request.
    fn has_trail(&self) -> bool {
        false
    }

    /// Says that an instrument is not wanted any more, after the account has dropped it: where the
    /// publisher decides what is sent, nothing more of it is.
    fn withdraw(&mut self, id: InstrumentId);

    /// Tells the publisher the session's counts. Called after each poll that did something.
    fn settle(&mut self, totals: &Totals);

    /// Sets what the publisher is told about latency in full, with the next [`Endpoint::report`].
    fn show_timing(&mut self, timing: &Timing);

    /// Tells the publisher that the subscriber lives, and the latency that it sees.
    fn report(&mut self, now: Nanos, latency: LatencyReport);

    /// Waits until a poll would find something, or for `timeout`. Returns whether it would.
    ///
    /// It also returns when something else has been announced since the last wait: that the channel
    /// is closed, or that the feed is silent or heard again. Look at [`Endpoint::state`] and
    /// [`Endpoint::feed_silent_since`] after each wait.
    ///
    /// # Errors
    /// [`WaitError`] when the system refuses to wait.
    fn wait(&mut self, timeout: Duration) -> Result<bool, WaitError>;
}

/// Whether the publisher goes on publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// Yes.
    Running,
    /// It is about to stop; what it has published can still be polled.
    Closing,
    /// It has stopped; nothing follows.
    Closed,
}

/// How a subscriber waits for the next snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitStrategy {
    /// Look again at once, and burn a core: lowest latency.
    Spin,
    /// Look again after letting other threads run.
    Yield,
    /// Sleep in the kernel until woken: idle costs nothing.
    #[default]
    Block,
    /// As `Block`, but on a descriptor that epoll and async runtimes can watch.
    Fd,
}

/// A poll met something that it cannot deliver. The session is of no further use: attach again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PollError {
    /// A record that does not parse.
    #[error("malformed record at position {position}: {source}; attach again")]
    Malformed {
        /// Where it is.
        position: Position,
        /// What is wrong with it.
        source: WireError,
    },
    /// A record of an instrument that no directory entry can describe.
    #[error(
        "record of instrument {instrument} at position {position}, but the directory holds at \
         most {capacity}; attach again"
    )]
    UnknownInstrument {
        /// Where it is.
        position: Position,
        /// Its instrument.
        instrument: InstrumentId,
        /// Room in the directory.
        capacity: usize,
    },
    /// Memory that holds no record where one must start.
    #[error("the ring holds no record at position {position}; attach again")]
    Corrupt {
        /// Where it is.
        position: Position,
    },
    /// The session asked to be disconnected rather than conflated, and the ring has lapped it.
    #[error(
        "the publisher has written over what was not read at position {position}, and this session \
         shall end rather than leave anything out (policy disconnect): read faster, have the ring \
         made larger, or attach with the policy conflate"
    )]
    Overrun {
        /// Up to where it was read.
        position: Position,
    },
    /// The publisher took this session out, or the connection to it broke. Of a lossless session
    /// over shared memory, what the last poll delivered may have been overwritten meanwhile.
    #[error(
        "the session ended at position {position}: the publisher evicted it, or the connection \
         broke; attach again, and if it was lossless do not use the last batch"
    )]
    Evicted {
        /// Where the batch began.
        position: Position,
    },
}

/// The system refused to wait.
#[derive(Debug, thiserror::Error)]
#[error("cannot wait for snapshots ({strategy:?}): {source}; choose another wait strategy")]
pub struct WaitError {
    /// The strategy in use.
    pub strategy: WaitStrategy,
    /// What the system said.
    pub source: std::io::Error,
}
