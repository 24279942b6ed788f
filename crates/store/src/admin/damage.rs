//! The damaged blocks that the engine has met, with the collections and indexes that they belong to.

use std::collections::HashMap;

use crate::own_files::OwnFiles;
use crate::store::DocumentStore;
use frond_storage::keyspace::{CATALOG_TREE, Damage, TreeId};
use frond_storage::namespace::Namespace;

/// A damaged block, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedBlock {
    /// The collection; `None` for the catalog, and where the tree is unknown or no collection has it.
    pub namespace: Option<Namespace>,
    /// The index; `None` for documents.
    pub index: Option<String>,
    /// The block and its error.
    pub damage: Damage,
}

impl DocumentStore {
    /// The damaged blocks that were met since the store was opened and that are still in use.
    pub fn damage(&self) -> Vec<DamagedBlock> {
        let blocks = OwnFiles::new(self.engine()).damage();
        if blocks.is_empty() {
            return Vec::new();
        }
        let owners = self.owners();
        let block = |damage: Damage| {
            let owner = damage.tree.and_then(|tree| owners.get(&tree)).cloned();
            let (namespace, index) = owner.map_or((None, None), |(ns, index)| (Some(ns), index));
            DamagedBlock {
                namespace,
                index,
                damage,
            }
        };
        blocks.into_iter().map(block).collect()
    }

    /// The collection and the index of each tree.
    fn owners(&self) -> HashMap<TreeId, (Namespace, Option<String>)> {
        let mut owners = HashMap::new();
        let view = self.catalog().view();
        for collection in view.iter() {
            for tree in collection.trees() {
                owners.insert(tree, (collection.ns.clone(), None));
            }
            for index in &collection.indexes {
                let name = Some(index.spec.name.clone());
                owners.insert(index.tree, (collection.ns.clone(), name));
            }
        }
        owners.remove(&CATALOG_TREE);
        owners
    }
}
