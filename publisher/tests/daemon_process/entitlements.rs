//! What a client may ask for, told to a user of this host.

use tapecast_control::client::AttachError;
use tapecast_wire::attach::{Policy, Refusal};

use crate::support::{Bench, Daemon, Subscriber, request};

/// A daemon with one entitlement, for the user that runs this test.
fn start(bench: &Bench, fields: &str) -> Daemon {
    let uid = rustix::process::geteuid().as_raw();
    let text = format!("[[entitlement]]\nclient = \"uid:{uid}\"\n{fields}\n");
    let file = bench.write("p.toml", text.as_bytes());
    let report = bench.path("report.json");
    let arguments = ["--instruments", "5", "--lossless", "--config", file.to_str().unwrap()];
    bench.start(arguments.into_iter().chain(["--report", report.to_str().unwrap()]))
}

fn reason(outcome: Result<Subscriber, AttachError>) -> String {
    match outcome {
        Err(AttachError::Refused { refusal: Refusal::NotEntitled, reason, .. }) => reason,
        Err(other) => panic!("not refused for its entitlement: {other}"),
        Ok(_) => panic!("attached"),
    }
}

#[test]
fn symbols_policies_and_sessions_beyond_an_entitlement_are_refused_logged_and_counted() {
    let bench = Bench::new();
    let mut daemon = start(
        &bench,
        "sessions_max = 1\nsymbols = [\"TC0001\", \"TC0002\"]\npolicies = [\"conflate\"]",
    );
    let socket = bench.socket();
    let entitled = request("desk", Policy::Conflate, &["TC0002"]);
    let other = request("desk", Policy::Conflate, &["TC0003"]);
    assert!(reason(Subscriber::attach(&socket, &other)).contains("TC0003"));
    let everything = request("desk", Policy::Conflate, &[]);
    assert!(reason(Subscriber::attach(&socket, &everything)).contains("TC0001"));
    let lossless = request("desk", Policy::Lossless, &["TC0002"]);
    assert!(reason(Subscriber::attach(&socket, &lossless)).contains("conflate"));
    let first = Subscriber::attach(&socket, &entitled).unwrap();
    assert!(reason(Subscriber::attach(&socket, &entitled)).contains("may have 1 sessions"));
    first.lifeline.detach();
    daemon.until("the first has left", |daemon| daemon.log().contains(" detached "));
    Subscriber::attach(&socket, &entitled).unwrap();

    let log = daemon.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("refused: ")).collect();
    assert_eq!(lines.len(), 4, "{log}");
    let pid = format!("pid {}", std::process::id());
    assert!(lines.iter().all(|line| line.contains("NotEntitled") && line.contains(&pid)), "{log}");
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert_eq!(bench.report()["refusals"]["not_entitled"], 4);
}

#[test]
fn without_limits_in_it_an_entitlement_allows_everything() {
    let bench = Bench::new();
    let _daemon = start(&bench, "");
    for policy in [Policy::Conflate, Policy::Lossless] {
        Subscriber::attach(&bench.socket(), &request("desk", policy, &[])).unwrap();
    }
}
