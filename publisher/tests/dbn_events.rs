//! What DBN records mean: actions, flags, snapshots, names and days.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod dbn_support;

use std::io::{Read, Write};

use dbn::{
    BidAskPair, ErrorMsg, FlagSet, InstrumentDefMsg, MboMsg, Mbp10Msg, RecordHeader, Schema,
    StatusMsg, SymbolMappingMsg, TradeMsg, UNDEF_PRICE, rtype, v1,
};
use dbn_support::*;
use proptest::prelude::*;
use tapecast_publisher::source::dbn::{DbnError, DbnOptions, DbnSource};
use tapecast_publisher::source::{Progress, Source};
use tapecast_wire::Flags;

const SEVEN: &[(&str, &[u32])] = &[("ESH4", &[7])];

fn said(records: &[MboMsg]) -> Vec<String> {
    lines(File::mbo(SEVEN).with_all(records).bytes())
}

#[test]
fn add_modify_cancel_and_clear_change_the_book_and_a_cancel_is_by_size() {
    let said = said(&[
        mbo("AB", 1, 100, 5, LAST),
        mbo("MB", 1, 101, 4, LAST),
        mbo("CB", 1, 101, 1, LAST),
        mbo("RN", 0, UNDEF_PRICE, 0, LAST),
    ]);
    assert_eq!(
        said,
        [
            "0 Add { order_id: 1, side: Bid, price: 100, quantity: 5 }",
            "end",
            "0 Modify { order_id: 1, side: Bid, price: 101, quantity: 4 }",
            "end",
            "0 Reduce { order_id: 1, quantity: 1 }",
            "end",
            "0 Clear",
            "end",
        ]
    );
}

#[test]
fn trade_fill_and_none_change_no_order() {
    let said = said(&[
        mbo("TA", 0, 100, 3, 0),
        mbo("FB", 1, 100, 3, 0),
        mbo("NN", 0, UNDEF_PRICE, 0, LAST),
    ]);
    assert_eq!(said, ["0 Trade { price: 100, quantity: 3 }", "end"]);
}

#[test]
fn an_event_ends_only_with_the_last_flag() {
    let said = said(&[
        mbo("AB", 1, 100, 5, 0),
        mbo("AA", 2, 101, 5, 0),
        mbo("CA", 2, 101, 5, LAST),
        mbo("AB", 3, 99, 1, 0),
    ]);
    assert_eq!(said.iter().filter(|line| *line == "end").count(), 1);
    assert_eq!(said[3], "end");
    assert_eq!(said.last().unwrap(), "0 Add { order_id: 3, side: Bid, price: 99, quantity: 1 }");
}

#[test]
fn an_event_end_waits_for_the_event_of_another_instrument_to_end() {
    let file = File::mbo(&[("ESH4", &[7]), ("NQH4", &[8])])
        .with(&mbo("AB", 1, 100, 5, 0))
        .with(&of_instrument(mbo("AB", 9, 50, 5, LAST), 8))
        .with(&mbo("AA", 2, 101, 5, LAST));
    let said = lines(file.bytes());
    assert_eq!(said.iter().filter(|line| *line == "end").count(), 1);
    assert_eq!(said.last().unwrap(), "end");
}

#[test]
fn an_event_that_never_ends_does_not_hold_back_other_instruments_for_ever() {
    let mut file = File::mbo(&[("ESH4", &[7]), ("NQH4", &[8])]).with(&mbo("AB", 1, 100, 5, 0));
    for order_id in 0..1_000 {
        file = file.with(&of_instrument(mbo("AB", order_id, 50, 5, LAST), 8));
    }
    let ends = lines(file.bytes()).iter().filter(|line| *line == "end").count();
    assert_eq!(ends, 1_000 - 255);
}

#[test]
fn a_snapshot_clears_the_book_and_is_recovery_until_its_last_record() {
    let said = said(&[
        mbo("AB", 1, 100, 5, LAST),
        mbo("RN", 0, UNDEF_PRICE, 0, SNAPSHOT),
        mbo("AB", 2, 100, 5, SNAPSHOT),
        mbo("AA", 3, 101, 5, SNAPSHOT | LAST),
        mbo("CA", 3, 101, 5, LAST),
    ]);
    assert_eq!(
        said[2..],
        [
            "0 RecoveryStart",
            "0 Clear",
            "0 Add { order_id: 2, side: Bid, price: 100, quantity: 5 }",
            "0 Add { order_id: 3, side: Ask, price: 101, quantity: 5 }",
            "0 RecoveryEnd",
            "end",
            "0 Reduce { order_id: 3, quantity: 5 }",
            "end",
        ]
    );
}

#[test]
fn a_snapshot_without_clear_and_without_last_flag_is_ended_by_the_first_record_that_is_not_of_it() {
    let said = said(&[
        mbo("AB", 2, 100, 5, SNAPSHOT),
        mbo("AA", 3, 101, 5, SNAPSHOT),
        mbo("AA", 4, 102, 5, LAST),
    ]);
    assert_eq!(
        said,
        [
            "0 RecoveryStart",
            "0 Clear",
            "0 Add { order_id: 2, side: Bid, price: 100, quantity: 5 }",
            "0 Add { order_id: 3, side: Ask, price: 101, quantity: 5 }",
            "0 RecoveryEnd",
            "0 Add { order_id: 4, side: Ask, price: 102, quantity: 5 }",
            "end",
        ]
    );
}

#[test]
fn a_file_that_is_only_a_snapshot_is_complete_at_its_end_but_not_where_it_was_cut() {
    let whole = File::mbo(SEVEN).with(&mbo("AB", 2, 100, 5, SNAPSHOT)).bytes();
    let said = lines(whole.clone());
    assert_eq!(said[3..], ["0 RecoveryEnd", "end"]);

    let mut cut = whole;
    cut.extend_from_slice(&[14, rtype::MBO, 1, 0]);
    let mut sink = Recorder::default();
    let error = drain(&mut open(cut).unwrap(), &mut sink).unwrap_err();
    assert!(matches!(error, DbnError::Truncated { records: 1, .. }), "{error}");
    assert_eq!(
        sink.lines.last().unwrap(),
        "0 Add { order_id: 2, side: Bid, price: 100, quantity: 5 }"
    );
}

#[test]
fn a_long_event_is_read_in_several_calls_but_ends_once() {
    let mut records = vec![mbo("AB", 1, 100, 1, 0); 150_000];
    records.push(mbo("AB", 2, 100, 1, LAST));
    let mut source = open(File::mbo(SEVEN).with_all(&records).bytes()).unwrap();
    let mut sink = Recorder::default();
    assert_eq!(drain(&mut source, &mut sink).unwrap(), 3, "calls that were not the end");
    assert_eq!((sink.events, sink.event_ends), (150_001, 1));
}

#[test]
fn an_undefined_price_empties_the_side_of_a_top_of_book_feed_and_is_never_an_order() {
    let said = said(&[
        mbo("AB", 0, 100, 5, TOB | LAST),
        mbo("AB", 0, UNDEF_PRICE, 0, TOB | LAST),
        mbo("AA", 1, UNDEF_PRICE, 5, LAST),
        mbo("MA", 1, UNDEF_PRICE, 5, LAST),
        mbo("TA", 1, UNDEF_PRICE, 5, LAST),
    ]);
    let said: Vec<&str> = said.iter().map(String::as_str).filter(|line| *line != "end").collect();
    assert_eq!(
        said,
        [
            "0 TopOfBook { side: Bid, level: Some(Level { price: 100, quantity: 5, \
             order_count: 0, reserved: 0 }) }",
            "0 TopOfBook { side: Bid, level: None }",
            "0 Delete { order_id: 1 }",
        ]
    );
}

#[test]
fn a_possibly_bad_book_is_suspect_from_the_first_such_record_and_again_after_a_clear() {
    let said = said(&[
        mbo("AB", 1, 100, 5, LAST | MAYBE_BAD_BOOK),
        mbo("AB", 2, 100, 5, LAST | MAYBE_BAD_BOOK),
        mbo("RN", 0, UNDEF_PRICE, 0, LAST | MAYBE_BAD_BOOK),
        mbo("AB", 3, 100, 5, LAST | MAYBE_BAD_BOOK),
    ]);
    let gaps: Vec<usize> =
        said.iter().enumerate().filter(|(_, l)| *l == "0 Gap").map(|(index, _)| index).collect();
    assert_eq!(gaps, [0, 7], "{said:?}");
}

#[test]
fn flags_sequence_and_times_travel_with_the_event() {
    let mut record = mbo("AB", 1, 100, 5, LAST | BAD_TS_RECV | MAYBE_BAD_BOOK);
    record.sequence = u32::MAX;
    let mut undated = mbo("AB", 2, 100, 5, LAST);
    undated.hd.ts_event = dbn::UNDEF_TIMESTAMP;
    let mut sink = Recorder::default();
    let bytes = File::mbo(SEVEN).with(&record).with(&undated).bytes();
    drain(&mut open(bytes).unwrap(), &mut sink).unwrap();
    let first = sink.stamps[1];
    assert_eq!(first.feed_sequence, u64::from(u32::MAX));
    assert_eq!((first.ts_event, first.ts_recv), (DAY_ONE + 5, DAY_ONE + 10));
    assert_eq!(first.flags, Flags::BAD_TS_RECV.with(Flags::SUSPECT));
    assert_eq!((sink.stamps[2].ts_event, sink.stamps[2].flags), (DAY_ONE + 10, Flags::NONE));
}

#[test]
fn the_feed_clock_at_an_event_end_is_the_receive_time() {
    let mut source = open(File::mbo(SEVEN).with(&mbo("AB", 1, 1, 1, LAST)).bytes()).unwrap();
    let progress = source.advance(&mut Recorder::default()).unwrap();
    assert_eq!(progress, Progress::Event { feed_time_ns: DAY_ONE + 10 });
    assert_eq!(source.advance(&mut Recorder::default()).unwrap(), Progress::End);
}

fn mbp10(action: char, flags: u8, bids: &[(i64, u32, u32)], asks: &[(i64, u32, u32)]) -> Mbp10Msg {
    let mut levels: [BidAskPair; 10] = std::array::from_fn(|_| BidAskPair::default());
    for (index, level) in levels.iter_mut().enumerate() {
        let none = (UNDEF_PRICE, 0, 0);
        (level.bid_px, level.bid_sz, level.bid_ct) = *bids.get(index).unwrap_or(&none);
        (level.ask_px, level.ask_sz, level.ask_ct) = *asks.get(index).unwrap_or(&none);
    }
    Mbp10Msg {
        hd: RecordHeader::new::<Mbp10Msg>(rtype::MBP_10, 1, 7, DAY_ONE + 5),
        price: 101,
        size: 2,
        action: action as u8 as std::ffi::c_char,
        side: b'B' as std::ffi::c_char,
        flags: FlagSet::new(flags),
        depth: 0,
        ts_recv: DAY_ONE + 10,
        ts_in_delta: 0,
        sequence: 43,
        levels,
    }
}

#[test]
fn a_level_record_is_the_whole_book_without_empty_levels_and_a_trade_is_told_first() {
    let file = File::new(&metadata(Some(Schema::Mbp10), SEVEN))
        .with(&mbp10('T', 0, &[(100, 3, 2), (99, 1, 1)], &[]))
        .with(&mbp10('A', LAST, &[(100, 3, 2)], &[(102, 7, 4)]))
        .with(&mbp10('R', LAST, &[], &[]));
    let level = |price, quantity, count| {
        format!(
            "Level {{ price: {price}, quantity: {quantity}, order_count: {count}, reserved: 0 }}"
        )
    };
    assert_eq!(
        lines(file.bytes()),
        [
            "0 Trade { price: 101, quantity: 2 }".to_owned(),
            format!("0 Depth {{ bids: [{}, {}], asks: [] }}", level(100, 3, 2), level(99, 1, 1)),
            format!("0 Depth {{ bids: [{}], asks: [{}] }}", level(100, 3, 2), level(102, 7, 4)),
            "end".to_owned(),
            "0 Clear".to_owned(),
            "0 Depth { bids: [], asks: [] }".to_owned(),
            "end".to_owned(),
        ]
    );
}

#[test]
fn status_records_in_the_stream_become_the_trading_status() {
    let status = |action: dbn::StatusAction| StatusMsg {
        hd: RecordHeader::new::<StatusMsg>(rtype::STATUS, 1, 7, DAY_ONE),
        ts_recv: DAY_ONE,
        action: action as u16,
        ..StatusMsg::default()
    };
    let file = File::mbo(SEVEN)
        .with(&status(dbn::StatusAction::PreOpen))
        .with(&status(dbn::StatusAction::SsrChange))
        .with(&status(dbn::StatusAction::Halt))
        .with(&status(dbn::StatusAction::Trading))
        .with(&status(dbn::StatusAction::Close));
    let said = lines(file.bytes());
    let statuses: Vec<&str> = said.iter().map(String::as_str).filter(|l| *l != "end").collect();
    assert_eq!(
        statuses,
        ["0 Status(PreOpen)", "0 Status(Halted)", "0 Status(Trading)", "0 Status(Closed)"]
    );
}

#[test]
fn instruments_of_a_dataset_with_one_venue_are_known_before_the_first_record() {
    let source = open(File::mbo(&[("ESH4", &[7]), ("NQH4", &[8])]).bytes()).unwrap();
    let known: Vec<(u32, &str, &str, u32)> = source
        .instruments()
        .iter()
        .map(|i| (i.instrument_id.0, i.symbol.as_str(), i.venue.as_str(), i.feed_instrument_id))
        .collect();
    assert_eq!(known, [(0, "ESH4", "GLBX", 7), (1, "NQH4", "GLBX", 8)]);
}

#[test]
fn an_instrument_id_means_what_the_metadata_says_for_that_day() {
    // On day two the ids are swapped.
    let file = File::mbo(&[("AAA", &[7, 8]), ("BBB", &[8, 7])])
        .with(&mbo("AB", 1, 100, 1, LAST))
        .with(&on_day(mbo("AB", 2, 200, 1, LAST), 1))
        .with(&on_day(of_instrument(mbo("AB", 3, 300, 1, LAST), 8), 1));
    assert_eq!(
        lines(file.bytes()),
        [
            "0 Add { order_id: 1, side: Bid, price: 100, quantity: 1 }",
            "end",
            "instrument 1 BBB@GLBX feed=7 tick=0 lot=0",
            "1 Clear",
            "1 Add { order_id: 2, side: Bid, price: 200, quantity: 1 }",
            "end",
            "instrument 0 AAA@GLBX feed=8 tick=0 lot=0",
            "0 Clear",
            "0 Add { order_id: 3, side: Bid, price: 300, quantity: 1 }",
            "end",
        ]
    );
}

#[test]
fn a_book_that_keeps_its_id_over_midnight_is_not_cleared() {
    let file = File::mbo(&[("ESH4", &[7, 7])])
        .with(&mbo("AB", 1, 100, 1, LAST))
        .with(&on_day(mbo("CB", 1, 100, 1, LAST), 1));
    assert!(!lines(file.bytes()).contains(&"0 Clear".to_owned()));
}

#[test]
fn the_same_symbol_on_two_venues_is_two_books() {
    let mut other = mbo("AB", 1, 100, 1, LAST);
    other.hd.publisher_id = 2;
    let file = File::mbo(SEVEN).with(&mbo("AB", 1, 100, 1, LAST)).with(&other);
    let said = lines(file.bytes());
    assert_eq!(said[2], "instrument 1 ESH4@XNAS feed=7 tick=0 lot=0");
    assert!(said[3].starts_with("1 Add"), "{said:?}");
}

#[test]
fn only_chosen_symbols_are_delivered_and_their_ids_are_dense() {
    let bytes = File::mbo(&[("ESH4", &[7]), ("NQH4", &[8])])
        .with(&mbo("AB", 1, 100, 1, LAST))
        .with(&of_instrument(mbo("AB", 2, 200, 1, LAST), 8))
        .bytes();
    let options = DbnOptions { symbols: vec!["NQH4".to_owned()], ..DbnOptions::default() };
    let mut source = open_with(bytes, options).unwrap();
    assert_eq!(source.instruments().len(), 1);
    let mut sink = Recorder::default();
    drain(&mut source, &mut sink).unwrap();
    assert_eq!(
        sink.lines,
        ["end", "0 Add { order_id: 2, side: Bid, price: 200, quantity: 1 }", "end"]
    );
}

#[test]
fn a_symbol_that_the_file_does_not_have_is_named_beside_those_that_it_has() {
    let options = DbnOptions { symbols: vec!["XYZ".to_owned()], ..DbnOptions::default() };
    let error = open_with(File::mbo(SEVEN).bytes(), options).unwrap_err();
    assert_eq!(error.to_string(), "input has no symbol `XYZ`: it has ESH4");
}

fn mapping(instrument_id: u32, symbol: &str) -> SymbolMappingMsg {
    let (raw, out) = (dbn::SType::RawSymbol, dbn::SType::RawSymbol);
    SymbolMappingMsg::new(instrument_id, DAY_ONE, raw, symbol, out, symbol, DAY_ONE, u64::MAX)
        .unwrap()
}

#[test]
fn a_live_capture_names_its_instruments_in_the_stream() {
    let file = File::new(&metadata(None, &[]))
        .with(&mapping(7, "ESH4"))
        .with(&mbo("AB", 1, 100, 1, LAST))
        .with(&of_instrument(mbo("AB", 1, 100, 1, LAST), 8))
        .with(&mapping(7, "ESM4"))
        .with(&mbo("AB", 2, 100, 1, LAST));
    let said = lines(file.bytes());
    let named: Vec<&String> = said.iter().filter(|line| line.starts_with("instrument")).collect();
    assert_eq!(
        named,
        [
            "instrument 0 ESH4@GLBX feed=7 tick=0 lot=0",
            "instrument 1 8@GLBX feed=8 tick=0 lot=0",
            "instrument 2 ESM4@GLBX feed=7 tick=0 lot=0",
        ]
    );
}

#[test]
fn definitions_give_tick_and_lot_in_every_version() {
    let mut new = InstrumentDefMsg {
        hd: RecordHeader::new::<InstrumentDefMsg>(rtype::INSTRUMENT_DEF, 1, 7, DAY_ONE),
        min_price_increment: 250_000_000,
        min_lot_size_round_lot: 1,
        ..InstrumentDefMsg::default()
    };
    new.raw_symbol[..4].copy_from_slice(&[b'E', b'S', b'H', b'4'].map(|c| c as std::ffi::c_char));
    let file = File::new(&metadata(None, &[])).with(&new).with(&mbo("AB", 1, 1, 1, LAST));
    let expected = "instrument 0 ESH4@GLBX feed=7 tick=250000000 lot=1";
    assert_eq!(lines(file.bytes())[1], expected);

    let mut old = v1::InstrumentDefMsg {
        hd: RecordHeader::new::<v1::InstrumentDefMsg>(rtype::INSTRUMENT_DEF, 1, 7, DAY_ONE),
        min_price_increment: 250_000_000,
        min_lot_size_round_lot: 1,
        ..v1::InstrumentDefMsg::default()
    };
    old.raw_symbol[..4].copy_from_slice(&[b'E', b'S', b'H', b'4'].map(|c| c as std::ffi::c_char));
    let mut bare = metadata(None, &[]);
    bare.version = 1;
    bare.symbol_cstr_len = v1::SYMBOL_CSTR_LEN;
    let file = File::new(&bare).with(&old).with(&mbo("AB", 1, 1, 1, LAST));
    assert_eq!(lines(file.bytes())[1], expected);
}

#[test]
fn records_of_other_types_are_counted_and_skipped() {
    let trade = TradeMsg {
        hd: RecordHeader::new::<TradeMsg>(rtype::MBP_0, 1, 7, 1),
        ..TradeMsg::default()
    };
    let unknown = [5, 0x77, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9];
    let bytes = File::mbo(SEVEN)
        .with(&trade)
        .with_raw(&unknown)
        .with(&ErrorMsg::new(1, None, "gateway", true))
        .with(&mbo("AB", 1, 100, 1, LAST))
        .bytes();
    let mut source = open(bytes).unwrap();
    drain(&mut source, &mut Recorder::default()).unwrap();
    let stats = source.stats();
    let expected = [("A", 1), ("mbp-0", 1), ("error", 1), ("type 0x77", 1)];
    assert_eq!(stats.by_type, expected.map(|(name, count)| (name.to_owned(), count)));
    assert_eq!((stats.messages, stats.unknown), (4, 1));
}

#[test]
fn a_record_too_short_for_its_type_is_skipped_and_the_next_one_is_read() {
    let mut short = vec![5, rtype::MBO, 1, 0, 7, 0, 0, 0];
    short.resize(20, 0xff);
    let bytes = File::mbo(SEVEN).with_raw(&short).with(&mbo("AB", 1, 100, 1, LAST)).bytes();
    assert_eq!(lines(bytes), ["0 Add { order_id: 1, side: Bid, price: 100, quantity: 1 }", "end"]);
}

#[test]
fn a_record_shorter_than_a_header_is_damage_with_its_place() {
    let bytes = File::mbo(SEVEN).with(&mbo("AB", 1, 1, 1, LAST)).with_raw(&[0; 64]).bytes();
    let mut sink = Recorder::default();
    let mut source = open(bytes).unwrap();
    let error = drain(&mut source, &mut sink).unwrap_err();
    assert!(matches!(error, DbnError::Damaged { .. }), "{error}");
    assert_eq!(sink.event_ends, 1, "what was good has been delivered");
    assert_eq!(source.advance(&mut sink).unwrap(), Progress::End, "and nothing comes after");
}

#[test]
fn a_mixed_stream_without_book_records_is_refused_at_its_end() {
    let bytes = File::new(&metadata(None, &[])).with(&TradeMsg::default()).bytes();
    let error = drain(&mut open(bytes).unwrap(), &mut Recorder::default()).unwrap_err();
    assert!(error.to_string().contains("supported are `mbo` and `mbp-10`"), "{error}");
}

#[test]
fn a_cut_file_ends_like_a_whole_one_only_where_that_was_allowed() {
    let record = mbo("AB", 1, 100, 1, LAST);
    for zstd in [false, true] {
        let file = File::mbo(SEVEN).with_all(&vec![record.clone(); 4_000]);
        let mut bytes = if zstd { file.zstd() } else { file.bytes() };
        bytes.truncate(bytes.len() - 9);
        let options = DbnOptions { allow_truncated: true, ..DbnOptions::default() };
        let mut source = open_with(bytes.clone(), options).unwrap();
        let mut sink = Recorder::default();
        drain(&mut source, &mut sink).unwrap();
        assert!(source.truncation().unwrap().to_string().contains("truncated at byte"));

        let mut strict = Recorder::default();
        let error = drain(&mut open(bytes.clone()).unwrap(), &mut strict).unwrap_err();
        let offset = bytes.len() as u64;
        assert!(matches!(error, DbnError::Truncated { offset: o, .. } if o == offset), "{error}");
        assert_eq!(sink.lines, strict.lines, "both deliver what was good");
    }
}

#[test]
fn a_file_compressed_in_several_frames_is_read_to_its_end() {
    let file = File::mbo(SEVEN).with_all(&vec![mbo("AB", 1, 100, 1, LAST); 100]).bytes();
    let frames = file.chunks(1_000).flat_map(|part| zstd::encode_all(part, 1).unwrap());
    let mut sink = Recorder::default();
    drain(&mut open(frames.collect()).unwrap(), &mut sink).unwrap();
    assert_eq!(sink.event_ends, 100);
}

#[test]
fn a_changed_byte_in_a_checked_frame_is_damage_and_not_truncation() {
    let content = File::mbo(SEVEN).with_all(&vec![mbo("AB", 1, 100, 1, LAST); 100]).bytes();
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(&content).unwrap();
    let mut bytes = encoder.finish().unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let options = DbnOptions { allow_truncated: true, ..DbnOptions::default() };
    let error =
        drain(&mut open_with(bytes, options).unwrap(), &mut Recorder::default()).unwrap_err();
    assert!(matches!(error, DbnError::Damaged { .. }), "{error}");
}

#[test]
fn a_rewound_input_says_the_same_again_after_clearing_its_books() {
    let bytes =
        File::mbo(SEVEN).with(&mbo("AB", 1, 100, 1, LAST)).with(&mbo("AB", 2, 100, 1, 0)).bytes();
    let mut source = open(bytes).unwrap();
    let mut first = Recorder::default();
    drain(&mut source, &mut first).unwrap();
    source.rewind().unwrap();
    let mut second = Recorder::default();
    drain(&mut source, &mut second).unwrap();
    assert_eq!(second.lines[0], "0 Clear");
    assert_eq!(second.lines[1..], first.lines);
    assert_eq!(source.stats().messages, 2, "counts are those of the current pass");
}

/// Hands out one byte per read, as a slow pipe may.
struct Trickle(std::io::Cursor<Vec<u8>>);

impl Read for Trickle {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let one = out.len().min(1);
        self.0.read(&mut out[..one])
    }
}

impl std::io::Seek for Trickle {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn the_size_of_the_reads_makes_no_difference() {
    let file = || File::mbo(SEVEN).with_all(&vec![mbo("AB", 1, 100, 1, LAST); 200]);
    for bytes in [file().bytes(), file().zstd()] {
        let whole = lines(bytes.clone());
        let input = Trickle(std::io::Cursor::new(bytes));
        let mut sink = Recorder::default();
        let mut source = DbnSource::from_reader("slow", input, DbnOptions::default()).unwrap();
        drain(&mut source, &mut sink).unwrap();
        assert_eq!(sink.lines, whole);
    }
}

#[test]
fn inputs_that_are_not_dbn_get_one_line_that_names_cause_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let cases = [
        (folder.path().join("absent.dbn"), "check the path"),
        (folder.path().to_owned(), "is a directory"),
        (write("empty.dbn", b""), "is empty"),
        (write("empty.zst", &zstd::encode_all(&b""[..], 1).unwrap()), "is empty"),
        (
            write("itch.dbn", b"\x00\x0cS\x00\x00\x00\x00\x12\x34\x56\x78\x9a\x00O"),
            "use source `itch`",
        ),
        (write("itch.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0]), "looks like gzip"),
        (write("x.pcap", &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]), "pcap"),
        (write("text.dbn", b"ts_recv,ts_event,rtype\n"), "looks like text"),
        (
            write("text.zst", &zstd::encode_all(&b"ts_recv,ts_event,rtype\n"[..], 1).unwrap()),
            "text",
        ),
        (write("new.dbn", b"DBN\x09\x64\0\0\0"), "version 9"),
    ];
    for (path, expected) in cases {
        let text = DbnSource::open(&path, DbnOptions::default()).unwrap_err().to_string();
        assert!(text.contains(expected), "{text:?} does not say {expected:?}");
        assert!(text.contains(path.to_str().unwrap()), "{text:?} does not name its input");
        assert_eq!(text.lines().count(), 1);
    }
}

#[test]
fn metadata_that_claims_to_be_huge_is_damage_before_memory_is_taken() {
    let mut bytes = b"DBN\x03".to_vec();
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    bytes.extend_from_slice(&[0; 100]);
    let error = open(bytes).unwrap_err();
    assert!(matches!(error, DbnError::Damaged { .. }), "{error}");
}

/// Files of every kind of record and container, with a few bytes wrong.
fn almost_a_file() -> impl Strategy<Value = Vec<u8>> {
    let whole = (0_u8..3, prop::collection::vec(any::<(u8, u8, u64, i64, u32, u8)>(), 0..40));
    let wrong = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (whole, wrong, any::<bool>()).prop_map(|((kind, records), wrong, zstd)| {
        let schema = [Some(Schema::Mbo), Some(Schema::Mbp10), None][usize::from(kind)];
        let mut file = File::new(&metadata(schema, SEVEN));
        for (action, side, order_id, price, size, flags) in records {
            let action = char::from(b"ACMRTFNx"[usize::from(action % 8)]);
            let side = char::from(b"BANx"[usize::from(side % 4)]);
            let what = format!("{action}{side}");
            file = match kind {
                0 => file.with(&mbo(&what, order_id, price, size, flags)),
                1 => file.with(&mbp10(action, flags, &[(price, size, 1)], &[])),
                _ => file
                    .with(&mapping(size, "ESH4"))
                    .with(&mbo(&what, order_id, price, size, flags)),
            };
        }
        let mut bytes = file.bytes();
        for (at, byte) in wrong {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if zstd { zstd::encode_all(bytes.as_slice(), 1).unwrap() } else { bytes }
    })
}

/// What makes bytes look like DBN, zstd, DBZ and nothing.
const MAGICS: [&[u8]; 4] =
    [b"DBN\x03\x64\0\0\0", b"\x28\xb5\x2f\xfd", b"P*M\x18\x70\0\0\0DBZ\x01", b""];

proptest! {
    #[test]
    fn no_file_makes_it_panic_or_hang_and_after_a_fault_there_is_only_the_end(
        bytes in almost_a_file(),
    ) {
        if let Ok(mut source) = open(bytes) {
            let mut sink = Recorder::default();
            let outcome = drain(&mut source, &mut sink);
            prop_assert_eq!(source.advance(&mut sink).unwrap(), Progress::End);
            prop_assert!(outcome.is_err() || source.stats().messages <= 80);
        }
    }

    #[test]
    fn no_bytes_at_all_make_it_panic_or_hang(
        magic in prop::sample::select(MAGICS.to_vec()),
        rest in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let bytes = [magic, &rest].concat();
        if let Ok(mut source) = open(bytes) {
            let _ = drain(&mut source, &mut Recorder::default());
        }
    }
}
