//! Everyday operations: a prepared statement each, a transaction of its own.

use frond_bench::system::{Condition, Everyday, Ids, Task};
use frond_bench::{Collection, Result};

use super::Connection;
use super::inserts::id_param;
use crate::client::{Param, Row};
use crate::json;
use crate::table::{Table, expression};

/// A document with 1 added to its `w`.
const ADD_ONE: &str = "SET doc = jsonb_set(doc, '{w}', to_jsonb((doc->>'w')::int4 + 1))";

/// The sum that a row adds to the answer.
type Each = fn(&Row) -> i64;

impl Everyday for Connection {
    fn loaded(&mut self, collection: &Collection) -> Result<()> {
        // Autovacuum would come within a minute, perhaps in the middle of an operation.
        let sql = format!("VACUUM (ANALYZE) {}", Table::of(collection).full());
        self.client()?.run(&sql)?;
        Ok(())
    }

    fn perform(&mut self, collection: &Collection, task: &Task<'_>) -> Result<u64> {
        let table = Table::of(collection).full();
        let sql = statement(&table, task);
        let mut text = Vec::new();
        let list;
        let values = match task {
            Task::Point(id)
            | Task::UpdateOne(id)
            | Task::FindAndUpdate(id)
            | Task::DeleteOne(id) => vec![Param::Int4(*id)],
            Task::Range(ids) | Task::Lookup { ids, .. } => bounds(ids),
            Task::In(ids) => {
                let ids: Vec<String> = ids.iter().map(i32::to_string).collect();
                list = format!("{{{}}}", ids.join(","));
                vec![Param::text(&list)]
            }
            Task::InsertOne(document) => {
                json::append(document, &mut text)?;
                vec![id_param(document)?, Param::Jsonb(text.as_slice().into())]
            }
            _ => Vec::new(),
        };
        let each: Option<Each> = match task {
            Task::Count(_) | Task::Skip { .. } => Some(|row| row.int().unwrap_or(0)),
            Task::Top { .. } => Some(|row| row.int_at(2).unwrap_or(0)),
            Task::Lookup { .. } => Some(|row| i64::from(row.int_at(2).is_some())),
            Task::Match(_) | Task::Distinct(_) | Task::Point(_) | Task::Range(_) | Task::In(_) => {
                Some(|_| 1)
            }
            _ => None,
        };
        let client = self.client()?;
        let prepared = client.prepare(&sql)?;
        let mut sum = 0;
        let changed = client.execute(&prepared, &sql, &values, |row| {
            sum += each.map_or(0, |each| each(row));
            Ok(())
        })?;
        Ok(each.map_or(changed, |_| u64::try_from(sum).unwrap_or(0)))
    }
}

fn bounds(ids: &Ids) -> Vec<Param<'static>> {
    vec![Param::Int4(*ids.start()), Param::Int4(*ids.end())]
}

fn statement(table: &str, task: &Task<'_>) -> String {
    match task {
        Task::Count(conditions) => {
            format!("SELECT count(*)::int8 FROM {table}{}", all_of(conditions))
        }
        Task::Match(conditions) => format!("SELECT id, doc FROM {table}{}", all_of(conditions)),
        Task::Top { by, limit } => {
            let by = expression(by);
            format!("SELECT id, doc, {by} FROM {table} ORDER BY {by} DESC LIMIT {limit}")
        }
        Task::Lookup { other, by, .. } => {
            let (by, other) = (expression(by), Table::of(other).full());
            format!(
                "SELECT t.id, t.doc, o.id, o.doc FROM \
                 (SELECT id, doc, {by} AS by FROM {table} WHERE id BETWEEN $1::int4 AND $2::int4) t \
                 LEFT JOIN {other} o ON o.id = t.by"
            )
        }
        Task::Distinct(field) => format!("SELECT DISTINCT {} FROM {table}", expression(field)),
        Task::Point(_) => format!("SELECT id, doc FROM {table} WHERE id = $1::int4"),
        Task::Range(_) => {
            format!("SELECT id, doc FROM {table} WHERE id BETWEEN $1::int4 AND $2::int4")
        }
        Task::In(_) => format!("SELECT id, doc FROM {table} WHERE id = ANY ($1::text::int4[])"),
        Task::Skip { skip, limit } => {
            format!("SELECT id, doc FROM {table} ORDER BY id OFFSET {skip} LIMIT {limit}")
        }
        Task::UpdateOne(_) => format!("UPDATE {table} {ADD_ONE} WHERE id = $1::int4"),
        Task::FindAndUpdate(_) => {
            format!("UPDATE {table} {ADD_ONE} WHERE id = $1::int4 RETURNING id, doc")
        }
        Task::UpdateMany(condition) => {
            let condition = all_of(std::slice::from_ref(condition));
            format!("UPDATE {table} {ADD_ONE}{condition}")
        }
        Task::DeleteOne(_) => format!("DELETE FROM {table} WHERE id = $1::int4"),
        Task::DeleteMany(condition) => {
            format!("DELETE FROM {table}{}", all_of(std::slice::from_ref(condition)))
        }
        Task::InsertOne(_) => {
            format!("INSERT INTO {table} (id, doc) VALUES ($1::int4, $2::jsonb)")
        }
    }
}

fn all_of(conditions: &[Condition]) -> String {
    let of = |Condition { field, from, below }: &Condition| {
        let field = expression(field);
        if *below == from + 1 {
            format!("{field} = {from}")
        } else {
            format!("{field} >= {from} AND {field} < {below}")
        }
    };
    let conditions: Vec<String> = conditions.iter().map(of).collect();
    if conditions.is_empty() {
        return String::new();
    }
    format!(" WHERE {}", conditions.join(" AND "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_statements_by_the_expressions_of_the_indexes() {
        let sql = |task: Task<'_>| statement("t", &task);
        let within = |field, from, below| Condition { field, from, below };
        let (k, u) = (within("k", 7, 8), within("u", 0, 9));
        let key = "((doc->>'k')::int4)";
        for (task, expected) in [
            (Task::Count(&[]), "SELECT count(*)::int8 FROM t".to_owned()),
            (
                Task::Match(&[k, u]),
                format!(
                    "SELECT id, doc FROM t WHERE {key} = 7 \
                     AND ((doc->>'u')::int4) >= 0 AND ((doc->>'u')::int4) < 9"
                ),
            ),
            (
                Task::Top { by: "k", limit: 3 },
                format!("SELECT id, doc, {key} FROM t ORDER BY {key} DESC LIMIT 3"),
            ),
            (
                Task::Distinct("city"),
                "SELECT DISTINCT (doc->>'city') FROM t".to_owned(),
            ),
            (
                Task::DeleteMany(k),
                format!("DELETE FROM t WHERE {key} = 7"),
            ),
        ] {
            assert_eq!(sql(task), expected);
        }
        assert!(sql(Task::FindAndUpdate(1)).ends_with("WHERE id = $1::int4 RETURNING id, doc"));
    }
}
