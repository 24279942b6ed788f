//! Merges sources of messages, newest first, into one walk over keys.

use crate::memtable::MemSource;
use crate::merge::Resolver;
use crate::run::PartsCursor;
use crate::{Kind, Result};

/// Where messages come from.
pub(crate) enum Source {
    Mem(MemSource),
    Runs(PartsCursor),
}

impl Source {
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Source::Mem(source) => source.key(),
            Source::Runs(source) => source.key(),
        }
    }

    fn message(&self) -> (Kind, &[u8]) {
        match self {
            Source::Mem(source) => source.message(),
            Source::Runs(source) => source.message(),
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        match self {
            Source::Mem(source) => source.seek(Some(key)),
            Source::Runs(source) => source.seek(key)?,
        }
        Ok(())
    }

    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        match self {
            Source::Mem(source) => source.seek_before(key),
            Source::Runs(source) => source.seek_before(key)?,
        }
        Ok(())
    }

    fn step(&mut self, direction: Direction) -> Result<()> {
        match (self, direction) {
            (Source::Mem(source), Direction::Forward) => source.step(),
            (Source::Mem(source), Direction::Backward) => source.step_back(),
            (Source::Runs(source), Direction::Forward) => source.step()?,
            (Source::Runs(source), Direction::Backward) => source.step_back()?,
        }
        Ok(())
    }
}

/// Which way a cursor walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key to the largest.
    Forward,
    /// From the largest key to the smallest.
    Backward,
}

/// A binary heap of sources by their keys; of equal keys the source with the lowest index, the newest, is on top.
pub(crate) struct Merger {
    pub(crate) sources: Vec<Source>,
    heap: Vec<usize>,
    direction: Direction,
}

impl Merger {
    /// A merger of sources that are positioned already, newest first.
    pub(crate) fn new(sources: Vec<Source>, direction: Direction) -> Merger {
        let mut merger = Merger {
            sources,
            heap: Vec::new(),
            direction,
        };
        merger.rebuild();
        merger
    }

    /// Called after sources were moved from outside.
    pub(crate) fn rebuild(&mut self) {
        self.heap.clear();
        for (index, source) in self.sources.iter().enumerate() {
            if source.key().is_some() {
                self.heap.push(index);
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    /// The first key and its newest message.
    pub(crate) fn peek(&self) -> Option<(&[u8], Kind, &[u8])> {
        let source = &self.sources[*self.heap.first()?];
        let (kind, value) = source.message();
        Some((source.key()?, kind, value))
    }

    /// Moves the source on top. The next older message of the same key may come next.
    pub(crate) fn step(&mut self) -> Result<()> {
        let Some(top) = self.heap.first().copied() else {
            return Ok(());
        };
        self.sources[top].step(self.direction)?;
        if self.sources[top].key().is_none() {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    /// Moves on until the first key is another one than `key`.
    pub(crate) fn skip(&mut self, key: &[u8]) -> Result<()> {
        while self.peek_key() == Some(key) {
            self.step()?;
        }
        Ok(())
    }

    pub(crate) fn peek_key(&self) -> Option<&[u8]> {
        self.sources[*self.heap.first()?].key()
    }

    /// Whether at most one source has keys left.
    pub(crate) fn is_single(&self) -> bool {
        self.heap.len() <= 1
    }

    /// Folds the update messages of `key`, which is first, with older ones. Afterwards the position may be at the key
    /// or behind it.
    pub(crate) fn fold(
        &mut self,
        key: &[u8],
        resolver: &Resolver,
        at_bottom: bool,
    ) -> Result<(Kind, Vec<u8>)> {
        let mut fold = resolver.fold(self.peek().map_or(&[], |(_, _, value)| value));
        loop {
            self.step()?;
            match self.peek() {
                Some((next, kind, value)) if next == key => {
                    if fold.add(key, kind, value) {
                        break;
                    }
                }
                _ => break,
            }
        }
        Ok(if at_bottom {
            fold.finish_at_bottom(key)
        } else {
            fold.finish(key)
        })
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let (key_a, key_b) = (self.sources[a].key(), self.sources[b].key());
        let order = match self.direction {
            Direction::Forward => key_a.cmp(&key_b),
            Direction::Backward => key_b.cmp(&key_a),
        };
        order.then(a.cmp(&b)).is_lt()
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child =
                match right < self.heap.len() && self.before(self.heap[right], self.heap[left]) {
                    true => right,
                    false => left,
                };
            if !self.before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(child, at);
            at = child;
        }
    }
}
