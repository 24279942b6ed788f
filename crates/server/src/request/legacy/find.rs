//! OP_QUERY on a collection.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, Result};
use frond_store::OpContext;
use frond_wire::Query;

use super::super::gate::{current_caller, require};
use super::{Failure, Legacy, batch_of};
use crate::authorization::{Action, Needs, Place};
use crate::cursors::Cursor;
use crate::operation::Permits;
use crate::reply::BatchOptions;
use crate::reply_quota::ReplyQuota;
use frond_runtime::{AdmissionClass, Work};

/// Modifiers of the wrapper `{$query: …, $orderby: …}` and the fields of `find` that they become.
const MODIFIERS: &[(&str, &str)] = &[
    ("$orderby", "sort"),
    ("orderby", "sort"),
    ("$hint", "hint"),
    ("$maxTimeMS", "maxTimeMS"),
    ("$min", "min"),
    ("$max", "max"),
    ("$returnKey", "returnKey"),
    ("$showDiskLoc", "showRecordId"),
    ("$maxScan", "maxScan"),
    ("$comment", "comment"),
    ("$readPreference", "$readPreference"),
];

impl Legacy<'_, '_> {
    pub(super) async fn find(
        &mut self,
        db: &str,
        collection: &str,
        query: &Query<'_>,
        body: &Doc,
    ) -> Result<Vec<u8>, Failure> {
        let (command, explain) = find_command(collection, query, body)?;
        if explain {
            let explain = doc! {"explain": &command, "verbosity": "allPlansExecution"};
            let reply = self.run_doc(db, &explain).await?;
            if reply.get_f64("ok") != Some(1.0) {
                return Err(super::failure_of(&reply).into());
            }
            return Ok(self.op_reply(0, 0, 0, &[reply]));
        }
        let reply = self.run_doc(db, &command).await?;
        let (batch, id) = batch_of(&reply, "firstBatch")?;
        Ok(self.op_reply(0, id, 0, &batch))
    }

    /// A query on one of the collections that describe the catalog.
    pub(super) async fn find_virtual(
        &mut self,
        db: &str,
        collection: &str,
        query: &Query<'_>,
        body: &Doc,
    ) -> Result<Vec<u8>, Failure> {
        let (filter, _) = unwrap(body)?;
        let server = self.client.server;
        let caller = current_caller(self.client)?;
        let needs = Needs::on(
            Place::database(db),
            [Action::ListCollections, Action::ListIndexes],
        );
        require(
            self.client,
            &caller,
            &needs,
            db,
            &doc! {"find": collection, "filter": filter},
        )?;
        let _ticket = server
            .execution
            .executor
            .ticket(AdmissionClass::Read, &None)
            .await;
        let all = server.execution.executor.run(Work::Short, || {
            super::virtual_collections::documents(server, db, collection, filter)
        })?;
        let skip = usize::try_from(query.skip).unwrap_or(0);
        let documents: Vec<DocBuf> = all.into_iter().skip(skip).collect();
        let mut cursor = Cursor::fixed(query.namespace, documents);
        let (options, limit) = batch_options(query.count);
        cursor.remaining = limit;
        cursor.owner = caller.owner_of(Some(needs));
        let limits = OpContext::new();
        let mut permits = Permits::default();
        let room = ReplyQuota::new(server, &limits, &mut permits);
        let batch = cursor.batch(options.size, &mut room.last())?;
        self.handled.permit = permits.reply;
        let id = if options.single || cursor.ended() {
            0
        } else {
            server.metrics.cursors_opened.add(1);
            server.clients.cursors.insert(cursor)
        };
        let documents: Vec<&Doc> = (batch.as_doc().values())
            .filter_map(|value| value.as_doc())
            .collect();
        Ok(self.op_reply(0, id, 0, &documents))
    }
}

/// The meaning of the number to return: 0 is the default of the server; 1 and negative numbers ask for a single batch.
fn batch_options(count: i32) -> (BatchOptions, Option<u64>) {
    match count {
        0 => (BatchOptions::default(), None),
        1 => (
            BatchOptions {
                size: None,
                single: true,
            },
            Some(1),
        ),
        n if n < 0 => {
            let n = u64::from(n.unsigned_abs());
            (
                BatchOptions {
                    size: Some(n),
                    single: true,
                },
                Some(n),
            )
        }
        n => (
            BatchOptions {
                size: Some(u64::from(n.unsigned_abs())),
                single: false,
            },
            None,
        ),
    }
}

/// The filter, and the whole wrapper if there is one.
fn unwrap(body: &Doc) -> Result<(&Doc, Option<&Doc>)> {
    let wrapped =
        body.contains_key("$query") || matches!(body.first(), Some(("query", Value::Document(_))));
    if !wrapped {
        return Ok((body, None));
    }
    match body.get("$query").or_else(|| body.get("query")) {
        Some(Value::Document(filter)) => Ok((filter, Some(body))),
        _ => Err(Error::bad_value("$query must be an object")),
    }
}

/// The `find` command that does what an OP_QUERY asks for, and whether it is to be explained.
fn find_command(collection: &str, query: &Query<'_>, body: &Doc) -> Result<(DocBuf, bool)> {
    let (filter, wrapper) = unwrap(body)?;
    if query.flags & Query::EXHAUST != 0 {
        return Err(Error::not_supported("the exhaust flag of OP_QUERY"));
    }
    let mut command = doc! {"find": collection, "filter": filter};
    if let Some(fields) = query.projection {
        command.push("projection", Doc::validate(fields)?);
    }
    if query.skip != 0 {
        command.push("skip", query.skip);
    }
    let (options, limit) = batch_options(query.count);
    if let Some(limit) = limit {
        command.push("limit", i64::try_from(limit).unwrap_or(i64::MAX));
    } else if let Some(size) = options.size {
        command.push("batchSize", i64::try_from(size).unwrap_or(i64::MAX));
    }
    if options.single {
        command.push("singleBatch", true);
        // Everything in one batch, as far as it fits.
        if let Some(limit) = limit {
            command.push("batchSize", i64::try_from(limit).unwrap_or(i64::MAX));
        }
    }
    for (flag, name) in [
        (Query::TAILABLE, "tailable"),
        (Query::AWAIT_DATA, "awaitData"),
        (Query::NO_CURSOR_TIMEOUT, "noCursorTimeout"),
        (Query::PARTIAL, "allowPartialResults"),
    ] {
        if query.flags & flag != 0 {
            command.push(name, true);
        }
    }
    let mut explain = false;
    for (name, value) in wrapper.into_iter().flat_map(Doc::iter) {
        match name {
            // Every find reads a snapshot.
            "$query" | "query" | "$snapshot" => {}
            "$explain" | "explain" => explain = value.truthy(),
            _ => match MODIFIERS.iter().find(|(modifier, _)| *modifier == name) {
                Some((_, field)) => command.push(field, value),
                None => {
                    return Err(Error::bad_value(format!("unknown query modifier: {name}")));
                }
            },
        }
    }
    Ok((command, explain))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn command(count: i32, body: &Doc) -> DocBuf {
        let query = Query {
            flags: Query::SECONDARY_OK,
            namespace: "db.c",
            skip: 2,
            count,
            query: body.as_bytes(),
            projection: None,
        };
        find_command("c", &query, body).unwrap().0
    }

    #[test]
    fn numbers_to_return() {
        let body = doc! {"a": 1};
        let start = || doc! {"find": "c", "filter": {"a": 1}, "skip": 2};
        let cases: [(i32, DocBuf); 4] = [
            (0, doc! {}),
            (5, doc! {"batchSize": 5i64}),
            (
                -5,
                doc! {"limit": 5i64, "singleBatch": true, "batchSize": 5i64},
            ),
            (
                1,
                doc! {"limit": 1i64, "singleBatch": true, "batchSize": 1i64},
            ),
        ];
        for (count, rest) in cases {
            let mut expected = start();
            expected.push_all(&rest);
            assert_eq!(command(count, &body), expected, "{count}");
        }
        assert_eq!(batch_options(i32::MIN).1, Some(1 << 31));
    }

    #[test]
    fn wrappers() {
        let body = doc! {"$query": {"a": 1}, "$orderby": {"b": -1}, "$hint": "x", "$maxTimeMS": 5};
        let expected = doc! {
            "find": "c", "filter": {"a": 1}, "skip": 2, "sort": {"b": -1}, "hint": "x",
            "maxTimeMS": 5,
        };
        assert_eq!(command(0, &body), expected);
        // A field called "query" that is not a document is just a field.
        assert_eq!(unwrap(&doc! {"query": 1}).unwrap().1, None);
        assert!(unwrap(&doc! {"$query": 1}).is_err());
        let unknown = doc! {"$query": {}, "$nonsense": 1};
        let query = Query {
            flags: 0,
            namespace: "db.c",
            skip: 0,
            count: 0,
            query: unknown.as_bytes(),
            projection: None,
        };
        assert!(find_command("c", &query, &unknown).is_err());
    }
}
