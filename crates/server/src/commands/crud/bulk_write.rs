//! `bulkWrite`: inserts, updates and deletes over several collections in one command (MongoDB 8.0).

use frond_bson::{Doc, DocBuf, OwnedValue, Value};
use frond_error::{Error, Result};
use frond_store::{Durability, InsertOptions, Namespace, UpdateRequest};

use super::delete::{self, delete_once};
use super::insert::insert_once;
use super::update::{self, update_fast, update_once};
use crate::arguments::Arguments;
use crate::authorization::{Action, ActionSet, Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::commands::support::write::{Batch, Group, WriteOptions, end_transaction_after};
use crate::context::{Context, unsupported_option};
use crate::cursors::Cursor;
use crate::errors;
use crate::reply::{BatchOptions, ERROR_BYTES_MAX, first_batch, push_count};
use crate::sessions::{RetryableWrite, Updated};
use crate::statements::Statements;

/// The namespace of the cursor over the results.
const CURSOR_NAMESPACE: &str = "admin.$cmd.bulkWrite";

pub struct BulkWrite;

const SPEC: Spec = Spec {
    names: &["bulkWrite"],
    doc: "Inserts, updates and deletes documents of several collections.",
    fields: &[
        "ops",
        "nsInfo",
        "ordered",
        "bypassDocumentValidation",
        "bypassEmptyTsReplacement",
        "let",
        "errorsOnly",
        "cursor",
        "stmtId",
        "stmtIds",
    ],
    unsupported_fields: &[
        "nsInfo.encryptionInformation",
        "nsInfo.isTimeseriesNamespace",
        "ops.constants",
        "ops.upsertSupplied",
    ],
    kind: "bulkWrite",
    retryable: true,
    on_collection: false,
    admin_only: true,
    in_transactions: InTransactions::Always,
    ..Spec::WRITE
};

impl Command for BulkWrite {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        needs(request)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let options = WriteOptions::parse(cx)?;
        let (ordered, variables) = (options.ordered, options.variables.as_deref());
        let errors_only = args.bool("errorsOnly")?.unwrap_or(false);
        let batch = BatchOptions::of_cursor_field(&args)?;
        let Batch {
            statements: documents,
            ids,
        } = Batch::parse(cx, "ops")?;
        let namespaces = namespaces(cx, &cx.documents("nsInfo")?, &documents)?;
        // Everything is read before anything is done: a malformed operation fails the command.
        let operations: Vec<Operation<'_>> = documents
            .iter()
            .map(|operation| Operation::parse(operation, &namespaces))
            .collect::<Result<_>>()?;
        let mut retry = cx.retryable_write()?;

        let mut results = Results::new(errors_only);
        let mut at = 0;
        while let Some(operation) = operations.get(at) {
            if (ordered && results.errors > 0) || results.of_command.is_some() {
                break;
            }
            at += match operation {
                Operation::Insert { namespace, .. } => insert_run(
                    cx,
                    namespace,
                    operations.get(at..).unwrap_or_default(),
                    InsertOptions {
                        ordered,
                        durability: Durability::Logged,
                        bypass_validation: options.bypass_validation,
                        keep_empty_timestamps: options.keep_empty_timestamps,
                    },
                    retry.as_mut(),
                    (at, &ids),
                    &mut results,
                )?,
                Operation::Update { namespace, .. } => update_run(
                    cx,
                    namespace,
                    operations.get(at..).unwrap_or_default(),
                    &options,
                    retry.as_mut(),
                    (at, &ids),
                    &mut results,
                ),
                Operation::Delete {
                    namespace,
                    statement,
                } => {
                    let done = delete::parse_statement(statement, variables).and_then(|request| {
                        delete_once(cx, namespace, &request, retry.as_mut(), ids.id(at))
                    });
                    results.deleted(at, done);
                    1
                }
            };
        }
        cx.server.metrics.documents_inserted.add(results.inserted);
        cx.server.metrics.documents_updated.add(results.modified);
        cx.server.metrics.documents_deleted.add(results.deleted);
        if let Some(failure) = results.last_failure.take() {
            cx.state.last_error.failed(failure.clone());
            end_transaction_after(cx, Some(&failure))?;
        }
        if let Some(failure) = results.of_command.take()
            && !cx.write_concern.is_unacknowledged()
        {
            return Err(failure);
        }
        let counts = results.counts();
        // A client with `w: 0` gets the counts only.
        let items = if cx.write_concern.is_unacknowledged() {
            Vec::new()
        } else {
            results.items
        };
        let cursor = Cursor::fixed(CURSOR_NAMESPACE, items);
        let mut reply = first_batch(cx, cursor, batch)?;
        reply.push_all(&counts);
        Ok(reply)
    }
}

/// The privileges that the operations need on their collections.
fn needs<'a>(request: &Requested<'a>) -> Result<Needs<'a>> {
    let mut names = Vec::new();
    for info in request.documents("nsInfo")? {
        let args = Arguments::new("bulkWrite.nsInfo", info);
        names.push(args.str("ns")?.ok_or_else(|| args.missing("ns"))?);
    }
    let mut actions = vec![ActionSet::new(); names.len()];
    for operation in request.documents("ops")? {
        let place = place_of(operation, names.len())?;
        let is_upsert = |(name, value): (&str, Value<'_>)| name == "upsert" && value.truthy();
        let more = match operation.first() {
            Some(("insert", _)) => Action::Insert.into(),
            Some(("delete", _)) => Action::Remove.into(),
            _ if operation.iter().any(is_upsert) => [Action::Insert, Action::Update].into(),
            _ => ActionSet::from(Action::Update),
        };
        if let Some(actions) = actions.get_mut(place) {
            *actions = actions.union(request.writing(more));
        }
    }
    let each = names.into_iter().zip(actions);
    each.filter(|(_, actions)| !actions.is_empty())
        .map(|(name, actions)| Needs::on_namespace(name, actions))
        .collect::<Result<_>>()
        .map(Needs::all)
}

/// Reads `nsInfo`: the collections that operations name by index. UUIDs are compared only for collections that operations
/// use: for others no privilege was needed, and the error names the collection of a UUID.
fn namespaces(cx: &Context<'_>, infos: &[&Doc], operations: &[&Doc]) -> Result<Vec<Namespace>> {
    let mut is_used = vec![false; infos.len()];
    for operation in operations {
        if let Some(used) = is_used.get_mut(place_of(operation, infos.len())?) {
            *used = true;
        }
    }
    infos
        .iter()
        .zip(is_used)
        .map(|(info, is_used)| {
            let args = Arguments::new("bulkWrite.nsInfo", info);
            args.only(&[
                "ns",
                "collectionUUID",
                "encryptionInformation",
                "isTimeseriesNamespace",
            ])?;
            for name in ["encryptionInformation", "isTimeseriesNamespace"] {
                if args.get(name).is_some_and(|value| value.truthy()) {
                    return Err(unsupported_option("bulkWrite", name));
                }
            }
            let name = args.str("ns")?.ok_or_else(|| args.missing("ns"))?;
            let namespace = Namespace::parse(name)?;
            if is_used {
                cx.check_uuid_in(&args, &namespace)?;
            }
            Ok(namespace)
        })
        .collect()
}

/// One element of `ops`.
enum Operation<'a> {
    Insert {
        namespace: &'a Namespace,
        document: &'a Doc,
    },
    /// The statement in the form of the command `update`.
    Update {
        namespace: &'a Namespace,
        statement: DocBuf,
    },
    /// The statement in the form of the command `delete`.
    Delete {
        namespace: &'a Namespace,
        statement: DocBuf,
    },
}

/// The names of an operation's fields, here and in the command for one collection; empty for a field
/// that the command does not have.
type Renamed = &'static [(&'static str, &'static str)];

const UPDATE_FIELDS: Renamed = &[
    ("filter", "q"),
    ("updateMods", "u"),
    ("multi", "multi"),
    ("upsert", "upsert"),
    ("upsertSupplied", "upsertSupplied"),
    ("arrayFilters", "arrayFilters"),
    ("hint", "hint"),
    ("collation", "collation"),
    ("constants", "c"),
    ("sort", "sort"),
];

const DELETE_FIELDS: Renamed = &[
    ("filter", "q"),
    ("multi", ""),
    ("hint", "hint"),
    ("collation", "collation"),
];

impl<'a> Operation<'a> {
    fn parse(operation: &'a Doc, namespaces: &'a [Namespace]) -> Result<Operation<'a>> {
        let place = place_of(operation, namespaces.len())?;
        let namespace = namespaces
            .get(place)
            .ok_or_else(|| Error::internal("an index of nsInfo was not checked"))?;
        match operation.first().map_or("", |(kind, _)| kind) {
            "insert" => {
                let args = Arguments::new("BulkWriteInsertOp", operation);
                args.only(&["insert", "document"])?;
                Ok(Operation::Insert {
                    namespace,
                    document: args
                        .doc_field("document")?
                        .ok_or_else(|| args.missing("document"))?,
                })
            }
            "update" => Ok(Operation::Update {
                namespace,
                statement: renamed(
                    "BulkWriteUpdateOp",
                    operation,
                    UPDATE_FIELDS,
                    &["filter", "updateMods"],
                )?,
            }),
            "delete" => {
                let mut statement =
                    renamed("BulkWriteDeleteOp", operation, DELETE_FIELDS, &["filter"])?;
                let args = Arguments::new("BulkWriteDeleteOp", operation);
                let multi = args.bool("multi")?.unwrap_or(false);
                statement.push("limit", i32::from(!multi));
                Ok(Operation::Delete {
                    namespace,
                    statement,
                })
            }
            other => Err(unknown_kind(other)),
        }
    }
}

/// The index in `nsInfo` of an operation's collection.
fn place_of(operation: &Doc, namespaces: usize) -> Result<usize> {
    let Some((kind, place)) = operation.first() else {
        return Err(Error::bad_value("BulkWrite: an operation is empty"));
    };
    let name = match kind {
        "insert" => "BulkWriteInsertOp",
        "update" => "BulkWriteUpdateOp",
        "delete" => "BulkWriteDeleteOp",
        other => return Err(unknown_kind(other)),
    };
    if !place.is_number() {
        return Err(Arguments::new(name, operation).wrong_type(kind, &place, "type 'int'"));
    }
    usize::try_from(crate::arguments::whole(&place))
        .ok()
        .filter(|place| *place < namespaces)
        .ok_or_else(|| {
            Error::bad_value(format!(
                "BulkWrite ops entry {name} has an invalid nsInfo index."
            ))
        })
}

fn unknown_kind(kind: &str) -> Error {
    Error::bad_value(format!(
        "Unrecognized bulkWrite operation '{kind}'; expected insert, update or delete"
    ))
}

/// Turns an operation into a statement of the command for one collection.
fn renamed(
    name: &'static str,
    operation: &Doc,
    fields: Renamed,
    required: &[&str],
) -> Result<DocBuf> {
    let args = Arguments::new(name, operation);
    let mut statement = DocBuf::with_capacity(operation.len_bytes());
    for (field, value) in operation.iter().skip(1) {
        let Some((_, there)) = fields.iter().find(|(here, _)| *here == field) else {
            return Err(args.unknown(field));
        };
        if !there.is_empty() {
            statement.push(there, value);
        }
    }
    for field in required {
        if !operation.contains_key(field) {
            return Err(args.missing(field));
        }
    }
    Ok(statement)
}

/// Runs the leading inserts into one collection in one batch. Returns how many operations that is.
fn insert_run(
    cx: &Context<'_>,
    namespace: &Namespace,
    operations: &[Operation<'_>],
    options: InsertOptions,
    retry: Option<&mut RetryableWrite>,
    (first, ids): (usize, &Statements),
    results: &mut Results,
) -> Result<usize> {
    let documents: Vec<&Doc> = operations
        .iter()
        .map_while(|operation| match operation {
            Operation::Insert {
                namespace: other,
                document,
            } if other == &namespace => Some(*document),
            _ => None,
        })
        .collect();
    let ids: Vec<i32> = (first..first + documents.len())
        .map(|at| ids.id(at))
        .collect();
    match insert_once(cx, namespace, &documents, options, retry, &ids) {
        Ok((_, errors)) => {
            let mut errors = errors.into_iter().peekable();
            for place in 0..documents.len() {
                match errors.next_if(|(failed, _)| *failed == place) {
                    None => results.inserted(first + place),
                    Some((_, failure)) => {
                        results.failed(first + place, failure, false);
                        if options.ordered {
                            break;
                        }
                    }
                }
            }
        }
        // The collection cannot be written, so each document fails.
        Err(failure) => {
            for place in 0..documents.len() {
                results.failed(first + place, failure.clone(), false);
                if options.ordered {
                    break;
                }
            }
        }
    }
    Ok(documents.len())
}

/// Runs the leading updates of one collection, up to one that cannot be read. Returns how many operations that is.
fn update_run(
    cx: &Context<'_>,
    namespace: &Namespace,
    operations: &[Operation<'_>],
    options: &WriteOptions,
    mut retry: Option<&mut RetryableWrite>,
    (first, ids): (usize, &Statements),
    results: &mut Results,
) -> usize {
    let mut requests = Vec::new();
    for operation in operations {
        let Operation::Update {
            namespace: other,
            statement,
        } = operation
        else {
            break;
        };
        if *other != namespace {
            break;
        }
        match update::parse_statement(statement, options.variables.as_deref()) {
            Ok(request) => requests.push(UpdateRequest {
                bypass_validation: options.bypass_validation,
                keep_empty_timestamps: options.keep_empty_timestamps,
                unacknowledged: cx.write_concern.is_unacknowledged(),
                ..request
            }),
            Err(error) if requests.is_empty() => {
                results.updated(first, Err(error));
                return 1;
            }
            Err(_) => break,
        }
    }
    let unacknowledged = cx.write_concern.is_unacknowledged();
    let takes_fast = cx.store().takes_fast_updates(namespace, unacknowledged);
    let mut next = 0;
    while let Some(request) = requests.get(next) {
        let at = first + next;
        let group = if takes_fast {
            let rest = requests.get(next..).unwrap_or_default();
            update_fast(cx, namespace, rest, retry.as_deref_mut(), |place| {
                ids.id(at + place)
            })
        } else {
            Group::default()
        };
        let sent = group.done.len();
        for (place, done) in group.done.into_iter().enumerate() {
            results.updated(at + place, Ok(done));
        }
        next += sent;
        let done = match group.failure {
            Some(error) => Err(error),
            None if sent > 0 => continue,
            None => update_once(cx, namespace, request, retry.as_deref_mut(), ids.id(at)),
        };
        results.updated(first + next, done);
        next += 1;
        if (options.ordered && results.errors > 0) || results.of_command.is_some() {
            break;
        }
    }
    next
}

/// The results of the operations.
#[derive(Default)]
struct Results {
    errors_only: bool,
    items: Vec<DocBuf>,
    errors: u64,
    error_bytes: usize,
    last_failure: Option<Error>,
    /// The error of an operation that ends the whole command.
    of_command: Option<Error>,
    inserted: u64,
    matched: u64,
    modified: u64,
    upserted: u64,
    deleted: u64,
}

impl Results {
    fn new(errors_only: bool) -> Results {
        Results {
            errors_only,
            ..Results::default()
        }
    }

    fn inserted(&mut self, at: usize) {
        self.inserted += 1;
        self.done(at, 1, None, None);
    }

    fn updated(&mut self, at: usize, done: Result<Updated>) {
        match done {
            Ok(done) => {
                if done.upserted.is_some() {
                    self.upserted += 1;
                } else {
                    self.matched += done.n;
                }
                self.modified += done.modified;
                self.done(at, done.n, Some(done.modified), done.upserted);
            }
            Err(failure) => self.failed(at, failure, true),
        }
    }

    fn deleted(&mut self, at: usize, done: Result<u64>) {
        match done {
            Ok(n) => {
                self.deleted += n;
                self.done(at, n, None, None);
            }
            Err(failure) => self.failed(at, failure, false),
        }
    }

    fn done(&mut self, at: usize, n: u64, modified: Option<u64>, upserted: Option<OwnedValue>) {
        if self.errors_only {
            return;
        }
        let mut item = DocBuf::new();
        item.push("ok", 1.0);
        item.push("idx", at as i32);
        push_count(&mut item, "n", n);
        if let Some(modified) = modified {
            push_count(&mut item, "nModified", modified);
        }
        if let Some(id) = upserted {
            item.push_doc("upserted", |upserted| upserted.push("_id", &id));
        }
        self.items.push(item);
    }

    fn failed(&mut self, at: usize, failure: Error, is_update: bool) {
        let failure = errors::truncated(failure);
        self.errors += 1;
        if errors::ends_command(failure.code()) {
            self.of_command = Some(failure.clone());
        }
        let mut item = DocBuf::new();
        item.push("ok", 0.0);
        item.push("idx", at as i32);
        item.push("code", failure.code().code());
        // As in the other write commands, the errors of one reply are bounded.
        let fits = self.error_bytes < ERROR_BYTES_MAX;
        self.error_bytes += errors::len_bytes(&failure);
        item.push("errmsg", if fits { failure.message() } else { "" });
        if let Some(details) = failure.details().filter(|_| fits) {
            item.push_all(details);
        }
        item.push("n", 0);
        if is_update {
            item.push("nModified", 0);
        }
        self.items.push(item);
        self.last_failure = Some(failure);
    }

    fn counts(&self) -> DocBuf {
        let mut counts = DocBuf::new();
        push_count(&mut counts, "nErrors", self.errors);
        push_count(&mut counts, "nInserted", self.inserted);
        push_count(&mut counts, "nMatched", self.matched);
        push_count(&mut counts, "nModified", self.modified);
        push_count(&mut counts, "nUpserted", self.upserted);
        push_count(&mut counts, "nDeleted", self.deleted);
        counts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::sessions::SessionId;
    use crate::testing::TestServer;

    fn bulk(ops: &DocBuf, options: &DocBuf) -> DocBuf {
        let mut command = doc! {"bulkWrite": 1};
        command.push_all(ops);
        command.push(
            "nsInfo",
            doc! {"a": [{"ns": "test.a"}, {"ns": "other.b"}]}
                .get("a")
                .unwrap(),
        );
        command.push_all(options);
        command
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn several_collections_are_written() {
        let mut server = TestServer::new();
        let ops = doc! {"ops": [
            {"insert": 0, "document": {"_id": 1, "x": 1}},
            {"insert": 0, "document": {"_id": 2, "x": 1}},
            {"insert": 1, "document": {"_id": 3}},
            {"update": 0, "filter": {"x": 1}, "updateMods": {"$set": {"y": 1}}, "multi": true},
            {"update": 1, "filter": {"_id": 9}, "updateMods": {"$set": {"y": 1}}, "upsert": true},
            {"update": 0, "filter": {}, "sort": {"_id": -1}, "updateMods": {"$set": {"z": 1}}},
            {"delete": 1, "filter": {}, "multi": true},
            {"delete": 0, "filter": {"z": 1}},
        ]};
        let reply = server.run("admin", bulk(&ops, &doc! {}));
        let expected = doc! {
            "cursor": {
                "firstBatch": [
                    {"ok": 1.0, "idx": 0, "n": 1},
                    {"ok": 1.0, "idx": 1, "n": 1},
                    {"ok": 1.0, "idx": 2, "n": 1},
                    {"ok": 1.0, "idx": 3, "n": 2, "nModified": 2},
                    {"ok": 1.0, "idx": 4, "n": 1, "nModified": 0, "upserted": {"_id": 9}},
                    {"ok": 1.0, "idx": 5, "n": 1, "nModified": 1},
                    {"ok": 1.0, "idx": 6, "n": 2},
                    {"ok": 1.0, "idx": 7, "n": 1},
                ],
                "id": 0i64,
                "ns": "admin.$cmd.bulkWrite",
            },
            "nErrors": 0, "nInserted": 3, "nMatched": 3, "nModified": 3, "nUpserted": 1,
            "nDeleted": 3, "ok": 1.0,
        };
        assert_eq!(reply, expected);
        let found = server.run("test", doc! {"find": "a"});
        assert_eq!(
            server.batch(&found, "firstBatch"),
            [doc! {"_id": 1, "x": 1, "y": 1}]
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failures_are_named_and_end_an_ordered_bulk() {
        let mut server = TestServer::new();
        let ops = doc! {"ops": [
            {"insert": 0, "document": {"_id": 1}},
            {"insert": 0, "document": {"_id": 1}},
            {"update": 0, "filter": {"_id": 1}, "updateMods": {"$inc": {"_id": 1}}},
            {"insert": 0, "document": {"_id": 2}},
        ]};
        let reply = server.run("admin", bulk(&ops, &doc! {"errorsOnly": true}));
        let items = server.batch(&reply, "firstBatch");
        assert_eq!(items.len(), 1);
        let error = items.first().unwrap();
        assert_eq!(error.get_i32("idx"), Some(1));
        assert_eq!(error.get_i32("code"), Some(11000));
        assert_eq!(error.get_doc("keyValue"), Some(&*doc! {"_id": 1}));
        assert_eq!(
            (reply.get_i32("nErrors"), reply.get_i32("nInserted")),
            (Some(1), Some(1))
        );
        let reply = server.run("admin", bulk(&ops, &doc! {"ordered": false}));
        assert_eq!(
            (reply.get_i32("nErrors"), reply.get_i32("nInserted")),
            (Some(3), Some(1))
        );
        let codes: Vec<_> = server
            .batch(&reply, "firstBatch")
            .iter()
            .map(|item| item.get_i32("code"))
            .collect();
        assert_eq!(codes, [Some(11000), Some(11000), Some(66), None]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn results_come_in_batches() {
        let mut server = TestServer::new();
        let ops = doc! {"ops": [
            {"insert": 0, "document": {"_id": 1}},
            {"insert": 1, "document": {"_id": 1}},
            {"insert": 0, "document": {"_id": 2}},
        ]};
        let reply = server.run("admin", bulk(&ops, &doc! {"cursor": {"batchSize": 1}}));
        assert_eq!(server.batch(&reply, "firstBatch").len(), 1);
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        let more = server.run(
            "admin",
            doc! {"getMore": id, "collection": "$cmd.bulkWrite"},
        );
        assert_eq!(server.batch(&more, "nextBatch").len(), 2);
    }

    /// The error of each small operation may quote a large stored value.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_failures_quote_is_bounded() {
        let mut server = TestServer::new();
        let large = "x".repeat(3 << 20);
        let validator = doc! {"$jsonSchema": {"properties": {"u": {"bsonType": "int"}}}};
        server.run("test", doc! {"create": "a", "validator": &validator});
        server.run(
            "test",
            doc! {"insert": "a", "documents": [{"_id": 1, "big": &large}]},
        );
        let update =
            doc! {"update": 0, "filter": {"_id": 1}, "updateMods": [{"$set": {"u": "$big"}}]};
        let ops = doc! {"ops": [&update, &update, &update, &update, &update, &update]};
        let reply = server.run("admin", bulk(&ops, &doc! {"ordered": false}));
        let items = server.batch(&reply, "firstBatch");
        assert_eq!((items.len(), reply.get_i32("nErrors")), (6, Some(6)));
        let (first, others) = items.split_first().unwrap();
        assert!(
            first
                .get_doc("errInfo")
                .is_some_and(|info| info.len_bytes() > 3 << 20)
        );
        for (at, item) in others.iter().enumerate() {
            let expected = doc! {
                "ok": 0.0, "idx": at as i32 + 1, "code": 121, "errmsg": "", "n": 0, "nModified": 0,
            };
            assert_eq!(*item, expected);
        }
        // The last error is complete.
        let last = server.run("admin", doc! {"getLastError": 1});
        assert!(last.get_str("err").is_some_and(|text| !text.is_empty()));
    }

    /// With `w: 0` a client that waits for a reply gets the counts, and no results of operations.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_unacknowledged_bulk_is_answered_with_counts_only() {
        let mut server = TestServer::new();
        let ops = doc! {"ops": [
            {"insert": 0, "document": {"_id": 1}},
            {"insert": 1, "document": {"_id": 1}},
            {"insert": 0, "document": {"_id": 1}},
        ]};
        let mut run = |concern: DocBuf, failed: i32| {
            let options =
                doc! {"ordered": false, "cursor": {"batchSize": 1}, "writeConcern": &concern};
            let reply = server.run("admin", bulk(&ops, &options));
            assert_eq!(reply.get_i32("nErrors"), Some(failed), "{concern:?}");
            assert_eq!(reply.get_i32("nInserted"), Some(3 - failed), "{concern:?}");
            reply.get_doc("cursor").unwrap().to_owned()
        };
        let none = doc! {"firstBatch": [], "id": 0i64, "ns": "admin.$cmd.bulkWrite"};
        assert_eq!(run(doc! {"w": 0}, 1), none);
        assert_eq!(run(doc! {"w": 0, "j": false}, 3), none);
        // A client that waits for the journal gets the full reply.
        let cursor = run(doc! {"w": 0, "j": true}, 3);
        assert_eq!(cursor.get_array("firstBatch").unwrap().count(), 1);
        assert_ne!(cursor.get_i64("id"), Some(0));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_retry_does_nothing_again() {
        let mut server = TestServer::new();
        let lsid = SessionId::random().to_doc();
        let ops = doc! {"ops": [
            {"insert": 0, "document": {"_id": 1, "n": 0}},
            {"update": 0, "filter": {"_id": 1}, "updateMods": {"$inc": {"n": 1}}},
            {"insert": 1, "document": {"_id": 1}},
            {"delete": 1, "filter": {"_id": 1}},
        ]};
        let options = doc! {"lsid": &lsid, "txnNumber": 1i64};
        let first = server.run("admin", bulk(&ops, &options));
        assert_eq!(server.run("admin", bulk(&ops, &options)), first);
        let found = server.run("test", doc! {"find": "a"});
        assert_eq!(
            server.batch(&found, "firstBatch"),
            [doc! {"_id": 1, "n": 1}]
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_bulks_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"ops": []}, 16),
            (doc! {"ops": [{"insert": 2, "document": {}}]}, 2),
            (doc! {"ops": [{"insert": -1, "document": {}}]}, 2),
            (doc! {"ops": [{"insert": "a", "document": {}}]}, 14),
            (doc! {"ops": [{"insert": 0}]}, 40414),
            (doc! {"ops": [{"insert": 0, "document": {}, "x": 1}]}, 40415),
            (doc! {"ops": [{"update": 0, "filter": {}}]}, 40414),
            (
                doc! {"ops": [{"delete": 0, "filter": {}, "limit": 1}]},
                40415,
            ),
            (doc! {"ops": [{"replace": 0}]}, 2),
            (doc! {}, 40414),
        ];
        for (ops, code) in cases {
            assert_eq!(server.code("admin", bulk(&ops, &doc! {})), code, "{ops:?}");
        }
        let good = doc! {"ops": [{"insert": 0, "document": {}}]};
        assert_eq!(server.code("test", bulk(&good, &doc! {})), 13);
    }
}
