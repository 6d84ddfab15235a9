//! Real DBN files of every schema, version and container: counted as their makers count them, and
//! reported wherever they are cut.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod dbn_support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use dbn_support::{Recorder, data, drain, open};
use serde_json::Value;
use tapecast_publisher::source::dbn::{DbnError, DbnInspect};

struct Fixture {
    name: String,
    bytes: Vec<u8>,
    reference: Value,
}

impl Fixture {
    fn is_fragment(&self) -> bool {
        self.name.contains(".frag")
    }

    fn is_legacy(&self) -> bool {
        self.name.ends_with(".dbz")
    }

    fn inspect(&self, bytes: usize) -> Result<DbnInspect, DbnError> {
        DbnInspect::of_reader(&self.name, &self.bytes[..bytes])
    }
}

fn fixtures() -> Vec<Fixture> {
    let (Some(folder), Some(answers)) = (data("dbn/fixtures"), data("dbn/fixtures.reference.json"))
    else {
        return Vec::new();
    };
    let answers: Value = serde_json::from_slice(&std::fs::read(answers).unwrap()).unwrap();
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert_eq!(paths.len(), 81, "the whole set of fixtures");
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let reference = answers["files"][format!("dbn-repo-tests/{name}")].clone();
        assert!(reference.is_object(), "{name} has no answer");
        Fixture { bytes: std::fs::read(path).unwrap(), name, reference }
    };
    paths.into_iter().map(read).collect()
}

/// Records that the reference counted; its classes are one per schema.
fn counted(reference: &Value) -> u64 {
    reference["records"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn every_file_that_the_reference_decodes_has_its_version_dataset_schema_symbols_and_records() {
    let mut checked = 0;
    for fixture in fixtures().iter().filter(|fixture| fixture.reference["error"].is_null()) {
        let (name, reference) = (&fixture.name, &fixture.reference);
        let inspect = fixture.inspect(fixture.bytes.len()).unwrap();
        assert!(inspect.fault.is_none(), "{name}: {:?}", inspect.fault);
        assert_eq!(inspect.version.map(u64::from), reference["version"].as_u64(), "{name}");
        assert_eq!(inspect.dataset, reference["dataset"].as_str().unwrap(), "{name}");
        assert_eq!(inspect.schema.as_deref(), reference["schema"].as_str(), "{name}");
        let symbols: Vec<&str> =
            reference["symbols"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
        assert_eq!(inspect.symbols, symbols, "{name}");
        assert_eq!(inspect.records, counted(reference), "{name}");
        let by_type: u64 = inspect.by_type.iter().map(|(_, count)| count).sum();
        assert_eq!(by_type, inspect.records, "{name}");
        checked += 1;
    }
    assert!(checked == 0 || checked == 64, "{checked} files checked");
}

#[test]
fn a_legacy_file_has_as_many_records_as_the_same_schema_in_version_1() {
    let all = fixtures();
    let by_name: BTreeMap<&str, &Fixture> = all.iter().map(|f| (f.name.as_str(), f)).collect();
    for fixture in all.iter().filter(|fixture| fixture.is_legacy()) {
        let twin = by_name[fixture.name.replace(".dbz", ".v1.dbn.zst").as_str()];
        let inspect = fixture.inspect(fixture.bytes.len()).unwrap();
        assert!(inspect.fault.is_none(), "{}: {:?}", fixture.name, inspect.fault);
        assert_eq!(inspect.version, None);
        assert_eq!(inspect.records, counted(&twin.reference), "{}", fixture.name);
        assert_eq!(inspect.schema.as_deref(), twin.reference["schema"].as_str());
    }
}

#[test]
fn a_fragment_without_metadata_is_refused_by_name() {
    for fixture in fixtures().iter().filter(|fixture| fixture.is_fragment()) {
        let error = fixture.inspect(fixture.bytes.len()).unwrap_err();
        assert!(error.to_string().contains("fragment"), "{}: {error}", fixture.name);
    }
}

/// Where a cut leaves a complete shorter file: plain DBN, between records.
fn complete_lengths(fixture: &Fixture) -> Vec<usize> {
    let bytes = &fixture.bytes;
    let mut complete = vec![bytes.len()];
    if bytes.starts_with(b"DBN") {
        let mut at = 8 + u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        while at < bytes.len() {
            complete.push(at);
            at += usize::from(bytes[at]) * 4;
        }
    }
    complete
}

fn cuts(bytes: usize) -> impl Iterator<Item = usize> {
    (0..bytes).filter(move |cut| *cut < 160 || bytes - cut <= 900)
}

#[test]
fn every_file_cut_at_every_byte_of_its_head_and_tail_is_reported_at_that_byte() {
    let mut cut_files = 0;
    for fixture in fixtures().iter().filter(|fixture| !fixture.is_fragment()) {
        let complete = complete_lengths(fixture);
        for cut in cuts(fixture.bytes.len()) {
            let name = &fixture.name;
            let fault = match fixture.inspect(cut) {
                Ok(inspect) => inspect.fault,
                Err(error) => Some(error),
            };
            match fault {
                None => assert!(complete.contains(&cut), "{name} cut at {cut} goes unnoticed"),
                Some(DbnError::Empty { .. }) => assert_eq!(cut, 0, "{name}"),
                Some(DbnError::Truncated { offset, .. }) => {
                    assert_eq!(offset, cut as u64, "{name}");
                    assert!(!complete.contains(&cut), "{name} cut at {cut} is complete");
                }
                Some(other) => panic!("{name} cut at {cut}: {other}"),
            }
            cut_files += 1;
        }
    }
    assert!(cut_files == 0 || cut_files > 25_000, "{cut_files} cuts");
}

#[test]
fn no_byte_of_a_file_can_be_changed_so_that_reading_it_panics_or_hangs() {
    for fixture in fixtures() {
        // The last bytes hold records, the first ones the metadata.
        for at in cuts(fixture.bytes.len()).step_by(3) {
            let mut bytes = fixture.bytes.clone();
            bytes[at] ^= [0xff, 0x01, 0x80][at % 3];
            let _ = DbnInspect::of_reader("changed", bytes.as_slice());
            if let Ok(mut source) = open(bytes) {
                let _ = drain(&mut source, &mut Recorder::default());
            }
        }
    }
}

#[test]
fn real_order_and_level_files_of_every_version_say_the_same() {
    for schema in ["mbo", "mbp-10"] {
        let said: Vec<(String, Vec<String>)> = fixtures()
            .iter()
            .filter(|fixture| fixture.name.starts_with(&format!("test_data.{schema}.")))
            .map(|fixture| {
                let mut sink = Recorder::default();
                let mut source = open(fixture.bytes.clone()).unwrap();
                drain(&mut source, &mut sink).unwrap();
                assert!(sink.events > 0, "{} says nothing", fixture.name);
                (fixture.name.clone(), sink.lines)
            })
            .collect();
        for (name, lines) in &said {
            assert_eq!(lines, &said[0].1, "{name} differs from {}", said[0].0);
        }
    }
}

#[test]
fn a_schema_without_order_books_is_refused_by_name() {
    for fixture in fixtures().iter().filter(|f| !f.is_fragment()) {
        let schema = fixture.name.split('.').nth(1).unwrap();
        let opened = open(fixture.bytes.clone());
        if ["mbo", "mbp-10"].contains(&schema) {
            opened.unwrap();
        } else {
            let text = opened.unwrap_err().to_string();
            assert!(text.contains(&format!("`{schema}`")), "{}: {text}", fixture.name);
            assert!(text.contains("supported are `mbo` and `mbp-10`"), "{text}");
        }
    }
}
