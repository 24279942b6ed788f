//! The vote of a member of a replica set: a small file with two slots, of which the older one is replaced.
//!
//! A vote must survive a crash before it is answered, and a crash while it is written must leave the one before. So it is not
//! in the log: consensus would have to replay that first.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::{Reader, Writer};
use crate::disk::{Disk, DiskFile};
use crate::{Error, Result};

const VOTE_FILE: &str = "vote.frond";
const SLOT_BYTES: usize = 4096;
const HEADER_BYTES: usize = 20;

/// A vote with its number. Slot `number mod 2` has it.
struct Slot {
    number: u64,
    vote: Vec<u8>,
}

impl Slot {
    fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(SLOT_BYTES);
        fields.put_u64(self.number);
        fields.put_u32(self.vote.len() as u32);
        fields.extend_from_slice(&self.vote);
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.put_u64(xxh3_64(&fields));
        bytes.extend_from_slice(&fields);
        bytes.resize(SLOT_BYTES, 0);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Slot> {
        let mut reader = Reader(bytes);
        let checksum = reader.u64()?;
        let len = Reader(reader.0.get(8..)?).u32()? as usize;
        let fields = reader.0.get(..12 + len)?;
        if xxh3_64(fields) != checksum {
            return None;
        }
        let (number, _) = (reader.u64()?, reader.u32()?);
        let vote = reader.bytes(len)?.to_vec();
        Some(Slot { number, vote })
    }
}

fn read_newest(file: &dyn DiskFile) -> Result<Option<Slot>> {
    let context = || Error::io(format!("reading {VOTE_FILE}"));
    let len = file.len().map_err(context())?;
    let mut newest: Option<Slot> = None;
    for slot in 0..2 {
        if len < (slot + 1) * SLOT_BYTES as u64 {
            break;
        }
        let mut bytes = vec![0; SLOT_BYTES];
        file.read_at(&mut bytes, slot * SLOT_BYTES as u64)
            .map_err(context())?;
        let found = Slot::decode(&bytes).filter(|found| found.number % 2 == slot);
        if let Some(found) = found
            && newest
                .as_ref()
                .is_none_or(|newest| newest.number < found.number)
        {
            newest = Some(found);
        }
    }
    Ok(newest)
}

fn open(disk: &dyn Disk) -> Result<Arc<dyn DiskFile>> {
    let file = disk.open(VOTE_FILE, false);
    file.map_err(Error::io(format!("opening {VOTE_FILE}")))
}

/// The vote that was saved last.
///
/// # Errors
/// Errors of the disk.
pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Vec<u8>>> {
    let names = disk.list().map_err(Error::io("listing the files"))?;
    if !names.iter().any(|name| name == VOTE_FILE) {
        return Ok(None);
    }
    let newest = read_newest(&*open(disk)?)?;
    Ok(newest.map(|newest| newest.vote))
}

/// Saves a vote, durably.
///
/// # Errors
/// [`Error::TooLarge`], errors of the disk.
pub(crate) fn save(disk: &dyn Disk, vote: &[u8]) -> Result<()> {
    let limit = SLOT_BYTES - HEADER_BYTES;
    if vote.len() > limit {
        return Err(Error::TooLarge {
            what: "vote",
            bytes: vote.len(),
            limit,
        });
    }
    let file = open(disk)?;
    let context = || Error::io(format!("writing {VOTE_FILE}"));
    let newest = read_newest(&*file)?;
    let number = newest.map_or(0, |newest| newest.number + 1);
    if file.len().map_err(context())? == 0 {
        // So that both slots are there, and the name is durable.
        file.write_at(&[0; 2 * SLOT_BYTES], 0).map_err(context())?;
        disk.sync_directory().map_err(context())?;
    }
    let slot = Slot {
        number,
        vote: vote.to_vec(),
    };
    let at = number % 2 * SLOT_BYTES as u64;
    file.write_at(&slot.encode(), at).map_err(context())?;
    file.sync().map_err(context())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::FsDisk;

    #[test]
    fn the_newest_vote_is_read_and_a_damaged_one_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FsDisk::new(directory.path().to_path_buf(), false);
        assert_eq!(read(&disk).unwrap(), None);
        for number in 0..5u8 {
            save(&disk, &[number; 30]).unwrap();
            assert_eq!(read(&disk).unwrap(), Some(vec![number; 30]));
        }
        // The vote of number 4 is in the first slot.
        let file = open(&disk).unwrap();
        file.write_at(&[9], 25).unwrap();
        assert_eq!(read(&disk).unwrap(), Some(vec![3; 30]));
        save(&disk, b"").unwrap();
        assert_eq!(read(&disk).unwrap(), Some(Vec::new()));
        assert!(matches!(
            save(&disk, &[0; SLOT_BYTES]),
            Err(Error::TooLarge { .. })
        ));
    }
}
