use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{Namespace, Verbosity};

use super::aggregation::{Aggregation, name_of, parse};
use super::explanation::{check_fields, explain_pipeline};
use super::forward;
use super::{backup_stream, watch};
use crate::arguments::Arguments;
use crate::authorization::{Action, NO_COLLECTION, Needs, Requested, of_pipeline};
use crate::commands::diagnostics::current_op;
use crate::commands::sessions::kill_all_sessions::owners;
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;
use crate::cursors::{Cursor, Source};
use crate::reply::{BatchOptions, first_batch};
use crate::reply_quota::ReplyQuota;
use crate::sessions::SessionId;

pub struct Aggregate;

const SPEC: Spec = Spec {
    names: &["aggregate"],
    doc: "Runs a pipeline of stages over documents.",
    fields: &[
        "collectionUUID",
        "pipeline",
        "cursor",
        "explain",
        "allowDiskUse",
        "bypassDocumentValidation",
        "hint",
        "collation",
        "let",
        "writeConcern",
    ],
    unsupported_fields: &["needsMerge", "fromMongos", "exchange", "passthroughToShard"],
    counts_shapes: true,
    in_transactions: InTransactions::Always,
    ..Spec::READ
};

impl Command for Aggregate {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let stages = request.args().array("pipeline")?.unwrap_or(Doc::empty());
        match request.collection()? {
            Some((name, by_uuid)) => {
                let needs = of_pipeline(request, name, stages)?;
                Ok(if by_uuid {
                    needs.and(Needs::cluster(Action::UseUuid))
                } else {
                    needs
                })
            }
            None => of_pipeline(request, NO_COLLECTION.into(), stages),
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let explained = args.bool("explain")?.unwrap_or(false);
        if explained {
            check_fields(&SPEC, &args, cx.body)?;
            let variables = args.variables()?;
            let planner = Verbosity::QueryPlanner;
            return explain_pipeline(cx, cx.body, &args, variables.as_deref(), planner);
        }
        // Drivers of 2012 to 2015 send no `cursor`.
        let inline = args.doc_field("cursor")?.is_none();
        if inline && !cx.legacy {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "The 'cursor' option is required, except for aggregate with the explain argument",
            ));
        }
        if args.bool("apiStrict")?.unwrap_or(false)
            && let Some(pipeline) = args.array("pipeline")?
        {
            check_stable_api(pipeline)?;
        }
        let batch = BatchOptions::of_cursor_field(&args)?;
        if cx.statement.is_some()
            && let Some(pipeline) = args.array("pipeline")?
        {
            check_in_transaction(pipeline)?;
        }
        let variables = args.variables()?;
        let request = parse(cx, &args, variables.as_deref())?;
        if writes(request.request.pipeline) {
            cx.connection.running.lock().writes = true;
            if !cx.server.leads() && cx.db != "local" {
                return forward::to_primary(cx);
            }
        }
        let pipeline = request.request.pipeline;
        let cursor = if watch::is_change_stream(pipeline) {
            watch::open(cx, &request)?
        } else if backup_stream::is_backup_stream(pipeline) {
            backup_stream::open(cx, &request)?
        } else {
            open(cx, &request)?
        };
        if inline {
            return inline_result(cx, cursor);
        }
        first_batch(cx, cursor, batch)
    }
}

/// The reply of MongoDB 2.2 to 3.4 without a cursor: everything in one document.
fn inline_result(cx: &mut Context<'_>, mut cursor: Cursor) -> Result<DocBuf> {
    let room = ReplyQuota::new(cx.server, &cx.limits, &mut cx.operation.permits);
    let result = cursor.batch(None, &mut room.last())?;
    if !cursor.ended() {
        return Err(Error::location(
            16389,
            "aggregation result exceeds maximum document size (16MB); use the option 'cursor'",
        ));
    }
    cx.count_returned(result.len());
    Ok(result.into_field("result"))
}

/// Whether a pipeline writes its documents to a collection.
pub fn writes(pipeline: &Doc) -> bool {
    let last = pipeline.values().last();
    let stage = last.and_then(|stage| stage.as_doc()?.first());
    matches!(stage, Some(("$out" | "$merge", _)))
}

/// The resources that a pipeline needs besides the server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineNeeds {
    Memory,
    Read,
    /// A collection that the last stage writes.
    Written,
}

/// The resources that a pipeline needs, by the names of its stages.
pub fn reach(pipeline: &Doc) -> PipelineNeeds {
    if writes(pipeline) {
        return PipelineNeeds::Written;
    }
    let mut stages = pipeline
        .values()
        .filter_map(|stage| stage.as_doc()?.first());
    let from_memory = stages
        .next()
        .is_some_and(|(name, _)| SERVER_STAGES.contains(&name));
    let other_sources = ["$lookup", "$graphLookup", "$unionWith", "$facet"];
    if from_memory && !stages.any(|(name, _)| other_sources.contains(&name)) {
        PipelineNeeds::Memory
    } else {
        PipelineNeeds::Read
    }
}

/// Stages whose documents the server makes.
const SERVER_STAGES: [&str; 5] = [
    "$querySettings",
    "$currentOp",
    "$listLocalSessions",
    "$listSessions",
    "$queryStats",
];

/// Refuses stages that a transaction may not have, also in the pipelines inside of stages.
///
/// # Errors
/// `OperationNotSupportedInTransaction` (263).
fn check_in_transaction(pipeline: &Doc) -> Result<()> {
    const FORBIDDEN: [&str; 13] = [
        "$querySettings",
        backup_stream::STAGE,
        "$changeStream",
        "$collStats",
        "$currentOp",
        "$indexStats",
        "$listLocalSessions",
        "$listSessions",
        "$merge",
        "$out",
        "$planCacheStats",
        "$queryStats",
        "$unionWith",
    ];
    for (name, spec) in pipeline.values().filter_map(|s| s.as_doc()?.first()) {
        if FORBIDDEN.contains(&name) {
            return Err(Error::new(
                ErrorCode::OperationNotSupportedInTransaction,
                format!(
                    "Operation not permitted in transaction :: caused by :: Aggregation stage: \
                     {name} cannot run within a multi-document transaction."
                ),
            ));
        }
        let Some(spec) = spec.as_doc() else {
            continue;
        };
        for (field, value) in spec.iter() {
            if let Value::Array(inner) = value
                && (name == "$facet" || (name == "$lookup" && field == "pipeline"))
            {
                check_in_transaction(inner)?;
            }
        }
    }
    Ok(())
}

/// Refuses stages that are not in version 1 of the Stable API.
fn check_stable_api(pipeline: &Doc) -> Result<()> {
    for (name, spec) in pipeline.values().filter_map(|s| s.as_doc()?.first()) {
        let outside = match name {
            backup_stream::STAGE
            | "$currentOp"
            | "$indexStats"
            | "$listLocalSessions"
            | "$listSessions"
            | "$planCacheStats"
            | "$querySettings"
            | "$queryStats"
            | "$search"
            | "$searchMeta"
            | "$vectorSearch" => true,
            "$collStats" => spec
                .as_doc()
                .is_some_and(|s| s.iter().any(|(key, _)| key != "count")),
            _ => false,
        };
        if outside {
            return Err(Error::new(
                ErrorCode::APIStrictError,
                format!("stage {name} is not allowed with 'apiStrict: true' in API Version 1"),
            ));
        }
    }
    Ok(())
}

fn open(cx: &Context<'_>, aggregation: &Aggregation<'_>) -> Result<Cursor> {
    let Aggregation { namespace, request } = aggregation;
    let own;
    let mut request = request.clone();
    if let Some(documents) = server_documents(cx, namespace.as_ref(), request.pipeline)? {
        own = behind(documents, request.pipeline);
        request.pipeline = own.as_doc();
    }
    let query = cx
        .store()
        .aggregate(cx.db, namespace.as_ref(), &request, &cx.limits)?;
    let name = name_of(cx, namespace.as_ref());
    Ok(Cursor::new(name, Source::Query(Box::new(query))))
}

/// The documents of a first stage whose source is the server.
fn server_documents(
    cx: &Context<'_>,
    namespace: Option<&Namespace>,
    pipeline: &Doc,
) -> Result<Option<Vec<DocBuf>>> {
    let first = pipeline.values().next().and_then(|stage| stage.as_doc());
    let Some((name, spec)) =
        (first.and_then(Doc::first)).filter(|(name, _)| SERVER_STAGES.contains(name))
    else {
        return Ok(None);
    };
    let Value::Document(spec) = spec else {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            format!(
                "{name} options must be specified in an object, but found: {}",
                spec.type_name()
            ),
        ));
    };
    let mut sessions = Vec::new();
    if matches!(name, "$listLocalSessions" | "$listSessions") {
        sessions = list_sessions(cx, name, spec)?;
    }
    if name == "$listSessions" {
        if namespace.is_none_or(|ns| ns.as_str() != "config.system.sessions") {
            return Err(Error::new(
                ErrorCode::InvalidNamespace,
                "$listSessions may only be run against config.system.sessions",
            ));
        }
        return Ok(Some(sessions));
    }
    let on_database = namespace.is_none();
    let of_admin = matches!(name, "$currentOp" | "$querySettings" | "$queryStats");
    if !on_database || (of_admin && cx.db != "admin") {
        return Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("{name} must be run against the 'admin' database with {{aggregate: 1}}"),
        ));
    }
    if name == "$queryStats" {
        Arguments::new(name, spec).only(&["transformIdentifiers"])?;
        if spec.contains_key("transformIdentifiers") {
            return Err(Error::not_supported(
                "the option 'transformIdentifiers' of $queryStats",
            ));
        }
        return Ok(Some(cx.server.records.query_stats.to_docs()));
    }
    if name == "$querySettings" {
        let args = Arguments::new(name, spec);
        args.only(&["showDebugQueryShape"])?;
        let shows_shape = args.bool("showDebugQueryShape")?.unwrap_or(false);
        return Ok(Some(
            cx.server.execution.query_settings.to_docs(shows_shape),
        ));
    }
    if name == "$currentOp" {
        return current_op::stage(cx.server, cx.caller, spec).map(Some);
    }
    Ok(Some(sessions))
}

/// The sessions of the caller, of the users that `$listSessions` names, or of all.
fn list_sessions(cx: &Context<'_>, stage: &str, spec: &Doc) -> Result<Vec<DocBuf>> {
    let args = Arguments::new(stage, spec);
    args.only(&["allUsers", "users"])?;
    let users = args.documents("users")?;
    let owners = users.map(|users| owners(stage, &users)).transpose()?;
    let all = args.bool("allUsers")?.unwrap_or(false);
    let is_shown = |session: &SessionId| match &owners {
        _ if all => true,
        // Without authorization, sessions have no owners.
        Some(owners) if cx.caller.is_checked() => {
            let owner = session.owner();
            owner.is_some_and(|owner| owners.contains(&owner))
        }
        _ => cx.caller.owns(*session),
    };
    let mut shown = cx.server.clients.sessions.list();
    shown.retain(is_shown);
    Ok(shown
        .into_iter()
        .map(|id| doc! {"_id": &id.to_doc()})
        .collect())
}

/// The pipeline with its first stage replaced by documents.
fn behind(documents: Vec<DocBuf>, pipeline: &Doc) -> ArrayBuf {
    let list: ArrayBuf = documents.iter().map(|document| &**document).collect();
    let mut replaced = ArrayBuf::new();
    // As a literal, so that nothing in it is evaluated as an expression.
    replaced.push(&doc! {"$documents": {"$literal": &list}});
    for stage in pipeline.values().skip(1) {
        replaced.push(stage);
    }
    replaced
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::request::Request;
    use crate::testing::TestServer;
    use frond_runtime::AdmissionClass;

    fn aggregate(server: &mut TestServer, mut command: DocBuf) -> Vec<DocBuf> {
        command.push("cursor", &doc! {});
        let reply = server.run("test", command);
        server.batch(&reply, "firstBatch")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn stages_run() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let found = aggregate(
            &mut server,
            doc! {"aggregate": "c", "pipeline": [
                {"$match": {"_id": {"$gte": 5}}}, {"$group": {"_id": null, "n": {"$sum": 1}, "a": {"$max": "$a"}}},
            ]},
        );
        assert_eq!(found, [doc! {"_id": null, "n": 5, "a": 90}]);
        let found = aggregate(
            &mut server,
            doc! {"aggregate": "c", "let": {"x": 3}, "pipeline": [
                {"$match": {"$expr": {"$eq": ["$_id", "$$x"]}}},
            ]},
        );
        assert_eq!(found, [doc! {"_id": 3, "a": 30}]);
        assert!(aggregate(&mut server, doc! {"aggregate": "none", "pipeline": []}).is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_long_result_has_a_cursor() {
        let mut server = TestServer::new();
        server.fill("c", 30);
        let command = doc! {
            "aggregate": "c", "pipeline": [{"$project": {"b": {"$add": ["$a", 1]}}}],
            "cursor": {"batchSize": 0},
        };
        let reply = server.run("test", command);
        assert!(server.batch(&reply, "firstBatch").is_empty());
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        let reply = server.run("test", doc! {"getMore": id, "collection": "c"});
        assert_eq!(server.batch(&reply, "nextBatch").len(), 30);
    }

    /// A command that shows who holds the tickets must not need one itself.
    #[test]
    fn a_pipeline_over_operations_needs_no_ticket() {
        let admission = |pipeline: DocBuf| {
            let mut command = doc! {"aggregate": 1};
            command.push_all(&pipeline);
            Request::new("test", &command).admission
        };
        for stage in ["$currentOp", "$listLocalSessions", "$listSessions"] {
            let mut first = DocBuf::new();
            first.push(stage, &doc! {});
            assert_eq!(admission(doc! {"pipeline": [&first]}), None);
            assert_eq!(
                admission(doc! {"pipeline": [&first, {"$match": {"a": 1}}]}),
                None
            );
            let joined = doc! {"pipeline": [&first, {"$lookup": {"from": "c"}}]};
            assert_eq!(admission(joined), Some(AdmissionClass::Read));
            let written = doc! {"pipeline": [&first, {"$out": "c"}]};
            assert_eq!(admission(written), Some(AdmissionClass::Write));
        }
        assert_eq!(
            admission(doc! {"pipeline": [{"$match": {}}]}),
            Some(AdmissionClass::Read)
        );
        assert_eq!(admission(doc! {}), Some(AdmissionClass::Read));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_server_answers_some_stages() {
        let mut server = TestServer::new();
        let command = doc! {
            "aggregate": 1, "cursor": {},
            "pipeline": [{"$currentOp": {"idleConnections": true}}, {"$match": {"active": true}}, {"$project": {"ns": 1}}],
        };
        let reply = server.run("admin", command.clone());
        assert_eq!(
            server.batch(&reply, "firstBatch"),
            [doc! {"ns": "admin.$cmd"}]
        );
        assert_eq!(server.code("test", command), 73);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_aggregations_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"aggregate": "c", "pipeline": []}, 9),
            (doc! {"aggregate": "c", "cursor": {}}, 40414),
            (doc! {"aggregate": "c", "pipeline": 1, "cursor": {}}, 14),
            (doc! {"aggregate": "c", "pipeline": [1], "cursor": {}}, 14),
            (
                doc! {"aggregate": "c", "pipeline": [{"$nonsense": 1}], "cursor": {}},
                40324,
            ),
            (
                doc! {"aggregate": "c", "pipeline": [], "cursor": {"x": 1}},
                40415,
            ),
            (doc! {"aggregate": 2, "pipeline": [], "cursor": {}}, 9),
            (
                doc! {"aggregate": "c", "pipeline": [], "cursor": {}, "collation": {"locale": "xx"}},
                2,
            ),
            (
                doc! {"aggregate": "c", "pipeline": [], "cursor": {}, "x": 1},
                40415,
            ),
            (
                doc! {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}},
                40573,
            ),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_stable_api_has_not_all_stages() {
        let mut server = TestServer::new();
        let strictly = |stage: DocBuf| {
            doc! {
                "aggregate": "c", "pipeline": [stage], "cursor": {},
                "apiVersion": "1", "apiStrict": true,
            }
        };
        server.run("test", strictly(doc! {"$match": {}}));
        for stage in [
            doc! {"$indexStats": {}},
            doc! {"$listLocalSessions": {}},
            doc! {"$collStats": {"storageStats": {}}},
        ] {
            assert_eq!(server.code("test", strictly(stage)), 323);
        }
        let distinct = doc! {"distinct": "c", "key": "a", "apiVersion": "1", "apiStrict": true};
        assert_eq!(server.code("test", distinct), 323);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_explanation_takes_no_write_concern() {
        let mut server = TestServer::new();
        server.fill("c", 1);
        for stage in [
            doc! {"$out": "other"},
            doc! {"$merge": {"into": "other"}},
            doc! {"$match": {}},
        ] {
            let command = doc! {
                "aggregate": "c", "pipeline": [stage], "cursor": {}, "writeConcern": {"w": 1},
            };
            let mut explained = command.clone();
            explained.push("explain", true);
            for command in [explained, doc! {"explain": &command}] {
                let reply = server.reply("test", command);
                let message = "Aggregation explain does not support the 'writeConcern' option";
                assert_eq!(reply.get_str("errmsg"), Some(message));
                assert_eq!(reply.get_i32("code"), Some(9));
            }
            server.run("test", command);
        }
    }
}
