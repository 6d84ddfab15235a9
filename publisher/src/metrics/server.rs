//! HTTP: `/metrics`, `/healthz`, `/readyz`.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tapecast_control::TlsIdentity;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info};

use super::collector::{Health, Scraper};
use super::connections::{Activity, Answer, Connections, Watched};
use super::starting::Starting;
use super::{Identity, Sources};

/// For a request to arrive, after it was connected or answered.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// For the whole life of a connection, but for the answer under way: whoever reads one byte by byte
/// gives his place back.
const CONNECTION_MAX: Duration = Duration::from_secs(300);
/// Bytes of a request that are kept.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// For the conductor's answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Pause after a connection could not be taken, e.g. for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const PLACES: &str = "tapecast publisher: /metrics /healthz /readyz\n";

/// The endpoint cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// The address cannot be had.
    #[error(
        "metrics.address (--metrics): cannot listen on {address}: {source}; choose another address \
         or port, or see who has it with `ss -ltnp`"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Threads or descriptors are short.
    #[error("cannot start the metrics thread: {0}")]
    Start(io::Error),
    /// Two series of one name.
    #[error("cannot register the metrics: {0}; please report this")]
    Register(prometheus::Error),
}

/// A port that was taken, and is not served yet.
#[derive(Debug)]
pub struct MetricsServer {
    socket: StdListener,
    address: SocketAddr,
    tls: Option<TlsIdentity>,
}

/// The thread that serves. Dropping it ends it.
#[derive(Debug)]
pub struct MetricsThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    scraper: Arc<OnceLock<Scraper>>,
    tls: Option<TlsIdentity>,
}

/// What is told: all, once there is all; before that, that the publisher starts.
#[derive(Clone, Debug)]
struct Desk {
    scraper: Arc<OnceLock<Scraper>>,
    starting: Arc<Starting>,
}

impl MetricsServer {
    /// Takes the port.
    ///
    /// # Errors
    /// [`MetricsError::Bind`].
    pub fn bind(address: SocketAddr, tls: Option<TlsIdentity>) -> Result<Self, MetricsError> {
        let bind = || {
            let socket = StdListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let (socket, address) = bind().map_err(|source| MetricsError::Bind { address, source })?;
        Ok(Self { socket, address, tls })
    }

    /// Where it listens, with the port that it really has.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves in a thread of its own. Until it has figures it says that the publisher starts: a
    /// source may wait for its input.
    ///
    /// # Errors
    /// [`MetricsError`] when the thread cannot be started.
    pub fn spawn(self, identity: &Identity) -> Result<MetricsThread, MetricsError> {
        let Self { socket, address, tls } = self;
        let starting = Starting::new(identity).map_err(MetricsError::Register)?;
        let scraper = Arc::new(OnceLock::new());
        let desk = Desk { scraper: Arc::clone(&scraper), starting: Arc::new(starting) };
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().map_err(MetricsError::Start)?;
        let listener = {
            let _context = runtime.enter();
            TcpListener::from_std(socket).map_err(MetricsError::Start)?
        };
        let (stop, stopped) = oneshot::channel();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared_tls = tls.clone();
        let thread = std::thread::Builder::new().name("tapecast-metrics".to_owned());
        let serving = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, tls, desk) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = thread.spawn(serving).map_err(MetricsError::Start)?;
        info!(url = format!("{scheme}://{address}/metrics"), "figures are served");
        Ok(MetricsThread { stop: Some(stop), thread: Some(thread), scraper, tls: shared_tls })
    }
}

impl MetricsThread {
    /// The endpoint's certificate, where TLS is on.
    #[must_use]
    pub const fn tls(&self) -> Option<&TlsIdentity> {
        self.tls.as_ref()
    }

    /// From now on all is told, from `sources`.
    ///
    /// # Errors
    /// [`MetricsError::Register`], which is a defect.
    pub fn tell(&self, sources: Sources) -> Result<(), MetricsError> {
        let scraper = Scraper::new(sources).map_err(MetricsError::Register)?;
        // There is only one life to tell of.
        let _first = self.scraper.set(scraper);
        Ok(())
    }
}

impl Drop for MetricsThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has ended the process.
            let _ended = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsIdentity>, desk: Desk) {
    let mut connections = Connections::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!("a metrics connection could not be taken: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let now = Instant::now();
        if !connections.make_room(now) {
            debug!("a metrics connection is one too many: all others are being answered");
            continue;
        }
        let activity = Activity::new(now);
        let task = tokio::spawn(connection(stream, tls.clone(), desk.clone(), activity.clone()));
        connections.add(task.abort_handle(), activity);
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsIdentity>, desk: Desk, activity: Activity) {
    let Some(tls) = tls else { return answer(stream, desk, activity).await };
    // Looks at the files, once a second at most: this is no hot path.
    let acceptor = TlsAcceptor::from(tls.server_config());
    match tokio::time::timeout(REQUEST_MAX, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => answer(stream, desk, activity).await,
        Ok(Err(error)) => debug!("a metrics connection failed: {error}"),
        Err(_) => debug!("a metrics connection took too long"),
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, desk: Desk, activity: Activity) {
    let watched = Watched::new(stream, activity.clone());
    let service = service_fn(move |request| {
        let (desk, activity) = (desk.clone(), activity.clone());
        activity.on_request(Instant::now());
        async move {
            let response = respond(&request, &desk).await;
            Ok::<_, Infallible>(response.map(|body| Answer::new(body, activity)))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_MAX)
        .max_buf_size(REQUEST_BYTES_MAX)
        .serve_connection(TokioIo::new(watched), service);
    let mut served = pin!(served);
    let ended = tokio::select! {
        ended = &mut served => ended,
        () = tokio::time::sleep(CONNECTION_MAX) => {
            served.as_mut().graceful_shutdown();
            tokio::time::timeout(REQUEST_MAX, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!("a metrics connection ended: {error}");
    }
}

async fn respond(request: &Request<Incoming>, desk: &Desk) -> Response<Full<Bytes>> {
    // The body of an answer to HEAD is left out by hyper.
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, PLACES);
        refused.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match request.uri().path() {
        "/metrics" => match desk.scrape().await {
            Ok(text) => response(StatusCode::OK, TEXT_FORMAT, text),
            Err(problem) => unavailable(&problem),
        },
        "/healthz" => health(desk.health().await),
        "/readyz" => health(desk.readiness().await),
        "/" => response(StatusCode::OK, TEXT, PLACES),
        _ => response(StatusCode::NOT_FOUND, TEXT, PLACES),
    }
}

impl Desk {
    async fn scrape(&self) -> Result<Vec<u8>, String> {
        match self.scraper.get() {
            Some(scraper) => scraper.scrape(ANSWER_MAX).await,
            None => self.starting.scrape(),
        }
    }

    /// One that starts is not ready, but nothing is wrong with it.
    async fn health(&self) -> Health {
        match self.scraper.get() {
            Some(scraper) => scraper.health(ANSWER_MAX).await,
            None => Health::Good,
        }
    }

    async fn readiness(&self) -> Health {
        match self.scraper.get() {
            Some(scraper) => scraper.readiness(ANSWER_MAX).await,
            None => Health::Bad("the source is being opened".to_owned()),
        }
    }
}

fn health(health: Health) -> Response<Full<Bytes>> {
    match health {
        Health::Good => response(StatusCode::OK, TEXT, "ok\n"),
        Health::Bad(problem) => unavailable(&problem),
    }
}

fn unavailable(problem: &str) -> Response<Full<Bytes>> {
    response(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{problem}\n"))
}

fn response(
    status: StatusCode,
    content: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let content = hyper::header::HeaderValue::from_static(content);
    response.headers_mut().insert(CONTENT_TYPE, content);
    response
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::net::TcpStream;

    use tapecast_fabric::pool::{Pool, PoolConfig};
    use tapecast_wire::Epoch;

    use super::super::connections::CONNECTIONS_MAX;
    use super::super::{Certificates, HighestTold};
    use super::*;
    use crate::conductor::{Asker, ReloadRecord, questions};
    use crate::feed::{Directory, FeedFigures, FeedGauges, QueueLength};
    use crate::sender::{SenderFigures, SenderProgress};

    fn identity() -> Identity {
        Identity {
            name: "test".to_owned(),
            fabric: "shm",
            epoch: Epoch(1),
            clock_error_max_ns: 50_000,
        }
    }

    fn sources(asker: Asker) -> Sources {
        Sources {
            identity: identity(),
            asker,
            progress: Arc::new(SenderProgress::default()),
            sender: Arc::new(SenderFigures::default()),
            feed: FeedFigures::default(),
            gauges: FeedGauges::default(),
            queue: QueueLength::of(&crossbeam_channel::bounded(1).1),
            highest: HighestTold::default(),
            pool: Pool::new(PoolConfig::default()).unwrap(),
            directory: Arc::new(Directory::new(1)),
            reloads: ReloadRecord::begun(),
            journal: None,
            certificates: Certificates::default(),
            device: None,
        }
    }

    /// The answer to a request on a connection of its own.
    fn get(address: SocketAddr, path: &str) -> String {
        ask_once(address, "GET", path)
    }

    fn ask_once(address: SocketAddr, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// The head of an answer, without the line that says when it was given.
    fn head(answer: &str) -> Vec<&str> {
        let head = answer.split_once("\r\n\r\n").unwrap().0;
        head.lines().filter(|line| !line.starts_with("date: ")).collect()
    }

    #[test]
    fn head_is_answered_as_get_without_the_body() {
        let server = MetricsServer::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let address = server.address();
        let _thread = server.spawn(&identity()).unwrap();
        for path in ["/metrics", "/healthz", "/readyz", "/", "/nowhere"] {
            let (got, told) = (get(address, path), ask_once(address, "HEAD", path));
            assert!(told.ends_with("\r\n\r\n"), "no body: {told}");
            assert_eq!(head(&told), head(&got), "{path}");
            let length = got.split_once("\r\n\r\n").unwrap().1.len();
            assert!(
                length > 0 && told.contains(&format!("content-length: {length}\r\n")),
                "{told}"
            );
        }
        assert!(ask_once(address, "POST", "/metrics").contains("allow: GET, HEAD\r\n"));
    }

    /// Asks on a connection that stays open, and reads the answer.
    fn ask_again(stream: &mut TcpStream) {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let (mut answer, mut bytes) = (String::new(), [0; 1024]);
        while !answer.ends_with(PLACES) {
            let length = stream.read(&mut bytes).unwrap();
            assert!(length > 0, "cut off after {answer:?}");
            answer.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        }
    }

    #[test]
    fn of_those_who_were_answered_the_longest_idle_is_cut_off_and_not_the_oldest() {
        let server = MetricsServer::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let address = server.address();
        let _thread = server.spawn(&identity()).unwrap();
        let mut all: Vec<TcpStream> =
            (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        all.iter_mut().for_each(ask_again);
        ask_again(&mut all[0]);
        assert!(get(address, "/").starts_with("HTTP/1.1 200 "));
        let cut = all[1].read(&mut [0]);
        assert!(matches!(cut, Ok(0) | Err(_)), "{cut:?}");
        ask_again(&mut all[0]);
        ask_again(&mut all[2]);
    }

    #[test]
    fn a_connection_in_the_middle_of_an_answer_is_not_cut_off_for_others() {
        let server = MetricsServer::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let address = server.address();
        let thread = server.spawn(&identity()).unwrap();
        // Somebody to ask, who takes longer than anybody waits.
        let (asker, _questions) = questions();
        thread.tell(sources(asker)).unwrap();
        let mut oldest = TcpStream::connect(address).unwrap();
        oldest.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        // Answered after it: so the request before has been read.
        assert!(get(address, "/").starts_with("HTTP/1.1 200 "));
        let mut idle: Vec<TcpStream> =
            (1..CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(get(address, "/").starts_with("HTTP/1.1 200 "));
        let cut = idle[0].read(&mut [0]);
        assert!(matches!(cut, Ok(0) | Err(_)), "the longest idle is cut off: {cut:?}");
        let mut answer = [0; 1024];
        let length = oldest.read(&mut answer).unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 503 "), "{:?}", &answer[..length]);
    }

    #[test]
    fn who_opens_many_connections_and_is_slow_on_them_keeps_nobody_from_asking() {
        let server = MetricsServer::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let address = server.address();
        let _thread = server.spawn(&identity()).unwrap();
        let mut idle: Vec<TcpStream> =
            (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(get(address, "/").starts_with("HTTP/1.1 200 "));
        assert!(get(address, "/nowhere").starts_with("HTTP/1.1 404 "));
        let oldest = idle[0].read(&mut [0]);
        assert!(matches!(oldest, Ok(0) | Err(_)), "it is cut off: {oldest:?}");
        let newest = idle.last_mut().unwrap();
        newest.set_nonblocking(true).unwrap();
        let kind = newest.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(kind, Err(io::ErrorKind::WouldBlock), "the others are not");
    }

    #[test]
    fn without_a_conductor_it_is_neither_healthy_nor_ready_and_says_so() {
        let server = MetricsServer::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let address = server.address();
        let thread = server.spawn(&identity()).unwrap();
        thread.tell(sources(questions().0)).unwrap();
        for path in ["/healthz", "/readyz", "/metrics"] {
            let answer = get(address, path);
            assert!(answer.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
            assert!(answer.ends_with("the conductor does not answer\n"), "{path}: {answer}");
        }
    }
}
