//! The metrics endpoint over RDMA: queues, the device's own counters, and clocks.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::process::Signal;

use super::device::device;
use super::programs::wait_until;
use super::stage::{Stage, assert_pool_whole};

/// Every counter of Soft-RoCE's driver.
const SOFT_ROCE: [&str; 15] = [
    "ack_deferred",
    "completer_retry_err",
    "duplicate_request",
    "link_downed",
    "out_of_seq_request",
    "rcvd_pkts",
    "rcvd_rnr_err",
    "rcvd_seq_err",
    "rdma_recvs",
    "rdma_sends",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "send_err",
    "send_rnr_err",
    "sent_pkts",
];

/// Every series by name and labels; nothing while nobody answers.
fn scrape(address: &str) -> BTreeMap<String, f64> {
    let ask = || {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    let text = ask().unwrap_or_default();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let parsed = series.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    parsed.collect()
}

/// The sum of a name's series.
fn value(series: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    let found = series.iter().filter(|(key, _)| key.split('{').next() == Some(name));
    found.map(|(_, value)| *value).reduce(|a, b| a + b)
}

#[test]
fn queues_counters_of_the_device_and_clocks_are_told() {
    let Some(device) = device() else { return };
    let mut stage = Stage::new();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let day = ["--seconds", "3600", "--instruments", "4", "--steady-rate", "200"];
    let publisher = stage.publish(
        &[&day[..], &["--set", "source.synthetic.burst_ms=0", "--metrics", &metrics]].concat(),
    );
    stage.await_publisher();
    for name in ["a", "b"] {
        stage.subscribe(name, &[]);
    }
    let told = |name: &str| value(&scrape(&metrics), name).unwrap_or(0.0);
    wait_until("both to report their latency", || {
        told("tapecast_subscriber_delivery_seconds_count") > 100.0
    });
    wait_until("the clocks to be known", || told("tapecast_subscriber_round_trip_seconds") > 0.0);
    wait_until("snapshots to be compared", || told("tapecast_fan_out_skew_seconds_count") > 5.0);
    let series = scrape(&metrics);
    let told = |name: &str| value(&series, name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(told("tapecast_sessions"), 2.0);
    assert!(told("tapecast_rdma_work_requests_total") >= told("tapecast_rdma_doorbells_total"));
    assert!(told("tapecast_rdma_doorbells_total") > 0.0);
    assert!(told("tapecast_rdma_posted_bytes_total") > 10_000.0);
    assert!(told("tapecast_post_to_completion_seconds_count") > 0.0);
    assert_eq!(told("tapecast_rdma_completion_queue_entries"), 4096.0);
    assert_eq!(told("tapecast_rdma_send_queue_entries"), 64.0);
    assert!((1.0..=128.0).contains(&told("tapecast_rdma_completion_queue_high_water")));
    let ready = series.iter().find(|(key, _)| {
        key.starts_with("tapecast_rdma_queue_pairs{") && key.contains("state=\"rts\"")
    });
    assert_eq!(ready.map(|(_, count)| *count), Some(2.0));
    assert_eq!(told("tapecast_rdma_queue_pairs"), 2.0);
    assert_eq!(told("tapecast_rdma_receiver_not_ready_total"), 0.0);
    assert_eq!(told("tapecast_lost_snapshots_total"), 0.0);
    // Every file of the driver is there, under its own name.
    for file in SOFT_ROCE {
        let key = format!("rdma_{file}_total{{");
        let found = series.keys().find(|name| name.starts_with(&key));
        let found = found.unwrap_or_else(|| panic!("the counter {file} is not told"));
        assert!(found.contains(&format!("device=\"{device}\"")), "{found}");
    }
    assert!(told("rdma_sent_pkts_total") > 100.0);
    assert_eq!(told("rdma_port_active"), 1.0);
    // One host, one clock: the estimate is right within its error.
    let of = |name: &'static str| {
        series.iter().filter(move |(key, _)| key.split('{').next() == Some(name)).map(|(_, v)| *v)
    };
    let offsets = of("tapecast_subscriber_clock_offset_seconds");
    for (offset, error) in offsets.zip(of("tapecast_subscriber_clock_error_seconds")) {
        assert!(offset.abs() <= error + 1e-6, "{offset} {error}");
    }
    stage.processes.signal(publisher, Signal::TERM);
    assert_pool_whole(&stage.report());
}
