//! Certificates and keys from arbitrary files: refused in words, or taken.
#![no_main]

use std::cell::RefCell;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tapecast_control::certificates::{self, Plan};
use tapecast_control::{TlsFiles, TlsIdentity};
use tempfile::TempDir;

struct Place {
    _folder: TempDir,
    good: TlsFiles,
    bad: std::path::PathBuf,
}

thread_local! {
    static PLACE: RefCell<Place> = RefCell::new(Place::new());
}

impl Place {
    fn new() -> Self {
        // Memory, where there is such a folder.
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("a folder");
        let plan = Plan {
            server_names: vec!["feed.example".into()],
            server_addresses: Vec::new(),
            clients: Vec::new(),
            days: 30,
            force: false,
        };
        certificates::create(folder.path(), &plan).expect("certificates");
        let path = |name: &str| folder.path().join(name);
        let good = TlsFiles {
            certificate: path("server.pem"),
            key: path("server.key"),
            client_ca: path("ca.pem"),
        };
        let bad = path("bad.pem");
        fs::write(&bad, "").expect("a file of ours");
        fs::set_permissions(&bad, Permissions::from_mode(0o600)).expect("a file of ours");
        TlsIdentity::load(good.clone()).expect("good files");
        Self { _folder: folder, good, bad }
    }
}

/// Bytes in the armour that files have, so that inputs come past it.
fn armoured(label: &str, bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for (index, piece) in bytes.chunks(3).enumerate() {
        let word = piece.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - piece.len()));
        for digit in 0..4 {
            let is_pad = digit > piece.len();
            let value = (word >> (18 - 6 * digit)) as usize & 63;
            text.push(if is_pad { '=' } else { char::from(DIGITS[value]) });
        }
        if index % 16 == 15 {
            text.push('\n');
        }
    }
    text + "\n-----END " + label + "-----\n"
}

fuzz_target!(|bytes: &[u8]| PLACE.with_borrow(|place| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let text = match choice & 3 {
        0 => bytes.to_vec(),
        1 => armoured("PRIVATE KEY", bytes).into_bytes(),
        2 => armoured("EC PRIVATE KEY", bytes).into_bytes(),
        _ => armoured("CERTIFICATE", bytes).into_bytes(),
    };
    fs::write(&place.bad, text).expect("a file of ours");
    let bad = || place.bad.clone();
    for files in [
        TlsFiles { certificate: bad(), ..place.good.clone() },
        TlsFiles { key: bad(), ..place.good.clone() },
        TlsFiles { client_ca: bad(), ..place.good.clone() },
    ] {
        if let Err(error) = TlsIdentity::load(files) {
            assert!(!error.to_string().is_empty());
        }
    }
}));
