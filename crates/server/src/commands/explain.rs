//! `explain`

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_query::Environment;
use frond_query::aggregate::{Front, Pipeline};
use frond_query::update::{ApplyContext, Update};
use frond_store::{
    AggregateRequest, Durability, FindRequest, Namespace, Purpose, Task, Verbosity, views,
};

use super::build_info::{COMPATIBLE_VERSION, GIT_VERSION};
use super::{
    Command, Traits, aggregate, count, delete, find, find_and_modify, proper_name, update,
};
use crate::arguments::Arguments;
use crate::context::{Context, lacking};
use crate::failure::{ErrorCode, Failure, Result};
use crate::state::now_ms;

/// Shows how a command would find its documents.
pub struct Explain;

impl Command for Explain {
    fn names(&self) -> &'static [&'static str] {
        &["explain"]
    }

    fn doc(&self) -> &'static str {
        "Shows how a command would find its documents."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["verbosity"]
    }

    fn traits(&self) -> Traits {
        Traits {
            on_collection: false,
            ..Traits::READ
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let inner = args
            .doc_field("explain")?
            .ok_or_else(|| args.missing("explain"))?;
        let verbosity = verbosity(args.str("verbosity")?)?;
        explain(cx, inner, verbosity)
    }
}

fn verbosity(name: Option<&str>) -> Result<Verbosity> {
    match name {
        Some("queryPlanner") => Ok(Verbosity::QueryPlanner),
        Some("executionStats") => Ok(Verbosity::ExecutionStats),
        None | Some("allPlansExecution") => Ok(Verbosity::AllPlansExecution),
        Some(other) => Err(Failure::bad_value(format!(
            "Enumeration value '{other}' for field 'explain.verbosity' is not a valid value."
        ))),
    }
}

/// Explains a command, given as its document.
pub fn explain(cx: &mut Context<'_>, inner: &Doc, verbosity: Verbosity) -> Result<DocBuf> {
    let (name, target) = inner.first().unwrap_or(("", Value::Null));
    let not_explained = || {
        Failure::new(
            ErrorCode::CommandNotFound,
            format!("Explain failed due to unknown command: {name}"),
        )
    };
    let (_, command) = super::find(name).ok_or_else(not_explained)?;
    let proper = proper_name(command);
    let args = Arguments::new(proper, inner);
    check_fields(command, &args, inner)?;
    let variables = args.variables()?;
    let variables = variables.as_deref();
    if proper == "aggregate" {
        return explain_pipeline(cx, inner, &args, variables, verbosity);
    }
    let namespace = cx.namespace_of(&target)?;
    if cx.server.store.catalog().is_view(&namespace)
        && let Some(stages) = stages_on_view(proper, &args, variables)?
    {
        let request = AggregateRequest {
            pipeline: &stages,
            hint: find::hint(&args)?,
            variables,
            durability: Durability::Logged,
            allow_disk_use: None,
            bypass_validation: false,
            collation: args.collation()?,
        };
        return explain_stages(cx, inner, &namespace, &request, verbosity);
    }
    let run_for = |request: &FindRequest<'_>, purpose: &Purpose<'_>| {
        let store = &cx.server.store;
        let reply = store.explain(&namespace, request, purpose, verbosity, &cx.limits)?;
        Ok::<_, Failure>(reply)
    };
    let run = |request: &FindRequest<'_>| run_for(request, &Purpose::FIND);
    let mut reply = match proper {
        "find" => run(&find::Finding::parse(&args, variables)?.request)?,
        "count" => {
            let count = count::parse(&args)?;
            let request = FindRequest {
                filter: count.filter,
                skip: count.skip,
                limit: count.limit,
                hint: count.hint,
                collation: count.collation,
                ..FindRequest::default()
            };
            run_for(&request, &purpose(Task::Count, false))?
        }
        "distinct" => {
            let key = args.str("key")?.ok_or_else(|| args.missing("key"))?;
            let mut shown = doc! {key: 1};
            if key != "_id" {
                shown.push("_id", 0);
            }
            run(&FindRequest {
                filter: args.doc_field("query")?,
                projection: Some(&shown),
                hint: find::hint(&args)?,
                collation: args.collation()?,
                ..FindRequest::default()
            })?
        }
        "findAndModify" => {
            cx.server.store.catalog().check_writable(&namespace)?;
            let request = find_and_modify::parse(&args, variables)?;
            let found = FindRequest {
                filter: request.filter,
                sort: request.sort,
                limit: Some(1),
                hint: request.hint,
                variables: request.variables,
                collation: request.collation,
                ..FindRequest::default()
            };
            match &request.update {
                Some(update) if !request.remove => {
                    let change = would_change(update, &request.array_filters, variables)?;
                    let upsert = request.upsert;
                    let purpose = Purpose {
                        would_change: &change,
                        ..purpose(Task::Update { upsert }, true)
                    };
                    run_for(&found, &purpose)?
                }
                _ => run_for(&found, &purpose(Task::Delete, true))?,
            }
        }
        "update" => {
            cx.server.store.catalog().check_writable(&namespace)?;
            let statement = only_statement(&args, "updates")?;
            let request = update::parse_statement(statement, variables)?;
            let found = FindRequest {
                filter: Some(request.filter),
                sort: request.sort,
                limit: (!request.multi).then_some(1),
                hint: request.hint,
                variables: request.variables,
                collation: request.collation,
                ..FindRequest::default()
            };
            let change = would_change(&request.update, &request.array_filters, variables)?;
            let upsert = request.upsert;
            let purpose = Purpose {
                would_change: &change,
                ..purpose(Task::Update { upsert }, false)
            };
            run_for(&found, &purpose)?
        }
        "delete" => {
            cx.server.store.catalog().check_writable(&namespace)?;
            let statement = only_statement(&args, "deletes")?;
            let request = delete::parse_statement(statement, variables)?;
            let found = FindRequest {
                filter: Some(request.filter),
                limit: request.limit_one.then_some(1),
                hint: request.hint,
                variables: request.variables,
                collation: request.collation,
                ..FindRequest::default()
            };
            run_for(&found, &purpose(Task::Delete, false))?
        }
        _ => return Err(not_explained()),
    };
    finish(cx, inner, &mut reply);
    Ok(reply)
}

/// A purpose that changes no document.
fn purpose(task: Task, returns: bool) -> Purpose<'static> {
    Purpose {
        task,
        returns,
        ..Purpose::FIND
    }
}

/// Tells whether an update would change a document. One that needs the element that the filter matched
/// counts as a change.
fn would_change(
    update: &Value<'_>,
    array_filters: &[&Doc],
    variables: Option<&Doc>,
) -> Result<impl Fn(&Doc) -> bool + use<>> {
    let environment = Environment {
        variables,
        now_ms: now_ms(),
        ..Environment::default()
    };
    let update = Update::parse_value(update, array_filters, &environment)?;
    let at = ApplyContext::at(now_ms());
    Ok(move |doc: &Doc| {
        let applied = update.apply(doc, &at);
        update.needs_positional() || applied.is_ok_and(|applied| applied.modified)
    })
}

/// The pipeline that a command runs on a view; `None` for commands that fail there.
fn stages_on_view(
    command: &str,
    args: &Arguments<'_>,
    variables: Option<&Doc>,
) -> Result<Option<ArrayBuf>> {
    Ok(Some(match command {
        "find" => views::stages_of_find(&find::Finding::parse(args, variables)?.request)?,
        "count" => {
            let mut stages = views::stages_of_count(&count::parse(args)?);
            stages.push(&doc! {"$count": "count"});
            stages
        }
        "distinct" => views::stages_of_find(&FindRequest {
            filter: args.doc_field("query")?,
            ..FindRequest::default()
        })?,
        _ => return Ok(None),
    }))
}

/// Explains a pipeline: the query that its first stages become, and the other stages.
fn explain_pipeline(
    cx: &Context<'_>,
    inner: &Doc,
    args: &Arguments<'_>,
    variables: Option<&Doc>,
    verbosity: Verbosity,
) -> Result<DocBuf> {
    if args.get("writeConcern").is_some() {
        return Err(Failure::new(
            ErrorCode::FailedToParse,
            "Aggregation explain does not support the 'writeConcern' option",
        ));
    }
    let aggregation = aggregate::parse(cx, args, variables)?;
    let Some(namespace) = aggregation.namespace else {
        return Err(Failure::not_supported(
            "explaining a pipeline that reads no collection",
        ));
    };
    explain_stages(cx, inner, &namespace, &aggregation.request, verbosity)
}

/// Explains stages over a collection or a view.
fn explain_stages(
    cx: &Context<'_>,
    inner: &Doc,
    namespace: &Namespace,
    request: &AggregateRequest<'_>,
    verbosity: Verbosity,
) -> Result<DocBuf> {
    let view = cx.server.store.resolve_view(namespace)?;
    let of_view = view.as_ref().map(|view| view.with_stages(request.pipeline));
    let collator = match &view {
        Some(view) => view.collator()?,
        None => (cx.server.store.catalog()).collator(namespace, request.collation.as_ref()),
    };
    let namespace = view.as_ref().map_or(namespace, |view| &view.collection);
    let request = AggregateRequest {
        pipeline: of_view
            .as_ref()
            .map_or(request.pipeline, |stages| stages.as_doc()),
        ..request.clone()
    };
    let environment = Environment {
        variables: request.variables,
        now_ms: now_ms(),
        collator: &collator,
    };
    let pipeline = Pipeline::parse(request.pipeline, &environment)?;
    let pipeline = cx.server.store.with_geo_near_key(namespace, pipeline)?;
    let is_near = pipeline.geo_near_key().is_some();
    let (front, rest) = pipeline.split_front();
    let filter = front.spec.clone();
    if rest.has_own_source() {
        return Err(Failure::not_supported(
            "explaining a pipeline that reads no collection",
        ));
    }
    let find = FindRequest {
        filter: Some(&filter),
        sort: front.sort.as_deref(),
        skip: front.skip,
        limit: front.limit.filter(|limit| *limit > 0),
        hint: request.hint,
        variables: request.variables,
        collation: Some(collator.clone()),
        ..FindRequest::default()
    };
    let plan = cx
        .server
        .store
        .explain_find(namespace, &find, verbosity, &cx.limits)?;
    let mut reply = DocBuf::new();
    if rest.is_empty() {
        reply.push_all(&plan);
    } else {
        reply.push("explainVersion", "1");
        reply.push_array("stages", |stages| {
            // The stage is in the list as its cursor.
            let (name, behind) = if is_near {
                let behind = request.pipeline.values().skip(1).collect();
                ("$geoNearCursor", behind)
            } else {
                ("$cursor", stages_behind(request.pipeline, &front))
            };
            stages.push_doc(|stage| stage.push(name, &plan));
            for stage in behind {
                stages.push(stage);
            }
        });
    }
    finish(cx, inner, &mut reply);
    Ok(reply)
}

/// The stages that are not a part of the query.
fn stages_behind<'p>(pipeline: &'p Doc, front: &Front) -> Vec<Value<'p>> {
    let mut filters = front.matches;
    let mut ranges = true;
    let behind = pipeline.values().filter(|stage| {
        let name = stage.as_doc().and_then(|stage| Some(stage.first()?.0));
        match name {
            // Filters may have come from behind other stages.
            Some("$match") if filters > 0 => {
                filters -= 1;
                false
            }
            Some("$sort") if ranges && front.sort.is_some() => false,
            Some("$skip" | "$limit") if ranges => false,
            _ => {
                ranges = false;
                true
            }
        }
    });
    behind.collect()
}

/// Adds what every explanation ends with.
pub fn finish(cx: &Context<'_>, command: &Doc, reply: &mut DocBuf) {
    reply.push("command", command);
    reply.push(
        "serverInfo",
        &doc! {
            "host": &cx.server.host,
            "port": i32::from(cx.server.port),
            "version": COMPATIBLE_VERSION,
            "gitVersion": GIT_VERSION,
        },
    );
    // The limits of the stages, as MongoDB names them.
    const LIMIT: i32 = 100 * 1024 * 1024;
    reply.push(
        "serverParameters",
        &doc! {
            "internalQueryFacetBufferSizeBytes": LIMIT,
            "internalQueryFacetMaxOutputDocSizeBytes": LIMIT,
            "internalLookupStageIntermediateDocumentMaxSizeBytes": LIMIT,
            "internalDocumentSourceGroupMaxMemoryBytes": LIMIT,
            "internalQueryMaxBlockingSortMemoryUsageBytes": LIMIT,
            "internalQueryProhibitBlockingMergeOnMongoS": 0,
            "internalQueryMaxAddToSetBytes": LIMIT,
            "internalDocumentSourceSetWindowFieldsMaxMemoryBytes": LIMIT,
            "internalQueryFrameworkControl": "forceClassicEngine",
        },
    );
}

/// The fields of the inner command are as strict as those of the command itself.
fn check_fields(command: &dyn Command, args: &Arguments<'_>, inner: &Doc) -> Result<()> {
    const COMMON: [&str; 8] = [
        "$db",
        "comment",
        "maxTimeMS",
        "lsid",
        "readConcern",
        "writeConcern",
        "$readPreference",
        "$clusterTime",
    ];
    for (name, value) in inner.iter().skip(1) {
        if command.fields().contains(&name) {
            continue;
        }
        if command.lacking().contains(&name) && !crate::dispatch::means_off(&value) {
            return Err(lacking(proper_name(command), name));
        }
        if !COMMON.contains(&name) && !command.lacking().contains(&name) {
            return Err(args.unknown(name));
        }
    }
    Ok(())
}

/// The only statement of a write command.
fn only_statement<'a>(args: &Arguments<'a>, field: &str) -> Result<&'a Doc> {
    let statements = args.documents(field)?.ok_or_else(|| args.missing(field))?;
    match statements.as_slice() {
        [one] => Ok(*one),
        _ => Err(Failure::new(
            ErrorCode::InvalidLength,
            format!("explain takes one statement, not {}", statements.len()),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_command_that_finds_is_explained() {
        let mut server = TestServer::new();
        server.fill("c", 20);
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        );
        let filter = doc! {"a": {"$gte": 150}};
        let commands: Vec<DocBuf> = vec![
            doc! {"find": "c", "filter": &filter},
            doc! {"count": "c", "query": &filter},
            doc! {"distinct": "c", "key": "a", "query": &filter},
            doc! {"findAndModify": "c", "query": &filter, "remove": true},
            doc! {"update": "c", "updates": [{"q": &filter, "u": {"$set": {"b": 1}}, "multi": true}]},
            doc! {"delete": "c", "deletes": [{"q": &filter, "limit": 0}]},
        ];
        for command in commands {
            let explain = doc! {"explain": &command, "verbosity": "executionStats"};
            let reply = server.run("test", explain);
            let plan = format!("{:?}", reply.get_doc("queryPlanner").unwrap());
            let scans = plan.contains("IXSCAN") || plan.contains("COUNT_SCAN");
            assert!(scans && plan.contains("a_1"), "{plan}");
            let stats = reply.get_doc("executionStats").unwrap();
            assert!(
                stats.get_i64("totalKeysExamined").unwrap() <= 6,
                "{stats:?}"
            );
            assert_eq!(reply.get_doc("command"), Some(&*command));
        }
        // Nothing was changed.
        assert_eq!(
            server.run("test", doc! {"count": "c"}).get_i32("n"),
            Some(20)
        );
        let reply = server.run(
            "test",
            doc! {"explain": {"find": "c"}, "verbosity": "queryPlanner"},
        );
        assert!(reply.get("executionStats").is_none() && reply.get_doc("serverInfo").is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn writes_and_counts_are_stages_of_their_own() {
        let mut server = TestServer::new();
        server.fill("c", 20);
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        );
        let q = doc! {"a": {"$gte": 150}};
        let cases: Vec<(DocBuf, &str, &str, DocBuf)> = vec![
            (
                doc! {"count": "c"},
                "RECORD_STORE_FAST_COUNT",
                "",
                doc! {"nCounted": 20},
            ),
            (
                doc! {"count": "c", "query": &q, "skip": 1},
                "COUNT",
                "COUNT_SCAN",
                doc! {"nCounted": 4, "nSkipped": 1},
            ),
            (
                doc! {"update": "c", "updates": [{"q": &q, "u": {"$set": {"a": 150}}, "multi": true}]},
                "UPDATE",
                "FETCH",
                doc! {"nMatched": 5, "nWouldModify": 4, "nWouldUpsert": 0},
            ),
            (
                doc! {"update": "c", "updates": [{"q": {"a": -1}, "u": {"$set": {"b": 1}}, "upsert": true}]},
                "UPDATE",
                "FETCH",
                doc! {"nMatched": 0, "nWouldModify": 0, "nWouldUpsert": 1},
            ),
            (
                doc! {"delete": "c", "deletes": [{"q": &q, "limit": 1}]},
                "DELETE",
                "FETCH",
                doc! {"nWouldDelete": 1},
            ),
            (
                doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"b": 1}}},
                "UPDATE",
                "IDHACK",
                doc! {"nMatched": 1, "nWouldModify": 1},
            ),
        ];
        for (command, outer, inner, figures) in cases {
            let explain = doc! {"explain": &command, "verbosity": "executionStats"};
            let reply = server.run("test", explain);
            let stats = reply.get_doc("executionStats").unwrap();
            let stage = stats.get_doc("executionStages").unwrap();
            assert_eq!(stage.get_str("stage"), Some(outer), "{command:?}");
            let below = stage
                .get_doc("inputStage")
                .and_then(|stage| stage.get_str("stage"));
            assert_eq!(below.unwrap_or(""), inner, "{command:?}");
            for (name, value) in figures.iter() {
                assert_eq!(
                    stage.get_i64(name),
                    value.as_i64_lossless(),
                    "{command:?} {name}"
                );
            }
        }
        let reply = server.run("test", doc! {"count": "c", "query": {"b": 1}});
        assert_eq!(reply.get_i32("n"), Some(0), "nothing was changed");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pipelines_are_explained() {
        let mut server = TestServer::new();
        server.fill("c", 20);
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        );
        let pipeline = doc! {"pipeline": [
            {"$match": {"a": {"$gte": 150}}}, {"$match": {"_id": {"$ne": 3}}}, {"$group": {"_id": null, "n": {"$sum": 1}}},
        ]};
        let mut inner = doc! {"aggregate": "c"};
        inner.push_all(&pipeline);
        inner.push("cursor", &doc! {});
        let outer = doc! {"explain": &inner, "verbosity": "queryPlanner"};
        let mut old = inner.clone();
        old.push("explain", true);
        for command in [outer, old] {
            let reply = server.run("test", command);
            let stages = reply.get_array("stages").unwrap();
            assert_eq!(stages.count(), 2);
            let cursor = format!("{:?}", stages.get_doc("0"));
            assert!(
                cursor.contains("$cursor") && cursor.contains("IXSCAN"),
                "{cursor}"
            );
            assert!(stages.get_doc("1").unwrap().contains_key("$group"));
        }
        let simple =
            doc! {"explain": {"aggregate": "c", "pipeline": [{"$match": {"a": 10}}], "cursor": {}}};
        let reply = server.run("test", simple);
        assert!(reply.get_doc("queryPlanner").is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_explanations_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"explain": 1}, 14),
            (doc! {"explain": {}}, 59),
            (doc! {"explain": {"nonsense": 1}}, 59),
            (doc! {"explain": {"ping": 1}}, 73),
            (doc! {"explain": {"insert": "c"}}, 59),
            (doc! {"explain": {"find": "c", "x": 1}}, 40415),
            (doc! {"explain": {"find": "c"}, "verbosity": "all"}, 2),
            (doc! {"explain": {"update": "c", "updates": []}}, 16),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
