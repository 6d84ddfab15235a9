//! Operations on the publisher's TCP port in any order, without TLS, see
//! [`tapecast_tests::handshake`].
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use tapecast_tests::handshake::{Carrier, Theatre};

thread_local! {
    static THEATRE: RefCell<Theatre> = RefCell::new(Theatre::new(Carrier::Tcp));
}

fuzz_target!(|script: &[u8]| THEATRE.with_borrow_mut(|theatre| theatre.play(script)));
