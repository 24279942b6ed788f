use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{Durability, FindAndModifyOutcome, FindAndModifyRequest, Recording};

use super::find::hint;
use crate::arguments::Arguments;
use crate::authorization::{Action, ActionSet, Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::commands::support::write::{self, bypass_validation, keep_empty_timestamps};
use crate::context::Context;
use crate::observability::metrics::Op;
use crate::sessions::Recorded;
use crate::statements::Statements;

pub struct FindAndModify;

const SPEC: Spec = Spec {
    names: &["findAndModify", "findandmodify"],
    doc: "Updates or removes one document and returns it.",
    fields: &[
        "collectionUUID",
        "query",
        "sort",
        "remove",
        "update",
        "new",
        "fields",
        "upsert",
        "arrayFilters",
        "hint",
        "let",
        "collation",
        "bypassDocumentValidation",
        "bypassEmptyTsReplacement",
        "stmtId",
    ],
    unsupported_fields: &["encryptionInformation", "legacyRuntimeConstants"],
    retryable: true,
    in_transactions: InTransactions::Always,
    ..Spec::WRITE
};

impl Command for FindAndModify {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let is_set = |name| request.body.get(name).is_some_and(|value| value.truthy());
        let mut actions = ActionSet::from(Action::Find);
        if is_set("remove") {
            actions.insert(Action::Remove);
        } else {
            actions.insert(Action::Update);
        }
        if is_set("upsert") {
            actions.insert(Action::Insert);
        }
        Needs::on_collection(request, request.writing(actions))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let args = cx.args();
        let variables = args.variables()?;
        let request = parse(&args, variables.as_deref())?;
        let statement = Statements::parse(&args, 1)?.id(0);
        if let Some(update) = &request.update {
            let filter = request.filter.unwrap_or(Doc::empty());
            cx.store().check_update_of_series(
                &namespace,
                filter,
                update,
                (false, request.upsert),
            )?;
        }
        cx.server.metrics.count(Op::Command, 1);
        let mut retry = cx.retryable_write()?;
        let replay = |recorded: &Recorded| match recorded {
            Recorded::FindAndModify(reply) => Some(reply.clone()),
            _ => None,
        };
        let record = |reply: &DocBuf| Recorded::FindAndModify(reply.clone());
        let changed = |reply: &DocBuf| {
            let done = reply.get_doc("lastErrorObject");
            done.is_some_and(|done| done.get_i32("n") != Some(0))
        };
        write::once(retry.as_mut(), statement, replay, record, changed, |of| {
            // The dispatcher waits for the journal when the statement is recorded.
            let durability = Durability::Logged;
            let (store, limits) = (cx.store(), &cx.limits);
            let outcome = match of {
                None => store.find_and_modify(&namespace, &request, durability, limits)?,
                Some(of) => {
                    cx.check_fail_point_of_write()?;
                    let result = |done: &FindAndModifyOutcome| {
                        Recorded::FindAndModify(reply(request.remove, done)).to_doc()
                    };
                    let recording = Recording {
                        of,
                        result: &result,
                    };
                    store.find_and_modify_recorded(&namespace, &request, recording, limits)?
                }
            };
            count(cx, &request, &outcome);
            Ok(reply(request.remove, &outcome))
        })
    }
}

/// Reads the fields of the command. `variables` are the values of `let`.
pub fn parse<'a>(
    args: &Arguments<'a>,
    variables: Option<&'a Doc>,
) -> Result<FindAndModifyRequest<'a>> {
    let update = match args.get("update") {
        value @ (None | Some(Value::Document(_) | Value::Array(_))) => value,
        Some(_) => {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "Update argument must be either an object or an array",
            ));
        }
    };
    Ok(FindAndModifyRequest {
        filter: args.doc_field("query")?,
        sort: args.doc_field("sort")?,
        remove: args.flag("remove")?.unwrap_or(false),
        update,
        upsert: args.flag("upsert")?.unwrap_or(false),
        return_new: args.flag("new")?.unwrap_or(false),
        projection: args.doc_field("fields")?,
        array_filters: args.documents("arrayFilters")?.unwrap_or_default(),
        hint: hint(args)?,
        variables,
        bypass_validation: bypass_validation(args)?,
        keep_empty_timestamps: keep_empty_timestamps(args)?,
        collation: args.collation()?,
    })
}

fn count(cx: &mut Context<'_>, request: &FindAndModifyRequest<'_>, done: &FindAndModifyOutcome) {
    let metrics = &cx.server.metrics;
    metrics
        .documents_returned
        .add(u64::from(done.value.is_some()));
    if request.remove {
        metrics.documents_deleted.add(u64::from(done.removed));
        cx.state.last_error.deleted(u64::from(done.removed));
    } else {
        metrics
            .documents_updated
            .add(u64::from(done.updated_existing));
        metrics
            .documents_inserted
            .add(u64::from(done.upserted_id.is_some()));
        cx.state
            .last_error
            .updated(u64::from(done.updated_existing), done.upserted_id.clone());
    }
}

fn reply(remove: bool, done: &FindAndModifyOutcome) -> DocBuf {
    let mut reply = DocBuf::new();
    reply.push_doc("lastErrorObject", |last| {
        if remove {
            last.push("n", i32::from(done.removed));
        } else {
            last.push(
                "n",
                i32::from(done.updated_existing || done.upserted_id.is_some()),
            );
            last.push("updatedExisting", done.updated_existing);
            if let Some(id) = &done.upserted_id {
                last.push("upserted", id);
            }
        }
    });
    reply.push("value", done.value.as_ref());
    reply
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::sessions::SessionId;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn documents_are_returned_before_and_after() {
        let mut server = TestServer::new();
        server.fill("c", 3);
        let cases: &[(DocBuf, DocBuf)] = &[
            (
                doc! {"query": {"_id": 1}, "update": {"$set": {"a": 5}}},
                doc! {"lastErrorObject": {"n": 1, "updatedExisting": true}, "value": {"_id": 1, "a": 10}},
            ),
            (
                doc! {"query": {"_id": 1}, "update": {"$inc": {"a": 1}}, "new": true, "fields": {"a": 1, "_id": 0}},
                doc! {"lastErrorObject": {"n": 1, "updatedExisting": true}, "value": {"a": 6}},
            ),
            (
                doc! {"sort": {"_id": -1}, "remove": true},
                doc! {"lastErrorObject": {"n": 1}, "value": {"_id": 2, "a": 20}},
            ),
            (
                doc! {"query": {"_id": 9}, "remove": true},
                doc! {"lastErrorObject": {"n": 0}, "value": null},
            ),
            (
                doc! {"query": {"_id": 9}, "update": {"a": 1}, "upsert": true},
                doc! {"lastErrorObject": {"n": 1, "updatedExisting": false, "upserted": 9}, "value": null},
            ),
            (
                doc! {"query": {"_id": 8}, "update": {"a": 1}},
                doc! {"lastErrorObject": {"n": 0, "updatedExisting": false}, "value": null},
            ),
        ];
        for (fields, expected) in cases {
            let mut command = doc! {"findAndModify": "c"};
            command.push_all(fields);
            let mut expected = expected.clone();
            expected.push("ok", 1.0);
            assert_eq!(server.run("test", command), expected, "{fields:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn options_that_exclude_each_other_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"findAndModify": "c"}, 9),
            (
                doc! {"findAndModify": "c", "remove": true, "update": {"a": 1}},
                9,
            ),
            (doc! {"findAndModify": "c", "remove": true, "new": true}, 9),
            (
                doc! {"findandmodify": "c", "remove": true, "upsert": true},
                9,
            ),
            (doc! {"findAndModify": "c", "update": 1}, 9),
            (
                doc! {"findAndModify": "c", "update": {"a": 1}, "x": 1},
                40415,
            ),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_retry_returns_the_same_reply() {
        let mut server = TestServer::new();
        server.fill("c", 1);
        let command = doc! {
            "findAndModify": "c", "query": {"_id": 0}, "update": {"$inc": {"a": 1}}, "new": true,
            "lsid": SessionId::random().to_doc(), "txnNumber": 1i64,
        };
        let first = server.run("test", command.clone());
        assert_eq!(server.run("test", command), first);
        assert_eq!(first.get_doc("value").unwrap().get_i32("a"), Some(1));
    }
}
