//! The simulated network under test.

use tapecast_core::session::Eviction;
use tapecast_fabric::Wish;
use tapecast_fabric::pool::Pool;
use tapecast_fabric::sim::{
    Sim, SimConfig, SimEndpoint, SimFabric, SimHost, SimSession, SimTicket,
};
use tapecast_wire::{Epoch, SessionId};

use super::{Harness, Settings};

/// Both ends of a simulated network.
#[derive(Debug)]
pub struct SimHarness {
    host: SimHost,
    fabric: SimFabric,
}

impl Harness for SimHarness {
    type Fabric = SimFabric;
    type Ticket = SimTicket;
    type Endpoint = SimEndpoint;

    fn start(settings: &Settings, pool: &Pool) -> Self {
        let mut config = SimConfig::new(Epoch(7));
        config.seed = settings.seed;
        config.instruments = settings.instruments;
        config.ring_bytes = settings.ring_bytes;
        config.allow_lossless = true;
        let Sim { host, fabric } = SimHost::create(&config, pool.clone()).unwrap();
        Self { host, fabric }
    }

    fn fabric(&self) -> &SimFabric {
        self.fabric.assert_invariants();
        &self.fabric
    }

    fn fabric_mut(&mut self) -> &mut SimFabric {
        &mut self.fabric
    }

    fn prepare(&mut self, wish: &Wish<'_>) -> (SimSession, SimTicket) {
        self.host.prepare_for(wish).unwrap()
    }

    fn open(&mut self, ticket: SimTicket, _wish: &Wish<'_>) -> SimEndpoint {
        SimEndpoint::open(ticket).unwrap()
    }

    fn eviction(&self, session: SessionId) -> Option<Eviction> {
        self.fabric.evicted().find(|(id, _)| *id == session).map(|(_, reason)| reason)
    }
}
