use frond_bson::{Doc, DocBuf};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{DeleteRequest, Durability, Namespace, Recording, StatementId};

use super::find::hint;
use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::commands::support::write::{self, Batch, WriteOptions};
use crate::context::Context;
use crate::observability::metrics::Op;
use crate::reply::push_count;
use crate::sessions::{Recorded, RetryableWrite};

pub struct Delete;

const SPEC: Spec = Spec {
    names: &["delete"],
    doc: "Deletes documents.",
    fields: &[
        "collectionUUID",
        "deletes",
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
    ],
    op: Op::Delete,
    kind: "remove",
    retryable: true,
    profiles_statements: true,
    in_transactions: InTransactions::Always,
    ..Spec::WRITE
};

impl Command for Delete {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::Remove)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        // A delete stores no document, so of some options only the types count.
        let options = WriteOptions::parse(cx)?;
        let batch = Batch::parse(cx, "deletes")?;
        let requests: Vec<DeleteRequest<'_>> = batch
            .statements
            .iter()
            .map(|statement| parse_statement(statement, options.variables.as_deref()))
            .collect::<Result<_>>()?;
        let mut n = 0;
        let errors = batch.run(
            cx,
            &requests,
            options.ordered,
            |request, retry, id| delete_once(cx, &namespace, request, retry, id),
            |_, deleted| n += deleted,
        )?;
        cx.server.metrics.documents_deleted.add(n);
        cx.state.last_error.deleted(n);
        write::reply(cx, &errors, |reply| push_count(reply, "n", n))
    }
}

/// Runs one delete statement, or returns what an earlier try of the same retryable write did.
pub fn delete_once(
    cx: &Context<'_>,
    namespace: &Namespace,
    request: &DeleteRequest<'_>,
    retry: Option<&mut RetryableWrite>,
    statement: i32,
) -> Result<u64> {
    if retry.is_some() && !request.limit_one {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "Cannot use retryable writes with limit=0",
        ));
    }
    let replay = |recorded: &Recorded| match recorded {
        Recorded::Delete(n) => Some(*n),
        _ => None,
    };
    write::once(
        retry,
        statement,
        replay,
        |n| Recorded::Delete(*n),
        |n| *n > 0,
        |of| delete(cx, namespace, request, of),
    )
}

/// Runs one delete statement. Returns how many documents were deleted.
pub fn delete(
    cx: &Context<'_>,
    namespace: &Namespace,
    request: &DeleteRequest<'_>,
    of: Option<StatementId>,
) -> Result<u64> {
    if of.is_some() {
        cx.check_fail_point_of_write()?;
    }
    cx.server.metrics.count(Op::Delete, 1);
    let (store, limits) = (cx.store(), &cx.limits);
    Ok(match of {
        None => store.delete(namespace, request, Durability::Logged, limits)?,
        Some(of) => {
            let result = |n: &u64| Recorded::Delete(*n).to_doc();
            let recording = Recording {
                of,
                result: &result,
            };
            store.delete_recorded(namespace, request, recording, limits)?
        }
    })
}

/// Reads one delete statement.
pub fn parse_statement<'a>(
    statement: &'a Doc,
    variables: Option<&'a Doc>,
) -> Result<DeleteRequest<'a>> {
    let args = Arguments::new("delete.deletes", statement);
    args.only(&["q", "limit", "hint", "collation"])?;
    let limit_one = match args.i64("limit")? {
        Some(0) => false,
        Some(1) => true,
        Some(n) => {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                format!("The limit field in delete objects must be 0 or 1. Got {n}"),
            ));
        }
        None => return Err(args.missing("limit")),
    };
    Ok(DeleteRequest {
        filter: args.doc_field("q")?.ok_or_else(|| args.missing("q"))?,
        limit_one,
        hint: hint(&args)?,
        variables,
        collation: args.collation()?,
    })
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::sessions::SessionId;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn documents_go() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let reply = server.run(
            "test",
            doc! {"delete": "c", "deletes": [
                {"q": {"_id": {"$gte": 7}}, "limit": 0},
                {"q": {"_id": {"$gte": 5}}, "limit": 1},
                {"q": {"_id": 99}, "limit": 1},
            ]},
        );
        assert_eq!(reply, doc! {"n": 4, "ok": 1.0});
        assert_eq!(
            server.run("test", doc! {"count": "c"}).get_i32("n"),
            Some(6)
        );
    }

    /// PyMongo's `bulk_write` sends the field with each kind of write.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_bypass_fields_of_every_write_are_taken() {
        let mut server = TestServer::new();
        for field in ["bypassDocumentValidation", "bypassEmptyTsReplacement"] {
            for on in [false, true] {
                server.fill("c", 1);
                let mut command = doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]};
                command.push(field, on);
                assert_eq!(server.run("test", command), doc! {"n": 1, "ok": 1.0});
            }
            let mut command = doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]};
            command.push(field, "yes");
            assert_eq!(server.code("test", command), 14);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_statements_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"delete": "c"}, 40414),
            (doc! {"delete": "c", "deletes": [{"q": {}}]}, 40414),
            (doc! {"delete": "c", "deletes": [{"limit": 1}]}, 40414),
            (doc! {"delete": "c", "deletes": [{"q": {}, "limit": 2}]}, 9),
            (
                doc! {"delete": "c", "deletes": [{"q": {}, "limit": 1, "x": 1}]},
                40415,
            ),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_retry_does_not_delete_again() {
        let mut server = TestServer::new();
        server.fill("c", 5);
        let lsid = SessionId::random().to_doc();
        for _ in 0..2 {
            let command = doc! {
                "delete": "c", "lsid": &lsid, "txnNumber": 1i64,
                "deletes": [{"q": {}, "limit": 1}],
            };
            assert_eq!(server.run("test", command), doc! {"n": 1, "ok": 1.0});
        }
        assert_eq!(
            server.run("test", doc! {"count": "c"}).get_i32("n"),
            Some(4)
        );
    }
}
