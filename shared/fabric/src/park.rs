//! Sleeping and being woken, without a system call when nobody sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;

/// Nothing has happened since the sleeper last looked.
const QUIET: u32 = 0;
/// Somebody rang since.
const RUNG: u32 = 1;
/// The sleeper is in the kernel.
const PARKED: u32 = 2;

/// The one thread that sleeps. It makes [`Ringer`]s for those that wake it.
///
/// A ring is remembered until the next park, which then returns at once. So a thread that looks
/// for work, finds none and parks misses nothing that was made available before a ring.
#[derive(Debug, Default)]
pub struct Parker {
    state: Arc<AtomicU32>,
    /// Times that it went into the kernel.
    waits: u64,
}

impl Parker {
    /// A parker that nobody has rung.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle that wakes this parker's thread.
    #[must_use]
    pub fn ringer(&self) -> Ringer {
        Ringer { state: Arc::clone(&self.state) }
    }

    /// Sleeps until rung, or for `timeout`. Returns whether it was rung, and forgets the ring.
    pub fn park(&mut self, timeout: Duration) -> bool {
        // The SeqCst exchanges pair with the fence in `ring`: either the ringer sees QUIET or
        // PARKED and changes it, or this thread, back from here, sees what the ringer had done.
        let quiet = self.state.compare_exchange(QUIET, PARKED, Ordering::SeqCst, Ordering::SeqCst);
        if quiet.is_ok() && !timeout.is_zero() {
            self.waits += 1;
            // A wrong guess about the state, a signal and a timeout all mean: look again.
            let timeout = futex::Timespec::try_from(timeout).ok();
            let flags = futex::Flags::PRIVATE;
            let _looked = futex::wait(&self.state, flags, PARKED, timeout.as_ref());
        }
        self.take_ring()
    }

    /// System calls made to sleep so far: parks that no ring had made return at once.
    #[must_use]
    pub const fn waits(&self) -> u64 {
        self.waits
    }

    /// Whether it was rung since the last park or look; forgets the ring.
    pub fn take_ring(&mut self) -> bool {
        self.state.swap(QUIET, Ordering::SeqCst) == RUNG
    }
}

/// Wakes one [`Parker`]. Clones wake the same one.
#[derive(Clone, Debug)]
pub struct Ringer {
    state: Arc<AtomicU32>,
}

impl Ringer {
    /// Wakes the parker's thread, or makes its next park return at once. Makes a system call only
    /// when the thread is parked.
    #[inline]
    pub fn ring(&self) {
        // What the caller made available must be visible before the state is read: without the
        // fence both sides could read old values, and the sleeper would sleep on work.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == RUNG {
            return;
        }
        if self.state.swap(RUNG, Ordering::SeqCst) == PARKED {
            // It can only fail for an address that is not mapped, and this one is.
            let _woken = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
        }
    }

    /// Whether the parker's thread is in the kernel and nobody has rung it.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.state.load(Ordering::SeqCst) == PARKED
    }
}

/// What a source rings after it has queued snapshots: the sender, and on `shm` the waker too, which
/// then looks out for what the sender publishes.
#[derive(Clone, Debug)]
pub struct Bell {
    sender: Ringer,
    waker: Option<Ringer>,
}

impl Bell {
    /// A bell for a fabric without a waker.
    #[must_use]
    pub const fn new(sender: Ringer) -> Self {
        Self { sender, waker: None }
    }

    /// A bell that rings a waker as well.
    #[must_use]
    pub const fn with_waker(sender: Ringer, waker: Ringer) -> Self {
        Self { sender, waker: Some(waker) }
    }

    /// Rings. Call it after the work is queued. Makes system calls only to wake parked threads.
    #[inline]
    pub fn ring(&self) {
        // The sender first: when the waker runs it must find that the sender is not parked.
        self.sender.ring();
        if let Some(waker) = &self.waker {
            waker.ring();
        }
    }
}

/// What a thread does when a turn found no work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleStrategy {
    /// Look again at once, and burn a core.
    Spin,
    /// Look again after letting other threads run.
    Yield,
    /// Sleep until rung.
    #[default]
    Block,
}

impl IdleStrategy {
    /// Idles once: at most for `timeout`, at least until there may be work.
    #[inline]
    pub fn idle(self, parker: &mut Parker, timeout: Duration) {
        match self {
            Self::Spin => core::hint::spin_loop(),
            Self::Yield => std::thread::yield_now(),
            Self::Block => {
                parker.park(timeout);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_ring_before_the_park_makes_it_return_at_once() {
        let mut parker = Parker::new();
        parker.ringer().ring();
        parker.ringer().ring();
        assert!(parker.park(LONG));
        assert_eq!(parker.waits(), 0, "no system call was made");
        assert!(!parker.park(Duration::from_millis(1)), "two rings count once");
        assert_eq!(parker.waits(), 1);
    }

    #[test]
    fn a_park_ends_by_itself_when_nobody_rings() {
        let mut parker = Parker::new();
        assert!(!parker.park(Duration::ZERO));
        assert!(!parker.park(Duration::from_millis(1)));
    }

    #[test]
    fn a_parked_thread_is_seen_as_parked_until_it_is_rung() {
        let mut parker = Parker::new();
        let ringer = parker.ringer();
        let sleeper = std::thread::spawn(move || parker.park(LONG));
        while !ringer.is_parked() {
            std::thread::yield_now();
        }
        ringer.ring();
        assert!(!ringer.is_parked());
        assert!(sleeper.join().unwrap());
    }

    #[test]
    fn no_work_is_slept_on_by_either_thread_behind_a_bell() {
        const ITEMS: u64 = 20_000;
        let (mut sender, mut waker) = (Parker::new(), Parker::new());
        let bell = Bell::with_waker(sender.ringer(), waker.ringer());
        let queued = AtomicU64::new(0);
        let taken = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            for (parker, taken) in [&mut sender, &mut waker].into_iter().zip(&taken) {
                let queued = &queued;
                scope.spawn(move || {
                    while taken.load(Ordering::Relaxed) < ITEMS {
                        // Would hang here for an hour if a ring were lost.
                        parker.park(LONG);
                        taken.store(queued.load(Ordering::Relaxed), Ordering::Release);
                    }
                });
            }
            for item in 1..=ITEMS {
                queued.store(item, Ordering::Relaxed);
                bell.ring();
                while taken.iter().any(|taken| taken.load(Ordering::Acquire) < item) {
                    std::thread::yield_now();
                }
            }
        });
    }
}
