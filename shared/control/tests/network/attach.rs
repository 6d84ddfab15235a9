//! Asking for a session over TCP and TLS: granted, refused, and what can go wrong before that.

use std::net::TcpListener as StdListener;
use std::os::fd::AsFd;

use tapecast_control::client::{self, AttachError, TcpTarget};
use tapecast_control::{
    AnswerError, AnyListener, BindError, Ending, TcpListener, TcpListenerOptions,
};
use tapecast_wire::attach::{AttachRequest, MAX_NAME_BYTES, Message, Refusal};

use crate::place::{
    Certificates, LONG, SHORT, accepted, answer, bare, beside, both, connect, options,
    read_message, request, session, target, write_message,
};

#[tokio::test]
async fn a_subscriber_connects_says_that_it_is_ready_and_is_granted() {
    for (mut listener, target) in both() {
        let opening = connect(&target);
        let pending = listener.accept().await;
        assert_eq!(pending.request(), &request());
        let peer = pending.peer();
        assert!(peer.address().unwrap().ip().is_loopback() && peer.local().is_none());
        let names = peer.client().map(|client| client.names().to_vec());
        assert_eq!(names, target.tls.is_some().then(|| vec!["risk.example".to_owned()]));

        let ready = tokio::spawn(async move { pending.connect(&answer()).await.unwrap() });
        let opening = opening.await.unwrap().unwrap();
        assert_eq!(opening.answer(), &answer());
        assert_eq!(opening.publisher(), listener.local_address());
        let granted = beside_ready(opening);
        let lifeline = ready.await.unwrap().accept(&accepted(), &[]).await.unwrap();
        let granted = granted.await.unwrap().unwrap();
        assert_eq!(granted.accepted, accepted());
        assert_eq!(granted.publisher.address(), Some(listener.local_address()));
        assert!(granted.descriptors.is_empty());
        assert_eq!(lifeline.peer(), peer);
        let stats = listener.stats();
        assert_eq!((stats.connections, stats.requests), (1, 1));
    }
}

fn beside_ready(
    opening: client::Opening,
) -> tokio::task::JoinHandle<Result<client::Granted, AttachError>> {
    tokio::task::spawn_blocking(move || opening.ready(LONG))
}

#[tokio::test]
async fn a_refusal_is_heard_before_the_connection_and_after_it() {
    for (mut listener, target) in both() {
        let asked = connect(&target);
        let reason = "this publisher has shared memory";
        listener.accept().await.refuse(Refusal::Fabric, reason).await.unwrap();
        let error = asked.await.unwrap().unwrap_err();
        assert_eq!(error.refusal(), Some(Refusal::Fabric));
        assert!(error.to_string().ends_with(reason), "{error}");

        let opening = connect(&target);
        let pending = listener.accept().await;
        let ready = tokio::spawn(async move { pending.connect(&answer()).await.unwrap() });
        let granted = beside_ready(opening.await.unwrap().unwrap());
        ready.await.unwrap().refuse(Refusal::Full, "all are taken").await.unwrap();
        let error = granted.await.unwrap().unwrap_err();
        assert_eq!(error.refusal(), Some(Refusal::Full));
        assert!(error.is_transient() && error.to_string().ends_with("all are taken"), "{error}");
    }
}

#[tokio::test]
async fn descriptors_do_not_leave_the_host() {
    for (mut listener, target) in both() {
        let asked = connect(&target);
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = listener.accept().await.accept(&accepted(), &[file.as_fd()]).await.unwrap_err();
        assert!(matches!(error, AnswerError::DescriptorsOverTcp { count: 1, .. }), "{error}");
        let error = asked.await.unwrap().unwrap_err();
        assert!(matches!(error, AttachError::Closed { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_grant_of_the_other_fabric_is_told_apart() {
    for (mut listener, target) in both() {
        let asked = connect(&target);
        let _lifeline = listener.accept().await.accept(&accepted(), &[]).await.unwrap();
        let error = asked.await.unwrap().unwrap_err();
        assert!(matches!(error, AttachError::Fabric { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_subscriber_that_is_never_ready_is_given_up_on() {
    let short = TcpListenerOptions { handshake_timeout: SHORT, ..options() };
    let mut listener = TcpListener::bind(short).unwrap();
    let opening = connect(&target(&listener));
    let error = listener.accept().await.connect(&answer()).await.unwrap_err();
    assert!(matches!(error, AnswerError::NotReady { timeout: SHORT, .. }), "{error}");
    let opening = opening.await.unwrap().unwrap();
    let error = beside(move || opening.ready(LONG)).await.unwrap_err();
    assert!(matches!(error, AttachError::Closed { .. }), "{error}");
}

#[tokio::test]
async fn a_subscriber_that_leaves_or_misbehaves_before_it_is_ready_is_told_apart() {
    for (mut listener, target) in both() {
        let opening = connect(&target);
        let pending = listener.accept().await;
        let ready = tokio::spawn(async move { pending.connect(&answer()).await });
        drop(opening.await.unwrap().unwrap());
        let error = ready.await.unwrap().unwrap_err();
        assert!(matches!(error, AnswerError::Gone { .. }), "{error}");
    }
    let mut listener = TcpListener::bind(options()).unwrap();
    let mut stream = bare(listener.local_address());
    write_message(&mut stream, &Message::Attach(request()));
    write_message(&mut stream, &Message::Attach(request()));
    let error = listener.accept().await.connect(&answer()).await.unwrap_err();
    assert!(matches!(error, AnswerError::Misbehaved { .. }), "{error}");
}

#[tokio::test]
async fn a_closing_publisher_says_so_to_those_who_wait() {
    for (listener, target) in both() {
        let asked = connect(&target);
        let listener = AnyListener::from(listener);
        while listener.stats().requests == 0 {
            tokio::task::yield_now().await;
        }
        listener.close();
        let error = asked.await.unwrap().unwrap_err();
        assert_eq!(error.refusal(), Some(Refusal::Closing), "{error}");
        // The port closes when the runtime next comes to it.
        let error = loop {
            match connect(&target).await.unwrap().unwrap_err() {
                AttachError::Closed { .. } => {}
                error => break error,
            }
        };
        let refused = matches!(error, AttachError::ConnectionRefused { .. });
        assert!(refused && error.is_transient(), "{error}");
        assert!(error.to_string().contains("is the publisher running"), "{error}");
    }
}

#[tokio::test]
async fn a_host_is_found_by_its_name() {
    let certificates = Certificates::new();
    let mut listener = certificates.listener();
    let target = TcpTarget { host: "localhost".into(), ..certificates.target(&listener) };
    let (_lifeline, granted) = session(&mut listener, &target).await;
    assert_eq!(granted.publisher.address(), Some(listener.local_address()));
}

#[test]
fn a_name_without_an_address_is_told_from_a_publisher_that_is_absent() {
    // No name server is needed to know that a label cannot be this long.
    let target = TcpTarget::plain(format!("{}.invalid", "x".repeat(64)), 1);
    let error = client::connect(&target, &request(), LONG).unwrap_err();
    assert!(matches!(error, AttachError::NotResolved { .. }) && error.is_transient(), "{error}");
}

#[test]
fn a_silent_publisher_is_given_up_on_with_the_step_that_was_waited_for() {
    let certificates = Certificates::new();
    let silent = StdListener::bind("127.0.0.1:0").unwrap();
    let plain = TcpTarget::plain("127.0.0.1", silent.local_addr().unwrap().port());
    let secure = TcpTarget { tls: Some(certificates.client()), ..plain.clone() };
    for (target, words) in [(plain, "the publisher's answer"), (secure, "the TLS handshake")] {
        let error = client::connect(&target, &request(), SHORT).unwrap_err();
        assert!(matches!(error, AttachError::TimedOut { .. }) && error.is_transient(), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_publisher_that_does_not_grant_is_given_up_on() {
    for (mut listener, target) in both() {
        let opening = connect(&target);
        let pending = listener.accept().await;
        let ready = tokio::spawn(async move { pending.connect(&answer()).await.unwrap() });
        let opening = opening.await.unwrap().unwrap();
        let error = beside(move || opening.ready(SHORT)).await.unwrap_err();
        assert!(matches!(error, AttachError::TimedOut { .. }), "{error}");
        assert!(error.to_string().contains("to grant the session"), "{error}");
        // The grant then finds nobody, now or when its end is looked at.
        if let Ok(mut lifeline) = ready.await.unwrap().accept(&accepted(), &[]).await {
            assert_eq!(lifeline.closed().await, Ending::Gone);
        }
    }
}

#[test]
fn a_request_that_is_too_large_is_refused_before_it_is_sent() {
    let name = "n".repeat(MAX_NAME_BYTES + 1);
    let request = AttachRequest { name, ..request() };
    let error = client::connect(&TcpTarget::plain("127.0.0.1", 1), &request, LONG).unwrap_err();
    assert!(matches!(error, AttachError::Request(_)), "{error}");
}

#[tokio::test]
async fn a_publisher_does_not_listen_in_the_open_without_tls() {
    let error =
        TcpListener::bind(TcpListenerOptions::new("0.0.0.0:0".parse().unwrap())).unwrap_err();
    assert!(matches!(error, BindError::Unprotected { .. }), "{error}");
    let first = TcpListener::bind(options()).unwrap();
    let error = TcpListener::bind(TcpListenerOptions::new(first.local_address())).unwrap_err();
    assert!(matches!(error, BindError::PortInUse { .. }), "{error}");
}

#[tokio::test]
async fn another_wire_version_is_answered_in_words() {
    let mut listener = TcpListener::bind(options()).unwrap();
    let mut stream = bare(listener.local_address());
    let mut frame = Message::Attach(request()).encode().unwrap();
    frame[6] = 99;
    let answer = beside(move || {
        std::io::Write::write_all(&mut stream, &frame).unwrap();
        read_message(&mut stream)
    });
    let answer = tokio::select! {
        answer = answer => answer,
        _ = listener.accept() => panic!("a request of another version was handed on"),
    };
    assert!(matches!(answer, Some(Message::Refused(Refusal::Version, _))), "{answer:?}");
}
