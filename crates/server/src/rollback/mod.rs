//! Documents that a former primary discards, in files for the operator.
//!
//! A primary that lost its majority may have commits that the set has replaced meanwhile. None of them was acknowledged with
//! `w: "majority"`. Before its store is opened again without them, the documents that they inserted or changed are written as they are
//! then, as MongoDB does:
//! ```text
//! DBPATH/rollback/<UUID of the collection>/removed.<time>.0.bson
//! ```
//! The files have the format of `mongodump`. Documents that were removed come back, so there is nothing to save of them. Commands
//! (`create`, `drop`, indexes) have no files; their number is in the log.
//!
//! Commits that were in the log only are not written: those of a primary whose process was killed, which another leader replaces
//! before they are in the trees again.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use frond_bson::{Timestamp, doc, uuid_text};
use frond_store::encryption::FileCipher;
use frond_store::{DiscardedEntries, DocumentStore, OpContext};

use crate::host::clock::now_ms;
use crate::observability::log::{Component, Log, iso_ms};

/// The folder in the data directory.
const FOLDER: &str = "rollback";
/// The documents of one rollback take this many bytes at most: MongoDB's limit of data that it rolled back, until 4.0. The number of the
/// others is in the log.
const BYTES_MAX: u64 = 300 << 20;
/// Files that are open at once.
const OPEN_MAX: usize = 64;

/// The entries that a rollback discards, and the documents that were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The entries of the oplog that are discarded.
    pub entries: DiscardedEntries,
    /// Documents that were written, and their bytes.
    pub documents: u64,
    pub bytes: u64,
    /// Documents beyond the limit, which were not written.
    pub left_out: u64,
    /// One for each collection.
    pub files: Vec<PathBuf>,
}

/// Writes the documents that commits after the time of the commit point have inserted or changed, as they are now, durably. `after` is
/// `store.oplog().durable()`. To be called when the member has ended and before the store is closed.
///
/// # Errors
/// Errors of the store and of the file system. What was written until then stays.
pub fn write_files(
    store: &DocumentStore,
    after: Timestamp,
    db_path: &Path,
    log: &Log,
) -> io::Result<Summary> {
    let summary = write_up_to(store, after, db_path, BYTES_MAX)?;
    let long = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let found = &summary.entries;
    let mut attributes = doc! {
        "entries": long(found.entries), "operations": long(found.operations), "commands": long(found.commands),
        "documents": long(summary.documents), "absent": long(found.absent), "bytes": long(summary.bytes),
        "collections": summary.files.len() as i64, "after": after, "first": found.first, "last": found.last,
        "folder": db_path.join(FOLDER).display().to_string(),
    };
    if summary.left_out > 0 {
        attributes.push("leftOut", long(summary.left_out));
        attributes.push("bytesMax", long(BYTES_MAX));
    }
    let text = match summary.left_out {
        0 => {
            "Rollback: commits that the replica set has replaced are discarded; their documents are in files"
        }
        _ => {
            "Rollback: commits that the replica set has replaced are discarded; files have only a part of their documents"
        }
    };
    log.warning(Component::Control, 9_924_010, "rollback", text, &attributes);
    Ok(summary)
}

fn write_up_to(
    store: &DocumentStore,
    after: Timestamp,
    db_path: &Path,
    bytes_max: u64,
) -> io::Result<Summary> {
    let cipher = store.file_cipher();
    let cipher = cipher.map_err(|error| io::Error::other(error.message()))?;
    let mut files = Files {
        folder: db_path.join(FOLDER),
        name: match &cipher {
            None => format!("removed.{}.0.bson", file_time(now_ms())),
            Some(_) => format!("removed.{}.0.bson.encrypted", file_time(now_ms())),
        },
        cipher,
        open: HashMap::new(),
        written: Vec::new(),
    };
    let mut summary = Summary::default();
    let mut failure = None;
    let entries = store.visit_discarded(after, &OpContext::new(), &mut |discarded| {
        let bytes = discarded.document.as_bytes();
        if failure.is_some() || summary.bytes + bytes.len() as u64 > bytes_max {
            summary.left_out += 1;
            return Ok(());
        }
        match files.write(discarded.uuid, bytes) {
            Ok(()) => {
                summary.documents += 1;
                summary.bytes += bytes.len() as u64;
            }
            Err(error) => failure = Some(error),
        }
        Ok(())
    });
    if let Some(error) = failure {
        return Err(error);
    }
    summary.entries = entries.map_err(|error| io::Error::other(error.message()))?;
    summary.files = files.finish()?;
    Ok(summary)
}

/// The time in the name of a file: MongoDB writes `2026-11-28T11-05-00`.
fn file_time(ms: i64) -> String {
    let text = iso_ms(ms);
    text.chars()
        .take(19)
        .map(|it| if it == ':' { '-' } else { it })
        .collect()
}

/// The files of a rollback, one for each collection.
struct Files {
    folder: PathBuf,
    name: String,
    /// If the store is encrypted.
    cipher: Option<FileCipher>,
    open: HashMap<[u8; 16], BufWriter<File>>,
    written: Vec<PathBuf>,
}

impl Files {
    fn write(&mut self, uuid: &[u8; 16], document: &[u8]) -> io::Result<()> {
        if !self.open.contains_key(uuid) {
            if self.open.len() >= OPEN_MAX {
                self.close()?;
            }
            frond_files::create_folder(&self.folder)?;
            let folder = self.folder.join(uuid_text(uuid));
            frond_files::create_folder(&folder)?;
            let path = folder.join(&self.name);
            let file = frond_files::append(&path)?;
            if !self.written.contains(&path) {
                self.written.push(path);
            }
            self.open.insert(*uuid, BufWriter::new(file));
        }
        match self.open.get_mut(uuid) {
            Some(file) => match &self.cipher {
                Some(cipher) => cipher.write(file, uuid_text(uuid).as_bytes(), document),
                None => file.write_all(document),
            },
            None => Ok(()),
        }
    }

    /// Makes all files durable, and closes them.
    fn close(&mut self) -> io::Result<()> {
        for (_, mut file) in self.open.drain() {
            file.flush()?;
            file.get_ref().sync_all()?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<Vec<PathBuf>> {
        self.close()?;
        for path in &self.written {
            if let Some(folder) = path.parent() {
                File::open(folder)?.sync_all()?;
            }
        }
        if !self.written.is_empty() {
            File::open(&self.folder)?.sync_all()?;
            if let Some(parent) = self.folder.parent() {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(self.written)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
