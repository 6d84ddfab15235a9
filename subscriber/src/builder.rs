//! Choices before a subscription starts.

use core::time::Duration;
use std::env;
use std::ffi::OsStr;
use std::path::Path;

use tapecast_fabric::WaitStrategy;
use tapecast_wire::Nanos;
use tapecast_wire::attach::{AttachRequest, LagLimits, MAX_NAME_BYTES, Policy};

use crate::backoff::Reconnect;
use crate::error::ConnectError;
use crate::rdma::RdmaChoices;
use crate::subscriber::Subscriber;
use crate::target::{Target, TlsChoices};

/// Choices before a subscription starts. Made by [`Subscriber::builder`].
///
/// ```no_run
/// use tapecast_subscriber::{Policy, Subscriber, WaitStrategy};
///
/// let subscriber = Subscriber::builder()
///     .symbols(["AAPL", "MSFT"])
///     .policy(Policy::Conflate)
///     .wait(WaitStrategy::Block)
///     .connect()?;
/// # Ok::<(), tapecast_subscriber::ConnectError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `connect`"]
pub struct SubscriberBuilder {
    pub(crate) target: Target,
    pub(crate) tls: Option<TlsChoices>,
    pub(crate) rdma: RdmaChoices,
    pub(crate) name: String,
    pub(crate) symbols: Vec<String>,
    pub(crate) policy: Policy,
    pub(crate) lag: LagLimits,
    pub(crate) min_interval: Duration,
    pub(crate) allow_unknown_symbols: bool,
    pub(crate) wait: WaitStrategy,
    pub(crate) poll_limit: usize,
    pub(crate) reconnect: Reconnect,
    pub(crate) connect_timeout: Duration,
    pub(crate) wait_for_publisher: Duration,
    pub(crate) heartbeat_timeout: Duration,
    pub(crate) latency: bool,
    pub(crate) skew_samples: usize,
}

impl SubscriberBuilder {
    pub(crate) fn new() -> Self {
        Self {
            target: Target::from_environment(),
            tls: None,
            rdma: RdmaChoices::default(),
            name: default_name(),
            symbols: Vec::new(),
            policy: Policy::Conflate,
            lag: LagLimits::default(),
            min_interval: Duration::ZERO,
            allow_unknown_symbols: false,
            wait: WaitStrategy::Block,
            poll_limit: 256,
            reconnect: Reconnect::default(),
            connect_timeout: Duration::from_secs(5),
            wait_for_publisher: Duration::ZERO,
            heartbeat_timeout: Duration::from_secs(1),
            latency: true,
            skew_samples: 0,
        }
    }

    /// Attach over shared memory, to the publisher on this machine with this Unix socket. The last
    /// one given of this and [`SubscriberBuilder::connect_to`] counts. Default: what the
    /// environment names, see [`crate::CONNECT_VARIABLE`] and [`crate::default_socket`].
    pub fn socket(mut self, path: impl AsRef<Path>) -> Self {
        self.target = Target::Socket(path.as_ref().to_owned());
        self
    }

    /// Attach over RDMA, to the publisher whose TCP listener is at `HOST:PORT` or `[V6]:PORT`. The
    /// last one given of this and [`SubscriberBuilder::socket`] counts.
    ///
    /// ```no_run
    /// use tapecast_subscriber::{Subscriber, TlsChoices};
    ///
    /// let subscriber = Subscriber::builder()
    ///     .connect_to("feed-1.example:7411")
    ///     .tls(TlsChoices {
    ///         ca: "/etc/tapecast/ca.pem".into(),
    ///         certificate: "/etc/tapecast/client-risk-1.pem".into(),
    ///         key: "/etc/tapecast/client-risk-1.key".into(),
    ///         server_name: None,
    ///     })
    ///     .connect()?;
    /// # Ok::<(), tapecast_subscriber::ConnectError>(())
    /// ```
    pub fn connect_to(mut self, address: impl Into<String>) -> Self {
        self.target = Target::Remote(address.into());
        self
    }

    /// Certificates for [`SubscriberBuilder::connect_to`]. Required unless the address is a
    /// loopback one. A session over shared memory does not use them. Default: none.
    pub fn tls(mut self, choices: TlsChoices) -> Self {
        self.tls = Some(choices);
        self
    }

    /// Device, ring and route for [`SubscriberBuilder::connect_to`]. A session over shared memory
    /// does not use them. Default: [`RdmaChoices::default`].
    pub fn rdma(mut self, choices: RdmaChoices) -> Self {
        self.rdma = choices;
        self
    }

    /// Where the publisher is, as chosen up to now.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Name for the publisher's logs and metrics, at most 64 bytes. Default: the program's.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Instruments to receive, as the venue writes them. Default, and when the list is empty: all
    /// of them, also those that appear later.
    pub fn symbols<S: Into<String>>(mut self, symbols: impl IntoIterator<Item = S>) -> Self {
        self.symbols = symbols.into_iter().map(Into::into).collect();
        self
    }

    /// Accept symbols that the publisher does not know yet; they are received as soon as they
    /// appear. Default: no, so that a typing error is told at once.
    pub fn allow_unknown_symbols(mut self) -> Self {
        self.allow_unknown_symbols = true;
        self
    }

    /// What happens when this subscriber does not keep up. Default: [`Policy::Conflate`].
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// With [`Policy::Disconnect`]: end the session also when so many bytes are published and not
    /// polled. The publisher's own limit (`lag.hard_bytes`) counts where it is lower. Default: that
    /// one.
    pub fn disconnect_at_bytes(mut self, bytes: u64) -> Self {
        self.lag.bytes = bytes;
        self
    }

    /// With [`Policy::Disconnect`]: end the session also when what is not polled was published so
    /// long ago. The publisher looks ten times a second, and its own limit (`lag.hard_ms`) counts
    /// where it is lower. Default: that one.
    pub fn disconnect_after(mut self, lag: Duration) -> Self {
        self.lag.time = nanos(lag);
        self
    }

    /// Least time between two snapshots of one instrument, for people and dashboards: what comes
    /// sooner waits, and the newest stands for the others. Other instruments are not held up, and
    /// the last state of each always comes. Only with [`Policy::Conflate`]. Default: none.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }

    /// How [`Subscriber::wait`] waits. Default: [`WaitStrategy::Block`]. An epoll loop or an async
    /// stream needs [`WaitStrategy::Fd`].
    pub fn wait(mut self, strategy: WaitStrategy) -> Self {
        self.wait = strategy;
        self
    }

    /// Most snapshots that one `poll` delivers. Default 256; 0 counts as 1.
    pub fn poll_limit(mut self, limit: usize) -> Self {
        self.poll_limit = limit.max(1);
        self
    }

    /// What to do when the session ends before the application leaves. Default: attach again.
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// Longest time for one handshake. Default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Keep trying for so long when no publisher is there yet. Default: not at all, so that a wrong
    /// path is told at once.
    pub fn wait_for_publisher(mut self, patience: Duration) -> Self {
        self.wait_for_publisher = patience;
        self
    }

    /// Books are stale when an attached publisher gives no sign of life for so long. Default 1 s;
    /// a publisher gives one every 100 ms.
    pub fn heartbeat_timeout(mut self, timeout: Duration) -> Self {
        self.heartbeat_timeout = timeout;
        self
    }

    /// Whether to read the clock for each snapshot, about 25 ns, to know its latency. Default: yes.
    pub fn latency(mut self, measure: bool) -> Self {
        self.latency = measure;
        self
    }

    /// Keep the receive times of the newest `capacity` of every 16th snapshot, to compare them with
    /// other subscribers' ([`crate::Summary::skew`]). Default 0: none. Needs latency.
    pub fn skew_samples(mut self, capacity: usize) -> Self {
        self.skew_samples = capacity;
        self
    }

    /// Attaches and returns a subscription whose first polls deliver the newest snapshot of every
    /// instrument asked for.
    ///
    /// # Errors
    /// [`ConnectError`], whose text names the cause and the remedy.
    pub fn connect(self) -> Result<Subscriber, ConnectError> {
        Subscriber::connect(self)
    }

    /// The request for the first session, or for a later one: then a symbol that the restarted
    /// publisher does not know *yet* is no reason to stay away.
    pub(crate) fn request(&self, again: bool) -> AttachRequest {
        AttachRequest {
            name: self.name.clone(),
            policy: self.policy,
            lag: self.lag,
            min_interval: nanos(self.min_interval),
            allow_unknown: self.allow_unknown_symbols || again,
            symbols: self.symbols.clone(),
            rdma: None,
        }
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The program's file name and process id, so that 64 copies of a program have 64 names.
fn default_name() -> String {
    let program = env::args_os().next();
    let stem = program.as_deref().map(Path::new).and_then(Path::file_name).and_then(OsStr::to_str);
    let suffix = format!("[{}]", std::process::id());
    let mut name = stem.unwrap_or("subscriber").to_owned();
    while name.len() + suffix.len() > MAX_NAME_BYTES {
        name.pop();
    }
    name + &suffix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_name_tells_the_program_and_the_process_and_fits() {
        let name = default_name();
        assert!(name.ends_with(&format!("[{}]", std::process::id())), "{name}");
        assert!(name.len() <= MAX_NAME_BYTES, "{name}");
    }

    #[test]
    fn the_place_that_was_given_last_counts() {
        let remote = Target::Remote("feed:7411".into());
        let local = Target::Socket("/run/feed.sock".into());
        let builder = SubscriberBuilder::new().socket("/run/feed.sock").connect_to("feed:7411");
        assert_eq!(builder.target(), &remote);
        assert_eq!(builder.socket("/run/feed.sock").target(), &local);
    }

    #[test]
    fn a_symbol_that_is_unknown_is_only_an_error_the_first_time() {
        let builder = SubscriberBuilder::new().symbols(["AAPL"]);
        assert!(!builder.request(false).allow_unknown);
        assert!(builder.request(true).allow_unknown);
        assert!(builder.allow_unknown_symbols().request(false).allow_unknown);
    }
}
