//! The operations of every engine, and the engines.

mod fjall;
mod lmdb;
mod redb;
mod rocksdb;
mod syncer;
mod tree;

use std::path::PathBuf;

use clap::ValueEnum;

use crate::error::Result;

/// An engine that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Frond's engine.
    Tree,
    /// RocksDB: a log-structured merge tree in C++.
    Rocksdb,
    /// LMDB: a copy-on-write B+ tree in a memory map, in C.
    Lmdb,
    /// fjall: a log-structured merge tree in Rust.
    Fjall,
    /// redb: a copy-on-write B+ tree in Rust.
    Redb,
}

pub struct Setup {
    pub folder: PathBuf,
    /// Memory for caches and write buffers together.
    pub cache_bytes: u64,
    /// Whether memory is far smaller than the data.
    pub limited: bool,
    /// Size of a block of RocksDB in bytes.
    pub rocksdb_block_bytes: usize,
}

impl Setup {
    /// The part of the memory that goes to write buffers: the default of [`Kind::Tree`].
    fn write_buffer_bytes(&self) -> u64 {
        (self.cache_bytes / 8).min(64 << 20) * 3
    }
}

#[derive(Clone, Copy)]
pub enum Operation<'a> {
    /// Sets the value of a key in a table.
    Put(usize, &'a [u8], &'a [u8]),
    Delete(usize, &'a [u8]),
}

/// Takes the keys and values of a scan; returns whether it wants more.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// An open store with [`crate::workload::TABLES`] tables.
pub trait Engine: Send + Sync {
    fn version(&self) -> String;
    /// The settings that differ from the defaults, for the report.
    fn settings(&self) -> Vec<String>;
    /// Applies all operations or none. They are durable within about 100 ms.
    fn write(&self, batch: &[Operation<'_>]) -> Result<()>;
    /// A consistent view for one thread.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;
    /// Removes the keys of a table from `lower` on and below `upper` in one operation; false if the
    /// engine has none for that.
    fn delete_range(&self, _table: usize, _lower: &[u8], _upper: &[u8]) -> Result<bool> {
        Ok(false)
    }
    /// Flushes write buffers, or starts to.
    fn flush(&self) -> Result<()>;
    /// Jobs that run or wait in the background.
    fn background(&self) -> Result<u64> {
        Ok(0)
    }
    /// The engine's own figures, by name.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn close(self: Box<Self>) -> Result<()>;
}

pub trait Reader {
    /// Hands the value of a key to `visit`; returns whether the key was there.
    fn get(&mut self, table: usize, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Walks a table in key order, from the first key at or after `from`, until `visit` says no.
    fn scan(&mut self, table: usize, from: &[u8], visit: &mut Visit<'_>) -> Result<()>;
}

pub fn open(kind: Kind, setup: &Setup) -> Result<Box<dyn Engine>> {
    Ok(match kind {
        Kind::Tree => Box::new(tree::Tree::open(setup)?),
        Kind::Rocksdb => Box::new(rocksdb::Rocksdb::open(setup)?),
        Kind::Lmdb => Box::new(lmdb::Lmdb::open(setup)?),
        Kind::Fjall => Box::new(fjall::Fjall::open(setup)?),
        Kind::Redb => Box::new(redb::Redb::open(setup)?),
    })
}

/// The name of a table, for engines that want one.
fn table_name(table: usize) -> String {
    match table {
        crate::workload::PRIMARY => "primary".to_owned(),
        table => format!("secondary{table}"),
    }
}

/// The version of a dependency, as this crate's lock file has it.
fn locked_version(package: &str) -> String {
    let lock = include_str!("../../Cargo.lock");
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines
        .nth(1)
        .and_then(|line| line.strip_prefix("version = "))
        .map_or("unknown", |version| version.trim_matches('"'))
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        assert!(locked_version("redb").starts_with("4."));
        assert_eq!(locked_version("no-such-package"), "unknown");
    }
}
