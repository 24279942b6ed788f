//! Rewriting of runs and nodes that are not encrypted with the current store key.
//!
//! A sweep visits the leaves in the order of their keys. Messages that wait for a leaf in an old run of a buffer move down first, so
//! the sweep leaves no old run and no old node behind. Everything that is written meanwhile has the current key.

use std::collections::HashMap;

use super::{Builder, Child, Internal, Subtree};
use crate::Result;
use crate::block::Place;
use crate::run::Run;

/// Blocks that one step reads at most to find out which key they have.
const BLOCKS_OF_STEP: usize = 64;

/// The position of a sweep over a tree.
pub(crate) struct Rewriting {
    /// The key at which the next step begins; `None` after the last key.
    pub(crate) from: Option<Vec<u8>>,
    /// The number of children that the sweep could not write again because of damage.
    pub(crate) skipped: u64,
}

impl Rewriting {
    pub(crate) fn begin() -> Rewriting {
        Rewriting {
            from: Some(Vec::new()),
            skipped: 0,
        }
    }
}

/// One step of a sweep.
struct Step<'s> {
    sweep: &'s mut Rewriting,
    blocks_left: usize,
    /// Whether the runs at these offsets are old.
    known: HashMap<u64, bool>,
}

impl Step<'_> {
    /// Moves the sweep to a bound between two children.
    fn pass(&mut self, bound: Option<&[u8]>) {
        self.sweep.from = bound.map(<[u8]>::to_vec);
    }
}

impl Builder {
    /// Writes the next old child again, and returns the new tree. Returns `None` if this step found no old child before its limit of
    /// reads or the end of the tree.
    pub(crate) fn rewrite_step(
        &self,
        root: &Subtree,
        sweep: &mut Rewriting,
    ) -> Result<Option<Subtree>> {
        let mut step = Step {
            sweep,
            blocks_left: BLOCKS_OF_STEP,
            known: HashMap::new(),
        };
        let alone = Child::new(&[], root.clone(), 0);
        let pieces = match root {
            // The root of a small tree has no node above it, in which its messages would wait.
            Subtree::Empty | Subtree::Leaf(_) => {
                let above = Internal::new(vec![alone]);
                self.rewrite_in(&above, None, &mut step)?
            }
            Subtree::Internal(_) => self.rewrite_below(&alone, None, &mut step)?,
        };
        Ok(pieces.map(|pieces| self.grow(pieces)))
    }

    /// The children that take the place of a node in which something was written again.
    fn rewrite_below(
        &self,
        child: &Child,
        bound: Option<&[u8]>,
        step: &mut Step<'_>,
    ) -> Result<Option<Vec<Child>>> {
        let Subtree::Internal(below) = &child.subtree else {
            return Ok(None);
        };
        let loaded = below.load_within(&child.pivot, bound);
        let Some(node) = self.unless_damaged(loaded)? else {
            step.sweep.skipped += 1;
            step.pass(bound);
            return Ok(None);
        };
        let rewritten = self.rewrite_in(&node, bound, step)?;
        let is_behind = step.sweep.from.as_deref() == bound;
        if rewritten.is_some() || !is_behind {
            return Ok(rewritten);
        }
        // A node that has only range deletes may be old although nothing below it is.
        let is_old = match below.place() {
            Some((offset, _, birth)) => self.store.data.has_old_form(Place::new(offset, birth)),
            None => Ok(false),
        };
        let is_old = self.unless_damaged(is_old)?.unwrap_or(false);
        Ok(is_old.then(|| self.split(node.edit())))
    }

    /// As [`Builder::rewrite_below`], for a node that was read.
    fn rewrite_in(
        &self,
        node: &Internal,
        upper: Option<&[u8]>,
        step: &mut Step<'_>,
    ) -> Result<Option<Vec<Child>>> {
        let first = (step.sweep.from.as_deref()).map_or(0, |from| node.child_of(from));
        for index in first..node.children.len() {
            if step.blocks_left == 0 {
                return Ok(None);
            }
            let (child, bound) = (&node.children[index], node.upper_of(index, upper));
            let is_old = self.is_child_old(node, index, upper, step);
            let is_old = self.unless_damaged(is_old)?;
            if is_old == Some(true) && child.blocked == 0 {
                let mut edited = node.edit();
                let flushed = self.flush(&mut edited, index, None, upper);
                if self.unless_damaged(flushed)?.is_some() {
                    if !matches!(child.subtree, Subtree::Internal(_)) {
                        step.pass(bound);
                    }
                    return self.rebalance(edited, upper).map(Some);
                }
            }
            if is_old != Some(false) {
                step.sweep.skipped += 1;
                step.pass(bound);
                continue;
            }
            if let Some(pieces) = self.rewrite_below(child, bound, step)? {
                let mut edited = node.edit();
                edited.replace(index, pieces);
                return Ok(Some(self.split(edited)));
            }
            if !matches!(child.subtree, Subtree::Internal(_)) {
                step.pass(bound);
            }
        }
        Ok(None)
    }

    /// Whether a leaf is old, or a run that has messages for a child.
    fn is_child_old(
        &self,
        node: &Internal,
        index: usize,
        upper: Option<&[u8]>,
        step: &mut Step<'_>,
    ) -> Result<bool> {
        let (child, bound) = (&node.children[index], node.upper_of(index, upper));
        let waiting = node.pending(child);
        let mut runs: Vec<_> =
            (waiting.flat_map(|run| run.parts_in(&child.pivot, bound))).collect();
        if let Subtree::Leaf(leaf) = &child.subtree {
            runs.push(leaf.clone());
        }
        for run in runs {
            if self.is_run_old(&run, step)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_run_old(&self, run: &Run, step: &mut Step<'_>) -> Result<bool> {
        if let Some(known) = step.known.get(&run.extent.offset) {
            return Ok(*known);
        }
        step.blocks_left = step.blocks_left.saturating_sub(1);
        let is_old = self.store.data.has_old_form(run.last_block())?;
        step.known.insert(run.extent.offset, is_old);
        Ok(is_old)
    }
}
