//! As many connections as a run may have need as many open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Twice the connections of the largest run, since a server may be in the same process, and some more.
const WANTED: u64 = 4096;

/// Raises the limit of open files as far as it may be, if it is low. Where that fails, connecting says so.
pub fn allow_many() {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).min(WANTED);
    if limit.current.is_some_and(|current| current < most) {
        limit.current = Some(most);
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
