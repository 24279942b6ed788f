//! `mongod.lock`: only one server uses a data directory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Keeps other servers from opening a data directory, until it is dropped.
///
/// The lock is the system's (`flock`), so a crash releases it. The file holds the process id; a clean
/// shutdown empties it, so text in it at the start means that the last shutdown was not clean.
#[derive(Debug)]
pub struct LockFile {
    file: File,
    unclean: bool,
}

/// Why a data directory cannot be used.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds the lock; its id, if it could be read.
    Taken(PathBuf, Option<u32>),
    /// The file cannot be created, read or written.
    Io(PathBuf, std::io::Error),
}

impl std::fmt::Display for LockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LockError::Taken(path, pid) => {
                write!(
                    f,
                    "the data directory {} is in use by another server",
                    path.display()
                )?;
                match pid {
                    Some(pid) => write!(f, " (process {pid})"),
                    None => Ok(()),
                }
            }
            LockError::Io(path, error) if error.kind() == std::io::ErrorKind::NotFound => {
                write!(f, "the data directory {} does not exist", path.display())
            }
            LockError::Io(path, error) => {
                write!(
                    f,
                    "cannot use the data directory {}: {error}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for LockError {}

impl LockFile {
    /// Locks a directory, which must exist.
    pub fn take(directory: &Path) -> Result<LockFile, LockError> {
        let io = |error| LockError::Io(directory.to_path_buf(), error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("mongod.lock"))
            .map_err(io)?;
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut text = String::new();
        // A file of another program may contain anything.
        let _ = (&mut file).take(64).read_to_string(&mut text);
        match locked {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LockError::Taken(
                    directory.to_path_buf(),
                    text.trim().parse().ok(),
                ));
            }
            Err(error) => return Err(io(error.into())),
        }
        file.set_len(0).map_err(io)?;
        file.rewind().map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        file.sync_all().map_err(io)?;
        Ok(LockFile {
            file,
            unclean: !text.trim().is_empty(),
        })
    }

    /// Locks a directory without a change to it, while it is read. `None` if no server has ever used it.
    pub fn hold(directory: &Path) -> Result<Option<File>, LockError> {
        let io = |error| LockError::Io(directory.to_path_buf(), error);
        std::fs::read_dir(directory).map_err(io)?;
        let mut file = match File::open(directory.join("mongod.lock")) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = (&mut file).take(64).read_to_string(&mut text);
                let pid = text.trim().parse().ok();
                Err(LockError::Taken(directory.to_path_buf(), pid))
            }
            Err(error) => Err(io(error.into())),
        }
    }

    /// True if the last server in the directory did not shut down cleanly.
    pub fn was_unclean(&self) -> bool {
        self.unclean
    }

    /// Records a clean shutdown and releases the lock.
    pub fn release(self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let lock = LockFile::take(directory.path()).unwrap();
        assert!(!lock.was_unclean());
        let error = LockFile::take(directory.path()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("(process {})", std::process::id())),
            "{error}"
        );
        lock.release().unwrap();
        let crashed = LockFile::take(directory.path()).unwrap();
        assert!(!crashed.was_unclean());
        drop(crashed);
        assert!(LockFile::take(directory.path()).unwrap().was_unclean());
    }

    #[test]
    fn readers_keep_servers_out_and_change_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert!(LockFile::hold(directory.path()).unwrap().is_none());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let lock = LockFile::take(directory.path()).unwrap();
        assert!(matches!(
            LockFile::hold(directory.path()),
            Err(LockError::Taken(_, Some(_)))
        ));
        drop(lock);
        let held = LockFile::hold(directory.path()).unwrap();
        assert!(held.is_some() && LockFile::take(directory.path()).is_err());
        drop(held);
        assert!(LockFile::take(directory.path()).unwrap().was_unclean());
        let error = LockFile::hold(Path::new("/nonexistent/x")).unwrap_err();
        assert!(error.to_string().ends_with("does not exist"));
    }

    #[test]
    fn a_directory_must_exist() {
        let error = LockFile::take(Path::new("/nonexistent/x"))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "the data directory /nonexistent/x does not exist");
    }
}
