//! Operations on the receiving account, not bytes: whatever arrives in whatever order, the books
//! balance, and nothing older than what was delivered is delivered.
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use tapecast_core::Interest;
use tapecast_core::account::{Account, Jump, Verdict};
use tapecast_wire::{InstrumentId, Sequence};

const CAPACITY: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let mut account = Account::new(&Interest::All, CAPACITY);
    let mut newest: HashMap<u32, u64> = HashMap::new();
    for operation in bytes.chunks_exact(3) {
        let id = u32::from(operation[1] % 10);
        match operation[0] % 8 {
            0 => account.begin_live(),
            1 => {
                account.begin_epoch(&Interest::All);
                newest.clear();
            }
            2 => {
                account.watch(InstrumentId(id));
            }
            3 => {
                if account.unwatch(InstrumentId(id)) {
                    newest.remove(&id);
                }
            }
            other => {
                let jump = if other & 1 == 0 { Jump::Conflated } else { Jump::Unexplained };
                let sequence = u64::from(operation[2]);
                let verdict = account.on_record(InstrumentId(id), Sequence(sequence), jump);
                if let Verdict::Deliver { .. } = verdict {
                    let before = newest.insert(id, sequence).unwrap_or(0);
                    assert!(sequence > before, "{sequence} was delivered after {before}");
                }
            }
        }
        account.assert_invariants();
        let totals = account.totals();
        assert_eq!(totals.published, totals.delivered + totals.conflated + totals.lost);
    }
});
