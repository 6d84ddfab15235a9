//! The feed: instruments, snapshots, and when there are how many of them.

use tapecast_fabric::Fabric;
use tapecast_fabric::pool::{AppendError, PageWriter, Shared};
use tapecast_wire::limits::record_bytes_max;
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentId, Nanos, Sequence, SnapshotFields, TradingStatus,
    encode_snapshot,
};

use super::book::Book;
use super::dice::Dice;
use super::event::Event;
use super::history::{Issue, Track};
use super::world::World;

/// How much there is to publish in a turn.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Silence,
    Trickle,
    Steady,
    Burst,
}

/// Where the feed is.
#[derive(Debug)]
pub(super) struct FeedState {
    dice: Dice,
    mood: Mood,
    sequence: u64,
    /// Messages were lost since the last snapshot.
    pub(super) has_gap: bool,
    /// The page that is being filled.
    pub(super) page: Option<PageWriter>,
    /// Instruments that have one more snapshot to come before the run ends.
    pub(super) last_round: Vec<u32>,
}

/// A snapshot was not published: a lossless session has no room, or the pool is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held;

impl FeedState {
    pub(super) const fn new(dice: Dice) -> Self {
        Self {
            dice,
            mood: Mood::Steady,
            sequence: 0,
            has_gap: false,
            page: None,
            last_round: Vec::new(),
        }
    }
}

impl World {
    /// What the feed brings in one turn.
    pub(super) fn play_feed(&mut self) {
        if self.history.healed {
            while let Some(instrument) = self.feed.last_round.last().copied()
                && self.publish(instrument).is_ok()
            {
                self.feed.last_round.pop();
            }
            return;
        }
        let feed = self.history.plan.feed;
        let dice = &mut self.feed.dice;
        if dice.chance(feed.moods) {
            self.feed.mood =
                dice.pick(&[Mood::Silence, Mood::Trickle, Mood::Steady, Mood::Steady, Mood::Burst]);
        }
        let count = match self.feed.mood {
            Mood::Silence => 0,
            Mood::Trickle => dice.below(3),
            Mood::Steady => dice.below(9),
            Mood::Burst => {
                self.feed.mood = Mood::Steady;
                feed.burst
            }
        };
        for _ in 0..count {
            let listed = self.history.tracks.len() as u64;
            if listed == 0 {
                return;
            }
            let dice = &mut self.feed.dice;
            let hot = if dice.chance(500) { listed.min(2) } else { listed };
            let instrument = dice.below(hot) as u32;
            let splits = dice.chance(feed.splits);
            if self.publish(instrument).is_err() {
                return;
            }
            if splits {
                self.fabric.flush(Nanos(self.now));
            }
        }
    }

    /// Publishes the next snapshot of an instrument.
    pub(super) fn publish(&mut self, instrument: u32) -> Result<(), Held> {
        let feed_sequence = self.feed.sequence + 1 + if self.feed.has_gap { 17 } else { 0 };
        let issue = Issue {
            channel: self.history.channel + 1,
            turn: self.history.turn,
            feed_sequence,
            suspect: self.feed.has_gap,
        };
        let record = self.encode(instrument, &issue).ok_or(Held)?;
        if self.feed.dice.chance(self.history.plan.feed.own_pages) {
            self.feed.page = None;
        }
        if self.fabric.publish(record).is_err() {
            self.tell(&Event::Refused { instrument });
            return Err(Held);
        }
        self.feed.sequence = feed_sequence;
        self.feed.has_gap = false;
        self.history.channel += 1;
        let track = &mut self.history.tracks[instrument as usize];
        track.issues.push(issue);
        let sequence = track.newest();
        self.tell(&Event::Published { instrument, sequence });
        Ok(())
    }

    fn encode(&mut self, instrument: u32, issue: &Issue) -> Option<Shared> {
        let levels = self.history.plan.network.levels_per_side;
        let sequence = self.history.tracks[instrument as usize].newest() + 1;
        let book = Book::of(self.history.epoch, instrument, sequence, levels);
        let fields = SnapshotFields {
            instrument_id: InstrumentId(instrument),
            flags: Flags::NONE.with_if(Flags::SUSPECT, issue.suspect),
            trading_status: TradingStatus::Trading,
            epoch: Epoch(self.history.epoch),
            channel_sequence: Sequence(issue.channel),
            instrument_sequence: Sequence(sequence),
            feed_sequence: issue.feed_sequence,
            ts_event: book.ts_event,
            ts_recv: self.now,
            last_trade_price: book.last_trade_price,
            last_trade_quantity: 1,
        };
        loop {
            let page = match &mut self.feed.page {
                Some(page) => page,
                empty => empty.insert(self.pool.loan()?),
            };
            let room = record_bytes_max(levels);
            let appended =
                page.append(room, |room| encode_snapshot(room, &fields, &book.bids, &book.asks));
            match appended {
                Ok(mut filled) => {
                    filled.stamp_publish(Nanos(self.now));
                    return Some(filled.share());
                }
                Err(AppendError::NoRoom { .. }) => self.feed.page = None,
                Err(AppendError::Write(error)) => panic!("a book is not encoded: {error}"),
            }
        }
    }

    /// Lists one more instrument, or changes the entry of one when there is no room.
    pub(super) fn announce(&mut self) {
        let listed = self.history.tracks.len();
        let index = if listed < self.history.plan.network.instruments {
            self.history.tracks.push(Track::default());
            listed
        } else {
            self.feed.dice.below(listed as u64) as usize
        };
        let lot = self.history.tracks[index].lot + 1;
        self.history.tracks[index].lot = lot;
        let id = InstrumentId(index as u32);
        let mut entry = Instrument::new(id, &format!("SYM{id}"), "XSIM");
        entry.lot_size = lot;
        self.fabric.upsert_instrument(&entry.to_wire()).expect("the directory has room for it");
        self.tell(&Event::Announced { instrument: id.0, lot });
    }
}
