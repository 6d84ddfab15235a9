//! What each ITCH message does to the books.

use proptest::prelude::*;
use tapecast_publisher::book::BookBuilder;
use tapecast_publisher::source::Source;
use tapecast_publisher::source::itch::{
    EventEnd, ItchDecoder, ItchError, ItchOptions, MessageError,
};
use tapecast_wire::{Flags, InstrumentId, TradingStatus};

use crate::support::{DOLLAR, Recorder, Seen, Tape, level, play, stock};

fn builder() -> BookBuilder<Recorder> {
    BookBuilder::new(10, Recorder::default())
}

fn per_message() -> ItchOptions {
    ItchOptions { event_end: EventEnd::Message, ..ItchOptions::default() }
}

/// Everything handed on for a tape, one venue event for each message.
fn seen(tape: &Tape) -> Vec<Seen> {
    let mut builder = builder();
    play(&mut tape.source_with(per_message()), &mut builder).unwrap();
    builder.into_sink().seen
}

#[test]
fn every_order_message_does_to_the_book_what_the_specification_says() {
    let mut tape = Tape::new();
    tape.list("AAPL").add(1, b'B', 100, "AAPL", 1000);
    tape.add_attributed(2, b'S', 50, "AAPL", 1100);
    tape.cancel(1, 30).execute(1, 20).execute_at(2, 10, b'Y', 1050);
    tape.replace(1, 3, 80, 900).delete(2);
    let seen = seen(&tape);
    let books: Vec<_> = seen.iter().map(|seen| (&seen.bids[..], &seen.asks[..])).collect();
    let ask = [level(11, 50, 1)];
    let cut = [level(11, 40, 1)];
    assert_eq!(
        books,
        [
            (&[level(10, 100, 1)][..], &[][..]),
            (&[level(10, 100, 1)], &ask),
            (&[level(10, 70, 1)], &ask),
            (&[level(10, 50, 1)], &ask),
            (&[level(10, 50, 1)], &cut),
            (&[level(9, 80, 1)], &cut),
            (&[level(9, 80, 1)], &[]),
        ]
    );
    assert_eq!(seen[3].draft.last_trade, Some((10 * DOLLAR, 20)));
    assert_eq!(seen[4].draft.last_trade, Some((10 * DOLLAR + DOLLAR / 2, 10)));
    let numbers: Vec<u64> = seen.iter().map(|seen| seen.draft.feed_sequence).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 6, 7, 8], "the message's number in the file, from 1");
}

#[test]
fn trades_and_crosses_change_no_level_and_are_told_with_the_next_change() {
    let mut tape = Tape::new();
    tape.list("AAPL").add(1, b'B', 100, "AAPL", 1000);
    tape.trade(7, "AAPL", 1234).cross(5_000_000_000, "AAPL", 1100).cross(0, "AAPL", 1);
    tape.raw(b'B', &7_u64.to_be_bytes()).delete(1);
    let seen = seen(&tape);
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].draft.last_trade, Some((11 * DOLLAR, 5_000_000_000)));
}

#[test]
fn prices_are_scaled_from_four_decimals_to_nine_without_a_float() {
    let mut tape = Tape::new();
    tape.list("AAPL");
    let mut fields = 1_u64.to_be_bytes().to_vec();
    fields.push(b'S');
    fields.extend(1_u32.to_be_bytes());
    fields.extend(stock("AAPL"));
    fields.extend(1_632_401_u32.to_be_bytes());
    tape.raw(b'A', &fields);
    assert_eq!(seen(&tape)[0].asks[0].price, 163_240_100_000);
    assert_eq!(DOLLAR, 1_000_000_000);
}

#[test]
fn by_default_an_event_is_a_run_of_equal_timestamps() {
    let mut tape = Tape::new();
    tape.list("AAPL").at(5).add(1, b'B', 100, "AAPL", 1000).add(2, b'S', 10, "AAPL", 1100);
    tape.at(6).add(3, b'B', 1, "AAPL", 1001).delete(3);
    tape.at(7).delete(2);
    let mut builder = builder();
    let mut source = tape.source();
    play(&mut source, &mut builder).unwrap();
    let seen = builder.into_sink().seen;
    let times: Vec<_> = seen.iter().map(|seen| (seen.draft.ts_event, seen.asks.len())).collect();
    assert_eq!(times, [(5, 1), (7, 0)]);
}

#[test]
fn halts_of_every_kind_keep_the_book_and_are_told() {
    let mut tape = Tape::new();
    tape.list("AAPL").add(1, b'B', 100, "AAPL", 1000);
    for state in *b"HPQT" {
        tape.trading("AAPL", state);
    }
    tape.operational("AAPL", b'B', b'H'); // another market's
    tape.operational("AAPL", b'Q', b'H').trading("AAPL", b'P').operational("AAPL", b'Q', b'T');
    let seen = seen(&tape);
    let states: Vec<_> = seen.iter().map(|seen| seen.draft.status).collect();
    use TradingStatus::{Halted, Paused, QuoteOnly, Trading, Unknown};
    assert_eq!(states, [Unknown, Halted, Paused, QuoteOnly, Trading, Halted, Paused]);
    assert!(seen.iter().all(|seen| seen.bids == [level(10, 100, 1)]));
    assert_eq!(seen[1].draft.flags, Flags::HALTED);
    assert_eq!(seen[4].draft.flags, Flags::NONE);
}

#[test]
fn the_day_ends_closed_and_then_as_the_end_of_the_session_for_every_instrument() {
    let mut tape = Tape::new();
    tape.system(b'O').list("AAPL").on(2).list("MSFT").add(1, b'B', 1, "MSFT", 100);
    tape.system(b'M').system(b'E').system(b'C').system(b'E').system(b'C');
    let seen = seen(&tape);
    let told: Vec<_> = seen[1..]
        .iter()
        .map(|seen| (seen.draft.instrument.0, seen.draft.status, seen.draft.flags))
        .collect();
    let closed = TradingStatus::Closed;
    assert_eq!(
        told,
        [
            (0, closed, Flags::NONE),
            (1, closed, Flags::NONE),
            (0, closed, Flags::END_OF_SESSION),
            (1, closed, Flags::END_OF_SESSION),
        ]
    );
    assert_eq!(seen.last().unwrap().bids.len(), 1, "the book stays");
}

#[test]
fn symbols_lose_their_padding_and_locate_codes_become_dense_ids() {
    let mut tape = Tape::new();
    tape.on(900).list("BRK.A").on(7).list("ABCDEFGH");
    let source = tape.source();
    let told: Vec<_> = source
        .instruments()
        .iter()
        .map(|there| (there.instrument_id.0, &there.symbol[..], there.feed_instrument_id))
        .collect();
    assert_eq!(told, [(0, "BRK.A", 900), (1, "ABCDEFGH", 7)]);
    assert_eq!(source.instruments()[0].venue, "XNAS");
    assert_eq!(source.instruments()[0].lot_size, 100);
}

#[test]
fn locate_codes_are_those_of_the_day_and_symbols_keep_their_ids() {
    let mut decoder = ItchDecoder::new(0, EventEnd::Message, &[]);
    let mut builder = builder();
    let mut monday = Tape::new();
    monday.on(1).list("AAPL").on(2).list("MSFT").add(1, b'B', 1, "MSFT", 100);
    let mut tuesday = Tape::new();
    tuesday.on(2).list("AAPL").on(1).list("MSFT").add(1, b'S', 9, "MSFT", 200);
    for day in [&monday, &tuesday] {
        decoder.begin_session(0);
        for frame in frames(&day.bytes) {
            decoder.decode(frame, &mut builder).unwrap();
        }
    }
    let symbols: Vec<_> = decoder.instruments().iter().map(|there| &there.symbol[..]).collect();
    assert_eq!(symbols, ["AAPL", "MSFT"]);
    let last = builder.sink().last();
    assert_eq!((last.draft.instrument, last.draft.feed_sequence), (InstrumentId(1), 3));
    assert_eq!((last.bids.len(), &last.asks[..]), (0, &[level(2, 9, 1)][..]));
    assert_eq!(builder.live_orders(), 1, "Monday's order is gone");
}

#[test]
fn a_second_start_of_messages_is_another_day_in_the_same_file() {
    let mut tape = Tape::new();
    tape.system(b'O').on(1).list("AAPL").trading("AAPL", b'T').add(1, b'B', 1, "AAPL", 100);
    tape.system(b'C').system(b'O').on(1).list("MSFT").delete(1).add(1, b'B', 5, "MSFT", 300);
    let mut builder = builder();
    play(&mut tape.source_with(per_message()), &mut builder).unwrap();
    assert_eq!(builder.stats().unknown_orders, 1);
    let seen = builder.into_sink().seen;
    let cleared = &seen[seen.len() - 2];
    assert_eq!((cleared.draft.instrument.0, cleared.bids.len()), (0, 0));
    assert_eq!((cleared.draft.flags, cleared.draft.status), (Flags::NONE, TradingStatus::Unknown));
    assert_eq!(seen.last().unwrap().draft.instrument.0, 1);
}

#[test]
fn a_repeated_directory_message_keeps_the_book_and_tells_only_what_changed() {
    let mut tape = Tape::new();
    tape.list("AAPL").add(1, b'B', 1, "AAPL", 100).list("AAPL");
    let mut builder = builder();
    play(&mut tape.source(), &mut builder).unwrap();
    assert_eq!(builder.live_orders(), 1);
    assert_eq!(builder.sink().instruments, [], "known when the source was opened");
    tape.on(9).list("AAPL").on(10).list("MSFT");
    let mut builder = self::builder();
    play(&mut tape.source(), &mut builder).unwrap();
    let told: Vec<_> = builder.sink().instruments.iter().map(|there| &there.symbol[..]).collect();
    assert_eq!(told, ["AAPL", "MSFT"]);
    assert_eq!(builder.sink().instruments[0].feed_instrument_id, 9);
}

#[test]
fn a_recording_that_starts_mid_day_lists_symbols_as_orders_name_them_and_is_suspect() {
    let mut tape = Tape::new();
    tape.on(5).delete(77).add(1, b'B', 100, "AAPL", 1000).delete(1);
    let mut source = tape.source_with(per_message());
    assert_eq!(source.instruments(), []);
    let mut builder = builder();
    play(&mut source, &mut builder).unwrap();
    assert_eq!(source.unlisted(), 1);
    assert_eq!(builder.sink().instruments[0].symbol, "AAPL");
    assert_eq!(builder.sink().seen.len(), 2);
    assert_eq!(builder.sink().last().draft.flags, Flags::SUSPECT, "what came before is missing");
}

#[test]
fn only_the_symbols_asked_for_get_instruments_and_books() {
    let mut tape = Tape::new();
    tape.on(1).list("AAPL").on(2).list("MSFT");
    tape.on(1).add(1, b'B', 1, "AAPL", 100).on(2).add(2, b'B', 2, "MSFT", 200);
    tape.on(1).delete(1).trading("AAPL", b'H').on(2).trading("MSFT", b'T');
    let symbols = vec!["MSFT".to_owned()];
    let mut source = tape.source_with(ItchOptions { symbols, ..per_message() });
    assert_eq!(source.instruments().len(), 1);
    let mut builder = builder();
    play(&mut source, &mut builder).unwrap();
    assert_eq!((builder.stats().events, builder.live_orders()), (2, 1));
    assert_eq!((source.stats().messages, source.unlisted()), (7, 0));
}

#[test]
fn unknown_types_are_counted_and_skipped_and_counts_sum_to_the_messages() {
    let mut tape = Tape::new();
    tape.list("AAPL").raw(b'z', b"something new").raw(0xff, &[]).add(1, b'B', 1, "AAPL", 100);
    tape.bytes.extend([0, 1, b'z']); // an unknown type may be as short as it likes
    for (kind, rest) in [
        (b'Y', 9),
        (b'L', 15),
        (b'V', 24),
        (b'W', 1),
        (b'K', 17),
        (b'J', 24),
        (b'h', 10),
        (b'B', 8),
        (b'I', 39),
        (b'N', 9),
        (b'O', 37),
    ] {
        tape.raw(kind, &vec![b' '; rest]);
    }
    let mut source = tape.source();
    let mut builder = builder();
    play(&mut source, &mut builder).unwrap();
    let stats = source.stats();
    assert_eq!((stats.messages, stats.unknown), (16, 3));
    assert_eq!(stats.by_type.iter().map(|(_, count)| count).sum::<u64>(), 16);
    assert!(stats.by_type.contains(&("z".to_owned(), 2)));
    assert!(stats.by_type.contains(&("\\xff".to_owned(), 1)));
    assert_eq!(builder.sink().last().bids, [level(1, 1, 1)]);
    assert_eq!(builder.sink().last().draft.feed_sequence, 4);
}

#[test]
fn of_a_message_that_has_grown_the_known_part_is_read() {
    let mut tape = Tape::new();
    tape.add(1, b'B', 100, "AAPL", 1000);
    let mut grown = Tape::new();
    grown.list("AAPL");
    let mut fields = tape.bytes[13..].to_vec();
    fields.extend(*b"new fields of a later version");
    grown.raw(b'A', &fields);
    assert_eq!(seen(&grown)[0].bids, [level(10, 100, 1)]);
}

#[test]
fn a_message_shorter_than_its_type_is_an_error_with_its_offset_and_applies_nothing() {
    let mut tape = Tape::new();
    tape.list("AAPL").add(1, b'B', 100, "AAPL", 1000);
    let offset = tape.bytes.len() as u64;
    tape.raw(b'D', &[0; 7]);
    let mut builder = builder();
    let mut source = tape.source();
    for _ in 0..2 {
        let error = play(&mut source, &mut builder).unwrap_err();
        let ItchError::Message { offset: at, messages, error, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*at, *messages), (offset, 2));
        assert_eq!(*error, MessageError::Short { kind: 'D', have: 18, need: 19 });
    }
    assert_eq!(builder.sink().seen.len(), 1, "what was good was delivered");
    assert_eq!(source.stats().messages, 2);
}

#[test]
fn a_side_that_is_neither_makes_the_book_suspect_and_is_not_guessed() {
    let mut tape = Tape::new();
    tape.list("AAPL").add(1, b'B', 100, "AAPL", 1000).add(2, b'?', 100, "AAPL", 1000);
    let seen = seen(&tape);
    assert_eq!(seen[0].draft.flags, Flags::NONE);
    assert_eq!(
        (seen[1].draft.flags, &seen[1].bids[..]),
        (Flags::SUSPECT, &[level(10, 100, 1)][..],)
    );
}

#[test]
fn playing_again_from_the_start_clears_the_books_first() {
    let mut tape = Tape::new();
    tape.list("AAPL").trading("AAPL", b'T').add(1, b'B', 100, "AAPL", 1000);
    let mut source = tape.source_with(per_message());
    let mut builder = builder();
    let mut passes = Vec::new();
    for _ in 0..3 {
        play(&mut source, &mut builder).unwrap();
        let stats = source.stats();
        assert_eq!((stats.messages, stats.bytes_read), (3, tape.bytes.len() as u64));
        passes.push(builder.sink_mut().take());
        source.rewind().unwrap();
    }
    assert_eq!(builder.live_orders(), 1);
    assert_eq!(builder.stats().duplicate_orders, 0);
    assert_eq!(passes[1], passes[2]);
    assert_eq!(passes[1][0].bids, [], "cleared");
    assert_eq!(passes[0], passes[1][1..]);
}

/// The messages of length-prefixed bytes.
fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((prefix, rest)) = bytes.split_first_chunk::<2>() {
        let (frame, rest) = rest.split_at(usize::from(u16::from_be_bytes(*prefix)));
        frames.push(frame);
        bytes = rest;
    }
    frames
}

/// A message of a known type with any content, on few locate codes and order numbers.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(&b"SRHYLVWKJhAFECXDUPQBINO\0z"[..]);
    (kind, 0_u8..3, prop::collection::vec(prop_oneof![3 => 0_u8..3, 1 => any::<u8>()], 0..60))
        .prop_map(|(kind, locate, mut rest)| {
            let mut message = vec![kind, 0, locate];
            message.append(&mut rest);
            message
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_message_makes_decoder_or_books_panic(
        messages in prop::collection::vec(any_message(), 0..100),
        per_message in any::<bool>(),
    ) {
        let event_end = if per_message { EventEnd::Message } else { EventEnd::Timestamp };
        let mut decoder = ItchDecoder::new(u64::MAX - 5, event_end, &[]);
        let mut builder = builder();
        let mut good = 0;
        for message in &messages {
            good += u64::from(decoder.decode(message, &mut builder).is_ok());
        }
        decoder.end_event(&mut builder);
        let stats = decoder.stats();
        prop_assert_eq!(stats.messages, good);
        prop_assert_eq!(stats.by_type.iter().map(|(_, count)| count).sum::<u64>(), good);
    }
}
