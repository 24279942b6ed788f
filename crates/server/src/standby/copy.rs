//! The copy of the primary that a standby begins with.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{Doc, Value, doc};
use frond_client::{Client, Error, Uri};
use frond_store::backup::{RestorePoint, RestoreTarget};

use super::start_error::StartError;
use crate::observability::log::{Component, Log};

/// The folder of a copy that is not complete.
const FOLDER: &str = "standby-copy";

/// The waits between two attempts: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The interval at which the log reports the progress of the copy.
const REPORT: Duration = Duration::from_secs(10);

/// Why an attempt failed.
enum Failure {
    /// The connection: it is tried again.
    Lost(Error),
    Final(StartError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Server { .. } | Error::Uri(_) | Error::Settings(_) => {
                Failure::Final(StartError::new(format!("the copy of the primary: {error}")))
            }
            other => Failure::Lost(other),
        }
    }
}

impl From<frond_store::Error> for Failure {
    fn from(error: frond_store::Error) -> Failure {
        Failure::Final(StartError::new(format!(
            "the copy of the primary: {}",
            error.message()
        )))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Final(error.into())
    }
}

/// Fills an empty data directory with a copy of the primary. False if `stop` was set meanwhile.
///
/// # Errors
/// Refusals of the primary, damage, errors of the file system.
pub(super) fn fill(
    path: &Path,
    uri: &Uri,
    log: &Log,
    stop: &Arc<AtomicBool>,
) -> Result<bool, StartError> {
    let mut pause = PAUSE_MIN;
    let folder = path.join(FOLDER);
    loop {
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        match copy(&folder, uri, log, stop) {
            Ok(()) => break,
            Err(_) if stop.load(Ordering::SeqCst) => return Ok(false),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Lost(error)) => {
                let attributes =
                    doc! {"error": error.to_string(), "primary": uri.address.host_and_port()};
                log.warning(
                    Component::Control,
                    9_922_030,
                    "follow",
                    "The copy of the primary was interrupted, and begins anew",
                    &attributes,
                );
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    take_over(&folder, path)?;
    Ok(true)
}

/// Moves the files of a complete copy into the data directory, the data file last: without it a directory has no store.
fn take_over(folder: &Path, path: &Path) -> std::io::Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.file_name());
    }
    names.sort_by_key(|name| name == "data.frond");
    for name in names {
        std::fs::rename(folder.join(&name), path.join(&name))?;
    }
    std::fs::remove_dir(folder)?;
    std::fs::File::open(path)?.sync_all()
}

fn copy(folder: &Path, uri: &Uri, log: &Log, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut client = Client::connect(uri, stop.clone())?;
    let mut target = RestoreTarget::create(folder)?;
    let mut head = Vec::new();
    let mut progress = Progress {
        log,
        began: Instant::now(),
        last_logged: Instant::now(),
        bytes: 0,
    };
    progress.log("The copy of the primary begins");
    let mut reply = client.command(
        "admin",
        &doc! {"aggregate": 1, "pipeline": [{"$backupStream": {"log": "once"}}], "cursor": {}},
    )?;
    loop {
        let cursor = reply.get_doc("cursor").unwrap_or(Doc::empty());
        let batch = cursor
            .get_array("nextBatch")
            .or_else(|| cursor.get_array("firstBatch"))
            .unwrap_or(Doc::empty());
        for part in batch.values().filter_map(|part| part.as_doc()) {
            progress.bytes += part.len_bytes() as u64;
            take(part, &mut target, &mut head)?;
        }
        progress.log_at_intervals();
        let id = cursor.get_i64("id").unwrap_or(0);
        if id == 0 {
            break;
        }
        reply = client.command(
            "admin",
            &doc! {"getMore": id, "collection": "$cmd.aggregate"},
        )?;
    }
    if head.is_empty() {
        return Err(Failure::Lost(Error::Protocol(
            "the copy has no end".to_owned(),
        )));
    }
    target.finish(&head, RestorePoint::End)?;
    progress.log("The copy of the primary is complete");
    Ok(())
}

/// Writes a part of the copy.
fn take(part: &Doc, target: &mut RestoreTarget, head: &mut Vec<u8>) -> Result<(), Failure> {
    let wrong = || {
        Failure::Lost(Error::Protocol(format!(
            "a part of the copy: {}",
            part.get_str("t").unwrap_or("?")
        )))
    };
    let bytes = match part.get("bytes") {
        Some(Value::Binary { bytes, .. }) => Some(bytes),
        _ => None,
    };
    let number = |name: &str| {
        part.get_i64(name)
            .and_then(|at| u64::try_from(at).ok())
            .ok_or_else(wrong)
    };
    match part.get_str("t") {
        Some("head") => *head = bytes.ok_or_else(wrong)?.to_vec(),
        Some("data") => target.extent(number("offset")?, bytes.ok_or_else(wrong)?)?,
        Some("log") => target.log(number("from")?, number("to")?, bytes.ok_or_else(wrong)?)?,
        Some("begin" | "extents" | "mark" | "end") => {}
        _ => return Err(wrong()),
    }
    Ok(())
}

/// The lines of the log.
struct Progress<'a> {
    log: &'a Log,
    began: Instant,
    last_logged: Instant,
    bytes: u64,
}

impl Progress<'_> {
    fn log(&mut self, text: &str) {
        self.last_logged = Instant::now();
        let attributes = doc! {
            "bytes": i64::try_from(self.bytes).unwrap_or(i64::MAX), "seconds": self.began.elapsed().as_secs_f64(),
        };
        self.log
            .info(Component::Control, 9_922_031, "follow", text, &attributes);
    }

    fn log_at_intervals(&mut self) {
        if self.last_logged.elapsed() >= REPORT {
            self.log("The primary is being copied");
        }
    }
}
