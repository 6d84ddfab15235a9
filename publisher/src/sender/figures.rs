//! What the sender records on its way, for the metrics endpoint.

use tapecast_telemetry::{Gauge, LatencyBuckets, SharedBuckets, Spells};
use tapecast_wire::Nanos;

use super::Work;

/// Figures of one sender: recorded by it alone, with plain stores, and read by anybody.
#[derive(Debug, Default)]
pub struct SenderFigures {
    source_to_publish: SharedBuckets,
    publish_cost: SharedBuckets,
    publish_to_post: SharedBuckets,
    done: Gauge,
    idle: Gauge,
    gated: Gauge,
    /// Times in which a lossless session held the sender back.
    held_back: Spells,
    parks: Gauge,
    waits: Gauge,
    yields: Gauge,
    busy_ns: Gauge,
    /// 1 when the last duty cycle did something.
    at_work: Gauge,
    beat_ns: Gauge,
}

/// What [`SenderFigures`] say at one time. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderReading {
    /// From being queued by the feed to being stamped by the sender.
    pub source_to_publish: LatencyBuckets,
    /// From one snapshot to the next, while there is a next.
    pub publish_cost: LatencyBuckets,
    /// From the stamp of a batch's first snapshot to the end of its flush.
    pub publish_to_post: LatencyBuckets,
    /// Duty cycles that did something.
    pub done: u64,
    /// Duty cycles that found nothing to do.
    pub idle: u64,
    /// Duty cycles that had to wait for a subscriber.
    pub gated: u64,
    /// Times that the sender had nothing to do and went to sleep.
    pub parks: u64,
    /// System calls made to sleep, for lack of work or of room at a subscriber.
    pub waits: u64,
    /// System calls made to let other threads run.
    pub yields: u64,
    /// Time of the duty cycles that did something, each until the next began.
    pub busy_ns: u64,
    /// How long lossless sessions held the sender back, the present time included.
    pub gated_ns: u64,
    /// When the last duty cycle began, Unix nanoseconds; 0 before the first.
    pub beat: Nanos,
}

impl SenderFigures {
    /// A duty cycle begins. One that did something goes straight on to the next, so this reading of
    /// the clock says how long it took, looking after subscribers included.
    #[inline]
    pub(super) fn on_beat(&self, now: Nanos) {
        if self.at_work.get() != 0 {
            let took = now.since(Nanos(self.beat_ns.get())).0;
            self.busy_ns.set(self.busy_ns.get().wrapping_add(took));
        }
        self.beat_ns.set(now.0);
    }

    /// A snapshot was taken that the feed had queued at `queued`; 0 where that is not known.
    #[inline]
    pub(super) fn on_taken(&self, queued: Nanos, now: Nanos) {
        if queued.0 != 0 {
            self.source_to_publish.record(now.since(queued).0);
        }
    }

    /// Publishing one snapshot took this long.
    #[inline]
    pub(super) fn on_published(&self, cost: Nanos) {
        self.publish_cost.record(cost.0);
    }

    /// A batch, begun at `began`, was flushed at `flushed`.
    #[inline]
    pub(super) fn on_flushed(&self, began: Nanos, flushed: Nanos) {
        self.publish_to_post.record(flushed.since(began).0);
    }

    /// From now on a lossless session holds the sender back, or none does.
    #[inline]
    pub(super) fn on_held_back(&self, is_held: bool, now: Nanos) {
        self.held_back.set(is_held, now.0);
    }

    /// A duty cycle has ended.
    #[inline]
    pub(super) fn on_cycle(&self, work: Work) {
        self.at_work.set(u64::from(work == Work::Done));
        match work {
            Work::Done => self.done.raise(),
            Work::Idle => self.idle.raise(),
            Work::Gated | Work::Closed => self.gated.raise(),
        }
    }

    /// The sender goes to sleep.
    #[inline]
    pub(super) fn on_park(&self) {
        self.parks.raise();
    }

    /// System calls so far, to sleep and to let others run.
    #[inline]
    pub(super) fn on_calls(&self, waits: u64, yields: u64) {
        self.waits.set(waits);
        self.yields.set(yields);
    }

    /// When the last duty cycle began, Unix nanoseconds; 0 before the first.
    #[must_use]
    pub fn beat(&self) -> Nanos {
        Nanos(self.beat_ns.get())
    }

    /// The figures at `now`.
    #[must_use]
    pub fn read(&self, now: Nanos) -> SenderReading {
        SenderReading {
            source_to_publish: self.source_to_publish.load(),
            publish_cost: self.publish_cost.load(),
            publish_to_post: self.publish_to_post.load(),
            done: self.done.get(),
            idle: self.idle.get(),
            gated: self.gated.get(),
            parks: self.parks.get(),
            waits: self.waits.get(),
            yields: self.yields.get(),
            busy_ns: self.busy_ns.get(),
            gated_ns: self.held_back.total_ns(now.0),
            beat: self.beat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_busy_in_whole_cycles_that_do_something_and_in_no_others() {
        let figures = SenderFigures::default();
        for (begins, work, busy_ns) in [
            (1_000, Work::Done, 0),
            (1_050, Work::Done, 50),
            (1_080, Work::Idle, 80),
            (9_000, Work::Gated, 80),
            (9_500, Work::Done, 80),
            (9_400, Work::Idle, 80),
        ] {
            figures.on_beat(Nanos(begins));
            assert_eq!(figures.read(Nanos(begins)).busy_ns, busy_ns, "at {begins}");
            figures.on_cycle(work);
        }
    }
}
