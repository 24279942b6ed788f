//! The folder of a copy, and the replacement of a store by it.
//!
//! A copy is written into `incoming/` of the data directory while the old store is open. The file `COPIED` in it says that the copy is
//! complete and durable. From then on the copy counts. The next start, before it opens the store:
//! 1. removes the files of the old store, all but the vote;
//! 2. renames `COPIED` to `MOVING`: what is in the data directory from here on belongs to the copy;
//! 3. moves the files of the copy into the data directory, the data file last;
//! 4. removes `MOVING` and the folder.
//!
//! Each step is durable before the next one begins, and each can be repeated. So after a crash the next start goes on.
//!
//! The vote stays where it is. The old server votes until it stops, and its last vote is the one that counts: without it a member could
//! vote twice in one term.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of the copy in the data directory.
const FOLDER: &str = "incoming";
/// The copy is complete.
const COPIED: &str = "COPIED";
/// The old store is removed.
const MOVING: &str = "MOVING";
/// The data file. Without it a directory has no store.
const DATA_FILE: &str = "data.frond";
/// The vote of a member.
const VOTE_FILE: &str = "vote.frond";

/// The result of a start that looked for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// There was no copy.
    Nothing,
    /// A copy that was not complete was removed.
    Discarded,
    /// The store is the copy now.
    Replaced,
}

/// The folder of the copy for a data directory.
pub fn folder(db_path: &Path) -> PathBuf {
    db_path.join(FOLDER)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Marks a copy as complete, durably.
///
/// # Errors
/// Errors of the file system. It is unknown then whether the next start takes it.
pub fn accept(db_path: &Path) -> io::Result<()> {
    let folder = folder(db_path);
    File::create(folder.join(COPIED))?.sync_all()?;
    sync(&folder)?;
    sync(db_path)
}

/// Removes a copy that is not complete.
///
/// # Errors
/// Errors of the file system.
pub fn discard(db_path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder(db_path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync(db_path),
    }
}

/// Replaces the store by a complete copy, if there is one, and removes one that is not complete. No store is open.
///
/// # Errors
/// Errors of the file system. The next call goes on where this one has stopped.
pub fn replace(db_path: &Path) -> io::Result<Taken> {
    let folder = folder(db_path);
    if !folder.try_exists()? {
        return Ok(Taken::Nothing);
    }
    let (copied, moving) = (folder.join(COPIED), folder.join(MOVING));
    if !moving.try_exists()? {
        if !copied.try_exists()? {
            discard(db_path)?;
            return Ok(Taken::Discarded);
        }
        remove_store(db_path)?;
        sync(db_path)?;
        std::fs::rename(&copied, &moving)?;
        sync(&folder)?;
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let name = entry?.file_name();
        if name != MOVING && name != VOTE_FILE {
            names.push(name);
        }
    }
    names.sort_by_key(|name| name == DATA_FILE);
    for name in names {
        if name == DATA_FILE {
            sync(db_path)?;
        }
        std::fs::rename(folder.join(&name), db_path.join(&name))?;
    }
    sync(db_path)?;
    discard(db_path)?;
    Ok(Taken::Replaced)
}

/// Removes the files of a store, the data file first, so that no part of it is taken for a store.
fn remove_store(db_path: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(db_path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_of_store = (name.to_str()).is_some_and(|name| {
            // Parts of a damaged log are set aside under longer names.
            name != VOTE_FILE && (name.ends_with(".frond") || name.contains(".frond.damaged-"))
        });
        if is_of_store && entry.file_type()?.is_file() {
            names.push(name);
        }
    }
    names.sort_by_key(|name| name != DATA_FILE);
    for name in names {
        std::fs::remove_file(db_path.join(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }

    /// Names and contents of the files, in their order.
    fn read(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = (std::fs::read_dir(folder).unwrap())
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, std::fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut named: Vec<_> = (files.iter())
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        named.sort();
        named
    }

    const KEPT: [(&str, &str); 2] = [("vote.frond", "vote"), ("mongod.lock", "lock")];
    const OLD: [(&str, &str); 4] = [
        ("data.frond", "old"),
        ("log-0000.frond", "old"),
        ("log-0001.frond", "old"),
        ("log-buffer.frond", "old"),
    ];
    const NEW: [(&str, &str); 3] = [
        ("data.frond", "new"),
        ("log-0001.frond", "new"),
        ("log-0009.frond", "new"),
    ];

    #[test]
    fn a_crash_at_any_step_leaves_one_of_the_two_stores() {
        // The files of the data directory, those of the folder, what the start finds, and the store then.
        type Files<'a> = &'a [(&'a str, &'a str)];
        let mark = |name| (name, "");
        let all = [NEW[0], NEW[1], NEW[2]];
        let copied = [all[0], all[1], all[2], mark(COPIED)];
        let moving = [all[0], all[1], all[2], mark(MOVING)];
        let cases: [(&str, Files<'_>, Option<Files<'_>>, Taken, Files<'_>); 11] = [
            ("no copy", &OLD, None, Taken::Nothing, &OLD),
            ("an empty folder", &OLD, Some(&[]), Taken::Discarded, &OLD),
            (
                "not complete",
                &OLD,
                Some(&all[..2]),
                Taken::Discarded,
                &OLD,
            ),
            ("without its mark", &OLD, Some(&all), Taken::Discarded, &OLD),
            ("accepted", &OLD, Some(&copied), Taken::Replaced, &NEW),
            (
                "an empty directory",
                &[],
                Some(&copied),
                Taken::Replaced,
                &NEW,
            ),
            (
                "the old data file is gone",
                &OLD[1..],
                Some(&copied),
                Taken::Replaced,
                &NEW,
            ),
            (
                "a part of the old log is left",
                &OLD[2..3],
                Some(&copied),
                Taken::Replaced,
                &NEW,
            ),
            (
                "nothing is moved",
                &[],
                Some(&moving),
                Taken::Replaced,
                &NEW,
            ),
            (
                "the log is moved in part",
                &NEW[2..],
                Some(&[all[0], all[1], mark(MOVING)]),
                Taken::Replaced,
                &NEW,
            ),
            (
                "all is moved",
                &NEW,
                Some(&[mark(MOVING)]),
                Taken::Replaced,
                &NEW,
            ),
        ];
        for (what, files, incoming, taken, expected) in cases {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            write(path, &KEPT);
            write(path, files);
            if let Some(incoming) = incoming {
                write(&folder(path), incoming);
            }
            assert_eq!(replace(path).unwrap(), taken, "{what}");
            assert_eq!(read(path), named(&[&KEPT, expected].concat()), "{what}");
            assert!(!folder(path).exists(), "{what}");
            assert_eq!(replace(path).unwrap(), Taken::Nothing, "{what}");
        }
    }

    #[test]
    fn the_vote_of_a_copy_is_never_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        write(path, &KEPT);
        write(
            &folder(path),
            &[NEW[0], ("vote.frond", "of another member")],
        );
        accept(path).unwrap();
        assert_eq!(replace(path).unwrap(), Taken::Replaced);
        assert_eq!(read(path), named(&[KEPT[0], KEPT[1], NEW[0]]));
    }
}
