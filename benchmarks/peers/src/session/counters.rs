//! Counters: a table of two integers, and upserts of whole batches.

use frond_bench::system::Counters;
use frond_bench::{Collection, Result};

use super::Connection;
use crate::client::Param;
use crate::table::Table;

/// An array of `int8` as its text.
fn array(keys: &[i64]) -> String {
    let keys: Vec<String> = keys.iter().map(i64::to_string).collect();
    format!("{{{}}}", keys.join(","))
}

impl Connection {
    /// Executes a statement about many keys.
    fn with_keys(&mut self, sql: &str, keys: &[i64]) -> Result<u64> {
        let keys = array(keys);
        let client = self.client()?;
        let statement = client.prepare(sql)?;
        client.execute(&statement, "INSERT", &[Param::text(&keys)], |_| Ok(()))
    }
}

impl Counters for Connection {
    fn create_counters(&mut self, collection: &Collection, _fast: bool) -> Result<()> {
        let table = Table::of(collection);
        let sql = table.create_counters();
        self.client()?.run(&sql)?;
        Ok(())
    }

    fn insert_counters(&mut self, collection: &Collection, keys: &[i64]) -> Result<()> {
        let table = Table::of(collection).full();
        let sql = format!(
            "INSERT INTO {table} (id, n) SELECT unnest($1::text::int8[]), 0"
        );
        self.with_keys(&sql, keys)?;
        Ok(())
    }

    fn increment(&mut self, collection: &Collection, keys: &[i64]) -> Result<()> {
        let table = Table::of(collection).full();
        if let [key] = keys {
            let sql = format!(
                "INSERT INTO {table} AS t (id, n) VALUES ($1::int8, 1)
                 ON CONFLICT (id) DO UPDATE SET n = t.n + 1"
            );
            let client = self.client()?;
            let statement = client.prepare(&sql)?;
            client.execute(&statement, "INSERT", &[Param::Int8(*key)], |_| Ok(()))?;
            return Ok(());
        }
        // A statement must not change a row twice. In the order of the keys, writers do not deadlock.
        let sql = format!(
            "INSERT INTO {table} AS t (id, n)
             SELECT id, count(*) FROM unnest($1::text::int8[]) AS id GROUP BY id ORDER BY id
             ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n"
        );
        self.with_keys(&sql, keys)?;
        Ok(())
    }

    fn counter(&mut self, collection: &Collection, key: i64) -> Result<Option<i64>> {
        let table = Table::of(collection).full();
        let sql = format!("SELECT n FROM {table} WHERE id = $1::int8");
        let mut value = None;
        let client = self.client()?;
        let statement = client.prepare(&sql)?;
        client.execute(&statement, "SELECT by id", &[Param::Int8(key)], |row| {
            value = row.int();
            Ok(())
        })?;
        Ok(value)
    }

    fn total(&mut self, collection: &Collection) -> Result<(u64, i64)> {
        let table = Table::of(collection).full();
        let counters = self.number(&format!("SELECT count(*) FROM {table}"))?;
        let sum = self.number(&format!("SELECT coalesce(sum(n), 0)::int8 FROM {table}"))?;
        let counters = counters.and_then(|n| n.try_into().ok()).unwrap_or(0);
        Ok((counters, sum.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_an_array() {
        assert_eq!(array(&[1, -2]), "{1,-2}");
        assert_eq!(array(&[]), "{}");
    }
}
