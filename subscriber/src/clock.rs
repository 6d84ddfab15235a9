//! The clocks, read in one place. None of these calls enters the kernel.

use core::time::Duration;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tapecast_wire::Nanos;

/// Unix time: what the publisher stamps into snapshots.
pub(crate) fn unix_now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Monotonic time to a few milliseconds, for a quarter of the price of an exact one. For deciding
/// whether it is time to look after something.
pub(crate) fn coarse_now() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos.min(999_999_999))
}

/// Monotonic time, exact.
pub(crate) fn now() -> Instant {
    Instant::now()
}
