//! The smallest useful subscriber: prints the best bid and ask of each change.
//!
//! ```text
//! cargo run --example print_top_of_book -- AAPL MSFT      (no symbols: every instrument)
//! ```
//!
//! Start a publisher first, for example `tapecast-publisher run --source synthetic`.

use std::error::Error;
use std::time::Duration;

use tapecast_subscriber::{BookLevel, PollError, Subscriber};

fn main() -> Result<(), Box<dyn Error>> {
    let symbols = std::env::args().skip(1);
    let mut subscriber = Subscriber::builder().symbols(symbols).connect()?;
    loop {
        // Sleeps until there is something; costs nothing meanwhile.
        subscriber.wait(Duration::from_secs(1))?;
        let polled = subscriber.poll(|snapshot| {
            let price = |level: Option<BookLevel>| level.map(|level| level.price.to_string());
            let bid = price(snapshot.best_bid()).unwrap_or_default();
            let ask = price(snapshot.best_ask()).unwrap_or_default();
            println!("{:8} {bid:>12} {ask:>12}", snapshot.symbol());
        });
        // Publisher gone, attached again, farewell: the SDK copes by itself and says so here.
        for event in subscriber.events() {
            eprintln!("{event}");
        }
        match polled {
            Ok(_) => {}
            Err(PollError::Ended(reason)) => break eprintln!("{reason}"),
            // This session met bytes that it cannot use; the next polls attach again.
            Err(error) => eprintln!("{error}"),
        }
    }
    Ok(())
}
