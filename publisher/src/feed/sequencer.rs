//! Sequence numbers: one run for the channel, one for each instrument.

use tapecast_wire::{Epoch, InstrumentId, Sequence};

/// Gives every snapshot its place in the channel and among its instrument's snapshots.
///
/// # Invariants
/// - The channel's last sequence is the sum of all instruments' last sequences.
#[derive(Debug)]
pub struct Sequencer {
    epoch: Epoch,
    channel: Sequence,
    instruments: Vec<Sequence>,
}

/// The place of one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Life of the publisher.
    pub epoch: Epoch,
    /// Number in the channel, from 1.
    pub channel_sequence: Sequence,
    /// Number among the instrument's snapshots, from 1.
    pub instrument_sequence: Sequence,
}

impl Sequencer {
    /// A sequencer for one life of the publisher, with room for `instruments`.
    #[must_use]
    pub fn new(epoch: Epoch, instruments: usize) -> Self {
        Self { epoch, channel: Sequence(0), instruments: Vec::with_capacity(instruments) }
    }

    /// The next place, for a snapshot of `instrument`.
    pub fn next(&mut self, instrument: InstrumentId) -> Place {
        let index = instrument.index();
        if index >= self.instruments.len() {
            self.instruments.resize(index + 1, Sequence(0));
        }
        self.instruments[index] = self.instruments[index].next();
        self.channel = self.channel.next();
        Place {
            epoch: self.epoch,
            channel_sequence: self.channel,
            instrument_sequence: self.instruments[index],
        }
    }

    /// Last sequence of the channel; 0 when there was none.
    #[must_use]
    pub const fn channel_sequence(&self) -> Sequence {
        self.channel
    }

    /// Last sequence of each instrument, indexed by id; 0 when there was none. May be shorter than
    /// the directory.
    #[must_use]
    pub fn instrument_sequences(&self) -> &[Sequence] {
        &self.instruments
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_channel_counts_all_and_each_instrument_its_own_from_one() {
        let mut sequencer = Sequencer::new(Epoch(9), 2);
        let places = [1, 0, 1, 1, 5].map(|id| sequencer.next(InstrumentId(id)));
        assert_eq!(places.map(|place| place.channel_sequence.0), [1, 2, 3, 4, 5]);
        assert_eq!(places.map(|place| place.instrument_sequence.0), [1, 1, 2, 3, 1]);
        assert!(places.iter().all(|place| place.epoch == Epoch(9)));
        assert_eq!(sequencer.instrument_sequences().len(), 6);
    }

    proptest! {
        #[test]
        fn the_channel_sequence_is_the_sum_of_the_instruments(
            ids in proptest::collection::vec(0u32..20, 0..300),
        ) {
            let mut sequencer = Sequencer::new(Epoch(1), 0);
            for id in &ids {
                sequencer.next(InstrumentId(*id));
            }
            let sum: u64 = sequencer.instrument_sequences().iter().map(|last| last.0).sum();
            prop_assert_eq!(sum, sequencer.channel_sequence().0);
            prop_assert_eq!(sum, ids.len() as u64);
        }
    }
}
