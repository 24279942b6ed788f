//! Files that survive a crash.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::error::{Error, Result};

/// Makes the entries of a folder durable.
pub fn sync_folder(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(Error::io("syncing", path))
}

/// Writes a file so that it is there as a whole or not at all.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension("tmp");
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(Error::io("writing", &temporary))?;
    rename(&temporary, path)
}

/// Renames a file or a folder, durably.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::io("renaming", from))?;
    match to.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Creates a folder with its parents; one that is there is fine.
pub fn create_folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(Error::io("creating", path))?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => sync_folder(folder),
        _ => Ok(()),
    }
}

/// The names in a folder, sorted; none if it does not exist.
pub fn names(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("reading", path)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("reading", path))?;
        found.push(entry.file_name().to_string_lossy().into_owned());
    }
    found.sort();
    Ok(found)
}
