//! Reading every block of a tree while the store is open, to find all that are damaged.

use std::collections::HashSet;

use crate::damage::Damage;
use crate::node::Subtree;
use crate::run::Run;
use crate::snapshot::Snapshot;
use crate::{Error, Result, TreeId};

impl Snapshot {
    /// Reads every block of a tree from the disk, and returns those that are damaged. The time is that of reading
    /// the tree once; nothing is kept in the cache.
    ///
    /// # Errors
    /// [`Error::UnknownTree`].
    pub fn check_blocks(&self, tree: TreeId) -> Result<Vec<Damage>> {
        let mut check = Check {
            snapshot: self,
            tree,
            seen: HashSet::new(),
            found: Vec::new(),
        };
        check.subtree(&self.tree(tree)?.root)?;
        Ok(check.found)
    }
}

struct Check<'a> {
    snapshot: &'a Snapshot,
    tree: TreeId,
    /// The offsets of the runs that were read: siblings may share one.
    seen: HashSet<u64>,
    found: Vec<Damage>,
}

impl Check<'_> {
    fn subtree(&mut self, subtree: &Subtree) -> Result<()> {
        match subtree {
            Subtree::Empty => Ok(()),
            Subtree::Leaf(run) => self.run(run),
            Subtree::Internal(node) => {
                let node = match node.load() {
                    Ok(node) => node,
                    Err(error) => return self.note(error),
                };
                for part in node.runs.iter().flat_map(|run| &run.parts) {
                    self.run(part)?;
                }
                for child in &node.children {
                    self.subtree(&child.subtree)?;
                }
                Ok(())
            }
        }
    }

    fn run(&mut self, run: &Run) -> Result<()> {
        if !self.seen.insert(run.extent.offset) {
            return Ok(());
        }
        let mut failures = Vec::new();
        run.check_blocks(|error| failures.push(error));
        failures.into_iter().try_for_each(|error| self.note(error))
    }

    /// Adds the damaged block that an error names.
    fn note(&mut self, error: Error) -> Result<()> {
        let tree = Some(self.tree);
        let Some(damage) = Damage::new(tree, &error) else {
            return Err(error);
        };
        self.snapshot.version.damage.record(tree, &error);
        self.found.push(damage);
        Ok(())
    }
}
