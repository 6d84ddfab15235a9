//! How long things may take, in turns. Every bound follows from the plan's configuration, and none
//! from what other sessions do.
//!
//! A work request executes at most `E` turns after it was posted and completes at most `C` turns
//! after that; a subscriber that polls in each turn then gives its credit at once, and the
//! publisher sees it in the next turn. While pages are short a session may also be held until
//! something of it is retired. So within a *cycle* of `2 (E + C) + 6` turns an idle window is
//! emptied and filled again, and carries at least `k` records, whatever their sizes: what the ring
//! holds beside the largest padding, the receives, and the send queue's places beside a heartbeat
//! and a padding, each with one record at worst. `n` records that wait in a first-in first-out
//! queue are therefore sent within `ceil(n / k)` cycles; two more are for the one under way and
//! the last delivery.

use tapecast_core::session::DIRECTORY_RECORD_BYTES;
use tapecast_fabric::sim::SimConfig;
use tapecast_wire::limits::{RECORD_ALIGN_BYTES, record_bytes_max};

/// Records of the backlog that a turn sends at most.
const PUMP_LIMIT: u64 = 64;

/// Bounds of one network.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Turns in which an idle window is emptied and filled again.
    pub cycle: u64,
    /// Records that it carries at least.
    pub records: u64,
    /// Records that can wait for one session: directory, initial image, dirty.
    pub backlog: u64,
}

impl Bounds {
    /// The bounds of a configuration.
    #[must_use]
    pub fn of(config: &SimConfig) -> Self {
        let largest = record_bytes_max(config.levels_per_side).max(DIRECTORY_RECORD_BYTES);
        let record_bytes = largest.next_multiple_of(RECORD_ALIGN_BYTES) as u64;
        let ring = (config.ring_bytes - record_bytes) / record_bytes;
        let sends = u64::from(config.send_depth).saturating_sub(2);
        let records = ring.min(u64::from(config.receive_depth)).min(sends).min(PUMP_LIMIT);
        let delays = u64::from(config.execute_ticks_max) + u64::from(config.complete_ticks_max);
        Self {
            cycle: 2 * delays + 6,
            records: records.max(1),
            backlog: 3 * config.instruments as u64,
        }
    }

    /// Turns in which so many records that wait are delivered.
    #[must_use]
    pub const fn turns_for(&self, records: u64) -> u64 {
        self.cycle * (records.div_ceil(self.records) + 2)
    }
}
