use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{FindRequest, Namespace};

use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;
use crate::cursors::{Cursor, Source};
use crate::fail_points::SwitchName;
use crate::reply::{BatchOptions, first_batch};

/// Bytes of a reply with one document, so that its buffer rarely grows.
const BY_ID_BYTES: usize = 512;

pub struct Find;

const SPEC: Spec = Spec {
    names: &["find"],
    doc: "Finds documents.",
    fields: &[
        "collectionUUID",
        "filter",
        "sort",
        "projection",
        "hint",
        "skip",
        "limit",
        "batchSize",
        "singleBatch",
        "max",
        "min",
        "returnKey",
        "noCursorTimeout",
        "allowPartialResults",
        "allowDiskUse",
        "showRecordId",
        "tailable",
        "awaitData",
        "oplogReplay",
        "let",
        "collation",
    ],
    unsupported_fields: &[
        "ntoreturn",
        "snapshot",
        "maxScan",
        "requestResumeToken",
        "resumeAfter",
        "readOnce",
        "term",
        "allowSpeculativeMajorityRead",
    ],
    kind: "query",
    counts_shapes: true,
    in_transactions: InTransactions::Always,
    ..Spec::READ
};

impl Command for Find {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::Find)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let variables = args.variables()?;
        let mut find = FindCommand::parse(&args, variables.as_deref())?;
        let namespace = cx.namespace()?;
        let of_buckets = of_measurements(cx, &namespace, find.request.filter)?;
        if of_buckets.is_some() {
            find.request.filter = of_buckets.as_deref();
        }
        if !cx.server.execution.fail_points.is_on()
            && let Some(reply) = find.by_id(cx, &namespace)?
        {
            return Ok(reply);
        }
        let cursor = find.open(cx, &namespace)?;
        cx.wait_at(
            SwitchName::WaitInFindBeforeMakingBatch,
            &cursor.namespace.clone(),
        )?;
        first_batch(cx, cursor, find.batch)
    }
}

/// A parsed `find` command.
pub struct FindCommand<'a> {
    /// The request to the store.
    pub request: FindRequest<'a>,
    /// Options of the first batch.
    pub batch: BatchOptions,
    /// The cursor has no idle timeout.
    pub no_timeout: bool,
    /// Its getMores wait for documents.
    pub awaits: bool,
}

impl<'a> FindCommand<'a> {
    /// Reads the fields, except those that all commands share. `variables` are the values of
    /// `let`.
    pub fn parse(args: &Arguments<'a>, variables: Option<&'a Doc>) -> Result<FindCommand<'a>> {
        // Accepted and ignored: results of a standalone server are never partial.
        args.bool("allowPartialResults")?;
        let limit = args.u64("limit")?.filter(|limit| *limit > 0);
        let size = args.u64("batchSize")?;
        let single = args.bool("singleBatch")?.unwrap_or(false);
        let tailable = args.bool("tailable")?.unwrap_or(false);
        let awaits = args.bool("awaitData")?.unwrap_or(false);
        // Accepted and ignored: tailable oplog finds always behave this way.
        args.bool("oplogReplay")?;
        check_tailable(args, tailable, awaits, single)?;
        Ok(FindCommand {
            request: FindRequest {
                filter: args.doc_field("filter")?,
                projection: args.doc_field("projection")?,
                sort: args.doc_field("sort")?,
                skip: args.u64("skip")?.unwrap_or(0),
                limit,
                hint: hint(args)?,
                min: args.doc_field("min")?,
                max: args.doc_field("max")?,
                return_key: args.bool("returnKey")?.unwrap_or(false),
                show_record_id: args.bool("showRecordId")?.unwrap_or(false),
                tailable,
                variables,
                allow_disk_use: args.bool("allowDiskUse")?,
                sample: None,
                collation: args.collation()?,
            },
            batch: BatchOptions { size, single },
            no_timeout: args.bool("noCursorTimeout")?.unwrap_or(false),
            awaits,
        })
    }

    /// The reply to a find of one document by its `_id`, if it needs no cursor.
    fn by_id(&self, cx: &Context<'_>, namespace: &Namespace) -> Result<Option<DocBuf>> {
        if self.no_timeout || self.batch.size == Some(0) {
            return Ok(None);
        }
        let mut reply = DocBuf::with_capacity(BY_ID_BYTES);
        let is_done = reply.push_doc("cursor", |cursor| -> Result<bool> {
            let is_done = cursor.push_array("firstBatch", |batch| -> Result<bool> {
                let is_done = cx.store().find_by_id(namespace, &self.request, batch)?;
                cx.count_returned(batch.len());
                Ok(is_done)
            })?;
            if let Some(point_in_time) = &cx.point_in_time {
                cursor.push("atClusterTime", point_in_time.time);
            }
            cursor.push("id", 0i64);
            cursor.push("ns", namespace.as_str());
            Ok(is_done)
        })?;
        Ok(is_done.then_some(reply))
    }

    pub fn open(&self, cx: &Context<'_>, namespace: &Namespace) -> Result<Cursor> {
        if self.no_timeout && cx.store().catalog().is_view(namespace) {
            return Err(Error::new(
                ErrorCode::InvalidPipelineOperator,
                "Option noCursorTimeout not supported in aggregation.",
            ));
        }
        let query = cx.store().find(namespace, &self.request, &cx.limits)?;
        let mut cursor = Cursor::new(namespace.as_str(), Source::Query(Box::new(query)));
        cursor.no_timeout = self.no_timeout;
        cursor.awaits = self.awaits;
        cursor.remaining = self.request.limit;
        Ok(cursor)
    }
}

/// The filter on the measurements of a time series, if `namespace` is the name of its buckets, which tools read.
pub fn of_measurements(
    cx: &Context<'_>,
    namespace: &Namespace,
    filter: Option<&Doc>,
) -> Result<Option<DocBuf>> {
    let Some(filter) = filter.filter(|_| namespace.coll().starts_with("system.buckets.")) else {
        return Ok(None);
    };
    let collection = cx.store().catalog().collection(namespace);
    let series = collection
        .as_ref()
        .and_then(|collection| collection.settings.time_series.as_ref());
    match series {
        Some(series) => Ok(Some(series.filter_of_measurements(filter)?)),
        None => Ok(None),
    }
}

/// Checks the options of a tailable cursor.
fn check_tailable(args: &Arguments<'_>, tailable: bool, awaits: bool, single: bool) -> Result<()> {
    if awaits && !tailable {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "Cannot set 'awaitData' without also setting 'tailable'",
        ));
    }
    if !tailable {
        return Ok(());
    }
    if single {
        return Err(Error::bad_value(
            "cannot use tailable option with the 'singleBatch' option",
        ));
    }
    let sort = args.doc_field("sort")?.filter(|sort| !sort.is_empty());
    let is_natural = |sort: &Doc| {
        let direction = sort
            .get("$natural")
            .and_then(|direction| direction.as_f64());
        sort.count() == 1 && direction == Some(1.0)
    };
    if sort.is_some_and(|sort| !is_natural(sort)) {
        return Err(Error::bad_value(
            "cannot use tailable option with a sort other than {$natural: 1}",
        ));
    }
    Ok(())
}

/// Reads a `hint`: the name or the key of an index, or `{$natural: 1}`.
pub fn hint<'a>(args: &Arguments<'a>) -> Result<Option<Value<'a>>> {
    match args.get("hint") {
        None | Some(Value::String("")) => Ok(None),
        Some(value @ Value::String(_)) => Ok(Some(value)),
        Some(value @ Value::Document(key)) => Ok((!key.is_empty()).then_some(value)),
        Some(_) => Err(Error::new(
            ErrorCode::FailedToParse,
            "Hint must be a string or an object",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::testing::TestServer;

    fn numbers(documents: &[DocBuf]) -> Vec<i64> {
        documents
            .iter()
            .map(|document| document.get_i64("_id").unwrap())
            .collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn buckets_are_found_by_the_metadata_of_their_measurements() {
        let mut server = TestServer::new();
        let series = doc! {"timeField": "t", "metaField": "m"};
        server.run("test", doc! {"create": "s", "timeseries": &series});
        let documents: Vec<DocBuf> = (0..4)
            .map(|id| doc! {"_id": id, "t": frond_bson::Value::DateTime(5), "m": {"x": id % 2}})
            .collect();
        let documents: Vec<&DocBuf> = documents.iter().collect();
        let mut insert = doc! {"insert": "s"};
        insert.push_array("documents", |array| {
            documents.iter().for_each(|document| array.push(*document));
        });
        server.run("test", insert);
        for (filter, expected) in [
            (doc! {}, 4),
            (doc! {"meta.x": 1}, 2),
            (doc! {"meta": {"x": 0}}, 2),
            (doc! {"$or": [{"meta.x": 1}, {"_id": 0}]}, 3),
            (doc! {"meta.y": 1}, 0),
        ] {
            let find = doc! {"find": "system.buckets.s", "filter": &filter};
            let reply = server.run("test", find);
            let batch = reply.get_doc("cursor").unwrap().get_array("firstBatch");
            assert_eq!(batch.unwrap().count(), expected, "{filter:?}");
            let count = doc! {"count": "system.buckets.s", "query": &filter};
            let counted = server.run("test", count).get_i64("n").unwrap();
            assert_eq!(counted, expected as i64, "{filter:?}");
        }
        for command in [
            doc! {"find": "system.buckets.s", "filter": {"control.count": 1}},
            doc! {"count": "system.buckets.s", "query": {"data.v": 1}},
        ] {
            assert_eq!(server.code("test", command), 238);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn documents_are_found() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let cases: &[(DocBuf, &[i64])] = &[
            (doc! {"find": "c", "filter": {"_id": {"$gte": 8}}}, &[8, 9]),
            (doc! {"find": "c", "sort": {"_id": -1}, "limit": 2}, &[9, 8]),
            (doc! {"find": "c", "sort": {"_id": 1}, "skip": 8}, &[8, 9]),
            (
                doc! {"find": "c", "filter": {"_id": 3}, "hint": "_id_"},
                &[3],
            ),
            (
                doc! {"find": "c", "filter": {"_id": 3}, "hint": {"_id": 1}},
                &[3],
            ),
            (
                doc! {"find": "c", "hint": {"$natural": -1}, "limit": 1},
                &[9],
            ),
            (
                doc! {"find": "c", "filter": {}, "limit": 1, "singleBatch": true, "tailable": false},
                &[0],
            ),
            (doc! {"find": "none"}, &[]),
        ];
        for (command, expected) in cases {
            let reply = server.run("test", command.clone());
            assert_eq!(
                numbers(&server.batch(&reply, "firstBatch")),
                *expected,
                "{command:?}"
            );
            assert_eq!(reply.get_doc("cursor").unwrap().get_i64("id"), Some(0));
        }
        let reply = server.run(
            "test",
            doc! {"find": "c", "filter": {"_id": 1}, "projection": {"a": 1, "_id": 0}},
        );
        assert_eq!(server.batch(&reply, "firstBatch"), [doc! {"a": 10}]);
    }

    /// One `_id` is looked up without a plan. With a hint, and with a second condition, the same find is planned.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_find_by_id_answers_as_any_other_find() {
        let mut server = TestServer::new();
        let many: String = "x".repeat(300_000);
        let wide: DocBuf = {
            let mut wide = doc! {"_id": "wide"};
            (0..3000).for_each(|n| wide.push(&format!("f{n}"), n));
            wide
        };
        let documents = doc! {"documents": [
            {"_id": 1, "a": {"b": 2}, "c": [1, 2], "d": "x"}, {"_id": "One", "a": 1}, {"_id": "large", "a": &many}, &wide,
            {"_id": true, "a": 2}, {"_id": 5i64, "a": 3},
        ]};
        let strength = doc! {"locale": "en", "strength": 2};
        for create in [
            doc! {"create": "plain"},
            doc! {"create": "collated", "collation": &strength},
            doc! {"create": "capped", "capped": true, "size": 1 << 20},
        ] {
            server.run("test", create.clone());
            let mut insert = doc! {"insert": create.get_str("create").unwrap()};
            insert.push_all(&documents);
            server.run("test", insert);
        }
        server.run(
            "test",
            doc! {"create": "view", "viewOn": "plain", "pipeline": [{"$addFields": {"v": 1}}]},
        );
        let ids = [
            doc! {"_id": 1},
            doc! {"_id": 1.0},
            doc! {"_id": 5},
            doc! {"_id": "one"},
            doc! {"_id": "One"},
            doc! {"_id": "large"},
            doc! {"_id": "wide"},
            doc! {"_id": true},
            doc! {"_id": 77},
            doc! {"_id": null},
            doc! {"_id": {"$in": [1]}},
        ];
        let shapes = [
            doc! {},
            doc! {"a": 1},
            doc! {"a": 1, "_id": 0},
            doc! {"_id": 0, "f7": true},
            doc! {"a": 0},
            doc! {"a.b": 1},
            doc! {"c": {"$slice": 1}},
            doc! {"n": {"$literal": 1}},
        ];
        for collection in ["plain", "collated", "capped", "view", "none"] {
            for (id, shape) in ids
                .iter()
                .flat_map(|id| shapes.iter().map(move |s| (id, s)))
            {
                let mut find = doc! {"find": collection, "projection": shape, "limit": 1};
                let mut planned = find.clone();
                find.push("filter", id);
                let mut both = id.clone();
                both.push("none", &doc! {"$exists": false});
                planned.push("filter", &both);
                // Some projections are none of a view.
                let reply = server.reply("test", find.clone());
                assert_eq!(reply, server.reply("test", planned), "{find:?}");
            }
        }
        // Options of the command still count.
        let find = doc! {"find": "plain", "filter": {"_id": 1}, "batchSize": 0};
        let reply = server.run("test", find);
        assert!(server.batch(&reply, "firstBatch").is_empty());
        assert_ne!(reply.get_doc("cursor").unwrap().get_i64("id"), Some(0));
        let find = doc! {"find": "plain", "filter": {"_id": "one"}, "collation": &strength};
        let reply = server.run("test", find);
        assert_eq!(server.batch(&reply, "firstBatch").len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_first_batch_has_101_documents() {
        let mut server = TestServer::new();
        server.fill("c", 150);
        let reply = server.run("test", doc! {"find": "c"});
        assert_eq!(server.batch(&reply, "firstBatch").len(), 101);
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        assert!(id > 0);
        let reply = server.run("test", doc! {"getMore": id, "collection": "c"});
        assert_eq!(server.batch(&reply, "nextBatch").len(), 49);
        assert_eq!(reply.get_doc("cursor").unwrap().get_i64("id"), Some(0));

        let reply = server.run(
            "test",
            doc! {"find": "c", "batchSize": 0, "noCursorTimeout": true},
        );
        assert!(server.batch(&reply, "firstBatch").is_empty());
        let reply = server.run(
            "test",
            doc! {"find": "c", "singleBatch": true, "batchSize": 5},
        );
        assert_eq!(reply.get_doc("cursor").unwrap().get_i64("id"), Some(0));
        let reply = server.run("test", doc! {"find": "c", "limit": 101});
        assert_eq!(reply.get_doc("cursor").unwrap().get_i64("id"), Some(0));
        let open = server.server.clients.cursors.list();
        assert_eq!((open.len(), open[0].no_timeout), (1, true));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn keys_of_indexes_are_returned() {
        let mut server = TestServer::new();
        let documents = doc! {"documents": [
            {"_id": 1, "a": 1, "b": {"c": "x"}, "d": 9}, {"_id": 2, "a": [5, 7]}, {"_id": 3, "a": 3, "b": {"c": 0}},
        ]};
        let mut insert = doc! {"insert": "c"};
        insert.push_all(&documents);
        server.run("test", insert);
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1, "b.c": -1}, "name": "x"}]},
        );
        let cases: Vec<(DocBuf, Vec<DocBuf>)> = vec![
            (
                doc! {"filter": {"a": {"$lt": 6}}, "projection": {"d": 1}},
                vec![
                    doc! {"a": 1, "b.c": "x"},
                    doc! {"a": 3, "b.c": 0},
                    doc! {"a": 5, "b.c": null},
                ],
            ),
            (
                doc! {"filter": {"a": {"$lt": 6}}, "sort": {"d": -1}, "limit": 1},
                vec![doc! {"a": 1, "b.c": "x"}],
            ),
            (doc! {"filter": {"_id": 2}}, vec![doc! {"_id": 2}]),
            (
                doc! {"filter": {"_id": {"$gt": 1}, "d": null}},
                vec![doc! {"_id": 2}, doc! {"_id": 3}],
            ),
            (
                doc! {"filter": {"_id": {"$in": [3, 1]}}, "sort": {"_id": 1}},
                vec![doc! {"_id": 1}, doc! {"_id": 3}],
            ),
            (doc! {"filter": {"d": 9}}, vec![doc! {}]),
        ];
        for (query, expected) in cases {
            let mut command = doc! {"find": "c", "returnKey": true};
            command.push_all(&query);
            let reply = server.run("test", command.clone());
            assert_eq!(server.batch(&reply, "firstBatch"), expected, "{query:?}");
            let reply = server.run("test", doc! {"explain": &command});
            let plan = reply.get_doc("queryPlanner").unwrap();
            let stage = plan.get_doc("winningPlan").unwrap().get_str("stage");
            assert_eq!(stage, Some("RETURN_KEY"));
        }
        let command = doc! {"find": "c", "showRecordId": true, "limit": 1};
        let reply = server.run("test", command);
        let shown = server.batch(&reply, "firstBatch").remove(0);
        assert!(shown.get_i64("$recordId").is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_arguments_are_named() {
        let mut server = TestServer::new();
        let cases = [
            (
                doc! {"find": "c", "foo": 1},
                40415,
                "BSON field 'find.foo' is an unknown field.",
            ),
            (
                doc! {"find": "c", "limit": -1},
                51024,
                "BSON field 'limit' value must be >= 0, actual value '-1'",
            ),
            (
                doc! {"find": "c", "filter": 1},
                14,
                "BSON field 'find.filter' is the wrong type 'int', expected type 'object'",
            ),
            (
                doc! {"find": "c", "awaitData": true},
                9,
                "Cannot set 'awaitData' without also setting 'tailable'",
            ),
            (
                doc! {"find": "c", "tailable": true, "sort": {"$natural": 1, "a": 1}},
                2,
                "cannot use tailable option with a sort other than {$natural: 1}",
            ),
            (
                doc! {"find": "c", "tailable": true, "sort": {"$natural": -1}},
                2,
                "cannot use tailable option with a sort other than {$natural: 1}",
            ),
            (
                doc! {"find": "c", "hint": 1},
                9,
                "Hint must be a string or an object",
            ),
            (doc! {"find": 1}, 73, "collection name has invalid type int"),
            (
                doc! {"find": "c", "filter": {"a": {"$nonsense": 1}}},
                2,
                "unknown operator: $nonsense",
            ),
        ];
        for (command, code, message) in cases {
            let reply = server.reply("test", command);
            assert_eq!(
                (reply.get_i32("code"), reply.get_str("errmsg")),
                (Some(code), Some(message))
            );
        }
    }
}
