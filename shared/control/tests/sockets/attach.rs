//! Asking for a session: granted, refused, and everything that can go wrong.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
use tapecast_control::client::{self, AttachError};
use tapecast_control::{AnswerError, MAX_DESCRIPTORS, PathError};
use tapecast_wire::attach::{
    Accepted, AttachRequest, Farewell, LagLimits, MAX_NAME_BYTES, MAX_SYMBOLS, Message, Policy,
    Refusal,
};
use tapecast_wire::{InstrumentId, Nanos, WIRE_VERSION, WireError};

use crate::bare::{
    beside, fake_publisher, file_with, read_message, send_descriptors, text_of, traced_descriptor,
    wait_until_closed, write_message,
};
use crate::support::{LONG, Place, accepted, attach, place};

#[tokio::test]
async fn a_subscriber_gets_its_session_and_its_descriptors_in_order() {
    let place = place();
    let mut listener = place.listener();
    let socket = place.socket.clone();
    let subscriber = tokio::task::spawn_blocking(move || attach(&socket).unwrap());

    let pending = listener.accept().await;
    assert_eq!(pending.peer().local().unwrap().pid, Some(std::process::id()));
    let files = [file_with("ring"), file_with("cell"), file_with("wake")];
    let descriptors = files.each_ref().map(AsFd::as_fd);
    let lifeline = pending.accept(&accepted(), &descriptors).await.unwrap();
    assert_eq!(lifeline.peer().local().unwrap().pid, Some(std::process::id()));

    let granted = subscriber.await.unwrap();
    assert_eq!(granted.accepted, accepted());
    assert_eq!(granted.publisher.local().unwrap().pid, Some(std::process::id()));
    for descriptor in &granted.descriptors {
        assert!(fcntl_getfd(descriptor).unwrap().contains(FdFlags::CLOEXEC));
    }
    assert!(fcntl_getfd(&granted.lifeline).unwrap().contains(FdFlags::CLOEXEC));
    let texts: Vec<_> = granted.descriptors.into_iter().map(text_of).collect();
    assert_eq!(texts, ["ring", "cell", "wake"]);
}

#[tokio::test]
async fn the_largest_request_and_answer_arrive_whole() {
    let place = place();
    let mut listener = place.listener();
    let request = AttachRequest {
        name: "n".repeat(MAX_NAME_BYTES),
        policy: Policy::Lossless,
        lag: LagLimits { bytes: u64::MAX, time: Nanos(u64::MAX) },
        min_interval: Nanos(u64::MAX),
        allow_unknown: true,
        symbols: (0..MAX_SYMBOLS).map(|number| format!("SYMBOL-{number:017}")).collect(),
        rdma: None,
    };
    let (socket, sent) = (place.socket.clone(), request.clone());
    let subscriber = tokio::task::spawn_blocking(move || client::attach(&socket, &sent, LONG));

    let pending = listener.accept().await;
    assert_eq!(pending.request(), &request);
    let instruments = (0..MAX_SYMBOLS as u32).map(InstrumentId).collect();
    let answer = Accepted { instruments, ..accepted() };
    let file = file_with("x");
    let lifeline = pending.accept(&answer, &[file.as_fd(); MAX_DESCRIPTORS]).await.unwrap();

    let granted = subscriber.await.unwrap().unwrap();
    assert_eq!(granted.accepted, answer);
    assert_eq!(granted.descriptors.len(), MAX_DESCRIPTORS);
    drop(lifeline);
}

#[tokio::test]
async fn a_refusal_arrives_with_its_reason() {
    let place = place();
    let mut listener = place.listener();
    for (refusal, is_transient) in [
        (Refusal::Full, true),
        (Refusal::Closing, true),
        (Refusal::Resources, true),
        (Refusal::UnknownSymbol, false),
        (Refusal::Policy, false),
        (Refusal::NotAllowed, false),
    ] {
        let socket = place.socket.clone();
        let subscriber = tokio::task::spawn_blocking(move || attach(&socket));
        listener.accept().await.refuse(refusal, "there is no IBM here").await.unwrap();
        let error = subscriber.await.unwrap().unwrap_err();
        assert_eq!(error.refusal(), Some(refusal));
        assert_eq!(error.is_transient(), is_transient, "{refusal:?}");
        assert!(error.to_string().ends_with("refused: there is no IBM here"), "{error}");
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_ends_the_connection() {
    let place = place();
    let mut listener = place.listener();
    let socket = place.socket.clone();
    let subscriber = tokio::task::spawn_blocking(move || attach(&socket));
    drop(listener.accept().await);
    let error = subscriber.await.unwrap().unwrap_err();
    assert!(matches!(error, AttachError::Closed { .. }) && error.is_transient(), "{error}");
}

#[tokio::test]
async fn a_subscriber_that_is_gone_is_told_to_the_publisher() {
    let place = place();
    let mut listener = place.listener();
    let mut stream = place.connect();
    write_message(&mut stream, &Message::Attach(AttachRequest::default()));
    let pending = listener.accept().await;
    drop(stream);
    let error = pending.accept(&accepted(), &[]).await.unwrap_err();
    assert!(matches!(error, AnswerError::Gone { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused_before_it_is_sent() {
    let place = place();
    let mut listener = place.listener();
    let mut stream = place.connect();
    write_message(&mut stream, &Message::Attach(AttachRequest::default()));
    let pending = listener.accept().await;
    let file = file_with("x");
    let descriptors = [file.as_fd(); MAX_DESCRIPTORS + 1];
    let error = pending.accept(&accepted(), &descriptors).await.unwrap_err();
    assert!(matches!(error, AnswerError::Descriptors { count: 17 }), "{error}");
    assert_eq!(beside(move || read_message(&mut stream)).await, None);

    let mut stream = place.connect();
    write_message(&mut stream, &Message::Attach(AttachRequest::default()));
    let instruments = vec![InstrumentId(1); MAX_SYMBOLS + 1];
    let answer = Accepted { instruments, ..accepted() };
    let error = listener.accept().await.accept(&answer, &[]).await.unwrap_err();
    assert!(matches!(error, AnswerError::Answer(WireError::Field { .. })), "{error}");
}

#[tokio::test]
async fn a_closing_publisher_says_so_to_those_who_wait() {
    let place = place();
    let listener = place.listener();
    let mut stream = place.connect();
    write_message(&mut stream, &Message::Attach(AttachRequest::default()));
    while listener.stats().requests == 0 {
        tokio::task::yield_now().await;
    }
    listener.close();
    let answer = beside(move || read_message(&mut stream)).await;
    assert!(matches!(answer, Some(Message::Refused(Refusal::Closing, _))), "{answer:?}");
    assert!(matches!(place.attach(), Err(AttachError::NoSocket { .. })));
}

#[test]
fn a_missing_socket_is_named_with_a_question_that_helps() {
    let place = place();
    let error = place.attach().unwrap_err();
    assert!(matches!(error, AttachError::NoSocket { .. }) && error.is_transient());
    let text = error.to_string();
    assert!(text.contains("p.sock") && text.contains("is the publisher running"), "{text}");
    let error = attach(&place.directory.path().join("absent/p.sock")).unwrap_err();
    assert!(matches!(error, AttachError::NoSocket { .. }), "{error}");
}

#[test]
fn a_socket_that_nobody_listens_on_is_told_from_a_file_that_is_none() {
    let place = place();
    drop(UnixListener::bind(&place.socket).unwrap());
    let error = place.attach().unwrap_err();
    assert!(matches!(error, AttachError::NobodyListens { .. }) && error.is_transient());

    std::fs::remove_file(&place.socket).unwrap();
    std::fs::write(&place.socket, "").unwrap();
    let error = place.attach().unwrap_err();
    assert!(matches!(error, AttachError::NotASocket { .. }) && !error.is_transient());
}

#[test]
fn a_path_that_no_socket_can_have_is_refused_with_its_length() {
    let error = attach(Path::new(&format!("/{}", "x".repeat(107)))).unwrap_err();
    assert!(matches!(error, AttachError::Path(PathError::TooLong { bytes: 108, .. })));
    assert!(error.to_string().contains("shorter"), "{error}");
    assert!(matches!(attach(Path::new("")), Err(AttachError::Path(PathError::Empty))));
}

#[test]
fn a_request_that_is_too_large_is_refused_before_it_is_sent() {
    let request =
        AttachRequest { name: "n".repeat(MAX_NAME_BYTES + 1), ..AttachRequest::default() };
    let error = client::attach(Path::new("/absent"), &request, LONG).unwrap_err();
    assert!(matches!(error, AttachError::Request(WireError::Field { field: "name", .. })));
}

#[test]
fn a_publisher_that_does_not_answer_is_given_up_on() {
    let place = place();
    let _silent = UnixListener::bind(&place.socket).unwrap();
    // On a busy machine a short time may be over before the connection is there: then a longer one.
    let (timeout, error) = (0..)
        .map(|doublings| Duration::from_millis(20 << doublings))
        .map(|timeout| {
            let request = AttachRequest::default();
            (timeout, client::attach(&place.socket, &request, timeout).unwrap_err())
        })
        .find(|(_, error)| !matches!(error, AttachError::TimedOut { step: "to connect", .. }))
        .unwrap();
    assert!(matches!(&error, AttachError::TimedOut { step, .. } if step.contains("answer")));
    assert!(error.to_string().contains(&format!("{timeout:?}")) && error.is_transient());
}

#[test]
fn a_publisher_that_takes_no_connections_is_given_up_on() {
    let place = place();
    let stopped = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&stopped, &SocketAddrUnix::new(&place.socket).unwrap()).unwrap();
    listen(&stopped, 0).unwrap();
    let _fills_the_queue = place.connect();
    for timeout in [Duration::ZERO, Duration::from_millis(20)] {
        let error = client::attach(&place.socket, &AttachRequest::default(), timeout).unwrap_err();
        assert!(matches!(&error, AttachError::TimedOut { step: "to connect", .. }), "{error}");
    }
}

#[test]
fn a_publisher_of_another_version_is_named_with_both_versions() {
    let place = place();
    let publisher = fake_publisher(&place, |mut stream| {
        let mut frame = Message::Accepted(accepted()).encode().unwrap();
        frame[6..8].copy_from_slice(&(WIRE_VERSION + 8).to_le_bytes());
        stream.write_all(&frame).unwrap();
    });
    let error = place.attach().unwrap_err();
    let (theirs, ours) = (WIRE_VERSION + 8, WIRE_VERSION);
    assert!(
        matches!(error, AttachError::Version { theirs: t, ours: o, .. } if t == theirs && o == ours)
    );
    let text = error.to_string();
    assert!(text.contains(&format!("version {theirs}")), "{text}");
    assert!(text.contains(&format!("this subscriber {ours}")), "{text}");
    assert!(!error.is_transient());
    publisher.join().unwrap();
}

fn attach_to_one_that_says(bytes: impl Into<Vec<u8>>) -> AttachError {
    let place = place();
    let bytes = bytes.into();
    let publisher = fake_publisher(&place, move |mut stream| stream.write_all(&bytes).unwrap());
    let error = place.attach().unwrap_err();
    publisher.join().unwrap();
    error
}

#[test]
fn answers_that_are_none_are_refused() {
    let detach = Message::Detach.encode().unwrap();
    let error = attach_to_one_that_says(detach.clone());
    assert!(matches!(error, AttachError::NotAnAnswer { .. }), "{error}");

    let farewell = Message::Farewell(Farewell::Evicted, String::new()).encode().unwrap();
    let error = attach_to_one_that_says(farewell);
    assert!(matches!(error, AttachError::NotAnAnswer { .. }), "{error}");

    let mut unknown = detach;
    unknown[4] = 99;
    let error = attach_to_one_that_says(unknown);
    assert!(matches!(error, AttachError::Answer { .. }), "{error}");

    let mut huge = u32::MAX.to_le_bytes().to_vec();
    huge.extend([2, 0]);
    huge.extend(WIRE_VERSION.to_le_bytes());
    let error = attach_to_one_that_says(huge);
    assert!(matches!(error, AttachError::Answer { .. }), "{error}");

    let mut cut = Message::Accepted(accepted()).encode().unwrap();
    cut.pop();
    let error = attach_to_one_that_says(cut);
    assert!(matches!(error, AttachError::Closed { .. }), "{error}");
}

fn attach_to_one_that_sends(bytes: Vec<u8>, copies: usize) -> (Place, AttachError) {
    let place = place();
    let (reader, writer) = traced_descriptor();
    let beside = writer.try_clone().unwrap();
    let publisher =
        fake_publisher(&place, move |stream| send_descriptors(&stream, &bytes, beside, copies));
    let error = place.attach().unwrap_err();
    publisher.join().unwrap();
    wait_until_closed(reader, writer);
    (place, error)
}

#[test]
fn descriptors_beside_a_failure_are_all_closed() {
    let answer = Message::Accepted(accepted()).encode().unwrap();
    for copies in [MAX_DESCRIPTORS + 1, MAX_DESCRIPTORS + 2, 64] {
        let (_place, error) = attach_to_one_that_sends(answer.clone(), copies);
        assert!(matches!(error, AttachError::Descriptors { .. }), "{copies}: {error}");
    }
    let refused = Message::Refused(Refusal::Full, String::new()).encode().unwrap();
    let (_place, error) = attach_to_one_that_sends(refused, 3);
    assert!(matches!(error, AttachError::Refused { .. }), "{error}");
    let (_place, error) = attach_to_one_that_sends(vec![0xff; 300], 3);
    assert!(matches!(error, AttachError::Version { .. }), "{error}");
    let (_place, error) = attach_to_one_that_sends(answer[..9].to_vec(), 3);
    assert!(matches!(error, AttachError::Closed { .. }), "{error}");
}

#[test]
fn descriptors_are_counted_over_the_whole_answer() {
    let place = place();
    let (reader, writer) = traced_descriptor();
    let sent = writer.try_clone().unwrap();
    let publisher = fake_publisher(&place, move |stream| {
        let answer = Message::Accepted(accepted()).encode().unwrap();
        send_descriptors(&stream, &answer[..8], &sent, MAX_DESCRIPTORS);
        send_descriptors(&stream, &answer[8..], &sent, 1);
    });
    let error = place.attach().unwrap_err();
    assert!(matches!(error, AttachError::Descriptors { .. }), "{error}");
    publisher.join().unwrap();
    wait_until_closed(reader, writer);
}

#[tokio::test]
async fn the_publisher_keeps_no_descriptor_that_a_subscriber_sends() {
    let place = place();
    let mut listener = place.listener();
    let (reader, writer) = traced_descriptor();
    let mut stream = place.connect();
    let request = Message::Attach(AttachRequest::default()).encode().unwrap();
    send_descriptors(&stream, &request, &writer, 5);
    let pending = listener.accept().await;
    let mut lifeline = pending.accept(&accepted(), &[]).await.unwrap();
    assert!(matches!(read_message(&mut stream), Some(Message::Accepted(_))));
    send_descriptors(&stream, &Message::Detach.encode().unwrap(), &writer, 5);
    lifeline.closed().await;
    // Stream and lifeline still live: nothing but closing every copy can end this wait.
    beside(move || wait_until_closed(reader, writer)).await;
    drop(stream);
}

#[tokio::test]
async fn granted_descriptors_are_the_subscribers_alone_after_the_publisher_drops_its_own() {
    let place = place();
    let mut listener = place.listener();
    let (reader, writer) = traced_descriptor();
    let socket = place.socket.clone();
    let subscriber = tokio::task::spawn_blocking(move || attach(&socket).unwrap());
    let pending = listener.accept().await;
    let _lifeline = pending.accept(&accepted(), &[writer.as_fd(); 2]).await.unwrap();
    let granted = subscriber.await.unwrap();
    let descriptors: Vec<OwnedFd> = granted.descriptors;
    assert_eq!(descriptors.len(), 2);
    drop(descriptors);
    beside(move || wait_until_closed(reader, writer)).await;
}
