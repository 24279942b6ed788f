//! redb: a copy-on-write B+ tree in Rust.

use std::ops::Bound;
use std::sync::Arc;

use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::syncer::Syncer;
use super::{Engine, Operation, Reader, Setup, Visit, locked_version, table_name};
use crate::error::{During, Result};
use crate::workload::TABLES;

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

pub struct Redb {
    syncer: Syncer,
    database: Arc<Database>,
    names: Vec<String>,
    cache_bytes: u64,
}

/// An empty transaction that makes all earlier ones durable.
fn sync(database: &Database) -> Result<()> {
    let mut transaction = database.begin_write().during("beginning to sync")?;
    transaction
        .set_durability(Durability::Immediate)
        .during("syncing")?;
    transaction.commit().during("syncing")
}

impl Redb {
    pub fn open(setup: &Setup) -> Result<Redb> {
        let database = Database::builder()
            .set_cache_size(setup.cache_bytes as usize)
            .create(setup.folder.join("data.redb"))
            .during("opening")?;
        let database = Arc::new(database);
        let names: Vec<String> = (0..TABLES).map(table_name).collect();
        let transaction = database.begin_write().during("creating tables")?;
        for name in &names {
            transaction
                .open_table(Definition::new(name))
                .during("creating tables")?;
        }
        transaction.commit().during("creating tables")?;
        let syncer = Syncer::start({
            let database = database.clone();
            move || sync(&database)
        });
        Ok(Redb {
            syncer,
            database,
            names,
            cache_bytes: setup.cache_bytes,
        })
    }

    fn apply(&self, batch: &[Operation<'_>]) -> std::result::Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::None)?;
        for operation in batch {
            match *operation {
                Operation::Put(table, key, value) => {
                    let mut table = transaction.open_table(Definition::new(&self.names[table]))?;
                    table.insert(key, value)?;
                }
                Operation::Delete(table, key) => {
                    let mut table = transaction.open_table(Definition::new(&self.names[table]))?;
                    table.remove(key)?;
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

impl Engine for Redb {
    fn version(&self) -> String {
        locked_version("redb")
    }

    fn settings(&self) -> Vec<String> {
        vec![
            format!("cache {} MiB", self.cache_bytes >> 20),
            "one transaction for a document with Durability::None; a thread commits an empty one with \
             Durability::Immediate each 100 ms"
                .to_owned(),
            "buffered I/O, no compression, one writer at a time: it has nothing else".to_owned(),
        ]
    }

    fn write(&self, batch: &[Operation<'_>]) -> Result<()> {
        self.apply(batch).during("writing")?;
        self.syncer.note_write()
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let transaction = self.database.begin_read().during("beginning to read")?;
        let mut tables = Vec::new();
        for name in &self.names {
            let table = transaction
                .open_table(Definition::new(name))
                .during("opening a table")?;
            tables.push(table);
        }
        Ok(Box::new(View { tables }))
    }

    fn flush(&self) -> Result<()> {
        // The second transaction gives back what the first one freed.
        sync(&self.database)?;
        sync(&self.database)
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.syncer.stop()?;
        sync(&self.database)
    }
}

struct View {
    tables: Vec<ReadOnlyTable<&'static [u8], &'static [u8]>>,
}

impl Reader for View {
    fn get(&mut self, table: usize, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.tables[table].get(key).during("reading")?;
        if let Some(value) = &found {
            visit(value.value());
        }
        Ok(found.is_some())
    }

    fn scan(&mut self, table: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        let range = (Bound::Included(from), Bound::Unbounded);
        let entries = self.tables[table]
            .range::<&[u8]>(range)
            .during("scanning")?;
        for entry in entries {
            let (key, value) = entry.during("scanning")?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}
