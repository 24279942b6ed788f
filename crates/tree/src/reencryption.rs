//! Encryption of the data file with the current store key: of content that has an older key, and in a store that is being encrypted
//! also of unencrypted content.
//!
//! The old keys stay in the key store, because older parts of the log, copies and files beside the store may need them.

use crate::block::Place;
use crate::damage::Activity;
use crate::engine::Engine;
use crate::fail_stop::watch;
use crate::log;
use crate::node::Rewriting;
use crate::store::Store;
use crate::version::TreePage;
use crate::{Result, TreeId};

/// The outcome of [`Store::reencrypt`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reencryption {
    /// Whether the work reached the end, and checkpoints refer to nothing old but the skipped parts.
    pub is_done: bool,
    /// Parts of trees that keep their old keys: they are damaged, or wait for a bulk load.
    pub skipped: u64,
    /// Bytes that were written to the data file meanwhile.
    pub bytes: u64,
}

impl Store {
    /// Writes all parts of the data file again that are not encrypted with the current store key, and then checkpoints. Readers and
    /// writers go on meanwhile. It reads one block of each run to find the key of the run.
    ///
    /// `goes_on` is called before each step, which writes about one leaf; it ends the work by returning false. A nearly full disk
    /// ends it, too. What was written until then is not written again by the next call.
    ///
    /// # Errors
    /// Errors of the disk. Damage is skipped.
    pub fn reencrypt(&self, mut goes_on: impl FnMut() -> bool) -> Result<Reencryption> {
        let engine = self.engine();
        let before = engine.written_bytes();
        let mut outcome = Reencryption::default();
        engine.report(Activity::Compaction, 0, || {
            let skipped = engine.reencrypt_trees(&mut goes_on)?;
            if skipped.is_some() {
                engine.rewrite_old_pages();
            }
            let generation = || engine.checkpointer.lock().generation();
            let before = generation();
            engine.checkpoint_committed()?;
            let Some(skipped) = skipped else {
                return Ok(());
            };
            // Until a second checkpoint the superblock before refers to the old blocks, and what the second one has released is
            // free after a third one.
            for _ in 0..2 {
                engine.checkpoint_committed_trees()?;
            }
            if let Some(log) = engine.log.get() {
                log.leave_segment();
            }
            if engine.accepts_plain() {
                engine.runs.data.clear_free()?;
            }
            // A member of a replica set writes no checkpoint while the set has not committed what is in memory.
            outcome.is_done = generation() >= before + 3;
            outcome.skipped = skipped;
            Ok(())
        })?;
        outcome.bytes = engine.written_bytes() - before;
        Ok(outcome)
    }

    /// Whether all groups of the log are encrypted. If [`crate::encrypt_log`] has left some as they were, they leave with the log that no
    /// checkpoint and no reader needs any more.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn is_log_encrypted(&self) -> Result<bool> {
        log::is_encrypted(&*self.engine().options.disk)
    }
}

impl Engine {
    /// Whether readers accept unencrypted content.
    fn accepts_plain(&self) -> bool {
        let ciphers = self.runs.data.form.ciphers();
        ciphers.is_some_and(|ciphers| ciphers.accepts_plain())
    }

    /// The number of parts that were skipped; `None` if it was ended early.
    fn reencrypt_trees(&self, goes_on: &mut impl FnMut() -> bool) -> Result<Option<u64>> {
        let (mut saved, mut skipped) = (self.written_bytes(), 0);
        for id in self.tree_ids() {
            let mut rewriting = Rewriting::begin();
            while rewriting.from.is_some() {
                if !goes_on() || self.disk_space.is_low() {
                    return Ok(None);
                }
                self.reencrypt_once(id, &mut rewriting)?;
                if self.written_bytes() - saved >= self.disk_space.step_bytes() {
                    // The space of what was replaced is free after a checkpoint only.
                    self.checkpoint_committed_trees()?;
                    saved = self.written_bytes();
                }
            }
            skipped += rewriting.skipped;
        }
        Ok(Some(skipped))
    }

    fn tree_ids(&self) -> Vec<TreeId> {
        let trees = self.trees();
        let listed = trees.pages().iter().flat_map(|page| page.trees());
        listed.map(|(id, _)| *id).collect()
    }

    /// Takes one step in one tree.
    fn reencrypt_once(&self, id: TreeId, rewriting: &mut Rewriting) -> Result<()> {
        let _working = self.flusher.working.lock();
        let Some(tree) = self.trees().get(id).cloned() else {
            rewriting.from = None;
            return Ok(());
        };
        if tree.loading {
            *rewriting = Rewriting {
                from: None,
                skipped: rewriting.skipped + 1,
            };
            return Ok(());
        }
        let builder = self.builder(id, &tree);
        let root = watch(|| builder.rewrite_step(&tree.root, rewriting))?;
        if let Some(root) = root {
            self.publish_roots([(id, root)]);
        }
        Ok(())
    }

    /// Marks old pages of trees, so that the next checkpoint writes them again.
    fn rewrite_old_pages(&self) {
        let _working = self.flusher.working.lock();
        let trees = self.trees();
        let is_old = |page: &&TreePage| {
            let copies = page.stored.get().map(|stored| stored.copies());
            let places = copies.into_iter().flat_map(|copies| {
                let offsets = copies.offsets();
                offsets.map(move |at| Place::new(at, copies.birth))
            });
            // A damaged copy is written again as well.
            let mut old = places.map(|place| self.runs.data.has_old_form(place).unwrap_or(true));
            old.any(|is_old| is_old)
        };
        let pages = trees.pages().iter().map(|page| &**page).filter(is_old);
        let first = |page: &TreePage| {
            let (id, tree) = page.trees().first()?;
            Some((*id, tree.root.clone()))
        };
        // A checkpoint writes a page after any change of a root, also to the same one.
        self.publish_roots(pages.filter_map(first));
    }
}
