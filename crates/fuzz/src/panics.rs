//! Panics on any thread, also those that are caught.

use std::sync::atomic::{AtomicBool, Ordering};

/// Set by a panic on any thread: the server answers a panic of a command with an error.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Notes panics on all threads from now on, and does with them what was done before.
pub fn watch() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICKED.store(true, Ordering::SeqCst);
        eprintln!("{info}\n{}", std::backtrace::Backtrace::force_capture());
        before(info);
    }));
}

/// Whether there was one.
pub fn were_met() -> bool {
    PANICKED.load(Ordering::SeqCst)
}
