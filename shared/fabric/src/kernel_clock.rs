//! What the kernel says of its own clock, as told by whoever disciplines it: ptp4l with phc2sys,
//! chronyd or ntpd.

use std::io;
use std::mem::MaybeUninit;

const NS_PER_US: u64 = 1_000;

/// The state of the wall clock of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelClock {
    /// Whether it is synchronised with another.
    pub synchronised: bool,
    /// How wrong it may be at most, in nanoseconds; grows by itself between two corrections.
    pub max_error_ns: u64,
    /// How wrong it is thought to be, in nanoseconds.
    pub estimated_error_ns: u64,
}

impl KernelClock {
    /// Asks the kernel: one system call, which changes nothing and takes no rights.
    ///
    /// # Errors
    /// When the system refuses, as a sandbox may.
    pub fn read() -> io::Result<Self> {
        let mut timex = MaybeUninit::<libc::timex>::zeroed();
        // SAFETY: the pointer is to writable memory of the size and alignment of a `timex`, which
        // lives through the call; `modes`, its first field, is 0, so that the kernel only fills it.
        let state = unsafe { libc::adjtimex(timex.as_mut_ptr()) };
        if state < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a `timex` is made of integers alone, for which the zeroes it began with, and
        // whatever the kernel has written over them, are valid.
        let timex = unsafe { timex.assume_init() };
        Ok(Self::of(state, &timex))
    }

    /// Errors are in microseconds there, whatever unit the offset has.
    fn of(state: libc::c_int, timex: &libc::timex) -> Self {
        let ns = |us: libc::c_long| u64::try_from(us).unwrap_or(0).saturating_mul(NS_PER_US);
        Self {
            synchronised: state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
            max_error_ns: ns(timex.maxerror),
            estimated_error_ns: ns(timex.esterror),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timex(status: libc::c_int, maxerror: i64, esterror: i64) -> libc::timex {
        // SAFETY: a `timex` is made of integers alone, for which zeroes are valid.
        let zeroed = unsafe { MaybeUninit::<libc::timex>::zeroed().assume_init() };
        libc::timex { status, maxerror, esterror, ..zeroed }
    }

    #[test]
    fn errors_are_told_in_nanoseconds() {
        let clock = KernelClock::of(libc::TIME_OK, &timex(libc::STA_PLL, 1_500, 12));
        let expected =
            KernelClock { synchronised: true, max_error_ns: 1_500_000, estimated_error_ns: 12_000 };
        assert_eq!(clock, expected);
    }

    #[test]
    fn a_clock_that_nobody_disciplines_is_not_synchronised() {
        for (state, status) in
            [(libc::TIME_ERROR, libc::STA_PLL), (libc::TIME_OK, libc::STA_UNSYNC)]
        {
            assert!(!KernelClock::of(state, &timex(status, 0, 0)).synchronised);
        }
    }

    #[test]
    fn the_kernel_tells_it_or_refuses() {
        match KernelClock::read() {
            Ok(clock) => assert!(clock.max_error_ns <= 16_000_000_000, "the most there is"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
