//! Sizes and choices of both ends.

use tapecast_core::credit::{WindowSize, WindowSizeError};
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::{
    DEFAULT_LEVELS_PER_SIDE, MAX_INSTRUMENTS, MAX_LEVELS_PER_SIDE, MAX_SUBSCRIBERS,
};
use tapecast_wire::rdma::{MAX_RECEIVE_DEPTH, MIN_RDMA_RING_BYTES};
use tapecast_wire::{Epoch, Nanos};

use super::error::VerbsError;
use super::route::{DeviceChoice, RouteConfig};
use crate::WaitStrategy;

/// Records that one work request can gather.
pub const MAX_GATHER: u32 = 16;

/// What a publisher's RDMA fabric is made from.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Instruments that the directory has room for. Default 1024.
    pub instruments: usize,
    /// Most levels per side of a snapshot. Default 10.
    pub levels_per_side: usize,
    /// Whether lossless sessions may attach. Default no.
    pub allow_lossless: bool,
    /// Silence after which a lossless session is evicted. Default 10 s.
    pub lossless_silence_limit: Nanos,
    /// Device, port and address to use.
    pub device: DeviceChoice,
    /// How packets travel.
    pub route: RouteConfig,
    /// Sessions at once. Default and most 64.
    pub sessions_max: usize,
    /// Work requests that may be outstanding for each session. Default 64.
    pub send_depth: u32,
    /// Depth of the one completion queue. A queue pair in error flushes everything outstanding, so
    /// this is at least `sessions_max * send_depth`. Default 4096.
    pub completion_depth: u32,
    /// At least each so-manieth work request is signaled. Default 16, at most half the send depth.
    pub signal_every: u32,
    /// Records that one work request gathers at most, 1 to [`MAX_GATHER`]; less where the device
    /// has fewer scatter/gather elements. Default 16.
    pub gather: u32,
    /// Largest ring that a subscriber may bring, in bytes. Default 64 MiB.
    pub ring_bytes_max: u64,
    /// Most receives that a subscriber may keep posted. Default 4096.
    pub receive_depth_max: u32,
}

impl VerbsConfig {
    /// The defaults.
    #[must_use]
    pub fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            instruments: 1024,
            levels_per_side: DEFAULT_LEVELS_PER_SIDE,
            allow_lossless: false,
            lossless_silence_limit: Nanos(10_000_000_000),
            device: DeviceChoice::default(),
            route: RouteConfig::default(),
            sessions_max: MAX_SUBSCRIBERS,
            send_depth: 64,
            completion_depth: 4096,
            signal_every: 16,
            gather: MAX_GATHER,
            ring_bytes_max: 64 << 20,
            receive_depth_max: 4096,
        }
    }

    /// Checks everything that can be checked without a device.
    ///
    /// # Errors
    /// [`VerbsError::Route`], [`VerbsError::CompletionDepth`] or [`VerbsError::Size`].
    pub fn check(&self) -> Result<(), VerbsError> {
        self.route.check()?;
        let sessions = self.sessions_max as u64;
        let needed = sessions.saturating_mul(u64::from(self.send_depth));
        if needed > u64::from(self.completion_depth) {
            return Err(VerbsError::CompletionDepth {
                sessions,
                send_depth: self.send_depth,
                needed,
                completion_depth: self.completion_depth,
            });
        }
        for (name, value, range) in [
            ("sessions_max", sessions, 1..=MAX_SUBSCRIBERS as u64),
            ("signal_every", self.signal_every.into(), 1..=u64::from(self.send_depth / 2)),
            ("gather", self.gather.into(), 1..=u64::from(MAX_GATHER)),
            ("instruments", self.instruments as u64, 1..=MAX_INSTRUMENTS as u64),
            ("levels_per_side", self.levels_per_side as u64, 1..=MAX_LEVELS_PER_SIDE as u64),
        ] {
            if !range.contains(&value) {
                let (min, max) = range.into_inner();
                return Err(VerbsError::Size { name, value, min, max });
            }
        }
        Ok(self.window(MIN_RDMA_RING_BYTES, 1, self.gather).map(|_| ())?)
    }

    pub(super) const fn window(
        &self,
        ring_bytes: u64,
        receive_depth: u32,
        gather: u32,
    ) -> Result<WindowSize, WindowSizeError> {
        WindowSize::new(ring_bytes, receive_depth, self.send_depth, gather)
    }
}

/// What a subscriber's end is made from.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Device, port and address to use.
    pub device: DeviceChoice,
    /// How packets travel. Timeout and retry count are the publisher's, whatever these say.
    pub route: RouteConfig,
    /// Bytes of the ring, a power of two of at least 8 KiB. Default 1 MiB.
    pub ring_bytes: u64,
    /// Receives that are kept posted, 1 to 16384. Default 256.
    pub receive_depth: u32,
    /// Put the ring into 2 MiB pages. Default no.
    pub huge_pages: bool,
    /// What happens when this end does not keep up.
    pub policy: Policy,
    /// How it waits.
    pub wait: WaitStrategy,
}

impl EndpointConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            device: DeviceChoice::default(),
            route: RouteConfig::default(),
            ring_bytes: 1 << 20,
            receive_depth: 256,
            huge_pages: false,
            policy: Policy::Conflate,
            wait: WaitStrategy::Block,
        }
    }

    /// Checks everything that can be checked without a device.
    ///
    /// # Errors
    /// [`VerbsError::Route`], [`VerbsError::Window`] or [`VerbsError::Size`].
    pub fn check(&self) -> Result<(), VerbsError> {
        self.route.check()?;
        WindowSize::new(self.ring_bytes, self.receive_depth, WindowSize::MIN_SEND_DEPTH, 1)?;
        let (value, max) = (u64::from(self.receive_depth), u64::from(MAX_RECEIVE_DEPTH));
        if value > max {
            return Err(VerbsError::Size { name: "receive_depth", value, min: 1, max });
        }
        Ok(())
    }
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together_exactly() {
        let config = VerbsConfig::new(Epoch(1));
        assert_eq!(config.sessions_max * config.send_depth as usize, 4096);
        assert!(config.check().is_ok());
        assert!(EndpointConfig::new().check().is_ok());
    }

    #[test]
    fn a_completion_queue_that_all_flushes_would_overrun_is_refused() {
        let mut config = VerbsConfig::new(Epoch(1));
        config.completion_depth = 4095;
        let error = config.check().unwrap_err();
        assert!(matches!(error, VerbsError::CompletionDepth { needed: 4096, .. }), "{error}");
        config.sessions_max = 63;
        assert!(config.check().is_ok());
    }

    #[test]
    fn sizes_that_cannot_work_are_refused_by_name() {
        let refused = |change: fn(&mut VerbsConfig)| {
            let mut config = VerbsConfig::new(Epoch(1));
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(refused(|config| config.signal_every = 33).contains("signal_every"));
        assert!(refused(|config| config.signal_every = 0).contains("signal_every"));
        assert!(refused(|config| config.gather = 17).contains("gather"));
        assert!(refused(|config| config.sessions_max = 0).contains("sessions_max"));
        assert!(refused(|config| config.route.timeout = 0).contains("timeout"));
        let mut end = EndpointConfig::new();
        end.ring_bytes = 4096;
        assert!(end.check().is_err());
        end = EndpointConfig { receive_depth: MAX_RECEIVE_DEPTH + 1, ..EndpointConfig::new() };
        assert!(end.check().unwrap_err().to_string().contains("receive_depth"));
    }
}
