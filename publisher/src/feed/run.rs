//! Plays the source: as fast as it may, again and again if configured, until it ends.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use tapecast_wire::{Flags, InstrumentId, Level, Nanos, Sequence};

use super::encoder::{EncodeError, Encoder};
use super::figures::{FeedFigures, FeedReading, FeedScribe};
use crate::book::{BookBuilder, BookStats, SnapshotDraft};
use crate::clock::unix_now;
use crate::config::ReceiveTime;
use crate::source::pacing::Pacer;
use crate::source::progress::{Progress as ProgressMeter, ProgressCount};
use crate::source::{EventSink, FeedStamp, MarketEvent, Progress, Source, SourceStats};

/// How the feed ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedOutcome {
    /// The source has ended.
    Ended,
    /// The publisher stops.
    Stopped,
    /// The source is damaged, or what it says cannot be published. All before that was.
    Failed(String),
}

impl FeedOutcome {
    /// One word for the report.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }

    /// Why it failed, if it did.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Ended | Self::Stopped => None,
        }
    }
}

/// What the feed leaves behind.
#[derive(Clone, Debug)]
pub struct FeedEnd {
    /// How it ended.
    pub outcome: FeedOutcome,
    /// What was read.
    pub source: SourceStats,
    /// What the books saw.
    pub books: BookStats,
    /// Last sequence of each instrument, indexed by id.
    pub instrument_sequences: Vec<Sequence>,
    /// Times that the queue to the sender was full.
    pub queue_stalls: u64,
    /// Times that the page pool was empty.
    pub pool_stalls: u64,
}

impl FeedEnd {
    /// Last sequence of the channel.
    #[must_use]
    pub fn channel_sequence(&self) -> Sequence {
        Sequence(self.instrument_sequences.iter().map(|last| last.0).sum())
    }
}

/// How a feed is played.
#[derive(Debug)]
pub struct Playback {
    /// Says when events are due.
    pub pacer: Pacer,
    /// Who says when a message was received.
    pub receive_time: ReceiveTime,
    /// Start again at the end of the input.
    pub looping: bool,
    /// Mark all books as ended when the source has ended.
    pub marks_end: bool,
    /// Shows how far it is; `None` for silence.
    pub meter: Option<ProgressMeter>,
}

/// Advances between two looks at the progress: it costs a few strings.
const METER_EVERY: u32 = 1024;

/// A source with its books.
#[derive(Debug)]
pub struct Feed<S> {
    source: S,
    sink: FeedSink,
    looping: bool,
    marks_end: bool,
    meter: Option<ProgressMeter>,
    advances: u32,
}

impl<S: Source> Feed<S> {
    /// A feed that has not begun.
    #[must_use]
    pub fn new(source: S, books: BookBuilder<Encoder>, playback: Playback) -> Self {
        let Playback { pacer, receive_time, looping, marks_end, meter } = playback;
        let sink =
            FeedSink { books, pacer, receive_time, read_at: None, stamp: None, scribe: None };
        Self { source, sink, looping, marks_end, meter, advances: 0 }
    }

    /// The same, which shows what it does in `figures`.
    #[must_use]
    pub fn with_figures(mut self, figures: Option<FeedFigures>) -> Self {
        let types = || self.source.message_types();
        self.sink.scribe = figures.map(|figures| FeedScribe::new(figures, types()));
        // What is known before the first message, and which types there are.
        self.sink.tell(|| self.source.stats());
        self
    }

    /// Waits for `started`, then plays to the end.
    pub fn run(mut self, started: &Receiver<()>) -> FeedEnd {
        sharpen_sleep();
        for instrument in self.source.instruments() {
            self.sink.books.on_instrument(instrument);
        }
        let outcome = match started.recv() {
            Ok(()) => self.play(),
            Err(_) => FeedOutcome::Stopped,
        };
        if self.marks_end && outcome == FeedOutcome::Ended {
            self.sink.mark_all_ended();
        }
        self.into_end(outcome)
    }

    fn play(&mut self) -> FeedOutcome {
        let mut anything = false;
        loop {
            match self.source.advance(&mut self.sink) {
                Ok(Progress::Event { .. }) => anything = true,
                // An input without a single event would be read for ever.
                Ok(Progress::End) if self.looping && anything => {
                    anything = false;
                    if let Err(error) = self.source.rewind() {
                        return FeedOutcome::Failed(error.to_string());
                    }
                    self.meter.iter_mut().for_each(ProgressMeter::restart);
                }
                Ok(Progress::End) => return FeedOutcome::Ended,
                // It was told not to wait for more.
                Err(_) if self.is_stopped() => return FeedOutcome::Stopped,
                Err(error) => return FeedOutcome::Failed(error.to_string()),
            }
            self.show_progress();
            self.show_figures();
            let encoder = self.sink.books.sink_mut();
            encoder.ring_if_queued();
            encoder.queue().pulse().beat();
            match encoder.failure() {
                None if encoder.queue().stop_flag().is_stopped() => return FeedOutcome::Stopped,
                None => {}
                Some(EncodeError::Stopped) => return FeedOutcome::Stopped,
                Some(error) => return FeedOutcome::Failed(error.to_string()),
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.sink.books.sink().queue().stop_flag().is_stopped()
    }

    fn show_progress(&mut self) {
        self.advances += 1;
        if self.advances >= METER_EVERY
            && let Some(meter) = &mut self.meter
        {
            self.advances = 0;
            meter.update(count(&self.source.stats()));
        }
    }

    #[inline]
    fn show_figures(&mut self) {
        let Self { source, sink: FeedSink { books, scribe, .. }, .. } = self;
        if let Some(scribe) = scribe {
            let books = books.stats();
            scribe.on_step(&books, || FeedReading { source: source.stats(), books });
        }
    }

    fn into_end(mut self, outcome: FeedOutcome) -> FeedEnd {
        self.sink.tell(|| self.source.stats());
        let books = self.sink.books.stats();
        let encoder = self.sink.books.sink();
        encoder.queue().ring();
        let gauges = encoder.queue().gauges().read(unix_now());
        let source = self.source.stats();
        if let Some(meter) = self.meter {
            meter.finish(count(&source));
        }
        FeedEnd {
            outcome,
            source,
            books,
            instrument_sequences: encoder.sequencer().instrument_sequences().to_vec(),
            queue_stalls: gauges.queue_stalls,
            pool_stalls: gauges.pool_stalls,
        }
    }
}

const fn count(stats: &SourceStats) -> ProgressCount {
    ProgressCount { messages: stats.messages, bytes: stats.bytes_read }
}

/// Passes events to the books, and holds each back until it is due.
#[derive(Debug)]
struct FeedSink {
    books: BookBuilder<Encoder>,
    pacer: Pacer,
    receive_time: ReceiveTime,
    /// When the first message of the event that is not over was read; only where that is told.
    read_at: Option<Nanos>,
    /// Where in the feed the last event stood; `None` before the first.
    stamp: Option<FeedStamp>,
    /// For the metrics endpoint, where there is one.
    scribe: Option<FeedScribe>,
}

impl FeedSink {
    /// Shows what the source says, asked or not.
    fn tell(&mut self, stats: impl FnOnce() -> SourceStats) {
        if let Some(scribe) = &mut self.scribe {
            scribe.on_pause(FeedReading { source: stats(), books: self.books.stats() });
        }
    }

    /// Tells the subscribers of every instrument that was published that nothing follows.
    fn mark_all_ended(&mut self) {
        let Some(stamp) = self.stamp else { return };
        let sequences = self.books.sink().sequencer().instrument_sequences();
        let published: Vec<InstrumentId> = (0..)
            .zip(sequences)
            .filter(|(_, last)| **last > Sequence(0))
            .map(|(id, _)| InstrumentId(id))
            .collect();
        for id in published {
            self.books.on_event(id, &stamp, MarketEvent::EndOfSession);
        }
        self.books.on_event_end();
    }

    /// Waits until the event that ends here is due.
    #[inline]
    fn hold(&mut self) {
        let by_host = self.receive_time == ReceiveTime::Host;
        if !self.pacer.is_paced() && !by_host {
            return;
        }
        let mut now = unix_now();
        let due = match self.stamp.filter(|stamp| stamp.ts_recv != u64::MAX) {
            Some(stamp) => self.pacer.due(stamp.ts_recv, now),
            // What the feed has no receive time for is published with what is around it.
            None => now,
        };
        let wait = Duration::from_nanos(due.since(now).get());
        if wait >= WAIT_MIN {
            // What is published already need not wait with it.
            self.books.sink_mut().hand_over_journal();
            self.sleep(wait);
            now = unix_now();
        }
        if by_host {
            // One that is late was received when it was due: the time that it stood in line counts.
            let read_at = self.read_at.take().unwrap_or(now);
            self.books.sink_mut().receive_at(due.min(read_at));
        }
    }

    /// Publishes what is due. Here nothing may stand still but for the sender, and that beats.
    #[inline]
    fn work(&mut self, publish: impl FnOnce(&mut BookBuilder<Encoder>)) {
        self.books.sink().queue().pulse().work();
        publish(&mut self.books);
        self.books.sink().queue().pulse().rest();
    }

    /// Sleeps, but not through an order to stop.
    fn sleep(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let stop = self.books.sink().queue().stop_flag();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || stop.is_stopped() {
                return;
            }
            std::thread::sleep(left.min(NAP_MAX));
        }
    }
}

/// A shorter wait is not worth a system call: the event goes out that much early.
const WAIT_MIN: Duration = Duration::from_micros(10);
/// Longest time without a look at the order to stop.
const NAP_MAX: Duration = Duration::from_millis(50);

/// Makes this thread's sleeps end on time: by default the kernel adds up to 50 µs.
fn sharpen_sleep() {
    let slack = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    if let Err(error) = slack {
        tracing::debug!("sleeps are not sharpened: {error}");
    }
}

impl EventSink for FeedSink {
    fn on_instrument(&mut self, instrument: &tapecast_wire::Instrument) {
        self.books.on_instrument(instrument);
    }

    #[inline]
    fn on_event(&mut self, instrument: InstrumentId, stamp: &FeedStamp, event: MarketEvent<'_>) {
        self.stamp = Some(*stamp);
        // An event may end long after, when the next one begins. With a pace its due time counts.
        let is_told = self.receive_time == ReceiveTime::Host && !self.pacer.is_paced();
        if is_told && self.read_at.is_none() {
            self.read_at = Some(unix_now());
        }
        self.books.on_event(instrument, stamp, event);
    }

    #[inline]
    fn on_event_end(&mut self) {
        self.hold();
        self.work(BookBuilder::on_event_end);
    }

    fn on_snapshot(&mut self, draft: &SnapshotDraft, bids: &[Level], asks: &[Level]) {
        self.stamp = Some(FeedStamp {
            feed_sequence: draft.feed_sequence,
            ts_event: draft.ts_event,
            ts_recv: draft.ts_recv,
            flags: Flags::NONE,
        });
        self.hold();
        self.work(|books| books.on_snapshot(draft, bids, asks));
    }

    /// Whoever asks while the input pauses shall not be told of what was before.
    fn on_pause(&mut self, stats: impl FnOnce() -> SourceStats) {
        self.tell(stats);
    }
}
