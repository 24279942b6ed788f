//! The database as the stages of a pipeline see it.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::ErrorCode;
use frond_query::aggregate::{Docs, Host, Pipeline, Source, WriteTarget, Writing};

use super::{Limits, Resources, Runner, not_supported, write};
use crate::admin::CollectionStats;
use crate::exec::describe::count as int;
use crate::store::DocumentStore;
use frond_storage::clock::now_ms;
use frond_storage::environment::{RequestTimes, environment_at};
use frond_storage::error::{Error, Result, command};
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;

/// The database as the stages of a pipeline over one collection see it.
pub(super) struct StoreHost {
    pub store: DocumentStore,
    pub db: String,
    /// The collection; `None` for a pipeline over the database.
    pub ns: Option<Namespace>,
    pub limits: Limits,
    pub durability: Durability,
    pub bypass_validation: bool,
    pub resources: Resources,
    pub times: RequestTimes,
    /// The number of pipelines that this one is nested in.
    pub depth: usize,
}

/// The maximum depth of nested pipelines. The parser has the same limit, but does not see the pipelines of views.
const DEPTH_MAX: usize = 20;

impl StoreHost {
    fn namespace(&self, stage: &str) -> Result<&Namespace> {
        self.ns
            .as_ref()
            .ok_or_else(|| not_supported(format_args!("the stage '{stage}' without a collection")))
    }
}

impl Host<Error> for StoreHost {
    fn run(
        &self,
        _stage: &'static str,
        database: Option<&str>,
        collection: &str,
        pipeline: Pipeline,
    ) -> Result<Source<Error>> {
        let depth = self.depth + 1;
        if depth > DEPTH_MAX {
            return Err(command(
                ErrorCode::MaxSubPipelineDepthExceeded,
                format!("Maximum number of nested sub-pipelines exceeded. Limit is {DEPTH_MAX}"),
            ));
        }
        let mut ns = Namespace::new(database.unwrap_or(&self.db), collection)?;
        let mut pipeline = pipeline;
        if let Some(view) = self.store.resolve_view(&ns)? {
            let collator = view.collator()?;
            let environment = environment_at(self.times, None, &collator);
            let of_view = Pipeline::parse(&view.pipeline, &environment)?;
            pipeline = of_view.followed_by(pipeline);
            ns = view.collection;
        }
        let runner = Runner {
            store: &self.store,
            db: ns.db(),
            limits: self.limits.clone(),
            durability: self.durability,
            bypass_validation: self.bypass_validation,
            resources: self.resources.clone(),
            times: self.times,
            depth,
        };
        let opened = runner.open(Some(&ns), pipeline, None)?;
        Ok(opened.into_source(&self.limits))
    }

    fn find_by_id(
        &self,
        database: Option<&str>,
        collection: &str,
        id: &Value<'_>,
    ) -> Result<Option<Option<DocBuf>>> {
        if self.depth >= DEPTH_MAX {
            return Ok(None);
        }
        self.limits.context.lock().check()?;
        let ns = Namespace::new(database.unwrap_or(&self.db), collection)?;
        self.store.document_by_id(&ns, id)
    }

    fn write(&self, writing: Writing<'_>, docs: Source<Error>) -> Result<()> {
        let target = write::Target {
            store: &self.store,
            db: &self.db,
            durability: self.durability,
            bypass_validation: self.bypass_validation,
            context: self.limits.get(),
        };
        match writing.target() {
            WriteTarget::Out(out) => target.out(out, docs),
            WriteTarget::Merge(merge) => target.merge(merge, &writing, docs),
        }
    }

    fn describe(&self, stage: &'static str, spec: &Doc) -> Result<Source<Error>> {
        let ns = self.namespace(stage)?;
        let docs = match stage {
            "$collStats" => vec![coll_stats(&self.store, ns, spec)?],
            "$indexStats" => self.store.index_usage(ns)?,
            "$planCacheStats" => plan_cache_stats(&self.store, ns)?,
            _ => return Err(not_supported(format_args!("the stage '{stage}'"))),
        };
        Ok(Box::new(Docs::new(docs)))
    }
}

/// The documents of `$planCacheStats`: the plans that won trial runs.
fn plan_cache_stats(store: &DocumentStore, ns: &Namespace) -> Result<Vec<DocBuf>> {
    let described = store.cached_plans(ns)?.into_iter().map(|plan| {
        let mut out = doc! {
            "version": "1",
            "queryHash": plan.hashes.shape.as_str(),
            "planCacheShapeHash": plan.hashes.shape.as_str(),
            "planCacheKey": plan.hashes.key.as_str(),
            "isActive": true,
            "works": int(plan.works),
            "timeOfCreation": Value::DateTime(plan.chosen_ms),
            "cachedPlan": {"planSummary": plan.summary.as_str()},
            "indexFilterSet": false,
            "uses": int(plan.uses),
        };
        if let Some(example) = &plan.example {
            out.push("createdFromQuery", example);
        }
        if let Some(host) = store.catalog().hooks().host() {
            out.push("host", host);
        }
        out
    });
    Ok(described.collect())
}

/// The document of `$collStats`.
fn coll_stats(store: &DocumentStore, ns: &Namespace, spec: &Doc) -> Result<DocBuf> {
    let stats = store.collection_stats(ns)?;
    let mut out = doc! {"ns": ns.as_str()};
    if let Some(host) = store.catalog().hooks().host() {
        out.push("host", host);
    }
    out.push("localTime", Value::DateTime(now_ms()));
    for (name, value) in spec.iter() {
        match name {
            "count" => out.push("count", int(stats.count)),
            "storageStats" => {
                let scale = value.as_doc().and_then(|doc| doc.get_i64("scale"));
                let scale = scale.unwrap_or(1).max(1);
                out.push("storageStats", &storage_stats(&stats, scale));
            }
            "latencyStats" | "queryExecStats" => {
                let options = value.as_doc().unwrap_or(Doc::empty());
                let usage = store.catalog().hooks().usage(ns, name, options);
                out.push(name, &usage.unwrap_or_default());
            }
            _ => {
                return Err(not_supported(format_args!(
                    "the option '{name}' of $collStats"
                )));
            }
        }
    }
    Ok(out)
}

fn storage_stats(stats: &CollectionStats, scale: i64) -> DocBuf {
    let scaled = |bytes: u64| int(bytes / scale.unsigned_abs().max(1));
    let mut out = doc! {
        "size": scaled(stats.size),
        "count": int(stats.count),
        "avgObjSize": int(stats.avg_obj_size),
        "storageSize": scaled(stats.storage_size),
        "capped": stats.capped.is_some(),
        "nindexes": int(stats.indexes),
        "totalIndexSize": scaled(stats.total_index_size),
        "totalSize": scaled(stats.storage_size + stats.total_index_size),
    };
    if let Some(capped) = stats.capped {
        out.push("max", int(capped.documents.unwrap_or(0)));
        out.push("maxSize", scaled(capped.bytes));
    }
    out.push_doc("indexSizes", |sizes| {
        for (name, bytes) in &stats.index_sizes {
            sizes.push(name, scaled(*bytes));
        }
    });
    out.push("scaleFactor", int(scale));
    out
}
