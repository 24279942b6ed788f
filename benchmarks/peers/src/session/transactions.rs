//! The operations of `sysbench`: a prepared statement for each table and operation, each statement a
//! transaction of its own, as it is with MongoDB.

use frond_bench::system::{Ids, Operation, Transactions};
use frond_bench::{Collection, Result};

use super::Connection;
use super::inserts::id_param;
use crate::client::Param;
use crate::json;
use crate::table::Table;

/// The name of an operation in errors, and its statement.
type Named = (&'static str, &'static str);

const POINT: Named = ("SELECT by id", "SELECT doc->>'c' FROM {table} WHERE {id}");
const RANGE: Named = (
    "SELECT of a range",
    "SELECT doc->>'c' FROM {table} WHERE {ids}",
);
const SUM: Named = (
    "SELECT of a sum",
    "SELECT sum((doc->>'k')::int4) FROM {table} WHERE {ids}",
);
const ORDERED: Named = (
    "SELECT in order",
    "SELECT doc->>'c' FROM {table} WHERE {ids} ORDER BY doc->>'c'",
);
const DISTINCT: Named = (
    "SELECT DISTINCT",
    "SELECT DISTINCT doc->>'c' FROM {table} WHERE {ids}",
);
const UPDATE_K: Named = (
    "UPDATE of k",
    "UPDATE {table} SET doc = jsonb_set(doc, '{k}', to_jsonb((doc->>'k')::int4 + 1)) WHERE {id}",
);
const UPDATE_C: Named = (
    "UPDATE of c",
    "UPDATE {table} SET doc = jsonb_set(doc, '{c}', to_jsonb($2::text)) WHERE {id}",
);
const DELETE: Named = ("DELETE", "DELETE FROM {table} WHERE {id}");
const INSERT: Named = (
    "INSERT",
    "INSERT INTO {table} (id, doc) VALUES ($1::int4, $2::jsonb) ON CONFLICT (id) DO NOTHING",
);

fn sql((_, statement): Named, table: &str) -> String {
    statement
        .replace("{ids}", "id BETWEEN $1::int4 AND $2::int4")
        .replace("{id}", "id = $1::int4")
        .replace("{table}", table)
}

impl Transactions for Connection {
    fn operate(&mut self, collection: &Collection, operation: &Operation<'_>) -> Result<u64> {
        if !self.in_pool {
            self.in_pool = true;
            self.pool.enter();
        }
        let mut text = Vec::new();
        let bounds = |ids: &Ids| vec![Param::Int4(*ids.start()), Param::Int4(*ids.end())];
        let (what, values) = match operation {
            Operation::Point(id) => (POINT, vec![Param::Int4(*id)]),
            Operation::Range(ids) => (RANGE, bounds(ids)),
            Operation::Sum(ids) => (SUM, bounds(ids)),
            Operation::Ordered(ids) => (ORDERED, bounds(ids)),
            Operation::Distinct(ids) => (DISTINCT, bounds(ids)),
            Operation::UpdateK(id) => (UPDATE_K, vec![Param::Int4(*id)]),
            Operation::UpdateC(id, c) => (UPDATE_C, vec![Param::Int4(*id), Param::text(c)]),
            Operation::Delete(id) => (DELETE, vec![Param::Int4(*id)]),
            Operation::Insert(document) => {
                json::append(document, &mut text)?;
                let values = vec![id_param(document)?, Param::Jsonb(text.as_slice().into())];
                (INSERT, values)
            }
        };
        let table = Table::of(collection).full();
        self.pool.with(&self.stop, |client| {
            let statement = client.prepare(&sql(what, &table))?;
            let (mut rows, mut sum) = (0, None);
            let changed = client.execute(&statement, what.0, &values, |row| {
                rows += 1;
                sum = row.int();
                Ok(())
            })?;
            Ok(match operation {
                Operation::Sum(_) => sum.and_then(|sum| sum.try_into().ok()).unwrap_or(0),
                _ if what.1.starts_with("SELECT") => rows,
                _ => changed,
            })
        })
    }
}
