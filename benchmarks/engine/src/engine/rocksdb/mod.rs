//! RocksDB: a log-structured merge tree in C++, as the system has it installed.

mod library;

use std::ffi::CStr;
use std::fs;
use std::sync::Arc;

use self::library::{Batch, Database, Settings};
use super::syncer::Syncer;
use super::{Engine, Operation, Reader, Setup, Visit, table_name};
use crate::error::{During, Result};
use crate::workload::TABLES;

/// A database of RocksDB, with a column family for each table.
pub struct Rocksdb {
    syncer: Syncer,
    database: Arc<Database>,
    settings: Settings,
}

impl Rocksdb {
    pub fn open(setup: &Setup) -> Result<Rocksdb> {
        let buffers = setup.write_buffer_bytes();
        let settings = Settings {
            cache_bytes: (setup.cache_bytes - buffers) as usize,
            write_buffers_bytes: buffers as usize,
            // A third: the largest column family may run ahead of the others.
            write_buffer_bytes: buffers as usize / 3,
            block_bytes: setup.rocksdb_block_bytes,
            background_jobs: 2,
            direct_io: setup.limited,
            bloom_bits: 10.0,
        };
        // The primary is in the column family that is always there.
        let mut names: Vec<String> = (0..TABLES).map(table_name).collect();
        names[0] = "default".to_owned();
        let path = setup.folder.to_string_lossy();
        let database = Database::open(&path, &names, &settings).during("opening")?;
        let database = Arc::new(database);
        let syncer = Syncer::start({
            let database = database.clone();
            move || database.sync_log().during("syncing")
        });
        Ok(Rocksdb {
            syncer,
            database,
            settings,
        })
    }
}

/// The version in the name of the shared library that this process has mapped.
fn library_version() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let version = maps
        .lines()
        .find_map(|line| line.rsplit_once("librocksdb.so."))
        .map_or("unknown", |(_, version)| version);
    version.to_owned()
}

/// Whether `malloc` of the C++ library is jemalloc's.
fn has_jemalloc() -> bool {
    fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("libjemalloc"))
}

impl Engine for Rocksdb {
    fn version(&self) -> String {
        library_version()
    }

    fn settings(&self) -> Vec<String> {
        let settings = &self.settings;
        vec![
            format!(
                "block cache {} MiB with indexes and filters in it, write buffers {} MiB together and at most \
                 {} MiB each, a column family for each table",
                settings.cache_bytes >> 20,
                settings.write_buffers_bytes >> 20,
                settings.write_buffer_bytes >> 20,
            ),
            format!(
                "LZ4, blocks of {} KiB, Bloom filters of {} bits, format 5, level_compaction_dynamic_level_bytes, \
                 max_background_jobs {}, bytes_per_sync 1 MiB, compaction_readahead_size 2 MiB",
                settings.block_bytes >> 10,
                settings.bloom_bits,
                settings.background_jobs,
            ),
            "the log is written with each batch; a thread calls flush_wal(true) each 100 ms"
                .to_owned(),
            format!("direct I/O for table files: {}", settings.direct_io),
            format!(
                "allocator of the library: {}",
                if has_jemalloc() { "jemalloc" } else { "libc's" }
            ),
        ]
    }

    fn write(&self, batch: &[Operation<'_>]) -> Result<()> {
        let mut set = Batch::new(&self.database);
        for operation in batch {
            match *operation {
                Operation::Put(table, key, value) => set.put(table, key, value),
                Operation::Delete(table, key) => set.delete(table, key),
            }
        }
        self.database.write(&set).during("writing")?;
        self.syncer.note_write()
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(View(&self.database)))
    }

    fn delete_range(&self, table: usize, lower: &[u8], upper: &[u8]) -> Result<bool> {
        self.database
            .delete_range(table, lower, upper)
            .during("deleting a range")?;
        self.syncer.note_write()?;
        Ok(true)
    }

    fn flush(&self) -> Result<()> {
        self.database.flush().during("flushing")
    }

    fn background(&self) -> Result<u64> {
        // The running ones are counted once for each column family: only whether there are any matters.
        const NAMES: [&CStr; 4] = [
            c"rocksdb.compaction-pending",
            c"rocksdb.num-running-compactions",
            c"rocksdb.mem-table-flush-pending",
            c"rocksdb.num-running-flushes",
        ];
        Ok(NAMES.iter().map(|name| self.database.property(name)).sum())
    }

    fn figures(&self) -> Vec<(&'static str, f64)> {
        let property = |name| self.database.property(name) as f64;
        vec![
            (
                "pending_compaction_bytes",
                property(c"rocksdb.estimate-pending-compaction-bytes"),
            ),
            (
                "table_files_bytes",
                property(c"rocksdb.total-sst-files-size"),
            ),
            (
                "write_buffers_bytes",
                property(c"rocksdb.cur-size-all-mem-tables"),
            ),
        ]
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.syncer.stop()?;
        self.database.sync_log().during("closing")
    }
}

/// Reads see the newest state; nothing is written while a view is used.
struct View<'a>(&'a Database);

impl Reader for View<'_> {
    fn get(&mut self, table: usize, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0
            .get(table, key, |value| visit(value))
            .during("reading")
    }

    fn scan(&mut self, table: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.0
            .scan(table, from, |key, value| visit(key, value))
            .during("scanning")
    }
}
