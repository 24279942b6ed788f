//! Copies of a running store: a durable checkpoint, with the log from its position on.
//!
//! A checkpoint is immutable, and so is the log. A copy pins the checkpoint as a snapshot pins what it sees: what the checkpoint
//! refers to is not used for anything else while the copy lives. So the extents are read while the store writes to
//! others. The log that follows brings the copy to any later moment ([`crate::finish_restore`]).
//!
//! # Rules
//!
//! - **Incremental copies are lists of extents.** Each extent has a birth, the number of the newest checkpoint when it
//!   was allocated. An extent of a durable checkpoint is used again only after a later checkpoint, so offset, length
//!   and birth name its content. What the copy before lists is left out. FORMAT.md has the argument in full;
//!   `tests/simulation/copies.rs` compares the content of every extent that a chain leaves out, over crashes.
//! - **`Store::store_id` names the history.** Births and positions of the log are compared only where it is the same. A
//!   restore begins a new history.
//! - **The log makes it a moment.** `LogTail` reads the log behind the log's thread: whole groups as they are in the
//!   segments, and only what is durable. A crash of the machine may lose the rest, and its positions are used again.
//!   `flush` requests a sync first.
//! - **A reader holds segments, within a limit.** The log is kept from where the reader is, up to
//!   `Options::log_hold_bytes` more than the store needs, and not at all while the disk is nearly full. Beyond that the
//!   hold ends, and the reader gets `Error::LogGone`.
//! - **`finish_restore` ends the log** at a position, or before the first commit with a stamp above one, replays it,
//!   and closes a store that has all commits up to there. A damaged or missing group is an error, also at the end: what
//!   a copy has was durable. A checkpoint may have parts of later commits: the trees that they created or dropped, and
//!   bulk loads. The manifest says up to which position, and a restore to before it is refused.
//!   `CheckpointCopy::complete_at` is that position.
//! - **Bulk loads are not in the log.** A restore that replays the log over the end of a load has trees that wait for
//!   it; `Restored::loading` lists them.
//! - A damaged block fails the copy, with file and offset. A damaged block of duplicated metadata is made from its
//!   other copy.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::block::{BlockForm, Place};
use crate::checkpoint::Pinned;
use crate::data_file::{DataFile, block_extent, check_block, corrupt};
use crate::disk::{ALIGNMENT, AlignedBuf};
use crate::engine::Engine;
use crate::log::LogTail;
use crate::manifest::encode_superblock;
use crate::metadata::Copies;
use crate::node::{NodeRef, RunRef, Subtree, SubtreeRef};
use crate::run::{RunInfo, RunStore};
use crate::run_index::RunIndex;
use crate::space::Extent;
use crate::store::Store;
use crate::{Error, Result};

/// An extent of the data file. Within the life of one [`Store::store_id`] this names the content of the extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentId {
    /// Its offset in the data file, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The newest checkpoint when it was allocated.
    pub birth: u64,
}

/// The content of an extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    Run {
        index_at: u32,
        index_len: u32,
        filter_len: u32,
        pages: u32,
    },
    Block {
        len: u32,
    },
    /// One of two copies of a block, and where the other one is.
    Copy {
        len: u32,
        other: u64,
    },
}

/// A durable checkpoint of a running store, which stays readable while this lives. As a snapshot it keeps space in use that
/// the store does not need any more, so drop it when the disk is nearly full ([`Store::is_disk_low`]).
pub struct CheckpointCopy {
    pinned: Pinned,
    store: Arc<RunStore>,
    engine: Arc<Engine>,
    key_store: Vec<u8>,
    extents: Vec<ExtentId>,
    contents: Vec<Content>,
    /// Holds the log until the first reader takes it.
    log: Mutex<Option<LogTail>>,
    /// A buffer for reads.
    buffer: Mutex<AlignedBuf>,
}

impl Store {
    /// Pins the newest durable checkpoint, and holds the log from its position on. Writes a checkpoint if the trees have
    /// changed since the newest one. Reads all internal nodes, to list what the checkpoint refers to.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Unreadable`] if a node is damaged, [`Error::Failed`] if there is nothing to pin, errors of the
    /// disk. [`Error::Closed`] only if the store was closed or has failed before: a copy that fails does not stop the store.
    pub fn begin_copy(&self) -> Result<CheckpointCopy> {
        let engine = self.engine();
        let (pinned, log) = engine.pin_checkpoint()?;
        let key_store = engine.options.disk.key_store();
        let key_store = key_store.map_err(Error::io("reading the key store"))?;
        if let Some(lost) = pinned.trees.lost_pages().first() {
            return Err(lost.error());
        }
        let store = engine.runs.clone();
        let (extents, contents) = Walk::all(&store, &pinned)?;
        Ok(CheckpointCopy {
            pinned,
            store,
            engine: engine.clone(),
            key_store,
            extents,
            contents,
            log: Mutex::new(Some(log)),
            buffer: Mutex::default(),
        })
    }

    /// Reads the log of this open store from a position on, or from its end on. The log is kept from there on until the reader
    /// is dropped or moved on; [`crate::Options::log_hold_bytes`] is the limit.
    ///
    /// # Errors
    /// [`Error::LogGone`] if that part of the log is not there any more, [`Error::InvalidOption`] if the log ends before, or if there
    /// is no journal.
    pub fn log_tail(&self, from: Option<u64>) -> Result<LogTail> {
        match self.engine().log.get() {
            Some(log) => log.tail(from),
            None => Err(Error::InvalidOption(
                "a store without a journal has no log".to_owned(),
            )),
        }
    }

    /// The position after the last frame of the log; 0 without a journal.
    pub fn log_end(&self) -> u64 {
        self.engine().log.get().map_or(0, |log| log.end())
    }

    /// Names the history of this store: positions of the log, and extents with their births, mean the same as long as it
    /// is the same. It is new in a new store, after a restore, and after a salvage. A store that has no checkpoint yet may
    /// get another one after a crash.
    pub fn store_id(&self) -> [u8; 16] {
        self.engine().checkpointer.lock().store_id()
    }
}

impl Engine {
    /// The newest checkpoint, written now if the trees have changed, and the log from its position on.
    fn pin_checkpoint(&self) -> Result<(Pinned, LogTail)> {
        self.check_running()?;
        if self.log.get().is_none() {
            // Without a journal there is nothing else to have the newest commits from.
            self.seal_if_over(0);
        }
        let mut checkpoint_due = self.flusher.working.lock();
        let newest = self.checkpointer.lock().pin();
        if let Some(pinned) = newest
            && !*checkpoint_due
            && (self.log.get().is_some() || self.version.load().sealed.is_empty())
        {
            return self.hold_log(pinned);
        }
        *checkpoint_due = true;
        let most = match self.log.get() {
            Some(_) => 0,
            None => usize::MAX,
        };
        let written = self.flush_sealed(&mut checkpoint_due, most);
        let pinned = written.and_then(|written| {
            // Not the checkpointer's newest one: a commit may have replaced its trees since.
            let missing = || Error::failed("no checkpoint could be written for the copy");
            self.hold_log(written.ok_or_else(missing)?)
        });
        drop(checkpoint_due);
        if let Err(error) = &pinned {
            self.note_if_full(error);
        }
        pinned
    }

    /// No checkpoint is written meanwhile.
    fn hold_log(&self, pinned: Pinned) -> Result<(Pinned, LogTail)> {
        let log = match self.log.get() {
            Some(log) => log.tail(Some(pinned.position.log_start))?,
            None => LogTail::empty(),
        };
        Ok((pinned, log))
    }
}

impl CheckpointCopy {
    /// The number of the checkpoint.
    pub fn generation(&self) -> u64 {
        self.pinned.generation
    }

    /// The position from which on a restored store replays the log.
    pub fn log_start(&self) -> u64 {
        self.pinned.position.log_start
    }

    /// A restore needs the log from [`CheckpointCopy::log_start`] to this position at least: the checkpoint has parts of what was
    /// committed before it. Everything up to it is durable.
    pub fn complete_at(&self) -> u64 {
        match self.engine.log.get() {
            Some(_) => self.pinned.position.complete_at,
            None => self.log_start(),
        }
    }

    /// All that a restore needs of the data file besides the [`CheckpointCopy::head`], by ascending offsets.
    pub fn extents(&self) -> &[ExtentId] {
        &self.extents
    }

    /// Reads an extent, and checks the checksums of its blocks. Of metadata that is stored twice a damaged copy is made from
    /// the other one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Unreadable`] with file and offset if it is damaged, [`Error::InvalidOption`] if it is not one
    /// of [`CheckpointCopy::extents`].
    pub fn read(&self, extent: &ExtentId, out: &mut Vec<u8>) -> Result<()> {
        let place = self.extents.binary_search(extent);
        let unknown = |_| Error::InvalidOption(format!("{extent:?} is not a part of this copy"));
        let content = self.contents[place.map_err(unknown)?];
        let mut buffer = std::mem::take(&mut *self.buffer.lock());
        let read = read_extent(&self.store.data, extent, content, &mut buffer);
        if let Ok(()) = &read {
            out.clear();
            out.extend_from_slice(&buffer[..extent.len as usize]);
        }
        *self.buffer.lock() = buffer;
        read.inspect_err(|error| self.store.damage.record(None, error))
    }

    /// The first bytes of the data file: both superblocks, for this checkpoint.
    pub fn head(&self) -> Vec<u8> {
        let manifest = self.pinned.written.manifest.copies();
        let mut head = vec![0; 2 * ALIGNMENT];
        let generation = self.generation();
        // The first checkpoint of a store has no other one beside it.
        for generation in generation.saturating_sub(1).max(1)..=generation {
            let at = (generation % 2) as usize * ALIGNMENT;
            head[at..at + ALIGNMENT].copy_from_slice(&encode_superblock(
                generation,
                &manifest,
                self.store.data.form.ciphers(),
            ));
        }
        head
    }

    /// The file with the store keys that the copy is encrypted with, which the master key opens; nothing if it is not encrypted.
    pub fn key_store(&self) -> &[u8] {
        &self.key_store
    }

    /// The log from [`CheckpointCopy::log_start`] on. The log is kept from there on until the first such reader is dropped or moved
    /// on.
    ///
    /// # Errors
    /// As [`Store::log_tail`], when it is called again.
    pub fn log(&self) -> Result<LogTail> {
        if let Some(log) = self.log.lock().take() {
            return Ok(log);
        }
        match self.engine.log.get() {
            Some(log) => log.tail(Some(self.log_start())),
            None => Ok(LogTail::empty()),
        }
    }
}

/// Reads an extent into `buffer`, and checks its blocks. What no checksum covers is zero then.
fn read_extent(
    data: &DataFile,
    extent: &ExtentId,
    content: Content,
    buffer: &mut AlignedBuf,
) -> Result<()> {
    let read = data.read(extent.offset, extent.len as usize, buffer);
    let used = match content {
        Content::Run {
            index_at,
            index_len,
            filter_len,
            pages,
        } => {
            read?;
            let places = [index_at, index_len, filter_len].map(|place| place as usize);
            let place = Place::new(extent.offset, extent.birth);
            check_run(&data.form, place, places, pages, buffer)?
        }
        Content::Block { len } => {
            read?;
            check_block(part(buffer, extent.offset, 0, len as usize)?, extent.offset)?;
            len as usize
        }
        Content::Copy { len, other } => {
            let used = len as usize;
            let check = |bytes: &[u8], at| check_block(part(bytes, at, 0, used)?, at);
            if let Err(error) = read.and_then(|_| check(buffer, extent.offset)) {
                let other_read = data.read(other, extent.len as usize, buffer);
                if other_read.and_then(|_| check(buffer, other)).is_err() {
                    return Err(error);
                }
                let block = &mut buffer[..used];
                let place = |offset| Place::new(offset, extent.birth);
                data.form
                    .seal_again(block, place(other), place(extent.offset))?;
            }
            used
        }
    };
    buffer[used..].fill(0);
    Ok(())
}

/// The block at `at` of an extent at `offset`; damage if the extent does not have all of it.
fn part(bytes: &[u8], offset: u64, at: usize, len: usize) -> Result<&[u8]> {
    let block = bytes.get(at..at + len);
    block.ok_or_else(|| corrupt(offset, "a block is outside of its extent"))
}

/// Fails if the checksum of a block of a run does not match. Returns where the last block ends. `places` are the offset of the index
/// in the extent, its length and that of the filter.
fn check_run(
    form: &BlockForm,
    place: Place,
    places: [usize; 3],
    pages: u32,
    bytes: &mut [u8],
) -> Result<usize> {
    let offset = place.offset;
    let [index_at, index_len, filter_len] = places;
    let filter_at = index_at + index_len;
    let filter = part(bytes, offset, filter_at, filter_len)?;
    check_block(filter, offset + filter_at as u64)?;
    let index_place = place.plus(index_at as u64);
    let index_offset = index_place.offset;
    let decode = |payload: &[u8]| RunIndex::decode(payload, pages, index_at as u32);
    let block = part(bytes, offset, index_at, index_len)?;
    let index = form.decode(block, index_place, decode)?;
    let index = index.ok_or_else(|| corrupt(index_offset, "the index of a run is malformed"))?;
    let mut pages_end = 0;
    for page in 0..index.pages() {
        let (at, len) = index.block(page);
        let block = part(bytes, offset, at as usize, len as usize)?;
        check_block(block, offset + u64::from(at))?;
        pages_end = (at + len) as usize;
    }
    bytes[pages_end..index_at].fill(0);
    Ok(filter_at + filter_len)
}

/// Lists what a checkpoint refers to.
struct Walk<'a> {
    store: &'a RunStore,
    found: Vec<(ExtentId, Content)>,
    /// Nodes that were not read yet: the places and lengths of their blocks.
    nodes: Vec<(Place, u32)>,
    /// All nodes. In damaged metadata a node may be below itself.
    seen: HashSet<u64>,
}

impl Walk<'_> {
    fn all(store: &RunStore, pinned: &Pinned) -> Result<(Vec<ExtentId>, Vec<Content>)> {
        let mut walk = Walk {
            store,
            found: Vec::new(),
            nodes: Vec::new(),
            seen: HashSet::new(),
        };
        let unstored = || Error::failed("a checkpoint has a part that is not stored");
        walk.add_copies(&pinned.written.manifest.copies());
        walk.add_copies(&pinned.written.map.copies());
        for page in pinned.trees.pages() {
            walk.add_copies(&page.stored.get().ok_or_else(unstored)?.copies());
            for (_, tree) in page.trees() {
                match &tree.root {
                    Subtree::Empty => {}
                    Subtree::Leaf(run) => walk.add_run_at(&run.extent, &run.info),
                    Subtree::Internal(node) => {
                        let (offset, len, birth) = node.place().ok_or_else(unstored)?;
                        walk.add_node(offset, len, birth);
                    }
                }
            }
        }
        while let Some((place, len)) = walk.nodes.pop() {
            walk.follow(place, len)?;
        }
        let mut found = walk.found;
        found.sort_unstable();
        // Siblings may share a run.
        found.dedup();
        Ok(found.into_iter().unzip())
    }

    fn follow(&mut self, place: Place, len: u32) -> Result<()> {
        let data = &self.store.data;
        let parsed = data.read_block(place, len as usize, NodeRef::parse);
        let parsed = parsed.inspect_err(|error| self.store.damage.record(None, error))?;
        let node = parsed.ok_or_else(|| corrupt(place.offset, "an internal node is malformed"))?;
        for part in node.runs.iter().flat_map(|run| &run.parts) {
            self.add_run_ref(part);
        }
        for child in &node.children {
            match &child.subtree {
                SubtreeRef::Empty => {}
                SubtreeRef::Leaf(run) => self.add_run_ref(run),
                SubtreeRef::Internal(node) => self.add_node(node.offset, node.len, node.birth),
            }
        }
        Ok(())
    }

    fn add(&mut self, offset: u64, len: u64, birth: u64, content: Content) {
        let extent = ExtentId { offset, len, birth };
        self.found.push((extent, content));
    }

    fn add_copies(&mut self, copies: &Copies) {
        let [first, second] = copies.at;
        for (at, other) in [(first, second), (second, first)] {
            let content = Content::Copy {
                len: copies.len,
                other,
            };
            self.add(at, block_extent(copies.len), copies.birth, content);
        }
    }

    fn add_run_at(&mut self, extent: &Extent, info: &RunInfo) {
        self.add_run(extent.offset, extent.len, extent.birth, info);
    }

    fn add_run_ref(&mut self, run: &RunRef) {
        self.add_run(run.offset, run.len, run.birth, &run.info);
    }

    fn add_run(&mut self, offset: u64, len: u64, birth: u64, info: &RunInfo) {
        let content = Content::Run {
            index_at: info.index_at,
            index_len: info.index_len,
            filter_len: info.filter_len,
            pages: info.pages,
        };
        self.add(offset, len, birth, content);
    }

    fn add_node(&mut self, offset: u64, len: u32, birth: u64) {
        if self.seen.insert(offset) {
            self.add(offset, block_extent(len), birth, Content::Block { len });
            self.nodes.push((Place::new(offset, birth), len));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::fail_stop::at_steps;
    use crate::{Durability, Options, TreeOptions, WriteSet};

    use super::*;

    /// Creates a tree, and drops the one that it created before.
    fn change_trees(store: &Store) {
        let mut set = WriteSet::new();
        let tree = store.allocate_tree();
        set.create_tree(tree, &TreeOptions::default());
        if let Some(before) = store.trees().last() {
            set.drop_tree(*before);
        }
        store.commit(set, Durability::Logged).unwrap();
    }

    /// The trees of the checkpoint leave memory before the copy could look for them.
    #[test]
    fn a_copy_begins_while_commits_create_and_drop_trees() {
        for (journal, trees_before) in [(true, 0), (true, 2), (false, 0), (false, 2)] {
            let directory = tempfile::tempdir().unwrap();
            let mut options = Options::new(directory.path());
            options.cache_bytes = 8 << 20;
            options.inline = true;
            options.journal = journal;
            let store = Arc::new(Store::open(options).unwrap());
            (0..trees_before).for_each(|_| change_trees(&store));
            let other = store.clone();
            at_steps(move |step| {
                if step == "a superblock is written" {
                    // A thread that has no steps of its own.
                    let other = other.clone();
                    std::thread::spawn(move || change_trees(&other))
                        .join()
                        .unwrap();
                }
            });
            for _ in 0..3 {
                let copy = store.begin_copy().map_err(|error| error.to_string());
                let copy = copy.unwrap();
                let mut bytes = Vec::new();
                for extent in copy.extents() {
                    copy.read(extent, &mut bytes).unwrap();
                }
                // The next copy writes a checkpoint of its own.
                change_trees(&store);
            }
            at_steps(|_| ());
            store.checkpoint().unwrap();
            store.close().unwrap();
        }
    }
}
