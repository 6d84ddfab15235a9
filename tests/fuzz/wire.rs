//! Records, directory entries and handshake messages from arbitrary bytes: parsed or refused, and
//! what is accepted survives a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tapecast_wire::attach::{FRAME_HEAD_BYTES, FrameHead, Message};
use tapecast_wire::limits::PAGE_BYTES;
use tapecast_wire::{Instrument, InstrumentEntry, Snapshot};
use zerocopy::FromBytes;

#[repr(C, align(8))]
struct Page([u8; PAGE_BYTES]);

fuzz_target!(|bytes: &[u8]| {
    let mut page = Page([0; PAGE_BYTES]);
    let len = bytes.len().min(PAGE_BYTES);
    page.0[..len].copy_from_slice(&bytes[..len]);
    if let Ok(snapshot) = Snapshot::parse(&page.0[..len]) {
        let levels = snapshot.bids().len() + snapshot.asks().len();
        assert_eq!(
            levels,
            usize::from(snapshot.header().bid_count) + usize::from(snapshot.header().ask_count)
        );
        let _ = (snapshot.best_bid(), snapshot.best_ask(), snapshot.last_trade());
        assert!(snapshot.flags().names().count() <= 9);
    }
    if let Ok((entry, _)) = InstrumentEntry::read_from_prefix(bytes)
        && let Ok(instrument) = Instrument::from_wire(&entry)
    {
        assert_eq!(Instrument::from_wire(&instrument.to_wire()), Ok(instrument));
    }
    if let Some((head, payload)) = bytes.split_first_chunk::<FRAME_HEAD_BYTES>()
        && let Ok(head) = FrameHead::parse(*head)
        && let Ok(message) = Message::decode(head, payload)
    {
        let frame = message.encode().expect("a decoded message can be encoded");
        assert_eq!(&frame[FRAME_HEAD_BYTES..], payload);
    }
});
