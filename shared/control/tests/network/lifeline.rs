//! A granted session's connection over TCP and TLS.

use tapecast_control::Ending;
use tapecast_control::client::LifelineStatus;
use tapecast_wire::attach::{Farewell, MAX_REASON_BYTES};

use crate::place::{LONG, accepted, answer, beside, both, connect, session, wait_readable};

#[tokio::test]
async fn a_farewell_arrives_with_its_text_and_is_final() {
    for (mut listener, target) in both() {
        let (lifeline, mut granted) = session(&mut listener, &target).await;
        assert_eq!(granted.lifeline.status(), LifelineStatus::Alive);
        let reason = "é".repeat(MAX_REASON_BYTES / 2);
        lifeline.farewell(Farewell::Evicted, &reason);
        let told = beside(move || {
            loop {
                wait_readable(&granted.lifeline);
                let status = granted.lifeline.status();
                if status != LifelineStatus::Alive {
                    assert_eq!(granted.lifeline.status(), status);
                    return status;
                }
            }
        });
        assert_eq!(told.await, LifelineStatus::Farewell(Farewell::Evicted, reason));
    }
}

#[tokio::test]
async fn a_farewell_that_comes_with_the_grant_is_not_lost() {
    for (mut listener, target) in both() {
        let opening = connect(&target);
        let pending = listener.accept().await;
        let ended = tokio::spawn(async move {
            let pending = pending.connect(&answer()).await.unwrap();
            let lifeline = pending.accept(&accepted(), &[]).await.unwrap();
            lifeline.farewell(Farewell::Closing, "at once");
        });
        let opening = opening.await.unwrap().unwrap();
        let told = beside(move || {
            let mut granted = opening.ready(LONG).unwrap();
            loop {
                wait_readable(&granted.lifeline);
                match granted.lifeline.status() {
                    LifelineStatus::Alive => {}
                    status => return status,
                }
            }
        });
        let told = told.await;
        ended.await.unwrap();
        assert_eq!(told, LifelineStatus::Farewell(Farewell::Closing, "at once".into()));
    }
}

#[tokio::test]
async fn a_subscriber_that_leaves_in_good_order_is_told_from_one_that_is_gone() {
    for (mut listener, target) in both() {
        let (mut lifeline, granted) = session(&mut listener, &target).await;
        granted.lifeline.detach();
        assert_eq!(lifeline.closed().await, Ending::Detached);
        let (mut lifeline, granted) = session(&mut listener, &target).await;
        drop(granted);
        assert_eq!(lifeline.closed().await, Ending::Gone);
    }
}

#[tokio::test]
async fn a_publisher_that_dies_is_gone() {
    for (mut listener, target) in both() {
        let (lifeline, mut granted) = session(&mut listener, &target).await;
        drop(lifeline);
        let told = beside(move || {
            wait_readable(&granted.lifeline);
            granted.lifeline.status()
        });
        assert_eq!(told.await, LifelineStatus::Gone);
    }
}

#[tokio::test]
async fn a_subscriber_learns_how_the_clocks_relate_and_is_sent_away_when_it_asks_all_the_time() {
    for (mut listener, target) in both() {
        let (mut lifeline, mut granted) = session(&mut listener, &target).await;
        let publisher = tokio::spawn(async move { lifeline.closed().await });
        let asked = beside(move || {
            let clock = granted.lifeline.clock();
            assert_eq!(clock, None, "nothing is known before the first answer");
            granted.lifeline.ping();
            while granted.lifeline.clock().is_none() {
                wait_readable(&granted.lifeline);
                assert_eq!(granted.lifeline.status(), LifelineStatus::Alive);
            }
            let clock = granted.lifeline.clock().unwrap();
            // One host, one clock: the true offset is 0, and the estimate is right within its
            // error.
            assert!(clock.offset_ns.unsigned_abs() <= clock.error_ns + 1, "{clock:?}");
            assert!(clock.round_trip_ns > 0, "{clock:?}");
            while granted.lifeline.status() == LifelineStatus::Alive {
                granted.lifeline.ping();
            }
        });
        asked.await;
        assert_eq!(publisher.await.unwrap(), Ending::Misbehaved);
    }
}
