//! One scrape: asks, folds, encodes.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, Registry, TextEncoder};
use tapecast_fabric::KernelClock;
use tapecast_wire::Nanos;

use super::starting::READY;
use super::{Identity, Sources, clock, feed, journal, network, sender, sessions, threads};
use crate::clock::unix_now;
use crate::conductor::Figures;
use tapecast_telemetry::families::{Families, Named, flag, seconds};

/// A sender that has not gone round for so long hangs.
const BEAT_MAX: Duration = Duration::from_secs(1);
const TASKS: &str = "/proc/self/task";

/// Everything that a scrape needs.
#[derive(Debug)]
pub(super) struct Scraper {
    shared: Arc<Shared>,
    registry: Registry,
}

#[derive(Debug)]
struct Shared {
    sources: Sources,
    answer: Mutex<Answer>,
}

/// The conductor's answer to the scrape that goes on, and how long the one before took.
#[derive(Debug, Default)]
struct Answer {
    figures: Box<Figures>,
    took: Duration,
}

/// Whether the publisher can be relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It can.
    Good,
    /// It cannot, and why.
    Bad(String),
}

impl Scraper {
    pub(super) fn new(sources: Sources) -> Result<Self, prometheus::Error> {
        let labels = [("channel".to_owned(), sources.identity.name.clone())];
        let registry = Registry::new_custom(None, Some(labels.into()))?;
        let shared = Arc::new(Shared { sources, answer: Mutex::default() });
        registry.register(Box::new(Publisher(Arc::clone(&shared))))?;
        registry.register(Box::new(ProcessCollector::for_self()))?;
        Ok(Self { shared, registry })
    }

    /// The conductor's figures; `None` when it does not answer in time.
    async fn ask(&self, patience: Duration) -> Option<Box<Figures>> {
        tokio::time::timeout(patience, self.shared.sources.asker.ask()).await.ok().flatten()
    }

    /// The text of a scrape.
    pub(super) async fn scrape(&self, patience: Duration) -> Result<Vec<u8>, String> {
        let began = Instant::now();
        let figures = self.ask(patience).await.ok_or("the conductor does not answer")?;
        lock(&self.shared.answer).figures = figures;
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .map_err(|error| error.to_string())?;
        lock(&self.shared.answer).took = began.elapsed();
        Ok(text)
    }

    /// Whether conductor and sender go round.
    pub(super) async fn health(&self, patience: Duration) -> Health {
        match self.ask(patience).await {
            None => Health::Bad("the conductor does not answer".to_owned()),
            Some(_) => self.beat(),
        }
    }

    /// Whether, besides, the source was let go and is heard.
    pub(super) async fn readiness(&self, patience: Duration) -> Health {
        let Some(figures) = self.ask(patience).await else {
            return Health::Bad("the conductor does not answer".to_owned());
        };
        match self.beat() {
            Health::Good if !figures.started => {
                Health::Bad("waiting for subscribers (--wait-for)".to_owned())
            }
            Health::Good if figures.feed_silent => {
                Health::Bad("the feed is connected and silent".to_owned())
            }
            beat => beat,
        }
    }

    fn beat(&self) -> Health {
        match self.shared.sources.beat_age(unix_now()) {
            None => Health::Bad("the sender has not begun".to_owned()),
            Some(age) if age > BEAT_MAX => {
                Health::Bad(format!("the sender has hung for {:.1} s", age.as_secs_f64()))
            }
            Some(_) => Health::Good,
        }
    }
}

impl Sources {
    /// Since the sender's last duty cycle; `None` before the first.
    fn beat_age(&self, now: Nanos) -> Option<Duration> {
        let beat = self.sender.beat();
        (beat.0 > 0).then(|| Duration::from_nanos(now.since(beat).0))
    }
}

/// Folds what was counted elsewhere into families, at each scrape.
#[derive(Debug)]
struct Publisher(Arc<Shared>);

impl Collector for Publisher {
    /// Series come and go with the sessions, so none is described beforehand.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Shared { sources, answer } = &*self.0;
        let Answer { figures, took } = &*lock(answer);
        let now = unix_now();
        let mut out = Families::default();
        life(&mut out, sources, figures, now);
        out.gauge(
            Named("tapecast_scrape_duration_seconds", "How long the scrape before this one took."),
            took.as_secs_f64(),
        );
        sender::collect(&mut out, sources, now);
        feed::collect(&mut out, sources, figures, now);
        let published = sources.progress.load().published;
        sessions::collect(&mut out, figures, &sources.identity, (published, now));
        if let Some(stats) = &figures.network {
            network::collect(&mut out, stats, &figures.post_to_completion);
        }
        if let Some(journal) = &sources.journal {
            journal::collect(&mut out, journal.read());
        }
        sources.certificates.collect(&mut out);
        if let Some(device) = &sources.device {
            device.collect(&mut out);
        }
        clock::collect(&mut out, &KernelClock::read());
        threads::collect(&mut out, Path::new(TASKS), std::process::id());
        out.into_inner()
    }
}

/// What runs, and since when.
pub(super) fn build(out: &mut Families, identity: &Identity) {
    out.gauge_of(
        Named("tapecast_build_info", "Always 1; the labels say what runs."),
        &[("version", env!("CARGO_PKG_VERSION")), ("fabric", identity.fabric)],
        1.0,
    );
    out.gauge(
        Named(
            "tapecast_start_time_seconds",
            "When this life of the publisher began, Unix time: its epoch.",
        ),
        seconds(identity.epoch.0),
    );
}

fn life(out: &mut Families, sources: &Sources, figures: &Figures, now: Nanos) {
    let identity = &sources.identity;
    build(out, identity);
    let reloads = sources.reloads.status();
    out.gauge(
        Named(
            "tapecast_config_last_reload_successful",
            "Whether the configuration that was read last is in use, as far as it can be without a \
             restart.",
        ),
        flag(reloads.last_successful),
    );
    out.gauge(
        Named(
            "tapecast_config_last_reload_success_timestamp_seconds",
            "When the configuration in use was read, Unix time.",
        ),
        reloads.last_success_unix_s as f64,
    );
    out.counters(
        Named(
            "tapecast_config_reloads_total",
            "Times that the configuration was read again (SIGHUP), by what came of it: something \
             in it was taken over (applied), nothing had changed that can without a restart \
             (unchanged; certificates were read again all the same), or it cannot be used and the \
             one before stays (refused).",
        ),
        "result",
        &[
            ("applied", reloads.applied),
            ("unchanged", reloads.unchanged),
            ("refused", reloads.refused),
        ],
    );
    let beats = sources.beat_age(now).is_some_and(|age| age <= BEAT_MAX);
    out.gauge(READY, flag(beats && figures.started && !figures.feed_silent));
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
