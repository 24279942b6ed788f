//! Encryption of the log of a closed store.
//!
//! A running server encrypts its data file but not its log, because readers of the log know the offsets of its groups. The old log
//! does not go away soon either: a member of a replica set keeps much of it for the other members.

use super::group::HEADER_BYTES;
use super::segment::{open_existing, segment_name, segments};
use super::segment_reader::Segment;
use super::{buffer, sealing};
use crate::disk::Disk;
use crate::{Error, Result};

/// Encrypts the segments of a log with the keys of the disk. It leaves segments alone that are encrypted or have an incomplete
/// group, and the buffer, which the next open replaces.
///
/// # Errors
/// Errors of the disk. The log can be read after an error, too, and the call can be repeated.
pub fn encrypt_log(disk: &dyn Disk) -> Result<()> {
    for start in segments(disk)? {
        let name = segment_name(start);
        let new = format!("{name}.new");
        let names = disk.list().map_err(Error::io("listing the store"))?;
        if names.contains(&new) {
            // An earlier attempt left this file.
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

/// Writes an encrypted segment to a new file. Returns false, without a new file, if the segment stays as it is.
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

/// Whether the buffer and all groups of a log are encrypted.
pub(crate) fn is_encrypted(disk: &dyn Disk) -> Result<bool> {
    for start in segments(disk)? {
        // The log thread may delete a segment at any time.
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
    // A crash of the machine must not bring back a deleted segment.
    disk.sync_directory()
        .map_err(Error::io("syncing the store's directory"))?;
    Ok(true)
}
