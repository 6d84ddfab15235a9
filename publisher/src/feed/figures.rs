//! What the feed shows of itself while it plays, for the metrics endpoint.

use std::sync::{Arc, Mutex, PoisonError};

use tapecast_telemetry::Gauge;

use crate::book::BookStats;
use crate::source::SourceStats;

/// Figures of one feed: written by its thread, read by anybody. Clones are the same figures.
///
/// Counts of the books are shown with each step; what has to be right while the feed waits for the
/// sender, in [`FeedGauges`](super::FeedGauges). What the source says costs strings, so it is
/// written down only when somebody has asked since, and before a source waits for its input.
#[derive(Clone, Debug, Default)]
pub struct FeedFigures(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Questions asked.
    asked: Gauge,
    events: Gauge,
    gaps: Gauge,
    reading: Mutex<FeedReading>,
}

/// What a feed says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedReading {
    /// What was read.
    pub source: SourceStats,
    /// What the books saw.
    pub books: BookStats,
}

/// The feed's end.
#[derive(Debug)]
pub(super) struct FeedScribe {
    figures: FeedFigures,
    /// Types of messages that are told from the beginning on.
    types: Vec<String>,
    answered: u64,
}

impl FeedFigures {
    /// What the feed said last, with counts of events and gaps as they are now; and asks for the
    /// rest anew. One thread asks.
    #[must_use]
    pub fn read(&self) -> FeedReading {
        self.0.asked.raise();
        let mut reading = self.0.reading.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reading.books.events = self.0.events.get().max(reading.books.events);
        reading.books.gaps = self.0.gaps.get().max(reading.books.gaps);
        reading
    }
}

impl FeedScribe {
    pub(super) const fn new(figures: FeedFigures, types: Vec<String>) -> Self {
        Self { figures, types, answered: 0 }
    }

    /// The feed went a step. `reading` is only made when somebody has asked.
    #[inline]
    pub(super) fn on_step(&mut self, books: &BookStats, reading: impl FnOnce() -> FeedReading) {
        let Shared { asked, events, gaps, .. } = &*self.figures.0;
        events.set(books.events);
        gaps.set(books.gaps);
        let asked = asked.get();
        if asked == self.answered {
            return;
        }
        let reading = self.with_all_types(reading());
        // While that is being read the feed does not wait; it answers at a later step.
        if let Ok(mut place) = self.figures.0.reading.try_lock() {
            *place = reading;
            self.answered = asked;
        }
    }

    /// Writes a reading down before the feed may say nothing for long, or for ever.
    pub(super) fn on_pause(&mut self, reading: FeedReading) {
        let Shared { asked, reading: place, .. } = &*self.figures.0;
        self.answered = asked.get();
        let reading = self.with_all_types(reading);
        // Whoever reads makes one copy meanwhile.
        *place.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    }

    fn with_all_types(&self, mut reading: FeedReading) -> FeedReading {
        let seen = &mut reading.source.by_type;
        let missing =
            self.types.iter().filter(|kind| !seen.iter().any(|(known, _)| known == *kind));
        let missing: Vec<_> = missing.map(|kind| (kind.clone(), 0)).collect();
        seen.extend(missing);
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(messages: u64) -> FeedReading {
        let source = SourceStats { messages, ..SourceStats::default() };
        FeedReading { source, ..FeedReading::default() }
    }

    #[test]
    fn a_reading_is_made_once_for_each_question_and_counts_of_events_are_always_fresh() {
        let figures = FeedFigures::default();
        let mut scribe = FeedScribe::new(figures.clone(), Vec::new());
        let books = |events| BookStats { events, gaps: events / 2, ..BookStats::default() };
        scribe.on_step(&books(1), || panic!("nobody has asked"));
        assert_eq!(figures.read().books, books(1));
        scribe.on_step(&books(2), || reading(20));
        scribe.on_step(&books(4), || panic!("that was answered"));
        let now = figures.read();
        assert_eq!((now.source.messages, now.books), (20, books(4)));
    }

    #[test]
    fn types_that_have_not_come_yet_are_told_as_zero() {
        let figures = FeedFigures::default();
        let types = ["A", "D"].map(str::to_owned).to_vec();
        let mut scribe = FeedScribe::new(figures.clone(), types);
        let by_type = vec![("D".to_owned(), 3), ("x".to_owned(), 1)];
        let source = SourceStats { by_type, messages: 4, ..SourceStats::default() };
        scribe.on_pause(FeedReading { source, ..FeedReading::default() });
        let told = [("D", 3), ("x", 1), ("A", 0)].map(|(kind, count)| (kind.to_owned(), count));
        assert_eq!(figures.read().source.by_type, told);
    }

    #[test]
    fn a_feed_does_not_wait_for_its_reader_and_answers_later() {
        let figures = FeedFigures::default();
        let mut scribe = FeedScribe::new(figures.clone(), Vec::new());
        let _asked = figures.read();
        let held = figures.0.reading.lock().unwrap();
        scribe.on_step(&BookStats::default(), || reading(1));
        drop(held);
        scribe.on_step(&BookStats::default(), || reading(2));
        assert_eq!(figures.read().source.messages, 2);
    }
}
