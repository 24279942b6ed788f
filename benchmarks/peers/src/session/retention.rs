//! Documents of a limited lifetime: declarative partitions that are detached and dropped, or deletes in batches.

use frond_bench::system::{Expire, Retain, Retention};
use frond_bench::{Collection, Result};

use super::Connection;
use crate::client::Param;
use crate::table::{Table, expression};

/// Rows of one `DELETE`.
const BATCH: i64 = 10_000;

/// Partitions that are made ahead of the present one.
const AHEAD: u64 = 2;

/// The numbers of the partitions of a table: each holds the dates from its number on, for the seconds of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    every_ms: u64,
}

impl Span {
    pub fn of(retain: &Retain) -> Span {
        Span {
            every_ms: u64::from(retain.every.max(1)) * 1000,
        }
    }

    /// The partition of a date.
    fn number(self, ms: u64) -> u64 {
        ms / self.every_ms
    }

    /// The first and the last partition that are wanted now. One is dropped when its last date has expired.
    fn wanted(self, retain: &Retain, now_ms: u64) -> (u64, u64) {
        let oldest = now_ms.saturating_sub(u64::from(retain.seconds) * 1000);
        (self.number(oldest), self.number(now_ms) + AHEAD)
    }

    fn bounds(self, number: u64) -> (u64, u64) {
        (number * self.every_ms, (number + 1) * self.every_ms)
    }
}

impl Connection {
    /// Makes the partitions that are wanted, detaches and drops the others.
    fn roll(&mut self, collection: &Collection, retain: &Retain, now_ms: u64) -> Result<()> {
        let table = Table::of(collection);
        let span = Span::of(retain);
        let (first, last) = span.wanted(retain, now_ms);
        let sql = format!(
            "SELECT substring(c.relname from '[0-9]+$')::int8 FROM pg_inherits i
             JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent = to_regclass({})",
            crate::table::literal(&table.full())
        );
        let mut there = Vec::new();
        self.client()?.query(&sql, &[], |row| {
            there.extend(row.int().and_then(|number| u64::try_from(number).ok()));
            Ok(())
        })?;
        // Those of the time before the first document are not needed.
        let from = if there.is_empty() {
            span.number(now_ms)
        } else {
            first
        };
        let newest = there.iter().max().copied();
        for number in from..=last {
            if newest.is_none_or(|newest| number > newest) {
                let (low, high) = span.bounds(number);
                self.client()?.run(&table.create_partition(number, low, high))?;
            }
        }
        for number in there.into_iter().filter(|number| *number < first) {
            // Concurrently, so that inserts go on.
            self.client()?.run(&table.detach_partition(number))?;
            self.client()?.run(&table.drop_partition(number))?;
        }
        Ok(())
    }

    /// Deletes one batch. Returns whether there may be more.
    fn delete_batch(&mut self, collection: &Collection, field: &str, before: u64) -> Result<bool> {
        let table = Table::of(collection).full();
        let date = expression(field);
        let sql = format!(
            "DELETE FROM {table} WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM {table} WHERE {date} < $1::int8 ORDER BY {date} LIMIT {BATCH}))"
        );
        let before = Param::Int8(i64::try_from(before).unwrap_or(i64::MAX));
        let client = self.client()?;
        let statement = client.prepare(&sql)?;
        let deleted = client.execute(&statement, "DELETE", &[before], |_| Ok(()))?;
        Ok(deleted >= BATCH as u64)
    }
}

impl Retention for Connection {
    fn expire(&mut self, collection: &Collection, retain: &Retain, now_ms: u64) -> Result<bool> {
        match retain.by {
            Expire::Partitions => self.roll(collection, retain, now_ms).map(|()| false),
            // It has no TTL index: `create` has refused it.
            Expire::Ttl => Ok(false),
            Expire::Delete => {
                let before = now_ms.saturating_sub(u64::from(retain.seconds) * 1000);
                self.delete_batch(collection, retain.field, before)
            }
        }
    }

    fn count_before(
        &mut self,
        collection: &Collection,
        field: &'static str,
        before_ms: u64,
    ) -> Result<u64> {
        let table = Table::of(collection).full();
        let date = expression(field);
        let sql = format!("SELECT count(*) FROM {table} WHERE {date} < {before_ms}");
        let counted = self.number(&sql)?;
        Ok(counted.and_then(|n| n.try_into().ok()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_there_ahead_of_time_and_go_when_their_last_date_has_expired() {
        let retain = Retain {
            field: "creation",
            seconds: 60,
            by: Expire::Partitions,
            every: 10,
            ttl_sleep: 0,
        };
        let span = Span::of(&retain);
        assert_eq!(span.bounds(7), (70_000, 80_000));
        for (now_s, first, last) in [(100, 4, 12), (109, 4, 12), (110, 5, 13), (5, 0, 2)] {
            assert_eq!(span.wanted(&retain, now_s * 1000), (first, last), "{now_s}");
        }
    }
}
