//! Data directories of the asynchronous standby that earlier versions had. Such a standby had no consensus: its store may lack writes
//! that the replica set has acknowledged, so it must not become a member or a standalone server without notice.

use std::io;
use std::path::Path;

/// The file in which a standby kept its state.
const NAME: &str = "standby.state";

/// The state of a standby that was made a primary. Its store counts.
const PROMOTED: &str = "promoted";

/// Refuses the data directory of a standby.
///
/// # Errors
/// The reason, and what to do.
pub fn refuse(db_path: &Path) -> Result<(), String> {
    let file = db_path.join(NAME);
    match std::fs::read_to_string(&file) {
        Ok(state) if state.trim() == PROMOTED => Ok(()),
        Ok(_) => Err(format!(
            "the data directory {} is that of a standby (--follow) of an earlier version, and may lack acknowledged writes. Members of \
             replica sets have replaced standbys: empty the directory, start the server with --replSet, and run \
             rs.add({{host: \"HOST:PORT\", votes: 0, priority: 0}}) on the primary; see docs/replica-set.md. If the primary is lost for \
             ever and this is the best copy, remove the file {NAME} from the directory instead",
            db_path.display()
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("reading {}: {error}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_directory_of_a_standby_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        refuse(path).unwrap();
        for (state, is_refused) in [
            ("copying\n", true),
            ("following\n", true),
            ("", true),
            ("promoted\n", false),
        ] {
            std::fs::write(path.join(NAME), state).unwrap();
            let found = refuse(path);
            assert_eq!(found.is_err(), is_refused, "{state:?}: {found:?}");
            if let Err(why) = found {
                assert!(why.contains("rs.add({host:") && why.contains("empty the directory"));
            }
        }
        std::fs::remove_file(path.join(NAME)).unwrap();
        std::fs::create_dir(path.join(NAME)).unwrap();
        assert!(refuse(path).unwrap_err().contains(NAME));
    }
}
