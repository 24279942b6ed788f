//! Work that is asked for more often than it has to be done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pause before the work, in which further requests are the same one.
const PAUSE: Duration = Duration::from_millis(10);

/// Does something soon after it is asked for, on a thread of its own.
#[derive(Default)]
pub(crate) struct Raiser {
    is_asked: Arc<AtomicBool>,
}

impl Raiser {
    pub(crate) fn request(&self, work: impl FnOnce() + Send + 'static) {
        if self.is_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_asked = self.is_asked.clone();
        let spawned = std::thread::Builder::new()
            .name("stamps".to_owned())
            .spawn(move || {
                std::thread::sleep(PAUSE);
                is_asked.store(false, Ordering::Release);
                work();
            });
        if spawned.is_err() {
            // The next request tries again.
            self.is_asked.store(false, Ordering::Release);
        }
    }
}
