//! SIGHUP: what changes, what is named, and what a broken file does.

use rustix::process::Signal;
use tapecast_wire::attach::{Policy, Refusal};

use crate::support::{Bench, Daemon, Subscriber, refused, request};

const START: &str = "\
[source.synthetic]
instruments = 5
steady_rate = 2000
[access]
sessions_max = 1
[log]
level = \"info\"
";

fn start(bench: &Bench) -> Daemon {
    let file = bench.write("p.toml", START.as_bytes());
    bench.start(["--config", file.to_str().unwrap(), "--set", "lag.soft_ms=300"])
}

/// Writes the file anew, and waits until the daemon has said so much about it.
fn reload(bench: &Bench, daemon: &mut Daemon, text: &str, says: &str) {
    bench.write("p.toml", text.as_bytes());
    daemon.signal(Signal::HUP);
    daemon.until(says, |daemon| daemon.log().contains(says));
}

#[test]
fn what_can_change_does_for_new_sessions_and_the_others_stay() {
    let bench = Bench::new();
    let mut daemon = start(&bench);
    let conflate = request("one", Policy::Conflate, &[]);
    let mut first = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    assert_eq!(refused(Subscriber::attach(&bench.socket(), &conflate)).0, Refusal::Full);

    let more = START.replace("sessions_max = 1", "sessions_max = 2");
    reload(&bench, &mut daemon, &more, "read again; changed: access.sessions_max\n");
    let _second = Subscriber::attach(&bench.socket(), &conflate).unwrap();

    let entitlement = "[[entitlement]]\nclient = \"uid:4000000001\"\n";
    let text = format!("{more}{entitlement}");
    reload(&bench, &mut daemon, &text, "read again; changed: entitlement\n");
    while first.receiver.poll(256, |_| {}).unwrap() == 0 {
        first.receiver.wait(std::time::Duration::from_millis(10)).unwrap();
    }
}

#[test]
fn what_cannot_change_is_named_each_by_itself_and_flags_still_win() {
    let bench = Bench::new();
    let mut daemon = start(&bench);
    let text = format!("{START}[shm]\nring_bytes = \"32 MiB\"\n[book]\nlevels = 5\n");
    let text = format!("{text}[lag]\nsoft_ms = 500\n");
    reload(&bench, &mut daemon, &text, "shm.ring_bytes cannot change while running: restart to");
    let log = daemon.log();
    assert!(log.contains("book.levels cannot change while running: restart to apply"), "{log}");
    assert!(log.contains("read again; nothing in it has changed"), "a flag sets soft_ms: {log}");
}

#[test]
fn the_log_level_changes() {
    let bench = Bench::new();
    let mut daemon = start(&bench);
    let says = "read again; changed: log.level";
    let attach = |name| {
        let conflate = request(name, Policy::Conflate, &[]);
        drop(Subscriber::attach(&bench.socket(), &conflate).unwrap());
    };
    let roomy = START.replace("[access]\nsessions_max = 1\n", "");
    let silent = roomy.replace("\"info\"", "\"error\"");
    reload(&bench, &mut daemon, &silent, "changed: access.sessions_max, log.level");
    attach("unheard");
    reload(&bench, &mut daemon, &roomy, says);
    attach("heard");
    daemon.until("it is heard", |daemon| daemon.log().contains("name=\"heard\""));
    assert!(!daemon.log().contains("unheard"), "{}", daemon.log());
}

#[test]
fn a_broken_file_changes_nothing_and_is_told_with_its_cause() {
    let bench = Bench::new();
    let mut daemon = start(&bench);
    let broken = START.replace("sessions_max = 1", "sessions_max = 2\nsessions_most = 3");
    let says = "ERROR SIGHUP: the configuration cannot be used, the last good one stays: ";
    reload(&bench, &mut daemon, &broken, says);
    assert!(daemon.log().contains("unknown key `access.sessions_most`"), "{}", daemon.log());
    let conflate = request("one", Policy::Conflate, &[]);
    let _first = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    assert_eq!(refused(Subscriber::attach(&bench.socket(), &conflate)).0, Refusal::Full);

    let unknown = START.replace("sessions_max = 1", "groups = [\"no-such-group\"]");
    reload(&bench, &mut daemon, &unknown, "no-such-group");
    reload(&bench, &mut daemon, START, "read again; nothing in it has changed");
}
