//! A cursor over a range of keys of a snapshot.

use std::ops::Bound;
use std::sync::Arc;

use frond_kv::Direction;

use crate::memtable::MemSource;
use crate::merge::Resolver;
use crate::merger::{Merger, Source};
use crate::node::{Internal, Subtree};
use crate::range::RangeSet;
use crate::run::{Fetch, PartsCursor};
use crate::snapshot::Snapshot;
use crate::{Error, Kind, Result, TreeId};

/// A cursor over one tree. It owns its snapshot. It merges the memtables, the buffers of one path from the root and the
/// leaf at its end; after the range of that leaf it continues with the next path.
pub struct Cursor {
    snapshot: Snapshot,
    tree: TreeId,
    resolver: Resolver,
    merged: Sources,
    /// The range: keys from `lower` on and below `upper`; `None` is no bound.
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    direction: Direction,
    /// The memtables' sources, then those of the path.
    merger: Merger,
    memtables: usize,
    /// The range of the leaf at the end of the path, within the bounds.
    path_lower: Vec<u8>,
    path_upper: Option<Vec<u8>>,
    /// The key that was returned last, and its value if that is made of update messages.
    key: Vec<u8>,
    folded: Option<Vec<u8>>,
    /// Whether the merger is still at `key`.
    at_key: bool,
    done: bool,
    /// Whether everything will be read, and not soon again.
    is_long: bool,
    state: State,
}

/// Whether the sources of a cursor are where it is.
enum State {
    Reading,
    /// The last move failed: some source has lost its position.
    Lost,
    /// It has no sources until it is read on from here.
    Left(Position),
}

impl Snapshot {
    /// A cursor over the keys between two bounds.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn cursor(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Cursor> {
        self.tree(tree)?;
        Cursor::new(self.clone(), tree, lower, upper, direction, Sources::All)
    }
}

/// The messages that a cursor merges.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sources {
    All,
    /// Those in the tree, without memtables.
    Tree,
}

impl Cursor {
    pub(crate) fn new(
        snapshot: Snapshot,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        merged: Sources,
    ) -> Result<Cursor> {
        let damage = snapshot.version.damage.clone();
        Cursor::open(snapshot, tree, lower, upper, direction, merged)
            .inspect_err(|error| damage.record(Some(tree), error))
    }

    fn open(
        snapshot: Snapshot,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        merged: Sources,
    ) -> Result<Cursor> {
        let resolver = snapshot.resolver(tree);
        let mut cursor = Cursor {
            snapshot,
            tree,
            resolver,
            merged,
            lower: match lower {
                Bound::Included(lower) => lower.to_vec(),
                Bound::Excluded(lower) => just_above(lower),
                Bound::Unbounded => Vec::new(),
            },
            upper: match upper {
                Bound::Included(upper) => Some(just_above(upper)),
                Bound::Excluded(upper) => Some(upper.to_vec()),
                Bound::Unbounded => None,
            },
            direction,
            memtables: 0,
            merger: Merger::new(Vec::new(), direction)?,
            path_lower: Vec::new(),
            path_upper: None,
            key: Vec::new(),
            folded: None,
            at_key: false,
            done: false,
            is_long: false,
            state: State::Reading,
        };
        cursor.open_memtables()?;
        match direction {
            Direction::Forward => cursor.start_forward(&[])?,
            Direction::Backward => cursor.start_backward(None)?,
        }
        Ok(cursor)
    }

    /// Expects that the whole range will be read, and not soon again: it reads far ahead from here on, and leaves the cache as
    /// it is.
    pub fn expect_long(&mut self) {
        self.is_long = true;
        if let Some(leaf) = self.merger.sources[self.memtables..].last_mut() {
            leaf.expect_long();
        }
    }

    /// The next key and its value, or `None` at the end of the range.
    ///
    /// # Errors
    /// Errors of the disk, and [`Error::Failed`] after an error until the next [`Cursor::seek`].
    #[allow(
        clippy::should_implement_trait,
        reason = "the result borrows from the cursor"
    )]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if !matches!(self.state, State::Reading) {
            self.resume()?;
        }
        match self.advance() {
            Ok(false) => Ok(None),
            Ok(true) => Ok(match &self.folded {
                Some(value) => Some((&self.key, value)),
                None => self.merger.peek().map(|(key, _, value)| (key, value)),
            }),
            Err(error) => Err(self.noted(error)),
        }
    }

    /// Records a failure, and the damage that the error names.
    fn noted(&mut self, error: Error) -> Error {
        self.state = State::Lost;
        self.snapshot.version.damage.record(Some(self.tree), &error);
        error
    }

    /// Moves to the next key; false at the end of the range.
    fn advance(&mut self) -> Result<bool> {
        self.leave_key()?;
        while !self.done {
            let first = self.merger.peek();
            let within = |key: &[u8]| self.merger.is_below_bound() || self.in_path(key);
            let Some((key, kind, _)) = first.filter(|(key, ..)| within(key)) else {
                self.next_path()?;
                continue;
            };
            // A single source has no other source in which the key must be skipped.
            if kind != Kind::Put || !self.merger.is_alone() {
                self.key.clear();
                self.key.extend_from_slice(key);
            }
            match kind {
                Kind::Put => {
                    self.at_key = true;
                    return Ok(true);
                }
                Kind::Delete => self.merger.skip(&self.key)?,
                Kind::Merge => {
                    let (kind, value) = self.merger.fold(&self.key, &self.resolver)?;
                    self.merger.skip(&self.key)?;
                    if kind == Kind::Put {
                        self.folded = Some(value);
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Moves to `key`: forward, the next key is the first one at or after it; backward, the last one at
    /// or before it. The bounds of the cursor still hold.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        (self.at_key, self.folded, self.done) = (false, None, false);
        if let State::Left(_) = std::mem::replace(&mut self.state, State::Reading) {
            self.open_memtables().map_err(|error| self.noted(error))?;
        }
        let started = match self.direction {
            Direction::Forward => self.start_forward(key),
            Direction::Backward => self.start_backward(Some(&just_above(key))),
        };
        started.map_err(|error| self.noted(error))
    }

    /// Continues on another snapshot of the same moment ([`crate::Store::detach`]), or the same one, behind the key that was returned
    /// last. Until then the cursor holds no pages and no memtables.
    pub fn continue_on(&mut self, snapshot: &Snapshot) {
        let from = match std::mem::replace(&mut self.state, State::Reading) {
            State::Reading => self.position(),
            State::Lost => Position::End,
            State::Left(from) => from,
        };
        self.snapshot = snapshot.clone();
        (self.at_key, self.folded) = (false, None);
        self.memtables = 0;
        self.merger = Merger::empty(self.direction);
        self.state = State::Left(from);
    }

    /// Opens the sources again where they were left.
    fn resume(&mut self) -> Result<()> {
        let State::Left(from) = std::mem::replace(&mut self.state, State::Reading) else {
            self.state = State::Lost;
            return Err(Error::failed("the cursor had an error before"));
        };
        let started = self
            .open_memtables()
            .and_then(|()| match (from, self.direction) {
                (Position::End, _) => Ok(()),
                (Position::At(key), Direction::Forward) => self.start_forward(&key),
                (Position::At(key), Direction::Backward) => {
                    self.start_backward(Some(&just_above(&key)))
                }
                (Position::Behind(key), Direction::Forward) => {
                    self.start_forward(&just_above(&key))
                }
                (Position::Behind(key), Direction::Backward) => self.start_backward(Some(&key)),
            });
        started.map_err(|error| self.noted(error))
    }

    fn open_memtables(&mut self) -> Result<()> {
        let sources = match self.merged {
            Sources::All => memtable_sources(&self.snapshot, self.tree, &self.resolver),
            Sources::Tree => Vec::new(),
        };
        self.memtables = sources.len();
        self.merger = Merger::new(sources, self.direction)?;
        Ok(())
    }

    /// Where the next key is looked for.
    fn position(&self) -> Position {
        if self.done {
            return Position::End;
        }
        if self.folded.is_some() {
            return Position::Behind(self.key.clone());
        }
        let here = self.merger.peek().map(|(key, ..)| key);
        match (here, self.direction) {
            (Some(key), _) if self.at_key => Position::Behind(key.to_vec()),
            (Some(key), _) if self.in_path(key) => Position::At(key.to_vec()),
            // The path is at its end.
            (_, Direction::Forward) => match &self.path_upper {
                Some(upper) => Position::At(upper.clone()),
                None => Position::End,
            },
            (_, Direction::Backward) => Position::Behind(self.path_lower.clone()),
        }
    }

    /// Moves past the key that was returned last.
    fn leave_key(&mut self) -> Result<()> {
        self.folded = None;
        if std::mem::take(&mut self.at_key) {
            let alone = self.merger.is_alone();
            self.merger.step()?;
            if !alone {
                self.merger.skip(&self.key)?;
            }
        }
        Ok(())
    }

    /// Whether the next key lies within the path and the bounds.
    fn in_path(&self, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => self.path_upper.as_deref().is_none_or(|upper| key < upper),
            Direction::Backward => key >= self.path_lower.as_slice(),
        }
    }

    fn start_forward(&mut self, key: &[u8]) -> Result<()> {
        let start = self.lower.as_slice().max(key).to_vec();
        for source in &mut self.merger.sources[..self.memtables] {
            source.seek(&start)?;
        }
        self.open_path_at(&start, None)
    }

    /// Starts below `before`, or at the end.
    fn start_backward(&mut self, before: Option<&[u8]>) -> Result<()> {
        let mut start = self.upper.clone();
        if let Some(before) = before
            && start.as_deref().is_none_or(|start| before < start)
        {
            start = Some(before.to_vec());
        }
        for source in &mut self.merger.sources[..self.memtables] {
            source.seek_before(start.as_deref())?;
        }
        self.open_path_before(start.as_deref(), None)
    }

    fn next_path(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => match self.path_upper.take() {
                Some(upper) if self.upper.as_ref().is_none_or(|bound| upper < *bound) => {
                    let before = self.leave_path();
                    self.open_path_at(&upper, before)
                }
                _ => {
                    self.done = true;
                    Ok(())
                }
            },
            Direction::Backward => {
                let lower = std::mem::take(&mut self.path_lower);
                if lower <= self.lower {
                    self.done = true;
                    return Ok(());
                }
                let before = self.leave_path();
                self.open_path_before(Some(&lower), before)
            }
        }
    }

    /// Drops the sources of the path but its leaf, the last one.
    fn leave_path(&mut self) -> Option<Source> {
        self.merger.sources.drain(self.memtables..).next_back()
    }

    fn open_path_at(&mut self, key: &[u8], before: Option<Source>) -> Result<()> {
        self.merger.sources.truncate(self.memtables);
        let alive = self.alive_from(key);
        let bound = self.upper.as_deref();
        match alive.filter(|alive| bound.is_none_or(|bound| **alive < *bound)) {
            // Everything from here on is deleted, or beyond the bound.
            None => self.path_upper = self.upper.clone(),
            Some(alive) => {
                for mut source in self.open_path(|node| node.child_of(&alive), before)? {
                    source.seek(&alive)?;
                    self.merger.sources.push(source);
                }
            }
        }
        self.merger.set_bound(self.path_upper.as_deref());
        self.merger.rebuild()
    }

    fn open_path_before(&mut self, key: Option<&[u8]>, before: Option<Source>) -> Result<()> {
        self.merger.sources.truncate(self.memtables);
        let alive = self.alive_before(key);
        let alive = alive.as_deref().or(key);
        if alive.is_some_and(<[u8]>::is_empty) {
            self.path_lower.clone_from(&self.lower);
            return self.merger.rebuild();
        }
        for mut source in self.open_path(|node| node.child_before(alive), before)? {
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

    /// The upper bound of the next keys below `key` that no range delete of a memtable covers; `None` if that
    /// is `key` itself.
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

    /// Replaces the sources of the path: the buffers from the root down, newest run first, then the leaf. `before` is the leaf
    /// that the scan comes from.
    fn open_path(
        &mut self,
        choose: impl Fn(&Internal) -> usize,
        before: Option<Source>,
    ) -> Result<Vec<Source>> {
        let mut path = Path {
            choose,
            bounds: (&self.lower, self.upper.as_deref()),
            lower: Vec::new(),
            upper: None,
            sources: Vec::new(),
        };
        path.descend(&self.snapshot.tree(self.tree)?.root, &[], None)?;
        let Path {
            lower,
            upper,
            mut sources,
            ..
        } = path;
        (self.path_lower, self.path_upper) = (lower, upper);
        sources.reverse();
        match (sources.last_mut(), before) {
            (Some(leaf), Some(before)) => leaf.continue_after(before),
            (Some(leaf), None) if self.is_long => leaf.expect_long(),
            _ => {}
        }
        Ok(sources)
    }
}

/// Where a cursor continues.
enum Position {
    At(Vec<u8>),
    Behind(Vec<u8>),
    End,
}

/// The memtables' sources, newest first.
fn memtable_sources(snapshot: &Snapshot, tree: TreeId, resolver: &Resolver) -> Vec<Source> {
    let memtables = snapshot.memtables();
    memtables
        .filter_map(|(memtable, sequence)| {
            MemSource::new(memtable, tree, sequence, resolver.clone())
        })
        .map(Source::memtable)
        .collect()
}

/// A path from a root to a leaf, while it is opened.
struct Path<'a, C> {
    /// The child that continues the path.
    choose: C,
    /// The bounds of the cursor.
    bounds: (&'a [u8], Option<&'a [u8]>),
    /// The range of the leaf, within the bounds.
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// The leaf, then the buffers above, each with its oldest run first.
    sources: Vec<Source>,
}

impl<C: Fn(&Internal) -> usize> Path<'_, C> {
    /// Follows the path to the leaf, and adds the sources on the way back, when the range of the leaf is known.
    fn descend(&mut self, at: &Subtree, lower: &[u8], upper: Option<&[u8]>) -> Result<()> {
        match at {
            Subtree::Internal(node) => {
                let node = node.load()?;
                let index = (self.choose)(&node);
                let child = &node.children[index];
                self.descend(&child.subtree, &child.pivot, node.upper_of(index, upper))?;
                let pending = node.runs.iter();
                for run in pending.filter(|run| run.number >= child.pending_from) {
                    let (lower, upper) = (&*self.lower, self.upper.as_deref());
                    let parts = run.parts_in(lower, upper);
                    let ranges = run.ranges.clip(lower, upper);
                    if !parts.is_empty() || !ranges.is_empty() {
                        let cursor = PartsCursor::new(parts, Fetch::Cached, None);
                        self.sources.push(Source::runs(cursor, ranges));
                    }
                }
            }
            Subtree::Empty | Subtree::Leaf(_) => {
                self.lower = lower.max(self.bounds.0).to_vec();
                let upper = match (upper, self.bounds.1) {
                    (Some(upper), Some(bound)) => Some(upper.min(bound)),
                    (upper, bound) => upper.or(bound),
                };
                self.upper = upper.map(<[u8]>::to_vec);
                if let Subtree::Leaf(leaf) = at {
                    let cursor = PartsCursor::new(vec![leaf.clone()], Fetch::Cached, upper);
                    self.sources.push(Source::runs(cursor, RangeSet::default()));
                }
            }
        }
        Ok(())
    }
}

/// The smallest key above `key`.
fn just_above(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
