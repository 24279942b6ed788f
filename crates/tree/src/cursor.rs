//! A walk over a range of keys, as a snapshot sees it.

use std::ops::Bound;
use std::sync::Arc;

use crate::memtable::MemSource;
use crate::merge::Resolver;
use crate::merger::{Direction, Merger, Source};
use crate::node::{BufferRun, Subtree};
use crate::range::RangeSet;
use crate::run::{Fetch, PartsCursor, Run};
use crate::snapshot::Snapshot;
use crate::{Kind, Result, TreeId};

/// A cursor over one tree. It owns its snapshot. It merges the memtables, the buffers of one path and the
/// leaf at its end; behind the range of that leaf it goes on with the next path.
pub struct Cursor {
    snapshot: Snapshot,
    tree: TreeId,
    resolver: Resolver,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    direction: Direction,
    /// The memtables' sources, then those of the path.
    merger: Merger,
    memtables: usize,
    /// The range of the leaf at the end of the path: the lower bound, and the upper one if there is one.
    path_lower: Vec<u8>,
    path_upper: Option<Vec<u8>>,
    /// The key that was returned last, and its value if that is made of update messages.
    key: Vec<u8>,
    folded: Option<Vec<u8>>,
    /// Whether the merger still stands at `key`.
    at_key: bool,
    done: bool,
}

impl Cursor {
    pub(crate) fn new(
        snapshot: Snapshot,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Cursor> {
        let resolver = snapshot.resolver(tree);
        let sources: Vec<Source> = snapshot
            .version
            .memtables()
            .filter_map(|memtable| {
                MemSource::new(memtable, tree, snapshot.sequence, resolver.clone())
            })
            .map(Source::memtable)
            .collect();
        let mut cursor = Cursor {
            snapshot,
            tree,
            resolver,
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(<[u8]>::to_vec),
            direction,
            memtables: sources.len(),
            merger: Merger::new(sources, direction)?,
            path_lower: Vec::new(),
            path_upper: None,
            key: Vec::new(),
            folded: None,
            at_key: false,
            done: false,
        };
        match direction {
            Direction::Forward => cursor.start_forward(&[])?,
            Direction::Backward => cursor.start_backward(None)?,
        }
        Ok(cursor)
    }

    /// The next key and its value, or `None` at the end of the range.
    ///
    /// # Errors
    /// Errors of the disk.
    #[allow(clippy::should_implement_trait, reason = "it lends what it returns")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.leave_key()?;
        while !self.done {
            let in_path = match (self.merger.peek_key(), self.direction) {
                (Some(key), Direction::Forward) => {
                    self.path_upper.as_deref().is_none_or(|upper| key < upper)
                }
                (Some(key), Direction::Backward) => key >= self.path_lower.as_slice(),
                (None, _) => false,
            };
            if !in_path {
                self.next_path()?;
                continue;
            }
            let Some((key, kind, _)) = self.merger.peek() else {
                break;
            };
            if !self.in_range(key) {
                break;
            }
            self.key.clear();
            self.key.extend_from_slice(key);
            match kind {
                Kind::Put => {
                    self.at_key = true;
                    let value = self.merger.peek().map_or(&[][..], |(_, _, value)| value);
                    return Ok(Some((&self.key, value)));
                }
                Kind::Delete => self.merger.skip(&self.key)?,
                Kind::Merge => {
                    let (kind, value) = self.merger.fold(&self.key, &self.resolver, true)?;
                    self.merger.skip(&self.key)?;
                    if kind == Kind::Put {
                        let value = self.folded.insert(value);
                        return Ok(Some((&self.key, value)));
                    }
                }
            }
        }
        self.done = true;
        Ok(None)
    }

    /// Goes on at `key`: forward, the next key is the first one at or after it; backward, the last one at
    /// or before it. The bounds of the cursor still hold.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        (self.at_key, self.folded, self.done) = (false, None, false);
        match self.direction {
            Direction::Forward => self.start_forward(key),
            Direction::Backward => {
                let mut above = key.to_vec();
                above.push(0);
                self.start_backward(Some(&above))
            }
        }
    }

    /// Moves behind the key that was returned last.
    fn leave_key(&mut self) -> Result<()> {
        self.folded = None;
        if std::mem::take(&mut self.at_key) {
            let single = self.merger.is_single();
            self.merger.step()?;
            if !single {
                self.merger.skip(&self.key)?;
            }
        }
        Ok(())
    }

    /// Whether a key lies on the near side of the bound that ends the walk.
    fn in_range(&self, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => match &self.upper {
                Bound::Included(upper) => key <= upper.as_slice(),
                Bound::Excluded(upper) => key < upper.as_slice(),
                Bound::Unbounded => true,
            },
            Direction::Backward => match &self.lower {
                Bound::Included(lower) => key >= lower.as_slice(),
                Bound::Excluded(lower) => key > lower.as_slice(),
                Bound::Unbounded => true,
            },
        }
    }

    fn start_forward(&mut self, key: &[u8]) -> Result<()> {
        let start = match &self.lower {
            Bound::Included(lower) => lower.as_slice().max(key).to_vec(),
            // The smallest key above the bound.
            Bound::Excluded(lower) => {
                let mut above = lower.clone();
                above.push(0);
                if above.as_slice() < key {
                    key.to_vec()
                } else {
                    above
                }
            }
            Bound::Unbounded => key.to_vec(),
        };
        for source in &mut self.merger.sources[..self.memtables] {
            source.seek(&start)?;
        }
        self.open_path_at(&start)
    }

    /// Starts below `before`, or at the end.
    fn start_backward(&mut self, before: Option<&[u8]>) -> Result<()> {
        let mut start = match &self.upper {
            Bound::Included(upper) => {
                let mut above = upper.clone();
                above.push(0);
                Some(above)
            }
            Bound::Excluded(upper) => Some(upper.clone()),
            Bound::Unbounded => None,
        };
        if let Some(before) = before
            && start.as_deref().is_none_or(|start| before < start)
        {
            start = Some(before.to_vec());
        }
        for source in &mut self.merger.sources[..self.memtables] {
            source.seek_before(start.as_deref())?;
        }
        self.open_path_before(start.as_deref())
    }

    fn next_path(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => match self.path_upper.take() {
                // Nothing between the end of this path and the bound: the walk may end here.
                Some(upper) if self.in_range(&upper) => self.open_path_at(&upper),
                _ => {
                    self.done = true;
                    Ok(())
                }
            },
            Direction::Backward => {
                let lower = std::mem::take(&mut self.path_lower);
                // No key is below the empty one.
                if lower.is_empty() || !self.in_range(&lower) {
                    self.done = true;
                    return Ok(());
                }
                self.open_path_before(Some(&lower))
            }
        }
    }

    fn open_path_at(&mut self, key: &[u8]) -> Result<()> {
        self.merger.sources.truncate(self.memtables);
        match self.alive_from(key) {
            // What the tree has from here on is deleted.
            None => self.path_upper = None,
            Some(alive) if !self.in_range(&alive) => self.path_upper = None,
            Some(alive) => {
                for mut source in self.open_path(|node| node.child_of(&alive))? {
                    source.seek(&alive)?;
                    self.merger.sources.push(source);
                }
            }
        }
        self.merger.rebuild()
    }

    fn open_path_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.merger.sources.truncate(self.memtables);
        let alive = self.alive_before(key);
        let alive = alive.as_deref().or(key);
        if alive.is_some_and(<[u8]>::is_empty) {
            self.path_lower.clear();
            return self.merger.rebuild();
        }
        for mut source in self.open_path(|node| node.child_before(alive))? {
            source.seek_before(alive)?;
            self.merger.sources.push(source);
        }
        self.merger.rebuild()
    }

    /// The first key from `key` on that no range delete of a memtable covers, if there is one.
    fn alive_from(&self, key: &[u8]) -> Option<Arc<[u8]>> {
        let mut alive: Arc<[u8]> = key.into();
        let memtables = &self.merger.sources[..self.memtables];
        while let Some(range) = memtables.iter().find_map(|m| m.ranges.covering(&alive)) {
            alive = range.upper.clone()?;
        }
        Some(alive)
    }

    /// The key below which the first key below `key` lies that no range delete of a memtable covers;
    /// `None` if that is `key` itself.
    fn alive_before(&self, key: Option<&[u8]>) -> Option<Arc<[u8]>> {
        let mut alive: Option<Arc<[u8]>> = None;
        let memtables = &self.merger.sources[..self.memtables];
        while let Some(range) = memtables
            .iter()
            .find_map(|m| m.ranges.covering_below(alive.as_deref().or(key)))
        {
            alive = Some(range.lower.clone());
        }
        alive
    }

    /// Replaces the sources of the path: the buffers from the root down, newest run first, then the leaf.
    fn open_path(
        &mut self,
        choose: impl Fn(&crate::node::Internal) -> usize,
    ) -> Result<Vec<Source>> {
        let mut runs: Vec<&BufferRun> = Vec::new();
        let mut leaf: Option<Arc<Run>> = None;
        let (mut lower, mut upper): (&[u8], Option<&[u8]>) = (&[], None);
        let mut at = &self.snapshot.tree(self.tree)?.root;
        loop {
            match at {
                Subtree::Empty => break,
                Subtree::Leaf(run) => {
                    leaf = Some(run.clone());
                    break;
                }
                Subtree::Internal(node) => {
                    let index = choose(node);
                    let child = &node.children[index];
                    upper = node.upper_of(index, upper);
                    lower = &child.pivot;
                    runs.extend(node.pending(child));
                    at = &child.subtree;
                }
            }
        }
        let mut sources = Vec::with_capacity(runs.len() + 1);
        for run in runs {
            let parts = run.parts_in(lower, upper);
            let ranges = run.ranges.clip(lower, upper);
            if !parts.is_empty() || !ranges.is_empty() {
                let cursor = PartsCursor::new(parts, Fetch::Cached, None);
                sources.push(Source::runs(cursor, ranges));
            }
        }
        if let Some(leaf) = leaf {
            let cursor = PartsCursor::new(vec![leaf], Fetch::Cached, None);
            sources.push(Source::runs(cursor, RangeSet::default()));
        }
        self.path_lower = lower.to_vec();
        self.path_upper = upper.map(<[u8]>::to_vec);
        Ok(sources)
    }
}
