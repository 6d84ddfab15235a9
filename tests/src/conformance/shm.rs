//! Shared memory under test: publisher and subscribers in one process, over the real descriptors.

use std::time::Duration;

use tapecast_fabric::park::Parker;
use tapecast_fabric::pool::Pool;
use tapecast_fabric::shm::{
    SessionDescriptors, Shm, ShmConfig, ShmEndpoint, ShmFabric, ShmHost, ShmSession, Waker,
};
use tapecast_fabric::{WaitStrategy, Wish};
use tapecast_wire::Epoch;

use super::{Harness, Settings};

/// Both ends of a shared-memory region.
#[derive(Debug)]
pub struct ShmHarness {
    host: ShmHost,
    fabric: ShmFabric,
    /// Kept, so that the region has all its users; nobody sleeps here.
    _waker: Waker,
    _parker: Parker,
}

impl Harness for ShmHarness {
    type Fabric = ShmFabric;
    type Ticket = SessionDescriptors;
    type Endpoint = ShmEndpoint;

    fn start(settings: &Settings, _pool: &Pool) -> Self {
        let mut config = ShmConfig::new(Epoch(7));
        config.ring_bytes = settings.ring_bytes;
        config.instruments = settings.instruments;
        config.allow_lossless = true;
        let parker = Parker::new();
        let Shm { host, fabric, waker, .. } = ShmHost::create(&config, parker.ringer()).unwrap();
        Self { host, fabric, _waker: waker, _parker: parker }
    }

    fn fabric(&self) -> &ShmFabric {
        &self.fabric
    }

    fn fabric_mut(&mut self) -> &mut ShmFabric {
        &mut self.fabric
    }

    fn prepare(&mut self, wish: &Wish<'_>) -> (ShmSession, SessionDescriptors) {
        self.host.prepare(wish.policy).unwrap()
    }

    fn open(&mut self, ticket: SessionDescriptors, wish: &Wish<'_>) -> ShmEndpoint {
        let opened = ShmEndpoint::open(ticket.into_vec(), wish.policy, WaitStrategy::Yield);
        opened.unwrap().with_min_interval(Duration::from_nanos(wish.min_interval.0))
    }
}
