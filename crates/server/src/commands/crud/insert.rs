use frond_bson::{Doc, DocBuf};
use frond_error::{Error, Result};
use frond_store::{Durability, InsertOptions, InsertOutcome, InsertRecording, Namespace};

use super::buckets;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::commands::support::write::{self, Batch, WriteOptions};
use crate::context::Context;
use crate::observability::metrics::Op;
use crate::reply::{WriteErrors, push_count};
use crate::sessions::{Recorded, RetryableWrite};

pub struct Insert;

const SPEC: Spec = Spec {
    names: &["insert"],
    doc: "Inserts documents.",
    fields: &[
        "collectionUUID",
        "documents",
        "ordered",
        "bypassDocumentValidation",
        "bypassEmptyTsReplacement",
        "stmtId",
        "stmtIds",
    ],
    unsupported_fields: &["encryptionInformation", "isTimeseriesNamespace"],
    op: Op::Insert,
    kind: "insert",
    retryable: true,
    in_transactions: InTransactions::Always,
    ..Spec::WRITE
};

impl Command for Insert {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, request.writing(Action::Insert))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let options = WriteOptions::parse(cx)?;
        let options = InsertOptions {
            ordered: options.ordered,
            durability: Durability::Logged,
            bypass_validation: options.bypass_validation,
            keep_empty_timestamps: options.keep_empty_timestamps,
        };
        let batch = Batch::parse(cx, "documents")?;
        let documents = &batch.statements;
        let mut retry = cx.retryable_write()?;
        let ids: Vec<i32> = (0..documents.len()).map(|at| batch.ids.id(at)).collect();
        let (n, errors) = insert_once(cx, &namespace, documents, options, retry.as_mut(), &ids)?;
        let n = n as u64;
        cx.server.metrics.documents_inserted.add(n);
        cx.state.last_error.inserted(n);
        write::reply(cx, &errors, |reply| push_count(reply, "n", n))
    }
}

/// Inserts what no earlier try of the same retryable write inserted. `ids` are the numbers of the
/// statements. Returns how many are stored now, and which failed.
pub fn insert_once(
    cx: &Context<'_>,
    namespace: &Namespace,
    documents: &[&Doc],
    options: InsertOptions,
    retry: Option<&mut RetryableWrite>,
    ids: &[i32],
) -> Result<(usize, WriteErrors)> {
    let Some(retry) = retry else {
        return insert(cx, namespace, documents, options, None);
    };
    let id = |at: usize| ids.get(at).copied().unwrap_or(-1);
    let (todo, places): (Vec<&Doc>, Vec<usize>) = documents
        .iter()
        .enumerate()
        .filter(|(at, _)| retry.executed(id(*at)).is_none())
        .map(|(at, document)| (*document, at))
        .unzip();
    let before = documents.len() - todo.len();
    let numbers: Vec<i32> = places.iter().map(|place| id(*place)).collect();
    let (n, errors) = if todo.is_empty() {
        (0, WriteErrors::default())
    } else {
        let result = Recorded::Insert.to_doc();
        let recording = InsertRecording {
            of: retry.statement(0),
            numbers: &numbers,
            result: &result,
        };
        insert(cx, namespace, &todo, options, Some(recording))?
    };
    // In an ordered insert nothing after the first error was tried.
    let tried = if options.ordered {
        n + usize::from(!errors.is_empty())
    } else {
        todo.len()
    };
    for (at, place) in places.iter().enumerate().take(tried) {
        if !errors.failed(at) {
            retry.record(id(*place), Recorded::Insert, true);
        }
    }
    Ok((before + n, errors.at(&places)))
}

/// Evaluates the fail point of retryable writes as MongoDB does: once for each group of documents that it inserts together.
fn check_fail_point(cx: &Context<'_>, documents: &[&Doc]) -> Result<()> {
    const GROUP_BYTES: usize = 256 << 10;
    if !cx.server.execution.fail_points.is_on() {
        return Ok(());
    }
    let mut bytes = 0;
    for (at, document) in documents.iter().enumerate() {
        bytes += document.len_bytes();
        if bytes >= GROUP_BYTES || at + 1 == documents.len() {
            bytes = 0;
            cx.check_fail_point_of_write()?;
        }
    }
    Ok(())
}

/// Inserts documents. Returns how many were stored, and which failed.
pub fn insert(
    cx: &Context<'_>,
    namespace: &Namespace,
    documents: &[&Doc],
    options: InsertOptions,
    recording: Option<InsertRecording<'_>>,
) -> Result<(usize, WriteErrors)> {
    let Some(unpacked) = buckets::unpack(cx, namespace, documents, options.ordered)? else {
        let outcome = store(cx, namespace, documents, options, recording)?;
        let mut errors = WriteErrors::default();
        for error in outcome.errors {
            errors.push(error.index, Error::from(error.error));
        }
        return Ok((outcome.inserted, errors));
    };
    let measurements: Vec<&Doc> = unpacked.documents.iter().map(|one| &**one).collect();
    let numbers: Vec<i32>;
    let recording = match recording {
        Some(of_buckets) => {
            numbers = unpacked.numbers(of_buckets.numbers);
            Some(InsertRecording {
                numbers: &numbers,
                ..of_buckets
            })
        }
        None => None,
    };
    let errors = if measurements.is_empty() {
        Vec::new()
    } else {
        let outcome = store(cx, namespace, &measurements, options, recording)?;
        let errors = outcome.errors.into_iter();
        errors
            .map(|error| (error.index, Error::from(error.error)))
            .collect()
    };
    Ok(unpacked.outcome(errors, options.ordered))
}

/// Stores documents, and counts those that were tried.
fn store(
    cx: &Context<'_>,
    namespace: &Namespace,
    documents: &[&Doc],
    options: InsertOptions,
    recording: Option<InsertRecording<'_>>,
) -> Result<InsertOutcome> {
    let store = cx.store();
    let outcome = match recording {
        None => store.insert(namespace, documents, options)?,
        Some(recording) => {
            check_fail_point(cx, documents)?;
            store.insert_recorded(namespace, documents, options, recording)?
        }
    };
    // In an ordered insert nothing after the first error is tried.
    let tried = if options.ordered {
        outcome.inserted + outcome.errors.len()
    } else {
        documents.len()
    };
    cx.server.metrics.count(Op::Insert, tried as u64);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, Timestamp, Value, doc};

    use crate::sessions::SessionId;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bulk_names_the_documents_that_failed() {
        let mut server = TestServer::new();
        let documents = || doc! {"documents": [{"_id": 1}, {"_id": 1}, {"_id": 2}, {"_id": 2}]};
        let mut ordered = doc! {"insert": "a"};
        ordered.push_all(&documents());
        let reply = server.run("test", ordered);
        assert_eq!(reply.get_i32("n"), Some(1));
        let errors = reply.get_array("writeErrors").unwrap();
        assert_eq!(errors.count(), 1);
        let error = errors.get_doc("0").unwrap();
        assert_eq!(
            (error.get_i32("index"), error.get_i32("code")),
            (Some(1), Some(11000))
        );
        assert_eq!(error.get_doc("keyPattern"), Some(&*doc! {"_id": 1}));
        assert_eq!(error.get_doc("keyValue"), Some(&*doc! {"_id": 1}));
        assert!(
            error
                .get_str("errmsg")
                .unwrap()
                .starts_with("E11000 duplicate key error collection: test.a")
        );

        let mut unordered = doc! {"insert": "b", "ordered": false};
        unordered.push_all(&documents());
        let reply = server.run("test", unordered);
        assert_eq!(reply.get_i32("n"), Some(2));
        let places: Vec<_> = reply
            .get_array("writeErrors")
            .unwrap()
            .values()
            .map(|error| error.as_doc().unwrap().get_i32("index").unwrap())
            .collect();
        assert_eq!(places, [1, 3]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_missing_id_is_made() {
        let mut server = TestServer::new();
        server.run("test", doc! {"insert": "c", "documents": [{"a": 1}]});
        let reply = server.run("test", doc! {"find": "c"});
        let document = server.batch(&reply, "firstBatch").remove(0);
        assert!(document.first().unwrap().0 == "_id" && document.get_object_id("_id").is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_inserts_are_refused() {
        let mut server = TestServer::new();
        let large = "x".repeat(16 << 20);
        let cases = [
            (doc! {"insert": "c"}, 40414),
            (doc! {"insert": "c", "documents": []}, 16),
            (doc! {"insert": "c", "documents": [1]}, 14),
            (doc! {"insert": "c", "documents": [{}], "foo": 1}, 40415),
            (doc! {"insert": "", "documents": [{}]}, 73),
            (
                doc! {"insert": "c", "documents": [{}], "txnNumber": 1i64},
                72,
            ),
            (
                doc! {"insert": "c", "documents": [{}], "startTransaction": true},
                72,
            ),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
        let reply = server.run(
            "test",
            doc! {"insert": "c", "documents": [{"x": &large}, {"_id": 1}]},
        );
        assert_eq!(reply.get_i32("n"), Some(0));
        assert!(reply.get_array("writeErrors").is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_retry_does_not_insert_again() {
        let mut server = TestServer::new();
        let lsid = SessionId::random().to_doc();
        let command = |number: i64, documents: &DocBuf| {
            let mut command = doc! {"insert": "c", "lsid": &lsid, "txnNumber": number};
            command.push_all(documents);
            command
        };
        let two = doc! {"documents": [{"a": 1}, {"a": 2}]};
        for _ in 0..3 {
            let reply = server.run("test", command(1, &two));
            assert_eq!(
                (reply.get_i32("n"), reply.get("writeErrors").is_none()),
                (Some(2), true)
            );
        }
        assert_eq!(
            server.run("test", doc! {"count": "c"}).get_i32("n"),
            Some(2)
        );

        // The first try failed half-way; its first document is not inserted twice, and the other
        // one is tried again.
        server.run("test", doc! {"insert": "c", "documents": [{"_id": 7}]});
        let half = doc! {"documents": [{"_id": 6}, {"_id": 7}]};
        let reply = server.run("test", command(2, &half));
        assert_eq!(reply.get_i32("n"), Some(1));
        server.run(
            "test",
            doc! {"delete": "c", "deletes": [{"q": {"_id": 7}, "limit": 1}]},
        );
        let reply = server.run("test", command(2, &half));
        assert_eq!(
            (reply.get_i32("n"), reply.get("writeErrors").is_none()),
            (Some(2), true)
        );
        assert_eq!(server.code("test", command(1, &two)), 225);
    }

    /// The server replaces `Timestamp(0, 0)` by the current time in some places and keeps it in others.
    #[tokio::test(flavor = "multi_thread")]
    async fn empty_timestamps_are_replaced_unless_bypassed() {
        let empty = Value::Timestamp(Timestamp::default());
        let set = doc! {"$set": {"t": empty}};
        let stages = doc! {"u": [{"$set": {"t": empty}}]};
        let stages = stages.get("u").unwrap();
        // Each one writes the field `t` of the document 1, and whether the time is filled in.
        let cases: Vec<(DocBuf, bool)> = vec![
            (
                doc! {"insert": "new", "documents": [{"_id": 1, "t": empty}]},
                true,
            ),
            (
                doc! {"insert": "series", "documents": [{"_id": 1, "at": Value::DateTime(0), "t": empty}]},
                false,
            ),
            (
                doc! {"update": "old", "updates": [{"q": {"_id": 1}, "u": {"t": empty}}]},
                true,
            ),
            (
                doc! {"update": "new", "updates": [{"q": {"_id": 1}, "u": {"t": empty}, "upsert": true}]},
                true,
            ),
            (
                doc! {"update": "old", "updates": [{"q": {"_id": 1}, "u": &set}]},
                false,
            ),
            (
                doc! {"update": "new", "updates": [{"q": {"_id": 1}, "u": &set, "upsert": true}]},
                false,
            ),
            (
                doc! {"update": "old", "updates": [{"q": {"_id": 1}, "u": stages}]},
                false,
            ),
            (
                doc! {"update": "new", "updates": [{"q": {"_id": 1}, "u": stages, "upsert": true}]},
                false,
            ),
            (
                doc! {"findAndModify": "old", "query": {"_id": 1}, "update": {"t": empty}},
                true,
            ),
            (
                doc! {"findAndModify": "new", "query": {"_id": 1}, "update": {"t": empty}, "upsert": true},
                true,
            ),
            (
                doc! {"findAndModify": "new", "query": {"_id": 1}, "update": &set, "upsert": true},
                false,
            ),
            (
                doc! {
                    "bulkWrite": 1, "nsInfo": [{"ns": "test.new"}],
                    "ops": [{"insert": 0, "document": {"_id": 1, "t": empty}}],
                },
                true,
            ),
            (
                doc! {
                    "bulkWrite": 1, "nsInfo": [{"ns": "test.old"}],
                    "ops": [{"update": 0, "filter": {"_id": 1}, "updateMods": {"t": empty}}],
                },
                true,
            ),
        ];
        let mut server = TestServer::new();
        for (command, filled_in) in &cases {
            for bypass in [None, Some(false), Some(true)] {
                server.run("test", doc! {"dropDatabase": 1});
                server.run("test", doc! {"insert": "old", "documents": [{"_id": 1}]});
                let series = doc! {"create": "series", "timeseries": {"timeField": "at"}};
                server.run("test", series);
                let mut command = command.clone();
                if let Some(bypass) = bypass {
                    command.push("bypassEmptyTsReplacement", bypass);
                }
                let (name, target) = command.first().unwrap();
                let (db, collection) = match target.as_str() {
                    Some(collection) => ("test", collection.to_owned()),
                    None if format!("{command:?}").contains("test.new") => {
                        ("admin", "new".to_owned())
                    }
                    None => ("admin", "old".to_owned()),
                };
                let reply = server.run(db, command.clone());
                assert!(reply.get("writeErrors").is_none(), "{name}: {reply:?}");
                let found = server.run("test", doc! {"find": collection, "filter": {"_id": 1}});
                let kept = server.batch(&found, "firstBatch")[0].get("t") == Some(empty);
                let expected = !filled_in || bypass == Some(true);
                assert_eq!(kept, expected, "{bypass:?} {command:?}");
            }
        }
        // Neither an `_id` nor a nested field is filled in.
        let deep = doc! {"_id": empty, "d": {"t": empty}, "a": [empty]};
        server.run("test", doc! {"insert": "deep", "documents": [&deep]});
        let found = server.run("test", doc! {"find": "deep"});
        assert_eq!(server.batch(&found, "firstBatch"), [deep]);
        // A copy is not changed.
        let kept = doc! {"_id": 1, "t": empty};
        let mut insert = doc! {"insert": "kept", "documents": [&kept]};
        insert.push("bypassEmptyTsReplacement", true);
        server.run("test", insert);
        server.run("test", doc! {"convertToCapped": "kept", "size": 4096});
        let found = server.run("test", doc! {"find": "kept"});
        assert_eq!(server.batch(&found, "firstBatch"), [kept]);
        let wrong = doc! {"insert": "c", "documents": [{}], "bypassEmptyTsReplacement": "yes"};
        assert_eq!(server.code("test", wrong), 14);
        // MongoDB's aggregate does not accept it, not even for $merge and $out.
        let aggregate = doc! {
            "aggregate": "c", "pipeline": [{"$out": "o"}], "cursor": {}, "bypassEmptyTsReplacement": true,
        };
        assert_eq!(server.code("test", aggregate), 40415);
    }

    /// With `w: 0` a client that waits for a reply gets no more than `ok`.
    #[tokio::test(flavor = "multi_thread")]
    async fn unacknowledged_writes_are_answered_with_ok_only() {
        let mut server = TestServer::new();
        server.fill("c", 5);
        let commands = [
            doc! {"insert": "c", "documents": [{"_id": 9}]},
            doc! {"insert": "c", "documents": [{"_id": 9}]},
            doc! {"update": "c", "updates": [
                {"q": {"_id": 1}, "u": {"$set": {"b": 1}}},
                {"q": {"_id": 77}, "u": {"$set": {"b": 1}}, "upsert": true},
            ]},
            doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"_id": 2}}}]},
            doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
        ];
        for command in &commands {
            let with = |concern: DocBuf| {
                let mut command = command.clone();
                command.push("writeConcern", &concern);
                command
            };
            for concern in [doc! {"w": 0}, doc! {"w": 0, "j": false}] {
                let reply = server.run("test", with(concern));
                assert_eq!(reply, doc! {"ok": 1.0}, "{command:?}");
            }
            // A client that waits for the journal gets the full reply.
            let reply = server.run("test", with(doc! {"w": 0, "j": true}));
            assert!(reply.get("n").is_some(), "{command:?}");
        }
        let found = server.run(
            "test",
            doc! {"find": "c", "filter": {"_id": {"$in": [1, 9, 77]}}},
        );
        let found = server.batch(&found, "firstBatch");
        assert_eq!(found, [doc! {"_id": 9}, doc! {"_id": 77, "b": 1}]);
    }

    /// Statements after the first error of an ordered batch are not counted.
    #[tokio::test(flavor = "multi_thread")]
    async fn opcounters_count_what_was_tried() {
        let mut server = TestServer::new();
        server.fill("c", 1);
        let two_of_three = |ordered: bool| {
            [
                doc! {"insert": "c", "ordered": ordered, "documents": [{"_id": 10}, {"_id": 0}, {"_id": 11}]},
                doc! {"update": "c", "ordered": ordered, "updates": [
                    {"q": {"_id": 0}, "u": {"$inc": {"n": 1}}}, {"q": {"_id": 0}, "u": {"$set": {"_id": 5}}},
                    {"q": {"_id": 0}, "u": {"$inc": {"n": 1}}},
                ]},
                doc! {"delete": "c", "ordered": ordered, "deletes": [
                    {"q": {"_id": 10}, "limit": 1}, {"q": {"$nonsense": 1}, "limit": 1}, {"q": {"_id": 11}, "limit": 1},
                ]},
                doc! {"bulkWrite": 1, "ordered": ordered, "nsInfo": [{"ns": "test.c"}], "ops": [
                    {"insert": 0, "document": {"_id": 10}}, {"insert": 0, "document": {"_id": 0}},
                    {"insert": 0, "document": {"_id": 11}},
                ]},
            ]
        };
        let mut counted = |command: DocBuf| {
            let (name, target) = command.first().unwrap();
            let kind = if name == "bulkWrite" { "insert" } else { name }.to_owned();
            let db = if target.is_number() { "admin" } else { "test" };
            let count = |server: &mut TestServer| {
                let status = server.run("admin", doc! {"serverStatus": 1});
                let counters = status.get_doc("opcounters").unwrap();
                counters.get(&kind).unwrap().as_i64_lossless().unwrap()
            };
            let before = count(&mut server);
            server.run(db, command);
            count(&mut server) - before
        };
        for (ordered, expected) in [(true, 2), (false, 3)] {
            for command in two_of_three(ordered) {
                let text = format!("{command:?}");
                assert_eq!(counted(command), expected, "{text}");
            }
        }
    }
}
