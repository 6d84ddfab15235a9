//! Depths and sizes follow from the configuration's own defaults.

use tapecast_publisher::config::RdmaConfig;
use tapecast_publisher::plan::sizing::{Load, size};

const LOAD: Load =
    Load { subscribers: 64, payload_bytes: 576, snapshots_per_s: 20_000.0, pause_ms: 10.0 };

#[test]
fn the_completion_queue_has_room_for_everything_that_64_sessions_have_outstanding() {
    let config = RdmaConfig::default();
    let sizing = size(&LOAD);
    let queue = sizing.completion_queue;
    assert_eq!(u64::from(queue.depth), config.completion_depth.get());
    assert_eq!((queue.needed, queue.depth, queue.in_health), (4096, 4096, 256));
    assert_eq!((sizing.send_queue.depth, sizing.send_queue.depth_max), (64, 64));
    let few = size(&Load { subscribers: 16, ..LOAD });
    assert_eq!((few.completion_queue.needed, few.send_queue.depth_max), (1024, 256));
}

#[test]
fn records_take_whole_units_of_64_bytes_and_share_a_page() {
    let at = |payload_bytes| size(&Load { payload_bytes, ..LOAD });
    assert_eq!(at(576).ring.slot_bytes, 576);
    assert_eq!(at(577).ring.slot_bytes, 640);
    assert_eq!(at(576).pool.snapshots_per_page, 7);
    assert_eq!(at(4096).pool.snapshots_per_page, 1);
    assert_eq!(at(4096).pool.needed, 80, "a full send queue of 64 and 16 before a signaled one");
}

#[test]
fn one_subscriber_whose_host_is_silent_cannot_empty_the_pool() {
    for payload_bytes in [64, 256, 576, 1024, 2048, 4096] {
        let pool = size(&Load { payload_bytes, ..LOAD }).pool;
        assert!(pool.held_by_one < pool.pages / 2, "{payload_bytes}: {pool:?}");
        assert!(pool.needed < pool.pages);
    }
    // Its ring of 1 MiB holds 256 full pages; one more is begun.
    assert_eq!(size(&Load { payload_bytes: 4096, ..LOAD }).pool.held_by_one, 257);
}

#[test]
fn a_pause_needs_a_ring_and_receives_for_what_is_published_meanwhile() {
    let ring = size(&LOAD).ring;
    // 200 snapshots of 576 bytes are 115,200 bytes.
    assert_eq!((ring.bytes, ring.receives), (Some(131_072), Some(200)));
    // 256 receives at 20,000 a second are less than what the ring holds.
    assert_eq!(ring.bridges_ms, 12.8);
    let none = size(&Load { pause_ms: 0.0, ..LOAD }).ring;
    assert_eq!((none.bytes, none.receives), (Some(8192), Some(1)));
    let long = size(&Load { pause_ms: 60_000.0, snapshots_per_s: 1e6, ..LOAD }).ring;
    assert_eq!((long.bytes, long.receives), (None, None));
}

#[test]
fn locked_memory_is_the_pool_a_cell_for_each_session_and_the_rings() {
    let memory = size(&LOAD).memory;
    assert_eq!(memory.publisher_bytes, 1024 * 4096 + 64 * 4096);
    assert_eq!(memory.subscriber_bytes, (1 << 20) + 4096 + 4096);
}
