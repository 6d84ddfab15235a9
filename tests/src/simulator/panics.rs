//! Panics of the code under test, caught and kept instead of printed.

use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Does something whose panics are not printed on this thread.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                LAST.with_borrow_mut(|last| *last = info.to_string().replace('\n', " "));
            } else {
                before(info);
            }
        }));
    });
    QUIET.set(true);
    let made = work();
    QUIET.set(false);
    made
}

/// What the last panic on this thread said.
pub(super) fn take() -> String {
    LAST.take()
}
