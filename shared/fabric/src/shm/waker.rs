//! The thread that wakes sleeping readers, so that the sender does not have to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tapecast_ring::RegionReader;

use super::futex::{Sleepers, WakeWord};
use super::session::WakeSockets;
use crate::park::{Parker, Ringer};

/// Readers woken by one call. Few, so that those that are awake can help to wake the rest; not so
/// few that the calls cost more than the waking: with 64 sleepers on two cores 4 made the median
/// delivery 15 % later, 64 and 16 were alike, and 16 had the best 99th percentile.
const WAKE_AT_ONCE: u32 = 16;
/// Calls after which the rest is woken in one. A hostile subscriber with many threads that go to
/// sleep again at once could otherwise keep the waker busy for ever.
const CALLS_MAX: u32 = 64;

/// Looks with nothing in between, while the sender publishes what the bell announced.
const SPINS: u32 = 64;
/// Looks that let other threads run in between: on a busy machine the sender may be one of them.
const YIELDS: u32 = 16;
/// First and longest nap between two looks while the sender stays awake.
const NAP: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_micros(200);
/// Sleep while the sender sleeps too. A ring ends it; the limit is for nothing but robustness.
const SLEEP: Duration = Duration::from_secs(1);

/// What one look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// A new generation; everybody who slept was woken.
    Woke,
    /// Nothing new, but the sender is awake.
    Pending,
    /// Nothing new, and there will be nothing before somebody rings.
    Quiet,
}

/// Wakes readers after each flush. Runs on a thread of its own: [`Waker::spawn`].
#[derive(Debug)]
pub struct Waker {
    wake: WakeWord,
    sockets: Arc<WakeSockets>,
    sender: Ringer,
    parker: Parker,
    served: u32,
}

impl Waker {
    pub(super) fn new(region: RegionReader, sockets: Arc<WakeSockets>, sender: Ringer) -> Self {
        let wake = WakeWord::new(region);
        let served = wake.generation();
        Self { wake, sockets, sender, parker: Parker::new(), served }
    }

    /// What the bell rings beside the sender, see [`crate::park::Bell::with_waker`].
    #[must_use]
    pub fn ringer(&self) -> Ringer {
        self.parker.ringer()
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn(self) -> io::Result<WakerThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let ringer = self.ringer();
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name("tapecast-waker".to_owned())
                .spawn(move || self.run(&stop))?
        };
        Ok(WakerThread { stop, ringer, thread: Some(thread) })
    }

    /// Wakes readers until `stop` is set and the waker is rung; serves then what was flushed
    /// before.
    pub fn run(mut self, stop: &AtomicBool) {
        let mut looks = 0;
        while !stop.load(Ordering::Acquire) {
            looks = match self.look() {
                Look::Woke => 0,
                Look::Pending => self.wait_for_sender(looks),
                Look::Quiet => {
                    self.parker.park(SLEEP);
                    0
                }
            };
        }
        self.look();
    }

    fn look(&mut self) -> Look {
        // The sender's state first: if it is parked here, all that it published before it parked
        // is seen below.
        let parked = self.sender.is_parked();
        let present = self.wake.generation();
        if present == self.served {
            return if parked { Look::Quiet } else { Look::Pending };
        }
        self.wake_all(Sleepers::before(present, self.served));
        self.served = present;
        Look::Woke
    }

    fn wake_all(&self, sleepers: Sleepers) {
        let mut calls = 0;
        while self.wake.wake(WAKE_AT_ONCE, sleepers) == WAKE_AT_ONCE {
            calls += 1;
            if calls == CALLS_MAX {
                self.wake.wake(i32::MAX as u32, sleepers);
                break;
            }
        }
        self.sockets.wake_armed();
    }

    /// Lets a moment pass that grows with the number of looks so far; returns the next number.
    fn wait_for_sender(&mut self, looks: u32) -> u32 {
        if looks < SPINS {
            core::hint::spin_loop();
        } else if looks < SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            let nap = NAP.saturating_mul(looks - SPINS - YIELDS + 1).min(NAP_MAX);
            if self.parker.park(nap) {
                return 0;
            }
        }
        looks.saturating_add(1)
    }
}

/// The waker's thread. Dropping it stops the thread, which first serves what was flushed before,
/// and joins it.
#[derive(Debug)]
pub struct WakerThread {
    stop: Arc<AtomicBool>,
    ringer: Ringer,
    thread: Option<JoinHandle<()>>,
}

impl WakerThread {
    /// What the bell rings beside the sender.
    #[must_use]
    pub fn ringer(&self) -> Ringer {
        self.ringer.clone()
    }
}

impl Drop for WakerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.ringer.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic hook; a drop must not add another.
            let _ended = thread.join();
        }
    }
}
