//! The conductor over a fabric whose subscribers connect before they are attached. Host and fabric
//! write down what is done to them; requests come over a real socket.

use std::sync::Mutex;
use std::thread::JoinHandle;

use tapecast_control::certificates::{self, Plan};
use tapecast_control::client::{
    self, AttachError, ClientTls, Granted, LifelineStatus, Opening, TcpTarget,
};
use tapecast_control::{
    ClientPattern, Entitlement, TcpListener, TcpListenerOptions, TlsFiles, TlsIdentity,
};
use tapecast_core::session::Eviction;
use tapecast_fabric::park::{IdleStrategy, Parker};
use tapecast_fabric::pool::Shared;
use tapecast_fabric::pool::{Pool, PoolConfig};
use tapecast_fabric::{
    AttachError as NoPlace, DirectoryFull, Fabric, Full, Handover, HostError, Prepared,
    SessionStats, Timing, Wish,
};
use tapecast_wire::attach::{AttachRequest, Refusal};
use tapecast_wire::rdma::{
    PathMtu, QueuePairAddress, RdmaAnswer, RdmaOffer, RemoteMemory, RetryBudget,
};
use tapecast_wire::{Instrument, InstrumentEntry, InstrumentId, Nanos};
use tokio::runtime::Runtime;

use super::*;
use crate::book::BookStats;
use crate::sender::{Sender, command_ports};
use crate::source::SourceStats;

/// Generous: only a conductor that hangs comes near it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was done, and what is to happen.
#[derive(Clone, Debug, Default)]
struct Record(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    /// What was done, in order.
    notes: Vec<String>,
    /// Why the session is to be evicted.
    evicted: Option<Eviction>,
    /// Why the fabric has failed.
    failed: Option<String>,
}

impl Record {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().notes.push(what.into());
    }

    fn notes(&self) -> Vec<String> {
        self.0.lock().unwrap().notes.clone()
    }

    fn evict(&self, why: Eviction) {
        self.0.lock().unwrap().evicted = Some(why);
    }

    fn fail(&self, why: &str) {
        self.0.lock().unwrap().failed = Some(why.to_owned());
    }
}

struct FakeHost(Record);
struct FakeSession(Record);
#[derive(Clone)]
struct FakeMonitor(Record);
struct FakeFabric(Vec<Option<FakeSession>>);

impl Host for FakeHost {
    type Session = FakeSession;
    type Monitor = FakeMonitor;

    fn prepare_session(
        &self,
        wish: &Wish<'_>,
    ) -> Result<Prepared<FakeSession, FakeMonitor>, HostError> {
        if wish.offer.is_none() {
            return Err(HostError::Unsuitable("offer RDMA".to_owned()));
        }
        self.0.note(format!("prepared for {:?}", wish.interest));
        Ok(Prepared {
            session: FakeSession(self.0.clone()),
            monitor: FakeMonitor(self.0.clone()),
            handover: Handover::Connect(answer()),
        })
    }

    fn failure(&self) -> Option<String> {
        self.0.0.lock().unwrap().failed.clone()
    }
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

impl Monitor for FakeMonitor {
    fn stats(&self) -> SessionStats {
        SessionStats::default()
    }

    fn timing(&self) -> Timing {
        Timing::default()
    }

    fn evicted(&self) -> Option<Eviction> {
        self.0.0.lock().unwrap().evicted
    }

    fn quench(&self) {
        self.0.note("quenched");
    }
}

impl Fabric for FakeFabric {
    type Session = FakeSession;

    fn attach(&mut self, session: FakeSession) -> Result<SessionId, NoPlace<FakeSession>> {
        session.0.note("attached");
        self.0.push(Some(session));
        Ok(SessionId(self.0.len() as u32 - 1))
    }

    fn detach(&mut self, id: SessionId) -> Option<FakeSession> {
        let session = self.0[id.index()].take()?;
        session.0.note("detached");
        Some(session)
    }

    fn upsert_instrument(&mut self, _: &InstrumentEntry) -> Result<(), DirectoryFull> {
        Ok(())
    }

    fn publish(&mut self, _: Shared) -> Result<(), Full> {
        Ok(())
    }

    fn flush(&mut self, _: Nanos) {}

    fn turn(&mut self, _: Nanos) -> usize {
        0
    }

    fn show_feed(&mut self, _: Nanos) {}

    fn session_stats(&self, _: SessionId) -> Option<SessionStats> {
        None
    }

    fn close(&mut self, _: Nanos, _: Farewell) {}
}

fn queue_pair() -> QueuePairAddress {
    let path_mtu = PathMtu::Bytes1024;
    QueuePairAddress { gid: [7; 16], queue_pair: 17, packet_sequence: 3, path_mtu }
}

fn answer() -> RdmaAnswer {
    let cell = RemoteMemory { address: 4096, key: 5 };
    let retries = RetryBudget { timeout: 14, retry_count: 6 };
    RdmaAnswer { peer: queue_pair(), cell, instruments: 8, retries }
}

fn request(symbols: &[&str]) -> AttachRequest {
    let memory = RemoteMemory { address: 1 << 20, key: 9 };
    let rdma = RdmaOffer {
        peer: queue_pair(),
        ring: memory,
        ring_bytes: 1 << 16,
        control: memory,
        receive_depth: 64,
    };
    AttachRequest {
        name: "risk".to_owned(),
        symbols: symbols.iter().map(|symbol| (*symbol).to_owned()).collect(),
        rdma: Some(rdma),
        ..AttachRequest::default()
    }
}

/// A conductor that is driven step by step, and its sender.
struct Bench {
    runtime: Runtime,
    conductor: Conductor<FakeHost>,
    sender: Sender<FakeFabric>,
    record: Record,
    port: u16,
    tls: Option<ClientTls>,
    _feed: crossbeam_channel::Sender<crate::sender::FeedItem>,
}

impl Bench {
    fn new(handshake_timeout: Duration, entitlements: Entitlements) -> Self {
        let options = TcpListenerOptions::new(([127, 0, 0, 1], 0).into());
        Self::listening(TcpListenerOptions { handshake_timeout, ..options }, entitlements)
    }

    fn listening(options: TcpListenerOptions, entitlements: Entitlements) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = {
            let _context = runtime.enter();
            TcpListener::bind(options).unwrap()
        };
        let port = listener.local_address().port();
        let record = Record::default();
        let (command_port, sender_port) = command_ports();
        let (feed, items) = crossbeam_channel::bounded(1);
        let progress = Arc::new(SenderProgress::default());
        let sender = Sender::new(FakeFabric(Vec::new()), items, sender_port, Arc::clone(&progress));
        let directory = Directory::new(8);
        assert!(directory.upsert(&Instrument::new(InstrumentId(0), "AAPL", "XNAS")));
        let parts = Parts {
            listener: listener.into(),
            host: FakeHost(record.clone()),
            entitlements,
            port: command_port,
            sender: Parker::new().ringer(),
            progress,
            directory: Arc::new(directory),
            pool: Pool::new(PoolConfig::default()).unwrap(),
            stop: StopFlag::default(),
            feed: FeedWatch {
                pulse: FeedPulse::default(),
                silent_since: SilentSince::default(),
                bell: Bell::new(Parker::new().ringer()),
            },
            gate: crossbeam_channel::bounded(1).0,
            questions: Questions::none(),
        };
        let settings = Settings {
            epoch: Epoch(5),
            sessions_max: 1,
            lossless: false,
            lag: LagSettings::default(),
            stall_max: PATIENCE,
            wait_for: 0,
            exit_at_end: false,
            silent_after: Duration::ZERO,
            departed: Duration::ZERO,
        };
        let conductor = Conductor::new(settings, parts);
        Self { runtime, conductor, sender, record, port, tls: None, _feed: feed }
    }

    fn open(&self, request: AttachRequest) -> JoinHandle<Result<Opening, AttachError>> {
        let plain = TcpTarget::plain("127.0.0.1", self.port);
        let target = TcpTarget { tls: self.tls.clone(), ..plain };
        std::thread::spawn(move || client::connect(&target, &request, PATIENCE))
    }

    /// Goes on until it comes true.
    fn until(&mut self, mut is_true: impl FnMut(&Conductor<FakeHost>) -> bool) {
        let Self { runtime, conductor, sender, .. } = self;
        let deadline = Instant::now() + PATIENCE;
        while !is_true(conductor) {
            assert!(Instant::now() < deadline, "{conductor:?} hangs");
            let reason = runtime.block_on(async {
                let event = tokio::select! {
                    pending = conductor.listener.accept() => Event::Request(pending),
                    Some(event) = conductor.events.recv() => Event::Session(event),
                    () = tokio::time::sleep(TICK_OWED) => Event::Tick,
                };
                conductor.apply(event)
            });
            assert!(reason.is_none(), "{reason:?}");
            sender.do_work();
        }
    }

    /// Goes on until the thread has ended.
    fn join<T>(&mut self, thread: JoinHandle<T>) -> T {
        self.until(|_| thread.is_finished());
        thread.join().unwrap()
    }

    fn refused(&mut self, request: AttachRequest) -> (Refusal, String) {
        let thread = self.open(request);
        match self.join(thread) {
            Err(AttachError::Refused { refusal, reason, .. }) => (refusal, reason),
            other => panic!("not refused: {other:?}"),
        }
    }

    fn granted(&mut self, request: AttachRequest) -> Granted {
        let thread = self.open(request);
        let opening = self.join(thread).unwrap();
        let thread = std::thread::spawn(move || opening.ready(PATIENCE));
        self.join(thread).unwrap()
    }
}

/// What the subscriber is told in the end.
fn farewell(granted: &mut Granted) -> LifelineStatus {
    loop {
        match granted.lifeline.status() {
            LifelineStatus::Alive => std::thread::yield_now(),
            other => return other,
        }
    }
}

#[test]
fn a_subscriber_is_attached_when_it_is_ready_and_counts_before_that() {
    let mut bench = Bench::new(PATIENCE, Entitlements::default());
    let thread = bench.open(request(&["AAPL"]));
    let opening = bench.join(thread).unwrap();
    assert_eq!(opening.answer(), &answer());
    let (refusal, _) = bench.refused(request(&[]));
    assert_eq!(refusal, Refusal::Full, "one that connects has its place");
    let prepared =
        format!("prepared for {:?}", tapecast_core::Interest::Only(vec![InstrumentId(0)]));
    assert_eq!(bench.record.notes(), [prepared.as_str()], "nothing is attached yet");
    let thread = std::thread::spawn(move || opening.ready(PATIENCE));
    let granted = bench.join(thread).unwrap();
    assert_eq!(granted.accepted.instruments, [InstrumentId(0)]);
    assert_eq!((granted.accepted.epoch, granted.descriptors.len()), (Epoch(5), 0));
    bench.until(|conductor| conductor.roster.attached_count() == 1);
    granted.lifeline.detach();
    bench.until(|conductor| conductor.roster.count() == 0);
    let expected = [prepared.as_str(), "attached", "quenched", "detached", "dropped"];
    assert_eq!(bench.record.notes(), expected);
    let Conductor { roster, refusals, .. } = bench.conductor;
    assert_eq!(refusals, Refusals { others: 1, ..Refusals::default() });
    let [record] = &roster.into_records()[..] else { panic!("not one record") };
    assert_eq!((record.uid, record.pid, &record.client), (None, None, &None));
    assert!(record.address.as_ref().unwrap().starts_with("127.0.0.1:"), "{record:?}");
}

/// A feed that has ended in good order.
fn feed_end() -> FeedEnd {
    FeedEnd {
        outcome: FeedOutcome::Ended,
        source: SourceStats::default(),
        books: BookStats::default(),
        instrument_sequences: Vec::new(),
        queue_stalls: 0,
        pool_stalls: 0,
    }
}

#[test]
fn a_feed_is_silent_only_between_the_start_of_the_source_and_its_end() {
    let Bench { mut conductor, .. } = Bench::new(PATIENCE, Entitlements::default());
    conductor.silence = Silence::new(3 * TICK);
    let (pulse, shown) = (conductor.watch.pulse.clone(), conductor.watch.silent_since.clone());
    let mut now = Instant::now();
    let mut look = |conductor: &mut Conductor<FakeHost>, ticks: u32| {
        for _ in 0..ticks {
            now += TICK;
            conductor.look_around(now);
        }
        shown.get()
    };
    assert_eq!(look(&mut conductor, 100), Nanos(0), "the source waits for subscribers");
    conductor.let_feed_start();
    assert_eq!(look(&mut conductor, 3), Nanos(0));
    let since = look(&mut conductor, 1);
    assert!(since > Nanos(0) && since < crate::clock::unix_now());
    assert_eq!(look(&mut conductor, 10), since, "one spell has one beginning");
    pulse.beat();
    assert_eq!(look(&mut conductor, 1), Nanos(0));
    assert!(look(&mut conductor, 10) > Nanos(0));
    assert!(conductor.on_feed_end(feed_end()).is_none());
    assert_eq!(look(&mut conductor, 100), Nanos(0), "the source has ended");
    let SilenceRecord { spells, total_ns } = conductor.silence.record();
    assert_eq!((spells, total_ns), (2, 24 * TICK.as_nanos() as u64));
}

#[test]
fn one_that_is_never_ready_costs_its_place_for_the_time_of_a_handshake() {
    let mut bench = Bench::new(Duration::from_millis(50), Entitlements::default());
    let thread = bench.open(request(&[]));
    let _says_nothing = bench.join(thread).unwrap();
    bench.until(|conductor| conductor.tickets.is_empty());
    assert_eq!(bench.record.notes(), ["prepared for All", "dropped"]);
    assert_eq!(bench.conductor.refusals.not_connected, 1);
    bench.granted(request(&[]));
}

#[test]
fn one_that_goes_before_it_is_ready_is_forgotten_at_once() {
    let mut bench = Bench::new(PATIENCE, Entitlements::default());
    let thread = bench.open(request(&[]));
    drop(bench.join(thread).unwrap());
    bench.until(|conductor| conductor.tickets.is_empty());
    assert_eq!(bench.record.notes(), ["prepared for All", "dropped"]);
}

#[test]
fn one_that_is_ready_when_the_publisher_closes_is_refused() {
    let mut bench = Bench::new(PATIENCE, Entitlements::default());
    let thread = bench.open(request(&[]));
    let opening = bench.join(thread).unwrap();
    bench.conductor.refuse_all_tickets();
    assert_eq!(bench.record.notes(), ["prepared for All", "dropped"]);
    let thread = std::thread::spawn(move || opening.ready(PATIENCE));
    let outcome = bench.join(thread);
    let Err(AttachError::Refused { refusal: Refusal::Closing, .. }) = outcome else {
        panic!("not refused: {outcome:?}");
    };
}

#[test]
fn what_the_fabric_evicts_is_told_why_and_taken_out() {
    let mut bench = Bench::new(PATIENCE, Entitlements::default());
    let mut granted = bench.granted(request(&[]));
    bench.until(|conductor| conductor.roster.attached_count() == 1);
    bench.record.evict(Eviction::Unreachable);
    bench.until(|conductor| conductor.roster.count() == 0);
    let told = farewell(&mut granted);
    let LifelineStatus::Farewell(Farewell::Evicted, text) = told else { panic!("{told:?}") };
    assert_eq!(text, Eviction::Unreachable.to_string());
    assert_eq!(bench.record.notes()[2..], ["quenched", "detached", "dropped"]);
}

#[test]
fn one_that_has_left_is_not_evicted() {
    let mut bench = Bench::new(PATIENCE, Entitlements::default());
    let _granted = bench.granted(request(&[]));
    bench.until(|conductor| conductor.roster.attached_count() == 1);
    bench.record.evict(Eviction::Unreachable);
    let left = bench.conductor.roster.get_mut(SessionId(0)).unwrap();
    left.reason = Some("it left in good order".to_owned());
    bench.conductor.evict_fallen();
    let left = bench.conductor.roster.get_mut(SessionId(0)).unwrap();
    assert!(left.goodbye.is_some(), "there is nobody to tell");
    left.reason = None;
    bench.conductor.evict_fallen();
    assert!(bench.conductor.roster.get_mut(SessionId(0)).unwrap().goodbye.is_none());
}

#[test]
fn a_client_that_is_never_ready_does_not_take_all_places() {
    let mut bench = Bench::new(PATIENCE, Entitlements::default());
    bench.conductor.settings.sessions_max = 64;
    let open = |bench: &mut Bench| {
        let thread = bench.open(request(&[]));
        bench.join(thread).unwrap()
    };
    let mut openings: Vec<Opening> = (0..32).map(|_| open(&mut bench)).collect();
    let (refusal, reason) = bench.refused(request(&[]));
    assert_eq!(refusal, Refusal::Full);
    assert!(reason.contains("32 sessions of this client are being connected"), "{reason}");
    let opening = openings.pop().unwrap();
    let thread = std::thread::spawn(move || opening.ready(PATIENCE));
    let _granted = bench.join(thread).unwrap();
    openings.push(open(&mut bench));
}

#[test]
fn a_fabric_that_has_failed_ends_the_publisher_with_its_text() {
    let mut bench = Bench::new(PATIENCE, Entitlements::default());
    let mut granted = bench.granted(request(&[]));
    bench.until(|conductor| conductor.roster.attached_count() == 1);
    bench.record.fail("the device is gone");
    let reason = bench.conductor.apply(Event::Tick).unwrap();
    assert_eq!(reason.sentence(), "the fabric failed: the device is gone");
    let Bench { runtime, conductor, sender, _feed, .. } = bench;
    let sender = std::thread::spawn(move || sender.run(IdleStrategy::Yield, Parker::new()));
    let report = runtime.block_on(conductor.end(reason, oneshot::channel().1));
    sender.join().unwrap();
    assert_eq!(report.fabric_failure.as_deref(), Some("the device is gone"));
    assert_eq!((report.listener.connections, report.listener.requests), (1, 1));
    let told = farewell(&mut granted);
    let LifelineStatus::Farewell(Farewell::Closing, text) = told else { panic!("{told:?}") };
    assert_eq!(text, "the fabric failed: the device is gone");
}

#[test]
fn who_asks_for_figures_while_the_publisher_ends_is_not_kept_waiting() {
    let (asker, questions) = questions();
    let Bench { runtime, mut conductor, .. } = Bench::new(PATIENCE, Entitlements::default());
    conductor.questions = questions;
    runtime.block_on(async {
        let ending = conductor.end(Reason::EndOfSource, oneshot::channel().1);
        tokio::select! {
            biased;
            figures = asker.ask() => assert!(figures.is_none(), "it is ending"),
            _ = ending => panic!("the question was kept to the end"),
        }
    });
}

#[test]
fn what_the_fabric_cannot_use_is_refused_as_another_fabric() {
    let mut bench = Bench::new(PATIENCE, Entitlements::default());
    let refused = bench.refused(AttachRequest { rdma: None, ..request(&[]) });
    assert_eq!(refused, (Refusal::Fabric, "offer RDMA".to_owned()));
}

#[test]
fn a_client_without_an_entitlement_is_refused_before_anything_is_prepared() {
    let entitled = Entitlement {
        client: ClientPattern::Certificate("desk".to_owned()),
        sessions_max: None,
        symbols: None,
        policies: None,
    };
    let mut bench = Bench::new(PATIENCE, Entitlements::new(vec![entitled]));
    let (refusal, reason) = bench.refused(request(&[]));
    assert_eq!(refusal, Refusal::NotEntitled, "{reason}");
    assert_eq!(bench.conductor.refusals.not_entitled, 1);
    assert!(bench.record.notes().is_empty());
}

#[test]
fn over_tls_a_client_is_known_and_entitled_by_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let plan = Plan {
        server_names: Vec::new(),
        server_addresses: vec![[127, 0, 0, 1].into()],
        clients: vec!["risk-1.example".to_owned(), "desk-2.example".to_owned()],
        days: 1,
        force: false,
    };
    certificates::create(folder.path(), &plan).unwrap();
    let identity = TlsIdentity::load(TlsFiles {
        certificate: path("server.pem"),
        key: path("server.key"),
        client_ca: path("ca.pem"),
    });
    let options = TcpListenerOptions::new(([127, 0, 0, 1], 0).into());
    let entitled = Entitlement {
        client: ClientPattern::Certificate("risk-1.example".to_owned()),
        sessions_max: None,
        symbols: Some(vec!["AAPL".to_owned()]),
        policies: None,
    };
    let options = TcpListenerOptions { tls: Some(identity.unwrap()), ..options };
    let mut bench = Bench::listening(options, Entitlements::new(vec![entitled]));
    let files = |client: &str| ClientTls {
        ca: path("ca.pem"),
        certificate: path(&format!("client-{client}.pem")),
        key: path(&format!("client-{client}.key")),
        server_name: None,
    };
    bench.tls = Some(files("desk-2.example"));
    let (refusal, reason) = bench.refused(request(&["AAPL"]));
    assert_eq!(refusal, Refusal::NotEntitled, "{reason}");
    bench.tls = Some(files("risk-1.example"));
    assert_eq!(bench.refused(request(&[])).0, Refusal::NotEntitled);
    bench.conductor.listener.reload_tls().unwrap();
    let granted = bench.granted(request(&["AAPL"]));
    bench.until(|conductor| conductor.roster.attached_count() == 1);
    drop(granted);
    bench.until(|conductor| conductor.roster.count() == 0);
    let [record] = &bench.conductor.roster.into_records()[..] else { panic!("not one record") };
    assert_eq!(record.client.as_deref(), Some("risk-1.example"));
}
