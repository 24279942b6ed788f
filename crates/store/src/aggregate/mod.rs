//! `aggregate`: the stages at the front of a pipeline become a query, the rest processes its result.
//!
//! [`host`] has what stages request from the database, [`write`] has `$out` and `$merge`.

mod host;
mod measure;
mod write;

pub use measure::StageStats;

use std::sync::{Arc, Weak};

use frond_bson::{Collator, Doc, DocBuf, Value};
use frond_error::{Error as CommandError, ErrorCode};
use frond_query::aggregate::{
    DocSource, Docs, ExecContext, Front, Groups, Pipeline, Source, StageLimits,
};
use frond_query::meta::Metadata;
use frond_query::sort::SortSpec;
use frond_query::spill::{Budget, SpillSpace, Spilled};
use parking_lot::Mutex;

use crate::catalog::is_a_view;
use crate::exec::build::Output;
use crate::exec::cursor::{DocStream, QueryCursor};
use crate::find::PlannedQuery;
use crate::memory::OperationMemory;
use crate::op_stats;
use crate::plan::{Hint, KeyLimits};
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::environment::{RequestTimes, environment, request_times};
use frond_storage::error::{Error, Result, command};
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;
use host::StoreHost;

/// A request to `aggregate`.
#[derive(Clone, Debug)]
pub struct AggregateRequest<'a> {
    /// The stages, as a BSON array.
    pub pipeline: &'a Doc,
    /// The index to use for the stages at the front, as in a find.
    pub hint: Option<Value<'a>>,
    /// Variables: the values of `let`.
    pub variables: Option<&'a Doc>,
    /// When a write of `$out` and `$merge` counts as done.
    pub durability: Durability,
    /// Whether their writes bypass the collection's validator.
    pub bypass_validation: bool,
    /// Whether temporary files may be written; by default the settings decide.
    pub allow_disk_use: Option<bool>,
    /// The collation; none for that of the collection or the view.
    pub collation: Option<Collator>,
}

/// The limits of an operation, shared with cursors inside its pipeline. Each `getMore` sets
/// new ones.
#[derive(Clone)]
struct Limits {
    context: Arc<Mutex<OpContext>>,
    /// The cursors inside the pipeline. Some may be gone.
    cursors: Arc<Mutex<Vec<Weak<Mutex<QueryCursor>>>>>,
}

/// Fewer cursors that are gone are not searched for.
const GONE_MIN: usize = 16;

impl Limits {
    fn new(context: &OpContext) -> Limits {
        Limits {
            context: Arc::new(Mutex::new(context.clone())),
            cursors: Arc::default(),
        }
    }

    fn get(&self) -> OpContext {
        self.context.lock().clone()
    }

    /// Shares a cursor inside the pipeline with the cursor over the whole of it.
    fn share(&self, cursor: QueryCursor) -> Arc<Mutex<QueryCursor>> {
        let cursor = Arc::new(Mutex::new(cursor));
        let mut cursors = self.cursors.lock();
        // A `$lookup` opens one for each document.
        if cursors.len() >= GONE_MIN && cursors.len() == cursors.capacity() {
            cursors.retain(|cursor| cursor.strong_count() > 0);
        }
        cursors.push(Arc::downgrade(&cursor));
        cursor
    }

    /// The cursors inside the pipeline.
    fn cursors(&self) -> Vec<Arc<Mutex<QueryCursor>>> {
        self.cursors
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

/// The documents of a query as the source of a pipeline.
struct QuerySource {
    /// Locked for each document. Another thread locks it only while the whole pipeline is idle.
    cursor: Arc<Mutex<QueryCursor>>,
    /// The metadata of the last document.
    meta: Option<Metadata>,
    limits: Limits,
    /// Documents until the next check of the limits.
    until_refresh: u32,
}

/// Documents between two checks of the limits.
const REFRESH_DOCUMENTS: u32 = 64;

impl QuerySource {
    fn new(cursor: QueryCursor, limits: Limits) -> QuerySource {
        QuerySource {
            cursor: limits.share(cursor),
            meta: None,
            limits,
            until_refresh: 0,
        }
    }
}

impl DocSource<Error> for QuerySource {
    fn next(&mut self) -> Result<Option<DocBuf>> {
        let mut cursor = self.cursor.lock();
        if self.until_refresh == 0 {
            let limits = self.limits.get();
            // Each new context counts steps from zero, so the clock would never be checked.
            limits.check_between_steps()?;
            cursor.set_context(limits);
            self.until_refresh = REFRESH_DOCUMENTS;
        }
        self.until_refresh -= 1;
        let next = cursor.next()?;
        self.meta = cursor.meta().cloned();
        Ok(next)
    }

    fn meta(&self) -> Option<&Metadata> {
        self.meta.as_ref()
    }

    fn group(&mut self, groups: &mut Groups) -> Result<()> {
        let mut cursor = self.cursor.lock();
        let limits = self.limits.get();
        limits.check_between_steps()?;
        cursor.set_context(limits);
        cursor.group(groups)
    }
}

/// The output of a pipeline as the source of a cursor.
struct PipelineStream {
    source: Source<Error>,
    limits: Limits,
    resources: Resources,
}

impl DocStream for PipelineStream {
    fn next(&mut self) -> Result<Option<DocBuf>> {
        self.limits.context.lock().check()?;
        self.source.next()
    }

    fn set_context(&mut self, context: OpContext) {
        let mut current = self.limits.context.lock();
        // They are those of the command that has opened the cursor.
        let rules = current.rules.take();
        *current = context;
        current.rules = rules;
    }

    fn rest(&mut self) -> Result<()> {
        for cursor in self.limits.cursors() {
            cursor.lock().update_op_stats();
        }
        if self.resources.spilled.times() > 0 {
            op_stats::update(|stage_stats| stage_stats.used_disk = true);
        }
        Ok(())
    }

    fn held_bytes(&self) -> u64 {
        self.resources.memory.held()
    }

    fn retained_bytes(&self) -> u64 {
        let cursors = self.limits.cursors();
        cursors
            .iter()
            .map(|cursor| cursor.lock().retained_bytes())
            .sum()
    }

    fn release_memory(&mut self) -> Result<()> {
        let cursors = self.limits.cursors();
        cursors
            .iter()
            .try_for_each(|cursor| cursor.lock().release_memory())?;
        Ok(self.resources.spilled.spill_results()?)
    }

    fn release_pages(&mut self) {
        for cursor in self.limits.cursors() {
            cursor.lock().release_pages();
        }
    }
}

/// Stages that show the current state of the store.
const CURRENT_STATE: [&str; 3] = ["$collStats", "$indexStats", "$planCacheStats"];

/// The input of a pipeline.
struct Runner<'a> {
    store: &'a DocumentStore,
    db: &'a str,
    limits: Limits,
    durability: Durability,
    bypass_validation: bool,
    /// The memory and the temporary files of stages; shared with nested pipelines.
    resources: Resources,
    /// Those of the request that opened the pipeline, also of pipelines that start when a later one reads on.
    times: RequestTimes,
    /// The number of pipelines that this one is nested in, those of views included.
    depth: usize,
}

/// The resources of the stages of an operation.
#[derive(Clone)]
struct Resources {
    limits: StageLimits,
    memory: OperationMemory,
    space: Option<Arc<dyn SpillSpace>>,
    spilled: Arc<Spilled>,
}

impl<'a> Runner<'a> {
    fn new(
        store: &'a DocumentStore,
        db: &'a str,
        request: &AggregateRequest<'_>,
        context: &OpContext,
    ) -> Runner<'a> {
        Runner {
            store,
            db,
            limits: Limits::new(context),
            durability: request.durability,
            bypass_validation: request.bypass_validation,
            resources: Resources {
                limits: store.queries().stage_limits(),
                memory: OperationMemory::new(store.memory()),
                space: store.queries().space(request.allow_disk_use),
                spilled: Arc::default(),
            },
            times: request_times(),
            depth: 0,
        }
    }

    /// Opens a pipeline over a collection; `None` for the database itself.
    fn open(
        &self,
        ns: Option<&Namespace>,
        pipeline: Pipeline,
        hint: Option<Hint>,
    ) -> Result<Opened> {
        let pipeline = match ns {
            Some(ns) => self.store.with_geo_near_key(ns, pipeline)?,
            None => pipeline,
        };
        let (front, rest) = pipeline.split_front();
        let context = self.context(ns);
        let Some(ns) = ns.filter(|_| !rest.has_own_source()) else {
            let source: Source<Error> = Box::new(Docs::new(Vec::new()));
            return Ok(Opened::Source(rest.execute(source, &context)?));
        };
        // Counting all documents reads a counter, which is that of the current state.
        let rest = if self.store.catalog().is_live() && front.is_everything() && hint.is_none() {
            let mut failure = None;
            let counted = rest.counted(|| {
                let count = self.store.exact_count(ns, &self.limits.get());
                count.unwrap_or_else(|error| {
                    failure = Some(error);
                    0
                })
            });
            if let Some(error) = failure {
                return Err(error);
            }
            match counted {
                Ok((docs, rest)) => {
                    op_stats::set_summary("RECORD_STORE_FAST_COUNT");
                    let source: Source<Error> = Box::new(Docs::new(docs));
                    return Ok(Opened::Source(rest.execute(source, &context)?));
                }
                Err(rest) => rest,
            }
        } else {
            rest
        };
        let cursor = self.query(ns, front, &rest, hint)?;
        if rest.is_empty() {
            return Ok(Opened::Cursor(Box::new(cursor)));
        }
        let source: Source<Error> = Box::new(QuerySource::new(cursor, self.limits.clone()));
        Ok(Opened::Source(rest.execute(source, &context)?))
    }

    /// The input of the stages from the database.
    fn context(&self, ns: Option<&Namespace>) -> ExecContext<Error> {
        ExecContext {
            now_ms: self.times.now_ms,
            seed: rand::random(),
            limits: self.resources.limits,
            memory: Some(self.resources.memory.shared()),
            space: self.resources.space.clone(),
            spilled: self.resources.spilled.clone(),
            host: Arc::new(StoreHost {
                store: self.store.clone(),
                db: self.db.to_owned(),
                ns: ns.cloned(),
                limits: self.limits.clone(),
                durability: self.durability,
                bypass_validation: self.bypass_validation,
                resources: self.resources.clone(),
                times: self.times,
                depth: self.depth,
            }),
        }
    }

    /// Opens the query at the front of a pipeline; the stages of `rest` process its result.
    fn query(
        &self,
        ns: &Namespace,
        front: Front,
        rest: &Pipeline,
        hint: Option<Hint>,
    ) -> Result<QueryCursor> {
        let sort = SortSpec::parse(front.sort.as_deref().unwrap_or(Doc::empty()))?;
        let takes_any = front.is_everything() && hint.is_none();
        let sample = rest.sample_size().filter(|_| takes_any);
        let question = PlannedQuery {
            filter: Arc::new(front.filter),
            sort: sort.collated(rest.collator()),
            hint,
            shown: rest.needed_fields().map(Arc::new),
            limits: KeyLimits::default(),
            budget: Budget {
                stage: "$sort",
                bytes_max: self.resources.limits.sort,
                memory: Some(self.resources.memory.shared()),
                space: self.resources.space.clone(),
                spilled: self.resources.spilled.clone(),
            },
            meta: rest.meta()?,
            by_id_only: front.skip == 0,
            distinct: None,
            sample,
            example_query: None,
        };
        let limits = self.limits.get();
        match question.plan(self.store.catalog(), ns, &limits)? {
            None => Ok(QueryCursor::empty(ns.clone())),
            Some(mut planned) => {
                planned.memory = self.resources.memory.clone();
                let output = Output {
                    sort: planned.sort(),
                    skip: front.skip,
                    limit: front.limit,
                    ..Output::default()
                };
                Ok(planned.cursor(&planned.wanted(), output, &limits))
            }
        }
    }
}

enum Opened {
    Cursor(Box<QueryCursor>),
    /// A query and stages.
    Source(Source<Error>),
}

impl Opened {
    fn into_source(self, limits: &Limits) -> Source<Error> {
        match self {
            Opened::Cursor(cursor) => Box::new(QuerySource::new(*cursor, limits.clone())),
            Opened::Source(source) => source,
        }
    }
}

impl DocumentStore {
    /// Completes a pipeline that begins with `$geoNear` without a field: it gets that of the only geospatial index;
    /// `2d` has precedence over `2dsphere`. Other pipelines are unchanged.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26) without the collection, `IndexNotFound` (27) without such an index, and with
    /// several.
    pub fn with_geo_near_key(&self, ns: &Namespace, pipeline: Pipeline) -> Result<Pipeline> {
        let Some(key) = pipeline.geo_near_key() else {
            return Ok(pipeline);
        };
        let Some(collection) = self.catalog().collection(ns) else {
            return Err(command(
                ErrorCode::NamespaceNotFound,
                format!("$geoNear requires a geo index to run, but {ns} does not exist"),
            ));
        };
        if key.is_some() {
            return Ok(pipeline);
        }
        for kind in ["2d", "2dsphere"] {
            let is_kind = |value: Value<'_>| value.as_str() == Some(kind);
            let mut fields = collection
                .ready_indexes()
                .filter(|index| !index.spec.hidden)
                .filter_map(|index| {
                    let mut fields = index.spec.key.iter();
                    fields
                        .find(|(_, value)| is_kind(*value))
                        .map(|(path, _)| path)
                });
            match (fields.next(), fields.next()) {
                (Some(path), None) => {
                    let path = path.to_owned();
                    return Ok(pipeline.with_geo_near_key(&path));
                }
                (Some(_), Some(_)) => {
                    return Err(command(
                        ErrorCode::IndexNotFound,
                        format!(
                            "There is more than one {kind} index on {ns}; unsure which to use for \
                             $geoNear"
                        ),
                    ));
                }
                _ => {}
            }
        }
        Err(command(
            ErrorCode::IndexNotFound,
            "$geoNear requires a 2d or 2dsphere index, but none were found",
        ))
    }

    /// Runs a pipeline over a collection, or over a database if there is no collection (`aggregate:
    /// 1`). A collection that does not exist is empty.
    ///
    /// # Errors
    /// Errors of the stages and the hint; `InvalidNamespace` (73) if a stage needs a collection and
    /// there is none. Later errors come from the cursor.
    pub fn aggregate(
        &self,
        db: &str,
        ns: Option<&Namespace>,
        request: &AggregateRequest<'_>,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        let view = ns.map(|ns| self.resolve_view(ns)).transpose()?.flatten();
        let Some(view) = view else {
            return self.aggregate_on(db, ns, ns, request, context);
        };
        let collator = view.collator()?;
        if request
            .collation
            .as_ref()
            .is_some_and(|asked| *asked != collator)
        {
            return Err(command(
                ErrorCode::OptionNotSupportedOnView,
                "Cannot override a view's default collation",
            ));
        }
        let own = Pipeline::parse(request.pipeline, &environment(request.variables, &collator))?;
        if own.has_own_source() && !own.has_documents() {
            return Err(is_a_view(ns.unwrap_or(&view.collection)));
        }
        let stages = view.with_stages(request.pipeline);
        let request = AggregateRequest {
            pipeline: &stages,
            collation: Some(collator),
            ..request.clone()
        };
        self.aggregate_on(db, Some(&view.collection), ns, &request, context)
    }

    /// Refuses stages that need the current state of the store.
    fn check_stages(&self, pipeline: &Pipeline, stages: &Doc) -> Result<()> {
        let catalog = self.catalog();
        if catalog.is_live() {
            return Ok(());
        }
        let mut names = stages.values().filter_map(|stage| stage.as_doc()?.first());
        let describes = names.find_map(|(name, _)| CURRENT_STATE.iter().find(|one| **one == name));
        match pipeline.writes().or(describes.copied()) {
            Some(stage) => Err(catalog.unsupported_stage(stage)),
            None => Ok(()),
        }
    }

    /// Runs a pipeline over a collection; the cursor shows the name `shown`.
    fn aggregate_on(
        &self,
        db: &str,
        ns: Option<&Namespace>,
        shown: Option<&Namespace>,
        request: &AggregateRequest<'_>,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        let asked = request.collation.as_ref();
        let collator = match ns {
            Some(ns) => self.catalog().collator(ns, asked),
            None => asked.cloned().unwrap_or_default(),
        };
        let pipeline =
            Pipeline::parse(request.pipeline, &environment(request.variables, &collator))?;
        if ns.is_none() && !pipeline.has_documents() {
            return Err(command(
                ErrorCode::InvalidNamespace,
                "{aggregate: 1} is not valid for this pipeline; it needs a collection",
            ));
        }
        self.check_stages(&pipeline, request.pipeline)?;
        let catalog = self.catalog();
        catalog.check_collation_of_views(db, request.pipeline, &collator)?;
        let hint = Hint::parse(request.hint)?;
        // All stages of a pipeline in a transaction read the writes before it, as its front does.
        let fixed = self.catalog().for_one_read()?;
        let fixed = fixed.map(|catalog| self.with_catalog(catalog));
        let runner = Runner::new(fixed.as_ref().unwrap_or(self), db, request, context);
        match runner.open(ns, pipeline, hint)? {
            Opened::Cursor(cursor) => Ok(*cursor),
            Opened::Source(source) => {
                let ns = shown.cloned().unwrap_or_else(|| Namespace::of_database(db));
                let stream = PipelineStream {
                    source,
                    limits: runner.limits.clone(),
                    resources: runner.resources,
                };
                Ok(QueryCursor::of_stream(ns, Box::new(stream)))
            }
        }
    }
}

/// The error of a stage that this server lacks.
fn not_supported(what: impl std::fmt::Display) -> Error {
    CommandError::not_supported(what).into()
}
