//! A subscription as an asynchronous stream on tokio.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use futures_core::Stream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::error::PollError;
use crate::owned::OwnedSnapshot;
use crate::subscriber::Subscriber;

/// Why a stream could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The subscription has no descriptor to wait on.
    #[error("a stream needs a descriptor: choose .wait(WaitStrategy::Fd) in the builder")]
    NoDescriptor,
    /// The runtime refused to watch the descriptor.
    #[error("cannot register with the runtime: {0}; call this inside a tokio runtime with I/O")]
    Register(#[from] io::Error),
}

/// Why a stream yields no more snapshots for the moment, or for good.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamItemError {
    /// See [`PollError`]. After [`PollError::Ended`] the stream is over.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// The runtime cannot watch the descriptor any more; the stream is over.
    #[error("the runtime cannot watch the subscription: {0}")]
    Runtime(#[from] io::Error),
}

/// Snapshots of one subscription, each owned by who takes it. Made by [`Subscriber::into_stream`].
///
/// The stream ends after [`crate::EndReason::EndOfSource`]; any other end is an error first.
#[derive(Debug)]
pub struct SnapshotStream {
    subscriber: Subscriber,
    readiness: AsyncFd<Descriptor>,
    /// Taken by one poll, not yet asked for.
    taken: VecDeque<OwnedSnapshot>,
    over: bool,
}

#[derive(Debug)]
struct Descriptor(OwnedFd);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Subscriber {
    /// Turns the subscription into a stream. It needs [`crate::WaitStrategy::Fd`] and must be
    /// called
    /// inside a tokio runtime.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn into_stream(self) -> Result<SnapshotStream, StreamError> {
        let descriptor = self.as_fd().ok_or(StreamError::NoDescriptor)?;
        let copy = Descriptor(descriptor.as_fd().try_clone_to_owned()?);
        let readiness = watch(copy)?;
        Ok(SnapshotStream { subscriber: self, readiness, taken: VecDeque::new(), over: false })
    }
}

#[expect(
    deprecated,
    reason = "the successor has a contract that this crate may not sign, for the sake of types whose descriptor changes or \
              is closed early; Descriptor owns one descriptor and neither closes nor changes it"
)]
fn watch(descriptor: Descriptor) -> io::Result<AsyncFd<Descriptor>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

impl SnapshotStream {
    /// The subscription, for its state, events and statistics.
    #[must_use]
    pub const fn subscriber(&self) -> &Subscriber {
        &self.subscriber
    }

    /// The subscription, for its events. Snapshots that it is polled for bypass the stream.
    pub const fn subscriber_mut(&mut self) -> &mut Subscriber {
        &mut self.subscriber
    }

    fn end(&mut self, error: StreamItemError) -> Poll<Option<<Self as Stream>::Item>> {
        self.over = true;
        Poll::Ready(Some(Err(error)))
    }
}

impl Stream for SnapshotStream {
    type Item = Result<OwnedSnapshot, StreamItemError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(snapshot) = this.taken.pop_front() {
                return Poll::Ready(Some(Ok(snapshot)));
            }
            if this.over {
                return Poll::Ready(None);
            }
            let taken = &mut this.taken;
            match this.subscriber.poll(|snapshot| taken.push_back(snapshot.to_owned())) {
                Ok(0) => match ready!(this.readiness.poll_read_ready(cx)) {
                    Ok(mut guard) => guard.clear_ready(),
                    Err(error) => return this.end(error.into()),
                },
                Ok(_) => {}
                Err(PollError::Ended(crate::EndReason::EndOfSource)) => this.over = true,
                Err(error @ PollError::Ended(_)) => return this.end(error.into()),
                Err(error @ PollError::Session(_)) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }
}
