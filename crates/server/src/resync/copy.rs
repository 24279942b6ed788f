//! The copy of a running server's store, which `$backupStream` sends.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frond_bson::{Doc, Value, doc};
use frond_client::{Client, Error, Uri};
use frond_replica::EntryId;
use frond_store::backup::RestoreTarget;
use frond_store::encryption::MasterKey;

/// Why a copy failed.
#[derive(Debug)]
pub enum CopyError {
    /// The connection ended, or the source sent something that is no copy.
    Lost(Error),
    /// The source refused to be copied, or the connection string is of no use.
    Refused(Error),
    /// The files could not be written, or do not make a store.
    Store(frond_store::Error),
    /// There is no room for the copy.
    NoRoom { needed: u64, free: u64 },
    /// The copy has indexes whose entries it lacks, because the source was loading them.
    Unfinished,
}

impl From<Error> for CopyError {
    fn from(error: Error) -> CopyError {
        match error {
            Error::Server { .. } | Error::Uri(_) | Error::Settings(_) => CopyError::Refused(error),
            other => CopyError::Lost(other),
        }
    }
}

impl From<frond_store::Error> for CopyError {
    fn from(error: frond_store::Error) -> CopyError {
        CopyError::Store(error)
    }
}

impl std::fmt::Display for CopyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CopyError::Lost(error) | CopyError::Refused(error) => write!(f, "{error}"),
            CopyError::Store(error) => f.write_str(&error.message()),
            CopyError::NoRoom { needed, free } => write!(
                f,
                "the file system of the data directory has {free} bytes free, and the copy needs {needed}; free some space, the copy is \
                 tried again"
            ),
            CopyError::Unfinished => f.write_str(
                "the source was loading an index while it was copied, so its entries are missing",
            ),
        }
    }
}

/// Bytes of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes that were received.
    pub bytes: u64,
    /// Bytes of the data file of the source, once it has sent them.
    pub total: Option<u64>,
}

/// Copies the store of the server at `uri` into `folder`, which is empty or does not exist, as that of another member of its replica
/// set. `master` is the master key that both have if they are encrypted. When this returns, the copy is durable and closed. `report` is called for each reply. Returns the last entry of its log.
///
/// # Errors
/// See [`CopyError`]. The folder is to be removed then.
pub fn copy(
    folder: &Path,
    uri: &Uri,
    master: Option<MasterKey>,
    stop: &Arc<AtomicBool>,
    report: &mut dyn FnMut(Copied),
) -> Result<Option<EntryId>, CopyError> {
    let mut client = Client::connect(uri, stop.clone())?;
    let mut target = RestoreTarget::create(folder)?.with_master_key(master);
    let (mut head, mut copied) = (Vec::new(), Copied::default());
    report(copied);
    // A secondary may be the source, too.
    let mut reply = client.command(
        "admin",
        &doc! {
            "aggregate": 1, "pipeline": [{"$backupStream": {"log": "once"}}], "cursor": {},
            "$readPreference": {"mode": "nearest"},
        },
    )?;
    let mut has_ended = false;
    loop {
        let cursor = reply.get_doc("cursor").unwrap_or(Doc::empty());
        let batch = cursor
            .get_array("nextBatch")
            .or_else(|| cursor.get_array("firstBatch"))
            .unwrap_or(Doc::empty());
        for part in batch.values().filter_map(|part| part.as_doc()) {
            copied.bytes += part.len_bytes() as u64;
            match part.get_str("t") {
                Some("begin") => {
                    let total = part.get_i64("bytes").and_then(|it| u64::try_from(it).ok());
                    copied.total = total;
                    check_room(folder, total.unwrap_or(0))?;
                }
                Some("end") => has_ended = true,
                _ => take(part, &mut target, &mut head)?,
            }
        }
        report(copied);
        let id = cursor.get_i64("id").unwrap_or(0);
        if id == 0 {
            break;
        }
        reply = client.command(
            "admin",
            &doc! {"getMore": id, "collection": "$cmd.aggregate"},
        )?;
    }
    if head.is_empty() || !has_ended {
        return Err(CopyError::Lost(Error::Protocol(
            "the copy has no end".to_owned(),
        )));
    }
    let restored = target.finish_as_member(&head)?;
    // A member does not load indexes by itself: the log of the leader has their entries.
    if !restored.loading.is_empty() {
        return Err(CopyError::Unfinished);
    }
    Ok(restored.last_entry)
}

/// Fails if the copy does not fit into the file system. What is left then is for the log that is copied with it.
fn check_room(folder: &Path, bytes: u64) -> Result<(), CopyError> {
    /// Bytes for the files of a store besides its data: the log, its buffer, the reserve.
    const BESIDES: u64 = 64 << 20;
    let Ok(found) = rustix::fs::statvfs(folder) else {
        // The writes find out.
        return Ok(());
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let needed = bytes.saturating_add(BESIDES);
    if free < needed {
        Err(CopyError::NoRoom { needed, free })
    } else {
        Ok(())
    }
}

/// Writes a part of the copy.
fn take(part: &Doc, target: &mut RestoreTarget, head: &mut Vec<u8>) -> Result<(), CopyError> {
    let wrong = || {
        CopyError::Lost(Error::Protocol(format!(
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
        Some("extents" | "mark") => {}
        _ => return Err(wrong()),
    }
    Ok(())
}
