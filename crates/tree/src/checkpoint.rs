//! Checkpoints: a manifest of all trees, and two superblocks that alternate.
//!
//! A checkpoint writes the internal nodes and tree pages that are not on disk yet, a manifest and the map of the free
//! space, syncs, overwrites the older of the two superblocks, and syncs again. Nothing that the newer superblock refers
//! to is overwritten before that. Tree pages, manifest and map are written twice.
//!
//! # Design
//! ```text
//! write(trees, position):
//!     for each page of trees that changed: write its nodes bottom up, then the page      into free extents
//!     capture the free space (S4); write map and manifest                                into free extents
//!     sync                                        all that the superblock will refer to is durable
//!     write superblock generation + 1 to slot (generation + 1) % 2                       (K1)
//!     sync                                        the checkpoint is durable
//!     free what only the one before referred to                                          (K2)
//!     delete the log before the position of the one before
//! ```
//! - At each moment one slot has a superblock all of whose blocks are durable and in use. A crash before the second sync leaves the
//!   old one; the new one is found or not, and both are complete states.
//! - An extent that is released while a checkpoint is written may be in it, so it waits for the next one (`space.rs`). An extent
//!   that was allocated after the capture is in no checkpoint, and is free again at once.
//! - Nodes and pages that did not change are not written again: a checkpoint costs what was changed since the last one, however large
//!   the store is.
//! - The position says where the log begins that the trees do not have (K3). The log of one more checkpoint is kept, so that the
//!   previous superblock can take the place of a damaged one.
//!
//! A log of changes of the manifest, as LevelDB and RocksDB have it, would save the rewrite of page references. But it must be
//! replayed at each start and compacted, and it is a third kind of durable file. With pages of 256 trees a manifest has few
//! references. Writing all nodes up to the root with each flush, as LMDB does with each commit, would write the upper nodes many times
//! between two checkpoints; here only the versions that a checkpoint has are written.

use std::sync::{Arc, Weak};

use crate::data_file::{DATA_FILE, OTHER_EXTENTS, corrupt};
use crate::disk::{ALIGNMENT, AlignedBuf, Disk};
use crate::fail_stop::{FailStop, step};
use crate::free_map::FreeMap;
use crate::log::CommitPoint;
use crate::lost_page::LostPage;
use crate::manifest::{
    LostRef, MAGIC, Manifest, PageRef, Position, Superblock, encode_page, encode_superblock,
    parse_page, read_superblock,
};
use crate::metadata::{Copies, StoredTwice};
use crate::node::{KnownRuns, NodeWriter, Subtree, SubtreeRef};
use crate::run::RunStore;
use crate::space::GENERATION_BITS;
use crate::sweep::{Reach, Sweep};
use crate::version::{PAGE_BITS, Tree, TreePage, Trees};
use crate::{Error, Result, TreeId};

/// Room in the extents of a map for ranges that are freed after they were allocated, in bytes.
const MAP_SLACK_BYTES: usize = 256;

/// The blocks of one checkpoint besides its trees.
pub(crate) struct Written {
    pub(crate) manifest: StoredTwice,
    pub(crate) map: StoredTwice,
}

/// A durable checkpoint. Nothing that it refers to is used for anything else while this lives.
pub(crate) struct Pinned {
    // Dropped first: as long as there are the trees, a checkpoint knows that others may use space.
    pub(crate) written: Arc<Written>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) generation: u64,
    pub(crate) position: Position,
}

pub(crate) struct Checkpointer {
    store: Arc<RunStore>,
    /// The name of the store's history.
    store_id: [u8; 16],
    /// K1: the number of the durable superblock. The next one has the next number, and with that the other slot.
    generation: u64,
    /// The blocks that the durable superblock refers to. K2: nothing is written there while they are referred to.
    durable: Option<Arc<Written>>,
    /// Its trees, if they are in memory still, and its position; `None` if it was not written by this process.
    newest: Option<(Weak<Trees>, Position)>,
    /// The blocks of superblocks whose write failed: they may be on disk all the same.
    unconfirmed: Vec<Written>,
}

impl Checkpointer {
    /// A writer for a data file that has no checkpoint, of a store with a new history.
    pub(crate) fn new(store: &Arc<RunStore>, disk: &dyn Disk) -> Checkpointer {
        Checkpointer {
            store: store.clone(),
            store_id: disk.unique_name(),
            generation: 0,
            durable: None,
            newest: None,
            unconfirmed: Vec::new(),
        }
    }

    /// The number of the newest durable checkpoint.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The name of the store's history; it is durable with the next checkpoint.
    pub(crate) fn store_id(&self) -> [u8; 16] {
        self.store_id
    }

    /// Gives the store's history a new name.
    pub(crate) fn begin_history(&mut self, disk: &dyn Disk) {
        self.store_id = disk.unique_name();
    }

    /// The newest durable checkpoint, if everything that it refers to is still there.
    pub(crate) fn pin(&self) -> Option<Pinned> {
        let (trees, position) = self.newest.as_ref()?;
        Some(Pinned {
            written: self.durable.clone()?,
            trees: trees.upgrade()?,
            generation: self.generation,
            position: *position,
        })
    }

    /// Makes `trees` durable. `is_alone` indicates whether nothing else uses space, such as a snapshot or a loader.
    pub(crate) fn write(
        &mut self,
        trees: &Arc<Trees>,
        position: Position,
        point: Option<CommitPoint>,
        is_alone: impl Fn() -> bool,
    ) -> Result<()> {
        self.check_position(&position);
        let writer = NodeWriter { store: &self.store };
        let mut pages = Vec::with_capacity(trees.pages().len());
        for page in trees.pages() {
            let copies = match page.stored.get() {
                Some(stored) => stored.copies(),
                None => {
                    for (_, tree) in page.trees() {
                        writer.write(&tree.root)?;
                    }
                    let stored = StoredTwice::write_new(&self.store, &encode_page(page))?;
                    let copies = stored.copies();
                    let is_first = page.stored.set(stored).is_ok();
                    assert!(is_first, "K7: two checkpoints are written at a time");
                    copies
                }
            };
            let last = pages.last();
            assert!(
                last.is_none_or(|last: &PageRef| last.number < page.number()),
                "K6: the pages of a manifest do not ascend"
            );
            pages.push(PageRef {
                number: page.number(),
                copies,
            });
        }
        let manifest = Manifest {
            position,
            store_id: self.store_id,
            // Known once its blocks are allocated.
            free_map: Copies::default(),
            is_exact: false,
            pages,
            lost: trees.lost_pages().iter().map(lost_ref).collect(),
            point,
        };
        let written = self.write_manifest(manifest, is_alone)?;
        self.check_apart(&written)?;
        let data = &self.store.data;
        data.sync()?;

        // Counted only after a success: a retry must not overwrite the last durable superblock.
        let generation = self.generation + 1;
        assert!(
            generation % 2 != self.generation % 2,
            "K1: a superblock is written over the durable one"
        );
        let copies = written.manifest.copies();
        let superblock = encode_superblock(generation, &copies, data.form.ciphers());
        // If the write fails, its superblock may still be found after a crash.
        self.unconfirmed.push(written);
        let guard = FailStop::begin("writing a superblock");
        let confirmed = data.write_raw(&superblock, generation % 2 * ALIGNMENT as u64);
        let durable = confirmed.and_then(|()| data.sync());
        step("a superblock is written");
        if durable.is_ok() {
            self.generation = generation;
            self.durable = self.unconfirmed.pop().map(Arc::new);
            assert!(
                self.durable.is_some(),
                "K2: a durable superblock refers to nothing"
            );
            self.newest = Some((Arc::downgrade(trees), position));
            self.unconfirmed.clear();
            data.space.checkpoint_durable(generation);
        }
        guard.finish();
        for offset in data.space.take_overlaps() {
            let error = corrupt(offset, "two references to one extent were released");
            self.store.damage.record(None, &error);
        }
        durable?;
        self.store.nodes.make_room(&self.store.budget);
        data.cut()
    }

    /// Checks a position beside that of the checkpoint before.
    fn check_position(&self, position: &Position) {
        assert!(
            position.complete_at >= position.log_start,
            "K4: a checkpoint is complete before its log"
        );
        let Some((_, before)) = &self.newest else {
            return;
        };
        assert!(
            position.log_start >= before.log_start,
            "K3: a checkpoint needs log that the one before did not need"
        );
        assert!(
            position.sequence >= before.sequence,
            "K3: a checkpoint has fewer commits than the one before"
        );
        assert!(
            position.next_tree >= before.next_tree,
            "K3: a checkpoint gives ids of trees out again"
        );
        assert!(
            position.last_stamp >= before.last_stamp,
            "K3: a checkpoint has a lower stamp than the one before"
        );
    }

    /// Fails if new blocks are where those of other superblocks are, which may be found after a crash: damaged metadata has
    /// referred to that place twice.
    fn check_apart(&self, written: &Written) -> Result<()> {
        let extents = |written: &Written| {
            [written.manifest.copies(), written.map.copies()].map(|copies| copies.at)
        };
        let new = extents(written);
        let others = self.durable.as_deref().into_iter().chain(&self.unconfirmed);
        let mut others = others.flat_map(extents).flatten();
        match others.find(|other| new.as_flattened().contains(other)) {
            Some(at) => Err(corrupt(at, "a block of a checkpoint was in use twice")),
            None => Ok(()),
        }
    }

    /// Captures the free space, and writes it and the manifest. Extents that cannot be written are replaced.
    fn write_manifest(
        &self,
        mut manifest: Manifest,
        is_alone: impl Fn() -> bool,
    ) -> Result<Written> {
        let data = &self.store.data;
        let mut failed: Vec<Written> = Vec::new();
        loop {
            let (written, map) = self.capture_free(manifest.encode().len());
            manifest.free_map = written.map.copies();
            // Asked after the capture, and in this order: who used space at the capture either still does, or has
            // released it since.
            manifest.is_exact = is_alone()
                && !data.space.has_released()
                && failed.is_empty()
                && !data.space.has_leaks();
            let outcome = written.map.write(&self.store, &map);
            let outcome =
                outcome.and_then(|()| written.manifest.write(&self.store, &manifest.encode()));
            match outcome {
                Ok(()) => {
                    let failed = failed.into_iter();
                    let extents = failed.flat_map(|failed| [failed.manifest, failed.map]);
                    data.set_aside(extents.flat_map(StoredTwice::into_extents).collect());
                    return Ok(written);
                }
                Err(error) if error.is_bad_place() && failed.len() < OTHER_EXTENTS => {
                    failed.push(written);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Allocates the blocks of a checkpoint, and captures what is free besides them: the payload of the map.
    fn capture_free(&self, manifest_bytes: usize) -> (Written, Vec<u8>) {
        let space = &self.store.data.space;
        // Once this checkpoint is durable, nothing refers to the blocks of the previous ones.
        let durable = self.durable.as_deref();
        let old: Vec<(u64, u64)> = (durable.into_iter().chain(&self.unconfirmed))
            .flat_map(|written| [written.manifest.copies(), written.map.copies()])
            .flat_map(|copies| copies.extents())
            .collect();
        let head_bytes = self.store.data.form.head_bytes();
        let mut room = 0;
        // The map must not have its own extents as free, so they are allocated first, with some room.
        loop {
            let wanted = space.free_map(&old).encode().len();
            room = (room * 2).max(wanted + wanted / 16 + MAP_SLACK_BYTES + head_bytes);
            room = room.next_multiple_of(ALIGNMENT);
            let written = Written {
                manifest: StoredTwice::allocate(&self.store, manifest_bytes + head_bytes),
                map: StoredTwice::allocate(&self.store, room),
            };
            // The old blocks must not be reused before the new superblock is durable. So they are released only
            // later, after the releases that wait for this checkpoint were collected.
            let mut map = space.checkpoint_captured(&old).encode();
            assert!(
                room.is_multiple_of(ALIGNMENT) && room > head_bytes,
                "K5: the room of a map is not one of an extent"
            );
            if map.len() + head_bytes <= room {
                map.resize(room - head_bytes, 0);
                return (written, map);
            }
        }
    }
}

fn lost_ref(lost: &LostPage) -> LostRef {
    LostRef {
        page: PageRef {
            number: lost.number,
            copies: lost.stored.copies(),
        },
        until: lost.until,
        dropped: lost.dropped.clone(),
    }
}

/// The state of a store at its last checkpoint.
pub(crate) struct Opened {
    pub(crate) checkpointer: Checkpointer,
    pub(crate) trees: Arc<Trees>,
    pub(crate) position: Position,
    /// Of a member of a replica set.
    pub(crate) point: Option<CommitPoint>,
    /// The search for used space that nothing refers to, if there may be some.
    pub(crate) sweep: Option<Sweep>,
}

/// Reads the newest checkpoint, or starts an empty store.
pub(crate) fn open(store: &Arc<RunStore>, disk: &dyn Disk) -> Result<Opened> {
    let mut opened = Opened {
        checkpointer: Checkpointer::new(store, disk),
        trees: Arc::default(),
        position: Position {
            next_tree: 1,
            ..Position::default()
        },
        point: None,
        sweep: None,
    };
    if store.data.len()? < 2 * ALIGNMENT as u64 {
        let mut zeros = AlignedBuf::with_capacity(2 * ALIGNMENT);
        zeros.resize(2 * ALIGNMENT);
        store.data.write_raw(&zeros, 0)?;
        store.data.sync()?;
        return Ok(opened);
    }
    // After a crash of the process alone, unsynced writes can be read but are not durable. The superblock
    // in use must be, because what only the other one refers to is overwritten from now on.
    store.data.sync()?;
    let slots = [
        read_superblock(&store.data, 0)?,
        read_superblock(&store.data, 1)?,
    ];
    let is_one_damaged = slots.iter().any(Option::is_none);
    let Some(newest) = slots
        .into_iter()
        .flatten()
        .max_by_key(|slot| slot.generation)
    else {
        // Before the first checkpoint is complete there are only superblocks, unless a crash interrupted
        // that checkpoint: then everything is still in the log. It writes the second superblock.
        let mut first = AlignedBuf::with_capacity(ALIGNMENT);
        store.data.read(0, ALIGNMENT, &mut first)?;
        if first.iter().any(|byte| *byte != 0) {
            return Err(corrupt(0, "both superblocks are damaged"));
        }
        return Ok(opened);
    };
    let most = if store.data.form.is_encrypted() {
        1 << GENERATION_BITS
    } else {
        u64::MAX / 2
    };
    if newest.generation >= most {
        return Err(corrupt(0, "the number of a checkpoint is impossible"));
    }
    opened.checkpointer.generation = newest.generation;
    // The first checkpoint leaves one empty.
    if is_one_damaged && newest.generation > 1 {
        // The superblock that is damaged may have been of the next checkpoint, and there may be copies of that. No extent
        // gets a birth that it may have had there.
        opened.checkpointer.generation += 2;
    }
    store
        .data
        .space
        .set_generation(opened.checkpointer.generation);
    let (payload, _) = newest.manifest.read(store)?;
    let manifest = Manifest::parse(&payload).ok_or_else(|| malformed(&newest.manifest))?;
    (opened.position, opened.point) = (manifest.position, manifest.point.clone());
    opened.checkpointer.store_id = manifest.store_id;
    read_trees(store, &newest, &manifest, &mut opened)?;
    Ok(opened)
}

fn malformed(copies: &Copies) -> Error {
    corrupt(copies.at[0], "the manifest is malformed")
}

/// Reads the map of the free space and the trees, without their nodes.
fn read_trees(
    store: &Arc<RunStore>,
    newest: &Superblock,
    manifest: &Manifest,
    opened: &mut Opened,
) -> Result<()> {
    let map = manifest.free_map;
    let free = map.read(store).and_then(|(payload, _)| {
        FreeMap::parse(&payload)
            .ok_or_else(|| corrupt(map.at[0], "the map of the free space is malformed"))
    });
    let mut is_exact = manifest.is_exact;
    let free = match free {
        Ok(free) => free,
        Err(error) => {
            store.damage.record(None, &error);
            match walk(store, newest, manifest, map) {
                Ok(free) => {
                    is_exact = true;
                    free
                }
                Err(error) => {
                    store.damage.record(None, &error);
                    is_exact = false;
                    // Nothing is known to be free.
                    let end = store.data.len()?.next_multiple_of(ALIGNMENT as u64);
                    FreeMap::new(end, Vec::new(), |_| ())
                }
            }
        }
    };
    store.data.space.restore(&free);
    let adopt = |copies: Copies| {
        let adopted = StoredTwice::adopt(store, copies);
        adopted.ok_or_else(|| corrupt(copies.at[0], "the extent of a block is impossible"))
    };
    opened.checkpointer.durable = Some(Arc::new(Written {
        manifest: adopt(newest.manifest)?,
        map: adopt(map)?,
    }));
    let mut trees = Trees::default();
    for page in &manifest.pages {
        let stored = adopt(page.copies)?;
        match read_page(store, &page.copies) {
            Ok((read, is_sound)) => {
                // A page with a damaged copy is written again by the next checkpoint.
                let page = TreePage::new(read, is_sound.then_some(stored));
                if !page.is_some_and(|page| trees.push_page(page)) {
                    return Err(malformed(&newest.manifest));
                }
            }
            // Nothing works without the first trees: they are the catalog.
            Err(error) if page.number > 0 && error.is_damage() => {
                store.damage.record(None, &error);
                let until = manifest.position.next_tree;
                trees.push_lost(LostPage::new(page.number, until, stored, error));
            }
            Err(error) => return Err(error),
        }
    }
    for lost in &manifest.lost {
        let stored = adopt(lost.page.copies)?;
        // First what has gathered: handles to what the page refers to free it when they are dropped.
        let gathered = trees.gathered(lost.page.number, lost.until);
        let read =
            gathered.and_then(|gathered| Ok((read_page(store, &lost.page.copies)?.0, gathered)));
        match read {
            Ok((read, mut gathered)) => {
                for (id, tree) in read {
                    if !lost.dropped.contains(&id) {
                        trees.restore(id, tree, &mut gathered);
                    }
                }
            }
            Err(error) if error.is_damage() => {
                store.damage.record(None, &error);
                let mut page = LostPage::new(lost.page.number, lost.until, stored, error);
                page.dropped.clone_from(&lost.dropped);
                trees.push_lost(page);
            }
            Err(error) => return Err(error),
        }
    }
    for lost in trees.lost_pages() {
        // Otherwise new trees could not be distinguished from its trees.
        let above = (lost.number + 1) << PAGE_BITS;
        opened.position.next_tree = opened.position.next_tree.max(above);
    }
    // A lost page that was just read again is not in the trees as it is on disk.
    let all_known = manifest.lost.is_empty() && trees.lost_pages().is_empty();
    opened.trees = Arc::new(trees);
    if !is_exact {
        store.data.space.note_leaks();
        // A damaged copy of a page was released already, so it must not be taken for a leak.
        let pages = manifest.pages.iter().map(|page| page.copies);
        let blocks: Vec<Copies> = pages.chain([newest.manifest, map]).collect();
        // The space that the trees of a lost page use is not known.
        if all_known {
            let noted = store.data.space.leaks_noted();
            opened.sweep = Sweep::new(&opened.trees, free.used(), &blocks, noted);
        }
    }
    Ok(())
}

/// Reads a page of trees, without their nodes. Also returns whether no copy was found damaged.
fn read_page(store: &Arc<RunStore>, copies: &Copies) -> Result<(Vec<(TreeId, Tree)>, bool)> {
    let (payload, is_sound) = copies.read(store)?;
    let mut known = KnownRuns::new(store, copies.at[0]);
    let trees = trees_of(copies, &payload, |root| known.subtree(root, u32::MAX));
    let trees = trees.inspect_err(|_| known.disown())?;
    Ok((trees, is_sound))
}

/// Finds the free space by a walk over all nodes.
fn walk(
    store: &Arc<RunStore>,
    newest: &Superblock,
    manifest: &Manifest,
    map: Copies,
) -> Result<FreeMap> {
    let mut reach = Reach::default();
    reach.add_copies(&newest.manifest);
    reach.add_copies(&map);
    for page in &manifest.pages {
        reach.add_copies(&page.copies);
        let (payload, _) = page.copies.read(store)?;
        for tree in parse_page(&payload).ok_or_else(|| malformed(&page.copies))? {
            reach.add_subtree(&tree.root);
        }
    }
    for lost in &manifest.lost {
        // The space that its trees use is not known, unless it can be read again.
        reach.add_copies(&lost.page.copies);
        let (payload, _) = lost.page.copies.read(store)?;
        for tree in parse_page(&payload).ok_or_else(|| malformed(&lost.page.copies))? {
            reach.add_subtree(&tree.root);
        }
    }
    while !reach.follow(store, usize::MAX)? {}
    Ok(reach.into_map())
}

/// The trees of a page. `follow` makes a handle of a root.
fn trees_of(
    copies: &Copies,
    payload: &[u8],
    mut follow: impl FnMut(SubtreeRef) -> Result<Subtree>,
) -> Result<Vec<(TreeId, Tree)>> {
    let mut read = Vec::new();
    for tree in parse_page(payload).ok_or_else(|| malformed(copies))? {
        let root = follow(tree.root)?;
        let (options, loading) = (tree.options, tree.loading);
        let tree_read = Tree {
            options,
            root,
            loading,
            created_at: 0,
        };
        read.push((tree.id, tree_read));
    }
    Ok(read)
}

/// Fails if the data file is not one of a store.
pub(crate) fn check_magic(store: &RunStore) -> Result<()> {
    if store.data.len()? < 2 * ALIGNMENT as u64 {
        return Ok(());
    }
    let mut buffer = AlignedBuf::with_capacity(2 * ALIGNMENT);
    store.data.read(0, 2 * ALIGNMENT, &mut buffer)?;
    let ours = |slot: &[u8]| slot.starts_with(MAGIC) || slot.iter().all(|byte| *byte == 0);
    if buffer.chunks(ALIGNMENT).take(2).any(ours) {
        return Ok(());
    }
    Err(Error::Corrupt {
        file: DATA_FILE.to_owned(),
        offset: 0,
        what: "both superblocks are unreadable, or this is not a data file of a store",
    })
}
