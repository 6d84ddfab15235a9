//! A publisher in this process, over real shared memory and a real socket, driven step by step.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tapecast_control::{Access, Listener, ListenerOptions, Pending};
use tapecast_fabric::park::{Parker, Ringer};
use tapecast_fabric::pool::{Pool, PoolConfig};
use tapecast_fabric::shm::{
    Sealing, SessionMonitor, Shm, ShmConfig, ShmFabric, ShmHost, ShmSession, WakerThread,
};
use tapecast_fabric::{Fabric, Monitor, Timing};
use tapecast_wire::attach::{Accepted, Farewell, Refusal};
use tapecast_wire::{
    Epoch, Flags, Instrument, InstrumentId, Level, Nanos, Sequence, SessionId, SnapshotFields,
    TradingStatus, encode_snapshot,
};
use tokio::sync::watch;

/// What the tests say of a book: best bid in 1e-9; the ask is one cent above.
pub(crate) const CENT: i64 = 10_000_000;
/// Venue time of the first snapshot: 2024-03-01 14:30:00 UTC.
pub(crate) const OPEN_NS: u64 = 1_709_303_400_000_000_000;

/// A publisher. Dropping it is a crash: no farewell.
pub(crate) struct Stage {
    sender: Sender<Command>,
    ringer: Ringer,
    names: Names,
    monitors: Monitors,
    farewell: watch::Sender<Parting>,
    conductor: Option<JoinHandle<()>>,
    sending: Option<JoinHandle<()>>,
    waker: Option<WakerThread>,
    /// What the next publisher can take the ring over with.
    kept: Option<OwnedFd>,
}

type Names = Arc<Mutex<Vec<String>>>;
/// Of all sessions that there ever were.
type Monitors = Arc<Mutex<Vec<SessionMonitor>>>;

/// What sessions are told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Parting {
    None,
    Farewell(Farewell, String),
    Crash,
}

enum Command {
    Attach(ShmSession, tokio::sync::oneshot::Sender<SessionId>),
    Detach(SessionId),
    Instrument(Instrument, Sender<()>),
    Publish(Vec<Book>, Sender<()>),
    Feed(Nanos, Sender<()>),
    Attended(Sender<bool>),
    /// Sleeps until the channel is dropped: no heartbeat, like a stopped process.
    Freeze(Receiver<()>),
    Close(Farewell, Sender<()>),
}

/// One snapshot to publish.
#[derive(Clone, Debug)]
pub(crate) struct Book {
    pub(crate) id: u32,
    pub(crate) bid: i64,
    pub(crate) flags: Flags,
    pub(crate) status: TradingStatus,
    /// When the feed received it; nothing for the usual time, which is long ago.
    pub(crate) ts_recv: Option<Nanos>,
}

impl Book {
    pub(crate) fn of(id: u32, bid: i64) -> Self {
        Self { id, bid, flags: Flags::NONE, status: TradingStatus::Trading, ts_recv: None }
    }
}

/// How a stage differs from the usual one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) epoch: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) lossless: bool,
    /// Whether the next publisher can take the ring over.
    pub(crate) keep: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { epoch: 1, ring_bytes: 64 * 1024, lossless: false, keep: false }
    }
}

impl Setup {
    fn config(self) -> ShmConfig {
        ShmConfig {
            ring_bytes: self.ring_bytes,
            allow_lossless: self.lossless,
            keep: self.keep,
            sealing: if self.keep { Sealing::Owner } else { Sealing::FutureWrite },
            ..ShmConfig::new(Epoch(self.epoch))
        }
    }
}

impl Stage {
    /// A publisher of `symbols` on `socket`.
    pub(crate) fn open(socket: &Path, setup: Setup, symbols: &[&str]) -> Self {
        Self::open_after(socket, setup, symbols, Vec::new())
    }

    /// The same, which nobody can attach to before `books` are published.
    pub(crate) fn open_after(
        socket: &Path,
        setup: Setup,
        symbols: &[&str],
        books: Vec<Book>,
    ) -> Self {
        let parker = Parker::new();
        let shm = ShmHost::create(&setup.config(), parker.ringer()).expect("a region");
        Self::with((shm, parker), socket, setup, symbols, books)
    }

    /// As [`Self::open_after`], in the ring that another has left.
    pub(crate) fn take_over(
        kept: OwnedFd,
        socket: &Path,
        setup: Setup,
        symbols: &[&str],
        books: Vec<Book>,
    ) -> Self {
        let parker = Parker::new();
        let shm = ShmHost::resume(kept, &setup.config(), parker.ringer()).expect("a kept region");
        Self::with((shm, parker), socket, setup, symbols, books)
    }

    /// Goes without a farewell; its ring stays.
    pub(crate) fn crash(mut self) -> OwnedFd {
        self.kept.take().expect("a region that is kept")
    }

    fn with(
        (shm, parker): (Shm, Parker),
        socket: &Path,
        setup: Setup,
        symbols: &[&str],
        books: Vec<Book>,
    ) -> Self {
        let ringer = parker.ringer();
        let kept = shm.kept;
        let waker_ringer = shm.waker.ringer();
        let waker = shm.waker.spawn().expect("a waker");
        let (sender, commands) = mpsc::channel();
        let fabric = shm.fabric;
        let sending = thread::spawn(move || {
            Sending { fabric, parker, waker: waker_ringer, pool: pool(), epoch: setup.epoch }
                .run(&commands);
        });
        let (farewell, partings) = watch::channel(Parting::None);
        let mut stage = Self {
            sender,
            ringer,
            names: Names::default(),
            monitors: Monitors::default(),
            farewell,
            conductor: None,
            sending: Some(sending),
            waker: Some(waker),
            kept,
        };
        for symbol in symbols {
            stage.list(symbol);
        }
        stage.publish_all(books);
        stage.listen(socket, shm.host, setup.epoch, partings);
        stage
    }

    fn listen(
        &mut self,
        socket: &Path,
        host: ShmHost,
        epoch: u64,
        partings: watch::Receiver<Parting>,
    ) {
        let names = Arc::clone(&self.names);
        let monitors = Arc::clone(&self.monitors);
        let (sender, ringer) = (self.sender.clone(), self.ringer.clone());
        let conductor = Conductor { host, epoch, names, monitors, sender, ringer, partings };
        let (socket, (ready, opened)) = (socket.to_owned(), mpsc::channel());
        self.conductor = Some(thread::spawn(move || conductor.run(socket, &ready)));
        opened.recv().expect("a listener");
    }

    /// Adds an instrument with two decimals of quantity scale and a tick of one cent.
    pub(crate) fn list(&self, symbol: &str) -> u32 {
        let id = {
            let mut names = self.names.lock().expect("names");
            names.push(symbol.to_owned());
            names.len() as u32 - 1
        };
        let instrument =
            Instrument { tick_size: CENT, ..Instrument::new(InstrumentId(id), symbol, "XTST") };
        self.order(|done| Command::Instrument(instrument, done));
        id
    }

    /// Publishes one change of one book.
    pub(crate) fn publish(&self, id: u32, bid: i64) {
        self.publish_all(vec![Book::of(id, bid)]);
    }

    /// Publishes books in one batch and returns when all of it is in the ring.
    pub(crate) fn publish_all(&self, books: Vec<Book>) {
        self.order(|done| Command::Publish(books, done));
    }

    /// Shows since when the feed is silent; 0 for that it is not.
    pub(crate) fn show_feed(&self, silent_since: Nanos) {
        self.order(|done| Command::Feed(silent_since, done));
    }

    /// Whether a session is attached.
    pub(crate) fn is_attended(&self) -> bool {
        let (reply, answer) = mpsc::channel();
        self.sender.send(Command::Attended(reply)).expect("a sender");
        self.ringer.ring();
        answer.recv().expect("a sender that answers")
    }

    /// What the newest session has said of its latencies.
    pub(crate) fn told(&self) -> Timing {
        self.monitors.lock().expect("monitors").last().expect("a session").timing()
    }

    /// Shows no sign of life until the returned guard is dropped.
    pub(crate) fn freeze(&self) -> Sender<()> {
        let (guard, frozen) = mpsc::channel();
        self.sender.send(Command::Freeze(frozen)).expect("a sender");
        self.ringer.ring();
        guard
    }

    /// Ends in good order.
    pub(crate) fn close(mut self, farewell: Farewell, why: &str) {
        self.order(|done| Command::Close(farewell, done));
        self.farewell.send_replace(Parting::Farewell(farewell, why.to_owned()));
        self.end();
    }

    /// The same, and its ring stays.
    pub(crate) fn close_and_keep(mut self, farewell: Farewell, why: &str) -> OwnedFd {
        let kept = self.kept.take().expect("a region that is kept");
        self.close(farewell, why);
        kept
    }

    /// Ends every session of a publisher that goes on.
    pub(crate) fn evict(&self, why: &str) {
        self.farewell.send_replace(Parting::Farewell(Farewell::Evicted, why.to_owned()));
    }

    fn order(&self, command: impl FnOnce(Sender<()>) -> Command) {
        let (done, finished) = mpsc::channel();
        self.sender.send(command(done)).expect("a sender");
        self.ringer.ring();
        finished.recv().expect("a sender that obeys");
    }

    fn end(&mut self) {
        let Some(conductor) = self.conductor.take() else { return };
        self.farewell.send_if_modified(|parting| {
            let silent = *parting == Parting::None || is_eviction(parting);
            if silent {
                *parting = Parting::Crash;
            }
            silent
        });
        conductor.join().expect("a conductor that ends");
        // The conductor had the other copy: with this one the sender's commands end.
        self.sender = mpsc::channel().0;
        self.ringer.ring();
        self.sending.take().map(JoinHandle::join);
        self.waker.take();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end();
    }
}

fn pool() -> Pool {
    Pool::new(PoolConfig { huge_pages: false }).expect("a pool")
}

pub(crate) fn unix_now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    Nanos(since.as_nanos() as u64)
}

/// The sender thread.
struct Sending {
    fabric: ShmFabric,
    parker: Parker,
    waker: Ringer,
    pool: Pool,
    epoch: u64,
}

impl Sending {
    fn run(mut self, commands: &Receiver<Command>) {
        let mut channel_sequence = 0;
        let mut sequences = HashMap::<u32, u64>::new();
        loop {
            match commands.try_recv() {
                Ok(Command::Publish(books, done)) => {
                    for book in books {
                        channel_sequence += 1;
                        let sequence = sequences.entry(book.id).or_default();
                        *sequence += 1;
                        self.publish(&book, channel_sequence, *sequence);
                    }
                    self.fabric.flush(unix_now());
                    self.waker.ring();
                    done.send(()).ok();
                }
                Ok(command) => self.obey(command),
                Err(mpsc::TryRecvError::Empty) => {
                    self.parker.park(Duration::from_millis(20));
                }
                Err(mpsc::TryRecvError::Disconnected) => return,
            }
            self.fabric.turn(unix_now());
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Attach(session, done) => {
                let id = self.fabric.attach(session).map_err(|_| ()).expect("a free place");
                done.send(id).ok();
            }
            Command::Detach(id) => drop(self.fabric.detach(id)),
            Command::Instrument(instrument, done) => {
                self.fabric.upsert_instrument(&instrument.to_wire()).expect("room");
                done.send(()).ok();
            }
            Command::Feed(silent_since, done) => {
                self.fabric.show_feed(silent_since);
                self.waker.ring();
                done.send(()).ok();
            }
            Command::Attended(reply) => {
                reply.send(self.fabric.session_stats(SessionId(0)).is_some()).ok();
            }
            Command::Freeze(frozen) => drop(frozen.recv()),
            Command::Close(farewell, done) => {
                self.fabric.close(unix_now(), farewell);
                self.waker.ring();
                done.send(()).ok();
            }
            Command::Publish(..) => unreachable!("handled by the loop"),
        }
    }

    fn publish(&mut self, book: &Book, channel_sequence: u64, sequence: u64) {
        let fields = SnapshotFields {
            instrument_id: InstrumentId(book.id),
            flags: book.flags,
            trading_status: book.status,
            epoch: Epoch(self.epoch),
            channel_sequence: Sequence(channel_sequence),
            instrument_sequence: Sequence(sequence),
            feed_sequence: channel_sequence,
            ts_event: OPEN_NS + channel_sequence * 1_000,
            ts_recv: book.ts_recv.map_or(OPEN_NS + channel_sequence * 1_000 + 500, Nanos::get),
            last_trade_price: book.bid,
            last_trade_quantity: 7,
        };
        let bids = [Level::new(book.bid, 300, 2), Level::new(book.bid - CENT, 1_200, 5)];
        let asks = [Level::new(book.bid + CENT, 200, 1)];
        let mut page = loop {
            match self.pool.loan() {
                Some(page) => break page,
                None => thread::yield_now(),
            }
        };
        let mut filled =
            page.append(512, |out| encode_snapshot(out, &fields, &bids, &asks)).expect("room");
        filled.stamp_publish(unix_now());
        let mut shared = filled.share();
        while let Err(full) = self.fabric.publish(shared) {
            shared = full.0;
            self.fabric.flush(unix_now());
            self.waker.ring();
            self.fabric.turn(unix_now());
            thread::yield_now();
        }
    }
}

/// The conductor thread.
struct Conductor {
    host: ShmHost,
    epoch: u64,
    names: Names,
    monitors: Monitors,
    sender: Sender<Command>,
    ringer: Ringer,
    partings: watch::Receiver<Parting>,
}

impl Conductor {
    fn run(self, socket: PathBuf, ready: &Sender<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async move {
            let options = ListenerOptions::new(socket, Access::own());
            let mut listener = Listener::bind(options).expect("a socket");
            ready.send(()).ok();
            let mut partings = self.partings.clone();
            let mut sessions = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    pending = listener.accept() => {
                        if let Some(task) = self.admit(pending).await {
                            sessions.spawn(task);
                        }
                    }
                    _ = partings.changed() => {
                        let parting = partings.borrow_and_update().clone();
                        if parting != Parting::None && !is_eviction(&parting) {
                            break;
                        }
                    }
                }
            }
            listener.close();
            while sessions.join_next().await.is_some() {}
        });
    }

    async fn admit(&self, pending: Pending) -> Option<impl Future<Output = ()> + Send + 'static> {
        let before = self.partings.borrow().clone();
        let mut instruments = Vec::new();
        for symbol in pending.request().symbols.clone() {
            let known = self.names.lock().expect("names").iter().position(|name| *name == symbol);
            match known {
                Some(index) => instruments.push(InstrumentId(index as u32)),
                None if pending.request().allow_unknown => {}
                None => {
                    let reason = format!("there is no symbol {symbol}");
                    pending.refuse(Refusal::UnknownSymbol, &reason).await.ok();
                    return None;
                }
            }
        }
        let (session, descriptors) =
            self.host.prepare(pending.request().policy).expect("a session");
        self.monitors.lock().expect("monitors").push(session.monitor());
        let (reply, attached) = tokio::sync::oneshot::channel();
        self.command(Command::Attach(session, reply));
        let session_id = attached.await.ok()?;
        let accepted = Accepted { session_id, epoch: Epoch(self.epoch), instruments };
        let mut lifeline = pending.accept(&accepted, &descriptors.as_fds()).await.ok()?;
        // An eviction that came before this session does not concern it; anything else does.
        let (mut partings, sender) = (self.partings.clone(), self.sender.clone());
        if is_eviction(&before) {
            partings.mark_unchanged();
        }
        Some(async move {
            tokio::select! {
                _ = lifeline.closed() => {}
                _ = partings.changed() => {
                    if let Parting::Farewell(farewell, why) = &*partings.borrow() {
                        lifeline.farewell(*farewell, why);
                    }
                }
            }
            sender.send(Command::Detach(session_id)).ok();
        })
    }

    fn command(&self, command: Command) {
        self.sender.send(command).expect("a sender");
        self.ringer.ring();
    }
}

fn is_eviction(parting: &Parting) -> bool {
    matches!(parting, Parting::Farewell(Farewell::Evicted, _))
}
