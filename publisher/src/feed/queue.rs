//! The queue between the feed and the sender, and how the feed waits when it is full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use signal_hook::consts::{SIGINT, SIGTERM};
use tapecast_fabric::park::Bell;

use super::gauges::FeedGauges;
use super::pulse::{FeedPulse, InputPulse};
use crate::sender::FeedItem;

/// Items that may wait for the sender.
pub const QUEUE_ITEMS: usize = 1024;

/// The publisher stops: nothing is queued any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// The order to stop, given once and seen by every thread; and the signs of life of who reads the
/// input, and waits for it with an eye on the order.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    ordered: Arc<AtomicBool>,
    input: InputPulse,
}

impl StopFlag {
    /// Gives the order.
    pub fn stop(&self) {
        self.ordered.store(true, Ordering::Release);
    }

    /// Signs of life of who reads the input.
    #[must_use]
    pub const fn input(&self) -> &InputPulse {
        &self.input
    }

    /// Has SIGTERM and SIGINT give the order too, beside whoever else has taken them over: the
    /// source may be waiting for its input before anybody else looks at signals.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn heed_signals(&self) -> io::Result<()> {
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&self.ordered))?;
        }
        Ok(())
    }

    /// Whether it was given.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.ordered.load(Ordering::Acquire)
    }
}

/// The feed's end of the queue.
///
/// It only ever tries to send: a blocking send would make the sender's receive a system call, to
/// wake this thread.
#[derive(Debug)]
pub struct FeedQueue {
    items: Sender<FeedItem>,
    bell: Bell,
    stop: StopFlag,
    pulse: FeedPulse,
    gauges: FeedGauges,
}

/// How much waits in a queue, for whoever wants to know. It takes nothing out; but items that
/// nobody will take any more stay until it is dropped.
#[derive(Clone, Debug)]
pub struct QueueLength(Receiver<FeedItem>);

impl QueueLength {
    /// The length of the queue that ends here.
    #[must_use]
    pub fn of(items: &Receiver<FeedItem>) -> Self {
        Self(items.clone())
    }

    /// Items that wait now.
    #[must_use]
    pub fn items(&self) -> usize {
        self.0.len()
    }
}

impl FeedQueue {
    /// The feed's end of `items`.
    #[must_use]
    pub fn new(items: Sender<FeedItem>, bell: Bell, stop: StopFlag) -> Self {
        Self { items, bell, stop, pulse: FeedPulse::default(), gauges: FeedGauges::default() }
    }

    /// Queues one item, and waits while the queue is full.
    ///
    /// # Errors
    /// [`Stopped`] when the publisher stops meanwhile, or nobody is left at the other end: neither
    /// the sender nor a [`QueueLength`].
    pub fn push(&mut self, item: FeedItem) -> Result<(), Stopped> {
        match self.items.try_send(item) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err(Stopped),
            Err(TrySendError::Full(item)) => self.push_later(item),
        }
    }

    /// Waits for room. The wait is told while it lasts: that is when somebody wants to know.
    #[cold]
    fn push_later(&self, mut refused: FeedItem) -> Result<(), Stopped> {
        let _stall = self.gauges.on_queue_full();
        let mut patience = Patience::default();
        loop {
            self.wait(&mut patience)?;
            refused = match self.items.try_send(refused) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(Stopped),
                Err(TrySendError::Full(item)) => item,
            };
        }
    }

    /// Tells the sender that there is something for it.
    #[inline]
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Gives the sender time to make room.
    ///
    /// # Errors
    /// [`Stopped`] when the publisher stops.
    pub fn wait(&self, patience: &mut Patience) -> Result<(), Stopped> {
        if self.stop.is_stopped() {
            return Err(Stopped);
        }
        // A feed that waits here has something to say.
        self.pulse.beat();
        self.bell.ring();
        patience.wait();
        Ok(())
    }

    /// The order to stop.
    #[must_use]
    pub const fn stop_flag(&self) -> &StopFlag {
        &self.stop
    }

    /// The feed's signs of life.
    #[must_use]
    pub const fn pulse(&self) -> &FeedPulse {
        &self.pulse
    }

    /// What the feed shows as it happens.
    #[must_use]
    pub const fn gauges(&self) -> &FeedGauges {
        &self.gauges
    }
}

/// Waits longer each time: first it only lets others run, then it naps.
#[derive(Debug, Default)]
pub struct Patience {
    turns: u32,
}

impl Patience {
    const YIELDS: u32 = 32;
    const NAP: Duration = Duration::from_micros(50);

    /// Waits once.
    pub fn wait(&mut self) {
        if self.turns < Self::YIELDS {
            self.turns += 1;
            std::thread::yield_now();
        } else {
            std::thread::sleep(Self::NAP);
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;
    use tapecast_fabric::park::Parker;
    use tapecast_wire::{Instrument, InstrumentId, Nanos};

    use super::*;
    use crate::clock::unix_now;

    fn item(id: u32) -> FeedItem {
        FeedItem::Instrument(Instrument::new(InstrumentId(id), "X", "V").to_wire())
    }

    #[test]
    fn a_full_queue_waits_for_room_and_loses_nothing() {
        let (to_sender, items) = bounded(2);
        let bell = Bell::new(Parker::new().ringer());
        let mut queue = FeedQueue::new(to_sender, bell, StopFlag::default());
        let pulse = queue.pulse().clone();
        let feed = std::thread::spawn(move || {
            (0..1000).for_each(|id| queue.push(item(id)).unwrap());
        });
        while !items.is_full() {
            std::thread::yield_now();
        }
        // A feed that waits for the sender is not silent.
        for _ in 0..3 {
            let before = pulse.beats();
            while pulse.beats() == before {
                std::thread::yield_now();
            }
        }
        let taken: Vec<u32> = items
            .iter()
            .map(|item| match item {
                FeedItem::Instrument(entry) => entry.instrument_id,
                FeedItem::Snapshot(_) => u32::MAX,
            })
            .collect();
        assert_eq!(taken, (0..1000).collect::<Vec<_>>());
        feed.join().unwrap();
    }

    #[test]
    fn a_stall_is_told_from_its_beginning_to_its_end_and_no_longer() {
        let (to_sender, items) = bounded(2);
        let length = QueueLength::of(&items);
        let bell = Bell::new(Parker::new().ringer());
        let mut queue = FeedQueue::new(to_sender, bell, StopFlag::default());
        let (gauges, pulse) = (queue.gauges().clone(), queue.pulse().clone());
        (0..2).for_each(|id| queue.push(item(id)).unwrap());
        let hour = Nanos(3_600_000_000_000);
        let told = || gauges.read(Nanos(unix_now().0 + hour.0));
        assert_eq!((told().queue_stalls, told().stalled_ns, length.items()), (0, 0, 2));

        let feed = std::thread::spawn(move || queue.push(item(2)).map(|()| queue));
        // One that waits beats; so it waits.
        while pulse.beats() == 0 {
            std::thread::yield_now();
        }
        assert_eq!((told().queue_stalls, length.items()), (1, 2));
        assert!(told().stalled_ns >= hour.0, "it lasts");

        items.recv().unwrap();
        let _queue = feed.join().unwrap().unwrap();
        assert_eq!((told().queue_stalls, length.items()), (1, 2));
        assert!((1..hour.0).contains(&told().stalled_ns), "it is over");
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let (to_sender, _items) = bounded(1);
        let stop = StopFlag::default();
        let bell = Bell::new(Parker::new().ringer());
        let mut queue = FeedQueue::new(to_sender, bell, stop.clone());
        queue.push(item(0)).unwrap();
        let feed = std::thread::spawn(move || queue.push(item(1)));
        stop.stop();
        assert_eq!(feed.join().unwrap(), Err(Stopped));
    }

    #[test]
    fn a_sender_that_is_gone_is_a_stop_too() {
        let (to_sender, items) = bounded(1);
        let bell = Bell::new(Parker::new().ringer());
        let mut queue = FeedQueue::new(to_sender, bell, StopFlag::default());
        drop(items);
        assert_eq!(queue.push(item(0)), Err(Stopped));
    }
}
