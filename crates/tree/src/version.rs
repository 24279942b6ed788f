//! Versions of the store: the live memtables, and one root per tree.

use std::collections::HashMap;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};

use frond_kv::operation::NewTree;

use crate::damage::DamageRegistry;
use crate::lost_page::LostPage;
use crate::memtable::Memtable;
use crate::metadata::StoredTwice;
use crate::node::{BufferRun, Subtree};
use crate::{Error, MergeOperator, Result, TreeId, TreeOptions};

/// Trees whose ids differ only in these low bits are in one page of the manifest.
pub(crate) const PAGE_BITS: u32 = 8;

/// A tree's settings and its root.
#[derive(Clone)]
pub(crate) struct Tree {
    pub(crate) options: TreeOptions,
    pub(crate) root: Subtree,
    /// Whether the tree waits for a bulk load. Until then the root only gathers messages.
    pub(crate) loading: bool,
    /// The sequence number of the commit that creates it. Snapshots from before, which may be taken until the commit is
    /// visible, do not have the tree. 0 if it was there when the store was opened.
    pub(crate) created_at: u64,
}

impl Tree {
    /// A tree that a commit creates whose last sequence number is `created_at`.
    pub(crate) fn new(options: TreeOptions, state: NewTree, created_at: u64) -> Tree {
        Tree {
            options,
            root: Subtree::Empty,
            loading: state == NewTree::ToBeLoaded,
            created_at,
        }
    }
}

/// The trees of a store by id. Copies share all unchanged pages, so a change costs one page, however many trees
/// there are.
#[derive(Clone, Default)]
pub(crate) struct Trees {
    /// V4: in the order of ids; none is empty.
    pages: Vec<Arc<TreePage>>,
    /// V6: the number of trees in the pages.
    len: usize,
    /// Pages that cannot be read.
    lost: Vec<LostPage>,
    /// The sequence number of the last commit that dropped a tree.
    ///
    /// V5: it only grows, so a snapshot that waits for it has no tree that the version lacks.
    pub(crate) dropped_at: u64,
    /// Shared by all versions of the trees that are in memory. It comes last: when it is dropped, so are the pages.
    alive: Arc<()>,
}

/// The runs that have gathered for trees that could not be read.
pub(crate) type Gathered = HashMap<TreeId, Vec<BufferRun>>;

/// Up to 256 trees with adjacent ids: the unit in which a checkpoint writes them.
pub(crate) struct TreePage {
    /// V4: in the order of ids, at least one, all with the same number of the page.
    trees: Vec<(TreeId, Tree)>,
    /// Where the page is on disk, once a checkpoint has written it.
    pub(crate) stored: OnceLock<StoredTwice>,
}

impl Clone for TreePage {
    /// A copy for changes: it is not on disk.
    fn clone(&self) -> TreePage {
        TreePage {
            trees: self.trees.clone(),
            stored: OnceLock::new(),
        }
    }
}

impl TreePage {
    /// A page that was read; `None` unless the ids ascend and belong together. Without `stored` the next checkpoint
    /// writes it again.
    pub(crate) fn new(trees: Vec<(TreeId, Tree)>, stored: Option<StoredTwice>) -> Option<TreePage> {
        let first = trees.first()?.0;
        let ascend = trees.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let together = trees.iter().all(|(id, _)| number(*id) == number(first));
        (ascend && together).then(|| TreePage {
            trees,
            stored: stored.map_or_else(OnceLock::new, OnceLock::from),
        })
    }

    pub(crate) fn trees(&self) -> &[(TreeId, Tree)] {
        &self.trees
    }

    pub(crate) fn number(&self) -> u32 {
        self.trees.first().map_or(0, |(id, _)| number(*id))
    }

    fn find(&self, id: TreeId) -> Result<usize, usize> {
        self.trees.binary_search_by_key(&id, |(id, _)| *id)
    }
}

/// The number of a tree's page.
fn number(id: TreeId) -> u32 {
    id.0 >> PAGE_BITS
}

impl Trees {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, id: TreeId) -> Option<&Tree> {
        if self.lost(id).is_some() {
            return None;
        }
        self.get_listed(id)
    }

    fn get_listed(&self, id: TreeId) -> Option<&Tree> {
        let page = &self.pages[self.find(id).ok()?];
        Some(&page.trees[page.find(id).ok()?].1)
    }

    /// Whether a tree exists, also if it cannot be read.
    pub(crate) fn contains(&self, id: TreeId) -> bool {
        self.get(id).is_some() || self.lost(id).is_some()
    }

    /// As [`Trees::get`], for a reader that sees the commits up to `sequence`.
    pub(crate) fn get_at(&self, id: TreeId, sequence: u64) -> Option<&Tree> {
        self.get(id).filter(|tree| tree.created_at <= sequence)
    }

    /// As [`Trees::contains`], for a reader that sees the commits up to `sequence`.
    pub(crate) fn contains_at(&self, id: TreeId, sequence: u64) -> bool {
        self.get_at(id, sequence).is_some() || self.lost(id).is_some()
    }

    /// The error of what needs a tree that is not there.
    pub(crate) fn missing(&self, id: TreeId) -> Error {
        let lost = self.lost(id);
        lost.map_or(Error::UnknownTree(id), LostPage::error)
    }

    /// The pages that cannot be read.
    pub(crate) fn lost_pages(&self) -> &[LostPage] {
        &self.lost
    }

    /// The page of a tree, if it cannot be read.
    fn lost(&self, id: TreeId) -> Option<&LostPage> {
        self.lost.iter().find(|page| page.holds(id, number(id)))
    }

    /// Adds a page that cannot be read.
    pub(crate) fn push_lost(&mut self, page: LostPage) {
        self.lost.push(page);
    }

    /// Where messages for a tree that cannot be read gather: it waits for its load. `None` if the tree does not exist.
    pub(crate) fn gathering(&self, id: TreeId) -> Option<Tree> {
        self.lost(id)?;
        Some(self.get_listed(id).cloned().unwrap_or_else(|| Tree {
            options: TreeOptions::default(),
            root: Subtree::Empty,
            loading: true,
            created_at: 0,
        }))
    }

    /// The runs that have gathered for the trees of a page that could not be read; `until` is the first id that is not in it.
    ///
    /// # Errors
    /// If that cannot be read.
    pub(crate) fn gathered(&self, page: u32, until: u32) -> Result<Gathered> {
        let page = self.pages.iter().find(|listed| listed.number() == page);
        let listed = page.into_iter().flat_map(|page| page.trees());
        let listed = listed.filter(|(id, _)| id.0 < until);
        listed
            .map(|(id, tree)| Ok((*id, tree.root.gathered_runs()?)))
            .collect()
    }

    /// Adds a tree of a page that can be read again, below what has gathered for it.
    pub(crate) fn restore(&mut self, id: TreeId, mut tree: Tree, gathered: &mut Gathered) {
        if let Some(runs) = gathered.remove(&id) {
            tree.root = tree.root.below(runs);
            self.remove(id);
        }
        self.insert(id, tree);
    }

    pub(crate) fn pages(&self) -> &[Arc<TreePage>] {
        &self.pages
    }

    /// Adds a tree, unless the id is taken.
    pub(crate) fn insert(&mut self, id: TreeId, tree: Tree) {
        match self.find(id) {
            Ok(at) => {
                if let Err(index) = self.pages[at].find(id) {
                    self.edit(at).trees.insert(index, (id, tree));
                    self.len += 1;
                }
            }
            Err(at) => {
                let page = TreePage {
                    trees: vec![(id, tree)],
                    stored: OnceLock::new(),
                };
                self.pages.insert(at, Arc::new(page));
                self.len += 1;
            }
        }
    }

    pub(crate) fn remove(&mut self, id: TreeId) {
        let page = number(id);
        if let Some(lost) = self.lost.iter_mut().find(|lost| lost.holds(id, page)) {
            lost.dropped.push(id);
        }
        let Ok(at) = self.find(id) else { return };
        let Ok(index) = self.pages[at].find(id) else {
            return;
        };
        if self.pages[at].trees.len() == 1 {
            self.pages.remove(at);
        } else {
            self.edit(at).trees.remove(index);
        }
        assert!(self.len > 0, "V6: a tree is removed that was not counted");
        self.len -= 1;
    }

    /// Replaces the root of a tree, if it is there.
    pub(crate) fn set_root(&mut self, id: TreeId, root: Subtree) {
        if let Some(tree) = self.gathering(id) {
            self.insert(id, tree);
        }
        if let Ok(at) = self.find(id)
            && let Ok(index) = self.pages[at].find(id)
        {
            self.edit(at).trees[index].1.root = root;
        }
    }

    /// Installs the load of a tree. False if it does not wait for one, or does not exist.
    pub(crate) fn set_loaded(&mut self, id: TreeId, root: Subtree) -> bool {
        if !self.get(id).is_some_and(|tree| tree.loading) {
            return false;
        }
        self.set_root(id, root);
        if let Ok(at) = self.find(id)
            && let Ok(index) = self.pages[at].find(id)
        {
            self.edit(at).trees[index].1.loading = false;
        }
        true
    }

    /// These trees and roots alone, for a reader that needs no others. What cannot be read stays known.
    pub(crate) fn with_only(&self, trees: Vec<(TreeId, Tree)>) -> Trees {
        let mut only = Trees {
            lost: self.lost.clone(),
            dropped_at: self.dropped_at,
            alive: self.alive.clone(),
            ..Trees::default()
        };
        for (id, tree) in trees {
            only.insert(id, tree);
        }
        only
    }

    /// Whether no other version of the trees is in memory, such as one that a snapshot holds.
    pub(crate) fn is_only_version(&self) -> bool {
        let is_only = Arc::strong_count(&self.alive) == 1;
        // The releases of the others are seen from here on.
        fence(Ordering::Acquire);
        is_only
    }

    /// Appends a page; false if its number is not greater than all others.
    pub(crate) fn push_page(&mut self, page: TreePage) -> bool {
        let belongs = self
            .pages
            .last()
            .is_none_or(|last| last.number() < page.number());
        if belongs {
            self.len += page.trees.len();
            self.pages.push(Arc::new(page));
        }
        belongs
    }

    fn find(&self, id: TreeId) -> Result<usize, usize> {
        self.pages
            .binary_search_by_key(&number(id), |page| page.number())
    }

    /// A page for changes: not shared, and not on disk.
    fn edit(&mut self, at: usize) -> &mut TreePage {
        let page = Arc::make_mut(&mut self.pages[at]);
        assert!(!page.trees.is_empty(), "V4: a page has no trees");
        page.stored = OnceLock::new();
        page
    }
}

/// A version of the store. Replaced as a whole, under the commit lock.
#[derive(Clone)]
pub(crate) struct Version {
    /// V1: the newest memtable, and the only one that commits enter.
    pub(crate) active: Arc<Memtable>,
    /// Sealed memtables that are not flushed to the trees yet, newest first.
    ///
    /// V2: the log of each ends where that of the next newer one begins, and positions only grow.
    /// V3: so do the sequence numbers. Those before the oldest memtable are in the trees.
    pub(crate) sealed: Vec<Arc<Memtable>>,
    pub(crate) trees: Arc<Trees>,
    /// Where readers record the damaged blocks that they meet.
    pub(crate) damage: Arc<DamageRegistry>,
    /// The version holds the operator so that a snapshot needs only one reference.
    pub(crate) operator: Arc<dyn MergeOperator>,
}

impl Version {
    /// Checks the order of the memtables.
    pub(crate) fn check_order(&self) {
        let mut newer = &self.active;
        for older in &self.sealed {
            assert!(
                older.log_start <= newer.log_start,
                "V2: the log of a memtable begins before that of an older one"
            );
            assert!(
                older.sequence_before <= newer.sequence_before,
                "V3: a memtable begins with a lower number than an older one"
            );
            assert!(
                older.last_sequence() <= newer.sequence_before,
                "V3: a memtable has numbers of a newer one"
            );
            assert!(
                older.stamp_before <= newer.stamp_before,
                "V3: a memtable begins with a lower stamp than an older one"
            );
            newer = older;
        }
    }

    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// The position in the log from which a replay must start if only the trees are durable.
    pub(crate) fn log_start(&self) -> u64 {
        self.oldest_memtable().log_start
    }

    /// The position after the log of the oldest memtable, if it is sealed.
    pub(crate) fn log_end_of_oldest(&self) -> u64 {
        let next = self.sealed.iter().rev().nth(1);
        next.unwrap_or(&self.active).log_start
    }

    /// The last sequence number of the commits that are in the trees.
    pub(crate) fn sequence_in_trees(&self) -> u64 {
        self.oldest_memtable().sequence_before
    }

    /// The last stamp of the commits that are in the trees, as far as it is known.
    pub(crate) fn stamp_in_trees(&self) -> u64 {
        self.oldest_memtable().stamp_before
    }

    fn oldest_memtable(&self) -> &Memtable {
        self.sealed.last().unwrap_or(&self.active)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn tree(mark: u32) -> Tree {
        let options = TreeOptions {
            page_bytes: mark,
            ..TreeOptions::default()
        };
        Tree {
            options,
            root: Subtree::Empty,
            loading: false,
            created_at: 0,
        }
    }

    fn content(trees: &Trees) -> Vec<(u32, u32)> {
        let trees = trees.pages().iter().flat_map(|page| page.trees());
        trees
            .map(|(id, tree)| (id.0, tree.options.page_bytes))
            .collect()
    }

    #[test]
    fn copies_are_independent_and_share_pages() {
        let (mut trees, mut model) = (Trees::default(), BTreeMap::new());
        let mut random = 7u32;
        for step in 0..5000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let id = (random >> 8) % 3000;
            let before = (trees.clone(), step % 97 == 0);
            let old = before.1.then(|| content(&before.0));
            if random >> 30 == 0 {
                trees.remove(TreeId(id));
                model.remove(&id);
            } else {
                trees.insert(TreeId(id), tree(step));
                model.entry(id).or_insert(step);
            }
            if let Some(old) = old {
                assert_eq!(content(&before.0), old);
                let expected: Vec<_> = model.iter().map(|(id, mark)| (*id, *mark)).collect();
                assert_eq!(content(&trees), expected);
                let shared = trees
                    .pages()
                    .iter()
                    .filter(|page| before.0.pages().iter().any(|old| Arc::ptr_eq(old, page)));
                assert!(shared.count() + 1 >= trees.pages().len());
            }
            assert_eq!(trees.len(), model.len());
            assert_eq!(trees.contains(TreeId(id)), model.contains_key(&id));
        }
        assert_eq!(trees.pages().len(), 3000usize.div_ceil(256));
    }
}
