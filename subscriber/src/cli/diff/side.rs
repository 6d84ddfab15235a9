//! One journal of a comparison, read snapshot by snapshot.

use std::collections::HashMap;
use std::path::Path;

use tapecast_journal::{Entry, How, OpenError, Series};
use tapecast_subscriber::{Epoch, Flags};
use tapecast_wire::Snapshot;

use super::content::Content;

/// How the snapshots of one instrument are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairing {
    /// By their numbers: both journals are of one life of a publisher.
    InstrumentSequence,
    /// By the feed's numbers.
    FeedSequence,
}

/// Place of a snapshot among its instrument's. Rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// How often the numbers began again: another session of the feed, another epoch.
    lap: u64,
    pub(super) number: u64,
    /// How many with this number came before.
    again: u64,
}

/// Symbol and venue.
pub(super) type Name = (String, String);

/// One snapshot.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: Name,
    pub(super) key: Key,
    pub(super) content: Content,
}

/// One journal.
#[derive(Debug)]
pub(super) struct Side {
    series: Series,
    last: HashMap<Name, Key>,
    snapshots: u64,
    lost: u64,
    is_over: bool,
    note: Option<String>,
    is_usable: bool,
}

impl Side {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            series: Series::open(path)?,
            last: HashMap::new(),
            snapshots: 0,
            lost: 0,
            is_over: false,
            note: None,
            is_usable: true,
        })
    }

    /// Life of the publisher that it begins with.
    pub(super) const fn epoch(&self) -> Epoch {
        self.series.header().epoch
    }

    pub(super) fn path(&self) -> &Path {
        self.series.path()
    }

    pub(super) const fn origin(&self) -> &'static str {
        self.series.header().origin.name()
    }

    pub(super) const fn snapshots(&self) -> u64 {
        self.snapshots
    }

    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether nothing in it was damaged.
    pub(super) const fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// How its last file ended.
    pub(super) fn ending(&self) -> &'static str {
        self.series.ending().map_or("open", |ending| ending.how.word())
    }

    /// What is to be said about how its files ended.
    pub(super) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The next snapshot.
    pub(super) fn next(
        &mut self,
        pairing: Pairing,
        exact: bool,
    ) -> Result<Option<Found>, OpenError> {
        while !self.is_over {
            if !self.series.advance()? {
                self.go_on()?;
                continue;
            }
            let Some(record) = self.series.record() else { continue };
            match record.entry {
                Entry::Instrument(_) => {}
                Entry::Hole(hole) => self.lost = self.lost.saturating_add(hole.lost),
                Entry::Snapshot { snapshot, instrument } => {
                    self.snapshots += 1;
                    let name = instrument.map_or_else(
                        || (format!("#{}", snapshot.instrument_id()), String::new()),
                        |known| (known.symbol.clone(), known.venue.clone()),
                    );
                    let exponent = instrument.map_or(0, |known| known.quantity_exponent);
                    let content = Content::of(&record, &snapshot, exponent, exact);
                    let last = self.last.get(&name).copied();
                    if let Some(key) = key_after(last, &snapshot, pairing) {
                        self.last.insert(name.clone(), key);
                        return Ok(Some(Found { name, key, content }));
                    }
                }
            }
        }
        Ok(None)
    }

    fn go_on(&mut self) -> Result<(), OpenError> {
        let ending = self.series.ending();
        if let Some(ending) = ending.filter(|ending| ending.how != How::Closed) {
            self.note
                .get_or_insert_with(|| format!("{} is {ending}", self.series.file().display()));
        }
        // What follows damage in another file is not compared: nobody knows what is missing.
        self.is_usable = ending.is_none_or(|ending| ending.is_usable());
        self.is_over = !self.is_usable || !self.series.next_file()?;
        Ok(())
    }
}

/// Key of a snapshot that follows `last`. `None` for an image of what was there already: a
/// subscriber that attaches again receives it a second time.
fn key_after(last: Option<Key>, snapshot: &Snapshot<'_>, pairing: Pairing) -> Option<Key> {
    let number = match pairing {
        Pairing::InstrumentSequence => snapshot.instrument_sequence().get(),
        Pairing::FeedSequence => snapshot.header().feed_sequence,
    };
    let Some(last) = last else { return Some(Key { lap: 0, number, again: 0 }) };
    if number > last.number {
        return Some(Key { number, again: 0, ..last });
    }
    let is_image = snapshot.flags().contains(Flags::INITIAL_IMAGE);
    if pairing == Pairing::InstrumentSequence && is_image && number == last.number {
        return None;
    }
    if number == last.number {
        return Some(Key { again: last.again + 1, ..last });
    }
    Some(Key { lap: last.lap + 1, number, again: 0 })
}
