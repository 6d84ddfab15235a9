use std::io::Write;

use super::super::{Idle, RingBytes};
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
