//! What one session tells the publisher: one page that exactly one subscriber writes.
//!
//! ```text
//! line 0   identity   magic | version | session id | epoch       (publisher, before handing over)
//! line 1   consumed   position | channel sequence | receives | seal   (once per batch)
//! line 2   counters   delivered | conflated | lost | lapped | initial images
//! line 3   latency    count | p50 | p99 | p99.9 | max, ns
//! line 4   armed      0, or the number of this arming: wake me through the descriptor
//! line 5   heartbeat  Unix ns
//! line 6   requests   number ever made | seal
//! line 7…  requests   the nth at word n mod 64: instrument id, plus 2^32 to drop it
//! line 15… transit    latencies by bucket | their sum, ns   (buckets: tapecast-telemetry)
//! line 21  clock      jitter, ns | offset, ns | error of that, ns | round trip, ns | negative
//! line 22… samples    channel sequence, latency in ns: that of time slot n at pair n mod 32
//! line 26… end to end ages by bucket | their sum, ns   (the same buckets)
//! line 31  start      where the session begins: the fabric's, not touched here
//! ```
//!
//! `negative` counts deliveries that by the two clocks came before they were published: no bucket
//! has them. `receives` counts the receive work requests that the subscriber ever posted, where its
//! fabric has such things. A request asks for the newest snapshot of one instrument, or drops one;
//! the publisher says how many it has taken, and the subscriber never has more than
//! [`CELL_REQUESTS`] of them open.
//!
//! Where the cell is written from afar, nothing says that a word arrives as a whole: a device may
//! copy byte by byte while the publisher reads. So what decides something there carries a seal over
//! its words, and what does not match its seal is looked at again later. A seal proves no honesty.
//!
//! After the publisher has handed it over it only reads, and trusts nothing: a hostile subscriber
//! can write anything at any time. Figures may come from two neighbouring updates; only the
//! consumed position decides anything, and that is checked against what is possible.

use tapecast_wire::limits::{PAGE_BYTES, WORD_BYTES};
use tapecast_wire::{Epoch, InstrumentId, Nanos, Position, Sequence, SessionId};

use crate::sync::{Ordering, fence};
use crate::words::{LINE_WORDS, Words, WordsMut};

/// Bytes of a cell.
pub const CELL_BYTES: usize = PAGE_BYTES;
/// Words of a cell.
pub const CELL_WORDS: usize = CELL_BYTES / WORD_BYTES;
/// Version of the cell's layout. Counts up with every change to this module's diagram.
pub const CELL_LAYOUT_VERSION: u64 = 6;
/// Requests that can be open at once.
pub const CELL_REQUESTS: u64 = 64;
/// The first word of the last line, which is the fabric's: where the session begins.
pub const CELL_START_WORD: usize = CELL_WORDS - LINE_WORDS;
/// Buckets of one distribution of latencies, and their sum.
pub const CELL_TRANSIT_WORDS: usize = 45;
/// Snapshots whose latency is told by itself: one for each time slot, the newest.
pub const CELL_SAMPLES: usize = 32;
/// Added to the instrument of a request that drops it.
const DROP: u64 = 1 << 32;

/// What a subscriber asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The newest snapshot of an instrument, and all that follow.
    Image(InstrumentId),
    /// Nothing more of an instrument.
    Drop(InstrumentId),
}

impl Request {
    const fn to_word(self) -> u64 {
        match self {
            Self::Image(instrument) => instrument.0 as u64,
            Self::Drop(instrument) => instrument.0 as u64 | DROP,
        }
    }

    /// `None` for a word that no honest subscriber writes.
    const fn from_word(word: u64) -> Option<Self> {
        let instrument = InstrumentId(word as u32);
        match word & !(u32::MAX as u64) {
            0 => Some(Self::Image(instrument)),
            DROP => Some(Self::Drop(instrument)),
            _ => None,
        }
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"tapecell");

const MAGIC_WORD: usize = 0;
const VERSION_WORD: usize = 1;
const SESSION_WORD: usize = 2;
const EPOCH_WORD: usize = 3;
const CONSUMED_WORD: usize = LINE_WORDS;
const CHANNEL_SEQUENCE_WORD: usize = LINE_WORDS + 1;
const COUNTERS_WORD: usize = 2 * LINE_WORDS;
const LATENCY_WORD: usize = 3 * LINE_WORDS;
const ARMED_WORD: usize = 4 * LINE_WORDS;
const HEARTBEAT_WORD: usize = 5 * LINE_WORDS;
const RECEIVES_WORD: usize = LINE_WORDS + 2;
const CREDIT_SEAL_WORD: usize = LINE_WORDS + 3;
const REQUESTS_WORD: usize = 6 * LINE_WORDS;
const REQUESTS_SEAL_WORD: usize = REQUESTS_WORD + 1;
const REQUEST_IDS_WORD: usize = 7 * LINE_WORDS;

const TRANSIT_WORD: usize = 15 * LINE_WORDS;
const CLOCK_WORD: usize = 21 * LINE_WORDS;
const NEGATIVE_WORD: usize = CLOCK_WORD + 4;
const SAMPLES_WORD: usize = 22 * LINE_WORDS;
const END_TO_END_WORD: usize = 26 * LINE_WORDS;
const TIMING_END_WORD: usize = END_TO_END_WORD + CELL_TRANSIT_WORDS;

const _: () = assert!(REQUEST_IDS_WORD + (CELL_REQUESTS as usize) <= TRANSIT_WORD);
const _: () = assert!(TRANSIT_WORD + CELL_TRANSIT_WORDS <= CLOCK_WORD);
const _: () = assert!(SAMPLES_WORD + 2 * CELL_SAMPLES <= END_TO_END_WORD);
const _: () = assert!(TIMING_END_WORD <= CELL_START_WORD);

/// The words that a batch changes: position, channel sequence, receives, seal.
pub const CREDIT_WORDS: core::ops::Range<usize> = CONSUMED_WORD..CREDIT_SEAL_WORD + 1;
/// The words of the counters.
pub const COUNTER_WORDS: core::ops::Range<usize> = COUNTERS_WORD..COUNTERS_WORD + 5;
/// The words of the latency figures.
pub const LATENCY_WORDS: core::ops::Range<usize> = LATENCY_WORD..LATENCY_WORD + 5;
/// The words of latencies by bucket, clock, samples and ages by bucket.
pub const TIMING_WORDS: core::ops::Range<usize> = TRANSIT_WORD..TIMING_END_WORD;
/// The word of the heartbeat.
pub const HEARTBEAT_WORDS: core::ops::Range<usize> = HEARTBEAT_WORD..HEARTBEAT_WORD + 1;
/// The word that counts requests, and its seal. Written after the ids that it counts.
pub const REQUEST_COUNT_WORDS: core::ops::Range<usize> = REQUESTS_WORD..REQUESTS_SEAL_WORD + 1;
/// The words of the requested ids.
pub const REQUEST_ID_WORDS: core::ops::Range<usize> =
    REQUEST_IDS_WORD..REQUEST_IDS_WORD + CELL_REQUESTS as usize;

/// A number that hardly any other words have: not a secret, only a sign that all of them arrived.
#[must_use]
pub fn seal(words: &[u64]) -> u64 {
    // Multiplying by an odd number loses nothing, and spreads a changed byte over all higher ones;
    // the shift brings them down again.
    words.iter().fold(0x7461_7065_6361_7374, |sum, word| {
        let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    })
}

/// What a session has received, since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellCounters {
    /// Snapshots delivered to the application.
    pub delivered: u64,
    /// Snapshots that a later one stood for.
    pub conflated: u64,
    /// Snapshots that were missing for no known reason. Stays 0.
    pub lost: u64,
    /// Times that the writer lapped this reader.
    pub lapped: u64,
    /// Initial images among the delivered snapshots.
    pub initial_images: u64,
}

/// Latency from publish to delivery as the session sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellLatency {
    /// Snapshots measured.
    pub count: u64,
    /// Median, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// 99.9th percentile, ns.
    pub p999_ns: u64,
    /// Largest, ns.
    pub max_ns: u64,
}

/// How long snapshots take to one session, for whoever watches over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellTiming {
    /// Latencies from publish to delivery since the session began: a count for each bucket, and
    /// their sum in nanoseconds.
    pub transit: [u64; CELL_TRANSIT_WORDS],
    /// Ages from the feed's receive time to delivery since the session began, in the same form.
    pub end_to_end: [u64; CELL_TRANSIT_WORDS],
    /// Deliveries since the session began that by the two clocks came before they were published:
    /// they are not among the latencies.
    pub negative: u64,
    /// Interarrival jitter (RFC 3550 §6.4.1), ns.
    pub jitter_ns: u64,
    /// How the two ends' clocks relate.
    pub clock: CellClock,
    /// One snapshot of each time slot: its channel sequence, 0 for none, and its latency in ns.
    pub samples: [(u64, u64); CELL_SAMPLES],
}

/// How the clock of a subscriber relates to that of its publisher, as the subscriber has measured
/// it over the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellClock {
    /// Subscriber's clock less publisher's, ns.
    pub offset_ns: i64,
    /// How wrong that may be, ns.
    pub error_ns: u64,
    /// The round trip that it was measured by, ns; 0 when nothing was measured.
    pub round_trip_ns: u64,
}

impl Default for CellTiming {
    fn default() -> Self {
        Self {
            transit: [0; CELL_TRANSIT_WORDS],
            end_to_end: [0; CELL_TRANSIT_WORDS],
            negative: 0,
            jitter_ns: 0,
            clock: CellClock::default(),
            samples: [(0, 0); CELL_SAMPLES],
        }
    }
}

/// Why memory is not the cell of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// The wrong size.
    #[error("session cell of {have} words, but it has {CELL_WORDS}")]
    Size {
        /// Words given.
        have: usize,
    },
    /// Not a cell.
    #[error("not a session cell: its first word is {found:#018x}")]
    Magic {
        /// First word.
        found: u64,
    },
    /// Another version.
    #[error(
        "session cell of layout version {theirs}, but this side writes {CELL_LAYOUT_VERSION}: run \
         the same release on both ends"
    )]
    Version {
        /// Version in the cell.
        theirs: u64,
    },
}

/// A consumed position that no honest subscriber announces. Evict the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumedError {
    /// Before one announced earlier.
    #[error("consumed position {announced} after {before}: it went backwards, evict the session")]
    Backwards {
        /// Announced now.
        announced: Position,
        /// Announced before.
        before: Position,
    },
    /// After everything that was ever written.
    #[error("consumed position {announced}, but only {tail} was written: evict the session")]
    BeyondTail {
        /// Announced now.
        announced: Position,
        /// The ring's tail.
        tail: Position,
    },
}

impl ConsumedError {
    /// What was announced.
    #[must_use]
    pub const fn announced(&self) -> Position {
        match *self {
            Self::Backwards { announced, .. } | Self::BeyondTail { announced, .. } => announced,
        }
    }
}

const fn check_size(have: usize) -> Result<(), CellError> {
    if have == CELL_WORDS { Ok(()) } else { Err(CellError::Size { have }) }
}

/// The publisher's end of a cell. It only reads, once the cell is made.
#[derive(Debug)]
pub struct CellReader {
    words: Words,
    session_id: SessionId,
    consumed: Position,
    served: u64,
}

impl CellReader {
    /// Writes the identity into a zeroed page, before the subscriber uses it. The session starts at
    /// `consumed`: everything before counts as consumed, and [`CellWriter::consumed`] tells the
    /// subscriber.
    ///
    /// # Errors
    /// [`CellError::Size`].
    pub fn create(
        words: &WordsMut,
        session_id: SessionId,
        epoch: Epoch,
        consumed: Position,
    ) -> Result<Self, CellError> {
        check_size(words.len())?;
        for (word, value) in [
            (VERSION_WORD, CELL_LAYOUT_VERSION),
            (SESSION_WORD, u64::from(session_id.0)),
            (EPOCH_WORD, epoch.0),
            (CONSUMED_WORD, consumed.0),
            (MAGIC_WORD, MAGIC),
        ] {
            words.atomics()[word].store(value, Ordering::Relaxed);
        }
        Ok(Self { words: words.reader(), session_id, consumed, served: 0 })
    }

    /// The session, as the publisher set it.
    #[must_use]
    pub const fn session_id(&self) -> SessionId {
        self.session_id
    }

    /// The consumed position, checked: it never goes back and is never beyond `tail`. What the
    /// subscriber read before it announced this position, it has finished reading.
    ///
    /// `tail` must not be older than what the subscriber can have seen: call this where the tail is
    /// committed, with the tail committed last.
    ///
    /// # Errors
    /// [`ConsumedError`] for a position that is impossible; the last good one stays.
    #[inline]
    pub fn consumed(&mut self, tail: Position) -> Result<Position, ConsumedError> {
        self.consumed_within(|| tail)
    }

    /// As [`Self::consumed`], from another thread than the one that writes the ring: `tail` looks
    /// at the tail after the announcement was looked at, so that it is not older than that.
    ///
    /// # Errors
    /// As [`Self::consumed`].
    #[inline]
    pub fn consumed_within(
        &mut self,
        tail: impl FnOnce() -> Position,
    ) -> Result<Position, ConsumedError> {
        // Acquire: pairs with the Release store in `CellWriter::set_consumed`, so that overwriting
        // comes after the subscriber's reading.
        let announced = Position(self.words.atomics()[CONSUMED_WORD].load(Ordering::Acquire));
        let tail = tail();
        if announced < self.consumed {
            return Err(ConsumedError::Backwards { announced, before: self.consumed });
        }
        if announced > tail {
            return Err(ConsumedError::BeyondTail { announced, tail });
        }
        self.consumed = announced;
        Ok(announced)
    }

    /// Consumed position and receives as the subscriber says, unchecked: for a fabric whose window
    /// judges both. What the subscriber read before it announced the position, it has finished
    /// reading; the receives are at least those posted when it did. `None` while they are being
    /// written.
    #[inline]
    #[must_use]
    pub fn claims(&self) -> Option<(Position, u64)> {
        // Acquire: pairs with the Release store in `CellWriter::set_consumed`.
        let consumed = self.words.atomics()[CONSUMED_WORD].load(Ordering::Acquire);
        let [sequence, receives, seal_found] =
            [CHANNEL_SEQUENCE_WORD, RECEIVES_WORD, CREDIT_SEAL_WORD].map(|word| self.word(word));
        let whole = seal(&[consumed, sequence, receives]) == seal_found;
        whole.then_some((Position(consumed), receives))
    }

    /// Requests that the subscriber says it ever made. Acquire: the ids they name are visible.
    /// `None` while they are being written.
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        let made = self.words.atomics()[REQUESTS_WORD].load(Ordering::Acquire);
        let whole = made == 0 || seal(&[made]) == self.word(REQUESTS_SEAL_WORD);
        whole.then_some(made)
    }

    /// The `nth` request, counted from 0, as the subscriber says. `None` when it says something
    /// that is no request.
    #[must_use]
    pub fn request(&self, nth: u64) -> Option<Request> {
        Request::from_word(self.word(REQUEST_IDS_WORD + (nth % CELL_REQUESTS) as usize))
    }

    /// The last good consumed position, without looking.
    #[must_use]
    pub const fn consumed_before(&self) -> Position {
        self.consumed
    }

    /// Channel sequence of the newest record consumed, as the subscriber says.
    #[must_use]
    pub fn channel_sequence(&self) -> Sequence {
        Sequence(self.word(CHANNEL_SEQUENCE_WORD))
    }

    /// Counters, as the subscriber says.
    #[must_use]
    pub fn counters(&self) -> CellCounters {
        let [delivered, conflated, lost, lapped, initial_images] = self.figures(COUNTERS_WORD);
        CellCounters { delivered, conflated, lost, lapped, initial_images }
    }

    /// Latency, as the subscriber says.
    #[must_use]
    pub fn latency(&self) -> CellLatency {
        let [count, p50_ns, p99_ns, p999_ns, max_ns] = self.figures(LATENCY_WORD);
        CellLatency { count, p50_ns, p99_ns, p999_ns, max_ns }
    }

    /// Latencies and ages by bucket, clock and samples, as the subscriber says.
    #[must_use]
    pub fn timing(&self) -> CellTiming {
        let word = |index| self.word(index);
        CellTiming {
            transit: self.figures(TRANSIT_WORD),
            end_to_end: self.figures(END_TO_END_WORD),
            negative: word(NEGATIVE_WORD),
            jitter_ns: word(CLOCK_WORD),
            clock: CellClock {
                offset_ns: word(CLOCK_WORD + 1).cast_signed(),
                error_ns: word(CLOCK_WORD + 2),
                round_trip_ns: word(CLOCK_WORD + 3),
            },
            samples: core::array::from_fn(|index| {
                (word(SAMPLES_WORD + 2 * index), word(SAMPLES_WORD + 2 * index + 1))
            }),
        }
    }

    /// When the subscriber last said that it lives, Unix ns; 0 for not yet.
    #[must_use]
    pub fn heartbeat(&self) -> Nanos {
        Nanos(self.word(HEARTBEAT_WORD))
    }

    /// Whether the subscriber asks to be woken and has not been since: true once per arming.
    ///
    /// Call it after having seen the tail move. Then either this call sees the arming or the
    /// subscriber's look at the tail after [`CellWriter::arm`] sees the tail: between the two
    /// sequentially consistent fences no wake-up is lost.
    pub fn take_armed(&mut self) -> bool {
        fence(Ordering::SeqCst);
        let armed = self.word(ARMED_WORD);
        let wanted = armed != 0 && armed != self.served;
        if wanted {
            self.served = armed;
        }
        wanted
    }

    fn word(&self, index: usize) -> u64 {
        self.words.atomics()[index].load(Ordering::Relaxed)
    }

    fn figures<const COUNT: usize>(&self, start: usize) -> [u64; COUNT] {
        core::array::from_fn(|index| self.word(start + index))
    }
}

/// The subscriber's end of a cell: the one writer.
#[derive(Debug)]
pub struct CellWriter {
    words: WordsMut,
    armings: u64,
}

impl CellWriter {
    /// Takes over a cell that the publisher has made.
    ///
    /// # Errors
    /// [`CellError`] when it is not one.
    pub fn open(words: WordsMut) -> Result<Self, CellError> {
        check_size(words.len())?;
        let load = |word: usize| words.atomics()[word].load(Ordering::Relaxed);
        let (found, theirs) = (load(MAGIC_WORD), load(VERSION_WORD));
        if found != MAGIC {
            return Err(CellError::Magic { found });
        }
        if theirs != CELL_LAYOUT_VERSION {
            return Err(CellError::Version { theirs });
        }
        let armings = load(ARMED_WORD);
        Ok(Self { words, armings })
    }

    /// The session that the publisher made the cell for.
    #[must_use]
    pub fn session_id(&self) -> SessionId {
        SessionId(self.load(SESSION_WORD) as u32)
    }

    /// Life of the publisher that made the cell.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.load(EPOCH_WORD))
    }

    /// Position up to which everything is consumed, as announced last; at first the one that the
    /// publisher gates from.
    #[must_use]
    pub fn consumed(&self) -> Position {
        Position(self.load(CONSUMED_WORD))
    }

    /// Announces that everything before `position` is consumed: bytes lent from there are given
    /// back. Once per batch.
    #[inline]
    pub fn set_consumed(&self, position: Position, channel_sequence: Sequence) {
        let words = self.words.atomics();
        words[CHANNEL_SEQUENCE_WORD].store(channel_sequence.0, Ordering::Relaxed);
        // Release: pairs with the Acquire load in `CellReader::consumed`.
        words[CONSUMED_WORD].store(position.0, Ordering::Release);
    }

    /// Says how many receive work requests were ever posted. Comes before the
    /// [`Self::set_consumed`] that makes it known.
    #[inline]
    pub fn set_receives(&self, posted: u64) {
        self.store(RECEIVES_WORD, posted);
    }

    /// Seals what [`Self::set_receives`] and [`Self::set_consumed`] have announced, where the cell
    /// is read through [`CellReader::claims`].
    #[inline]
    pub fn seal_credit(&self) {
        let words = [CONSUMED_WORD, CHANNEL_SEQUENCE_WORD, RECEIVES_WORD];
        self.store(CREDIT_SEAL_WORD, seal(&words.map(|word| self.load(word))));
    }

    /// Makes the `nth` request, counted from 0. The publisher has taken all but the last
    /// [`CELL_REQUESTS`] before it.
    pub fn set_request(&self, nth: u64, request: Request) {
        self.store(REQUEST_IDS_WORD + (nth % CELL_REQUESTS) as usize, request.to_word());
        self.store(REQUESTS_SEAL_WORD, seal(&[nth + 1]));
        // Release: pairs with the Acquire load in `CellReader::requests`.
        self.words.atomics()[REQUESTS_WORD].store(nth + 1, Ordering::Release);
    }

    /// Requests ever made.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.load(REQUESTS_WORD)
    }

    /// Announces the counters.
    #[inline]
    pub fn set_counters(&self, counters: &CellCounters) {
        let CellCounters { delivered, conflated, lost, lapped, initial_images } = *counters;
        self.set_figures(COUNTERS_WORD, [delivered, conflated, lost, lapped, initial_images]);
    }

    /// Announces the latency figures.
    pub fn set_latency(&self, latency: &CellLatency) {
        let CellLatency { count, p50_ns, p99_ns, p999_ns, max_ns } = *latency;
        self.set_figures(LATENCY_WORD, [count, p50_ns, p99_ns, p999_ns, max_ns]);
    }

    /// Announces latencies and ages by bucket, clock and samples.
    pub fn set_timing(&self, timing: &CellTiming) {
        let CellTiming { transit, end_to_end, negative, jitter_ns, clock, samples } = timing;
        self.set_figures(TRANSIT_WORD, *transit);
        self.set_figures(END_TO_END_WORD, *end_to_end);
        let CellClock { offset_ns, error_ns, round_trip_ns } = *clock;
        let words = [*jitter_ns, offset_ns.cast_unsigned(), error_ns, round_trip_ns];
        self.set_figures(CLOCK_WORD, words);
        self.store(NEGATIVE_WORD, *negative);
        for (index, (sequence, latency_ns)) in samples.iter().enumerate() {
            self.store(SAMPLES_WORD + 2 * index, *sequence);
            self.store(SAMPLES_WORD + 2 * index + 1, *latency_ns);
        }
    }

    /// Says that the subscriber lives.
    #[inline]
    pub fn set_heartbeat(&self, now: Nanos) {
        self.store(HEARTBEAT_WORD, now.0);
    }

    /// Asks to be woken once through the descriptor. Look at the tail again afterwards, and sleep
    /// only when it has not moved; see [`CellReader::take_armed`].
    pub fn arm(&mut self) {
        self.armings = self.armings.wrapping_add(1).max(1);
        self.store(ARMED_WORD, self.armings);
        fence(Ordering::SeqCst);
    }

    /// Takes [`Self::arm`] back.
    pub fn disarm(&self) {
        self.store(ARMED_WORD, 0);
    }

    fn load(&self, index: usize) -> u64 {
        self.words.atomics()[index].load(Ordering::Relaxed)
    }

    fn store(&self, index: usize, value: u64) {
        self.words.atomics()[index].store(value, Ordering::Relaxed);
    }

    fn set_figures<const COUNT: usize>(&self, start: usize, figures: [u64; COUNT]) {
        for (index, figure) in figures.into_iter().enumerate() {
            self.store(start + index, figure);
        }
    }
}
