//! One end of whichever fabric a session came over.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};

use tapecast_core::account::{Account, Totals};
use tapecast_fabric::shm::{RegionLife, ShmEndpoint};
#[cfg(feature = "verbs")]
use tapecast_fabric::verbs::VerbsEndpoint;
use tapecast_fabric::{
    ChannelState, Delivery, Endpoint, LatencyReport, PollError, Timing, WaitError,
};
use tapecast_wire::{Epoch, Instrument, InstrumentId, Nanos};

/// The endpoint of a session. The fabric is chosen once per session; each call costs a predictable
/// branch.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a subscription has one of them, and a box would cost each poll a pointer"
)]
pub(crate) enum AnyEndpoint {
    /// Shared memory.
    Shm(ShmEndpoint),
    /// RDMA.
    #[cfg(feature = "verbs")]
    Verbs(VerbsEndpoint),
    /// None any more: everything was delivered, and memory and connection are given back.
    Spent(Spent),
}

/// What is remembered of an endpoint that was given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    epoch: Epoch,
    capacity: usize,
    count: usize,
    laps: u64,
}

/// The same expression with whichever endpoint it is.
macro_rules! with {
    ($any:expr, $endpoint:ident => $value:expr) => {
        match $any {
            AnyEndpoint::Shm($endpoint) => $value,
            #[cfg(feature = "verbs")]
            AnyEndpoint::Verbs($endpoint) => $value,
            AnyEndpoint::Spent($endpoint) => $value,
        }
    };
}

impl AnyEndpoint {
    /// Of a session that there has never been.
    pub(crate) const fn none() -> Self {
        Self::Spent(Spent { epoch: Epoch(0), capacity: 0, count: 0, laps: 0 })
    }

    /// Gives memory and connection back. Nothing can be delivered after this.
    pub(crate) fn release(&mut self) {
        *self = Self::Spent(Spent {
            epoch: self.epoch(),
            capacity: self.instrument_capacity(),
            count: self.instrument_count(),
            laps: self.laps(),
        });
    }

    /// Becomes readable when something arrives, once it is armed. None after
    /// [`AnyEndpoint::release`].
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Shm(endpoint) => Some(endpoint.as_fd()),
            #[cfg(feature = "verbs")]
            Self::Verbs(endpoint) => Some(endpoint.as_fd()),
            Self::Spent(_) => None,
        }
    }

    /// Whether records are delivered from copies: then a session that the publisher ends spoils
    /// nothing that was delivered before.
    pub(crate) const fn delivers_copies(&self) -> bool {
        match self {
            Self::Shm(_) => false,
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => true,
            Self::Spent(_) => true,
        }
    }

    /// Which shared memory it reads, and of which life of the publisher.
    pub(crate) fn life(&self) -> Option<RegionLife> {
        match self {
            Self::Shm(endpoint) => Some(endpoint.life()),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => None,
            Self::Spent(_) => None,
        }
    }

    /// Whether it reads on in the memory of the session before.
    pub(crate) const fn is_continued(&self) -> bool {
        match self {
            Self::Shm(endpoint) => endpoint.is_continued(),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => false,
            Self::Spent(_) => false,
        }
    }

    /// The session is over: what it still has is due, and nothing follows.
    pub(crate) fn drain(&mut self) {
        if let Self::Shm(endpoint) = self {
            endpoint.drain();
        }
    }

    /// Bytes that are published and not yet polled.
    pub(crate) fn lag_bytes(&self) -> u64 {
        with!(self, endpoint => endpoint.lag_bytes())
    }

    /// When the oldest record that is not polled was published, by the publisher's clock; `None`
    /// when there is none, and when it is gone.
    pub(crate) fn unread_since(&self) -> Option<Nanos> {
        with!(self, endpoint => endpoint.unread_since())
    }

    /// Snapshots of the channel since the one that was polled last; `None` where the ring does not
    /// say.
    pub(crate) fn unread_snapshots(&self) -> Option<u64> {
        match self {
            Self::Shm(endpoint) => Some(endpoint.unread_snapshots()),
            #[cfg(feature = "verbs")]
            Self::Verbs(_) => None,
            Self::Spent(_) => None,
        }
    }

    /// Asks for the descriptor to become readable when something is published or the channel ends.
    /// False when there is something to poll already; then nothing was asked for.
    pub(crate) fn arm(&mut self) -> bool {
        with!(self, endpoint => endpoint.arm())
    }

    /// Takes the arming back and makes the descriptor unreadable.
    pub(crate) fn disarm(&mut self) {
        with!(self, endpoint => endpoint.disarm());
    }
}

impl Endpoint for AnyEndpoint {
    fn epoch(&self) -> Epoch {
        with!(self, endpoint => endpoint.epoch())
    }

    fn instrument_capacity(&self) -> usize {
        with!(self, endpoint => endpoint.instrument_capacity())
    }

    fn instrument_count(&self) -> usize {
        with!(self, endpoint => endpoint.instrument_count())
    }

    fn instrument(&self, id: InstrumentId) -> Option<Instrument> {
        with!(self, endpoint => endpoint.instrument(id))
    }

    fn state(&self) -> ChannelState {
        with!(self, endpoint => endpoint.state())
    }

    fn heartbeat(&self) -> Nanos {
        with!(self, endpoint => endpoint.heartbeat())
    }

    #[inline]
    fn feed_silent_since(&self) -> Option<Nanos> {
        with!(self, endpoint => endpoint.feed_silent_since())
    }

    fn laps(&self) -> u64 {
        with!(self, endpoint => endpoint.laps())
    }

    #[inline]
    fn poll<F: FnMut(Delivery<'_>)>(
        &mut self,
        account: &mut Account,
        limit: usize,
        deliver: F,
    ) -> Result<usize, PollError> {
        with!(self, endpoint => endpoint.poll(account, limit, deliver))
    }

    #[inline]
    fn is_ready(&self) -> bool {
        with!(self, endpoint => endpoint.is_ready())
    }

    fn request_image(&mut self, id: InstrumentId) {
        with!(self, endpoint => endpoint.request_image(id));
    }

    fn has_trail(&self) -> bool {
        with!(self, endpoint => endpoint.has_trail())
    }

    fn withdraw(&mut self, id: InstrumentId) {
        with!(self, endpoint => endpoint.withdraw(id));
    }

    fn settle(&mut self, totals: &Totals) {
        with!(self, endpoint => endpoint.settle(totals));
    }

    fn show_timing(&mut self, timing: &Timing) {
        with!(self, endpoint => endpoint.show_timing(timing));
    }

    fn report(&mut self, now: Nanos, latency: LatencyReport) {
        with!(self, endpoint => endpoint.report(now, latency));
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        with!(self, endpoint => endpoint.wait(timeout))
    }
}

impl Spent {
    const fn lag_bytes(&self) -> u64 {
        0
    }

    const fn unread_since(&self) -> Option<Nanos> {
        None
    }

    const fn arm(&self) -> bool {
        true
    }

    const fn disarm(&self) {}
}

impl Endpoint for Spent {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn instrument_capacity(&self) -> usize {
        self.capacity
    }

    fn instrument_count(&self) -> usize {
        self.count
    }

    fn instrument(&self, _id: InstrumentId) -> Option<Instrument> {
        None
    }

    fn state(&self) -> ChannelState {
        ChannelState::Closed
    }

    fn heartbeat(&self) -> Nanos {
        Nanos(0)
    }

    fn feed_silent_since(&self) -> Option<Nanos> {
        None
    }

    fn laps(&self) -> u64 {
        self.laps
    }

    fn poll<F: FnMut(Delivery<'_>)>(
        &mut self,
        _account: &mut Account,
        _limit: usize,
        _deliver: F,
    ) -> Result<usize, PollError> {
        Ok(0)
    }

    fn is_ready(&self) -> bool {
        false
    }

    fn request_image(&mut self, _id: InstrumentId) {}

    fn withdraw(&mut self, _id: InstrumentId) {}

    fn settle(&mut self, _totals: &Totals) {}

    fn show_timing(&mut self, _timing: &Timing) {}

    fn report(&mut self, _now: Nanos, _latency: LatencyReport) {}

    /// Nothing comes, so the time passes.
    fn wait(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        std::thread::sleep(timeout);
        Ok(false)
    }
}

/// A subscription may move between threads with its endpoint.
const _: () = {
    const fn sends<T: Send>() {}
    sends::<AnyEndpoint>();
};

#[cfg(test)]
mod tests {
    use tapecast_fabric::park::Parker;
    use tapecast_fabric::shm::{Shm, ShmConfig, ShmHost};
    use tapecast_fabric::{Fabric, WaitStrategy};
    use tapecast_wire::attach::Policy;

    use super::*;

    #[test]
    fn an_endpoint_that_was_given_back_is_remembered_but_delivers_nothing() {
        let config = ShmConfig::new(Epoch(7));
        let Shm { host, mut fabric, .. } =
            ShmHost::create(&config, Parker::new().ringer()).unwrap();
        let instrument = Instrument::new(InstrumentId(0), "AAPL", "XTST");
        fabric.upsert_instrument(&instrument.to_wire()).unwrap();
        let (session, descriptors) = host.prepare(Policy::Conflate).unwrap();
        fabric.attach(session).unwrap();
        let endpoint =
            ShmEndpoint::open(descriptors.into_vec(), Policy::Conflate, WaitStrategy::Fd).unwrap();
        let mut endpoint = AnyEndpoint::Shm(endpoint);
        let known = |endpoint: &AnyEndpoint| {
            let (capacity, count) = (endpoint.instrument_capacity(), endpoint.instrument_count());
            (endpoint.epoch(), capacity, count, endpoint.laps())
        };
        let before = known(&endpoint);
        assert_eq!((before.0, before.2), (Epoch(7), 1));
        assert!(endpoint.descriptor().is_some());
        endpoint.release();
        assert_eq!(known(&endpoint), before);
        assert!(endpoint.descriptor().is_none(), "nothing of the session is left to wait on");
        assert!(!endpoint.is_ready() && endpoint.lag_bytes() == 0);
        endpoint.release();
        assert_eq!(known(&endpoint), before);
    }
}
