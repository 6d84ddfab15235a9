//! The metrics endpoint of the real daemon, as Prometheus and a load balancer see it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::process::Signal;
use tapecast_fabric::{CELL_TRANSIT_WORDS, Timing};
use tapecast_wire::Nanos;
use tapecast_wire::attach::{AttachRequest, Policy};

use crate::support::{Bench, Daemon, Subscriber, error_line, program, request, stderr};

const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

/// A daemon that serves figures, and where.
struct Served {
    daemon: Daemon,
    address: SocketAddr,
}

impl Served {
    /// One that has begun, and tells all.
    fn start<'a>(bench: &Bench, more: impl IntoIterator<Item = &'a str>) -> Self {
        let mut served = Self::begin(bench, more);
        served.until("all is told", |series| {
            series.keys().any(|key| key.starts_with("tapecast_sessions{"))
        });
        served
    }

    /// One that may still be waiting for its input.
    fn begin<'a>(bench: &Bench, more: impl IntoIterator<Item = &'a str>) -> Self {
        let daemon = bench.start_until("figures are served", METRICS.into_iter().chain(more));
        let log = daemon.log();
        let (_, url) =
            log.split_once("url=http://").or_else(|| log.split_once("url=\"http://")).unwrap();
        let address = url.split_once("/metrics").unwrap().0.parse().unwrap();
        Self { daemon, address }
    }

    fn get(&self, path: &str) -> (u16, String) {
        get(self.address, path)
    }

    fn scrape(&self) -> BTreeMap<String, f64> {
        scrape(self.address)
    }

    fn value(&self, name: &str) -> f64 {
        value(&self.scrape(), name)
    }

    fn until(&mut self, what: &str, is_true: impl Fn(&BTreeMap<String, f64>) -> bool) {
        let address = self.address;
        self.daemon.until(what, |_| is_true(&scrape(address)));
    }
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

/// Every series by name and labels.
fn scrape(address: SocketAddr) -> BTreeMap<String, f64> {
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200, "{text}");
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let parsed = series.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    let all: Vec<(String, f64)> = parsed.collect();
    let count = all.len();
    let all: BTreeMap<String, f64> = all.into_iter().collect();
    assert_eq!(all.len(), count, "no series comes twice");
    all
}

fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The sum of all series of a name, whatever their labels.
fn value(series: &BTreeMap<String, f64>, name: &str) -> f64 {
    let found: Vec<f64> = series
        .iter()
        .filter(|(key, _)| key.split('{').next() == Some(name))
        .map(|(_, value)| *value)
        .collect();
    assert!(!found.is_empty(), "no series {name}");
    found.iter().sum()
}

fn of<'a>(series: &'a BTreeMap<String, f64>, name: &str, label: &str) -> Option<(&'a String, f64)> {
    let matches = |key: &String| key.split('{').next() == Some(name) && key.contains(label);
    series.iter().find(|(key, _)| matches(key)).map(|(key, value)| (key, *value))
}

#[test]
fn totals_balance_with_what_the_subscriber_counts_and_the_report() {
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 20_000);
    let (report, journal) = (bench.path("report.json"), bench.path("journal"));
    let mut served = Served::start(
        &bench,
        [
            "--source",
            "itch",
            "--file",
            day.to_str().unwrap(),
            "--pace",
            "max",
            "--journal",
            journal.to_str().unwrap(),
            "--wait-for",
            "1",
            "--report",
            report.to_str().unwrap(),
        ],
    );
    assert_eq!(served.get("/healthz").0, 200);
    let (status, text) = served.get("/readyz");
    assert_eq!((status, text.as_str()), (503, "waiting for subscribers (--wait-for)\n"));
    assert_eq!(value(&served.scrape(), "tapecast_ready"), 0.0);

    let mut subscriber =
        Subscriber::attach(&bench.socket(), &request("risk \"1\"\n", Policy::Conflate, &[]))
            .unwrap();
    served.until("the source has ended", |series| value(series, "tapecast_feed_ended") == 1.0);
    assert_eq!(served.get("/readyz").0, 200);
    let published = served.value("tapecast_published_snapshots_total");
    assert!(published > 1_000.0, "{published}");
    let mut received = 0_u64;
    let mut conflated = 0_u64;
    while received + conflated < published as u64 {
        subscriber
            .receiver
            .poll(256, |delivery| {
                received += 1;
                conflated += delivery.conflated();
            })
            .unwrap();
    }
    let totals = subscriber.receiver.totals();
    let series = served.scrape();
    for (name, count) in [
        ("tapecast_delivered_snapshots_total", totals.delivered),
        ("tapecast_conflated_snapshots_total", totals.conflated),
        ("tapecast_lost_snapshots_total", 0),
        ("tapecast_subscriber_delivered_snapshots_total", totals.delivered),
        ("tapecast_subscriber_conflated_snapshots_total", totals.conflated),
        ("tapecast_subscriber_initial_images_total", totals.initial_images),
        ("tapecast_publish_cost_seconds_count", published as u64),
        ("tapecast_source_to_publish_seconds_count", published as u64),
        ("tapecast_feed_messages_total", 20_000),
        ("tapecast_feed_messages_by_type_total", 20_000),
        ("tapecast_sessions", 1),
        ("tapecast_sessions_attached_total", 1),
    ] {
        assert_eq!(value(&series, name), count as f64, "{name}");
    }
    assert_eq!(totals.delivered + totals.conflated, published as u64);
    // A name is escaped as the format wants it, and names the series.
    let (key, connected) =
        of(&series, "tapecast_subscriber_connected", r#"subscriber="risk \"1\"\n""#).unwrap();
    assert_eq!(connected, 1.0);
    for label in [r#"policy="conflate""#, r#"transport="shm""#, r#"channel="tapecast""#] {
        assert!(key.contains(label), "{key}");
    }

    served.until("all of it is in the journal", |series| {
        value(series, "tapecast_journal_written_snapshots_total") == published
    });
    assert_eq!(value(&served.scrape(), "tapecast_journal_lost_snapshots_total"), 0.0);

    served.daemon.signal(Signal::TERM);
    assert!(served.daemon.wait().success());
    let report = bench.report();
    assert_eq!(report["totals"]["published"], published as u64);
    assert_eq!(report["source"]["messages"], 20_000);
}

#[test]
fn both_distributions_of_a_session_are_told_as_it_says_bucket_by_bucket() {
    let bench = Bench::new();
    let mut served = Served::start(&bench, []);
    let mut subscriber =
        Subscriber::attach(&bench.socket(), &request("desk", Policy::Conflate, &[])).unwrap();
    let mut timing = Timing::default();
    // Two of at most 100 ns, five of at most 1.5 µs and one beyond all bounds; then the sum.
    (timing.end_to_end[0], timing.end_to_end[7]) = (2, 5);
    (timing.end_to_end[CELL_TRANSIT_WORDS - 2], timing.end_to_end[CELL_TRANSIT_WORDS - 1]) =
        (1, 59_000_000_700);
    (timing.transit[1], timing.transit[CELL_TRANSIT_WORDS - 1]) = (11, 1_400);
    timing.negative = 3;
    subscriber.receiver.show_timing(&timing);
    served.until("the session is told", |series| {
        series.keys().any(|key| key.starts_with("tapecast_subscriber_end_to_end_seconds_count"))
    });
    let series = served.scrape();
    let at = |name: &str, label: &str| of(&series, name, label).unwrap().1;
    for (le, count) in [("0.000001", 2.0), ("0.000002", 7.0), ("1", 7.0), ("+Inf", 8.0)] {
        let label = format!("le=\"{le}\"");
        assert_eq!(at("tapecast_subscriber_end_to_end_seconds_bucket", &label), count, "{le}");
    }
    for (le, count) in [("0.0000001", 0.0), ("0.00000015", 11.0), ("+Inf", 11.0)] {
        let label = format!("le=\"{le}\"");
        assert_eq!(at("tapecast_subscriber_delivery_seconds_bucket", &label), count, "{le}");
    }
    for (name, expected) in [
        ("tapecast_subscriber_end_to_end_seconds_count", 8.0),
        ("tapecast_subscriber_end_to_end_seconds_sum", 59.0000007),
        ("tapecast_subscriber_delivery_seconds_count", 11.0),
        ("tapecast_subscriber_delivery_seconds_sum", 0.0000014),
        ("tapecast_subscriber_negative_deliveries_total", 3.0),
    ] {
        assert_eq!(at(name, "subscriber=\"desk\""), expected, "{name}");
    }

    // A session may say anything: its own series are wrong then, and nothing else.
    timing.end_to_end = [u64::MAX; CELL_TRANSIT_WORDS];
    subscriber.receiver.show_timing(&timing);
    let series = served.scrape();
    assert!(value(&series, "tapecast_subscriber_end_to_end_seconds_sum") > 1e10);
    assert_eq!(value(&series, "tapecast_subscriber_delivery_seconds_count"), 11.0);
    assert_eq!(value(&series, "tapecast_sessions"), 1.0);
}

#[test]
fn one_that_asked_for_a_least_interval_is_told_apart_from_those_that_do_not_keep_up() {
    let bench = Bench::new();
    let served = Served::start(&bench, []);
    let paced = AttachRequest {
        min_interval: Nanos(250_000_000),
        ..request("paced", Policy::Conflate, &[])
    };
    let _paced = Subscriber::attach(&bench.socket(), &paced).unwrap();
    let plain = request("plain", Policy::Conflate, &[]);
    let _plain = Subscriber::attach(&bench.socket(), &plain).unwrap();
    let series = served.scrape();
    for (name, seconds) in [("paced", 0.25), ("plain", 0.0)] {
        let label = format!("subscriber=\"{name}\"");
        let told = of(&series, "tapecast_subscriber_min_interval_seconds", &label);
        assert_eq!(told.unwrap().1, seconds, "{name}");
    }
}

#[test]
fn a_lossless_reader_that_stands_still_is_told_while_it_holds_the_channel() {
    let bench = Bench::new();
    let small = ["--instruments", "5", "--set", "shm.ring_bytes=1MiB"];
    let patient = ["--lossless", "--pace", "max", "--set", "access.stall_max_s=3600"];
    let mut served = Served::start(&bench, small.into_iter().chain(patient));
    let reader = request("stopped", Policy::Lossless, &[]);
    let mut reader = Subscriber::attach(&bench.socket(), &reader).unwrap();
    served.until("the sender is held back and the feed waits for it", |series| {
        value(series, "tapecast_gated") == 1.0 && value(series, "tapecast_queue_items") == 1024.0
    });
    let first = served.scrape();
    for name in ["tapecast_gated_seconds_total", "tapecast_queue_stalled_seconds_total"] {
        let before = value(&first, name);
        served.until(name, |series| value(series, name) > before + 0.05);
    }
    let later = served.scrape();
    let stalls = |series: &BTreeMap<String, f64>| value(series, "tapecast_queue_stalls_total");
    assert!(stalls(&later) >= 1.0, "it was counted when it began");
    served.until("time passes", |series| {
        let name = "tapecast_queue_stalled_seconds_total";
        value(series, name) > value(&later, name) + 0.05
    });
    assert_eq!(stalls(&served.scrape()), stalls(&later), "it is one stall");

    reader.receiver.poll(1 << 20, |_| {}).unwrap();
    served.until("it goes on", |series| {
        value(series, "tapecast_published_snapshots_total")
            > value(&first, "tapecast_published_snapshots_total")
    });
}

#[test]
fn every_label_value_is_there_from_the_beginning() {
    let bench = Bench::new();
    let served = Served::start(&bench, []);
    let series = served.scrape();
    for (name, label) in [
        ("tapecast_evictions_total", r#"reason="unreachable""#),
        ("tapecast_refusals_total", r#"reason="not_entitled""#),
        ("tapecast_connections_failed_total", r#"reason="tls_expired""#),
        ("tapecast_config_reloads_total", r#"result="applied""#),
        ("tapecast_config_reloads_total", r#"result="unchanged""#),
        ("tapecast_config_reloads_total", r#"result="refused""#),
        ("tapecast_sender_duty_cycles_total", r#"work="gated""#),
        ("tapecast_sender_system_calls_total", r#"call="futex_wait""#),
        ("tapecast_sender_system_calls_total", r#"call="sched_yield""#),
        ("tapecast_clock_state_readable", ""),
        ("tapecast_feed_book_anomalies_total", r#"kind="refused""#),
        ("tapecast_fan_out_skew_seconds_bucket", r#"le="+Inf""#),
        ("tapecast_thread_cpu_seconds_total", r#"thread="sender""#),
        ("process_resident_memory_bytes", ""),
    ] {
        assert!(of(&series, name, label).is_some(), "{name} {label}");
    }
}

#[test]
fn reloads_are_counted_by_what_came_of_them() {
    let bench = Bench::new();
    let text = "[log]\nlevel = \"info\"\n";
    let file = bench.write("p.toml", text.as_bytes());
    let mut served = Served::start(&bench, ["--config", file.to_str().unwrap()]);
    for (text, result) in [
        (text.to_owned(), "unchanged"),
        (format!("{text}[access]\nsessions_max = 2\n"), "applied"),
        ("[log]\nlevel = \"loud\"\n".to_owned(), "refused"),
    ] {
        bench.write("p.toml", text.as_bytes());
        served.daemon.signal(Signal::HUP);
        let label = format!(r#"result="{result}""#);
        served.until(result, |series| {
            of(series, "tapecast_config_reloads_total", &label).is_some_and(|(_, n)| n == 1.0)
        });
        let successful = served.value("tapecast_config_last_reload_successful");
        assert_eq!(successful, f64::from(u8::from(result != "refused")), "{result}");
    }
    assert_eq!(served.value("tapecast_config_reloads_total"), 3.0);
}

#[test]
fn a_departed_subscribers_series_stay_for_a_while_and_its_counts_for_ever() {
    let bench = Bench::new();
    let mut served = Served::start(&bench, ["--set", "metrics.departed_s=3600"]);
    let mut subscriber =
        Subscriber::attach(&bench.socket(), &request("once", Policy::Conflate, &[])).unwrap();
    let mut delivered = 0;
    while delivered < 100 {
        delivered += subscriber.receiver.poll(256, |_| {}).unwrap();
    }
    let delivered = subscriber.receiver.totals().delivered as f64;
    drop(subscriber);
    served.until("it has left", |series| value(series, "tapecast_sessions") == 0.0);
    let series = served.scrape();
    let connected = of(&series, "tapecast_subscriber_connected", r#"subscriber="once""#);
    assert_eq!(connected.unwrap().1, 0.0);
    assert_eq!(value(&series, "tapecast_subscriber_delivered_snapshots_total"), delivered);
    assert_eq!(value(&series, "tapecast_delivered_snapshots_total"), delivered);
    assert_eq!(value(&series, "tapecast_sessions_detached_total"), 1.0);

    // Who comes back under its name takes the series over.
    let _again =
        Subscriber::attach(&bench.socket(), &request("once", Policy::Conflate, &[])).unwrap();
    served.until("it is back", |series| value(series, "tapecast_sessions") == 1.0);
    assert_eq!(value(&served.scrape(), "tapecast_subscriber_connected"), 1.0);
}

#[test]
fn series_of_who_has_left_go_when_nothing_is_to_be_kept() {
    let bench = Bench::new();
    let mut served = Served::start(&bench, ["--set", "metrics.departed_s=0"]);
    for round in 0..3 {
        let name = format!("guest-{round}");
        let guest = Subscriber::attach(&bench.socket(), &request(&name, Policy::Conflate, &[]));
        drop(guest.unwrap());
    }
    served
        .until("all have left", |series| value(series, "tapecast_sessions_detached_total") == 3.0);
    assert!(of(&served.scrape(), "tapecast_subscriber_connected", "guest").is_none());
}

#[test]
fn the_text_passes_prometheus_own_lint() {
    let Ok(mut promtool) = std::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
    else {
        eprintln!("SKIPPED: promtool is not installed (Debian package prometheus)");
        return;
    };
    let bench = Bench::new();
    let served = Served::start(&bench, []);
    let _one = Subscriber::attach(&bench.socket(), &request("one", Policy::Conflate, &[])).unwrap();
    let (_, text) = served.get("/metrics");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn only_what_is_served_is_answered() {
    let bench = Bench::new();
    let served = Served::start(&bench, []);
    let (status, places) = served.get("/");
    assert_eq!(status, 200);
    assert!(places.contains("/metrics /healthz /readyz"), "{places}");
    assert_eq!(served.get("/secret").0, 404);
    assert_eq!(
        ask(served.address, "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").0,
        405
    );
    assert_eq!(ask(served.address, "nonsense\r\n\r\n").0, 400);
    // A head without an end is cut off, and nobody else waits for it.
    let mut endless = TcpStream::connect(served.address).unwrap();
    let line = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n", "x".repeat(1 << 20));
    let _cut = endless.write_all(line.as_bytes());
    assert_eq!(served.get("/").0, 200);
}

#[test]
fn a_port_that_is_taken_is_a_sentence() {
    let bench = Bench::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let line = error_line(&bench.run(["--metrics", &address]).output().unwrap());
    assert!(line.contains("metrics.address (--metrics): cannot listen on"), "{line}");
    assert!(line.contains("ss -ltnp"), "{line}");
}

#[test]
fn beyond_loopback_tls_is_wanted_or_refused_aloud() {
    let check = |more: &[&str]| {
        let mut command = program();
        command.args(["check-config", "--metrics", "192.0.2.7:7412"]).args(more);
        command.output().unwrap()
    };
    let line = error_line(&check(&[]));
    assert!(line.contains("metrics.certificate"), "{line}");
    assert!(line.contains("metrics.tls = \"off\""), "{line}");
    assert!(check(&["--set", "metrics.tls=off"]).status.success());
}

#[test]
fn with_certificates_only_those_who_have_one_are_answered() {
    let bench = Bench::new();
    let folder = bench.path("tls");
    let made = program()
        .args(["certificates", "--server", "127.0.0.1", "--client", "prometheus", "--out"])
        .arg(&folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let file = |name: &str| folder.join(name).display().to_string();
    let settings = [
        format!("metrics.certificate={}", file("server.pem")),
        format!("metrics.key={}", file("server.key")),
        format!("metrics.client_ca={}", file("ca.pem")),
    ];
    let arguments: Vec<&str> =
        settings.iter().flat_map(|setting| ["--set", setting.as_str()]).collect();
    let mut daemon = bench.start_until("figures are served", METRICS.into_iter().chain(arguments));
    let log = daemon.log();
    let (_, url) = log.split_once("https://").unwrap();
    let address: SocketAddr = url.split_once("/metrics").unwrap().0.parse().unwrap();
    let ask = |certificate: Option<(&str, &str)>| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "30", "--cacert", &file("ca.pem")]);
        if let Some((certificate, key)) = certificate {
            curl.args(["--cert", &file(certificate), "--key", &file(key)]);
        }
        curl.arg(format!("https://{address}/metrics")).output()
    };
    let Ok(answered) = ask(Some(("client-prometheus.pem", "client-prometheus.key"))) else {
        eprintln!("SKIPPED: curl is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&answered.stdout).into_owned();
    assert!(text.contains("tapecast_build_info{"), "{text}{}", stderr(&answered));
    // Over shared memory the publisher has no other certificate than the endpoint's.
    let expiry: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("tapecast_certificate_expiry_timestamp_seconds{"))
        .collect();
    let [expiry] = &expiry[..] else { panic!("{expiry:?}") };
    assert!(expiry.contains(r#"certificate="metrics""#), "{expiry}");
    let end: f64 = expiry.rsplit_once(' ').unwrap().1.parse().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(end > now + 86_400.0, "{end} {now}");
    assert!(!ask(None).unwrap().status.success(), "nobody without a certificate");
    // Plain HTTP is no TLS, and the endpoint lives on.
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _cut = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(
        ask(Some(("client-prometheus.pem", "client-prometheus.key"))).unwrap().status.success()
    );
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
}

/// A pipe for a feed.
fn pipe(bench: &Bench) -> PathBuf {
    let pipe = bench.path("feed.itch50");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    pipe
}

#[test]
fn what_was_read_before_a_pipe_pauses_is_told_in_its_first_scrape() {
    let bench = Bench::new();
    let pipe = pipe(&bench);
    let day = std::fs::read(bench.generate("day.itch50", 2_000)).unwrap();
    let mut served = Served::begin(&bench, ["--source", "itch", "--file", pipe.to_str().unwrap()]);
    // All but the last message, and a byte of that; then nothing, and nobody has asked yet.
    let mut writer = OpenOptions::new().write(true).open(&pipe).unwrap();
    let mut cut = 0;
    let mut messages = 0;
    while cut + 2 < day.len() && messages < 1_999 {
        cut += 2 + usize::from(u16::from_be_bytes([day[cut], day[cut + 1]]));
        messages += 1;
    }
    writer.write_all(&day[..=cut]).unwrap();
    served.until("what was read is told", |series| {
        series.iter().any(|(key, value)| {
            key.starts_with("tapecast_feed_messages_total") && *value == 1_999.0
        })
    });
    let series = served.scrape();
    assert_eq!(value(&series, "tapecast_feed_messages_by_type_total"), 1_999.0);
    assert_eq!(value(&series, "tapecast_feed_read_bytes_total"), (cut + 1) as f64);
    let unseen = of(&series, "tapecast_feed_messages_by_type_total", r#"type="N""#);
    assert_eq!(unseen.map(|(_, count)| count), Some(0.0), "types that have not come yet are there");
}

#[test]
fn a_publisher_that_waits_for_its_input_lives_and_is_not_ready() {
    let bench = Bench::new();
    let pipe = pipe(&bench);
    let mut served = Served::begin(&bench, ["--source", "itch", "--file", pipe.to_str().unwrap()]);
    assert_eq!(served.get("/healthz").0, 200);
    assert_eq!(served.get("/readyz"), (503, "the source is being opened\n".to_owned()));
    let series = served.scrape();
    assert_eq!(value(&series, "tapecast_ready"), 0.0);
    assert_eq!(value(&series, "tapecast_build_info"), 1.0);

    // The writer comes, and all is told.
    let day = bench.generate("day.itch50", 2_000);
    let bytes = std::fs::read(day).unwrap();
    let writer = std::thread::spawn(move || std::fs::write(pipe, bytes).unwrap());
    served.until("the input was read", |series| {
        series.iter().any(|(key, value)| {
            key.starts_with("tapecast_feed_messages_total") && *value == 2_000.0
        })
    });
    writer.join().unwrap();
    served.daemon.signal(Signal::TERM);
    assert!(served.daemon.wait().success());
}
