//! Frond's engine.

use std::ops::Bound;

use frond_tree::{Direction, Durability, Options, Snapshot, Store, TreeId, TreeOptions, WriteSet};

use super::{Engine, Operation, Reader, Setup, Visit, locked_version};
use crate::error::{During, Result};
use crate::workload::TABLES;

pub struct Tree {
    store: Store,
    tables: Vec<TreeId>,
}

impl Tree {
    pub fn open(setup: &Setup) -> Result<Tree> {
        let mut options = Options::new(&setup.folder);
        options.cache_bytes = setup.cache_bytes as usize;
        let store = Store::open(options).during("opening")?;
        let tables: Vec<TreeId> = (0..TABLES).map(|_| store.allocate_tree()).collect();
        let mut set = WriteSet::new();
        for table in &tables {
            set.create_tree(*table, &TreeOptions::default());
        }
        store
            .commit(set, Durability::Synced)
            .during("creating tables")?;
        Ok(Tree { store, tables })
    }
}

impl Engine for Tree {
    fn version(&self) -> String {
        locked_version("frond-tree")
    }

    fn settings(&self) -> Vec<String> {
        let stats = self.store.stats();
        let tree = TreeOptions::default();
        vec![
            format!("memory budget {} MiB", stats.cache_bytes_max >> 20),
            "direct I/O, journal synced each 100 ms (defaults)".to_owned(),
            format!(
                "leaves of {} KiB, pages of {} KiB, {:?} (defaults)",
                tree.node_bytes >> 10,
                tree.page_bytes >> 10,
                tree.compression,
            ),
        ]
    }

    fn write(&self, batch: &[Operation<'_>]) -> Result<()> {
        let mut set = WriteSet::new();
        for operation in batch {
            match *operation {
                Operation::Put(table, key, value) => set.put(self.tables[table], key, value),
                Operation::Delete(table, key) => set.delete(self.tables[table], key),
            }
        }
        self.store
            .commit(set, Durability::Logged)
            .map(|_| ())
            .during("writing")
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(View {
            snapshot: self.store.snapshot(),
            tables: &self.tables,
        }))
    }

    fn delete_range(&self, table: usize, lower: &[u8], upper: &[u8]) -> Result<bool> {
        let mut set = WriteSet::new();
        set.delete_range(self.tables[table], lower, Some(upper));
        self.store
            .commit(set, Durability::Logged)
            .during("deleting a range")?;
        Ok(true)
    }

    // Not `Store::compact`: idle compaction is measured.
    fn flush(&self) -> Result<()> {
        self.store.checkpoint().during("flushing")
    }

    fn background(&self) -> Result<u64> {
        Ok(self.store.stats().sealed_memtables)
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let stats = self.store.stats();
        let trees: Vec<_> = self
            .tables
            .iter()
            .map(|table| self.store.tree_stats(*table))
            .collect();
        let pending: u64 = trees.iter().map(|tree| tree.pending_bytes).sum();
        let height = trees.iter().map(|tree| tree.height).max().unwrap_or(0);
        vec![
            ("cache_hits", stats.cache_hits as f64),
            ("cache_misses", stats.cache_misses as f64),
            ("data_file_reads", stats.reads as f64),
            ("data_file_written_bytes", stats.written_bytes as f64),
            ("log_written_bytes", stats.log_written_bytes as f64),
            ("file_bytes", stats.space.file_bytes as f64),
            ("free_bytes", stats.space.free_bytes as f64),
            ("pending_message_bytes", pending as f64),
            ("checkpoints", stats.checkpoints as f64),
            ("height", f64::from(height)),
        ]
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close().during("closing")
    }
}

struct View<'a> {
    snapshot: Snapshot,
    tables: &'a [TreeId],
}

impl Reader for View<'_> {
    fn get(&mut self, table: usize, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self
            .snapshot
            .get(self.tables[table], key)
            .during("reading")?;
        if let Some(value) = &found {
            visit(value);
        }
        Ok(found.is_some())
    }

    fn scan(&mut self, table: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let mut cursor = self
            .snapshot
            .cursor(
                self.tables[table],
                Bound::Included(from),
                Bound::Unbounded,
                Direction::Forward,
            )
            .during("scanning")?;
        while let Some((key, value)) = cursor.next().during("scanning")? {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
