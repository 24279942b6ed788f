//! Updates of documents with very many keys: one prepared statement, which finds the document by its
//! index and puts seven values into it by `jsonb_set`.
//!
//! Of the ways that were tried (`||` with a patch, a function in PL/pgSQL, common table expressions that
//! unpack the document once) this is the fastest on PostgreSQL 15: the others sort all keys again.

use std::time::{Duration, Instant};

use frond_bench::system::{KeyUpdates, WriteConcern};
use frond_bench::{Collection, Error, ManykeysDocuments, ManykeysUpdate, Result, Schema};
use frond_bson::{DocBuf, ObjectId, Value};
use tokio_postgres::Statement;

use super::{Connection, opened};
use crate::client::Param;
use crate::json;
use crate::table::{Kind, Table, expression, kind_of};

/// Updates that may be unanswered when the client does not wait for answers.
const UNANSWERED_MAX: usize = 64;

/// What the index is on, and the types of what is compared.
const SEARCH: [&str; 5] = ["appver", "deploytype", "g", "guid", "timeslice"];

/// Where the keys are.
const KEYS_AT: &str = "stats.eventnames.";

/// The updates of a round, ready to send.
#[derive(Default)]
pub struct EncodedUpdates {
    statement: Option<Statement>,
    acknowledged: bool,
    values: Vec<Vec<Param<'static>>>,
}

impl KeyUpdates for Connection {
    fn encode(
        &mut self,
        collection: &Collection,
        concern: WriteConcern,
        documents: &ManykeysDocuments,
        updates: &mut dyn Iterator<Item = &ManykeysUpdate>,
    ) -> Result<()> {
        self.set_journal(concern)?;
        let mut encoded = EncodedUpdates {
            acknowledged: concern.acknowledged,
            ..EncodedUpdates::default()
        };
        for update in updates {
            if encoded.statement.is_none() {
                let depth = match documents.schema {
                    Schema::Plain => 1,
                    Schema::Bucketed => 2,
                };
                let sql = sql(&Table::of(collection).full(), update.keys.len(), depth);
                encoded.statement = Some(self.client()?.prepare(&sql)?);
            }
            encoded.values.push(values(documents, update)?);
        }
        self.encoded = encoded;
        Ok(())
    }

    fn execute(&mut self, done: &mut dyn FnMut(Duration) -> bool) -> Result<()> {
        let client = opened(&mut self.own, &self.uri, &self.stop)?;
        let Some(statement) = &self.encoded.statement else {
            return client.drain();
        };
        for values in self.encoded.values.drain(..) {
            let start = Instant::now();
            if self.encoded.acknowledged {
                if client.execute(statement, "UPDATE", &values, |_| Ok(()))? != 1 {
                    return Err(Error::Wrong("an update found no document".to_owned()));
                }
            } else {
                client.send(statement, "UPDATE", values);
                if client.pending() >= UNANSWERED_MAX {
                    client.finish()?;
                }
            }
            if !done(start.elapsed()) {
                break;
            }
        }
        client.drain()
    }

    fn find_by_id(
        &mut self,
        collection: &Collection,
        id: [u8; 12],
        field: Option<&str>,
    ) -> Result<(Option<DocBuf>, Duration)> {
        let table = Table::of(collection).full();
        let path = field.unwrap_or_default().split('.').collect::<Vec<_>>();
        let value = match field {
            None => "doc".to_owned(),
            Some(_) => format!("doc #> ARRAY[{}]", parameters(2, path.len())),
        };
        let sql = format!("SELECT ({value})::text FROM {table} WHERE id = $1::bytea");
        let mut values = vec![Param::Bytes(id.as_slice().into())];
        if field.is_some() {
            values.extend(path.iter().map(|name| Param::text(name)));
        }
        let mut found = None;
        let client = self.client()?;
        let statement = client.prepare(&sql)?;
        let start = Instant::now();
        client.execute(&statement, "SELECT by id", &values, |row| {
            found = row.text().map(str::to_owned);
            Ok(())
        })?;
        let elapsed = start.elapsed();
        let id = Value::ObjectId(ObjectId(id));
        let found = found.map(|mut text| {
            if field.is_some() {
                for name in path.iter().rev() {
                    text = format!("{{{}:{text}}}", serde_json::Value::from(*name));
                }
            }
            json::to_doc(&id, &text)
        });
        Ok((found.transpose()?, elapsed))
    }

    fn keeps_order_and_types(&self) -> bool {
        // jsonb sorts fields, and has numbers of one type only.
        false
    }
}

/// `$from::text, …`, so many of them.
fn parameters(from: usize, count: usize) -> String {
    let parameters = (from..from + count).map(|n| format!("${n}::text"));
    parameters.collect::<Vec<_>>().join(", ")
}

/// The statement. Its parameters are the fields of [`SEARCH`], the new text, and for each key its path
/// below `stats.eventnames`, which has `depth` names.
fn sql(table: &str, keys: usize, depth: usize) -> String {
    let mut doc = "jsonb_set(doc, '{random}', to_jsonb($6::text))".to_owned();
    for key in 0..keys {
        let path = format!(
            "ARRAY['stats','eventnames', {}]",
            parameters(7 + key * depth, depth)
        );
        doc = format!("jsonb_set({doc}, {path}, to_jsonb((doc #>> {path})::int8 + 1))");
    }
    let events = "to_jsonb((doc #>> '{stats,events}')::int8";
    doc = format!("jsonb_set({doc}, '{{stats,events}}', {events} + {keys}))");
    let conditions = SEARCH.iter().zip(1..).map(|(field, n)| {
        let cast = match kind_of(field) {
            Kind::Text => "text",
            Kind::Int => "int4",
            Kind::Bigint => "int8",
            Kind::Jsonb => "jsonb",
        };
        format!("{} = ${n}::{cast}", expression(field))
    });
    let conditions = conditions.collect::<Vec<_>>().join(" AND ");
    format!("UPDATE {table} SET doc = {doc} WHERE {conditions}")
}

fn values(documents: &ManykeysDocuments, update: &ManykeysUpdate) -> Result<Vec<Param<'static>>> {
    let filter = update.filter(documents);
    let text = update.text(documents.seed);
    let mut values = Vec::new();
    for field in SEARCH {
        values.push(match filter.get(field) {
            Some(Value::Int64(number)) => Param::Int8(number),
            Some(Value::String(text)) => Param::text(text).into_owned(),
            Some(value) => {
                let mut text = Vec::new();
                json::append_value(&value, &mut text)?;
                Param::Jsonb(text.into())
            }
            None => return Err(Error::Settings(format!("an update has no {field}"))),
        });
    }
    values.push(Param::text(&text).into_owned());
    for key in update.keys {
        let path = documents.paths.get(key as usize);
        let path = path.and_then(|path| path.strip_prefix(KEYS_AT));
        let names = path.unwrap_or_default().split('.');
        values.extend(names.map(|name| Param::text(name).into_owned()));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_sets_every_value_once() {
        let sql = sql("t", 2, 2);
        assert_eq!(sql.matches("jsonb_set(").count(), 4);
        assert!(
            sql.contains(
                "ARRAY['stats','eventnames', $9::text, $10::text], to_jsonb((doc #>> \
                 ARRAY['stats','eventnames', $9::text, $10::text])::int8 + 1)"
            ),
            "{sql}"
        );
        assert!(sql.contains("'{stats,events}', to_jsonb((doc #>> '{stats,events}')::int8 + 2)"));
        assert!(
            sql.ends_with(
                "WHERE ((doc->>'appver')::int8) = $1::int8 AND (doc->>'deploytype') = $2::text \
                 AND ((doc->>'g')::int8) = $3::int8 AND (doc->>'guid') = $4::text \
                 AND (doc->'timeslice') = $5::jsonb"
            ),
            "{sql}"
        );
    }
}
