use std::io::Write;

use super::super::{Idle, PolicyWord, RingBytes, SourceKind};
use super::*;

fn in_file(text: &str) -> (tempfile::NamedTempFile, Layers) {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let layers = Layers { file: Some(file.path().to_owned()), ..Layers::default() };
    (file, layers)
}

fn in_environment(variable: &str, value: &str) -> Layers {
    Layers { environment: vec![(variable.into(), value.into())], ..Layers::default() }
}

fn in_flag(flag: &str, key: &str, value: &str) -> Layers {
    let flags = vec![(flag.into(), key.into(), value.into())];
    Layers { flags, ..Layers::default() }
}

#[test]
fn without_layers_the_defaults_hold() {
    let effective = load(&Layers::default()).unwrap();
    assert_eq!(effective.config, Config::default());
    assert!(KEYS.iter().all(|key| effective.origin(key.path) == "default"));
}

#[test]
fn the_subscribers_socket_variable_is_honoured_and_the_publishers_own_wins() {
    let shared = in_environment("TAPECAST_SOCKET", "/shared");
    let mut both = in_environment("TAPECAST_PUBLISHER_SOCKET", "/own");
    both.environment.extend(shared.environment.clone());
    for (layers, expected) in [(shared, "/shared"), (both, "/own")] {
        let config = load(&layers).unwrap().config;
        assert_eq!(config.publisher.socket.to_str(), Some(expected));
    }
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let (_file, mut layers) =
        in_file("[sender]\nidle = \"spin\"\n[shm]\nring_bytes = \"1 MiB\"\n[book]\nlevels = 5\n");
    layers.environment = vec![
        ("TAPECAST_SENDER_IDLE".into(), "yield".into()),
        ("TAPECAST_SHM_RING_BYTES".into(), "2 MiB".into()),
    ];
    layers.flags = vec![("--idle".into(), "sender.idle".into(), "block".into())];
    let effective = load(&layers).unwrap();
    assert_eq!(effective.config.sender.idle, Idle::Block);
    assert_eq!(effective.origin("sender.idle"), "flag --idle");
    assert_eq!(effective.config.shm.ring_bytes, RingBytes::new(2 << 20));
    let variable = "environment variable TAPECAST_SHM_RING_BYTES";
    assert_eq!(effective.origin("shm.ring_bytes"), variable);
    assert_eq!(effective.config.book.levels.get(), 5);
    assert_eq!(effective.origin("book.levels"), layers.file.unwrap().to_str().unwrap());
    assert_eq!(effective.config.log, Config::default().log);
}

#[test]
fn lists_can_be_written_as_arrays_and_with_commas() {
    let (_file, layers) = in_file("[access]\nusers = [\"alice\", 1001]\n");
    assert_eq!(load(&layers).unwrap().config.access.users.0, ["alice", "1001"]);
    let layers = in_environment("TAPECAST_SOURCE_SYMBOLS", "AAPL, MSFT");
    assert_eq!(load(&layers).unwrap().config.source.symbols.0, ["AAPL", "MSFT"]);
}

#[test]
fn what_is_printed_reads_back_as_the_same_configuration() {
    let mut layers = in_flag("--source", "source.kind", "itch");
    layers.flags.push(("--file".into(), "source.file".into(), "/data/x \"y\".itch".into()));
    layers.flags.push(("--symbols".into(), "source.symbols".into(), "A,B".into()));
    layers.flags.push(("--cpu".into(), "sender.cpu".into(), "3".into()));
    layers.flags.push(("--pace".into(), "source.pace".into(), "2.5x".into()));
    layers.flags.push(("--length".into(), "source.synthetic.length".into(), "9 s".into()));
    layers.flags.push(("--date".into(), "source.date".into(), "2019-01-30".into()));
    let first = load(&layers).unwrap();
    assert_eq!(first.config.source.kind, SourceKind::Itch);
    let (_file, layers) = in_file(&first.to_string());
    assert_eq!(load(&layers).unwrap().config, first.config);
}

#[test]
fn every_wrong_value_names_its_place_its_key_and_what_is_allowed() {
    for (key, value) in [
        ("source.kind", "pcap"),
        ("source.pace", "fast"),
        ("source.pace", "0x"),
        ("source.silent_after_s", "-1"),
        ("source.silent_after_s", "0.5"),
        ("source.silent_after_s", "86401"),
        ("source.loop", "maybe"),
        ("source.date", "30.1.2019"),
        ("source.symbols", "A,,B"),
        ("source.synthetic.seed", "-1"),
        ("source.synthetic.instruments", "0"),
        ("source.synthetic.instruments", "10001"),
        ("source.synthetic.length", "0s"),
        ("source.synthetic.length", "60"),
        ("source.synthetic.length", "21601s"),
        ("source.synthetic.burst_ms", "3600001"),
        ("source.event_end", "packet"),
        ("book.levels", "0"),
        ("book.levels", "84"),
        ("book.levels", "ten"),
        ("pool.hugepages", "2"),
        ("shm.ring_bytes", "3 MiB"),
        ("shm.instruments_max", "0"),
        ("shm.seal", "wax"),
        ("shm.keep", "maybe"),
        ("fabric.kind", "tcp"),
        ("rdma.address", "mlx5_0"),
        ("rdma.port_number", "0"),
        ("rdma.ring_bytes_max", "3 MiB"),
        ("rdma.receive_depth_max", "16385"),
        ("rdma.send_depth", "1"),
        ("rdma.completion_depth", "x"),
        ("rdma.signal_every", "0"),
        ("rdma.gather", "17"),
        ("rdma.traffic_class", "256"),
        ("rdma.service_level", "8"),
        ("rdma.hop_limit", "0"),
        ("rdma.flow_labels", "2"),
        ("rdma.path_mtu", "1500"),
        ("rdma.timeout", "0"),
        ("rdma.timeout", "32"),
        ("rdma.retry_count", "8"),
        ("rdma.rnr_retry", "8"),
        ("rdma.min_rnr_timer", "0"),
        ("listen.address", "publisher.example:7411"),
        ("listen.address", "127.0.0.1"),
        ("tls.mode", "yes"),
        ("sender.idle", "sleep"),
        ("sender.cpu", "first"),
        ("access.lossless", "1"),
        ("access.sessions_max", "65"),
        ("log.level", "loud"),
        ("log.format", "xml"),
    ] {
        let allowed = Key::find(key).unwrap().allowed;
        let variable = Key::find(key).unwrap().variable();
        let error = load(&in_flag("--set", key, value)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("flag --set: {key}: ")), "{error}");
        assert!(error.ends_with(&format!("; allowed: {allowed}")), "{error}");
        let error = load(&in_environment(&variable, value)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("environment variable {variable}: {key}: ")));
        let (section, name) = key.rsplit_once('.').unwrap();
        let (file, layers) = in_file(&format!("[{section}]\n{name} = \"{value}\"\n"));
        let error = load(&layers).unwrap_err().to_string();
        let place = file.path().display();
        assert!(error.starts_with(&format!("{place}: {key}: ")), "{error}");
    }
}

#[test]
fn a_value_of_another_type_is_refused_too() {
    for text in ["[book]\nlevels = 2.5", "[book]\nlevels = [1]", "[access]\nusers = [[\"a\"]]"] {
        let (_file, layers) = in_file(text);
        let error = load(&layers).unwrap_err();
        assert!(matches!(error, ConfigError::Value { .. }), "{text}: {error}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_key_that_was_meant() {
    for (text, unknown, meant) in [
        ("[shm]\nring_byts = 1", "shm.ring_byts", "shm.ring_bytes"),
        ("[sendr]\nidle = \"spin\"", "sendr.idle", "sender.idle"),
        ("levels = 3", "levels", "check-config"),
        ("[nonsense]", "nonsense", "check-config"),
        ("book = 3", "book", "section"),
        ("[book.levels]\nmax = 3", "book.levels.max", "book.levels"),
    ] {
        let (file, layers) = in_file(text);
        let error = load(&layers).unwrap_err().to_string();
        let start = format!("{}: unknown key `{unknown}`; ", file.path().display());
        assert!(error.starts_with(&start), "{error}");
        assert!(error.contains(meant), "{error}");
    }
    let error = load(&in_environment("TAPECAST_SENDER_IDEL", "spin")).unwrap_err().to_string();
    assert!(error.contains("did you mean `TAPECAST_SENDER_IDLE`?"), "{error}");
}

#[test]
fn empty_sections_and_variables_and_other_programs_variables_are_left_alone() {
    let (_file, mut layers) = in_file("[sender]\n[source.synthetic]\n");
    layers.environment = vec![
        ("TAPECAST_BOOK_LEVELS".into(), String::new()),
        ("TAPECAST_SUBSCRIBER_NAME".into(), "x".into()),
        ("TAPECAST_PUBLISHERS".into(), "x".into()),
    ];
    assert_eq!(load(&layers).unwrap().config, Config::default());
}

#[test]
fn a_file_that_is_missing_or_not_toml_is_named_with_the_line() {
    let layers = Layers { file: Some("/nonexistent/x.toml".into()), ..Layers::default() };
    let error = load(&layers).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/x.toml") && error.contains("--config"), "{error}");
    let (file, layers) = in_file("[book]\nlevels = 3\nlevels = 4\n");
    let error = load(&layers).unwrap_err().to_string();
    let start = format!("{}:3: not valid TOML: ", file.path().display());
    assert!(error.starts_with(&start) && !error.contains('\n'), "{error}");
}

#[test]
fn values_that_contradict_each_other_say_what_to_change() {
    let error = load(&in_flag("--source", "source.kind", "dbn")).unwrap_err().to_string();
    assert!(error.starts_with("flag --source: source.kind: ") && error.contains("--file"));
    let error = load(&in_flag("--file", "source.file", "x")).unwrap_err().to_string();
    assert!(error.starts_with("flag --file: source.file: ") && error.contains("--source"));
    let path = "x".repeat(108);
    let error = load(&in_flag("--socket", "publisher.socket", &path)).unwrap_err().to_string();
    assert!(error.contains("108 bytes"), "{error}");
}

#[test]
fn what_is_no_file_and_what_is_too_large_is_refused_without_reading_it() {
    for (path, kind) in [("/dev/zero", "a device, pipe or socket"), ("/tmp", "a directory")] {
        let layers = Layers { file: Some(path.into()), ..Layers::default() };
        let error = load(&layers).unwrap_err().to_string();
        assert!(error.contains(path) && error.contains(kind), "{error}");
    }
    let (file, layers) = in_file("");
    file.as_file().set_len(1 << 40).unwrap();
    let error = load(&layers).unwrap_err().to_string();
    assert!(error.contains("more than 1048576 bytes"), "{error}");
    let (_file, layers) = in_file(&format!("{}[book]\nlevels = 3", "\n".repeat((1 << 20) - 17)));
    assert_eq!(load(&layers).unwrap().config.book.levels.get(), 3);
}

fn over_verbs(text: &str) -> (tempfile::NamedTempFile, Layers) {
    in_file(&format!("fabric.kind = \"verbs\"\n{text}"))
}

#[test]
fn completions_that_would_not_hold_all_sessions_are_refused_with_both_keys() {
    let short = "rdma.send_depth = 65\n";
    let (_file, layers) = over_verbs(short);
    let error = load(&layers).unwrap_err().to_string();
    for part in [
        ": rdma.send_depth: ",
        "rdma.completion_depth is 4096",
        "access.sessions_max × rdma.send_depth",
        "= 4160",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let (_file, layers) = over_verbs(&format!("{short}access.sessions_max = 63\n"));
    assert_eq!(load(&layers).unwrap().config.rdma.send_depth.get(), 65);
    let (_file, layers) = over_verbs("rdma.signal_every = 33\n");
    let error = load(&layers).unwrap_err().to_string();
    assert!(error.contains("rdma.signal_every: 33 is more than half of rdma.send_depth"));
}

#[test]
fn beyond_loopback_tls_is_wanted_with_all_its_files() {
    let files = [("certificate", "c.pem"), ("key", "c.key"), ("client_ca", "ca.pem")];
    let mut text = "listen.address = \"192.0.2.7:7411\"\n".to_owned();
    let (_file, layers) = over_verbs(&format!("{text}tls.mode = \"off\"\n"));
    let error = load(&layers).unwrap_err().to_string();
    assert!(error.contains("tls.mode: off, but listen.address is 192.0.2.7:7411"), "{error}");
    for (key, file) in files {
        let (_file, layers) = over_verbs(&text);
        let error = load(&layers).unwrap_err().to_string();
        assert!(error.contains(&format!("tls.{key}: not set")), "{error}");
        assert!(error.contains("tapecast-publisher certificates"), "{error}");
        text.push_str(&format!("tls.{key} = \"{file}\"\n"));
    }
    let (_file, layers) = over_verbs(&text);
    assert!(load(&layers).is_ok());
    let (_file, layers) = over_verbs("tls.mode = \"on\"\n");
    assert!(load(&layers).unwrap_err().to_string().contains("tls.certificate: not set"));
    let (_file, layers) = over_verbs("");
    assert!(load(&layers).is_ok(), "on loopback nothing is needed");
}

#[test]
fn users_of_this_host_are_no_protection_over_the_network() {
    let (_file, layers) = over_verbs("access.groups = [\"desk\"]\n");
    let error = load(&layers).unwrap_err().to_string();
    assert!(error.contains("access.groups: ") && error.contains("[[entitlement]]"), "{error}");
}

#[test]
fn a_key_that_the_fabric_does_not_use_is_refused_with_the_fabric_that_does() {
    for (kind, other, key, value) in [
        ("shm", "verbs", "rdma.device", "mlx5_0"),
        ("shm", "verbs", "rdma.timeout", "15"),
        ("shm", "verbs", "listen.address", "192.0.2.7:1"),
        ("shm", "verbs", "tls.mode", "on"),
        ("shm", "verbs", "tls.client_ca", "ca.pem"),
        ("verbs", "shm", "publisher.socket", "/x"),
        ("verbs", "shm", "shm.ring_bytes", "1 MiB"),
        ("verbs", "shm", "shm.seal", "owner"),
        ("verbs", "shm", "shm.keep", "true"),
    ] {
        let (section, name) = key.split_once('.').unwrap();
        let chosen = format!("fabric.kind = \"{kind}\"\n");
        let text = format!("{chosen}[{section}]\n{name} = \"{value}\"\n");
        let (file, layers) = in_file(&text);
        let problem = format!(
            "{key}: set, but fabric.kind is \"{kind}\", which does not use it: set fabric.kind = \
             \"{other}\" (--fabric {other}), or remove it"
        );
        let error = load(&layers).unwrap_err().to_string();
        assert_eq!(error, format!("{}: {problem}", file.path().display()));
        let (_file, mut layers) = in_file(&chosen);
        layers.flags = vec![("--set".into(), key.into(), value.into())];
        assert_eq!(load(&layers).unwrap_err().to_string(), format!("flag --set: {problem}"));
    }
}

#[test]
fn a_ring_is_kept_only_under_the_seal_that_lets_a_later_publisher_write() {
    let error = load(&in_flag("--set", "shm.keep", "true")).unwrap_err().to_string();
    assert!(error.starts_with("flag --set: shm.keep: true, but shm.seal is"), "{error}");
    assert!(error.contains("set shm.seal = \"owner\", or shm.keep = false"), "{error}");
    let (_file, layers) = in_file("[shm]\nseal = \"owner\"\nkeep = true\n");
    assert!(load(&layers).unwrap().config.shm.keep.0);
    let (_file, layers) = in_file("[shm]\nseal = \"owner\"\n");
    assert!(!load(&layers).unwrap().config.shm.keep.0);
}

#[test]
fn a_default_for_the_other_fabric_is_refused_where_it_was_typed_and_fine_in_a_file() {
    let (_file, layers) = in_file("[listen]\naddress = \"127.0.0.1:7411\"\n");
    assert_eq!(load(&layers).unwrap().config, Config::default());
    assert!(load(&in_flag("--listen", "listen.address", "127.0.0.1:7411")).is_err());
    assert!(load(&in_environment("TAPECAST_TLS_MODE", "auto")).is_err());
    let (_file, mut layers) = over_verbs("[shm]\ninstruments_max = 7\nseal = \"future-write\"\n");
    layers.environment = vec![("TAPECAST_SOCKET".into(), "/shared".into())];
    assert_eq!(load(&layers).unwrap().config.shm.instruments_max.get(), 7);
}

#[test]
fn what_is_not_used_is_printed_as_a_comment() {
    let text = load(&Layers::default()).unwrap().to_string();
    assert!(text.contains("\n# address = \"127.0.0.1:7411\"") && text.contains("\nsocket = "));
    assert!(text.contains("# only with fabric.kind = \"verbs\"\n"), "{text}");
    let (_file, layers) = over_verbs("");
    let text = load(&layers).unwrap().to_string();
    assert!(text.contains("\naddress = \"127.0.0.1:7411\"") && text.contains("\n# socket = "));
    assert!(text.contains("\ninstruments_max = "));
}

const ENTITLED: &str = "
[[entitlement]]
client = \"uid:1001\"
sessions_max = 2
symbols = [\"AAPL\", \"MSFT\"]
policies = [\"conflate\"]
[[entitlement]]
client = \"uid:0\"
";

#[test]
fn entitlements_are_read_printed_and_resolved() {
    let (file, layers) = in_file(ENTITLED);
    let effective = load(&layers).unwrap();
    let [first, second] = &effective.config.entitlement[..] else { panic!("not two") };
    assert_eq!(first.symbols.as_ref().unwrap().0, ["AAPL", "MSFT"]);
    assert_eq!(first.policies, Some(vec![PolicyWord::Conflate]));
    assert_eq!((second.sessions_max, &second.symbols), (None, &None));
    assert!(!effective.entitlements().unwrap().is_empty());
    let text = effective.to_string();
    let heading = text.lines().find(|line| line.starts_with("[[entitlement]]")).unwrap();
    assert!(heading.ends_with(&format!("# {}", file.path().display())), "{heading}");
    let (_file, layers) = in_file(&text);
    assert_eq!(load(&layers).unwrap().config, effective.config);
    assert!(load(&Layers::default()).unwrap().entitlements().unwrap().is_empty());
}

#[test]
fn a_wrong_entitlement_is_told_by_number_and_field() {
    for (text, parts) in [
        ("client = \"x\"\nsessions_max = 65", &["1: sessions_max: ", "allowed: 1 to 64"][..]),
        ("client = \"x\"\npolicies = [\"fast\"]", &["1: policies: ", "conflate, lossless"]),
        ("client = \"x\"\nsymbls = []", &["1", "symbls", "allowed: client, sessions_max"]),
        ("sessions_max = 1", &["client"]),
    ] {
        let (file, layers) = in_file(&format!("[[entitlement]]\n{text}\n"));
        let error = load(&layers).unwrap_err().to_string();
        let start = format!("{}: [[entitlement]] ", file.path().display());
        assert!(error.starts_with(&start), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let error = load(&in_environment("TAPECAST_ENTITLEMENT", "uid:1")).unwrap_err().to_string();
    assert!(error.contains("TAPECAST_ENTITLEMENT: entitlement: "), "{error}");
    assert!(error.contains("tables in the file"), "{error}");
}

#[test]
fn an_entitlement_that_can_help_nobody_is_refused() {
    let resolve = |(file, layers): (tempfile::NamedTempFile, Layers)| {
        let error = load(&layers).unwrap().entitlements().unwrap_err().to_string();
        let start = format!("{}: [[entitlement]] 1: ", file.path().display());
        error.strip_prefix(&start).unwrap_or_else(|| panic!("{error}")).to_owned()
    };
    let of = |client: &str| format!("[[entitlement]]\nclient = \"{client}\"\n");
    assert!(resolve(in_file(&of("risk.example"))).contains("fabric.kind = \"shm\""));
    assert!(resolve(in_file(&of("user:nobody-of-that-name"))).contains("there is no user"));
    assert!(resolve(in_file(&of("a b"))).contains("names no client"));
    assert!(resolve(over_verbs(&of("uid:7"))).contains("fabric.kind = \"verbs\""));
    assert!(resolve(over_verbs(&of("risk.example"))).contains("without TLS"));
    let none = format!("{}symbols = []\n", of("uid:7"));
    assert!(resolve(in_file(&none)).starts_with("symbols: the list is empty"));
    let none = format!("{}policies = []\n", of("uid:7"));
    assert!(resolve(in_file(&none)).starts_with("policies: the list is empty"));
}

/// Where the shipped file stands. Its commented-out keys have no default in the file.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/publisher.toml");

#[test]
fn the_shipped_file_holds_exactly_the_defaults() {
    let layers = Layers { file: Some(SHIPPED.into()), ..Layers::default() };
    assert_eq!(load(&layers).unwrap().config, Config::default());
}

#[test]
fn the_shipped_file_shows_every_key_and_no_other() {
    let text = std::fs::read_to_string(SHIPPED).unwrap();
    let mut section = "";
    let mut shown = Vec::new();
    for line in text.lines() {
        if line == "# [[entitlement]]" {
            // An example; its fields are those of the table, not keys.
            shown.push("entitlement".to_owned());
            break;
        }
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((name, _)) = line.trim_start_matches("# ").split_once(" = ")
            && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        {
            shown.push(format!("{section}.{name}"));
        }
    }
    assert_eq!(shown, KEYS.map(|key| key.path));
}
