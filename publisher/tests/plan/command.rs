//! `tapecast-publisher plan` as a user meets it.

use std::process::{Command, Output};

use serde_json::Value;

pub(super) fn plan(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_tapecast-publisher");
    Command::new(program).arg("plan").args(arguments).output().unwrap()
}

pub(super) fn stdout(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{}", stderr(output));
    text
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let text = stdout(&plan(&[&["--json"], arguments].concat()));
    assert_eq!(text.lines().count(), 1, "one object on one line");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_section_says_that_it_is_a_model() {
    let text = stdout(&plan(&[]));
    assert!(text.lines().next().unwrap().contains("a model"), "{text}");
    assert!(text.lines().next().unwrap().contains("nothing was measured"), "{text}");
    let headings: Vec<_> =
        text.lines().filter(|line| line.starts_with(char::is_uppercase)).collect();
    assert!(headings.len() >= 11, "{headings:?}");
    for heading in headings {
        assert!(heading.contains("model)"), "{heading}");
    }
}

#[test]
fn lines_fit_a_terminal_of_100_columns_whatever_is_asked_for() {
    for arguments in [
        &[][..],
        &["--rate", "1G", "--payload", "4096", "--mtu", "256", "--snapshots-per-s", "1000000"],
        &["-n", "1", "--rate", "400G"],
        &["--publishers", "1000", "--behind-port", "64", "--cnp-train-us", "10000"],
        &["--payload", "4096", "--port-rate", "25G", "--behind-port", "64", "-s", "1"],
        &["--clamp-tgt-rate", "--pause-ms", "60000", "--snapshots-per-s", "100000000"],
    ] {
        let text = stdout(&plan(arguments));
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{arguments:?}: {line}");
        }
        for nonsense in ["NaN", "inf ", "-0"] {
            assert!(!text.contains(nonsense), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn the_json_output_says_model_and_has_the_same_figures() {
    let plan = json(&["--inline-max", "220", "--payload", "64", "--lanes", "8"]);
    assert_eq!(plan["model"], true);
    assert!(plan["note"].as_str().unwrap().contains("nothing was measured"));
    assert_eq!(plan["wire"]["wire_bytes"], 166);
    assert_eq!(plan["latency"]["publish"]["mean_ns"], 1731.6);
    assert_eq!(plan["target"]["holds"], true);
    assert_eq!(plan["sizing"]["completion_queue"]["needed"], 4096);
    let trains = plan["congestion"]["trains"].as_array().unwrap();
    assert_eq!(trains.len(), 4);
    assert_eq!(trains[2]["lowest_mbps"].as_f64().unwrap().round(), 357.0);
}

#[test]
fn numbers_of_the_json_output_have_no_more_digits_than_a_model() {
    fn check(value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(check),
            Value::Object(fields) => fields.values().for_each(check),
            Value::Number(number) if number.is_f64() => {
                let text = format!("{:e}", number.as_f64().unwrap().abs());
                let mantissa = text.split('e').next().unwrap();
                let digits = mantissa.chars().filter(char::is_ascii_digit).count();
                assert!(digits <= 6, "{number}");
            }
            _ => {}
        }
    }
    check(&json(&["--payload", "577", "--rate", "37.3G", "--behind-port", "7"]));
}

/// The rows of the page's verdict.
fn verdict(arguments: &[&str]) -> String {
    let text = stdout(&plan(arguments));
    let from = text.split("HEADLINE").nth(1).unwrap();
    from.split("QUEUES").next().unwrap().to_owned()
}

const FAST: [&str; 6] = ["--payload", "64", "--lanes", "8", "--inline-max", "220"];

#[test]
fn the_verdict_counts_the_wait_at_the_subscribers_port() {
    assert!(verdict(&FAST).contains("possible\n"), "{}", verdict(&FAST));
    let slow = [&FAST[..], &["--behind-port", "64", "--port-rate", "25G"]].concat();
    let text = verdict(&slow);
    for words in [
        "NOT POSSIBLE",
        "3.03 µs, 1.29 µs of it at a subscribers' port, beyond 1.80 µs",
        "3.35 µs, 2.51 µs of it at a subscribers' port, beyond 1.00 µs",
        "copies queue at a subscribers' port",
        "subscribers' ports of 100 Gb/s",
        "2 subscribers a port, or fewer",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn the_verdict_counts_the_rate_that_is_asked_for() {
    let text = verdict(&[&FAST[..], &["-s", "1e7"]].concat());
    for words in [
        "NOT POSSIBLE",
        "not sustainable at 10,000,000 a second: at most 1,176,581, one a work request",
        "1,176,581 a second or fewer",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let text =
        verdict(&[&FAST[..], &["--behind-port", "64", "--port-rate", "25G", "-s", "5e5"]].concat());
    let words = "a subscribers' port of 25 Gb/s is sent 170 % of what it carries";
    assert!(text.contains(words), "{text}");
}

#[test]
fn levels_stand_for_the_snapshot_that_they_make() {
    assert_eq!(json(&["--levels", "10"])["asked"]["payload_bytes"], 576);
    assert_eq!(json(&["--levels", "83"])["asked"]["payload_bytes"], 4080);
}

#[test]
fn snapshots_of_tapecast_are_fetched_by_the_device() {
    let plan = json(&["--payload", "64"]);
    assert_eq!(plan["latency"]["base_ns"], 1800.0);
    assert_eq!(plan["target"]["holds"], false);
}

#[test]
fn subscribers_behind_one_slow_port_are_marked_or_paused() {
    let full_page = ["--payload", "4096", "--port-rate", "25G"];
    let alone = json(&full_page);
    let first = |plan: &Value, row: usize| plan["congestion"]["switches"][row]["first"].clone();
    assert_eq!(first(&alone, 0), "neither");
    let together = json(&[&full_page[..], &["--behind-port", "64"]].concat());
    assert_eq!(first(&together, 0), "ecn", "5 KB is passed before 24 KB");
    assert_eq!(first(&together, 1), "pfc", "24 KB are passed before 40 KB");
    assert!(together["congestion"]["fixed_point"].is_object());
    assert!(alone["congestion"]["fixed_point"].is_null());
}

/// The text of the advice on one topic.
fn advice_on(topic: &str, arguments: &[&str]) -> String {
    let plan = json(arguments);
    let entries = plan["advice"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["topic"] == topic).unwrap();
    entry["text"].as_str().unwrap().to_owned()
}

#[test]
fn copies_that_posting_spaces_out_are_not_marked_at_a_port_that_keeps_up_with_them() {
    let behind_one_port = ["--behind-port", "64", "--port-rate", "40G"];
    let plan = json(&behind_one_port);
    assert_eq!(plan["congestion"]["backlog"]["port_bytes"], 214.8);
    assert_eq!(plan["congestion"]["switches"][0]["first"], "neither");
    let ecn = advice_on("ECN", &behind_one_port);
    assert!(ecn.contains("A burst queues 215 B") && ecn.contains("never makes ECN fire"), "{ecn}");
}

#[test]
fn advice_on_ecn_and_on_pfc_can_be_followed_together() {
    // 7.07 KB are marked from 5 KB on, and leave room below the 21.8 KB that PFC asks for.
    let small = ["--behind-port", "64", "--port-rate", "25G", "-s", "1000"];
    let ecn = advice_on("ECN", &small);
    assert!(ecn.contains("a queue of its own with Kmin above 7.07 KB"), "{ecn}");
    assert!(advice_on("PFC", &small).contains("Kmin below 21.8 KB"));
    // 202 KB do not.
    let large = [&["--payload", "4096"], &small[..]].concat();
    let ecn = advice_on("ECN", &large);
    let alone = "a queue of its own, if it runs without PFC, with Kmin above 202 KB";
    assert!(ecn.contains(alone), "{ecn}");
}

#[test]
fn whether_long_transfers_at_one_port_oscillate_is_told_where_there_are_several() {
    let of = |arguments: &[&str]| {
        let text = stdout(&plan(arguments));
        text.split_once("DO LONG FLOWS OSCILLATE?").map(|(_, rest)| {
            rest.split("AFTER")
                .next()
                .unwrap()
                .lines()
                .map(str::trim_end)
                .collect::<Vec<_>>()
                .join("\n")
        })
    };
    assert_eq!(of(&[]), None, "one transfer shares its port with nobody");
    let ten = of(&["--behind-port", "10", "--rate", "40G"]).unwrap();
    for words in ["(model)", "10 at one port", "near the edge, 3.8°", "oscillates, −18.0°"] {
        assert!(ten.contains(words), "{words}: {ten}");
    }
    assert!(ten.contains("not told"), "Onyx's Pmax is not known: {ten}");
    let many = of(&["--behind-port", "20", "--rate", "40G"]).unwrap();
    assert!(many.contains("queue hangs about Kmax"), "{many}");
    let plan = json(&["--behind-port", "10", "--rate", "40G"]);
    let steadiness = &plan["congestion"]["switches"][0]["steadiness"];
    assert_eq!(steadiness[0]["outcome"], "near_edge");
    assert_eq!(steadiness[2]["outcome"], "oscillates");
    assert_eq!(steadiness[2]["loop_us"], 100.0);
}

#[test]
fn a_port_that_its_subscribers_overload_is_told() {
    let overloaded =
        ["--payload", "4096", "--port-rate", "10G", "--behind-port", "8", "--snapshots-per-s"];
    let with = |rate| json(&[&overloaded[..], &[rate]].concat());
    let topics = |plan: &Value| -> Vec<String> {
        let advice = plan["advice"].as_array().unwrap().clone();
        advice.iter().map(|entry| entry["topic"].as_str().unwrap().to_owned()).collect()
    };
    // Eight copies of 4198 bytes, 37,000 times a second, are 9.94 Gb/s.
    let (fits, too_much) = (with("37000"), with("38000"));
    assert_eq!(fits["congestion"]["port_share"], 0.994086);
    assert!(!topics(&fits).contains(&"port".to_owned()));
    assert!(topics(&too_much).contains(&"port".to_owned()), "{too_much}");
    assert!(!topics(&too_much).contains(&"ECN".to_owned()), "nothing else of the port is true");
}

#[test]
fn a_slower_port_adds_the_time_that_its_queue_takes_to_drain() {
    let plan = json(&["--payload", "4096", "--port-rate", "25G"]);
    // A copy takes 1343.4 ns at 25 Gb/s instead of 335.8 ns.
    assert_eq!(plan["congestion"]["port_delay_ns"], 1007.52);
    assert_eq!(json(&[])["congestion"]["port_delay_ns"], 0.0);
}

#[test]
fn advice_on_dcqcn_is_about_the_settings_that_were_given() {
    let advice =
        |arguments: &[&str]| advice_on("DCQCN", &[&["--payload", "4096"], arguments].concat());
    let default = advice(&[]);
    assert!(default.contains("Set rpg_min_rate to 1680"), "{default}");
    assert!(default.contains("at 1 Mb/s it takes 33.6 ms"), "{default}");
    assert!(default.contains("Keep clamp_tgt_rate = 0"), "{default}");
    let raised = advice(&["--rpg-min-rate", "1700", "--clamp-tgt-rate"]);
    assert!(raised.contains("With rpg_min_rate = 1700 a copy leaves within 19.8 µs"), "{raised}");
    assert!(raised.contains("Set clamp_tgt_rate to 0"), "{raised}");
}

#[test]
fn what_is_wrong_on_the_command_line_is_said_in_a_sentence() {
    for (arguments, says) in [
        (&["--rate", "fast"][..], "say a rate from 1G to 1600G"),
        (&["--rate", "0G"], "say a rate from 1G to 1600G"),
        (&["--rate", "-5G"], "say a rate from 1G to 1600G"),
        (&["--rate", "100b/s"], "say a rate from 1G to 1600G"),
        (&["--rate", "100GGG"], "say a rate from 1G to 1600G"),
        (&["--port-rate", "-25"], "say a rate from 1G to 1600G"),
        (&["-n", "-3"], "say a whole number of subscribers from 1 to 64"),
        (&["-s", "-1e3"], "say a number of snapshots per second from 1 to 100000000"),
        (&["--mtu", "1500"], "a path MTU is 256, 512, 1024, 2048 or 4096"),
        (&["--subscribers", "65"], "say a whole number of subscribers from 1 to 64"),
        (&["--subscribers", "0"], "say a whole number of subscribers from 1 to 64"),
        (&["--payload", "4097"], "say a whole number of bytes of a snapshot from 1 to 4096"),
        (&["--levels", "84"], "say a whole number of levels from 1 to 83"),
        (&["--lanes", "1.5"], "say a whole number of lanes from 1 to 64"),
        (&["--post-ns", "NaN"], "say a number of nanoseconds of a post from 1 to 10000"),
        (&["--snapshots-per-s=-3"], "say a number of snapshots per second from 1 to 100000000"),
        (&["--pcie-lanes", "3"], "a slot has 1, 2, 4, 8 or 16 lanes"),
        (&["--payload", "64", "--levels", "1"], "cannot be used with"),
        (&["--force"], "--plot"),
        (&["--plot", "latency.png"], "say a file whose name ends in .svg"),
        (&["--plot", "svg"], "say a file whose name ends in .svg"),
        (&["--rates", "100G"], "--rates"),
    ] {
        let output = plan(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(says), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_rate_may_be_said_with_its_unit_or_without() {
    for rate in ["25", "25G", "25g", "25Gb/s", "25 Gb/s"] {
        assert_eq!(json(&["--rate", rate])["asked"]["line_gbps"], 25.0, "{rate}");
    }
}

/// The one line that it says, with this exit status, when it cannot do what it was asked for.
pub(super) fn refusal(status: i32, arguments: &[&str]) -> String {
    let output = plan(arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(output.stdout.is_empty(), "nothing is printed beside it");
    text
}

#[test]
fn a_switch_without_room_for_its_headroom_is_refused() {
    let line = refusal(2, &["--switch-buffer-mb", "1"]);
    for word in ["headroom", "32 ports", "1 MB", "--switch-buffer-mb"] {
        assert!(line.contains(word), "{line}");
    }
}

#[test]
fn more_subscribers_behind_a_port_than_there_are_are_refused() {
    let line = refusal(2, &["--subscribers", "4", "--behind-port", "5"]);
    for word in ["5 subscribers", "there are 4", "--behind-port", "--subscribers"] {
        assert!(line.contains(word), "{line}");
    }
}

#[test]
fn a_least_rate_above_the_line_is_the_line() {
    let plan = json(&["--rate", "25G", "--rpg-min-rate", "100000"]);
    let trains = plan["congestion"]["trains"].as_array().unwrap();
    assert!(trains.iter().all(|train| train["lowest_mbps"] == 25_000.0), "{trains:?}");
}

#[test]
fn the_help_teaches_with_examples() {
    let text = stdout(&plan(&["--help"]));
    for word in ["nothing is measured", "--base-latency-us", "Examples:", "--plot latency.svg"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}
