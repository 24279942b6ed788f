//! Coordination of one process that owns its data: numbers come from memory, a lock of the process orders changes, and no other
//! server has to see them.

use std::sync::atomic::{AtomicI64, Ordering};

use frond_storage::error::Result;
use frond_storage::keyspace::{Engine, TreeId, TreeOptions, WriteSet};

/// The process is alone with its data, so most of the interface has nothing to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Local {
    /// Whether the data is that of a member of a replica set, whose log the other members get.
    is_member: bool,
}

impl Local {
    pub fn new(is_member: bool) -> Local {
        Local { is_member }
    }

    pub fn is_member(self) -> bool {
        self.is_member
    }

    pub fn allocate_tree(self, engine: &Engine) -> Result<TreeId> {
        Ok(engine.allocate_tree()?)
    }

    pub fn next_record(self, last: &AtomicI64) -> i64 {
        last.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The bulk loader puts entries below those of the writers, so the tree is created for it. The log of a replica set has no bulk
    /// loads.
    pub fn stage_build(self, batch: &mut WriteSet, tree: TreeId, options: &TreeOptions) {
        if self.is_member {
            batch.create_tree(tree, options);
        } else {
            batch.create_tree_to_load(tree, options);
        }
    }
}
