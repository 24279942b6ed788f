//! Tables, sizes, and who the server is.

use frond_bench::system::{Compression, Definition, Description, Expire, Setup, Sizes};
use frond_bench::{Collection, Error, Result, Status, parent_process};

use super::Connection;
use crate::client::Client;
use crate::table::{Table, literal};

/// Settings that a report should say.
const SETTINGS: [&str; 8] = [
    "shared_buffers",
    "synchronous_commit",
    "wal_writer_delay",
    "max_wal_size",
    "full_page_writes",
    "wal_compression",
    "default_toast_compression",
    "autovacuum",
];

impl Connection {
    /// The first column of the first row, as a number.
    pub fn number(&mut self, sql: &str) -> Result<Option<i64>> {
        let mut found = None;
        self.client()?.query(sql, &[], |row| {
            found = found.or(row.int());
            Ok(())
        })?;
        Ok(found)
    }

    /// The same as a text.
    fn text(&mut self, sql: &str) -> Result<Option<String>> {
        let mut found = None;
        self.client()?.query(sql, &[], |row| {
            found = row.text().map(str::to_owned);
            Ok(())
        })?;
        Ok(found)
    }

    fn is_there(&mut self, table: &Table) -> Result<bool> {
        let sql = format!("SELECT to_regclass({})::oid::int8", literal(&table.full()));
        Ok(self.number(&sql)?.is_some())
    }
}

/// The sum of a size over a table and its partitions.
fn with_partitions(size: &str, name: &str) -> String {
    format!("SELECT coalesce(sum({size}(relid)), {size}({name}))::int8 FROM pg_partition_tree({name})")
}

impl Setup for Connection {
    fn describe(&mut self) -> Description {
        let version = self.client().map_or_else(
            |error| error.to_string(),
            |client| client.version().to_owned(),
        );
        let short = version.split(' ').next().unwrap_or_default();
        let pool = format!("a pool of at most {}", self.uri.pool);
        let mut facts: Vec<(&str, String)> = [
            ("version", version.as_str()),
            (
                "documents",
                "jsonb, indexed by expressions; dates as milliseconds, ids as bytea or int4",
            ),
            (
                "inserts sent as",
                "COPY of a batch in its binary format, one document as INSERT",
            ),
            (
                "without acknowledgement",
                "pipelined: one batch or up to 64 updates before their answers are read",
            ),
            ("connections for transactions", pool.as_str()),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec();
        for setting in SETTINGS {
            let sql = format!("SELECT current_setting({}, true)", literal(setting));
            if let Ok(Some(value)) = self.text(&sql) {
                facts.push((setting, value));
            }
        }
        Description {
            name: format!("PostgreSQL {short}"),
            facts,
            null: false,
        }
    }

    fn check_batch(&self, _acknowledged: bool, _batch: u32, _document_bytes: usize) -> Result<()> {
        // A COPY has no limit, and a document's is 256 MiB, which no workload comes near.
        Ok(())
    }

    fn drop_collection(&mut self, collection: &Collection) -> Result<()> {
        let table = Table::of(collection);
        if self.is_there(&table)? {
            self.client()?.run(&table.drop())?;
        }
        Ok(())
    }

    fn create(&mut self, collection: &Collection, definition: &Definition) -> Result<()> {
        // Nothing is said about what is there already.
        self.client()?.run("SET client_min_messages = warning")?;
        let table = Table::of(collection);
        if definition.retention.is_some_and(|retain| retain.by == Expire::Ttl) {
            return Err(Error::Settings(
                "PostgreSQL has no TTL index: --expire partitions or --expire delete".to_owned(),
            ));
        }
        self.client()?.run(&table.create(definition))?;
        // PostgreSQL compresses no pages, only values of more than 2 kB.
        if definition.compression == Some(Compression::None) {
            let sql = format!(
                "ALTER TABLE {} ALTER doc SET STORAGE EXTERNAL",
                table.full()
            );
            self.client()?.run(&sql)?;
        }
        Ok(())
    }

    fn count(&mut self, collection: &Collection) -> Result<u64> {
        let table = Table::of(collection);
        if !self.is_there(&table)? {
            return Ok(0);
        }
        let counted = self.number(&format!("SELECT count(*) FROM {}", table.full()))?;
        Ok(counted.and_then(|n| n.try_into().ok()).unwrap_or(0))
    }

    fn sizes(&mut self, collection: &Collection) -> Result<Sizes> {
        let table = Table::of(collection);
        let name = literal(&table.full());
        let mut number = |sql: &str| -> Result<Option<u64>> {
            Ok(self.number(sql)?.and_then(|n| n.try_into().ok()))
        };
        Ok(Sizes {
            documents: number(&format!("SELECT count(*) FROM {}", table.full()))?,
            // What a document takes as BSON is not known here.
            logical_bytes: None,
            // A partitioned table has nothing itself.
            storage_bytes: number(&with_partitions("pg_table_size", &name))?,
            index_bytes: number(&with_partitions("pg_indexes_size", &name))?,
        })
    }

    fn status(&mut self) -> Result<Status> {
        let log = self.number("SELECT (pg_current_wal_insert_lsn() - '0/0')::int8")?;
        let connections = self.number("SELECT count(*) FROM pg_stat_activity")?;
        // What backends, checkpointer and background writer wrote of shared buffers.
        let pages = self.number(
            "SELECT (buffers_checkpoint + buffers_clean + buffers_backend)
                * current_setting('block_size')::int8 FROM pg_stat_bgwriter",
        );
        Ok(Status {
            log_bytes: log.map(|n| n as f64),
            data_bytes: pages.ok().flatten().map(|n| n as f64),
            connections: connections.map(|n| n as f64),
            ..Status::default()
        })
    }

    fn process(&mut self) -> Result<Option<u32>> {
        // It is known on this machine only: the postmaster has started the process of each connection.
        let backend = self.number("SELECT pg_backend_pid()::int8")?;
        Ok(backend.and_then(|pid| parent_process(u32::try_from(pid).ok()?)))
    }

    fn write_all(&mut self) -> Result<()> {
        self.client()?.run("CHECKPOINT")?;
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        self.own.as_mut().map_or(Ok(()), Client::drain)
    }
}
