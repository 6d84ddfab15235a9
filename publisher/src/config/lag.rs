//! The section for lags.

use serde::{Deserialize, Serialize};
use tapecast_core::lag::LagLimit;
use tapecast_wire::Nanos;
use tapecast_wire::limits::MAX_RING_BYTES;

use super::value::Whole;
use super::written::Size;
use crate::conductor::LagSettings;

/// Longest lag that can be configured: a day.
const LAG_MS_MAX: u64 = 86_400_000;

/// `[lag]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LagConfig {
    /// Bytes beyond which a session counts as lagging; 0 for any number.
    pub soft_bytes: Size<0, MAX_RING_BYTES>,
    /// Milliseconds beyond which it does; 0 for any time.
    pub soft_ms: Whole<0, LAG_MS_MAX>,
    /// Bytes beyond which a session with the policy disconnect is disconnected; 0 for any number.
    pub hard_bytes: Size<0, MAX_RING_BYTES>,
    /// Milliseconds beyond which it is; 0 for any time.
    pub hard_ms: Whole<0, LAG_MS_MAX>,
}

impl Default for LagConfig {
    fn default() -> Self {
        Self {
            soft_bytes: Size::new(1 << 20),
            soft_ms: Whole::new(200),
            hard_bytes: Size::new(0),
            hard_ms: Whole::new(5000),
        }
    }
}

impl LagConfig {
    /// As the conductor takes it.
    pub(crate) const fn settings(&self) -> LagSettings {
        LagSettings {
            soft: limit(self.soft_bytes, self.soft_ms),
            hard: limit(self.hard_bytes, self.hard_ms),
        }
    }
}

const fn limit(bytes: Size<0, MAX_RING_BYTES>, ms: Whole<0, LAG_MS_MAX>) -> LagLimit {
    LagLimit { bytes: bytes.get(), time: Nanos(ms.get() * 1_000_000) }
}
