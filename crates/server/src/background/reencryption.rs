//! Encryption of the data file with the current store key, after a rotation has added a key or `frond encrypt` has prepared the directory.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_store::{OpContext, Reencryption, Result};

use super::Job;
use crate::observability::log::Component;
use crate::state::Server;

/// The interval of the checks whether there is a new key, or the thread is to end.
const LOOK: Duration = Duration::from_millis(250);
/// The interval of the checks whether the log is encrypted, which read a header of each segment.
const LOOK_AT_LOG: Duration = Duration::from_secs(2);
/// The time after which an attempt that has failed is repeated.
const RETRY: Duration = Duration::from_mins(10);
/// The longest pause after a step.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Starts a thread that encrypts the data file with the current store key. After an interruption the next run of the server
/// continues.
///
/// # Errors
/// The system refuses to start a thread.
pub fn reencrypt(server: &Arc<Server>) -> std::io::Result<Job> {
    let server = server.clone();
    Job::start("frond-reencrypt", move |limits| {
        let mut waits_until: Option<(u32, Instant)> = None;
        while !Job::is_interrupted(limits) {
            let Some(keys) = server.store.keys() else {
                return;
            };
            let done = &server.maintenance.reencrypted_key;
            if keys.count == 1 && !keys.accepts_plain {
                done.store(keys.current, Relaxed);
            }
            let is_done = done.load(Relaxed) == keys.current;
            let waits =
                waits_until.is_some_and(|(key, at)| key == keys.current && Instant::now() < at);
            if waits || (is_done && !keys.accepts_plain) {
                std::thread::sleep(LOOK);
                continue;
            }
            let pause = if is_done {
                finish(&server)
            } else if reencrypt_once(&server, limits, keys.current) {
                done.store(keys.current, Relaxed);
                None
            } else {
                Some(RETRY)
            };
            waits_until = pause.map(|pause| (keys.current, Instant::now() + pause));
        }
    })
}

/// Encrypts the data file with the current key. Returns whether all of it has that key now.
fn reencrypt_once(server: &Server, limits: &OpContext, key: u32) -> bool {
    log(
        server,
        "Data without the current store key is encrypted with it",
        9_100_080,
        key,
        None,
    );
    let mut resumed = Instant::now();
    let outcome = server.store.reencrypt(|| {
        // A pause as long as the step leaves half of the time to clients.
        std::thread::sleep(resumed.elapsed().min(PAUSE_MAX));
        let is_interrupted = || Job::is_interrupted(limits);
        // The data files stay as they are while fsync holds its lock.
        while server.maintenance.fsync_lock.count() > 0 && !is_interrupted() {
            std::thread::sleep(LOOK);
        }
        resumed = Instant::now();
        !is_interrupted()
    });
    let is_done = matches!(&outcome, Ok(done) if done.is_done && done.skipped == 0);
    let said = if is_done {
        "All data has the current store key"
    } else if Job::is_interrupted(limits) {
        "The server stops before all data has the current store key; the next start goes on"
    } else {
        "Some data keeps an older store key; this is tried again in 10 minutes"
    };
    log(server, said, 9_100_081, key, Some(outcome));
    is_done
}

/// Ends the encryption of the directory. Returns the pause before the next attempt, if it could not be ended.
fn finish(server: &Server) -> Option<Duration> {
    let master = || {
        let master = server.settings.encryption.master_key();
        let master = master.map_err(|error| error.to_string())?;
        master.ok_or_else(|| "there is no master key".to_owned())
    };
    let finished = match server.store.is_log_encrypted() {
        Ok(false) => return Some(LOOK_AT_LOG),
        // The master key may come from a command, which is not called before it is needed.
        Ok(true) => master().and_then(|master| {
            let finished = server.store.finish_encryption(&master);
            finished.map_err(|error| error.message())
        }),
        Err(error) => Err(error.message()),
    };
    let (component, context) = (Component::Storage, "Reencryption");
    match finished {
        Ok(()) => {
            let said = "All data is encrypted";
            (server.log).info(component, 9_100_082, context, said, &doc! {});
            None
        }
        Err(why) => {
            let said =
                "The encryption of the data cannot be ended; this is tried again in 10 minutes";
            (server.log).warning(component, 9_100_083, context, said, &doc! {"error": why});
            Some(RETRY)
        }
    }
}

fn log(server: &Server, said: &str, id: u32, key: u32, outcome: Option<Result<Reencryption>>) {
    let mut attributes = doc! {"currentKey": i64::from(key)};
    let mut failed = false;
    match outcome {
        None => {}
        Some(Ok(done)) => {
            let long = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            attributes.push("writtenBytes", long(done.bytes));
            attributes.push("skipped", long(done.skipped));
            failed = done.skipped > 0;
        }
        Some(Err(error)) => {
            attributes.push("error", error.to_string().as_str());
            failed = true;
        }
    }
    let context = "Reencryption";
    if failed {
        (server.log).warning(Component::Storage, id, context, said, &attributes);
    } else {
        (server.log).info(Component::Storage, id, context, said, &attributes);
    }
}
