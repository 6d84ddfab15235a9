//! Records that prove themselves: every word follows from the record's number, its instrument and
//! its place, so one word from anywhere else is seen.

use tapecast_wire::{InstrumentId, Sequence};

/// A record of `bytes` bytes, a multiple of 8 and at least 48.
pub(crate) fn record(bytes: usize, id: InstrumentId, sequence: u64) -> Vec<u8> {
    let mut words: Vec<u64> = (0..bytes / 8).map(|place| scramble(id, sequence, place)).collect();
    words[0] = bytes as u64 | 96 << 16 | 1 << 32 | 2 << 48;
    words[2] = u64::from(id.0);
    words[4] = sequence;
    words[5] = sequence;
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Instrument and number of a record, when every byte of it is right.
pub(crate) fn prove(bytes: &[u8]) -> Option<(InstrumentId, Sequence)> {
    let word = |place: usize| {
        let word = bytes.get(place * 8..place * 8 + 8)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    };
    let (id, sequence) = (InstrumentId(word(2)? as u32), word(5)?);
    (bytes == record(bytes.len(), id, sequence)).then_some((id, Sequence(sequence)))
}

/// One step of SplitMix64, started from all that identifies a word.
fn scramble(id: InstrumentId, sequence: u64, place: usize) -> u64 {
    let start = sequence ^ u64::from(id.0) << 48 ^ (place as u64) << 32;
    let mut state = start.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}
