//! Sleeping on the region's wake word, and waking those that do.

use core::num::NonZeroU32;
use core::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};
use tapecast_ring::RegionReader;

/// Wakes everybody, whatever generation they wait on.
const ALL: NonZeroU32 = NonZeroU32::MAX;
const BITS: u32 = u32::BITS;

/// The wake word of a region: its value is the generation of what has been published.
///
/// A reader sleeps on the generation that it has seen, with a bit that says which one that is
/// (modulo 32). So those that already sleep on the present generation can be left asleep while the
/// others are woken.
#[derive(Clone, Debug)]
pub(super) struct WakeWord {
    region: RegionReader,
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awake {
    /// Somebody called.
    Called,
    /// It did not sleep to the end: the generation had changed before, or a signal came.
    Early,
    /// The deadline has passed.
    TimedOut,
}

impl WakeWord {
    pub(super) const fn new(region: RegionReader) -> Self {
        Self { region }
    }

    /// The present generation. What was published up to it is visible after this call.
    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.region.wake()
    }

    /// Sleeps while the generation is `seen`, until called or until `deadline` of the monotonic
    /// clock.
    pub(super) fn sleep(&self, seen: u32, deadline: &Timespec) -> rustix::io::Result<Awake> {
        let bit = bit_of(seen);
        match futex::wait_bitset(self.address(), Flags::empty(), seen, Some(deadline), bit) {
            Ok(()) => Ok(Awake::Called),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Awake::Early),
            Err(Errno::TIMEDOUT) => Ok(Awake::TimedOut),
            Err(errno) => Err(errno),
        }
    }

    /// Wakes at most `count` of those in `sleepers` and returns how many it woke.
    pub(super) fn wake(&self, count: u32, sleepers: Sleepers) -> u32 {
        // The kernel refuses only an address that is not mapped, and this one is.
        let woken = futex::wake_bitset(self.address(), Flags::empty(), count, sleepers.bits);
        woken.map_or(0, |woken| u32::try_from(woken).unwrap_or(u32::MAX))
    }

    fn address(&self) -> &AtomicU32 {
        // SAFETY: the address is aligned and stays mapped as long as `self.region`, which the
        // result borrows. It may be mapped read-only: this module hands it to the kernel and makes
        // no access itself; others access the word only as a 32-bit atomic.
        unsafe { AtomicU32::from_ptr(self.region.wake_address().cast_mut()) }
    }
}

/// Which sleeping readers to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sleepers {
    bits: NonZeroU32,
}

impl Sleepers {
    /// Everybody who has not seen `present`, when everybody who had not seen `served` has been
    /// woken before.
    ///
    /// All who sleep do so on a generation from `served` to `present`. If those are at most 32,
    /// each has a bit of its own and the present one can be left out; else all are woken.
    pub(super) fn before(present: u32, served: u32) -> Self {
        if present.wrapping_sub(served) >= BITS {
            return Self { bits: ALL };
        }
        Self { bits: NonZeroU32::new(!bit_of(present).get()).unwrap_or(ALL) }
    }
}

const fn bit_of(generation: u32) -> NonZeroU32 {
    match NonZeroU32::new(1 << (generation % BITS)) {
        Some(bit) => bit,
        None => ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a reader that sleeps on `seen` would be woken.
    fn woken(sleepers: Sleepers, seen: u32) -> bool {
        sleepers.bits.get() & bit_of(seen).get() != 0
    }

    #[test]
    fn everybody_between_the_served_and_the_present_generation_is_woken_whatever_the_distance() {
        for start in [0, 17, u32::MAX - 40, u32::MAX] {
            for distance in 1..200u32 {
                let present = start.wrapping_add(distance);
                let sleepers = Sleepers::before(present, start);
                for behind in 1..=distance {
                    assert!(woken(sleepers, present.wrapping_sub(behind)), "{start} {distance}");
                }
            }
        }
    }

    #[test]
    fn who_has_seen_the_present_generation_sleeps_on_up_to_31_generations_after_a_wake() {
        for distance in [1, 2, 31] {
            assert!(!woken(Sleepers::before(100 + distance, 100), 100 + distance));
        }
        assert!(woken(Sleepers::before(132, 100), 132), "cannot be told apart from 100");
    }
}
