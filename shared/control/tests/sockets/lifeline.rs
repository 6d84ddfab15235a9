//! The connection after the grant: how each side learns of the other's end.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use tapecast_control::client::{ClientLifeline, LifelineStatus};
use tapecast_control::{Ending, Lifeline, Listener};
use tapecast_wire::attach::{AttachRequest, Farewell, MAX_REASON_BYTES, Message};

use crate::bare::{fake_publisher, read_message, session, write_message};
use crate::support::{Place, accepted, place};

/// Waits for news, as an application's event loop would.
fn news(lifeline: &mut ClientLifeline) -> LifelineStatus {
    poll(&mut [PollFd::new(&*lifeline, PollFlags::IN)], None).unwrap();
    lifeline.status()
}

/// A session whose subscriber is a bare socket.
async fn bare_session(place: &Place, listener: &mut Listener) -> (Lifeline, UnixStream) {
    let mut stream = place.connect();
    write_message(&mut stream, &Message::Attach(AttachRequest::default()));
    let lifeline = listener.accept().await.accept(&accepted(), &[]).await.unwrap();
    assert!(matches!(read_message(&mut stream), Some(Message::Accepted(_))));
    (lifeline, stream)
}

#[tokio::test]
async fn a_subscriber_that_detaches_has_left_in_good_order() {
    let place = place();
    let mut listener = place.listener();
    let (mut lifeline, granted) = session(&place, &mut listener).await;
    granted.lifeline.detach();
    assert_eq!(lifeline.closed().await, Ending::Detached);
}

#[tokio::test]
async fn a_subscriber_that_drops_its_lifeline_is_gone() {
    let place = place();
    let mut listener = place.listener();
    let (mut lifeline, granted) = session(&place, &mut listener).await;
    drop(granted);
    assert_eq!(lifeline.closed().await, Ending::Gone);
    assert_eq!(lifeline.closed().await, Ending::Gone);
}

#[tokio::test]
async fn a_session_that_lives_says_so_and_nothing_ends_by_itself() {
    let place = place();
    let mut listener = place.listener();
    let (mut lifeline, mut granted) = session(&place, &mut listener).await;
    assert_eq!(granted.lifeline.status(), LifelineStatus::Alive);
    tokio::select! {
        biased;
        ending = lifeline.closed() => panic!("{ending:?}"),
        () = tokio::task::yield_now() => {}
    }
}

#[tokio::test]
async fn the_words_of_a_farewell_arrive_before_the_end() {
    let place = place();
    let mut listener = place.listener();
    for farewell in [Farewell::Closing, Farewell::Evicted, Farewell::EndOfSource] {
        let (lifeline, mut granted) = session(&place, &mut listener).await;
        lifeline.farewell(farewell, "the day is over");
        let expected = LifelineStatus::Farewell(farewell, "the day is over".into());
        assert_eq!(news(&mut granted.lifeline), expected);
        assert_eq!(granted.lifeline.status(), expected, "a farewell is final");
    }
}

#[tokio::test]
async fn a_farewell_arrives_even_when_the_subscriber_has_just_detached() {
    let place = place();
    let mut listener = place.listener();
    let (lifeline, mut stream) = bare_session(&place, &mut listener).await;
    write_message(&mut stream, &Message::Detach);
    lifeline.farewell(Farewell::Closing, "bye");
    let farewell = Message::Farewell(Farewell::Closing, "bye".into());
    assert_eq!(read_message(&mut stream), Some(farewell));
    assert_eq!(read_message(&mut stream), None);
}

#[tokio::test]
async fn a_reason_that_is_too_long_is_cut_and_not_lost() {
    let place = place();
    let mut listener = place.listener();
    let (lifeline, mut granted) = session(&place, &mut listener).await;
    lifeline.farewell(Farewell::Evicted, &"x".repeat(MAX_REASON_BYTES + 1));
    let expected = LifelineStatus::Farewell(Farewell::Evicted, "x".repeat(MAX_REASON_BYTES));
    assert_eq!(news(&mut granted.lifeline), expected);
}

#[tokio::test]
async fn a_publisher_that_drops_its_lifeline_is_gone() {
    let place = place();
    let mut listener = place.listener();
    let (lifeline, mut granted) = session(&place, &mut listener).await;
    drop(lifeline);
    assert_eq!(news(&mut granted.lifeline), LifelineStatus::Gone);
    assert_eq!(granted.lifeline.status(), LifelineStatus::Gone);
}

#[tokio::test]
async fn sessions_outlive_their_listener() {
    let place = place();
    let mut listener = place.listener();
    let (mut lifeline, mut granted) = session(&place, &mut listener).await;
    listener.close();
    assert_eq!(granted.lifeline.status(), LifelineStatus::Alive);
    granted.lifeline.detach();
    assert_eq!(lifeline.closed().await, Ending::Detached);
}

#[tokio::test]
async fn a_subscriber_that_only_half_closes_is_gone() {
    let place = place();
    let mut listener = place.listener();
    let (mut lifeline, stream) = bare_session(&place, &mut listener).await;
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(lifeline.closed().await, Ending::Gone);
}

#[tokio::test]
async fn anything_but_detach_is_misbehaviour() {
    let place = place();
    let mut listener = place.listener();
    let request = Message::Attach(AttachRequest::default()).encode().unwrap();
    // A head that promises what never comes must not be waited for.
    let mut promising = Message::Detach.encode().unwrap();
    promising[0] = 1;
    for bytes in [&request[..], &promising, &[0xff; 64], &[0; 8]] {
        let (mut lifeline, mut stream) = bare_session(&place, &mut listener).await;
        stream.write_all(bytes).unwrap();
        assert_eq!(lifeline.closed().await, Ending::Misbehaved);
    }
}

#[tokio::test]
async fn waiting_for_the_end_may_be_cancelled_in_the_middle_of_a_message() {
    let place = place();
    let mut listener = place.listener();
    let (mut lifeline, mut stream) = bare_session(&place, &mut listener).await;
    for byte in Message::Detach.encode().unwrap() {
        tokio::select! {
            biased;
            ending = lifeline.closed() => panic!("{ending:?}"),
            () = tokio::task::yield_now() => {}
        }
        stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(lifeline.closed().await, Ending::Detached);
}

fn granted_by_one_that_then_says(bytes: impl Into<Vec<u8>>) -> LifelineStatus {
    let place = place();
    let bytes = bytes.into();
    let publisher = fake_publisher(&place, move |mut stream| {
        write_message(&mut stream, &Message::Accepted(accepted()));
        stream.write_all(&bytes).unwrap();
    });
    let mut granted = place.attach().unwrap();
    publisher.join().unwrap();
    news(&mut granted.lifeline)
}

#[test]
fn a_publisher_that_says_anything_but_farewell_is_gone() {
    let farewell = Message::Farewell(Farewell::Closing, "bye".into()).encode().unwrap();
    assert_eq!(
        granted_by_one_that_then_says(&farewell[..farewell.len() - 1]),
        LifelineStatus::Gone
    );
    assert_eq!(granted_by_one_that_then_says([0xff; 4096]), LifelineStatus::Gone);
    let detach = Message::Detach.encode().unwrap();
    assert_eq!(granted_by_one_that_then_says(detach), LifelineStatus::Gone);
    let mut long = Message::Accepted(accepted()).encode().unwrap();
    long.extend(farewell);
    assert_eq!(granted_by_one_that_then_says(long), LifelineStatus::Gone);
}
