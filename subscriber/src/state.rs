//! How a subscription stands, and what happened to it.

use core::fmt;
use std::collections::VecDeque;
use std::time::Instant;

use tapecast_wire::{Epoch, Nanos, SessionId};

/// How a subscription stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Attached; the publisher is alive and books are current.
    Live,
    /// Books are not current. The SDK is at work; nothing needs to be done but not trading on them.
    Stale {
        /// Since when, on this process's monotonic clock.
        since: Instant,
        /// Why.
        cause: StaleCause,
    },
    /// Over for good: nothing more will be delivered.
    Ended(EndReason),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::Stale { cause, .. } => write!(f, "stale: {cause}"),
            Self::Ended(reason) => write!(f, "ended: {reason}"),
        }
    }
}

/// How the publisher's feed is, as the publisher says.
///
/// This is not [`State`]: that is about the publisher. While its feed is silent it is alive and
/// shows everything that it has, so the state is live and nothing is stale; but nobody tells it
/// what has happened since, so books may be old. A market that is closed looks like that, and so
/// does a line that is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedState {
    /// Messages come, or the source has not begun or has ended.
    #[default]
    Live,
    /// The source is connected and sends nothing, for longer than the publisher's
    /// `source.silent_after_s`.
    Silent {
        /// When the last message came, by the publisher's clock, to a tenth of a second.
        since: Nanos,
    },
}

impl FeedState {
    /// Whether it is silent.
    #[must_use]
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::Silent { .. })
    }
}

impl fmt::Display for FeedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::Silent { since } => write!(f, "silent since {} UTC", time_of_day(*since)),
        }
    }
}

fn time_of_day(time: Nanos) -> String {
    let seconds = time.get() / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Why books are not current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StaleCause {
    /// No publisher was there from the start. Only one side of an [`crate::AbSubscriber`] can begin
    /// like that.
    Absent,
    /// The publisher is attached but gave no sign of life for longer than
    /// [`crate::SubscriberBuilder::heartbeat_timeout`]: stopped, or starved of CPU. Books become
    /// live again when it is heard.
    Silent,
    /// The publisher went without a word: crashed or killed.
    Crashed,
    /// The publisher stopped in an orderly way.
    Closing,
    /// The source has ended and the publisher has closed the session.
    EndOfSource,
    /// The publisher evicted this session.
    Evicted,
    /// The session met bytes that it cannot use, or its RDMA connection broke, and it was given up;
    /// `poll` said which.
    Unusable,
}

impl fmt::Display for StaleCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "no publisher yet",
            Self::Silent => "publisher silent",
            Self::Crashed => "publisher gone without a word",
            Self::Closing => "publisher closed",
            Self::EndOfSource => "end of source",
            Self::Evicted => "evicted by the publisher",
            Self::Unusable => "session given up",
        })
    }
}

/// Why a subscription is over for good.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The source has ended and everything was delivered.
    EndOfSource,
    /// The publisher stopped in an orderly way; its sentence.
    Closing(String),
    /// The publisher evicted this session; its sentence.
    Evicted(String),
    /// The publisher went without a word.
    Crashed,
    /// Attaching again is pointless; the cause and the remedy.
    Refused(String),
    /// The session met bytes that it cannot use, or its RDMA connection broke; which.
    Unusable(String),
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, why) = match self {
            Self::EndOfSource => ("the source has ended", ""),
            Self::Closing(why) => ("the publisher closed", why.as_str()),
            Self::Evicted(why) => ("the publisher evicted this session", why.as_str()),
            Self::Crashed => ("the publisher went away without a word", ""),
            Self::Refused(why) => ("attaching again is pointless", why.as_str()),
            Self::Unusable(why) => ("the session is unusable", why.as_str()),
        };
        f.write_str(what)?;
        if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
    }
}

/// Something that happened to the subscription, in order. See [`crate::Subscriber::events`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Attached again; initial images of every instrument follow, unless it is `continued`.
    Reattached {
        /// Life of the publisher. The same as before when only the session was lost.
        epoch: Epoch,
        /// The new session.
        session: SessionId,
        /// Attempts that it took.
        attempts: u32,
        /// The publisher has restarted and taken over the ring of the session before, and this
        /// session reads on in it: it begins with the first snapshot of that life, so it needs no
        /// initial images and its counts are complete.
        continued: bool,
    },
    /// Books became stale.
    Stale(StaleCause),
    /// A silent publisher is heard again; books are live.
    Heard,
    /// The publisher lives, but its feed is silent: books may be old. See [`FeedState`].
    FeedSilent {
        /// When its last message came, by the publisher's clock.
        since: Nanos,
    },
    /// The publisher's feed is heard again, or has ended, or the publisher is another one whose
    /// feed is not silent.
    FeedHeard,
    /// The publisher said goodbye: its sentence.
    Farewell(StaleCause, String),
    /// An attempt to attach again failed; the SDK goes on trying. Reported once for each cause.
    AttachFailed(String),
    /// Over for good.
    Ended(EndReason),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reattached { epoch, session, attempts, continued } => {
                let how = match continued {
                    true => "in the same ring, from the first snapshot of this epoch on",
                    false => "initial images follow",
                };
                write!(
                    f,
                    "attached again as session {session} of epoch {epoch} (attempt {attempts}): \
                     {how}"
                )
            }
            Self::Stale(cause) => write!(f, "books are stale: {cause}"),
            Self::Heard => f.write_str("the publisher is heard again: books are live"),
            Self::FeedSilent { since } => {
                write!(f, "the publisher's feed is silent since {} UTC: ", time_of_day(*since))?;
                f.write_str("books may be old")
            }
            Self::FeedHeard => f.write_str("the publisher's feed is heard again"),
            Self::Farewell(cause, why) if why.is_empty() => write!(f, "farewell: {cause}"),
            Self::Farewell(cause, why) => write!(f, "farewell: {cause}: {why}"),
            Self::AttachFailed(why) => write!(f, "cannot attach yet, trying on: {why}"),
            Self::Ended(reason) => write!(f, "ended: {reason}"),
        }
    }
}

/// Events kept for an application that does not ask for them; the oldest go first.
const EVENTS_MAX: usize = 64;

/// The state with the events that led to it.
#[derive(Debug)]
pub(crate) struct Standing {
    state: State,
    feed: FeedState,
    events: VecDeque<Event>,
    /// Events ever told.
    told: u64,
}

impl Standing {
    pub(crate) fn live() -> Self {
        let events = VecDeque::with_capacity(EVENTS_MAX);
        Self { state: State::Live, feed: FeedState::Live, events, told: 0 }
    }

    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    pub(crate) const fn is_live(&self) -> bool {
        matches!(self.state, State::Live)
    }

    pub(crate) const fn is_silent(&self) -> bool {
        matches!(self.state, State::Stale { cause: StaleCause::Silent, .. })
    }

    pub(crate) const fn ended(&self) -> Option<&EndReason> {
        match &self.state {
            State::Ended(reason) => Some(reason),
            _ => None,
        }
    }

    /// How the publisher's feed is, as it said last.
    pub(crate) const fn feed(&self) -> FeedState {
        self.feed
    }

    /// The publisher says how its feed is.
    #[inline]
    pub(crate) fn on_feed(&mut self, feed: FeedState) {
        if feed != self.feed {
            self.turn_feed(feed);
        }
    }

    #[cold]
    fn turn_feed(&mut self, feed: FeedState) {
        // Between two spells it was heard, if only for a moment that nobody looked in.
        if core::mem::replace(&mut self.feed, feed).is_silent() {
            self.tell(Event::FeedHeard);
        }
        if let FeedState::Silent { since } = feed {
            self.tell(Event::FeedSilent { since });
        }
    }

    /// Books are stale. An earlier reason gives way to a later one, but not its time.
    pub(crate) fn stale(&mut self, cause: StaleCause, now: Instant) {
        let since = match self.state {
            State::Live => now,
            State::Stale { cause: before, .. } if before == cause => return,
            State::Stale { since, .. } => since,
            State::Ended(_) => return,
        };
        self.state = State::Stale { since, cause };
        self.tell(Event::Stale(cause));
    }

    /// Books are live again because of `event`.
    pub(crate) fn revive(&mut self, event: Event) {
        if self.ended().is_none() {
            self.state = State::Live;
            self.tell(event);
        }
    }

    pub(crate) fn end(&mut self, reason: EndReason) {
        if self.ended().is_none() {
            self.tell(Event::Ended(reason.clone()));
            self.state = State::Ended(reason);
        }
    }

    pub(crate) fn tell(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.told += 1;
    }

    /// Events ever told: changes when something happens.
    pub(crate) const fn told(&self) -> u64 {
        self.told
    }

    pub(crate) fn drain(&mut self) -> std::collections::vec_deque::Drain<'_, Event> {
        self.events.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_without_a_sentence_has_no_dangling_colon() {
        assert_eq!(EndReason::Closing(String::new()).to_string(), "the publisher closed");
        let told = EndReason::Closing("SIGTERM".into()).to_string();
        assert_eq!(told, "the publisher closed: SIGTERM");
    }

    #[test]
    fn staleness_counts_from_its_first_reason() {
        let mut standing = Standing::live();
        let start = Instant::now();
        standing.stale(StaleCause::Silent, start);
        standing.stale(StaleCause::Crashed, start + std::time::Duration::from_secs(1));
        let expected = State::Stale { since: start, cause: StaleCause::Crashed };
        assert_eq!(standing.state(), &expected);
        let told: Vec<_> = standing.drain().collect();
        assert_eq!(told, [Event::Stale(StaleCause::Silent), Event::Stale(StaleCause::Crashed)]);
    }

    #[test]
    fn each_silence_of_the_feed_is_told_once_and_ends_before_the_next() {
        let mut standing = Standing::live();
        let silent = |since| FeedState::Silent { since: Nanos(since) };
        for feed in [FeedState::Live, silent(5), silent(5), silent(9), FeedState::Live] {
            standing.on_feed(feed);
            assert_eq!(standing.feed(), feed);
        }
        assert_eq!(standing.state(), &State::Live, "the publisher lives all the time");
        let told: Vec<_> = standing.drain().collect();
        let begins = |since| Event::FeedSilent { since: Nanos(since) };
        assert_eq!(told, [begins(5), Event::FeedHeard, begins(9), Event::FeedHeard]);
    }

    #[test]
    fn a_silent_feed_says_since_when() {
        let since = Nanos(1_709_303_400_000_000_000);
        let text = FeedState::Silent { since }.to_string();
        assert_eq!(text, "silent since 14:30:00 UTC");
        let told = Event::FeedSilent { since }.to_string();
        assert_eq!(told, "the publisher's feed is silent since 14:30:00 UTC: books may be old");
    }

    #[test]
    fn the_end_is_final() {
        let mut standing = Standing::live();
        standing.end(EndReason::EndOfSource);
        standing.revive(Event::Heard);
        standing.stale(StaleCause::Crashed, Instant::now());
        standing.end(EndReason::Crashed);
        assert_eq!(standing.state(), &State::Ended(EndReason::EndOfSource));
        assert_eq!(standing.drain().count(), 1);
    }

    #[test]
    fn events_that_nobody_reads_do_not_pile_up() {
        let mut standing = Standing::live();
        for _ in 0..3 * EVENTS_MAX {
            standing.tell(Event::Heard);
        }
        standing.tell(Event::AttachFailed("last".into()));
        assert_eq!(standing.drain().count(), EVENTS_MAX);
    }
}
