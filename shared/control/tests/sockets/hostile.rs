//! Peers that say nothing, garbage, or too much: they cost little, and nobody else notices.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proptest::prelude::*;
use tapecast_control::ListenerOptions;
use tapecast_wire::attach::{AttachRequest, Message, Refusal};
use tapecast_wire::{WIRE_VERSION, WireError};

use crate::bare::{read_message, write_message};
use crate::support::{Granting, Place, place};

fn refusal(stream: &mut UnixStream) -> (Refusal, String) {
    match read_message(stream) {
        Some(Message::Refused(refusal, reason)) => (refusal, reason),
        other => panic!("{other:?}"),
    }
}

fn impatient(place: &Place) -> ListenerOptions {
    ListenerOptions { handshake_timeout: Duration::from_millis(20), ..place.options() }
}

#[test]
fn a_connection_that_says_nothing_is_refused_in_the_end() {
    let place = place();
    let publisher = Granting::start(impatient(&place));
    let mut silent = place.connect();
    let (refused, reason) = refusal(&mut silent);
    assert_eq!(refused, Refusal::Malformed);
    assert!(reason.contains("within 20ms"), "{reason}");
    assert_eq!(read_message(&mut silent), None);
    assert_eq!(publisher.stop().timed_out, 1);
}

#[test]
fn a_connection_that_trickles_has_no_more_time_than_one_that_is_silent() {
    let place = place();
    let publisher = Granting::start(impatient(&place));
    let mut trickling = place.connect();
    let frame = Message::Attach(AttachRequest::default()).encode().unwrap();
    // All but the last byte, each in its own time; it cannot but be refused.
    for byte in &frame[..frame.len() - 1] {
        let _ = trickling.write_all(&[*byte]);
    }
    assert_eq!(refusal(&mut trickling).0, Refusal::Malformed);
    assert_eq!(publisher.stop().timed_out, 1);
}

#[test]
fn silent_connections_do_not_keep_a_subscriber_out() {
    let place = place();
    let publisher = Granting::start(place.options());
    let silent: Vec<_> = (0..200).map(|_| place.connect()).collect();
    place.attach().unwrap();
    drop(silent);
    let stats = publisher.stop();
    assert_eq!((stats.connections, stats.requests), (201, 1));
}

#[test]
fn beyond_the_limit_the_oldest_silent_connection_makes_room() {
    let place = place();
    let publisher = Granting::start(ListenerOptions { half_open_max: 2, ..place.options() });
    let mut silent: Vec<_> = (0..5).map(|_| place.connect()).collect();
    for crowded_out in &mut silent[..3] {
        let (refused, reason) = refusal(crowded_out);
        assert_eq!(refused, Refusal::Resources, "{reason}");
    }
    // The two that are left may still ask.
    for asking in &mut silent[3..] {
        write_message(asking, &Message::Attach(AttachRequest::default()));
        assert!(matches!(read_message(asking), Some(Message::Accepted(_))));
    }
    place.attach().unwrap();
    let stats = publisher.stop();
    assert_eq!((stats.crowded_out, stats.requests), (3, 3));
}

#[test]
fn a_gigabyte_is_refused_by_its_head_and_not_read() {
    let place = place();
    let publisher = Granting::start(place.options());
    let mut stream = place.connect();
    let mut head = (1u32 << 30).to_le_bytes().to_vec();
    head.extend([1, 0]);
    head.extend(WIRE_VERSION.to_le_bytes());
    stream.write_all(&head).unwrap();
    let block = vec![0; 1 << 16];
    // The connection ends long before a gigabyte has gone through it.
    let blocks = (0..1 << 14).take_while(|_| stream.write_all(&block).is_ok()).count();
    assert!(blocks < 1 << 14, "all of it was taken");
    let (refused, reason) = refusal(&mut stream);
    assert_eq!(refused, Refusal::Malformed);
    assert!(reason.contains("payload_len is 1073741824"), "{reason}");
    place.attach().unwrap();
    assert_eq!(publisher.stop().malformed, 1);
}

#[test]
fn a_subscriber_of_another_version_hears_both_versions() {
    let place = place();
    let publisher = Granting::start(place.options());
    let mut stream = place.connect();
    let mut frame = Message::Attach(AttachRequest::default()).encode().unwrap();
    frame[6..8].copy_from_slice(&77u16.to_le_bytes());
    stream.write_all(&frame).unwrap();
    let (refused, reason) = refusal(&mut stream);
    assert_eq!(refused, Refusal::Version);
    let words = WireError::Version { theirs: 77, ours: WIRE_VERSION }.to_string();
    assert!(reason.contains(&words), "{reason}");
    assert_eq!(publisher.stop().malformed, 1);
}

#[test]
fn a_message_that_is_no_request_is_refused() {
    let place = place();
    let publisher = Granting::start(place.options());
    let mut stream = place.connect();
    write_message(&mut stream, &Message::Detach);
    assert_eq!(refusal(&mut stream).0, Refusal::Malformed);
    assert_eq!(publisher.stop().malformed, 1);
}

#[test]
fn a_connection_that_closes_at_once_is_only_counted() {
    let place = place();
    let publisher = Granting::start(place.options());
    for _ in 0..50 {
        drop(place.connect());
    }
    place.attach().unwrap();
    let stats = publisher.stop();
    assert_eq!((stats.connections, stats.requests, stats.malformed), (51, 1, 0));
}

#[test]
fn a_flood_of_half_requests_does_not_keep_a_subscriber_out() {
    let place = place();
    let publisher = Granting::start(ListenerOptions { half_open_max: 4, ..place.options() });
    let frame = Message::Attach(AttachRequest::default()).encode().unwrap();
    let flood: Vec<_> = (0..300)
        .map(|turn: usize| {
            let mut stream = place.connect();
            let _ = stream.write_all(&frame[..turn % frame.len()]);
            stream
        })
        .collect();
    place.attach().unwrap();
    drop(flood);
    let stats = publisher.stop();
    assert_eq!((stats.connections, stats.requests), (301, 1));
}

/// Bytes that look more or less like frames.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let raw = proptest::collection::vec(any::<u8>(), 0..600);
    let framed = (raw.clone(), 0u32..700, 0u16..7).prop_map(|(payload, len, message)| {
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.extend(message.to_le_bytes());
        bytes.extend(WIRE_VERSION.to_le_bytes());
        bytes.extend(payload);
        bytes
    });
    let damaged = (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| {
        let request = AttachRequest { symbols: vec!["IBM".into(); 9], ..AttachRequest::default() };
        let mut bytes = Message::Attach(request).encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes
    });
    prop_oneof![raw, framed, damaged]
}

#[test]
fn no_bytes_keep_the_publisher_from_its_work() {
    let place = place();
    let publisher = Granting::start(place.options());
    let cases = Cell::new(0);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let run = runner.run(&(noise(), noise()), |(first, second)| {
        cases.set(cases.get() + 1);
        let mut stream = place.connect();
        // It may refuse and close in the middle; that is an answer, too.
        let _ = stream.write_all(&first).and_then(|()| stream.write_all(&second));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // Whatever it says is a frame, and then it ends or waits for more that never comes.
        if let Some(answer) = read_message(&mut stream) {
            let is_answer = matches!(answer, Message::Refused(..) | Message::Accepted(_));
            prop_assert!(is_answer, "{:?}", answer);
        }
        let granted = place.attach();
        prop_assert!(granted.is_ok(), "{:?}", granted);
        Ok(())
    });
    run.unwrap();
    let stats = publisher.stop();
    assert_eq!(stats.connections, 2 * cases.get());
    assert_eq!((stats.timed_out, stats.crowded_out, stats.accept_failures), (0, 0, 0));
    let ended = stats.requests + stats.malformed + stats.gone;
    assert_eq!(ended, stats.connections, "{stats:?}");
    assert!(stats.malformed > 0 && stats.gone > 0, "{stats:?}");
}
