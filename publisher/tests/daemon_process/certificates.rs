//! The certificates that the program makes, and the configuration that uses them.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::support::{Bench, error_line, program, stderr};

/// Makes them in the folder `tls`; what the program printed.
fn make(bench: &Bench, arguments: &[&str]) -> String {
    let mut command = program();
    command.arg("certificates").arg("--out").arg(bench.path("tls")).args(arguments);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

const BOTH: [&str; 6] =
    ["--server", "feed-1.example", "127.0.0.1", "--client", "risk-1.example", "desk-2"];

/// The part of what was printed that is meant to be pasted.
#[cfg(feature = "verbs")]
fn pasted(text: &str) -> String {
    let from = text.find("[fabric]").unwrap();
    let length = text[from..].find("\nOnly if").unwrap();
    text[from..from + length].to_owned()
}

#[test]
fn they_are_made_with_the_lines_that_use_them() {
    let bench = Bench::new();
    let text = make(&bench, &BOTH);
    for stem in ["ca", "server", "client-risk-1.example", "client-desk-2"] {
        let file = |end: &str| bench.path("tls").join(format!("{stem}.{end}"));
        assert!(file("pem").is_file());
        let mode = std::fs::metadata(file("key")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{stem}");
        assert!(text.contains(&format!("made {}", file("key").display())), "{text}");
    }
    for taught in [
        "[[entitlement]]\nclient = \"risk-1.example\"\n",
        "tapecast-subscriber tail --connect feed-1.example:7411 --ca ca.pem",
        "--cert client-desk-2.pem --key client-desk-2.key",
    ] {
        assert!(text.contains(taught), "{taught} is not in {text}");
    }
}

#[test]
fn what_is_there_is_not_replaced_and_clients_can_be_added() {
    let bench = Bench::new();
    make(&bench, &BOTH);
    let read = |name: &str| std::fs::read(bench.path("tls").join(name)).unwrap();
    let before = read("ca.pem");
    let mut again = program();
    again.arg("certificates").arg("--out").arg(bench.path("tls")).args(BOTH);
    let line = error_line(&again.output().unwrap());
    assert!(line.contains("is there already") && line.contains("--force"), "{line}");
    let text = make(&bench, &["--add-client", "third"]);
    assert!(text.contains("client-third.key") && !text.contains("[tls]"), "{text}");
    assert!(!read("client-third.pem").is_empty());
    assert_eq!(read("ca.pem"), before, "the authority stays");
    let text = make(&bench, &[&BOTH[..], &["--force"]].concat());
    let left = "no longer good for this publisher:\n\n  client-third.pem\n\n";
    assert!(text.contains(left) && text.contains("--force --add-client third\n"), "{text}");
    assert_ne!(read("ca.pem"), before);
}

#[test]
fn wrong_usage_is_told() {
    let bench = Bench::new();
    let run = |arguments: &[&str]| {
        let mut command = program();
        command.arg("certificates").arg("--out").arg(bench.path("tls")).args(arguments);
        command.output().unwrap()
    };
    assert_eq!(run(&["--client", "x"]).status.code(), Some(2), "where is the server?");
    let both = ["--server", "x", "--add-client", "y"];
    assert_eq!(run(&both).status.code(), Some(2), "all, or one more");
    assert!(error_line(&run(&["--server", "x", "--days", "0"])).contains("0 days"));
    assert!(error_line(&run(&["--server", "x", "--client", "a/b"])).contains("a/b"));
    let line = error_line(&run(&["--add-client", "y"]));
    assert!(line.contains("ca.key") && line.contains("create one first"), "{line}");
    assert_eq!(bench.files(), [""; 0], "nothing is left behind");
    let help = program().args(["certificates", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for taught in ["client_ca = ", "--connect feed-1.example:7411", "[[entitlement]]", "--days"] {
        assert!(help.contains(taught), "{taught} is not in {help}");
    }
}

#[cfg(feature = "verbs")]
#[test]
fn check_config_takes_them_and_names_the_one_that_cannot_be_used() {
    let bench = Bench::new();
    let file = bench.write("p.toml", pasted(&make(&bench, &BOTH)).as_bytes());
    let check = || program().args(["check-config", "--config"]).arg(&file).output().unwrap();
    let output = check();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let tls = |name: &str| bench.path("tls").join(name);
    for (key, name) in
        [("certificate", "server.pem"), ("key", "server.key"), ("client_ca", "ca.pem")]
    {
        std::fs::rename(tls(name), tls("away")).unwrap();
        let line = error_line(&check());
        let start = format!("tapecast-publisher: {}: tls.{key}: ", file.display());
        assert!(line.starts_with(&start) && line.contains(name), "{line}");
        std::fs::rename(tls("away"), tls(name)).unwrap();
    }
    std::fs::copy(tls("client-desk-2.key"), tls("server.key")).unwrap();
    assert!(error_line(&check()).contains("is not that of the certificate"));
}

#[test]
fn a_hangup_does_not_end_the_daemon() {
    let bench = Bench::new();
    let mut daemon = bench.start(["--instruments", "5"]);
    daemon.signal(Signal::HUP);
    daemon.until("it tells", |daemon| {
        daemon.log().contains("SIGHUP: the configuration was read again")
    });
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
}
