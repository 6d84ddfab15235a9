//! What a subscriber says about RDMA before it needs a device.

use std::path::Path;

use tapecast_subscriber::{ConnectError, RdmaChoices, Subscriber, Target};

use crate::command::{command, run, text};
use crate::place;
use crate::stage::{CENT, Setup, Stage};

const NOWHERE: &str = "/nowhere/publisher.sock";

/// Runs the command and returns its status and the one line that it says.
fn complaint(words: &[&str]) -> (Option<i32>, String) {
    let output = run(Path::new(NOWHERE), words);
    (output.status.code(), text(&output.stderr))
}

#[test]
fn options_that_do_not_go_together_are_refused_with_a_remedy() {
    let cases: [(&[&str], &[&str]); 6] = [
        (
            &["tail", "--socket", "/s", "--connect", "feed:7411"],
            &["--socket and --connect exclude each other", "leave one out"],
        ),
        (
            &["tail", "--ca", "ca.pem"],
            &["--ca is for sessions over RDMA", NOWHERE, "add --connect HOST:PORT"],
        ),
        (
            &["stats", "--socket", "/s", "--rdma-ring", "1MiB"],
            &["--rdma-ring is for sessions over RDMA", "/s", "leave --rdma-ring out"],
        ),
        (
            &["stats", "--connect", "feed:7411", "--ca", "ca.pem", "--cert", "me.pem"],
            &["--ca comes without --key", "add --key"],
        ),
        (&["tail", "--connect", "feed"], &["feed", "HOST:PORT"]),
        (&["tail", "--connect", "feed:7411", "--rdma-ring", "1MB"], &["1MB", "1MiB"]),
    ];
    for (words, parts) in cases {
        let (status, told) = complaint(words);
        assert_eq!(status, Some(2), "{words:?}: {told}");
        for part in parts {
            assert!(told.contains(part), "{words:?}: {part:?} is missing: {told}");
        }
    }
}

#[test]
fn another_machine_is_not_attached_to_without_certificates() {
    let (status, told) = complaint(&["tail", "--connect", "192.0.2.7:7411"]);
    assert_eq!((status, told.lines().count()), (Some(1), 1), "{told}");
    for part in ["192.0.2.7:7411", "TLS", "--ca, --cert and --key"] {
        assert!(told.contains(part), "{part:?} is missing: {told}");
    }
    let error = Subscriber::builder().connect_to("192.0.2.7:7411").connect().unwrap_err();
    assert!(matches!(error, ConnectError::Unprotected { .. }), "{error}");
}

#[test]
fn the_environment_names_a_publisher_and_the_command_line_another() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    stage.publish(0, 100 * CENT);
    // Over the one named by TAPECAST_SOCKET, which `command` sets too.
    let mut named = command(&socket, &["tail", "-n", "1"]);
    let output = named.env("TAPECAST_CONNECT", "192.0.2.7:7411").output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("192.0.2.7:7411"), "{output:?}");

    let mut given = command(Path::new(NOWHERE), &["tail", "-n", "1", "--socket"]);
    let given = given.arg(&socket).env("TAPECAST_CONNECT", "192.0.2.7:7411");
    let output = given.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_empty_variable_names_nothing() {
    let (_folder, socket) = place();
    let stage = Stage::open(&socket, Setup::default(), &["AAPL"]);
    stage.publish(0, 100 * CENT);
    let mut command = command(&socket, &["tail", "-n", "1"]);
    let output = command.env("TAPECAST_CONNECT", "").output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_help_tells_the_two_fabrics_apart() {
    for name in ["tail", "stats", "top"] {
        let help = text(&run(Path::new(NOWHERE), &[name, "--help"]).stdout);
        let (shm, rdma) = (help.find("Over shared memory:"), help.find("Over RDMA:"));
        let session = help.find("Session:");
        assert!(shm.is_some() && rdma.is_some() && session.is_some(), "{help}");
        for option in ["--connect", "--ca", "--cert", "--key", "--server-name", "--rdma-device"] {
            let place = help.find(&format!("{option} <"));
            assert!(place > rdma, "{option} is not under Over RDMA:\n{help}");
        }
        let socket = help.find("--socket <");
        assert!(socket > shm, "{help}");
    }
    let help = text(&run(Path::new(NOWHERE), &["--help"]).stdout);
    assert!(help.contains("tail --connect feed-1.example:7411 --ca ca.pem"), "{help}");
}

#[test]
fn the_builder_tells_where_it_would_attach_to() {
    let builder = Subscriber::builder().connect_to("[2001:db8::7]:7411");
    assert_eq!(builder.target(), &Target::Remote("[2001:db8::7]:7411".into()));
    assert_eq!(builder.target().to_string(), "[2001:db8::7]:7411");
    assert_eq!(builder.socket(NOWHERE).target().to_string(), NOWHERE);
}

#[test]
fn what_is_no_address_is_told_at_once() {
    let patient = std::time::Duration::from_secs(3600);
    let builder = Subscriber::builder().connect_to("feed.example").wait_for_publisher(patient);
    let error = builder.rdma(RdmaChoices::default()).connect().unwrap_err();
    assert!(matches!(error, ConnectError::Address(_)), "{error}");
    assert!(error.to_string().contains("feed.example"), "{error}");
}

#[cfg(feature = "verbs")]
#[test]
fn sizes_that_no_device_can_have_are_refused_by_name() {
    for (choices, name) in [
        (RdmaChoices { ring_bytes: 5_000, ..RdmaChoices::default() }, "5000"),
        (RdmaChoices { receive_depth: 20_000, ..RdmaChoices::default() }, "receive_depth"),
        (RdmaChoices { min_rnr_timer: 0, ..RdmaChoices::default() }, "min_rnr_timer"),
    ] {
        let builder = Subscriber::builder().connect_to("127.0.0.1:7411").rdma(choices);
        let error = builder.connect().unwrap_err();
        assert!(matches!(error, ConnectError::Rdma(_)), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[cfg(not(feature = "verbs"))]
#[test]
fn a_build_without_rdma_says_so() {
    let error = Subscriber::builder().connect_to("127.0.0.1:7411").connect().unwrap_err();
    assert!(matches!(error, ConnectError::NoRdma { .. }), "{error}");
    let told = error.to_string();
    for part in ["127.0.0.1:7411", "feature `verbs`", ".socket(..)"] {
        assert!(told.contains(part), "{part:?} is missing: {told}");
    }
}
