use frond_bson::{Doc, DocBuf, OwnedValue, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_query::aggregate::check_stage_names;
use frond_store::{
    Durability, InsertRecording, Namespace, Recording, SENT, StatementId, UpdateOutcome,
    UpdateRequest,
};

use super::find::hint;
use crate::arguments::Arguments;
use crate::authorization::{Action, ActionSet, Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::commands::support::write::{self, Batch, Group, WriteOptions};
use crate::context::{Context, unsupported_option};
use crate::observability::metrics::Op;
use crate::reply::push_count;
use crate::sessions::{Recorded, RetryableWrite, Updated};

pub struct Update;

const SPEC: Spec = Spec {
    names: &["update"],
    doc: "Updates documents.",
    fields: &[
        "collectionUUID",
        "updates",
        "ordered",
        "bypassDocumentValidation",
        "bypassEmptyTsReplacement",
        "let",
        "stmtId",
        "stmtIds",
    ],
    unsupported_fields: &[
        "encryptionInformation",
        "isTimeseriesNamespace",
        "legacyRuntimeConstants",
        "updates.c",
        "updates.upsertSupplied",
    ],
    op: Op::Update,
    kind: "update",
    retryable: true,
    profiles_statements: true,
    in_transactions: InTransactions::Always,
    ..Spec::WRITE
};

impl Command for Update {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let is_upsert = |statement: &Doc| {
            let mut fields = statement.iter();
            fields.any(|(name, value)| name == "upsert" && value.truthy())
        };
        let statements = request.documents("updates")?;
        let mut actions = ActionSet::from(Action::Update);
        if statements.into_iter().any(is_upsert) {
            actions.insert(Action::Insert);
        }
        Needs::on_collection(request, request.writing(actions))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let options = WriteOptions::parse(cx)?;
        let batch = Batch::parse(cx, "updates")?;
        // Everything is read before anything is done: a malformed statement fails the command.
        let requests: Vec<UpdateRequest<'_>> = batch
            .statements
            .iter()
            .map(|statement| {
                Ok(UpdateRequest {
                    bypass_validation: options.bypass_validation,
                    keep_empty_timestamps: options.keep_empty_timestamps,
                    unacknowledged: cx.write_concern.is_unacknowledged(),
                    ..parse_statement(statement, options.variables.as_deref())?
                })
            })
            .collect::<Result<_>>()?;
        let mut total = Total::default();
        // Looked at once for the whole batch.
        let unacknowledged = cx.write_concern.is_unacknowledged();
        let takes_fast = cx.store().takes_fast_updates(&namespace, unacknowledged);
        let errors = batch.run_in_groups(
            cx,
            &requests,
            options.ordered,
            |requests, retry, at| {
                if !takes_fast {
                    return Group::default();
                }
                update_fast(cx, &namespace, requests, retry, |next| {
                    batch.ids.id(at + next)
                })
            },
            |request, retry, id| update_once(cx, &namespace, request, retry, id),
            |at, done| total.add(at, done),
        )?;
        cx.server.metrics.documents_updated.add(total.modified);
        let upserted = total.upserted.last().map(|(_, id)| id.clone());
        cx.state.last_error.updated(total.matched, upserted);
        write::reply(cx, &errors, |reply| total.write(reply))
    }
}

/// The sums of a batch of updates.
#[derive(Default)]
struct Total {
    matched: u64,
    modified: u64,
    upserted: Vec<(usize, OwnedValue)>,
}

impl Total {
    fn add(&mut self, at: usize, done: Updated) {
        self.matched += done.n;
        self.modified += done.modified;
        if let Some(id) = done.upserted {
            self.upserted.push((at, id));
        }
    }

    fn write(&self, reply: &mut DocBuf) {
        push_count(reply, "n", self.matched);
        if !self.upserted.is_empty() {
            reply.push_array("upserted", |list| {
                for (index, id) in &self.upserted {
                    list.push_doc(|entry| {
                        entry.push("index", *index as i32);
                        entry.push("_id", id);
                    });
                }
            });
        }
        push_count(reply, "nModified", self.modified);
    }
}

/// Runs update statements from the first one on as fast updates, up to the first one that cannot be fast. `number` returns the number of a statement in
/// the retryable write.
pub fn update_fast(
    cx: &Context<'_>,
    namespace: &Namespace,
    requests: &[UpdateRequest<'_>],
    retry: Option<&mut RetryableWrite>,
    number: impl Fn(usize) -> i32,
) -> Group<Updated> {
    let (sent, failure) = match retry {
        None => cx
            .store()
            .update_fast(namespace, requests, None, &cx.limits),
        Some(retry) => {
            // An update that has to be executed as usual must not cost a look at the whole rest of the batch.
            let is_fast = |first| cx.store().is_fast_update(namespace, first);
            if !requests.first().is_some_and(is_fast) {
                return Group::default();
            }
            if let Err(error) = cx.check_fail_point_of_write() {
                return Group {
                    done: Vec::new(),
                    failure: Some(error),
                };
            }
            let is_new = |(at, request): &(usize, &UpdateRequest<'_>)| {
                !request.multi && !retry.knows(number(*at))
            };
            let numbers: Vec<i32> = (requests.iter().enumerate())
                .take_while(is_new)
                .map(|(at, _)| number(at))
                .collect();
            let recorded = Recorded::Update(updated(SENT));
            let recording = InsertRecording {
                of: retry.statement(number(0)),
                numbers: &numbers,
                result: &recorded.to_doc(),
            };
            let requests = requests.get(..numbers.len()).unwrap_or_default();
            let sent = (cx.store()).update_fast(namespace, requests, Some(recording), &cx.limits);
            let (count, failure) = sent;
            for number in numbers.into_iter().take(count) {
                retry.record(number, recorded.clone(), true);
            }
            (count, failure)
        }
    };
    cx.server.metrics.count(Op::Update, sent as u64);
    Group {
        done: vec![updated(SENT); sent],
        failure: failure.map(Into::into),
    }
}

/// Runs one update statement, or returns what an earlier try of the same retryable write did.
pub fn update_once(
    cx: &Context<'_>,
    namespace: &Namespace,
    request: &UpdateRequest<'_>,
    retry: Option<&mut RetryableWrite>,
    statement: i32,
) -> Result<Updated> {
    if retry.is_some() && request.multi {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "Cannot use retryable writes with multi=true",
        ));
    }
    let kind = (request.multi, request.upsert);
    cx.store()
        .check_update_of_series(namespace, request.filter, &request.update, kind)?;
    let replay = |recorded: &Recorded| match recorded {
        Recorded::Update(done) => Some(done.clone()),
        _ => None,
    };
    write::once(
        retry,
        statement,
        replay,
        |done| Recorded::Update(done.clone()),
        |done| done.modified > 0 || done.upserted.is_some(),
        |of| update(cx, namespace, request, of),
    )
}

/// Runs one update statement.
pub fn update(
    cx: &Context<'_>,
    namespace: &Namespace,
    request: &UpdateRequest<'_>,
    of: Option<StatementId>,
) -> Result<Updated> {
    if of.is_some() {
        cx.check_fail_point_of_write()?;
    }
    cx.server.metrics.count(Op::Update, 1);
    let (store, limits) = (cx.store(), &cx.limits);
    let outcome = match of {
        None => store.update(namespace, request, Durability::Logged, limits)?,
        Some(of) => {
            let result = |done: &UpdateOutcome| Recorded::Update(updated(done.clone())).to_doc();
            let recording = Recording {
                of,
                result: &result,
            };
            store.update_recorded(namespace, request, recording, limits)?
        }
    };
    Ok(updated(outcome))
}

fn updated(outcome: UpdateOutcome) -> Updated {
    Updated {
        n: outcome.matched + u64::from(outcome.upserted_id.is_some()),
        modified: outcome.modified,
        upserted: outcome.upserted_id,
    }
}

const STATEMENT: &[&str] = &[
    "q",
    "u",
    "upsert",
    "multi",
    "hint",
    "arrayFilters",
    "collation",
    "c",
    "upsertSupplied",
    "sort",
];

/// Reads one update statement.
pub fn parse_statement<'a>(
    statement: &'a Doc,
    variables: Option<&'a Doc>,
) -> Result<UpdateRequest<'a>> {
    let args = Arguments::new("update.updates", statement);
    args.only(STATEMENT)?;
    for name in ["c", "upsertSupplied"] {
        if args.get(name).is_some_and(|value| value.truthy()) {
            return Err(unsupported_option("update", name));
        }
    }
    let multi = args.bool("multi")?.unwrap_or(false);
    let sort = args.doc_field("sort")?;
    if multi && sort.is_some() {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "Cannot specify sort with multi=true",
        ));
    }
    let update = match args.get("u") {
        Some(value @ Value::Document(_)) => value,
        Some(value @ Value::Array(stages)) => {
            check_stage_names(stages)?;
            value
        }
        Some(_) => {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "Update argument must be either an object or an array",
            ));
        }
        None => return Err(args.missing("u")),
    };
    Ok(UpdateRequest {
        filter: args.doc_field("q")?.ok_or_else(|| args.missing("q"))?,
        update,
        upsert: args.bool("upsert")?.unwrap_or(false),
        multi,
        sort,
        array_filters: args.documents("arrayFilters")?.unwrap_or_default(),
        hint: hint(&args)?,
        variables,
        bypass_validation: false,
        keep_empty_timestamps: false,
        collation: args.collation()?,
        unacknowledged: false,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, Value, doc};

    use crate::sessions::SessionId;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bulk_counts_matched_modified_and_upserted() {
        let mut server = TestServer::new();
        server.fill("c", 5);
        let reply = server.run(
            "test",
            doc! {"update": "c", "updates": [
                {"q": {"_id": 1}, "u": {"$set": {"a": 10}}},
                {"q": {"_id": {"$gte": 2}}, "u": {"$inc": {"b": 1}}, "multi": true},
                {"q": {"_id": 9}, "u": {"$set": {"a": 1}}, "upsert": true},
                {"q": {"_id": 8}, "u": {"$set": {"a": 1}}},
                {"q": {"_id": 0}, "u": {"z": 1}},
            ]},
        );
        let expected = doc! {
            "n": 6, "upserted": [{"index": 2, "_id": 9}], "nModified": 4, "ok": 1.0,
        };
        assert_eq!(reply, expected);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_a_time_series_the_metadata_is_updated() {
        let mut server = TestServer::new();
        let series = doc! {"timeField": "t", "metaField": "m"};
        server.run("test", doc! {"create": "s", "timeseries": &series});
        server.run(
            "test",
            doc! {"create": "n", "timeseries": {"timeField": "t"}},
        );
        let document = doc! {"t": Value::DateTime(5), "m": {"a": 1}, "v": 1};
        server.run("test", doc! {"insert": "s", "documents": [&document]});
        let mut update = |collection: &str, statement: DocBuf| {
            let reply = server.run("test", doc! {"update": collection, "updates": [&statement]});
            let error = reply.get_array("writeErrors");
            let error = error.and_then(|errors| errors.get_doc("0")?.get_i32("code"));
            (error, reply.get_i32("nModified").unwrap())
        };
        let set = doc! {"$set": {"m.a": 2}, "$unset": {"m.b": 1}};
        let filter = doc! {"m.a": 1};
        assert_eq!(
            update("s", doc! {"q": &filter, "u": &set, "multi": true}),
            (None, 1)
        );
        for (collection, statement) in [
            ("s", doc! {"q": &filter, "u": &set}),
            (
                "s",
                doc! {"q": &filter, "u": &set, "multi": true, "upsert": true},
            ),
            ("s", doc! {"q": {"v": 1}, "u": &set, "multi": true}),
            (
                "s",
                doc! {"q": &filter, "u": {"$set": {"v": 1}}, "multi": true},
            ),
            (
                "s",
                doc! {"q": &filter, "u": {"$rename": {"m.a": "v"}}, "multi": true},
            ),
            (
                "s",
                doc! {"q": &filter, "u": [{"$set": {"m.a": 1}}], "multi": true},
            ),
            ("s", doc! {"q": &filter, "u": {"m": 1}, "multi": true}),
            ("n", doc! {"q": {}, "u": {"$set": {"m": 1}}, "multi": true}),
        ] {
            assert_eq!(
                update(collection, statement.clone()),
                (Some(72), 0),
                "{statement:?}"
            );
        }
        let change = doc! {"findAndModify": "s", "query": {"m.a": 2}, "update": &set};
        assert_eq!(server.code("test", change), 72);
        server.run(
            "test",
            doc! {"findAndModify": "s", "query": {"v": 1}, "remove": true},
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_error_ends_an_ordered_bulk_only() {
        let mut server = TestServer::new();
        server.fill("c", 3);
        for (ordered, n) in [(true, 1), (false, 2)] {
            let reply = server.run(
                "test",
                doc! {"update": "c", "ordered": ordered, "updates": [
                    {"q": {"_id": 0}, "u": {"$set": {"x": ordered}}},
                    {"q": {"_id": 1}, "u": {"$set": {"_id": 7}}},
                    {"q": {"_id": 2}, "u": {"$set": {"x": ordered}}},
                ]},
            );
            assert_eq!(reply.get_i32("n"), Some(n));
            let error = reply
                .get_array("writeErrors")
                .unwrap()
                .get_doc("0")
                .unwrap();
            assert_eq!(
                (error.get_i32("index"), error.get_i32("code")),
                (Some(1), Some(66))
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_statements_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"update": "c"}, 40414),
            (doc! {"update": "c", "updates": []}, 16),
            (doc! {"update": "c", "updates": [{"q": {}}]}, 40414),
            (doc! {"update": "c", "updates": [{"q": {}, "u": 1}]}, 9),
            (
                doc! {"update": "c", "updates": [{"q": {}, "u": {}, "x": 1}]},
                40415,
            ),
            (
                doc! {"update": "c", "updates": [{"q": {}, "u": {}, "collation": {"locale": "xx"}}]},
                2,
            ),
            (doc! {"update": "c", "updates": [{"q": {}, "u": [1]}]}, 14),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_retry_does_not_update_again() {
        let mut server = TestServer::new();
        server.fill("c", 1);
        let lsid = SessionId::random().to_doc();
        for _ in 0..2 {
            let reply = server.run(
                "test",
                doc! {
                    "update": "c", "lsid": &lsid, "txnNumber": 1i64, "updates": [
                        {"q": {"_id": 0}, "u": {"$inc": {"a": 1}}},
                        {"q": {"_id": 5}, "u": {"$inc": {"a": 1}}, "upsert": true},
                    ],
                },
            );
            let expected = doc! {
                "n": 2, "upserted": [{"index": 1, "_id": 5}], "nModified": 1, "ok": 1.0,
            };
            assert_eq!(reply, expected);
        }
        let found = server.run("test", doc! {"find": "c", "filter": {"_id": 0}});
        assert_eq!(server.batch(&found, "firstBatch")[0].get_i32("a"), Some(1));
        let multi = doc! {
            "update": "c", "lsid": &lsid, "txnNumber": 2i64,
            "updates": [{"q": {}, "u": {"$inc": {"a": 1}}, "multi": true}],
        };
        let reply = server.run("test", multi);
        let error = reply
            .get_array("writeErrors")
            .unwrap()
            .get_doc("0")
            .unwrap();
        assert_eq!(error.get_i32("code"), Some(72));
    }

    /// No statement runs if one of them names an unknown stage.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_unknown_stage_fails_the_command() {
        let mut server = TestServer::new();
        server.fill("c", 1);
        let command = |stage: &DocBuf| {
            doc! {"update": "c", "updates": [
                {"q": {"_id": 0}, "u": {"$set": {"b": 1}}}, {"q": {"_id": 0}, "u": [stage]},
            ]}
        };
        let reply = server.reply("test", command(&doc! {"$invalid": true}));
        assert_eq!(
            (reply.get_i32("code"), reply.get_str("errmsg")),
            (
                Some(40324),
                Some("Unrecognized pipeline stage name: '$invalid'")
            )
        );
        let found = server.run("test", doc! {"find": "c"});
        assert_eq!(
            server.batch(&found, "firstBatch"),
            [doc! {"_id": 0, "a": 0}]
        );
        // A known stage that updates do not support is the error of its statement.
        let reply = server.run("test", command(&doc! {"$match": {}}));
        let error = reply
            .get_array("writeErrors")
            .unwrap()
            .get_doc("0")
            .unwrap();
        assert_eq!(
            (error.get_i32("index"), error.get_i32("code")),
            (Some(1), Some(72))
        );
    }
}
