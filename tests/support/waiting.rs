//! Waits of tests for a condition. A test that sleeps for a fixed time instead depends on how fast the machine is.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::time::{Duration, Instant};

/// Longer than any step takes, even on a busy machine. It guards against a test that hangs; no test may depend on it.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Pause between two polls of a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until there is a value.
pub fn wait_for<T>(what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(PAUSE);
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}
