//! The one clock of the publisher.

use rustix::time::{ClockId, clock_gettime};
use tapecast_wire::Nanos;

/// Now, in Unix nanoseconds. Read through the vDSO: no system call where the kernel's clock source
/// allows that (`tsc` on a PC).
#[must_use]
#[inline]
pub fn unix_now() -> Nanos {
    let now = clock_gettime(ClockId::Realtime);
    // A clock before 1970 reads as 1970: times only serve to be shown and subtracted.
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64))
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::unix_now;

    #[test]
    fn it_agrees_with_the_system_clock() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let now = u128::from(unix_now().0);
        let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        assert!((before..=after).contains(&now));
    }
}
