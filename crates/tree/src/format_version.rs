//! The version of the format of a store that is not open.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::Reader;
use crate::data_file::DATA_FILE;
use crate::disk::ALIGNMENT;
use crate::manifest::{FORMAT_VERSION, IS_ENCRYPTED, MAGIC, SUPERBLOCK_COPY_BYTES};

/// The format of a store, and the one that this version of the engine reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatVersion {
    /// The version in the superblocks; the higher one if they differ. `None` before the first checkpoint.
    pub stored: Option<u32>,
    /// The version that can be opened.
    pub supported: u32,
}

/// The version of the store in a directory. It reads only the superblocks and changes nothing. `None` if there is no store, or its
/// superblocks are damaged.
///
/// # Errors
/// If the file cannot be read.
pub fn format_version(directory: &Path) -> io::Result<Option<FormatVersion>> {
    let file = match File::open(directory.join(DATA_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut head = Vec::with_capacity(2 * ALIGNMENT);
    file.take(2 * ALIGNMENT as u64).read_to_end(&mut head)?;
    let is_blank = head.iter().all(|byte| *byte == 0);
    let (mut sound, mut others) = (Vec::new(), Vec::new());
    for copy in head.chunks_exact(SUPERBLOCK_COPY_BYTES) {
        let mut reader = Reader(copy);
        if reader.bytes(MAGIC.len()) != Some(MAGIC) {
            continue;
        }
        // A version that is not known may have its checksum elsewhere.
        if has_checksum(copy) {
            sound.extend(reader.u32())
        } else {
            others.extend(reader.u32())
        }
    }
    let stored = sound.into_iter().max().or(others.into_iter().max());
    let stored = stored.map(|version| version & !IS_ENCRYPTED);
    Ok((stored.is_some() || is_blank).then_some(FormatVersion {
        stored,
        supported: FORMAT_VERSION,
    }))
}

fn has_checksum(copy: &[u8]) -> bool {
    copy.split_at_checked(SUPERBLOCK_COPY_BYTES - 8)
        .is_some_and(|(fields, checksum)| Reader(checksum).u64() == Some(xxh3_64(fields)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Options, Store};

    #[test]
    fn the_version_of_stores_and_of_other_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(format_version(path).unwrap(), None, "no file");
        Store::open(Options::new(path)).unwrap().close().unwrap();
        let found = format_version(path).unwrap().unwrap();
        assert_eq!(found.stored, Some(FORMAT_VERSION));
        assert_eq!(found.supported, FORMAT_VERSION);
        // One damaged copy counts nothing.
        let mut bytes = std::fs::read(path.join(DATA_FILE)).unwrap();
        bytes[MAGIC.len()..MAGIC.len() + 4].fill(0xff);
        std::fs::write(path.join(DATA_FILE), &bytes).unwrap();
        let found = format_version(path).unwrap().unwrap();
        assert_eq!(found.stored, Some(FORMAT_VERSION));
        std::fs::write(path.join(DATA_FILE), b"something else").unwrap();
        assert_eq!(format_version(path).unwrap(), None);
        std::fs::write(path.join(DATA_FILE), [0; 9000]).unwrap();
        assert_eq!(format_version(path).unwrap().unwrap().stored, None);
    }
}
