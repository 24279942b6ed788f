//! Files and folders for the owner only, and files of folders that may come from someone else.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// From here on the process creates files and folders that only its owner may use.
pub fn only_for_owner() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Options that do not follow a link, and do not wait for the other end of a pipe.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options
        .mode(FILE_MODE)
        .custom_flags(flags.bits().cast_signed());
    options
}

/// Opens a file, which must be a regular one.
fn opened(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.open(path).map_err(|error| {
        let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if is_link { link() } else { error }
    })?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    Ok(file)
}

fn link() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is a symbolic link, which is not followed here",
    )
}

/// Opens a file for reading.
///
/// # Errors
/// A link, something that is no regular file, and those of the file system.
pub fn open(path: &Path) -> io::Result<File> {
    opened(options().read(true), path)
}

/// Opens a file that exists for writing.
///
/// # Errors
/// As [`open`].
pub fn open_to_write(path: &Path) -> io::Result<File> {
    opened(options().write(true), path)
}

/// Creates a file; one of this name is an error.
///
/// # Errors
/// Those of the file system.
pub fn create_new(path: &Path) -> io::Result<File> {
    opened(options().write(true).create_new(true), path)
}

/// Creates a file, or empties the one that is there and makes it private.
///
/// # Errors
/// As [`open`].
pub fn replace(path: &Path) -> io::Result<File> {
    let file = opened(options().write(true).create(true).truncate(false), path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o777 & !FILE_MODE != 0 {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    file.set_len(0)?;
    Ok(file)
}

/// Opens a file for writes at its end, and creates it if need be.
///
/// # Errors
/// As [`open`].
pub fn append(path: &Path) -> io::Result<File> {
    opened(options().append(true).create(true), path)
}

/// Checks that a folder is one, and not a link to one. One that does not exist is fine.
///
/// # Errors
/// A link, something that is no folder, and those of the file system.
pub fn check_folder(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(link()),
        Ok(found) if !found.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates a folder inside of one that exists. Returns whether it is new.
///
/// # Errors
/// As [`check_folder`].
pub fn create_folder(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            check_folder(path).map(|()| false)
        }
        Err(error) => Err(error),
    }
}

/// Creates a folder that a user has named, with its parents. It, and they, may be links.
///
/// # Errors
/// Those of the file system.
pub fn folder_with_parents(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .mode(FOLDER_MODE)
        .recursive(true)
        .create(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    type Opens = fn(&Path) -> io::Result<File>;
    const ALL: [Opens; 5] = [open, open_to_write, create_new, replace, append];

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_created_is_for_the_owner_only() {
        // The modes are asked for, so they hold under every umask, that of this process too.
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        folder_with_parents(&folder).unwrap();
        assert!(create_folder(&folder.join("c")).unwrap());
        assert!(!create_folder(&folder.join("c")).unwrap());
        for path in ["a", "a/b", "a/b/c"] {
            assert_eq!(mode(&root.path().join(path)), 0o700, "{path}");
        }
        for (name, create) in [
            ("new", create_new as Opens),
            ("replaced", replace),
            ("appended", append),
        ] {
            let path = folder.join(name);
            create(&path).unwrap();
            assert_eq!(mode(&path), 0o600, "{name}");
        }
    }

    #[test]
    fn a_file_that_is_replaced_becomes_private() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        replace(&path).unwrap().write_all(b"now").unwrap();
        assert_eq!(
            (mode(&path), fs::read(&path).unwrap()),
            (0o600, b"now".to_vec())
        );
    }

    #[test]
    fn links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (target, folder) = (root.path().join("target"), root.path().join("folder"));
        fs::write(&target, "untouched").unwrap();
        fs::create_dir(&folder).unwrap();
        let names = [
            (target.clone(), "to-file"),
            (root.path().join("nothing"), "to-nothing"),
            (folder.clone(), "to-folder"),
        ];
        for (to, name) in &names {
            let path = root.path().join(name);
            symlink(to, &path).unwrap();
            for open in ALL {
                let error = open(&path).unwrap_err().to_string();
                assert!(error.contains("symbolic link"), "{name}: {error}");
            }
            for check in [check_folder(&path), create_folder(&path).map(|_| ())] {
                let error = check.unwrap_err().to_string();
                assert!(error.contains("symbolic link"), "{name}: {error}");
            }
        }
        assert!(!root.path().join("nothing").exists());
        assert_eq!(fs::read(&target).unwrap(), b"untouched");
        // A folder that the user names may be a link.
        folder_with_parents(&root.path().join("to-folder/x")).unwrap();
    }

    #[test]
    fn only_regular_files_are_opened() {
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for open in ALL {
            assert!(open(&socket).is_err());
            assert!(open(root.path()).is_err());
        }
        for open in [super::open as Opens, open_to_write, replace] {
            let error = open(Path::new("/dev/null")).unwrap_err().to_string();
            assert!(error.contains("no regular file"), "{error}");
        }
        assert!(check_folder(Path::new("/dev/null")).is_err());
        assert!(check_folder(&root.path().join("none")).is_ok());
    }
}
