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

#[derive(Clone, Copy)]
enum Operation {
    Point,
    Range,
    Sum,
    Ordered,
    Distinct,
    UpdateK,
    UpdateC,
    Delete,
    Insert,
}

impl Operation {
    fn sql(self, table: &str) -> String {
        const RANGE: &str = "id BETWEEN $1::int4 AND $2::int4";
        match self {
            Operation::Point => format!("SELECT doc->>'c' FROM {table} WHERE id = $1::int4"),
            Operation::Range => format!("SELECT doc->>'c' FROM {table} WHERE {RANGE}"),
            Operation::Sum => format!("SELECT sum((doc->>'k')::int4) FROM {table} WHERE {RANGE}"),
            Operation::Ordered => {
                format!("SELECT doc->>'c' FROM {table} WHERE {RANGE} ORDER BY doc->>'c'")
            }
            Operation::Distinct => {
                format!("SELECT DISTINCT doc->>'c' FROM {table} WHERE {RANGE}")
            }
            Operation::UpdateK => format!(
                "UPDATE {table} SET doc = jsonb_set(doc, '{{k}}', \
                 to_jsonb((doc->>'k')::int4 + 1)) WHERE id = $1::int4"
            ),
            Operation::UpdateC => format!(
                "UPDATE {table} SET doc = jsonb_set(doc, '{{c}}', to_jsonb($2::text)) \
                 WHERE id = $1::int4"
            ),
            Operation::Delete => format!("DELETE FROM {table} WHERE id = $1::int4"),
            Operation::Insert => format!(
                "INSERT INTO {table} (id, doc) VALUES ($1::int4, $2::jsonb) \
                 ON CONFLICT (id) DO NOTHING"
            ),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Operation::Point => "SELECT by id",
            Operation::Range => "SELECT of a range",
            Operation::Sum => "SELECT of a sum",
            Operation::Ordered => "SELECT in order",
            Operation::Distinct => "SELECT DISTINCT",
            Operation::UpdateK => "UPDATE of k",
            Operation::UpdateC => "UPDATE of c",
            Operation::Delete => "DELETE",
            Operation::Insert => "INSERT",
        }
    }
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
            let statement = client.prepare(&operation.sql(&table))?;
            let mut rows = 0;
            let worked_on = client.execute(&statement, operation.name(), values, |row| {
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
        self.rows(collection, Operation::Point, &[Param::Int4(id)])
    }

    fn range(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64> {
        self.rows(collection, Operation::Range, &bounds(&ids))
    }

    fn sum(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<i64> {
        let mut sum = None;
        self.operate(collection, Operation::Sum, &bounds(&ids), &mut sum)?;
        Ok(sum.unwrap_or(0))
    }

    fn ordered(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64> {
        self.rows(collection, Operation::Ordered, &bounds(&ids))
    }

    fn distinct(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64> {
        self.rows(collection, Operation::Distinct, &bounds(&ids))
    }

    fn update_k(&mut self, collection: &Collection, id: i32) -> Result<u64> {
        self.change(collection, Operation::UpdateK, &[Param::Int4(id)])
    }

    fn update_c(&mut self, collection: &Collection, id: i32, c: &str) -> Result<u64> {
        let values = [Param::Int4(id), Param::text(c)];
        self.change(collection, Operation::UpdateC, &values)
    }

    fn delete(&mut self, collection: &Collection, id: i32) -> Result<u64> {
        self.change(collection, Operation::Delete, &[Param::Int4(id)])
    }

    fn insert(&mut self, collection: &Collection, document: &Doc) -> Result<u64> {
        let mut text = Vec::new();
        json::append(document, &mut text)?;
        let values = [id_param(document)?, Param::Jsonb(text.as_slice().into())];
        self.change(collection, Operation::Insert, &values)
    }
}
