//! A collection as a table: `id`, the primary key, and `doc`, a jsonb.

use frond_bench::Collection;
use frond_bench::system::{Definition, Expire, Index};

/// Names as SQL writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    schema: String,
    name: String,
}

/// What a field holds, which the expression of its index must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// A 32-bit integer.
    Int,
    /// A 64-bit integer, or a date as milliseconds.
    Bigint,
    /// A sub-document, or an array.
    Jsonb,
}

/// What the workloads' fields hold.
pub fn kind_of(field: &str) -> Kind {
    match field {
        "k" | "v" | "u" | "m" | "w" => Kind::Int,
        "creation" | "expiration" | "appver" | "g" | "someId1" | "date1" => Kind::Bigint,
        "timeslice" => Kind::Jsonb,
        _ => Kind::Text,
    }
}

/// The expression that a field is indexed and found by.
pub fn expression(field: &str) -> String {
    let name = literal(field);
    match kind_of(field) {
        Kind::Text => format!("(doc->>{name})"),
        Kind::Int => format!("((doc->>{name})::int4)"),
        Kind::Bigint => format!("((doc->>{name})::int8)"),
        Kind::Jsonb => format!("(doc->{name})"),
    }
}

impl Table {
    /// The database becomes a schema, the collection a table in it.
    pub fn of(collection: &Collection) -> Table {
        Table {
            schema: quoted(&collection.database),
            name: quoted(&collection.name),
        }
    }

    /// Its name with its schema.
    pub fn full(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    pub fn drop(&self) -> String {
        format!("DROP TABLE IF EXISTS {}", self.full())
    }

    /// Makes it with its indexes, unless they are there. The names of the indexes are made of their
    /// fields.
    pub fn create(&self, definition: &Definition) -> String {
        let has_k = definition.indexes.iter().any(|index| index.fields == ["k"]);
        let id = if definition.integer_ids || has_k {
            "int4"
        } else {
            "bytea"
        };
        let partitions = definition.retention.filter(|retain| retain.by == Expire::Partitions);
        let columns = match partitions {
            None => format!("(id {id} PRIMARY KEY, doc jsonb NOT NULL)"),
            // A key that is unique in all partitions would have to begin with a column that they are made by, not with an
            // expression.
            Some(retain) => format!(
                "(id {id} NOT NULL, doc jsonb NOT NULL) PARTITION BY RANGE ({})",
                expression(retain.field)
            ),
        };
        let mut sql = format!(
            "CREATE SCHEMA IF NOT EXISTS {}; CREATE TABLE IF NOT EXISTS {} {columns}",
            self.schema,
            self.full()
        );
        if partitions.is_some() {
            let plain = self.name.trim_matches('"');
            let name = quoted(&format!("{plain}_id"));
            sql.push_str(&format!("; CREATE INDEX IF NOT EXISTS {name} ON {} (id)", self.full()));
        }
        for index in &definition.indexes {
            sql.push_str("; ");
            sql.push_str(&self.create_index(index));
        }
        sql
    }

    /// Makes a table of counters.
    pub fn create_counters(&self) -> String {
        format!(
            "CREATE SCHEMA IF NOT EXISTS {}; \
             CREATE TABLE IF NOT EXISTS {} (id int8 PRIMARY KEY, n int8 NOT NULL)",
            self.schema,
            self.full()
        )
    }

    /// The name of a partition with its schema.
    fn partition(&self, number: u64) -> String {
        let plain = self.name.trim_matches('"');
        format!("{}.{}", self.schema, quoted(&format!("{plain}_p{number}")))
    }

    /// Makes the partition of the dates from `low` on and below `high`.
    pub fn create_partition(&self, number: u64, low: u64, high: u64) -> String {
        format!(
            "CREATE TABLE {} PARTITION OF {} FOR VALUES FROM ({low}) TO ({high})",
            self.partition(number),
            self.full()
        )
    }

    pub fn detach_partition(&self, number: u64) -> String {
        format!(
            "ALTER TABLE {} DETACH PARTITION {} CONCURRENTLY",
            self.full(),
            self.partition(number)
        )
    }

    pub fn drop_partition(&self, number: u64) -> String {
        format!("DROP TABLE {}", self.partition(number))
    }

    fn create_index(&self, index: &Index) -> String {
        let plain = self.name.trim_matches('"');
        let name = quoted(&format!("{plain}_{}", index.fields.join("_")));
        // Elements of an array are found by `doc->'field' ? 'element'`, which jsonb_ops serves.
        let (method, expressions) = if index.multikey {
            let fields = index.fields.iter();
            let fields = fields.map(|field| format!("(doc->{})", literal(field)));
            ("gin", fields.collect::<Vec<_>>())
        } else {
            let fields = index.fields.iter();
            ("btree", fields.map(|field| expression(field)).collect())
        };
        format!(
            "CREATE INDEX IF NOT EXISTS {name} ON {} USING {method} ({})",
            self.full(),
            expressions.join(", ")
        )
    }
}

/// A name in double quotes.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string in single quotes.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_become_tables_with_indexes_on_expressions() {
        let table = Table::of(&Collection {
            database: "d".to_owned(),
            name: "it\"s".to_owned(),
        });
        assert_eq!(table.full(), r#""d"."it""s""#);
        let index = |fields, multikey| Index { fields, multikey };
        let definition = |indexes| Definition {
            indexes,
            ..Definition::default()
        };
        let sql = table.create(&definition(vec![
            index(&["URI"], true),
            index(&["name"], false),
            index(&["appver", "deploytype", "timeslice"], false),
        ]));
        assert!(sql.contains("id bytea PRIMARY KEY"), "{sql}");
        assert!(sql.contains("USING gin ((doc->'URI'))"), "{sql}");
        assert!(sql.contains("USING btree ((doc->>'name'))"), "{sql}");
        assert!(
            sql.contains(
                "USING btree (((doc->>'appver')::int8), (doc->>'deploytype'), (doc->'timeslice'))"
            ),
            "{sql}"
        );
        let sql = table.create(&definition(vec![index(&["k"], false)]));
        assert!(sql.contains("id int4 PRIMARY KEY"), "{sql}");
        assert!(sql.contains("(((doc->>'k')::int4))"), "{sql}");
    }

    #[test]
    fn partitions_are_ranges_of_the_date() {
        let table = Table::of(&Collection {
            database: "d".to_owned(),
            name: "w7".to_owned(),
        });
        let retain = frond_bench::system::Retain {
            field: "creation",
            seconds: 60,
            by: Expire::Partitions,
            every: 10,
            ttl_sleep: 0,
        };
        let definition = |by| Definition {
            indexes: vec![Index::on(&["name"])],
            retention: Some(frond_bench::system::Retain { by, ..retain }),
            ..Definition::default()
        };
        let sql = table.create(&definition(Expire::Partitions));
        assert!(sql.contains("PARTITION BY RANGE (((doc->>'creation')::int8))"), "{sql}");
        assert!(!sql.contains("PRIMARY KEY") && sql.contains(r#""w7_id" ON "d"."w7" (id)"#));
        let sql = table.create(&definition(Expire::Delete));
        assert!(sql.contains("PRIMARY KEY") && !sql.contains("PARTITION"), "{sql}");
        assert_eq!(
            table.create_partition(5, 50, 60),
            r#"CREATE TABLE "d"."w7_p5" PARTITION OF "d"."w7" FOR VALUES FROM (50) TO (60)"#
        );
        assert_eq!(table.drop_partition(5), r#"DROP TABLE "d"."w7_p5""#);
    }

    #[test]
    fn quotes_in_names_are_doubled() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
