//! Depths of queues, size of pool and rings, and the memory that they take.

use serde::Serialize;
use tapecast_wire::limits::{MAX_RING_BYTES, PAGE_BYTES, POOL_PAGES, RECORD_ALIGN_BYTES};
use tapecast_wire::rdma::{CONTROL_BLOCK_BYTES, MAX_RECEIVE_DEPTH, MIN_RDMA_RING_BYTES};

use crate::config::RdmaConfig;

/// Ring that a subscriber brings unless it is told otherwise, in bytes.
pub const SUBSCRIBER_RING_BYTES: u64 = 1 << 20;
/// Receives that a subscriber keeps posted unless it is told otherwise.
pub const SUBSCRIBER_RECEIVES: u32 = 256;

/// Bytes of a completion, as mlx5 lays it out.
const COMPLETION_BYTES: u64 = 64;
/// Bytes of a work request before its gather list, and of each piece in it, as mlx5 lays it out.
const REQUEST_BYTES: u64 = 32;
const PIECE_BYTES: u64 = 16;
/// Unit of a send queue, as mlx5 lays it out.
const REQUEST_UNIT_BYTES: u64 = 64;

/// What has to be carried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Subscribers.
    pub subscribers: u32,
    /// Bytes of a snapshot.
    pub payload_bytes: u32,
    /// Snapshots per second to each subscriber.
    pub snapshots_per_s: f64,
    /// Pause of a subscriber that must cost it nothing, in milliseconds.
    pub pause_ms: f64,
}

/// Everything that has a size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizing {
    /// The publisher's one completion queue.
    pub completion_queue: CompletionQueue,
    /// The send queue of each session.
    pub send_queue: SendQueue,
    /// The publisher's page pool.
    pub pool: Pool,
    /// Each subscriber's ring and receives.
    pub ring: Ring,
    /// Memory that is locked.
    pub memory: Memory,
}

/// The publisher's one completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CompletionQueue {
    /// Depth (`rdma.completion_depth`).
    pub depth: u32,
    /// Completions that can come at once: all that is outstanding, when every subscriber fails.
    pub needed: u32,
    /// Completions that wait at most while nothing fails.
    pub in_health: u32,
}

/// The send queue of each session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SendQueue {
    /// Depth (`rdma.send_depth`).
    pub depth: u32,
    /// Depth that the completion queue allows for these subscribers.
    pub depth_max: u32,
    /// At least each so-manieth work request is signaled (`rdma.signal_every`).
    pub signal_every: u32,
    /// Snapshots that one work request gathers at most (`rdma.gather`).
    pub gather: u32,
    /// Silence of the network that it bridges, one snapshot per work request, in milliseconds.
    pub bridges_ms: f64,
}

/// The publisher's page pool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pool {
    /// Pages.
    pub pages: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Snapshots that share a page.
    pub snapshots_per_page: u32,
    /// Fewest pages, for one full send queue and the work requests before a signaled one.
    pub needed: u32,
    /// Pages that one subscriber keeps in use at most, when its host does not answer.
    pub held_by_one: u32,
    /// Time for which it lasts when nothing completes, in milliseconds.
    pub lasts_ms: f64,
}

/// A subscriber's ring and receives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ring {
    /// Bytes that one snapshot takes up.
    pub slot_bytes: u32,
    /// Ring by default, in bytes.
    pub default_bytes: u64,
    /// Receives by default.
    pub default_receives: u32,
    /// Pause that these bridge without conflating, in milliseconds.
    pub bridges_ms: f64,
    /// Pause that was asked for, in milliseconds.
    pub pause_ms: f64,
    /// Ring for it, in bytes; `None` when it would be larger than any may be.
    pub bytes: Option<u64>,
    /// Receives for it; `None` when they would be more than may be posted.
    pub receives: Option<u32>,
}

/// Memory that is locked, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// The publisher's pool and session cells.
    pub publisher_bytes: u64,
    /// The publisher's queues, about: their layout is the device's.
    pub publisher_queues_bytes: u64,
    /// Each subscriber's ring, control block and cell, with what was asked for.
    pub subscriber_bytes: u64,
}

/// Works out every size, with tapecast's own defaults.
#[must_use]
pub fn size(load: &Load) -> Sizing {
    let rdma = Rdma::defaults();
    let ring = ring(load);
    Sizing {
        completion_queue: completion_queue(load, &rdma),
        send_queue: send_queue(load, &rdma),
        pool: pool(load, &rdma, &ring),
        memory: memory(load, &rdma, &ring),
        ring,
    }
}

/// The defaults of the configuration, which fit.
struct Rdma {
    completion_depth: u32,
    send_depth: u32,
    signal_every: u32,
    gather: u32,
}

impl Rdma {
    fn defaults() -> Self {
        let config = RdmaConfig::default();
        Self {
            completion_depth: config.completion_depth.get() as u32,
            send_depth: config.send_depth.get() as u32,
            signal_every: config.signal_every.get() as u32,
            gather: config.gather.get() as u32,
        }
    }
}

const fn completion_queue(load: &Load, rdma: &Rdma) -> CompletionQueue {
    CompletionQueue {
        depth: rdma.completion_depth,
        needed: load.subscribers * rdma.send_depth,
        in_health: load.subscribers * rdma.send_depth.div_ceil(rdma.signal_every),
    }
}

fn send_queue(load: &Load, rdma: &Rdma) -> SendQueue {
    SendQueue {
        depth: rdma.send_depth,
        depth_max: rdma.completion_depth / load.subscribers.max(1),
        signal_every: rdma.signal_every,
        gather: rdma.gather,
        bridges_ms: f64::from(rdma.send_depth) * 1e3 / load.snapshots_per_s,
    }
}

/// Bytes that a snapshot takes up in a page and in a ring.
#[must_use]
pub const fn slot_bytes(payload_bytes: u32) -> u32 {
    payload_bytes.next_multiple_of(RECORD_ALIGN_BYTES as u32)
}

fn pool(load: &Load, rdma: &Rdma, ring: &Ring) -> Pool {
    let (pages, page_bytes) = (POOL_PAGES as u32, PAGE_BYTES as u32);
    let snapshots_per_page = (page_bytes / ring.slot_bytes).max(1);
    let in_ring = (ring.default_bytes / u64::from(ring.slot_bytes)) as u32;
    let held = (rdma.send_depth * rdma.gather).min(in_ring);
    Pool {
        pages,
        page_bytes,
        snapshots_per_page,
        needed: (rdma.send_depth + rdma.signal_every).div_ceil(snapshots_per_page),
        // What is held may begin inside a page.
        held_by_one: (held.div_ceil(snapshots_per_page) + 1).min(pages),
        lasts_ms: f64::from(pages * snapshots_per_page) * 1e3 / load.snapshots_per_s,
    }
}

fn ring(load: &Load) -> Ring {
    let slot_bytes = slot_bytes(load.payload_bytes);
    let per_ms = load.snapshots_per_s / 1e3;
    let snapshots = (SUBSCRIBER_RING_BYTES / u64::from(slot_bytes)) as f64;
    let paused = (load.pause_ms * per_ms).ceil();
    let bytes = (paused as u64).saturating_mul(u64::from(slot_bytes));
    let bytes = bytes.max(MIN_RDMA_RING_BYTES).checked_next_power_of_two();
    Ring {
        slot_bytes,
        default_bytes: SUBSCRIBER_RING_BYTES,
        default_receives: SUBSCRIBER_RECEIVES,
        bridges_ms: snapshots.min(f64::from(SUBSCRIBER_RECEIVES)) / per_ms,
        pause_ms: load.pause_ms,
        bytes: bytes.filter(|bytes| *bytes <= MAX_RING_BYTES),
        receives: (paused <= f64::from(MAX_RECEIVE_DEPTH)).then_some((paused as u32).max(1)),
    }
}

fn memory(load: &Load, rdma: &Rdma, ring: &Ring) -> Memory {
    let subscribers = u64::from(load.subscribers);
    let page_bytes = PAGE_BYTES as u64;
    let request =
        (REQUEST_BYTES + PIECE_BYTES * u64::from(rdma.gather)).next_multiple_of(REQUEST_UNIT_BYTES);
    let send_queue = (u64::from(rdma.send_depth) * request).next_power_of_two();
    let completions = u64::from(rdma.completion_depth) * COMPLETION_BYTES;
    let ring_bytes = ring.bytes.unwrap_or(MAX_RING_BYTES).max(ring.default_bytes);
    Memory {
        publisher_bytes: POOL_PAGES as u64 * page_bytes + subscribers * page_bytes,
        publisher_queues_bytes: subscribers * send_queue + completions,
        subscriber_bytes: ring_bytes
            + CONTROL_BLOCK_BYTES.next_multiple_of(page_bytes)
            + page_bytes,
    }
}

#[cfg(all(test, feature = "verbs"))]
mod tests {
    use tapecast_fabric::verbs::EndpointConfig;

    use super::*;

    #[test]
    fn the_subscribers_defaults_are_those_of_the_fabric() {
        let endpoint = EndpointConfig::new();
        assert_eq!(endpoint.ring_bytes, SUBSCRIBER_RING_BYTES);
        assert_eq!(endpoint.receive_depth, SUBSCRIBER_RECEIVES);
    }
}
