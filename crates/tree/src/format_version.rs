//! The version of the format of a store that is not open.

use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::Reader;
use crate::data_file::DATA_FILE;
use crate::disk::ALIGNMENT;
use crate::manifest::{MAGIC, SUPERBLOCK_COPY_BYTES, supported_formats};

/// The format of a store, and the formats that this version of the engine reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatVersion {
    /// The version in the superblocks; the higher one if they differ. `None` before the first checkpoint.
    pub stored: Option<u32>,
    /// The versions that can be opened. The last one is what is written.
    pub supported: RangeInclusive<u32>,
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
        match has_checksum(copy) {
            true => sound.extend(reader.u32()),
            false => others.extend(reader.u32()),
        }
    }
    let stored = sound.into_iter().max().or(others.into_iter().max());
    let supported = supported_formats();
    Ok((stored.is_some() || is_blank).then_some(FormatVersion { stored, supported }))
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
        let newest = *supported_formats().end();
        let found = format_version(path).unwrap().unwrap();
        assert_eq!(found.stored, Some(newest));
        // One damaged copy counts nothing.
        let mut bytes = std::fs::read(path.join(DATA_FILE)).unwrap();
        bytes[MAGIC.len()..MAGIC.len() + 4].fill(0xff);
        std::fs::write(path.join(DATA_FILE), &bytes).unwrap();
        let found = format_version(path).unwrap().unwrap();
        assert_eq!(found.stored, Some(newest));
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        for version in 2..=8 {
            let found = format_version(&fixtures.join(format!("format-{version}"))).unwrap();
            let found = found.unwrap();
            assert_eq!(found.stored, Some(version));
            assert!(found.supported.contains(&version));
        }
        std::fs::write(path.join(DATA_FILE), b"something else").unwrap();
        assert_eq!(format_version(path).unwrap(), None);
        std::fs::write(path.join(DATA_FILE), [0; 9000]).unwrap();
        assert_eq!(format_version(path).unwrap().unwrap().stored, None);
    }
}
