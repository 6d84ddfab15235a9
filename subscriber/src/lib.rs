//! Receive order books from a tapecast publisher.
//!
//! A subscription attaches to a publisher on the same machine and maps its ring read-only, or to
//! one on another machine that writes into its memory over RDMA. It receives the newest snapshot
//! of every instrument, then every change. One that does not keep up sees the newest state, marked
//! with the number of older ones it replaces; nothing is lost in silence, and no subscriber can
//! slow another one or the publisher.
//!
//! # Quick start
//! ```no_run
//! use std::time::Duration;
//! use tapecast_subscriber::{Subscriber, Wakeup};
//!
//! let mut subscriber = Subscriber::builder().symbols(["AAPL", "MSFT"]).connect()?;
//! while subscriber.wait(Duration::from_secs(1))? != Wakeup::Ended {
//!     subscriber.poll(|snapshot| {
//!         if let (Some(bid), Some(ask)) = (snapshot.best_bid(), snapshot.best_ask()) {
//!             println!("{} {} / {}", snapshot.symbol(), bid.price, ask.price);
//!         }
//!     })?;
//!     for event in subscriber.events() {
//!         eprintln!("{event}");
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Over which fabric
//! [`SubscriberBuilder::socket`] names a publisher on this machine,
//! [`SubscriberBuilder::connect_to`] one that is reached over RDMA (RoCE v2); the last one given
//! counts. In the environment `TAPECAST_CONNECT` and `TAPECAST_SOCKET` do the same. Everything else
//! is alike over both. Over RDMA the session is asked for over TCP, with TLS unless that is a
//! loopback address ([`TlsChoices`]); [`RdmaChoices`] says which device to use, and how.
//!
//! # How to wait
//! | [`WaitStrategy`] | latency | cost while idle |
//! |---|---|---|
//! | `Spin` | lowest | a whole core |
//! | `Yield` | low | what others leave |
//! | `Block` (default) | a wake-up more | about nothing |
//! | `Fd` | as `Block`, a little more | about nothing; [`Subscriber::as_fd`] for epoll, and streams |
//!
//! A program that spins may leave [`Subscriber::wait`] out and poll in a loop.
//!
//! # When this program does not keep up
//! | [`Policy`] | what happens | for |
//! |---|---|---|
//! | `Conflate` (default) | the newest state of each instrument, marked with the count it stands for | trading |
//! | `Disconnect` | the session ends, with a reason, rather than that anything is left out; or earlier, see [`SubscriberBuilder::disconnect_after`] | recording, strategies that need every change |
//! | `Lossless` | the publisher waits, where its configuration allows that, and not for ever | replay, back-tests |
//!
//! [`SubscriberBuilder::min_interval`] conflates on purpose, for people and dashboards.
//!
//! # Another choice while attached
//! [`Subscriber::watch`] takes instruments up, [`Subscriber::unwatch`] drops them, and
//! [`Subscriber::refresh`] has the newest snapshot delivered once more. An [`AbSubscriber`] keeps
//! the choice that it began with.
//!
//! # When the publisher goes
//! [`Subscriber::state`] says [`State::Stale`] at once, with the cause: crashed, closed, silent,
//! evicted, RDMA connection broken. What was published before is still delivered. The SDK attaches
//! again by itself, the first time at once, then with jittered pauses of at most 100 ms; then every
//! instrument's newest snapshot comes as an initial image and the state is [`State::Live`]. The
//! account goes on: published = delivered + conflated (+ lost, which is a bug and stays 0).
//!
//! Where the next publisher goes on in the same ring (its `shm.keep`), no images are needed: the
//! new session begins with the first snapshot of that publisher's life, and misses none of it
//! ([`Event::Reattached`], `continued`). Sequences begin at 1 again, and the epoch is another.
//!
//! # When the feed is silent
//! The publisher may live and yet be told nothing: [`Subscriber::feed`] says [`FeedState::Silent`]
//! and since when. Nothing is stale then, for there is nothing newer to be had; but books may be
//! old. How long a feed must be quiet for that is the publisher's `source.silent_after_s`.
//!
//! # Two publishers of one feed
//! [`AbSubscriber`] attaches to both, delivers each snapshot once, from the side that brings it
//! first, and goes on without a gap when one dies. It tells each side's wins, gaps and lateness.
//!
//! # What it costs
//! [`Subscriber::poll`] allocates nothing and makes no system call while there is something to
//! deliver; over RDMA that is so where the device's library makes none (Soft-RoCE's makes some).
//! With [`SubscriberBuilder::latency`] it reads the clock once for each snapshot. One more thread
//! sleeps on the connection to the publisher; it runs when the publisher goes.
//!
//! # Features
//! - `cli` (default): the command `tapecast-subscriber`. Libraries want `default-features = false`.
//! - `verbs` (default): sessions over RDMA; needs libibverbs. Without it the SDK is the same, and
//!   `connect_to` is refused when it connects.
//! - `async`: `Subscriber::into_stream`, a stream on tokio.

#![forbid(unsafe_code)]

mod ab;
mod attachment;
mod backoff;
mod builder;
mod clock;
#[cfg(feature = "prometheus")]
mod collector;
mod decimal;
mod directory;
mod endpoint;
mod error;
mod keeper;
mod mailbox;
mod owned;
mod pulse;
mod rdma;
mod sampling;
mod snapshot;
mod state;
mod statistics;
#[cfg(feature = "async")]
mod stream;
mod subscriber;
mod target;
mod wait_set;

pub use ab::arbiter::AbSideCounts;
pub use ab::side::AbSide;
pub use ab::{AbSideFigures, AbSubscriber, AbSummary};
pub use backoff::{Backoff, Reconnect};
pub use builder::SubscriberBuilder;
#[cfg(feature = "prometheus")]
pub use collector::SubscriberCollector;
pub use decimal::{Price, Quantity};
pub use error::{ConnectError, PollError, WaitError, WatchError};
pub use owned::OwnedSnapshot;
pub use rdma::RdmaChoices;
pub use snapshot::{BookLevel, Levels, Side, Snapshot, Trade};
pub use state::{EndReason, Event, FeedState, StaleCause, State};
pub use statistics::{ClockFigures, InstrumentAccount, LatencyCounts, Statistics, Summary};
#[cfg(feature = "async")]
pub use stream::{SnapshotStream, StreamError, StreamItemError};
pub use subscriber::{Subscriber, Wakeup};
/// Upper bounds of the buckets of [`LatencyCounts`], in nanoseconds, each inclusive.
pub use tapecast_telemetry::BOUNDS_NS as LATENCY_BOUNDS_NS;
pub use target::{CONNECT_VARIABLE, SOCKET_VARIABLE, Target, TlsChoices, default_socket};

pub use tapecast_fabric::WaitStrategy;
pub use tapecast_telemetry::{HumanNanos, Jitter, LatencyFigures, LatencySummary};
pub use tapecast_wire::attach::Policy;
pub use tapecast_wire::{Epoch, Flags, Instrument, InstrumentId, Nanos, Sequence, SessionId};
pub use tapecast_wire::{TradingStatus, WIRE_VERSION};
