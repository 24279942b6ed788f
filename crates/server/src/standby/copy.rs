//! The copy of the primary that a standby begins with.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_client::Uri;

use super::start_error::StartError;
use crate::observability::log::{Component, Log};
use crate::resync::{Becomes, Copied, CopyError, PAUSE_MAX, PAUSE_MIN, copy};

/// The folder of a copy that is not complete.
const FOLDER: &str = "standby-copy";

/// The interval at which the log reports the progress of the copy.
const REPORT: Duration = Duration::from_secs(10);

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
        let mut progress = Progress::new(log);
        let copied = copy(&folder, uri, Becomes::Standalone, stop, &mut |copied| {
            progress.report(copied);
        });
        match copied {
            Ok(_) => {
                progress.log("The copy of the primary is complete");
                break;
            }
            Err(_) if stop.load(Ordering::SeqCst) => return Ok(false),
            Err(CopyError::Lost(error)) => {
                let attributes =
                    doc! {"error": error.to_string(), "primary": uri.address.host_and_port()};
                log.warning(
                    Component::Control,
                    9_922_030,
                    "follow",
                    "The copy of the primary was interrupted, and begins again",
                    &attributes,
                );
            }
            Err(error) => {
                return Err(StartError::new(format!("the copy of the primary: {error}")));
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

/// The lines of the log.
struct Progress<'a> {
    log: &'a Log,
    began: Instant,
    last_logged: Option<Instant>,
    bytes: u64,
}

impl Progress<'_> {
    fn new(log: &Log) -> Progress<'_> {
        Progress {
            log,
            began: Instant::now(),
            last_logged: None,
            bytes: 0,
        }
    }

    fn report(&mut self, copied: Copied) {
        self.bytes = copied.bytes;
        match self.last_logged {
            None => self.log("The copy of the primary begins"),
            Some(logged) if logged.elapsed() >= REPORT => self.log("The primary is being copied"),
            Some(_) => {}
        }
    }

    fn log(&mut self, text: &str) {
        self.last_logged = Some(Instant::now());
        let attributes = doc! {
            "bytes": i64::try_from(self.bytes).unwrap_or(i64::MAX), "seconds": self.began.elapsed().as_secs_f64(),
        };
        self.log
            .info(Component::Control, 9_922_031, "follow", text, &attributes);
    }
}
