//! `explain`

use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_query::Environment;
use frond_query::aggregate::{Front, Pipeline};
use frond_query::update::{ApplyContext, Update};
use frond_store::{
    AggregateRequest, Durability, FindRequest, Namespace, Purpose, StageFigures, Task, Verbosity,
    views,
};

use crate::arguments::{Arguments, declines};
use crate::authorization::{Needs, Requested};
use crate::commands::build_info::{COMPATIBLE_VERSION, GIT_VERSION};
use crate::commands::spec::{Command, Spec};
use crate::commands::{aggregate, count, delete, find, find_and_modify, map_reduce, update, watch};
use crate::context::{Context, unsupported_option};
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::reply::push_count;

/// The size from which an explanation leaves parts out, so that its last fields still fit into a reply.
const EXPLAIN_BYTES_MAX: usize = DOCUMENT_BYTES_MAX - (10 << 10);

pub struct Explain;

const SPEC: Spec = Spec {
    names: &["explain"],
    doc: "Shows how a command would find its documents.",
    fields: &["verbosity"],
    on_collection: false,
    ..Spec::READ
};

impl Command for Explain {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let args = request.args();
        let inner = args
            .doc_field("explain")?
            .ok_or_else(|| args.missing("explain"))?;
        let command = explained(inner)?;
        command.needs(&request.inner(command.spec().name(), inner))
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
        Some(other) => Err(Error::bad_value(format!(
            "Enumeration value '{other}' for field 'explain.verbosity' is not a valid value."
        ))),
    }
}

/// The command that a document is, if it can be explained. No other one may be asked for its needs: its errors may
/// quote a password.
fn explained(inner: &Doc) -> Result<&'static dyn Command> {
    const EXPLAINED: [&str; 8] = [
        "aggregate",
        "count",
        "delete",
        "distinct",
        "find",
        "findAndModify",
        "mapReduce",
        "update",
    ];
    let found = inner
        .first()
        .and_then(|(name, _)| crate::commands::find(name));
    found
        .map(|(_, command)| command)
        .filter(|command| EXPLAINED.contains(&command.spec().name()))
        .ok_or_else(|| unknown(inner))
}

fn unknown(inner: &Doc) -> Error {
    let name = inner.first().map_or("", |(name, _)| name);
    Error::new(
        ErrorCode::CommandNotFound,
        format!("Explain failed due to unknown command: {name}"),
    )
}

/// Explains a command, given as its document.
pub fn explain(cx: &mut Context<'_>, inner: &Doc, verbosity: Verbosity) -> Result<DocBuf> {
    let (_, target) = inner.first().unwrap_or(("", Value::Null));
    let command = explained(inner)?;
    let proper = command.spec().name();
    let args = Arguments::new(proper, inner);
    check_fields(command.spec(), &args, inner)?;
    let variables = args.variables()?;
    let variables = variables.as_deref();
    if proper == "aggregate" {
        return explain_pipeline(cx, inner, &args, variables, verbosity);
    }
    if proper == "mapReduce" {
        let (namespace, stages) = map_reduce::explained(cx, &args, &target)?;
        let request = AggregateRequest {
            pipeline: stages.as_doc(),
            hint: None,
            variables,
            durability: Durability::Logged,
            allow_disk_use: None,
            bypass_validation: false,
            collation: args.collation()?,
        };
        return explain_stages(cx, inner, &namespace, &request, verbosity);
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
        Ok::<_, Error>(reply)
    };
    let run = |request: &FindRequest<'_>| run_for(request, &Purpose::FIND);
    let collator_of = |request: &FindRequest<'_>| {
        let catalog = cx.server.store.catalog();
        catalog.collator(&namespace, request.collation.as_ref())
    };
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
            let request = FindRequest {
                filter: args.doc_field("query")?,
                projection: Some(&shown),
                hint: find::hint(&args)?,
                collation: args.collation()?,
                ..FindRequest::default()
            };
            let purpose = Purpose {
                distinct: Some(key),
                ..Purpose::FIND
            };
            run_for(&request, &purpose)?
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
                    let collator = collator_of(&found);
                    let change =
                        would_change(update, &request.array_filters, variables, &collator)?;
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
            let collator = collator_of(&found);
            let change = would_change(
                &request.update,
                &request.array_filters,
                variables,
                &collator,
            )?;
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
        _ => return Err(unknown(inner)),
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
    collator: &Collator,
) -> Result<impl Fn(&Doc) -> bool + use<>> {
    let environment = frond_store::environment(variables, collator);
    let update = Update::parse_value(update, array_filters, &environment)?;
    let at = ApplyContext::at(frond_store::request_ms());
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
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "Aggregation explain does not support the 'writeConcern' option",
        ));
    }
    let aggregation = aggregate::parse(cx, args, variables)?;
    if watch::is_change_stream(aggregation.request.pipeline) {
        return Err(Error::not_supported("explaining a change stream"));
    }
    let Some(namespace) = aggregation.namespace else {
        return Err(Error::not_supported(
            "explaining a pipeline that reads no collection",
        ));
    };
    explain_stages(cx, inner, &namespace, &aggregation.request, verbosity)
}

/// Whether the stages are those of a `mapReduce`.
fn is_map_reduce(inner: &Doc) -> bool {
    matches!(inner.first(), Some(("mapReduce" | "mapreduce", _)))
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
        internal: is_map_reduce(inner),
        ..frond_store::environment(request.variables, &collator)
    };
    let pipeline = Pipeline::parse(request.pipeline, &environment)?;
    let pipeline = cx.server.store.with_geo_near_key(namespace, pipeline)?;
    let is_near = pipeline.geo_near_key().is_some();
    let (front, rest) = pipeline.split_front();
    let filter = front.spec.clone();
    if rest.has_own_source() {
        return Err(Error::not_supported(
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
        // The stage is in the list as its cursor.
        let (name, behind) = if is_near {
            let behind = request.pipeline.values().skip(1).collect();
            ("$geoNearCursor", behind)
        } else {
            ("$cursor", stages_behind(request.pipeline, &front))
        };
        let figures = if verbosity == Verbosity::QueryPlanner {
            Vec::new()
        } else {
            (cx.server.store).measure_stages(namespace, &request, &behind, &cx.limits)?
        };
        reply.push("explainVersion", "1");
        reply.push_array("stages", |list| {
            let mut room = EXPLAIN_BYTES_MAX.saturating_sub(plan.len_bytes());
            let mut figures = figures.iter();
            list.push_doc(|out| {
                out.push(name, &plan);
                push_figures(out, figures.next());
            });
            for stage in behind.iter().filter_map(Value::as_doc) {
                list.push_doc(|out| {
                    // Bytes for the stage's position in the list and its statistics.
                    match room.checked_sub(stage.len_bytes() + 128) {
                        Some(left) => {
                            room = left;
                            out.push_all(stage);
                        }
                        None => push_omitted(out, stage.first().map_or("", |(name, _)| name)),
                    }
                    push_figures(out, figures.next());
                });
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
            // Filters may have moved to the front from later stages.
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

/// Adds the statistics of a stage, if it was run.
fn push_figures(out: &mut DocBuf, figures: Option<&StageFigures>) {
    if let Some(figures) = figures {
        push_count(out, "nReturned", figures.returned);
        let millis = u64::try_from(figures.time.as_millis()).unwrap_or(u64::MAX);
        push_count(out, "executionTimeMillisEstimate", millis);
    }
}

/// Warns that a part was left out because the explanation would be too large.
fn push_omitted(out: &mut DocBuf, name: &str) {
    out.push(
        "warning",
        &format!("'{name}' has been omitted due to BSON size limit"),
    );
}

/// Adds the last fields of every explanation.
pub fn finish(cx: &Context<'_>, command: &Doc, reply: &mut DocBuf) {
    if reply.len_bytes() + command.len_bytes() <= EXPLAIN_BYTES_MAX {
        reply.push("command", command);
    } else {
        push_omitted(reply, "command");
    }
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
fn check_fields(spec: &Spec, args: &Arguments<'_>, inner: &Doc) -> Result<()> {
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
    args.each_once()?;
    for (name, value) in inner.iter().skip(1) {
        if spec.has_field(name) {
            continue;
        }
        if spec.unsupported_fields.contains(&name) && !declines(&value) {
            return Err(unsupported_option(spec.name(), name));
        }
        if !COMMON.contains(&name) && !spec.unsupported_fields.contains(&name) {
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
        _ => Err(Error::new(
            ErrorCode::InvalidLength,
            format!("explain takes one statement, not {}", statements.len()),
        )),
    }
}

#[cfg(test)]
mod tests;
