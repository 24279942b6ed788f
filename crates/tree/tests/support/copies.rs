//! A backup in memory of copies and of the log, and restores from it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use frond_tree::disk::{ALIGNMENT, AlignedBuf, Disk};
use frond_tree::{
    CheckpointCopy, ExtentId, LogPiece, LogTail, Options, RestorePoint, Restored, Result, Store,
    finish_restore, log_file_name,
};

/// Whether an extent begins with an encrypted block.
fn is_encrypted(extent: &[u8]) -> bool {
    extent[12] & 0x80 != 0
}

/// The files of a copy.
#[derive(Clone, Default)]
pub struct Copied {
    pub store_id: [u8; 16],
    pub head: Vec<u8>,
    pub extents: BTreeMap<ExtentId, Vec<u8>>,
    pub log: Vec<LogPiece>,
    /// A restore needs the log up to here.
    pub complete_at: u64,
    /// Bytes that were read for this copy.
    pub read_bytes: u64,
}

impl Copied {
    /// Copies what `parent` does not have, and the log up to its end.
    pub fn take(store: &Store, parent: Option<&Copied>) -> Result<Copied> {
        let copy = store.begin_copy()?;
        let mut copied = Copied::of(store, &copy, parent)?;
        copied.append(&mut copy.log()?, 1 << 20, true)?;
        Ok(copied)
    }

    /// Copies the data file of a pinned checkpoint. The extents that the parent has must be the same still.
    pub fn of(store: &Store, copy: &CheckpointCopy, parent: Option<&Copied>) -> Result<Copied> {
        let mut copied = Copied {
            store_id: store.store_id(),
            head: copy.head(),
            complete_at: copy.complete_at(),
            ..Copied::default()
        };
        let parent = parent.filter(|parent| parent.store_id == copied.store_id);
        for extent in copy.extents() {
            let known = parent.and_then(|parent| parent.extents.get(extent));
            let mut bytes = Vec::new();
            copy.read(extent, &mut bytes)?;
            match known {
                // A damaged copy of encrypted metadata, which is made from the other one, gets another seal.
                Some(known) if is_encrypted(&bytes) => assert!(known.len() == bytes.len()),
                Some(known) => assert!(*known == bytes, "{extent:?} is not what it was"),
                None => copied.read_bytes += extent.len,
            }
            copied.extents.insert(*extent, bytes);
        }
        Ok(copied)
    }

    /// Adds the log that is there by now.
    pub fn append(&mut self, log: &mut LogTail, bytes_max: usize, flush: bool) -> Result<()> {
        let mut flush = flush;
        while let Some(piece) = log.read(bytes_max, flush)? {
            flush = false;
            if let Some(last) = self.log.last() {
                assert_eq!(last.to, piece.from, "the log has a gap");
            }
            log.release_before(piece.to);
            self.log.push(piece);
        }
        Ok(())
    }

    /// Where the log ends.
    pub fn log_end(&self) -> u64 {
        self.log.last().map_or(self.complete_at, |piece| piece.to)
    }

    /// Writes the files to an empty disk.
    pub fn write_to(&self, disk: &dyn Disk) -> io::Result<()> {
        let data = disk.open("data.frond", false)?;
        let write = |bytes: &[u8], at: u64| {
            let mut aligned = AlignedBuf::with_capacity(bytes.len().next_multiple_of(ALIGNMENT));
            aligned.extend_from_slice(bytes);
            data.write_at(&aligned, at)
        };
        write(&self.head, 0)?;
        for (extent, bytes) in &self.extents {
            write(bytes, extent.offset)?;
        }
        data.sync()?;
        if let Some(first) = self.log.first() {
            let log = disk.open(&log_file_name(first.from), false)?;
            let mut at = 0;
            for piece in &self.log {
                log.write_at(&piece.groups, at)?;
                at += piece.groups.len() as u64;
            }
            log.sync()?;
        }
        disk.sync_directory()
    }

    /// Restores a moment to an empty disk.
    pub fn restore(&self, options: Options, point: RestorePoint) -> Result<Restored> {
        let disk: Arc<dyn Disk> = options.disk.clone();
        self.write_to(&*disk).unwrap();
        finish_restore(options, point)
    }
}
