//! Restores: files that were written from copies and pieces of the log become a store.

use frond_kv::{EntryId, MemberLog};

use crate::inspect::Inspector;
use crate::log::{self, RestorePoint};
use crate::store::Store;
use crate::{Error, Options, Result, TreeId};

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The position after the last commit, at which the log was cut.
    pub end: u64,
    /// The last stamp of the commits, if any of the log had one.
    pub last_stamp: Option<u64>,
    /// Commits of the log that were replayed.
    pub log_frames: u64,
    /// The name of the new store's history; see [`Store::store_id`].
    pub store_id: [u8; 16],
    /// Trees that wait for a bulk load, which the log does not have: load or drop them before anything is read from them.
    pub loading: Vec<TreeId>,
    /// The last entry of the log, if the store is that of a member of a replica set.
    pub last_entry: Option<EntryId>,
}

/// Turns files that were written from a [`crate::CheckpointCopy`] and [`crate::LogPiece`]s into a store: ends the log at a moment,
/// replays it, and gives the store a new [`Store::store_id`]. The store is closed then, and durable.
///
/// The files are `data.frond`, with the head and the extents of the copy at their offsets, and the log: pieces one after the
/// other in a file that is named by the position of the first one ([`log_file_name`]), or in several files, each named by that of its
/// first piece.
///
/// With [`Options::member`] it becomes the store of a member that has the log of the member that was copied: the entries stay entries,
/// and those that are not known to be committed stay out of the trees. It has no vote.
///
/// # Errors
/// [`Error::InvalidOption`] if the checkpoint is newer than the moment, or if the log ends before it; [`Error::Corrupt`] if the
/// log or the checkpoint is damaged or incomplete; errors of the disk. After an error of the disk or a crash the files have
/// to be written again.
pub fn finish_restore(options: Options, point: RestorePoint) -> Result<Restored> {
    options.check()?;
    let disk = options.disk.clone();
    let position = {
        let mut no_progress = |_| ();
        let mut inspector = Inspector::open(&*disk, &mut no_progress)?;
        let superblocks = inspector.superblocks();
        let manifest = superblocks.first().and_then(|it| inspector.manifest(it));
        match (manifest, inspector.problems.first()) {
            (Some(manifest), None) => manifest.position,
            (_, Some(problem)) => {
                return Err(Error::InvalidOption(format!(
                    "the restored files have no complete checkpoint: {problem}"
                )));
            }
            (None, None) => {
                let text = "the restored files have no checkpoint";
                return Err(Error::InvalidOption(text.to_owned()));
            }
        }
    };
    let too_new = |what: String| {
        let text = format!("the copy is newer than the moment that is asked for: {what}");
        Err(Error::InvalidOption(text))
    };
    match point {
        RestorePoint::Position(last) if last < position.complete_at => {
            let at = position.complete_at;
            return too_new(format!(
                "it is complete from position {at} on, not at {last}"
            ));
        }
        RestorePoint::Stamp(last) if last < position.last_stamp => {
            let at = position.last_stamp;
            return too_new(format!("it has the stamp {at}, which is above {last}"));
        }
        _ => {}
    }
    let ending = log::end_at(&disk, position.log_start, point)?;
    if ending.end < position.complete_at {
        let (end, at) = (ending.end, position.complete_at);
        let text =
            format!("the log would end at position {end}; the copy is complete from {at} on");
        return match point {
            RestorePoint::Stamp(_) => too_new(text),
            _ => Err(Error::InvalidOption(text)),
        };
    }
    if options.member && point != RestorePoint::End {
        // An entry that is cut is another one than the set's.
        let text = "a member of a replica set is restored to the end of its log only";
        return Err(Error::InvalidOption(text.to_owned()));
    }
    ending.apply(&disk)?;
    let store = Store::open_restored(options)?;
    let loading = store.trees();
    let loading = loading.into_iter().filter(|tree| store.is_loading(*tree));
    let restored = Restored {
        end: ending.end,
        last_stamp: ending.last_stamp,
        log_frames: ending.frames,
        store_id: store.store_id(),
        loading: loading.collect(),
        last_entry: store.state().last,
    };
    store.close()?;
    Ok(restored)
}

/// The name of the file of the log that begins with the piece at a position.
pub fn log_file_name(position: u64) -> String {
    log::segment_name(position)
}
