//! A region, ring and tables whose memory somebody else filled: readers refuse or read, bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapecast_ring::{RecordBuffer, RegionLayout, RegionReader, RegionWriter, WordsMut};
use tapecast_wire::{Epoch, InstrumentId};

const INSTRUMENTS: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let layout = RegionLayout::new(64 * 1024, INSTRUMENTS, 2).expect("a small region");
    let words = WordsMut::heap(layout.total_bytes() as usize / 8);
    RegionWriter::create(words.clone(), &layout, Epoch(1)).expect("zeroed memory");
    // Each ten bytes of input overwrite one word: the first two choose which.
    for patch in bytes.chunks_exact(10) {
        let (place, value) = patch.split_at(2);
        let place = u16::from_le_bytes([place[0], place[1]]) as usize;
        let value = u64::from_le_bytes(value.try_into().expect("eight bytes"));
        words.store(place % words.len(), value);
    }
    let Ok(region) = RegionReader::open(words.reader()) else { return };
    let _ = (region.state(), region.heartbeat(), region.tail(), region.channel_sequence());
    let _ = region.feed_silent_since();
    let mut buffer = RecordBuffer::new();
    let (Ok(latest), Ok(directory)) = (region.latest(), region.directory()) else { return };
    for id in 0..INSTRUMENTS as u32 + 1 {
        let _ = directory.entry(InstrumentId(id));
        if (id as usize) < INSTRUMENTS {
            let _ = latest.load(InstrumentId(id), &mut buffer);
        }
    }
    let Ok(mut reader) = region.broadcast_at(tapecast_wire::Position(0)) else { return };
    for _ in 0..2048 {
        match reader.next(&mut buffer) {
            Ok(Some(record)) => {
                let _ = tapecast_wire::Snapshot::parse(record.into_bytes());
            }
            Ok(None) => return,
            Err(_) => reader.seek(reader.tail()),
        }
    }
});
