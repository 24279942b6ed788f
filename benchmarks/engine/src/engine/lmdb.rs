//! LMDB: a copy-on-write B+ tree in a memory map, in C.
//!
//! Holds `unsafe` code: opening an environment is unsafe, because no other process may change the file
//! while it is mapped.

use std::ops::Bound;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};

use super::syncer::Syncer;
use super::{Engine, Operation, Reader, Setup, Visit, locked_version, table_name};
use crate::error::{During, Result};
use crate::workload::TABLES;

/// Addresses reserved for the map. The file grows only as it is written.
const MAP_BYTES: usize = 256 << 30;

type Table = Database<'static, Bytes, Bytes>;

/// An environment of LMDB, with a named database for each table.
pub struct Lmdb {
    syncer: Syncer,
    environment: Env,
    tables: Vec<Table>,
    read_ahead: bool,
}

impl Lmdb {
    pub fn open(setup: &Setup) -> Result<Lmdb> {
        // Its documentation asks for this when the data is larger than memory.
        let read_ahead = !setup.limited;
        let mut flags = EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC;
        if !read_ahead {
            flags |= EnvFlags::NO_READ_AHEAD;
        }
        let mut options = EnvOpenOptions::new();
        options
            .map_size(MAP_BYTES)
            .max_dbs(TABLES as u32)
            .max_readers(126);
        // SAFETY: the folder is new and this process's own. The flags give up durability at a
        // crash of the system, which no test here causes.
        let environment = unsafe { options.flags(flags).open(&setup.folder) };
        let environment: Env = environment.during("opening")?;
        let transaction = environment.write_txn().during("creating tables")?;
        let tables = environment
            .create_databases_and_commit(transaction, |opener, transaction| {
                let names: [String; TABLES] = std::array::from_fn(table_name);
                let tables = names
                    .map(|name| opener.create_database::<Bytes, Bytes>(transaction, Some(&name)));
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(tables))
            })
            .during("creating tables")?
            .commit()
            .into_iter()
            .flatten()
            .collect::<heed::Result<Vec<Table>>>()
            .during("creating tables")?;
        let syncer = Syncer::start({
            let environment = environment.clone();
            move || environment.force_sync().during("syncing")
        });
        Ok(Lmdb {
            syncer,
            environment,
            tables,
            read_ahead,
        })
    }

    fn apply(&self, batch: &[Operation<'_>]) -> heed::Result<()> {
        let mut transaction = self.environment.write_txn()?;
        for operation in batch {
            match *operation {
                Operation::Put(table, key, value) => {
                    self.tables[table].put(&mut transaction, key, value)?;
                }
                Operation::Delete(table, key) => {
                    self.tables[table].delete(&mut transaction, key)?;
                }
            }
        }
        transaction.commit()
    }
}

impl Engine for Lmdb {
    fn version(&self) -> String {
        let version = heed::lmdb_version();
        format!(
            "{}.{}.{} (heed {})",
            version.major,
            version.minor,
            version.patch,
            locked_version("heed")
        )
    }

    fn settings(&self) -> Vec<String> {
        vec![
            "MDB_NOSYNC and MDB_NOMETASYNC, no MDB_WRITEMAP; one transaction for a document; a thread calls \
             mdb_env_sync each 100 ms (weaker than a log: a crash of the system may lose the file)"
                .to_owned(),
            format!("read-ahead of the map: {}", self.read_ahead),
            "no cache of its own: the kernel's page cache, no compression, one writer at a time"
                .to_owned(),
        ]
    }

    fn write(&self, batch: &[Operation<'_>]) -> Result<()> {
        self.apply(batch).during("writing")?;
        self.syncer.note_write()
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let transaction = self.environment.read_txn().during("beginning to read")?;
        Ok(Box::new(View {
            transaction,
            tables: &self.tables,
        }))
    }

    fn flush(&self) -> Result<()> {
        self.environment.force_sync().during("flushing")
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let info = self.environment.info();
        vec![("pages", info.last_page_number as f64 + 1.0)]
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.syncer.stop()?;
        self.flush()
    }
}

struct View<'a> {
    transaction: RoTxn<'a, WithTls>,
    tables: &'a [Table],
}

impl Reader for View<'_> {
    fn get(&mut self, table: usize, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.tables[table]
            .get(&self.transaction, key)
            .during("reading")?;
        if let Some(value) = found {
            visit(value);
        }
        Ok(found.is_some())
    }

    fn scan(&mut self, table: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        // It knows no empty keys.
        let start = match from {
            [] => Bound::Unbounded,
            from => Bound::Included(from),
        };
        let range = (start, Bound::Unbounded);
        let entries = self.tables[table]
            .range(&self.transaction, &range)
            .during("scanning")?;
        for entry in entries {
            let (key, value) = entry.during("scanning")?;
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}
