//! Work that is requested more often than it has to be done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pause before the work, in which further requests are the same one.
const PAUSE: Duration = Duration::from_millis(10);

/// Does something soon after it is requested, on a thread of its own. Requests until then are one.
#[derive(Default)]
pub(crate) struct Debounce {
    is_requested: Arc<AtomicBool>,
}

impl Debounce {
    pub(crate) fn request(&self, work: impl FnOnce() + Send + 'static) {
        if self.is_requested.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_requested = self.is_requested.clone();
        let spawned = std::thread::Builder::new()
            .name("stamps".to_owned())
            .spawn(move || {
                std::thread::sleep(PAUSE);
                is_requested.store(false, Ordering::Release);
                work();
            });
        if spawned.is_err() {
            // The next request tries again.
            self.is_requested.store(false, Ordering::Release);
        }
    }
}
