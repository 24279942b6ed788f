//! The limit of open files, for runs with many connections.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Twice the connections of the largest run, since a server may be in the same process, and some more.
const WANTED: u64 = 4096;

/// Raises the limit of open files as far as allowed. If that fails, connecting reports the error.
pub fn allow_many() {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).min(WANTED);
    if limit.current.is_some_and(|current| current < most) {
        limit.current = Some(most);
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
