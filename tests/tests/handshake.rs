//! The scripts that fuzzing the handshake begins with, over every carrier.

use std::fs;
use std::path::Path;

use tapecast_tests::handshake::{Carrier, Theatre};

fn scripts() -> Vec<Vec<u8>> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    let folders = ["fuzz-handshake", "fuzz-handshake-tcp", "fuzz-handshake-tls"];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(seeds.join(folder)).expect("a folder of seeds"));
    files.map(|file| fs::read(file.expect("a seed").path()).expect("a seed can be read")).collect()
}

#[test]
fn what_has_to_hold_in_the_handshake_holds_over_every_carrier() {
    let scripts = scripts();
    assert!(scripts.len() > 30, "where are the seeds?");
    for carrier in [Carrier::Unix, Carrier::Tcp, Carrier::Tls] {
        let mut theatre = Theatre::new(carrier);
        scripts.iter().for_each(|script| theatre.play(script));
    }
}
