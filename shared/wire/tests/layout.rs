//! The bytes themselves: golden records, round trips, and parsers that survive anything.

use proptest::prelude::*;
use tapecast_wire::attach::{
    Accepted, AttachRequest, FRAME_HEAD_BYTES, Farewell, FrameHead, LagLimits, MAX_FRAME_BYTES,
    Message, Policy, Pong, Refusal,
};
use tapecast_wire::limits::{
    HEADER_BYTES, LEVEL_BYTES, MAX_INSTRUMENTS, MAX_LEVELS_PER_SIDE, PAGE_BYTES,
};
use tapecast_wire::rdma::{
    PathMtu, QueuePairAddress, RdmaAnswer, RdmaOffer, RemoteMemory, RetryBudget,
};
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentEntry, InstrumentId, Kind, Level, Nanos, Sequence,
    SessionId, Snapshot, SnapshotFields, TradingStatus, UNDEFINED_PRICE, WIRE_VERSION, WireError,
    encode_padding, encode_snapshot, record_len_of,
};
use zerocopy::{FromBytes, IntoBytes};

/// Eight-byte aligned room for one page.
#[repr(C, align(8))]
struct Page([u8; PAGE_BYTES]);

fn fields() -> SnapshotFields {
    SnapshotFields {
        instrument_id: InstrumentId(0x0403_0201),
        flags: Flags::CROSSED.with(Flags::SUSPECT),
        trading_status: TradingStatus::Halted,
        epoch: Epoch(0x1112_1314_1516_1718),
        channel_sequence: Sequence(0x21),
        instrument_sequence: Sequence(0x31),
        feed_sequence: 0x41,
        ts_event: 0x51,
        ts_recv: 0x61,
        last_trade_price: UNDEFINED_PRICE,
        last_trade_quantity: 0,
    }
}

fn encoded(bids: &[Level], asks: &[Level]) -> (Page, usize) {
    let mut page = Page([0xee; PAGE_BYTES]);
    let len = encode_snapshot(&mut page.0, &fields(), bids, asks).expect("a page has room");
    (page, len)
}

#[test]
fn version_3_snapshot_has_these_bytes() {
    let (page, len) = encoded(&[Level::new(0x0102, 0x03, 0x04)], &[Level::new(-1, 0x05, 0)]);
    let golden = "9000 6000 0300 02 03 0c000000 0100 0100 01020304 00000000 \
        1817161514131211 2100000000000000 3100000000000000 4100000000000000 \
        5100000000000000 6100000000000000 0000000000000000 ffffffffffffff7f 0000000000000000 \
        0201000000000000 0300000000000000 04000000 00000000 \
        ffffffffffffffff 0500000000000000 00000000 00000000"
        .replace([' ', '\n'], "");
    let hex: String = page.0[..len].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, golden);
}

#[test]
fn version_1_directory_entry_has_these_bytes() {
    let mut instrument = Instrument::new(InstrumentId(7), "AAPL", "XNAS");
    instrument.tick_size = 10_000_000;
    instrument.lot_size = 100;
    instrument.feed_instrument_id = 14;
    let golden = "07000000 f7 00 0000 8096980000000000 64000000 0e000000 \
        4141504c 0000000000000000000000000000000000000000 584e415300000000 0000000000000000"
        .replace([' ', '\n'], "");
    let hex: String =
        instrument.to_wire().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, golden);
}

#[test]
fn a_page_holds_the_largest_number_of_levels_and_not_one_more() {
    let levels = vec![Level::new(1, 1, 1); MAX_LEVELS_PER_SIDE];
    let (page, len) = encoded(&levels, &levels);
    assert_eq!(len, HEADER_BYTES + 2 * MAX_LEVELS_PER_SIDE * LEVEL_BYTES);
    assert_eq!(Snapshot::parse(&page.0[..len]).unwrap().asks().len(), MAX_LEVELS_PER_SIDE);

    let more = vec![Level::new(1, 1, 1); MAX_LEVELS_PER_SIDE + 1];
    let mut page = Page([0; PAGE_BYTES]);
    let error = encode_snapshot(&mut page.0, &fields(), &more, &more).unwrap_err();
    assert!(matches!(error, WireError::NoRoom { .. }), "{error}");
}

#[test]
fn an_empty_side_reads_as_the_undefined_price() {
    let (page, len) = encoded(&[], &[]);
    let snapshot = Snapshot::parse(&page.0[..len]).unwrap();
    assert_eq!(snapshot.best_bid(), Level::new(UNDEFINED_PRICE, 0, 0));
    assert_eq!(snapshot.best_ask(), Level::EMPTY);
    assert_eq!(snapshot.last_trade(), None);
}

#[test]
fn another_version_is_refused_by_name() {
    let (mut page, len) = encoded(&[], &[]);
    page.0[4] = 9;
    assert_eq!(
        Snapshot::parse(&page.0[..len]).unwrap_err(),
        WireError::Version { theirs: 9, ours: WIRE_VERSION }
    );
}

#[test]
fn a_later_version_may_lengthen_the_header() {
    let (page, len) = encoded(&[Level::new(5, 6, 7)], &[]);
    let mut longer = Page([0; PAGE_BYTES]);
    longer.0[..HEADER_BYTES].copy_from_slice(&page.0[..HEADER_BYTES]);
    longer.0[HEADER_BYTES + 16..len + 16].copy_from_slice(&page.0[HEADER_BYTES..len]);
    longer.0[..2].copy_from_slice(&((len + 16) as u16).to_le_bytes());
    longer.0[2..4].copy_from_slice(&((HEADER_BYTES + 16) as u16).to_le_bytes());
    let snapshot = Snapshot::parse(&longer.0).unwrap();
    assert_eq!(snapshot.best_bid(), Level::new(5, 6, 7));
}

#[test]
fn counts_that_contradict_the_length_are_refused() {
    let (mut page, len) = encoded(&[Level::new(5, 6, 7)], &[]);
    page.0[12] = 2;
    assert!(matches!(Snapshot::parse(&page.0[..len]), Err(WireError::Field { .. })));
}

#[test]
fn padding_is_a_record_that_says_its_length() {
    for len in [8, 64, PAGE_BYTES] {
        let word = encode_padding(len);
        assert_eq!(record_len_of(word), Some(len));
        assert_eq!(Kind::from_wire(word.to_le_bytes()[6]).unwrap(), Kind::Padding);
    }
    assert_eq!(record_len_of(0), None);
    assert_eq!(record_len_of(12), None);
    assert_eq!(record_len_of(PAGE_BYTES as u64 + 8), None);
}

#[test]
fn a_symbol_that_is_too_long_is_cut_at_a_character() {
    let entry = Instrument::new(InstrumentId(0), &"é".repeat(20), "").to_wire();
    assert_eq!(Instrument::from_wire(&entry).unwrap().symbol, "é".repeat(12));
}

#[test]
fn time_since_a_later_time_is_zero() {
    assert_eq!(Nanos(5).since(Nanos(9)), Nanos(0));
}

fn messages() -> Vec<Message> {
    vec![
        Message::Attach(AttachRequest {
            name: "risk".into(),
            policy: Policy::Disconnect,
            lag: LagLimits { bytes: 1 << 40, time: Nanos(5) },
            min_interval: Nanos(u64::MAX),
            allow_unknown: true,
            symbols: vec!["AAPL".into(), "ESH4".into()],
            rdma: None,
        }),
        Message::Attach(AttachRequest { rdma: Some(offer()), ..AttachRequest::default() }),
        Message::Accepted(Accepted {
            session_id: SessionId(63),
            epoch: Epoch(17),
            instruments: vec![InstrumentId(3), InstrumentId(1)],
        }),
        Message::Refused(Refusal::Full, "all 64 sessions are taken".into()),
        Message::Detach,
        Message::Farewell(Farewell::Closing, "stopped by SIGTERM".into()),
        Message::Connect(answer()),
        Message::Ready,
        Message::Ping(Nanos(17)),
        Message::Pong(Pong { ping: Nanos(1), received: Nanos(2), sent: Nanos(3) }),
        Message::Refused(Refusal::Fabric, "this publisher uses RDMA".into()),
        Message::Refused(Refusal::NotEntitled, "IBM is not yours".into()),
    ]
}

fn queue_pair() -> QueuePairAddress {
    QueuePairAddress {
        gid: [0xab; 16],
        queue_pair: 0x0003_0201,
        packet_sequence: 0x0006_0504,
        path_mtu: PathMtu::Bytes1024,
    }
}

fn offer() -> RdmaOffer {
    RdmaOffer {
        peer: queue_pair(),
        ring: RemoteMemory { address: 0x7f00_0000_1000, key: 0x0102_0304 },
        ring_bytes: 1 << 20,
        control: RemoteMemory { address: 0x7f00_0000_2040, key: 0x0506_0708 },
        receive_depth: 256,
    }
}

fn answer() -> RdmaAnswer {
    let cell = RemoteMemory { address: 0x7f00_0000_3000, key: 0x1112_1314 };
    let retries = RetryBudget { timeout: 14, retry_count: 6 };
    RdmaAnswer { peer: queue_pair(), cell, instruments: 500, retries }
}

fn hex_of(message: &Message) -> String {
    message
        .encode()
        .expect("a message of this test can be sent")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn version_3_handshake_over_rdma_has_these_bytes() {
    let peer = "abababababababababababababababab 01020300 04050600 03";
    let attach = format!(
        "65000000 0100 0300 0200 7878 02 0007000000000000 0500000000000000 0000000000000000 00 01000000 0300 49424d 01 {peer} \
         001000 00007f0000 04030201 0000100000000000 402000 00007f0000 08070605 00010000"
    );
    let request = AttachRequest {
        name: "xx".into(),
        policy: Policy::Disconnect,
        lag: LagLimits { bytes: 0x700, time: Nanos(5) },
        symbols: vec!["IBM".into()],
        rdma: Some(offer()),
        ..AttachRequest::default()
    };
    assert_eq!(hex_of(&Message::Attach(request)), attach.replace(' ', ""));
    let connect = format!("2b000000 0600 0300 {peer} 003000 00007f0000 14131211 f4010000 0e06");
    assert_eq!(hex_of(&Message::Connect(answer())), connect.replace(' ', ""));
    assert_eq!(hex_of(&Message::Ready), "0000000007000300");
    assert_eq!(hex_of(&Message::Ping(Nanos(0x0102))), "08000000080003000201000000000000");
    let pong = Pong { ping: Nanos(1), received: Nanos(2), sent: Nanos(3) };
    let words = "0100000000000000 0200000000000000 0300000000000000";
    assert_eq!(
        hex_of(&Message::Pong(pong)),
        format!("18000000 0900 0300 {words}").replace(' ', "")
    );
}

#[test]
fn a_number_that_cannot_be_is_neither_sent_nor_taken() {
    let wrong = RdmaAnswer { cell: RemoteMemory { address: 8, key: 1 }, ..answer() };
    let error = Message::Connect(wrong).encode().unwrap_err();
    assert!(matches!(error, WireError::Field { field: "cell address", .. }), "{error}");
    let mut frame = Message::Connect(answer()).encode().unwrap();
    frame[FRAME_HEAD_BYTES + 19] = 1;
    let error = decode(&frame).unwrap_err();
    assert!(matches!(error, WireError::Field { field: "queue_pair", .. }), "{error}");

    let request = AttachRequest { rdma: Some(offer()), ..AttachRequest::default() };
    let mut frame = Message::Attach(request).encode().unwrap();
    let depth = frame.len() - 4;
    frame[depth..].fill(0);
    let error = decode(&frame).unwrap_err();
    assert!(matches!(error, WireError::Field { field: "receive_depth", .. }), "{error}");
    frame[FRAME_HEAD_BYTES + 32] = 2;
    let error = decode(&frame).unwrap_err();
    assert!(matches!(error, WireError::Field { field: "rdma", value: 2 }), "{error}");
}

fn decode(frame: &[u8]) -> Result<Message, WireError> {
    let Some((head, payload)) = frame.split_first_chunk::<FRAME_HEAD_BYTES>() else {
        return Err(WireError::Short { what: "frame", have: frame.len(), need: FRAME_HEAD_BYTES });
    };
    Message::decode(FrameHead::parse(*head)?, payload)
}

#[test]
fn every_message_survives_the_wire() {
    for message in messages() {
        assert_eq!(decode(&message.encode().unwrap()).unwrap(), message);
    }
}

#[test]
fn every_cut_of_a_message_is_refused() {
    for message in messages() {
        let frame = message.encode().unwrap();
        for cut in 0..frame.len() {
            if cut == FRAME_HEAD_BYTES && matches!(message, Message::Detach | Message::Ready) {
                continue;
            }
            assert!(decode(&frame[..cut]).is_err(), "{message:?} cut to {cut}");
        }
    }
}

#[test]
fn bytes_after_a_message_are_refused() {
    let mut frame = Message::Detach.encode().unwrap();
    frame.push(0);
    assert!(decode(&frame).is_err());
}

#[test]
fn a_frame_over_the_limit_is_refused_by_its_head() {
    let mut head = [0; FRAME_HEAD_BYTES];
    head[..4].copy_from_slice(&(MAX_FRAME_BYTES as u32 + 1).to_le_bytes());
    head[6..].copy_from_slice(&WIRE_VERSION.to_le_bytes());
    assert!(matches!(FrameHead::parse(head), Err(WireError::Field { field: "payload_len", .. })));
}

fn levels() -> impl Strategy<Value = Vec<Level>> {
    proptest::collection::vec(
        (any::<i64>(), any::<u64>(), any::<u32>()).prop_map(|(p, q, n)| Level::new(p, q, n)),
        0..MAX_LEVELS_PER_SIDE,
    )
}

fn addresses() -> impl Strategy<Value = QueuePairAddress> {
    (any::<[u8; 16]>(), 0u32..1 << 24, 0u32..1 << 24, 1u8..=5).prop_map(
        |(gid, queue_pair, packet_sequence, code)| {
            let path_mtu = PathMtu::from_code(code).expect("1 to 5 are codes");
            QueuePairAddress { gid, queue_pair, packet_sequence, path_mtu }
        },
    )
}

fn memories() -> impl Strategy<Value = RemoteMemory> {
    (1u64..1 << 50, any::<u32>()).prop_map(|(line, key)| RemoteMemory { address: line * 64, key })
}

proptest! {
    #[test]
    fn what_devices_can_have_survives_the_wire(
        peer in addresses(),
        memories in (memories(), memories(), memories()),
        ring_bits in 13u32..=20,
        receive_depth in 1u32..=256,
        instruments in 0..=MAX_INSTRUMENTS as u32,
        (timeout, retry_count) in (1u8..=31, 0u8..=7),
    ) {
        let retries = RetryBudget { timeout, retry_count };
        let (ring, control, cell) = memories;
        let ring_bytes = 1 << ring_bits;
        let offer = RdmaOffer { peer, ring, ring_bytes, control, receive_depth };
        let request = AttachRequest { rdma: Some(offer), ..AttachRequest::default() };
        for message in [
            Message::Attach(request),
            Message::Connect(RdmaAnswer { peer, cell, instruments, retries }),
        ] {
            prop_assert_eq!(decode(&message.encode().unwrap()).unwrap(), message);
        }
    }

    #[test]
    fn a_snapshot_reads_back_as_written(bids in levels(), asks in levels()) {
        let (page, len) = encoded(&bids, &asks);
        let snapshot = Snapshot::parse(&page.0[..len]).unwrap();
        prop_assert_eq!(snapshot.bids(), &bids[..]);
        prop_assert_eq!(snapshot.asks(), &asks[..]);
        prop_assert_eq!(snapshot.flags(), fields().flags);
        prop_assert_eq!(usize::from(snapshot.header().record_len), len);
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..512),
        valid_start in any::<bool>(),
    ) {
        let mut page = Page([0; PAGE_BYTES]);
        page.0[..bytes.len()].copy_from_slice(&bytes);
        if valid_start {
            page.0[4..7].copy_from_slice(&[WIRE_VERSION as u8, 0, Kind::Snapshot as u8]);
        }
        let _ = Snapshot::parse(&page.0[..bytes.len()]);
        let _ = decode(&bytes);
        if let Ok((entry, _)) = InstrumentEntry::read_from_prefix(&bytes) {
            let _ = Instrument::from_wire(&entry);
        }
    }
}
