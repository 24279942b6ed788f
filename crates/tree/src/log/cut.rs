//! Cutting a damaged log, so that a store opens with the commits before the damage.
//!
//! RocksDB calls this recovery to a point in time (`WALRecoveryMode::kPointInTimeRecovery`).

use std::sync::Arc;

use frond_kv::operation::numbers_of;

use super::buffer::{BUFFER_FILE, Found};
use super::replay::replay;
use super::segment::{open_segment, segment_name, segment_start, segments};
use crate::disk::{Disk, OverlayDisk};
use crate::{Error, LogCut, Result};

/// The names of files that were set aside have this between the old name and a number.
const SET_ASIDE: &str = ".damaged-";
/// Bytes that are copied at once. Those that cannot be read are zeros in the copy.
const COPY_BYTES: u64 = 4096;

/// Makes sure that the log can be replayed from `from` on: if it cannot, the log ends before the damage then, and
/// what came after is in other files. Returns what was done, or `None` if there is no damage that matters.
///
/// A crash in the middle leaves a log that can be cut again.
///
/// # Errors
/// An error of the disk that is not about reading the log.
pub(crate) fn cut_damaged(disk: &Arc<dyn Disk>, from: u64) -> Result<Option<LogCut>> {
    let mut cut: Option<LogCut> = None;
    loop {
        // The overlay takes what a replay writes.
        let overlay: Arc<dyn Disk> = Arc::new(OverlayDisk::new(disk.clone()));
        let replayed = replay(&overlay, from, |_, sequence, payload| {
            Ok(sequence + numbers_of(payload))
        });
        let error = match replayed {
            Ok(_) => return Ok(cut),
            Err(error) => error,
        };
        let (file, offset) = match &error {
            Error::Corrupt { file, offset, .. } | Error::Unreadable { file, offset, .. } => {
                (file.clone(), *offset)
            }
            _ if Found::read(&**disk).is_err() => (BUFFER_FILE.to_owned(), 0),
            _ => return Err(error),
        };
        let cut = cut.get_or_insert_with(|| LogCut {
            error: error.to_string(),
            set_aside: Vec::new(),
        });
        let before = cut.set_aside.len();
        cut_at(disk, &file, offset, &mut cut.set_aside)?;
        // Each round takes at least one file away or shortens one; otherwise it would be repeated for ever.
        if cut.set_aside.len() == before {
            return Err(error);
        }
    }
}

/// Whether parts of a damaged log are set aside.
pub(crate) fn was_cut(disk: &dyn Disk) -> Result<bool> {
    let names = disk.list().map_err(Error::io("listing the log"))?;
    Ok(names.iter().any(|name| name.contains(SET_ASIDE)))
}

/// Ends the log at `offset` of `file`.
fn cut_at(
    disk: &Arc<dyn Disk>,
    file: &str,
    offset: u64,
    set_aside: &mut Vec<String>,
) -> Result<()> {
    if file == BUFFER_FILE {
        set_aside.push(rename(disk, BUFFER_FILE)?);
    } else if let Some(damaged) = segment_start(file) {
        // The buffer stays: it may have the frames that are damaged here, and others cannot follow the new end.
        // The newest first, so that a crash leaves the oldest ones.
        for start in segments(&**disk)?.into_iter().rev() {
            match start {
                later if later > damaged => {
                    set_aside.push(rename(disk, &segment_name(later))?);
                }
                same if same == damaged && offset == 0 => {
                    set_aside.push(rename(disk, file)?);
                }
                same if same == damaged => {
                    let segment = open_segment(&**disk, damaged)?;
                    let context = || Error::io(format!("truncating {file} to {offset}"));
                    if segment.len().map_err(context())? > offset {
                        set_aside.push(copy(disk, file)?);
                        segment.set_len(offset).map_err(context())?;
                        segment.sync().map_err(context())?;
                    }
                }
                _ => {}
            }
        }
    }
    disk.sync_directory()
        .map_err(Error::io("syncing the store's directory"))
}

/// A name that no file has.
fn free_name(disk: &Arc<dyn Disk>, name: &str) -> Result<String> {
    let names = disk.list().map_err(Error::io("listing the log"))?;
    let free = (1..)
        .map(|number| format!("{name}{SET_ASIDE}{number}"))
        .find(|free| !names.contains(free));
    Ok(free.expect("the numbers do not end"))
}

fn rename(disk: &Arc<dyn Disk>, name: &str) -> Result<String> {
    let free = free_name(disk, name)?;
    disk.rename(name, &free)
        .map_err(Error::io(format!("renaming {name} to {free}")))?;
    Ok(free)
}

/// Copies what can be read.
fn copy(disk: &Arc<dyn Disk>, name: &str) -> Result<String> {
    let free = free_name(disk, name)?;
    let context = || Error::io(format!("copying {name} to {free}"));
    let source = disk.open(name, false).map_err(context())?;
    let target = disk.open(&free, false).map_err(context())?;
    let len = source.len().map_err(context())?;
    target.set_len(len).map_err(context())?;
    for at in (0..len).step_by(COPY_BYTES as usize) {
        let mut part = vec![0; COPY_BYTES.min(len - at) as usize];
        if source.read_at(&mut part, at).is_ok() {
            target.write_at(&part, at).map_err(context())?;
        }
    }
    target.sync().map_err(context())?;
    Ok(free)
}
