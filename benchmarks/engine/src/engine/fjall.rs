//! fjall: a log-structured merge tree in Rust.

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use super::syncer::Syncer;
use super::{Engine, Operation, Reader, Setup, Visit, locked_version, table_name};
use crate::error::{During, Result};
use crate::workload::TABLES;

/// A database of fjall, with a keyspace for each table.
pub struct Fjall {
    syncer: Syncer,
    database: Database,
    tables: Vec<Keyspace>,
    cache_bytes: u64,
    memtable_bytes: u64,
}

impl Fjall {
    pub fn open(setup: &Setup) -> Result<Fjall> {
        let buffers = setup.write_buffer_bytes();
        let memtable_bytes = buffers / TABLES as u64;
        let cache_bytes = setup.cache_bytes - buffers;
        let database = Database::builder(&setup.folder)
            .cache_size(cache_bytes)
            .open()
            .during("opening")?;
        let mut tables = Vec::new();
        for table in 0..TABLES {
            let options = || KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes);
            let keyspace = database
                .keyspace(&table_name(table), options)
                .during("creating tables")?;
            tables.push(keyspace);
        }
        let syncer = Syncer::start({
            let database = database.clone();
            move || database.persist(PersistMode::SyncData).during("syncing")
        });
        Ok(Fjall {
            syncer,
            database,
            tables,
            cache_bytes,
            memtable_bytes,
        })
    }
}

impl Engine for Fjall {
    fn version(&self) -> String {
        locked_version("fjall")
    }

    fn settings(&self) -> Vec<String> {
        vec![
            format!(
                "cache {} MiB, memtables of {} MiB for each of {TABLES} keyspaces",
                self.cache_bytes >> 20,
                self.memtable_bytes >> 20,
            ),
            "each batch is written to the journal; a thread calls persist(SyncData) each 100 ms"
                .to_owned(),
            "the rest by default: LZ4, blocks of 4 KiB, Bloom filters, levelled compaction, buffered I/O"
                .to_owned(),
        ]
    }

    fn write(&self, batch: &[Operation<'_>]) -> Result<()> {
        let mut set = self.database.batch();
        for operation in batch {
            match *operation {
                Operation::Put(table, key, value) => set.insert(&self.tables[table], key, value),
                Operation::Delete(table, key) => set.remove(&self.tables[table], key),
            }
        }
        set.commit().during("writing")?;
        self.syncer.note_write()
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(View {
            snapshot: self.database.snapshot(),
            tables: &self.tables,
        }))
    }

    fn flush(&self) -> Result<()> {
        for table in &self.tables {
            table.rotate_memtable().during("flushing")?;
        }
        Ok(())
    }

    fn background(&self) -> Result<u64> {
        let sealed: usize = self
            .tables
            .iter()
            .map(Keyspace::sealed_memtable_count)
            .sum();
        let jobs = self.database.outstanding_flushes() + self.database.active_compactions();
        Ok((sealed + jobs) as u64)
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let tables: usize = self.tables.iter().map(Keyspace::table_count).sum();
        vec![
            ("compactions", self.database.compactions_completed() as f64),
            (
                "compaction_s",
                self.database.time_compacting().as_secs_f64(),
            ),
            ("files", tables as f64),
        ]
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.syncer.stop()?;
        self.database
            .persist(PersistMode::SyncAll)
            .during("closing")
    }
}

struct View<'a> {
    snapshot: Snapshot,
    tables: &'a [Keyspace],
}

impl Reader for View<'_> {
    fn get(&mut self, table: usize, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self
            .snapshot
            .get(&self.tables[table], key)
            .during("reading")?;
        if let Some(value) = &found {
            visit(value);
        }
        Ok(found.is_some())
    }

    fn scan(&mut self, table: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        for entry in self.snapshot.range(&self.tables[table], from..) {
            let (key, value) = entry.into_inner().during("scanning")?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}
