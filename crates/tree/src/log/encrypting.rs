//! Encryption of the log of a closed store.
//!
//! A server encrypts a data file while it runs, but not the log: readers know where its groups are. A member of a replica set
//! keeps much of it for the others, so that it would not leave by itself.

use super::group::HEADER_BYTES;
use super::segment::{open_existing, segment_name, segments};
use super::segment_reader::Segment;
use super::{buffer, sealing};
use crate::disk::Disk;
use crate::{Error, Result};

/// Encrypts the segments of a log that are not encrypted, with the keys of the disk. The buffer is left to the next open, and so is a segment
/// with a group that is not complete.
///
/// # Errors
/// Errors of the disk. What was done until then stays so, and the log can be read in any case.
pub fn encrypt_log(disk: &dyn Disk) -> Result<()> {
    for start in segments(disk)? {
        let name = segment_name(start);
        let new = format!("{name}.new");
        let names = disk.list().map_err(Error::io("listing the store"))?;
        if names.contains(&new) {
            // An attempt before has left it.
            disk.remove(&new)
                .map_err(Error::io(format!("removing {new}")))?;
        }
        if encrypt_segment(disk, start, &new)? {
            disk.rename(&new, &name)
                .map_err(Error::io(format!("renaming {new}")))?;
        }
    }
    disk.sync_directory()
        .map_err(Error::io("syncing the store's directory"))
}

/// Writes a segment to a new file. False if it stays as it is; then there is no new file.
fn encrypt_segment(disk: &dyn Disk, start: u64, new: &str) -> Result<bool> {
    let Some(ciphers) = disk.ciphers() else {
        return Ok(false);
    };
    let segment = Segment::open(disk, start)?;
    if segment.header(0)?.is_none_or(|header| header.is_sealed) {
        return Ok(false);
    }
    let failed = || Error::io(format!("writing {new}"));
    let file = disk.open(new, false).map_err(failed())?;
    let (mut at, mut written, mut sealed) = (0, 0, Vec::new());
    while at < segment.len {
        let Some((len, group)) = next_group(&segment, at)? else {
            disk.remove(new).map_err(failed())?;
            return Ok(false);
        };
        let malformed = || segment.corrupt(at, "a group of the log is malformed");
        sealing::seal(ciphers, &[&group], &mut sealed).ok_or_else(malformed)?;
        file.write_at(&sealed, written).map_err(failed())?;
        (at, written) = (at + len, written + sealed.len() as u64);
    }
    file.sync().map_err(failed())?;
    Ok(true)
}

/// The group at an offset in its usual form, and the length of its stored form; `None` if it is not complete.
fn next_group(segment: &Segment, at: u64) -> Result<Option<(u64, Vec<u8>)>> {
    let Some(header) = segment.header(at)? else {
        return Ok(None);
    };
    let len = HEADER_BYTES as u64 + u64::from(header.stored_bytes);
    if at + len > segment.len {
        return Ok(None);
    }
    let group = segment.group(at, len as usize)?;
    Ok(group.map(|group| (len, group)))
}

/// Whether all groups of a log are encrypted, and its buffer.
pub(crate) fn is_encrypted(disk: &dyn Disk) -> Result<bool> {
    for start in segments(disk)? {
        // It may be deleted at any time.
        let Some(file) = open_existing(disk, start)? else {
            continue;
        };
        // All groups behind an encrypted one are encrypted.
        let first = Segment::of(disk, file, start)?.header(0)?;
        if first.is_some_and(|header| !header.is_sealed) {
            return Ok(false);
        }
    }
    if buffer::is_plain(disk)? {
        return Ok(false);
    }
    // A crash of the machine must not bring back one that was deleted.
    disk.sync_directory()
        .map_err(Error::io("syncing the store's directory"))?;
    Ok(true)
}
