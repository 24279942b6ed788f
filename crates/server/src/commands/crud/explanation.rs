//! The parts of an explanation that `explain` and `aggregate` with `explain: true` share.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_query::Environment;
use frond_query::aggregate::{Front, Pipeline};
use frond_store::{AggregateRequest, FindRequest, Namespace, StageStats, Verbosity};

use super::{aggregation, watch};
use crate::arguments::{Arguments, declines};
use crate::commands::diagnostics::build_info::{COMPATIBLE_VERSION, GIT_VERSION};
use crate::commands::spec::Spec;
use crate::context::{Context, unsupported_option};
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::reply::push_count;

/// The size from which an explanation leaves parts out, so that its last fields still fit into a reply.
const EXPLAIN_BYTES_MAX: usize = DOCUMENT_BYTES_MAX - (10 << 10);

/// Explains a pipeline: the query that its first stages become, and the other stages.
pub fn explain_pipeline(
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
    let aggregation = aggregation::parse(cx, args, variables)?;
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

/// Whether the explained command is a `mapReduce`.
fn is_map_reduce(inner: &Doc) -> bool {
    matches!(inner.first(), Some(("mapReduce" | "mapreduce", _)))
}

/// Explains stages over a collection or a view.
pub fn explain_stages(
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
        sample: rest.sample_size().filter(|_| front.is_everything()),
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
        let stage_stats = if verbosity == Verbosity::QueryPlanner {
            Vec::new()
        } else {
            (cx.server.store).measure_stages(namespace, &request, &behind, &cx.limits)?
        };
        reply.push("explainVersion", "1");
        reply.push_array("stages", |list| {
            let mut room = EXPLAIN_BYTES_MAX.saturating_sub(plan.len_bytes());
            let mut stage_stats = stage_stats.iter();
            list.push_doc(|out| {
                out.push(name, &plan);
                push_stats(out, stage_stats.next());
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
                    push_stats(out, stage_stats.next());
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
fn push_stats(out: &mut DocBuf, stage_stats: Option<&StageStats>) {
    if let Some(stage_stats) = stage_stats {
        push_count(out, "nReturned", stage_stats.returned);
        let millis = u64::try_from(stage_stats.time.as_millis()).unwrap_or(u64::MAX);
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
            "host": &cx.server.instance.host,
            "port": i32::from(cx.server.instance.port),
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
pub fn check_fields(spec: &Spec, args: &Arguments<'_>, inner: &Doc) -> Result<()> {
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
