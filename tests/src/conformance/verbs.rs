//! RDMA under test: both ends in one process, over whatever device there is.

use std::io::{self, Write};
use std::sync::Once;

use tapecast_core::session::Eviction;
use tapecast_fabric::pool::Pool;
use tapecast_fabric::verbs::{
    Connected, EndpointConfig, Offered, Verbs, VerbsConfig, VerbsEndpoint, VerbsFabric, VerbsHost,
    VerbsSession,
};
use tapecast_fabric::{Handover, Host, Prepared, Wish};
use tapecast_wire::attach::Policy;
use tapecast_wire::{Epoch, SessionId};

use super::{Harness, Settings};

/// Both ends of an RDMA network.
#[derive(Debug)]
pub struct VerbsHarness {
    // Dropped before the host: the sender goes first, as it does in the daemon.
    fabric: VerbsFabric,
    host: VerbsHost,
    ring_bytes: u64,
}

/// The epoch of every harness.
const EPOCH: Epoch = Epoch(7);
/// Acknowledgement timeout of 1.07 s: an emulated machine may stand still for longer than a real
/// one, and no test here is about a peer that is gone.
const PATIENT: u8 = 18;

impl VerbsHarness {
    fn endpoint(&self, policy: Policy) -> Offered {
        let mut config = EndpointConfig::new();
        config.ring_bytes = self.ring_bytes;
        config.receive_depth = 64;
        config.policy = policy;
        config.route.timeout = PATIENT;
        Offered::open(&config).unwrap()
    }
}

impl Harness for VerbsHarness {
    type Fabric = VerbsFabric;
    type Ticket = Connected;
    type Endpoint = VerbsEndpoint;

    fn is_available() -> bool {
        let Err(error) = Offered::open(&EndpointConfig::new()) else { return true };
        let required = std::env::var_os("TAPECAST_TEST_NEEDS_DEVICE").is_some();
        assert!(!required, "this machine was to have an RDMA device: {error}");
        // Straight to the stream, so that it is seen although the tests pass.
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            let _unseen = writeln!(io::stderr(), "SKIPPED: no RDMA device to test on: {error}");
        });
        false
    }

    fn start(settings: &Settings, pool: &Pool) -> Self {
        let mut config = VerbsConfig::new(EPOCH);
        config.instruments = settings.instruments;
        config.allow_lossless = true;
        config.route.timeout = PATIENT;
        // Time passes by whole milliseconds here, and a subscriber is silent while it is stopped.
        config.route.rnr_retry = 0;
        let Verbs { host, fabric } = VerbsHost::create(&config, pool.clone()).unwrap();
        Self { fabric, host, ring_bytes: settings.ring_bytes }
    }

    fn fabric(&self) -> &VerbsFabric {
        self.fabric.assert_invariants();
        assert_eq!(self.fabric.receiver_not_ready(), 0);
        &self.fabric
    }

    fn fabric_mut(&mut self) -> &mut VerbsFabric {
        &mut self.fabric
    }

    fn prepare(&mut self, wish: &Wish<'_>) -> (VerbsSession, Connected) {
        let offered = self.endpoint(wish.policy);
        let wish = Wish { offer: Some(&offered.offer()), ..*wish };
        let Prepared { session, handover, .. } = self.host.prepare_session(&wish).unwrap();
        let Handover::Connect(answer) = handover else { panic!("{handover:?}") };
        (session, offered.connect(&answer).unwrap())
    }

    fn open(&mut self, ticket: Connected, _wish: &Wish<'_>) -> VerbsEndpoint {
        let id = SessionId(0);
        ticket.start(id, EPOCH).unwrap()
    }

    fn eviction(&self, session: SessionId) -> Option<Eviction> {
        self.fabric.evicted().find(|(id, _)| *id == session).map(|(_, reason)| reason)
    }

    fn in_flight(endpoint: &mut VerbsEndpoint) -> usize {
        endpoint.outstanding()
    }
}
