//! The operations of `sysbench`: a prepared statement for each table and operation, each statement a
//! transaction of its own, as it is with MongoDB.

use std::ops::RangeInclusive;

use frond_bench::system::Transactions;
use frond_bench::{Collection, Result};
use frond_bson::Doc;

use super::Connection;
use super::inserts::id_param;
use crate::client::Param;
use crate::json;
use crate::table::Table;

/// What an operation is called in errors, and its statement.
type Operation = (&'static str, &'static str);

const POINT: Operation = ("SELECT by id", "SELECT doc->>'c' FROM {table} WHERE {id}");
const RANGE: Operation = (
    "SELECT of a range",
    "SELECT doc->>'c' FROM {table} WHERE {ids}",
);
const SUM: Operation = (
    "SELECT of a sum",
    "SELECT sum((doc->>'k')::int4) FROM {table} WHERE {ids}",
);
const ORDERED: Operation = (
    "SELECT in order",
    "SELECT doc->>'c' FROM {table} WHERE {ids} ORDER BY doc->>'c'",
);
const DISTINCT: Operation = (
    "SELECT DISTINCT",
    "SELECT DISTINCT doc->>'c' FROM {table} WHERE {ids}",
);
const UPDATE_K: Operation = (
    "UPDATE of k",
    "UPDATE {table} SET doc = jsonb_set(doc, '{k}', to_jsonb((doc->>'k')::int4 + 1)) WHERE {id}",
);
const UPDATE_C: Operation = (
    "UPDATE of c",
    "UPDATE {table} SET doc = jsonb_set(doc, '{c}', to_jsonb($2::text)) WHERE {id}",
);
const DELETE: Operation = ("DELETE", "DELETE FROM {table} WHERE {id}");
const INSERT: Operation = (
    "INSERT",
    "INSERT INTO {table} (id, doc) VALUES ($1::int4, $2::jsonb) ON CONFLICT (id) DO NOTHING",
);

fn sql((_, statement): Operation, table: &str) -> String {
    statement
        .replace("{ids}", "id BETWEEN $1::int4 AND $2::int4")
        .replace("{id}", "id = $1::int4")
        .replace("{table}", table)
}

impl Connection {
    /// Runs an operation. `first` gets the number in the first column of the last row. Returns rows
    /// that came, and rows that were worked on.
    fn operate(
        &mut self,
        collection: &Collection,
        operation: Operation,
        values: &[Param<'_>],
        first: &mut Option<i64>,
    ) -> Result<(u64, u64)> {
        if !self.in_pool {
            self.in_pool = true;
            self.pool.enter();
        }
        let table = Table::of(collection).full();
        self.pool.with(&self.stop, |client| {
            let statement = client.prepare(&sql(operation, &table))?;
            let mut rows = 0;
            let worked_on = client.execute(&statement, operation.0, values, |row| {
                rows += 1;
                *first = row.int();
                Ok(())
            })?;
            Ok((rows, worked_on))
        })
    }

    fn rows(
        &mut self,
        collection: &Collection,
        operation: Operation,
        values: &[Param<'_>],
    ) -> Result<u64> {
        Ok(self.operate(collection, operation, values, &mut None)?.0)
    }

    fn change(
        &mut self,
        collection: &Collection,
        operation: Operation,
        values: &[Param<'_>],
    ) -> Result<u64> {
        Ok(self.operate(collection, operation, values, &mut None)?.1)
    }
}

/// A range as the values of a statement.
fn bounds(ids: &RangeInclusive<i32>) -> [Param<'static>; 2] {
    [Param::Int4(*ids.start()), Param::Int4(*ids.end())]
}

impl Transactions for Connection {
    fn point(&mut self, collection: &Collection, id: i32) -> Result<u64> {
        self.rows(collection, POINT, &[Param::Int4(id)])
    }

    fn range(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64> {
        self.rows(collection, RANGE, &bounds(&ids))
    }

    fn sum(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<i64> {
        let mut sum = None;
        self.operate(collection, SUM, &bounds(&ids), &mut sum)?;
        Ok(sum.unwrap_or(0))
    }

    fn ordered(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64> {
        self.rows(collection, ORDERED, &bounds(&ids))
    }

    fn distinct(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64> {
        self.rows(collection, DISTINCT, &bounds(&ids))
    }

    fn update_k(&mut self, collection: &Collection, id: i32) -> Result<u64> {
        self.change(collection, UPDATE_K, &[Param::Int4(id)])
    }

    fn update_c(&mut self, collection: &Collection, id: i32, c: &str) -> Result<u64> {
        let values = [Param::Int4(id), Param::text(c)];
        self.change(collection, UPDATE_C, &values)
    }

    fn delete(&mut self, collection: &Collection, id: i32) -> Result<u64> {
        self.change(collection, DELETE, &[Param::Int4(id)])
    }

    fn insert(&mut self, collection: &Collection, document: &Doc) -> Result<u64> {
        let mut text = Vec::new();
        json::append(document, &mut text)?;
        let values = [id_param(document)?, Param::Jsonb(text.as_slice().into())];
        self.change(collection, INSERT, &values)
    }
}
