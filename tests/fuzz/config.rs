//! The publisher's configuration from an arbitrary file: refused in words, or taken, and what is
//! then printed is read as the same configuration.
#![no_main]

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use tapecast_publisher::config::{Effective, Layers, load};
use tempfile::TempDir;

thread_local! {
    static PLACE: RefCell<(TempDir, PathBuf)> = {
        // Memory, where there is such a folder.
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let folder = folder.expect("a folder");
        let path = folder.path().join("publisher.toml");
        RefCell::new((folder, path))
    };
}

fn read(path: &Path, text: &[u8]) -> Option<Effective> {
    fs::write(path, text).expect("a file of ours");
    match load(&Layers { file: Some(path.to_owned()), ..Layers::default() }) {
        Ok(effective) => Some(effective),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fuzz_target!(|text: &[u8]| PLACE.with_borrow(|(_folder, path)| {
    let Some(effective) = read(path, text) else { return };
    let printed = effective.to_string();
    let again = read(path, printed.as_bytes());
    let again = again.unwrap_or_else(|| panic!("what was printed is refused:\n{printed}"));
    assert_eq!(again.config, effective.config, "{printed}");
}));
