//! The number of a member's store in consensus.
//!
//! It is random and made once for a data directory, so that a member which has lost its disk comes back as another one: it
//! must not be counted for what the lost disk had acknowledged. The `_id` of the configuration is another number, which stays.

use std::io::{self, Write};
use std::path::Path;

use frond_bson::{DocBuf, doc};
use frond_store::DocumentStore;

use super::CONFIG_COLLECTION;
use crate::internal_collections::{delete_all, find_one, replace_one};

/// The file that has the number, beside the data files.
const NAME: &str = "member.id";

/// The data file. Without it a directory has no store.
const DATA_FILE: &str = "data.frond";

/// Whether a data directory has a store that was no member here yet: of a standalone server, or restored from a backup.
pub fn is_new_to_sets(db_path: &Path) -> bool {
    db_path.join(DATA_FILE).exists() && !db_path.join(NAME).exists()
}

/// Ends the part that a store has had in consensus: it may be the copy of a member. It was opened as that of a standalone server, whose
/// next checkpoint knows no consensus. There is one only if something was written, so the configuration is written again.
///
/// # Errors
/// Errors of the store.
pub fn leave_old_set(store: &DocumentStore) -> frond_error::Result<()> {
    let Some(config) = find_one(store, CONFIG_COLLECTION, DocBuf::new())? else {
        return Ok(());
    };
    let name = config.get_str("_id").unwrap_or_default().to_owned();
    delete_all(store, CONFIG_COLLECTION, &doc! {})?;
    replace_one(store, CONFIG_COLLECTION, &name, &config)?;
    Ok(store.checkpoint()?)
}

/// The number in a data directory, which is made if there is none.
///
/// # Errors
/// Errors of the file system; `InvalidData` for a file without a number.
pub fn read_or_make(db_path: &Path) -> io::Result<u64> {
    let path = db_path.join(NAME);
    match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| {
            let what = format!("{} has no number", path.display());
            io::Error::new(io::ErrorKind::InvalidData, what)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // It fits into a signed number of BSON, and 0 stands for none.
            let id = (rand::random::<u64>() >> 1).max(1);
            let mut file = frond_files::replace(&path)?;
            file.write_all(format!("{id}\n").as_bytes())?;
            file.sync_all()?;
            std::fs::File::open(db_path)?.sync_all()?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_data_directory_keeps_its_number() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let id = read_or_make(one.path()).unwrap();
        assert_eq!(read_or_make(one.path()).unwrap(), id);
        assert_ne!(read_or_make(other.path()).unwrap(), id);
        std::fs::write(one.path().join(NAME), "x").unwrap();
        assert!(read_or_make(one.path()).is_err());
    }
}
