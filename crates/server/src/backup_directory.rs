//! Which directories the server may copy itself into.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use frond_error::{Error, ErrorCode, Result};

/// The directory that a client names, without links and `..`.
///
/// # Errors
/// A relative path, the data directory with all that is in it and around it, and what is not below `root`, if there is one.
pub fn resolve(named: &Path, data: &Path, root: Option<&Path>) -> Result<PathBuf> {
    if !named.is_absolute() {
        return Err(invalid("Destination path must be absolute"));
    }
    let path = real_path(named)?;
    let is_same = |one: &Path, other: &Path| match (identity(one), identity(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    };
    let data = real_path(data)?;
    if path.ancestors().any(|one| is_same(one, &data)) {
        return Err(invalid(
            "Destination path must not be in the data directory of the server",
        ));
    }
    if data.ancestors().any(|one| is_same(one, &path)) {
        return Err(invalid(
            "Destination path must not have the data directory of the server in it",
        ));
    }
    if let Some(root) = root {
        let root = root.canonicalize().map_err(|error| {
            let root = root.display();
            invalid(format!("the directory of all backups, {root}: {error}"))
        })?;
        if path == root || !path.starts_with(&root) {
            return Err(invalid(format!(
                "Destination path must be below {} (backup.root)",
                root.display()
            )));
        }
    }
    Ok(path)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::from_code(30), message)
}

/// The device and the number of a directory, which it keeps under every name.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino()))
}

/// A path whose last parts may not exist yet, as the system resolves it.
fn real_path(path: &Path) -> Result<PathBuf> {
    let failed = |error: io::Error| {
        invalid(format!(
            "Destination path cannot be used: {}: {error}",
            path.display()
        ))
    };
    let (mut there, mut missing) = (path, Vec::new());
    let mut real = loop {
        match there.canonicalize() {
            Ok(real) => break real,
            // A link that leads nowhere would be followed when the directory is created.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link(there) => {
                let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
                    return Err(failed(error));
                };
                missing.push(name);
                there = parent;
            }
            Err(error) => return Err(failed(error)),
        }
    };
    real.extend(missing.iter().rev());
    Ok(real)
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|found| found.is_symlink())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::create_dir_all;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn copies_stay_out_of_the_data_and_below_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        let data = at.join("srv/data");
        create_dir_all(data.join("journal")).unwrap();
        create_dir_all(at.join("backups/old")).unwrap();
        symlink(&data, at.join("to-data")).unwrap();
        symlink(at.join("backups"), at.join("to-backups")).unwrap();
        symlink(&at, at.join("backups/out")).unwrap();
        symlink(at.join("nowhere"), at.join("backups/broken")).unwrap();
        let (free, rooted) = (None, Some(at.join("backups")));
        // The path, where it leads, and whether it is taken without a root and with one.
        for (path, leads, is_free, is_rooted) in [
            ("elsewhere/new", "elsewhere/new", true, false),
            ("backups/new", "backups/new", true, true),
            ("backups/old/../a/b", "backups/a/b", true, true),
            ("to-backups/a", "backups/a", true, true),
            ("backups", "backups", true, false),
            ("backups/../x", "x", true, false),
            ("backups/out/x", "x", true, false),
            ("backups2/x", "backups2/x", true, false),
            ("backups/broken", "", false, false),
            ("backups/broken/x", "", false, false),
            ("none/../backups/x", "", false, false),
            ("srv/data", "", false, false),
            ("srv/data/x/y", "", false, false),
            ("srv/data/journal", "", false, false),
            ("to-data/x", "", false, false),
            ("backups/out/srv/data/x", "", false, false),
            ("srv", "", false, false),
            ("srv/../srv", "", false, false),
            ("", "", false, false),
            ("srv/data2", "srv/data2", true, false),
        ] {
            for (root, is_taken) in [(&free, is_free), (&rooted, is_rooted)] {
                let found = resolve(&at.join(path), &data, root.as_deref());
                match (found, is_taken) {
                    (Ok(found), true) => assert_eq!(found, at.join(leads), "{path}"),
                    (Err(error), false) => assert_eq!(error.code().code(), 30, "{path}"),
                    (found, _) => panic!("{path} with {root:?}: {found:?}"),
                }
            }
        }
        assert!(resolve(Path::new("relative"), &data, None).is_err());
        assert!(resolve(&at.join("x"), &data, Some(&at.join("none"))).is_err());
    }
}
