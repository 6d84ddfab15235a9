//! Who lags: is counted and told of, and is disconnected when it asked for that.

use rustix::process::Signal;
use tapecast_control::client::LifelineStatus;
use tapecast_wire::Nanos;
use tapecast_wire::attach::{AttachRequest, Farewell, LagLimits, Policy, Refusal};

use crate::support::{Bench, Subscriber, refused, request};

const ENDLESS: [&str; 4] = ["--instruments", "5", "--log-level", "info"];

/// What the publisher says when it ends the session.
fn farewell(subscriber: &mut Subscriber) -> (Farewell, String) {
    loop {
        match subscriber.lifeline.status() {
            LifelineStatus::Alive => std::thread::yield_now(),
            LifelineStatus::Farewell(farewell, text) => return (farewell, text),
            LifelineStatus::Gone => panic!("the publisher went without a word"),
        }
    }
}

fn disconnect(name: &str, bytes: u64, ms: u64) -> AttachRequest {
    let lag = LagLimits { bytes, time: Nanos(ms * 1_000_000) };
    AttachRequest { lag, ..request(name, Policy::Disconnect, &[]) }
}

#[test]
fn one_that_lags_too_far_is_disconnected_when_it_asked_for_that_and_else_only_counted() {
    let bench = Bench::new();
    let report = bench.path("report.json");
    let settings = ["--set", "lag.soft_ms=1", "--set", "lag.hard_ms=300"];
    let report = ["--report", report.to_str().unwrap()];
    let mut daemon = bench.start(ENDLESS.into_iter().chain(settings).chain(report));
    let conflate = request("patient", Policy::Conflate, &[]);
    let mut patient = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    let mut strict = Subscriber::attach(&bench.socket(), &disconnect("strict", 0, 0)).unwrap();
    let (why, text) = farewell(&mut strict);
    assert_eq!(why, Farewell::Evicted);
    assert!(text.contains("rather than to lag, and is "), "{text}");
    assert!(text.contains("0 bytes and 300 ms are allowed"), "{text}");
    daemon.until("it is taken out", |daemon| daemon.log().contains(" detached "));
    assert!(matches!(patient.lifeline.status(), LifelineStatus::Alive));
    daemon.until("who lags is told of", |daemon| {
        daemon.log().lines().any(|line| line.contains("patient") && line.contains(" lags "))
    });

    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    let report = bench.report();
    assert_eq!(report["evictions"]["lagging"], 1, "{}", report["evictions"]);
    assert_eq!(report["evictions"]["stalled"], 0);
    let session = |name: &str| {
        let all = report["sessions"].as_array().unwrap();
        all.iter().find(|session| session["name"] == name).unwrap()
    };
    assert_eq!(session("patient")["policy"], "conflate");
    assert!(session("patient")["lags"].as_u64() >= Some(1), "{}", session("patient"));
    assert!(session("patient")["lag_bytes_max"].as_u64() > Some(0));
    assert_eq!(session("strict")["policy"], "disconnect");
    assert_eq!(session("strict")["reason"].as_str(), Some(text.as_str()));
}

#[test]
fn nobody_may_lag_further_than_the_publisher_allows_and_each_may_ask_for_less() {
    let bench = Bench::new();
    let settings = ["--set", "lag.hard_ms=0", "--set", "lag.hard_bytes=64KiB"];
    let _daemon = bench.start(ENDLESS.into_iter().chain(settings));
    let mut modest = Subscriber::attach(&bench.socket(), &disconnect("a", 4096, 0)).unwrap();
    let mut greedy = Subscriber::attach(&bench.socket(), &disconnect("b", 1 << 40, 0)).unwrap();
    let (_, text) = farewell(&mut modest);
    assert!(text.contains("4096 bytes and 0 ms are allowed"), "{text}");
    let (_, text) = farewell(&mut greedy);
    assert!(text.contains("65536 bytes and 0 ms are allowed"), "{text}");
}

#[test]
fn a_least_interval_leaves_something_out_so_only_a_conflating_session_has_one() {
    let bench = Bench::new();
    let _daemon = bench.start(ENDLESS.into_iter().chain(["--lossless"]));
    for policy in [Policy::Lossless, Policy::Disconnect] {
        let paced = AttachRequest { min_interval: Nanos(1), ..request("x", policy, &[]) };
        let (refusal, reason) = refused(Subscriber::attach(&bench.socket(), &paced));
        assert_eq!(refusal, Refusal::Policy);
        assert!(reason.contains("only the policy conflate"), "{reason}");
    }
    let paced = AttachRequest { min_interval: Nanos(1), ..request("x", Policy::Conflate, &[]) };
    Subscriber::attach(&bench.socket(), &paced).unwrap();
}
