//! Subscriptions as streams.

use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream;
use tapecast_subscriber::{
    EndReason, OwnedSnapshot, PollError, Reconnect, SnapshotStream, StreamError, StreamItemError,
    WaitStrategy,
};
use tapecast_wire::attach::Farewell;

use crate::stage::{CENT, Setup, Stage};
use crate::{builder, place};

const PRICE: i64 = 100 * CENT;

async fn next(stream: &mut SnapshotStream) -> Option<Result<OwnedSnapshot, StreamItemError>> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}

#[tokio::test]
async fn a_stream_yields_every_snapshot_while_other_tasks_run_and_ends_with_the_source() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let mut stream = builder(&socket)
        .wait(WaitStrategy::Fd)
        .reconnect(Reconnect::Never)
        .connect()
        .unwrap()
        .into_stream()
        .unwrap();
    let publishing = tokio::task::spawn_blocking(move || {
        (0..100).for_each(|round| stage.publish(0, PRICE + round));
        stage.close(Farewell::EndOfSource, "");
    });
    let mut bids = Vec::new();
    while let Some(item) = next(&mut stream).await {
        let snapshot = item.unwrap();
        bids.push(snapshot.view().best_bid().unwrap().price.nanos());
    }
    publishing.await.unwrap();
    assert_eq!(bids, (0..100).map(|round| PRICE + round).collect::<Vec<_>>());
    assert!(next(&mut stream).await.is_none(), "a stream that is over stays over");
    assert_eq!(stream.subscriber().statistics().delivered, 100);
}

#[tokio::test]
async fn a_crash_without_reconnection_is_the_last_item() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let subscriber = builder(&socket).wait(WaitStrategy::Fd).reconnect(Reconnect::Never);
    let mut stream = subscriber.connect().unwrap().into_stream().unwrap();
    tokio::task::spawn_blocking(move || drop(stage)).await.unwrap();
    let error = next(&mut stream).await.unwrap().unwrap_err();
    let crashed = PollError::Ended(EndReason::Crashed);
    assert!(matches!(&error, StreamItemError::Poll(end) if *end == crashed), "{error}");
    assert!(next(&mut stream).await.is_none());
}

#[tokio::test]
async fn a_stream_needs_a_descriptor_and_says_how_to_get_one() {
    let (_folder, socket) = place();
    let _stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    let error = builder(&socket).connect().unwrap().into_stream().unwrap_err();
    assert!(matches!(error, StreamError::NoDescriptor));
    assert!(error.to_string().contains("WaitStrategy::Fd"), "{error}");
}
