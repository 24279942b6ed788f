//! Files that survive a crash. Links inside of a repository are refused.

use std::fs::{self, File};
use std::io::{self, Read, Write};
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
    let written = frond_files::replace(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(Error::io("writing", &temporary))?;
    rename(&temporary, path)
}

/// Renames a file or a folder, durably.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::io("renaming", from))?;
    sync_parent(to)
}

/// Reads a text of at most `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text_of(frond_files::open(path)?, limit)
}

/// The text of a source, which must have at most `limit` bytes.
pub fn text_of(source: impl Read, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    source.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        let what = format!("it has more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(text)
}

/// Creates the folder that a user has named, with its parents; one that is there is fine.
pub fn create_root(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    frond_files::folder_with_parents(path).map_err(Error::io("creating", path))?;
    sync_parent(path)
}

/// Creates a folder inside of one that exists; one that is there is fine.
pub fn create_folder(path: &Path) -> Result<()> {
    if frond_files::create_folder(path).map_err(Error::io("creating", path))? {
        sync_parent(path)
    } else {
        Ok(())
    }
}

fn sync_parent(path: &Path) -> Result<()> {
    match path.parent() {
        // A relative path of one name.
        Some(folder) if folder.as_os_str().is_empty() => sync_folder(Path::new(".")),
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// The names in a folder of a repository, sorted; none if it does not exist.
pub fn names(path: &Path) -> Result<Vec<String>> {
    frond_files::check_folder(path).map_err(Error::io("reading", path))?;
    names_of_root(path)
}

/// The names in the folder that a user has named, sorted; none if it does not exist.
pub fn names_of_root(path: &Path) -> Result<Vec<String>> {
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
