//! The limit of open files: raised when the server starts, and divided between the server and its clients.

use std::fs::File;
use std::io;

use frond_bson::{DocBuf, doc};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Handles that the server needs besides those of clients: the engine's files, listeners, logs, files of large sorts.
const OWN: u64 = 40;
/// The most connections in percent of the handles, as in mongod.
const CONNECTIONS_PERCENT: u64 = 80;
/// Tried where the hard limit is unlimited, which the system may refuse.
const LARGE: u64 = 1 << 20;

/// The limit of open files of this process.
pub struct HandleLimit {
    /// Before it was raised.
    before: u64,
    now: u64,
    /// The hard limit: the highest value of the soft limit.
    hard: u64,
}

impl HandleLimit {
    /// Raises the soft limit to the hard limit.
    pub fn raise() -> HandleLimit {
        let limits = getrlimit(Resource::Nofile);
        let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        for wanted in [limits.maximum, limits.maximum.or(Some(LARGE))] {
            let raised = Rlimit {
                current: wanted,
                maximum: limits.maximum,
            };
            // Without success the server works with fewer connections.
            if number(wanted) <= number(limits.current)
                || setrlimit(Resource::Nofile, raised).is_ok()
            {
                break;
            }
        }
        HandleLimit {
            before: number(limits.current),
            now: number(getrlimit(Resource::Nofile).current),
            hard: number(limits.maximum),
        }
    }

    /// The most connections that leave the server the handles that it needs.
    pub fn connections_max(&self) -> usize {
        let share =
            self.now / 100 * CONNECTIONS_PERCENT + self.now % 100 * CONNECTIONS_PERCENT / 100;
        let most = share.min(self.now.saturating_sub(OWN)).max(1);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    pub fn to_doc(&self) -> DocBuf {
        let number = |limit: u64| i64::try_from(limit).unwrap_or(i64::MAX);
        doc! {
            "softBefore": number(self.before), "soft": number(self.now), "hard": number(self.hard),
        }
    }
}

/// A handle that is given up to accept a connection when there is no other one, so that it can be closed. Otherwise its
/// client would wait until there are handles again.
pub struct SpareHandle(Mutex<Option<File>>);

impl SpareHandle {
    pub fn new() -> SpareHandle {
        SpareHandle(Mutex::new(open()))
    }

    /// Gives the handle up.
    pub fn give_up(&self) {
        *self.0.lock() = None;
    }

    /// Takes a handle again, if there is one.
    pub fn take(&self) {
        let mut held = self.0.lock();
        if held.is_none() {
            *held = open();
        }
    }
}

fn open() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Whether an error says that the process or the system has too many open files.
pub fn is_out_of_handles(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_handles_for_the_server() {
        let limit = |now| HandleLimit {
            before: now,
            now,
            hard: now,
        };
        for (now, most) in [(10, 1), (64, 24), (200, 160), (1024, 819), (65_536, 52_428)] {
            assert_eq!(limit(now).connections_max(), most, "{now}");
        }
        assert!(limit(u64::MAX).connections_max() > 1 << 60);
    }
}
