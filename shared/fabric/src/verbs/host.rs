//! The conductor's side: opens the device, and prepares sessions.

use std::net::IpAddr;
use std::sync::OnceLock;

use tapecast_core::Session;
use tapecast_core::session::Terms;
use tapecast_ring::cell::CELL_BYTES;
use tapecast_telemetry::LatencyBuckets;
use tapecast_wire::attach::Policy;
use tapecast_wire::rdma::{RdmaAnswer, RdmaOffer, RemoteMemory, RetryBudget};

use super::completion::CompletionQueue;
use super::config::VerbsConfig;
use super::device::{Port, ProtectionDomain, address_of};
use super::error::VerbsError;
use super::events::{AsyncEvents, Event};
use super::memlock;
use super::memory::{Access, MemoryRegion};
use super::network::{LineSize, VerbsLine, VerbsNetwork};
use super::queue_pair::{Depths, QueuePair, check_sessions, random_packet_sequence};
use super::send_queue::INLINE_BYTES;
use super::{VerbsFabric, VerbsMonitor, VerbsSession};
use crate::pool::Pool;
use crate::rings::{NetworkFigures, RingFabric, RingSession, RingSettings};
use crate::{Handover, Host, HostError, NetworkStats, Prepared, Wish};

/// A fabric's two users.
#[derive(Debug)]
pub struct Verbs {
    /// For the conductor.
    pub host: VerbsHost,
    /// For the sender.
    pub fabric: VerbsFabric,
}

/// The conductor's side of the RDMA fabric.
#[derive(Debug)]
pub struct VerbsHost {
    config: VerbsConfig,
    port: Port,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    pool: MemoryRegion,
    /// Pieces that one work request gathers.
    gather: u32,
    events: AsyncEvents,
    figures: NetworkFigures,
    failure: OnceLock<String>,
}

impl VerbsHost {
    /// Opens the device, registers the pool and makes the completion queue.
    ///
    /// # Errors
    /// [`VerbsError`], whose text says what to check.
    pub fn create(config: &VerbsConfig, pool: Pool) -> Result<Verbs, VerbsError> {
        config.check()?;
        let port = Port::open(&config.device)?;
        let domain = ProtectionDomain::new(&port.context)?;
        check_sessions(&domain, config.sessions_max)?;
        let cells = std::iter::repeat_n(CELL_BYTES as u64, config.sessions_max);
        memlock::check(cells.chain([pool.extent().1 as u64]))?;
        let completions = CompletionQueue::new(&port.context, config.completion_depth, None)?;
        let registered = MemoryRegion::register_pool(&domain, &pool)?;
        let settings = RingSettings {
            epoch: config.epoch,
            instruments: config.instruments,
            levels_per_side: config.levels_per_side,
            allow_lossless: config.allow_lossless,
        };
        let network = VerbsNetwork::new(completions.clone());
        let fabric = RingFabric::new(network, &settings, pool);
        let figures = fabric.figures();
        let gather = config.gather.min(port.context.limits().max_sge).max(1);
        let events = AsyncEvents::new(&port.context);
        let config = config.clone();
        let host = Self {
            config,
            port,
            domain,
            completions,
            pool: registered,
            gather,
            events,
            figures,
            failure: OnceLock::new(),
        };
        Ok(Verbs { host, fabric })
    }

    /// Device, port, address and MTU in use, for a log line.
    #[must_use]
    pub fn describe(&self) -> String {
        let (name, mtu) = (self.port.context.name(), self.port.active_mtu.bytes());
        let address = address_of(self.port.gid);
        format!("{name} port {} address {address} path MTU {mtu}", self.port.number)
    }

    /// Name of the device.
    #[must_use]
    pub fn device_name(&self) -> &str {
        self.port.context.name()
    }

    /// Number of its port, from 1.
    #[must_use]
    pub const fn port_number(&self) -> u8 {
        self.port.number
    }

    fn check(&self, offer: &RdmaOffer) -> Result<(), String> {
        offer.check().map_err(|error| format!("the RDMA parameters cannot be: {error}"))?;
        let VerbsConfig { ring_bytes_max, receive_depth_max, .. } = self.config;
        if offer.ring_bytes > ring_bytes_max {
            let asked = offer.ring_bytes;
            return Err(format!(
                "a ring of {asked} bytes is more than this publisher serves: bring one of at most \
                 {ring_bytes_max}"
            ));
        }
        if offer.receive_depth > receive_depth_max {
            let asked = offer.receive_depth;
            return Err(format!(
                "{asked} receives are more than this publisher serves: post at most \
                 {receive_depth_max}"
            ));
        }
        let (here, there) = (address_of(self.port.gid), address_of(offer.peer.gid));
        if !is_one_host(there) {
            return Err(format!("{there} is no address of one host"));
        }
        if here.is_ipv4() != there.is_ipv4() {
            return Err(format!("this publisher is at {here}, which {there} cannot talk to"));
        }
        Ok(())
    }

    fn connect(
        &self,
        offer: &RdmaOffer,
    ) -> Result<(QueuePair, MemoryRegion, RdmaAnswer), VerbsError> {
        let cell = MemoryRegion::allocate(&self.domain, CELL_BYTES, false, Access::RemoteWrite)?;
        let depths = Depths {
            send: self.config.send_depth,
            receive: 0,
            send_sge: self.gather,
            inline_bytes: INLINE_BYTES as u32,
        };
        let queue = &self.completions;
        let queue_pair = QueuePair::create(&self.domain, queue, queue, depths)?;
        let packet_sequence = random_packet_sequence();
        let route = &self.config.route;
        queue_pair.to_init(&self.port, Access::RemoteWrite)?;
        queue_pair.to_rtr(&offer.peer, route, &self.port)?;
        queue_pair.to_rts(packet_sequence, route)?;
        let answer = RdmaAnswer {
            peer: queue_pair.address(&self.port, packet_sequence),
            cell: RemoteMemory { address: cell.address(), key: cell.rkey() },
            instruments: self.config.instruments as u32,
            retries: RetryBudget { timeout: route.timeout, retry_count: route.retry_count },
        };
        Ok((queue_pair, cell, answer))
    }
}

/// Whether an address can be a subscriber's at all.
const fn is_one_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast)
}

impl Host for VerbsHost {
    type Session = VerbsSession;
    type Monitor = VerbsMonitor;

    fn prepare_session(
        &self,
        wish: &Wish<'_>,
    ) -> Result<Prepared<VerbsSession, VerbsMonitor>, HostError> {
        let Some(offer) = wish.offer else {
            let text = "this publisher serves RDMA: attach with its address (--connect HOST:PORT)";
            return Err(HostError::Unsuitable(text.to_owned()));
        };
        self.check(offer).map_err(HostError::Unsuitable)?;
        let window = self.config.window(offer.ring_bytes, offer.receive_depth, self.gather);
        let window = window.map_err(|error| HostError::Unsuitable(error.to_string()))?;
        let silence_limit = match wish.policy {
            Policy::Conflate | Policy::Disconnect => None,
            Policy::Lossless => Some(self.config.lossless_silence_limit),
        };
        let Wish { policy, min_interval, .. } = *wish;
        let terms = Terms { policy, window, silence_limit, min_interval };
        let connected = self.connect(offer);
        let (queue_pair, cell, answer) =
            connected.map_err(|error| HostError::Resources(error.to_string()))?;
        let size = LineSize {
            depth: self.config.send_depth,
            gather: self.gather,
            signal_every: self.config.signal_every,
        };
        let line = VerbsLine::new(queue_pair, self.pool.clone(), &cell, offer, size);
        let session = Session::new(terms, wish.interest, self.config.instruments);
        let session = RingSession::new(Box::new(session), line, wish.symbols);
        let monitor = session.monitor();
        Ok(Prepared { session, monitor, handover: Handover::Connect(answer) })
    }

    fn take_events(&self) -> Vec<String> {
        let events: Vec<_> = std::iter::from_fn(|| self.events.next().ok().flatten()).collect();
        for event in events.iter().filter(|event| event.is_fatal()) {
            // The first one is the cause.
            let _first = self.failure.set(event.to_string());
        }
        events.iter().map(Event::to_string).collect()
    }

    fn network_stats(&self) -> Option<NetworkStats> {
        Some(NetworkStats {
            completion_depth: u64::from(self.config.completion_depth),
            send_depth: u64::from(self.config.send_depth),
            ..self.figures.load()
        })
    }

    fn post_to_completion(&self) -> LatencyBuckets {
        self.figures.post_to_completion()
    }

    fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }
}
