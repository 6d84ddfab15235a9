//! The whole exchange: its day from the first system event to the last.
//!
//! ```text
//! 09:29:59.0  start of messages, directory, statuses
//! 09:29:59.1  orders before the open
//! 09:30:00.0  start of market hours, opening crosses, burst, calm, halts, quiet spells
//! end         closing crosses, end of market, of system hours, of messages
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::clock::{Clock, NANOS_PER_SECOND, OPEN_NS, START_NS, nanos};
use super::config::{SessionLength, SyntheticConfig, SyntheticError};
use super::draws::{Draws, Popularity};
use super::listing::{Listing, Numbers, Tape, Trading};
use crate::source::Side;
use crate::source::itch_encode::{ItchHeader, ItchMessage, encode_itch, stock};

/// Orders before the open are spread over this time.
const SEEDING_FROM_NS: u64 = START_NS + NANOS_PER_SECOND / 10;
const SEEDING_NS: u64 = NANOS_PER_SECOND * 8 / 10;
/// Time between messages that come in a row: directory, statuses, crosses.
const ROW_NS: u64 = 1_000;
/// A halt lasts as long on average, and so does the quotation period after it.
const HALT_MEAN_NS: u64 = NANOS_PER_SECOND / 2;
/// System events at the end.
const ENDING: [u8; 3] = *b"MEC";

/// Where the day has got to; numbers count what has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting(usize),
    Directory(usize),
    Statuses(usize),
    Seeding(usize),
    Opening,
    Crosses(usize),
    Market,
    ClosingCrosses(usize),
    Ending(usize),
    Over,
}

/// The next step in the life of a halt, ordered by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HaltStep {
    at_ns: u64,
    rank: usize,
    resume: bool,
}

/// A seeded exchange that says everything it does in ITCH 5.0.
#[derive(Debug)]
pub struct Exchange {
    config: SyntheticConfig,
    draws: Draws,
    popularity: Popularity,
    listings: Vec<Listing>,
    clock: Clock,
    numbers: Numbers,
    phase: Phase,
    halts: BinaryHeap<Reverse<HaltStep>>,
    next_halt_ns: u64,
    messages: u64,
    live_orders: usize,
    last_timestamp_ns: u64,
}

impl Exchange {
    /// An exchange before its first message.
    ///
    /// # Errors
    /// [`SyntheticError`] when the configuration cannot be.
    pub fn new(config: &SyntheticConfig) -> Result<Self, SyntheticError> {
        config.check()?;
        let mut draws = Draws::new(config.seed);
        let listings = (0..config.instruments)
            .map(|rank| Listing::new(stock(&config.symbol(rank)), &mut draws))
            .collect();
        let clock = Clock::new(config, &mut draws);
        let next_halt_ns = match nanos(config.halt_every) {
            0 => u64::MAX,
            mean => OPEN_NS + draws.exponential(mean),
        };
        Ok(Self {
            config: config.clone(),
            draws,
            popularity: Popularity::new(config.instruments),
            listings,
            clock,
            numbers: Numbers::default(),
            phase: Phase::Starting(0),
            halts: BinaryHeap::new(),
            next_halt_ns,
            messages: 0,
            live_orders: 0,
            last_timestamp_ns: START_NS,
        })
    }

    /// Messages so far.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Orders in all books.
    #[must_use]
    pub const fn live_orders(&self) -> usize {
        self.live_orders
    }

    /// Time of the last message, nanoseconds since midnight.
    #[must_use]
    pub const fn last_timestamp_ns(&self) -> u64 {
        self.last_timestamp_ns
    }

    /// Directory messages of the day, each with its length prefix.
    #[must_use]
    pub fn directory(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for rank in 0..self.listings.len() {
            encode_itch(&mut out, header(rank, START_NS), &self.directory_entry(rank));
        }
        out
    }

    /// Appends the messages of the next event, each with its length prefix. False when the day is
    /// over, and then nothing was appended.
    pub fn step(&mut self, out: &mut Vec<u8>) -> bool {
        loop {
            let before = self.messages;
            match self.phase {
                Phase::Over => return false,
                Phase::Market => self.market(out),
                Phase::Starting(_) | Phase::Directory(_) | Phase::Statuses(_) => self.start(out),
                Phase::Seeding(done) => self.seed(done, out),
                Phase::Opening | Phase::Crosses(_) => self.open(out),
                Phase::ClosingCrosses(_) | Phase::Ending(_) => self.close(out),
            }
            if self.messages > before {
                return true;
            }
        }
    }

    /// Messages that may be written before the day has to end.
    const fn room(&self) -> u64 {
        match self.config.length {
            SessionLength::Messages(total) => {
                let opening = matches!(self.phase, Phase::Seeding(_)) as u64;
                total.saturating_sub(self.messages + opening + self.closing_messages(total))
            }
            SessionLength::Duration(_) | SessionLength::Endless => u64::MAX,
        }
    }

    /// Messages kept for the end: closing crosses only when the day is long enough for them.
    const fn closing_messages(&self, total: u64) -> u64 {
        ENDING.len() as u64 + if self.has_closing_crosses(total) { self.crosses() } else { 0 }
    }

    const fn has_closing_crosses(&self, total: u64) -> bool {
        total >= self.config.least_messages() + 8 * self.crosses()
    }

    const fn crosses(&self) -> u64 {
        self.config.instruments as u64
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        let at_ns = if self.messages == 0 { START_NS } else { self.last_timestamp_ns + ROW_NS };
        match self.phase {
            Phase::Starting(done) => {
                self.system_event(b"OS"[done], at_ns, out);
                self.phase = if done == 0 { Phase::Starting(1) } else { Phase::Directory(0) };
            }
            Phase::Directory(rank) => {
                self.say(rank, at_ns, &self.directory_entry(rank), out);
                let more = rank + 1 < self.listings.len();
                self.phase = if more { Phase::Directory(rank + 1) } else { Phase::Statuses(0) };
            }
            Phase::Statuses(rank) => {
                self.status(rank, at_ns, (b'T', b"    "), out);
                let more = rank + 1 < self.listings.len();
                self.phase = if more { Phase::Statuses(rank + 1) } else { Phase::Seeding(0) };
            }
            _ => {}
        }
    }

    fn directory_entry(&self, rank: usize) -> ItchMessage {
        ItchMessage::Directory { stock: self.listings[rank].stock, round_lot: 100 }
    }

    /// Orders before the open, to half of what each instrument tends to.
    fn seed(&mut self, done: usize, out: &mut Vec<u8>) {
        let instruments = self.listings.len();
        let total = instruments * (self.config.orders_per_instrument as usize / 2);
        if done >= total || self.room() == 0 {
            self.phase = Phase::Opening;
            return;
        }
        let at_ns = SEEDING_FROM_NS + SEEDING_NS * done as u64 / total as u64;
        let side = if (done / instruments).is_multiple_of(2) { Side::Bid } else { Side::Ask };
        self.with_listing(done % instruments, at_ns, out, |listing, draws, tape| {
            listing.add(side, draws, tape);
        });
        self.phase = Phase::Seeding(done + 1);
    }

    fn open(&mut self, out: &mut Vec<u8>) {
        match self.phase {
            Phase::Opening => {
                self.system_event(b'Q', OPEN_NS, out);
                self.phase = Phase::Crosses(0);
            }
            Phase::Crosses(rank) if rank < self.listings.len() && self.room() > 0 => {
                self.clock.advance_to(OPEN_NS + ROW_NS * (rank as u64 + 1));
                let at_ns = self.clock.now_ns();
                self.with_listing(rank, at_ns, out, |listing, draws, tape| {
                    listing.cross(b'O', draws, tape);
                });
                self.phase = Phase::Crosses(rank + 1);
            }
            _ => self.phase = Phase::Market,
        }
    }

    fn market(&mut self, out: &mut Vec<u8>) {
        if self.is_closing_time() {
            let crosses = match self.config.length {
                SessionLength::Messages(total) => self.has_closing_crosses(total),
                SessionLength::Duration(_) | SessionLength::Endless => true,
            };
            self.phase = if crosses { Phase::ClosingCrosses(0) } else { Phase::Ending(0) };
            return;
        }
        self.clock.tick(&mut self.draws);
        let now_ns = self.clock.now_ns();
        if let Some(Reverse(step)) = self.halts.peek().copied()
            && step.at_ns <= now_ns
        {
            self.halts.pop();
            return self.continue_halt(step, out);
        }
        if now_ns >= self.next_halt_ns {
            return self.halt(out);
        }
        let rank = self.popularity.pick(&mut self.draws);
        let target = self.config.orders_per_instrument as usize;
        self.with_listing(rank, now_ns, out, |listing, draws, tape| {
            listing.act(target, draws, tape);
        });
    }

    fn is_closing_time(&self) -> bool {
        match self.config.length {
            SessionLength::Messages(_) => self.room() == 0,
            SessionLength::Duration(length) => self.clock.now_ns() >= OPEN_NS + nanos(length),
            SessionLength::Endless => false,
        }
    }

    /// Halts an instrument, or pauses it after a price move.
    fn halt(&mut self, out: &mut Vec<u8>) {
        let now_ns = self.clock.now_ns();
        self.next_halt_ns = now_ns + self.draws.exponential(nanos(self.config.halt_every)).max(1);
        let rank = self.popularity.pick(&mut self.draws);
        if self.listings[rank].trading == Trading::Halted {
            return;
        }
        self.listings[rank].trading = Trading::Halted;
        let news = self.draws.chance(500);
        self.status(rank, now_ns, if news { (b'H', b"T1  ") } else { (b'P', b"LUDP") }, out);
        self.schedule(rank, false);
    }

    /// Quotation first, then a cross and trading again, as one event.
    fn continue_halt(&mut self, step: HaltStep, out: &mut Vec<u8>) {
        let (rank, now_ns) = (step.rank, self.clock.now_ns());
        if !step.resume {
            self.status(rank, now_ns, (b'Q', b"R4  "), out);
            return self.schedule(rank, true);
        }
        if self.room() > 1 {
            self.with_listing(rank, now_ns, out, |listing, draws, tape| {
                // Room for the status that follows.
                tape.room -= 1;
                listing.cross(b'H', draws, tape);
            });
        }
        self.listings[rank].trading = Trading::Open;
        self.status(rank, now_ns, (b'T', b"    "), out);
    }

    fn schedule(&mut self, rank: usize, resume: bool) {
        let at_ns = self.clock.now_ns() + self.draws.exponential(HALT_MEAN_NS);
        self.halts.push(Reverse(HaltStep { at_ns, rank, resume }));
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        self.clock.advance_to(self.last_timestamp_ns + ROW_NS);
        let at_ns = self.clock.now_ns();
        match self.phase {
            Phase::ClosingCrosses(rank) if rank < self.listings.len() => {
                self.with_listing(rank, at_ns, out, |listing, draws, tape| {
                    tape.room = 1;
                    listing.cross(b'C', draws, tape);
                });
                self.phase = Phase::ClosingCrosses(rank + 1);
            }
            Phase::Ending(done) if done < ENDING.len() => {
                self.system_event(ENDING[done], at_ns, out);
                self.phase = Phase::Ending(done + 1);
            }
            Phase::ClosingCrosses(_) => self.phase = Phase::Ending(0),
            _ => self.phase = Phase::Over,
        }
    }

    fn with_listing(
        &mut self,
        rank: usize,
        at_ns: u64,
        out: &mut Vec<u8>,
        act: impl FnOnce(&mut Listing, &mut Draws, &mut Tape<'_>),
    ) {
        let room = self.room();
        let header = header(rank, at_ns);
        let mut tape = Tape { out, header, numbers: &mut self.numbers, room, written: 0 };
        let listing = &mut self.listings[rank];
        let before = listing.orders.len();
        act(listing, &mut self.draws, &mut tape);
        self.messages += tape.written;
        self.live_orders = self.live_orders + listing.orders.len() - before;
        self.last_timestamp_ns = at_ns;
    }

    fn status(&mut self, rank: usize, at_ns: u64, said: (u8, &[u8; 4]), out: &mut Vec<u8>) {
        let (stock, state, reason) = (self.listings[rank].stock, said.0, *said.1);
        self.say(rank, at_ns, &ItchMessage::TradingAction { stock, state, reason }, out);
    }

    fn say(&mut self, rank: usize, at_ns: u64, message: &ItchMessage, out: &mut Vec<u8>) {
        encode_itch(out, header(rank, at_ns), message);
        self.messages += 1;
        self.last_timestamp_ns = at_ns;
    }

    fn system_event(&mut self, code: u8, timestamp_ns: u64, out: &mut Vec<u8>) {
        let header = ItchHeader { locate: 0, tracking: 0, timestamp_ns };
        encode_itch(out, header, &ItchMessage::SystemEvent { code });
        self.messages += 1;
        self.last_timestamp_ns = timestamp_ns;
    }
}

/// Locate codes count from 1, in order of rank.
const fn header(rank: usize, timestamp_ns: u64) -> ItchHeader {
    ItchHeader { locate: rank as u16 + 1, tracking: 0, timestamp_ns }
}
