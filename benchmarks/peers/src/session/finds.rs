//! Finds by one field, and groups by one field.

use frond_bench::system::{Find, Finds, From, Group, Grouping, Groups};
use frond_bench::{Collection, Error, Result};
use frond_bson::Value;

use super::Connection;
use crate::client::Param;
use crate::table::{Kind, Table, expression, kind_of, literal};

impl Finds for Connection {
    fn find(&mut self, collection: &Collection, find: &Find<'_>) -> Result<u64> {
        let table = Table::of(collection);
        let multikey = self.is_multikey(&table, find.field)?;
        let (sql, value) = statement(&table, find, multikey)?;
        let mut rows = 0;
        self.client()?.query(&sql, &[value], |_| {
            rows += 1;
            Ok(())
        })?;
        Ok(rows)
    }
}

impl Grouping for Connection {
    fn group(&mut self, collection: &Collection, group: &Group<'_>) -> Result<Groups> {
        let mut groups = Groups::default();
        self.client()?.query(
            &group_statement(&Table::of(collection), group),
            &[],
            |row| {
                groups.groups += 1;
                groups.documents += row.int_at(1).unwrap_or_default();
                groups.total += row.int_at(2).unwrap_or_default();
                Ok(())
            },
        )?;
        Ok(groups)
    }
}

/// The statement of an aggregation: the key, how many rows have it, and their sum.
fn group_statement(table: &Table, group: &Group<'_>) -> String {
    let (by, sum) = (expression(group.by), expression(group.sum));
    let below = group
        .below
        .map_or(String::new(), |below| format!(" WHERE {sum} < {below}"));
    format!(
        "SELECT {by}, count(*)::int8, sum({sum})::int8 FROM {}{below} GROUP BY 1",
        table.full()
    )
}

impl Connection {
    /// Whether a field has a GIN index, which is how arrays are indexed.
    fn is_multikey(&mut self, table: &Table, field: &str) -> Result<bool> {
        let key = (table.full(), field.to_owned());
        if let Some(known) = self.multikey.get(&key) {
            return Ok(*known);
        }
        let sql = format!(
            "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
             JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'gin' \
             AND i.indrelid = to_regclass({}) AND strpos(pg_get_indexdef(c.oid), {}) > 0",
            literal(&table.full()),
            literal(&format!("doc -> {}", literal(field)))
        );
        let found = self.number(&sql)? > Some(0);
        self.multikey.insert(key, found);
        Ok(found)
    }
}

/// The statement and the value of its parameter. Whole documents come, with their ids.
fn statement<'v>(table: &Table, find: &Find<'v>, multikey: bool) -> Result<(String, Param<'v>)> {
    let (value, at_least) = match find.from {
        From::Equal(value) => (value, false),
        From::AtLeast(value) => (value, true),
    };
    let field = expression(find.field);
    let (cast, value) = match (kind_of(find.field), value) {
        (Kind::Text, Value::String(text)) => ("text", Param::text(text)),
        (Kind::Int, Value::Int32(number)) => ("int4", Param::Int4(number)),
        (Kind::Bigint, Value::Int64(number) | Value::DateTime(number)) => {
            ("int8", Param::Int8(number))
        }
        (_, value) => {
            let kind = value.type_name();
            return Err(Error::Settings(format!(
                "{} is not found by a value of type {kind}",
                find.field
            )));
        }
    };
    let table = table.full();
    let mut sql = if multikey && at_least {
        return Err(Error::Settings(format!(
            "{}: a GIN index finds elements of arrays by their value, not in order",
            find.field
        )));
    } else if multikey {
        let name = literal(find.field);
        format!("SELECT id, doc FROM {table} WHERE doc->{name} ? $1::text")
    } else if at_least {
        format!("SELECT id, doc FROM {table} WHERE {field} >= $1::{cast} ORDER BY {field}")
    } else {
        format!("SELECT id, doc FROM {table} WHERE {field} = $1::{cast}")
    };
    if find.limit > 0 {
        sql.push_str(&format!(" LIMIT {}", find.limit));
    }
    Ok((sql, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_statement_with_two_sums() {
        let table = Table::of(&Collection {
            database: "d".to_owned(),
            name: "c".to_owned(),
        });
        let (by, sum) = ("k", "v");
        let group = |below| group_statement(&table, &Group { by, sum, below });
        let all = r#"SELECT ((doc->>'k')::int4), count(*)::int8, sum(((doc->>'v')::int4))::int8 FROM "d"."c""#;
        assert_eq!(group(None), format!("{all} GROUP BY 1"));
        let some = format!("{all} WHERE ((doc->>'v')::int4) < 5 GROUP BY 1");
        assert_eq!(group(Some(5)), some);
    }

    #[test]
    fn statements_find_by_the_expression_of_the_index() {
        let table = Table::of(&Collection {
            database: "d".to_owned(),
            name: "c".to_owned(),
        });
        let sql = |field, from, limit, multikey| {
            let find = Find { field, from, limit };
            statement(&table, &find, multikey)
                .map(|(sql, _)| sql)
                .map_err(|error| error.to_string())
        };
        let date = Value::DateTime(5);
        let text = Value::String("x");
        for (field, from, limit, multikey, expected) in [
            (
                "name",
                From::Equal(text),
                0,
                false,
                "(doc->>'name') = $1::text",
            ),
            (
                "creation",
                From::AtLeast(date),
                10,
                false,
                "((doc->>'creation')::int8) >= $1::int8 \
                 ORDER BY ((doc->>'creation')::int8) LIMIT 10",
            ),
            (
                "URI",
                From::Equal(text),
                1,
                true,
                "doc->'URI' ? $1::text LIMIT 1",
            ),
        ] {
            let sql = sql(field, from, limit, multikey).unwrap();
            let expected = format!("SELECT id, doc FROM \"d\".\"c\" WHERE {expected}");
            assert_eq!(sql, expected);
        }
        for (field, from, multikey, problem) in [
            ("name", From::Equal(date), false, "name is not found"),
            (
                "timeslice",
                From::Equal(text),
                false,
                "timeslice is not found",
            ),
            ("URI", From::AtLeast(text), true, "GIN"),
        ] {
            assert!(sql(field, from, 0, multikey).unwrap_err().contains(problem));
        }
    }
}
