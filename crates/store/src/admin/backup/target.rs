//! A data directory that is restored.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frond_encryption::StoreKeys;

use crate::encryption::{self, KEY_STORE_FILE, MasterKey};
use frond_storage::error::{Error, Result};
use frond_storage::keyspace::{
    DATA_FILE, EngineError, EngineOptions, RestorePoint, Restored, finish_restore, groups_after,
    log_file_name,
};
use frond_storage::merge::merge_operator;

/// The folder of the files until the directory is complete. No server takes it for a data directory.
const UNFINISHED: &str = "restoring";
/// A file of the log is closed when it is this long.
const LOG_FILE_BYTES: u64 = 64 << 20;
/// Bytes of the head that are of the data file. The key store of an encrypted store follows them.
const HEAD_BYTES: usize = 8192;
/// Bytes written between two syncs, so that the system never has much to write at once.
const SYNC_BYTES: u64 = 256 << 20;

/// The part of groups of the log that begins at a position. `None` if no group begins there, or if they are no groups.
pub fn after(groups: &[u8], position: u64) -> Option<&[u8]> {
    groups_after(groups, position)
}

/// Writes the files of a data directory: extents, then the log, then the head.
pub struct RestoreTarget {
    path: PathBuf,
    unfinished: PathBuf,
    data: File,
    log: Option<(File, u64)>,
    log_end: Option<u64>,
    unsynced: u64,
    master: Option<MasterKey>,
    /// The store keys, if they are known without a master key.
    keys: Option<Arc<StoreKeys>>,
}

impl RestoreTarget {
    /// Begins in a directory that is empty or does not exist. What an interrupted restore left there is removed.
    ///
    /// # Errors
    /// If the directory is not empty; errors of the disk.
    pub fn create(path: &Path) -> Result<RestoreTarget> {
        fs::create_dir_all(path).map_err(io("creating", path))?;
        let unfinished = path.join(UNFINISHED);
        for entry in fs::read_dir(path).map_err(io("reading", path))? {
            let entry = entry.map_err(io("reading", path))?;
            if entry.file_name() != UNFINISHED && entry.file_name() != "lost+found" {
                let text = format!(
                    "{} is not empty: it has {}; a restore needs an empty directory",
                    path.display(),
                    entry.file_name().to_string_lossy()
                );
                return Err(EngineError::InvalidOption(text).into());
            }
        }
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(io("removing", &unfinished))?;
        }
        fs::create_dir(&unfinished).map_err(io("creating", &unfinished))?;
        let data_path = unfinished.join(DATA_FILE);
        let mut options = OpenOptions::new();
        let data = options.write(true).create_new(true).open(&data_path);
        Ok(RestoreTarget {
            path: path.to_owned(),
            data: data.map_err(io("creating", &data_path))?,
            unfinished,
            log: None,
            log_end: None,
            unsynced: 0,
            master: None,
            keys: None,
        })
    }

    /// The same, with the master key of an encrypted store.
    pub fn with_master_key(self, master: Option<MasterKey>) -> RestoreTarget {
        RestoreTarget { master, ..self }
    }

    /// The same, with the store keys of the store that is copied.
    pub(crate) fn with_store_keys(self, keys: Option<Arc<StoreKeys>>) -> RestoreTarget {
        RestoreTarget { keys, ..self }
    }

    /// Writes a part of the data file.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn extent(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.data.write_all_at(bytes, offset);
        written.map_err(io("writing", &self.unfinished.join(DATA_FILE)))?;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            let synced = self.data.sync_data();
            synced.map_err(io("syncing", &self.unfinished.join(DATA_FILE)))?;
        }
        Ok(())
    }

    /// The position after the log that was written.
    pub fn log_end(&self) -> Option<u64> {
        self.log_end
    }

    /// Appends groups of the log. Of groups that are there already only the rest is written.
    ///
    /// # Errors
    /// If they do not continue the log; errors of the disk.
    pub fn log(&mut self, from: u64, to: u64, groups: &[u8]) -> Result<()> {
        let (mut start, mut rest) = (from, groups);
        if let Some(end) = self.log_end {
            if to <= end {
                return Ok(());
            }
            if from > end {
                let text = format!("the log has a gap from position {end} to {from}");
                return Err(EngineError::InvalidOption(text).into());
            }
            let text = || format!("no group of the log begins at position {end}");
            let found = after(groups, end);
            rest = found.ok_or_else(|| EngineError::InvalidOption(text()))?;
            start = end;
        }
        if self
            .log
            .as_ref()
            .is_none_or(|(_, len)| *len >= LOG_FILE_BYTES)
        {
            self.end_log_file()?;
            let path = self.unfinished.join(log_file_name(start));
            let file = File::create(&path).map_err(io("creating", &path))?;
            self.log = Some((file, 0));
        }
        if let Some((file, len)) = &mut self.log {
            file.write_all(rest)
                .map_err(io("writing the log in", &self.unfinished))?;
            *len += rest.len() as u64;
        }
        self.log_end = Some(to);
        Ok(())
    }

    fn end_log_file(&mut self) -> Result<()> {
        match self.log.take() {
            Some((file, _)) => file
                .sync_data()
                .map_err(io("syncing the log in", &self.unfinished)),
            None => Ok(()),
        }
    }

    /// Completes the directory: ends the log at a moment, replays it, and names the new store. Indexes whose entries the log does not
    /// have are built when the store is opened next.
    ///
    /// # Errors
    /// If the copy and the log do not make the moment; damage; errors of the disk.
    pub fn finish(self, head: &[u8], point: RestorePoint) -> Result<Restored> {
        self.finish_as(head, point, false)
    }

    /// As [`RestoreTarget::finish`], with all of the log of a copy of a member of a replica set: the directory becomes that of a member
    /// whose log has the same entries. It has no vote.
    ///
    /// # Errors
    /// As [`RestoreTarget::finish`].
    pub fn finish_as_member(self, head: &[u8]) -> Result<Restored> {
        self.finish_as(head, RestorePoint::End, true)
    }

    /// Writes the file with the store keys of a copy that is encrypted.
    fn write_key_store(&self, bytes: &[u8]) -> Result<()> {
        let refused = |text: &str| Err(EngineError::InvalidOption(text.to_owned()).into());
        let has_key = self.master.is_some() || self.keys.is_some();
        match (bytes.is_empty(), has_key) {
            (true, false) => return Ok(()),
            (true, true) => {
                return refused(
                    "the copy is not encrypted, and it is restored with a master key; leave the key out, and make an encrypted \
                     copy of the result with `frond salvage`",
                );
            }
            (false, false) => {
                return refused(
                    "the copy is encrypted: its master key is needed (--encryptionKeyFile or --encryptionKeyCommand)",
                );
            }
            (false, true) => {}
        }
        let path = self.unfinished.join(KEY_STORE_FILE);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(io("creating", &path))?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written.map_err(io("writing", &path))
    }

    fn finish_as(mut self, head: &[u8], point: RestorePoint, member: bool) -> Result<Restored> {
        self.end_log_file()?;
        let (head, key_store) = head.split_at(head.len().min(HEAD_BYTES));
        self.extent(0, head)?;
        self.write_key_store(key_store)?;
        let synced = self.data.sync_all();
        synced.map_err(io("syncing", &self.unfinished.join(DATA_FILE)))?;
        sync_folder(&self.unfinished)?;
        let keys = match &self.keys {
            Some(keys) => Some(keys.clone()),
            None => encryption::open_existing(&self.unfinished, self.master.as_ref())?
                .map(|opened| opened.keys().clone()),
        };
        let plain = EngineOptions::new(&self.unfinished);
        let restored = finish_restore(
            EngineOptions {
                merge: merge_operator(),
                member,
                disk: encryption::with_keys(&self.unfinished, plain.disk.clone(), keys.as_ref())?,
                ..plain
            },
            point,
        )?;
        // The data file last: without it a directory has no store.
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.unfinished).map_err(io("reading", &self.unfinished))? {
            names.push(entry.map_err(io("reading", &self.unfinished))?.file_name());
        }
        names.sort_by_key(|name| name == DATA_FILE);
        for name in names {
            let from = self.unfinished.join(&name);
            fs::rename(&from, self.path.join(&name)).map_err(io("renaming", &from))?;
        }
        fs::remove_dir(&self.unfinished).map_err(io("removing", &self.unfinished))?;
        sync_folder(&self.path)?;
        Ok(restored)
    }

    /// Removes what was written.
    pub fn discard(self) {
        // The next attempt removes it, too.
        let _ = fs::remove_dir_all(&self.unfinished);
    }
}

fn sync_folder(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(io("syncing", path))
}

fn io(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let context = format!("{doing} {}", path.display());
    move |source| EngineError::Io { context, source }.into()
}
