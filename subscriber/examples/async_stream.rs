//! A subscription as a stream on tokio.
//!
//! ```text
//! cargo run --features async --example async_stream -- AAPL
//! ```

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use tapecast_subscriber::{OwnedSnapshot, StreamItemError, Subscriber, WaitStrategy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let symbols = std::env::args().skip(1);
    let mut stream =
        Subscriber::builder().symbols(symbols).wait(WaitStrategy::Fd).connect()?.into_stream()?;
    let mut every_second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            snapshot = next(&mut stream) => match snapshot {
                Some(Ok(snapshot)) => {
                    let view = snapshot.view();
                    println!("{:8} {:?} {:?}", view.symbol(), view.best_bid(), view.best_ask());
                }
                Some(Err(error)) => eprintln!("{error}"),
                None => return Ok(()),
            },
            _ = every_second.tick() => {
                for event in stream.subscriber_mut().events() {
                    eprintln!("{event}");
                }
            }
        }
    }
}

/// What `StreamExt::next` of the `futures` crate does.
async fn next(
    stream: &mut (impl Stream<Item = Result<OwnedSnapshot, StreamItemError>> + Unpin),
) -> Option<Result<OwnedSnapshot, StreamItemError>> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}
