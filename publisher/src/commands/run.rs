//! `run`: puts the publisher together, lets it live, and writes down what it did.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use crossbeam_channel::{Receiver, bounded};
use tapecast_control::{AnyListener, Listener, ListenerOptions, TcpListener, TcpListenerOptions};
use tapecast_fabric::park::Parker;
use tapecast_fabric::pool::Pool;
use tapecast_fabric::{Fabric, Host};
use tapecast_wire::Epoch;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::check::{access, check, metrics_identity, tls_identity};
use super::kept_ring::{self, Received};
use super::open::{WithSource, open_source};
use super::plant::{self, Made, Plant, join};
use super::reread::reader;
use crate::book::BookBuilder;
use crate::cli::RunArgs;
use crate::clock::unix_now;
use crate::conductor::{
    Conductor, ConductorReport, FeedWatch, Parts, ReloadRecord, Reloads, Settings, Signals,
    questions,
};
use crate::config::{
    Config, Effective, FabricKind, LogFormat, SourceKind, Whole, load, prepare_socket_folder,
};
use crate::feed::{Directory, Encoder, Feed, FeedEnd, FeedFigures, FeedQueue, Playback, StopFlag};
use crate::journal::{self, JournalReport, JournalThread};
use crate::logging;
use crate::metrics::{Certificates, HighestTold, Identity, MetricsServer, MetricsThread, Sources};
use crate::report::{Findings, Report, ReportFile};
use crate::sender::{SenderFigures, SenderReport};
use crate::service::ServiceManager;
use crate::source::Source;
use crate::source::journal::levels_of;
use crate::source::pacing::Pacer;
use crate::source::progress::{Progress as ProgressMeter, ProgressDisplay, ProgressTotal};

/// Exit status when the input was damaged or cut short.
const SOURCE_FAILED: u8 = 3;

/// Publishes a source until it ends or a signal comes.
///
/// # Errors
/// When the publisher cannot start, or its report cannot be written; the text names cause and
/// remedy.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let layers = super::layers(&args.config);
    let mut effective = load(&layers)?;
    let record = ReloadRecord::begun();
    logging::start(&effective.config.log);
    let rings = kept_ring::received();
    check(&effective)?;
    adopt_levels(&mut effective)?;
    let sessions_max = effective.config.access.sessions_max.get();
    if u64::from(args.wait_for) > sessions_max {
        bail!(
            "flag --wait-for: {} subscribers can never be there, access.sessions_max is \
             {sessions_max}: wait for fewer, or raise it",
            args.wait_for
        );
    }
    let report = args.report.as_deref().map(ReportFile::create).transpose()?;
    let runtime = runtime()?;
    let signals = {
        let _context = runtime.enter();
        Signals::new().context("cannot take over SIGTERM, SIGINT and SIGHUP")?
    };
    let listener = listen(&runtime, &effective)?;
    let metrics = metrics(&effective)?;
    let stop = StopFlag::default();
    stop.heed_signals().context("cannot take over SIGTERM and SIGINT")?;
    let waits_end = stop.clone();
    let reloads = Reloads::new(effective.clone(), reader(layers), record);
    let mut service = ServiceManager::of_environment();
    service.on_start(stop.input());
    let host = Surroundings { signals, service, reloads };
    let start = Start {
        args,
        effective: &effective,
        runtime: &runtime,
        host,
        listener,
        metrics,
        stop,
        rings,
    };
    let levels_max = effective.config.book.levels.count();
    let life = match open_source(&effective.config.source, levels_max, &waits_end, start) {
        Err(_) if waits_end.is_stopped() => {
            info!("stopped while waiting for the writer of the input");
            return Ok(ExitCode::SUCCESS);
        }
        opened => opened??,
    };
    let Failures { source, fabric } = life.failures.clone();
    if let Some(file) = report {
        file.write(&life.report)?;
    }
    if let Some(error) = fabric {
        bail!("the fabric failed: {error}");
    }
    match source {
        Some(error) => {
            eprintln!("tapecast-publisher: the source failed: {error}");
            Ok(ExitCode::from(SOURCE_FAILED))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Snapshots of a journal are as deep as they were; what they need is taken, unless somebody chose.
pub(super) fn adopt_levels(effective: &mut Effective) -> Result<()> {
    let source = &effective.config.source;
    let Some(file) = source.file.as_ref().filter(|_| source.kind == SourceKind::Journal) else {
        return Ok(());
    };
    if let Some(levels) = levels_of(file)?
        && effective.origin("book.levels") == "default"
        && let Some(levels) = Whole::checked(levels as u64)
    {
        effective.config.book.levels = levels;
    }
    Ok(())
}

fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("cannot start the conductor's runtime")
}

fn listen(runtime: &Runtime, effective: &Effective) -> Result<AnyListener> {
    let config = &effective.config;
    let _context = runtime.enter();
    match config.fabric.kind {
        FabricKind::Shm => {
            let socket = &config.publisher.socket;
            prepare_socket_folder(socket).with_context(|| {
                let path = socket.display();
                format!("cannot make the folder of the socket {path}; choose another with --socket")
            })?;
            let options = ListenerOptions::new(socket, access(effective)?);
            Ok(Listener::bind(options)?.into())
        }
        FabricKind::Verbs => {
            let tls = tls_identity(effective)?;
            let options =
                TcpListenerOptions { tls, ..TcpListenerOptions::new(config.listen.address) };
            Ok(TcpListener::bind(options).context("listen.address (--listen)")?.into())
        }
    }
}

/// Serves figures, if anywhere: at first only that the publisher starts, because its source may
/// wait for its input.
fn metrics(effective: &Effective) -> Result<Option<MetricsThread>> {
    let tls = metrics_identity(effective)?;
    let config = &effective.config;
    let Some(address) = config.metrics.address else { return Ok(None) };
    let server = MetricsServer::bind(address, tls)?;
    Ok(Some(server.spawn(&identity(config, Epoch(unix_now().0)))?))
}

/// What a publisher's life came to.
struct Life {
    report: Report,
    failures: Failures,
}

/// What did not go well.
#[derive(Clone, Debug)]
struct Failures {
    source: Option<String>,
    fabric: Option<String>,
}

/// Everything but the source.
struct Start<'a> {
    args: &'a RunArgs,
    effective: &'a Effective,
    runtime: &'a Runtime,
    host: Surroundings,
    listener: AnyListener,
    /// Where figures are served, if anywhere.
    metrics: Option<MetricsThread>,
    /// Stops the feed.
    stop: StopFlag,
    /// Rings of publishers before this one.
    rings: Received,
}

/// What the conductor hears from outside, and tells there.
struct Surroundings {
    signals: Signals,
    service: ServiceManager,
    reloads: Reloads,
}

/// What every fabric needs.
struct Ground {
    epoch: Epoch,
    directory: Arc<Directory>,
    pool: Pool,
    /// Of the sender.
    parker: Parker,
}

impl WithSource for Start<'_> {
    type Output = Result<Life>;

    fn with_source<S: Source + 'static>(mut self, source: S) -> Result<Life> {
        let config = &self.effective.config;
        let epoch = Epoch(unix_now().0);
        let directory = Arc::new(directory(config, &source)?);
        let pool = plant::pool(config)?;
        let parker = Parker::new();
        match config.fabric.kind {
            FabricKind::Shm => {
                let rings = std::mem::take(&mut self.rings);
                let made = plant::shared_memory(config, epoch, rings, &parker.ringer())?;
                self.serve(source, Ground { epoch, directory, pool, parker }, made)
            }
            #[cfg(feature = "verbs")]
            FabricKind::Verbs => {
                let made = super::verbs_plant::make(config, epoch, pool.clone())?;
                self.serve(source, Ground { epoch, directory, pool, parker }, made)
            }
            #[cfg(not(feature = "verbs"))]
            FabricKind::Verbs => bail!("fabric.kind: this build has no RDMA"),
        }
    }
}

impl Start<'_> {
    /// Publishes the source on a fabric, to the end.
    fn serve<S, H, F>(self, source: S, ground: Ground, made: Made<H, F>) -> Result<Life>
    where
        S: Source + 'static,
        H: Host,
        F: Fabric<Session = H::Session> + Send + 'static,
    {
        let Self { args, effective, runtime, host, listener, metrics, stop, .. } = self;
        let Surroundings { signals, service, reloads } = host;
        let Ground { epoch, directory, pool, parker } = ground;
        let config = &effective.config;
        let entitlements = effective.entitlements()?;
        // Before anything runs: a folder that cannot be written to is told at the start.
        let journal =
            journal::start(config, epoch, &directory).context("journal.path (--journal)")?;
        let (tap, scribe) = journal.unzip();
        let figures = metrics.is_some().then(|| Arc::new(SenderFigures::default()));
        let device = made.device.clone();
        let plant = Plant::new(config, &directory, parker, made, figures.clone())?;
        let (gate, started) = bounded(1);
        let (feed_ended, feed_end) = oneshot::channel();
        let queue = FeedQueue::new(plant.queue, plant.bell.clone(), stop.clone());
        let (pulse, gauges) = (queue.pulse().clone(), queue.gauges().clone());
        // The pool outlives the feed here: the sender must not be the one to unmap it.
        let encoder = Encoder::new(epoch, Arc::clone(&directory), pool.clone(), queue);
        let encoder = encoder.with_journal(tap).with_stamps(figures.is_some());
        let books = BookBuilder::new(config.book.levels.count(), encoder);
        let playback = playback(args, config, &source);
        let feed_figures = figures.as_ref().map(|_| FeedFigures::default());
        let feed = Feed::new(source, books, playback).with_figures(feed_figures.clone());
        spawn_feed(feed, started, feed_ended)?;
        log_start(config, epoch, &directory, &listener);
        warn_of_open_door(config, &listener);
        let (asker, questions) = questions();
        let sources = figures.zip(feed_figures).map(|(sender, feed)| Sources {
            identity: identity(config, epoch),
            asker,
            progress: Arc::clone(&plant.progress),
            sender,
            feed,
            gauges,
            queue: plant.length,
            highest: HighestTold::default(),
            pool: pool.clone(),
            directory: Arc::clone(&directory),
            reloads: reloads.record(),
            journal: scribe.as_ref().map(JournalThread::figures),
            certificates: Certificates {
                server: listener.tls().cloned(),
                metrics: metrics.as_ref().and_then(MetricsThread::tls).cloned(),
            },
            device,
        });
        if let (Some(metrics), Some(sources)) = (&metrics, sources) {
            metrics.tell(sources)?;
        }
        let parts = Parts {
            listener,
            host: plant.host,
            entitlements,
            port: plant.port,
            sender: plant.ringer,
            progress: plant.progress,
            directory: Arc::clone(&directory),
            pool: pool.clone(),
            stop,
            feed: FeedWatch { pulse, silent_since: plant.silent_since, bell: plant.bell },
            gate,
            questions,
        };
        let conductor = Conductor::new(settings(args, config, epoch), parts)
            .with_service(service)
            .with_reloads(reloads);
        let ended = runtime.block_on(conductor.run(signals, feed_end));
        drop(metrics);
        // The waker wakes everybody once more, so that nobody sleeps through the end.
        drop(plant.waker);
        let sender = join(plant.sender)?;
        drop(pool);
        let journal = scribe.map(JournalThread::finish);
        log_end(&sender, &ended);
        Ok(life(
            effective,
            Remains { epoch, directory: &directory, sender: &sender, journal },
            ended,
        ))
    }
}

fn settings(args: &RunArgs, config: &Config, epoch: Epoch) -> Settings {
    let mut settings = Settings {
        epoch,
        lossless: config.access.lossless.0,
        wait_for: args.wait_for as usize,
        exit_at_end: args.exit_at_end,
        ..Settings::default()
    };
    settings.follow(config);
    settings
}

fn identity(config: &Config, epoch: Epoch) -> Identity {
    Identity {
        name: config.publisher.name.clone(),
        fabric: config.fabric.kind.word(),
        epoch,
        clock_error_max_ns: config.metrics.clock_error_max_us.get() * 1_000,
    }
}

/// The instruments that are known before the source plays, so that the first subscriber can already
/// ask for them by name.
fn directory<S: Source>(config: &Config, source: &S) -> Result<Directory> {
    let directory = Directory::new(config.shm.instruments_max.count());
    let known = source.instruments();
    if known.len() > directory.capacity() {
        bail!(
            "the source lists {} instruments, shm.instruments_max is {}: raise it, or choose \
             fewer with source.symbols (--symbols)",
            known.len(),
            directory.capacity()
        );
    }
    for instrument in known {
        if !directory.upsert(instrument) {
            bail!("the source numbers its instruments with holes, at {}", instrument.symbol);
        }
    }
    Ok(directory)
}

fn playback<S: Source>(args: &RunArgs, config: &Config, source: &S) -> Playback {
    let gap_max_s = config.source.gap_max_s.get();
    let gap_max = (gap_max_s > 0).then(|| Duration::from_secs(gap_max_s));
    // Between log lines for machines a bar has no place.
    let quiet = args.no_progress || config.log.format == LogFormat::Json;
    let meter = match ProgressDisplay::for_stderr(quiet) {
        ProgressDisplay::Bar => {
            let label = config.source.file.as_ref().map(|file| file.display().to_string());
            let label = label.unwrap_or_else(|| config.source.kind.word().to_owned());
            let total =
                source.stats().bytes_total.map_or(ProgressTotal::Unknown, ProgressTotal::Bytes);
            Some(ProgressMeter::start(ProgressDisplay::Bar, &label, total))
        }
        ProgressDisplay::Lines | ProgressDisplay::Off => None,
    };
    Playback {
        pacer: Pacer::new(config.source.pace.0, gap_max),
        receive_time: config.source.receive_time,
        looping: config.source.looping.0,
        marks_end: !args.exit_at_end,
        meter,
    }
}

fn spawn_feed<S: Source + 'static>(
    feed: Feed<S>,
    started: Receiver<()>,
    ended: oneshot::Sender<FeedEnd>,
) -> Result<()> {
    let thread = std::thread::Builder::new().name("tapecast-feed".to_owned());
    let spawned = thread.spawn(move || {
        // Nobody listens only when the conductor has given up on this thread.
        let _told = ended.send(feed.run(&started));
    });
    spawned.context("cannot start the feed's thread")?;
    Ok(())
}

fn log_start(config: &Config, epoch: Epoch, directory: &Directory, listener: &AnyListener) {
    let file = config.source.file.as_ref().map(|file| file.display().to_string());
    let place = listener.place();
    let (socket, listen, tls) = match listener {
        AnyListener::Unix(_) => (Some(place), None, None),
        AnyListener::Tcp(tcp) => (None, Some(place), Some(tcp.tls().is_some())),
    };
    info!(
        name = config.publisher.name,
        fabric = config.fabric.kind.word(),
        socket,
        listen,
        tls,
        entitlements = config.entitlement.len(),
        source = config.source.kind.word(),
        file,
        pace = %config.source.pace,
        instruments = directory.count(),
        levels = config.book.levels.get(),
        ring = %config.shm.ring_bytes,
        epoch = epoch.0,
        "publishing"
    );
}

fn log_end(sender: &SenderReport, ended: &ConductorReport) {
    let ConductorReport { silence, listener, .. } = ended;
    info!(
        published = sender.progress.published,
        feed_silences = silence.spells,
        feed_silent_s = (silence.total_ns / 1_000_000_000),
        connections = listener.connections,
        requests = listener.requests,
        not_allowed = listener.not_allowed,
        malformed = listener.malformed,
        timed_out = listener.timed_out,
        crowded_out = listener.crowded_out,
        gone = listener.gone,
        accept_failures = listener.accept_failures,
        tls_expired = listener.tls_expired,
        tls_unknown_ca = listener.tls_unknown_ca,
        tls_no_certificate = listener.tls_no_certificate,
        tls_other = listener.tls_other,
        "closed"
    );
}

/// Without TLS only loopback is served, and there nobody tells one local user from another.
fn warn_of_open_door(config: &Config, listener: &AnyListener) {
    if let AnyListener::Tcp(tcp) = listener
        && tcp.tls().is_none()
        && config.entitlement.is_empty()
    {
        warn!(
            "every user of this host may attach: {} is served without TLS and without \
             entitlements; set tls.certificate, tls.key and tls.client_ca to know clients \
             (`tapecast-publisher certificates` makes them)",
            listener.place()
        );
    }
}

/// What is left when the conductor has ended.
struct Remains<'a> {
    epoch: Epoch,
    directory: &'a Directory,
    sender: &'a SenderReport,
    journal: Option<JournalReport>,
}

fn life(effective: &Effective, remains: Remains<'_>, ended: ConductorReport) -> Life {
    let Remains { epoch, directory, sender, journal } = remains;
    let ConductorReport {
        sessions,
        feed,
        silence,
        refusals,
        evictions,
        pool,
        listener,
        fabric_failure,
    } = ended;
    let config = &effective.config;
    let needs_file = config.source.kind != SourceKind::Synthetic;
    let findings = Findings {
        publisher: &config.publisher.name,
        epoch: epoch.0,
        written_ns: unix_now().0,
        kind: config.source.kind.word(),
        file: config.source.file.clone().filter(|_| needs_file),
        feed: feed.as_ref(),
        silence,
        sender,
        instruments: &directory.instruments(),
        sessions,
        refusals,
        evictions,
        pool,
        listener,
        journal,
    };
    let report = Report::new(findings);
    let source = feed.and_then(|end| end.outcome.error().map(str::to_owned));
    Life { report, failures: Failures { source, fabric: fabric_failure } }
}
