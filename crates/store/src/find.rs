//! Reading: `find`, `count`, `distinct`.

mod by_id;
mod count_again;
mod distinct;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

use frond_bson::{ArrayBuf, Collator, Doc, Value};
use frond_error::ErrorCode;
use frond_query::Environment;
use frond_query::aggregate::STAGE_MEMORY_BYTES_MAX;
use frond_query::matcher::Filter;
use frond_query::meta::MetaFields;
use frond_query::projection::Projection;
use frond_query::sort::SortSpec;
use frond_query::spill::Budget;

use crate::catalog::{Catalog, Collection};
use crate::exec::build::{Builder, Output, RowParts};
use crate::exec::count::Count;
use crate::exec::cursor::{QueryCursor, TailOutput};
use crate::exec::executor::Executor;
use crate::exec::operator::{Flow, Node};
use crate::exec::reader::Loading;
use crate::exec::tail::Tail;
use crate::exec::trial::{ExampleQuery, Trial, TrialRun};
use crate::memory::OperationMemory;
use crate::op_stats;
use crate::plan::cache;
use crate::plan::choose::choose;
use crate::plan::partitions::PartitionsRead;
use crate::plan::query::{Candidate, Query};
use crate::plan::summary::Summary;
use crate::plan::{Access, Hint, KeyLimits, Plan};
use crate::store::DocumentStore;
pub(crate) use by_id::{IdLookUp, note_look_up, one_id};
pub(crate) use distinct::Distinct;
use frond_storage::context::OpContext;
use frond_storage::environment::environment;
use frond_storage::error::{Result, command};
use frond_storage::keyspace::{Engine, Snapshot};
use frond_storage::namespace::Namespace;
use frond_storage::plan_rules::AllowedIndexes;

/// The arguments of a `find`.
#[derive(Clone, Debug, Default)]
pub struct FindRequest<'a> {
    /// The filter; without one all documents are found.
    pub filter: Option<&'a Doc>,
    /// The fields to return.
    pub projection: Option<&'a Doc>,
    pub sort: Option<&'a Doc>,
    pub skip: u64,
    /// Maximum documents to return.
    pub limit: Option<u64>,
    /// The index to use: its name, its key pattern or `{$natural: ±1}`.
    pub hint: Option<Value<'a>>,
    /// Lower bound of the index of the hint, inclusive.
    pub min: Option<&'a Doc>,
    /// Upper bound of the index of the hint, exclusive.
    pub max: Option<&'a Doc>,
    /// Whether only the fields of the index that led to a document are returned, in place of the
    /// projection.
    pub return_key: bool,
    /// Whether documents are shown with their record ids.
    pub show_record_id: bool,
    /// Whether the cursor stays open at the end of a capped collection, for what is inserted later.
    pub tailable: bool,
    /// The number of documents that a `$sample` takes of the result.
    pub sample: Option<u64>,
    /// Variables for `$expr`.
    pub variables: Option<&'a Doc>,
    /// Whether temporary files may be written; by default as the settings say.
    pub allow_disk_use: Option<bool>,
    /// The collation; by default that of the collection.
    pub collation: Option<Collator>,
}

/// The arguments of a `count`.
#[derive(Clone, Debug, Default)]
pub struct CountRequest<'a> {
    /// The filter; without one all documents are counted.
    pub filter: Option<&'a Doc>,
    pub skip: u64,
    /// Maximum documents to count.
    pub limit: Option<u64>,
    /// The index to use, as in a find.
    pub hint: Option<Value<'a>>,
    /// The collation; by default that of the collection.
    pub collation: Option<Collator>,
}

#[derive(Clone)]
pub(crate) struct PlannedQuery {
    pub filter: Arc<Filter>,
    /// The order, with the collator of the query.
    pub sort: SortSpec,
    pub hint: Option<Hint>,
    /// The fields that are returned; `None` for all.
    pub shown: Option<Arc<BTreeSet<String>>>,
    /// Bounds of the hinted index.
    pub limits: KeyLimits,
    /// The memory and disk budget of a blocking sort.
    pub budget: Budget,
    /// The metadata that is returned, besides that of the sort.
    pub meta: MetaFields,
    /// Whether the options of the request allow the plan `IDHACK`.
    pub by_id_only: bool,
    /// The path, if only its distinct values are wanted.
    pub distinct: Option<String>,
    /// The number of documents of a `$sample`, if it takes its documents from this query.
    pub sample: Option<u64>,
    /// The query as it was asked, for lists of the plan cache.
    pub example_query: Option<ExampleQuery>,
}

/// A `$sample` of a greater part of its collection than this reads all of it. Such a scan costs less for each document than the random
/// choice of one, which reads a page. (MongoDB has 20 here.)
const SAMPLE_PARTS_MIN: u64 = 50;
/// Smaller collections are read as a whole.
const SAMPLED_DOCUMENTS_MIN: u64 = 100;

/// Whether it pays to choose the documents of a `$sample` one by one. A cluster cannot choose keys at random.
fn is_small_sample(size: u64, collection: &Collection, snapshot: &Snapshot) -> bool {
    let documents = u64::try_from(collection.counts().documents).unwrap_or(0);
    snapshot.files().is_some()
        && collection.oplog().is_none()
        && documents >= SAMPLED_DOCUMENTS_MIN
        && size <= documents / SAMPLE_PARTS_MIN
}

impl PlannedQuery {
    pub fn parse(
        filter: Option<&Doc>,
        sort: Option<&Doc>,
        hint: Option<Value<'_>>,
        environment: &Environment<'_>,
    ) -> Result<PlannedQuery> {
        Ok(PlannedQuery {
            filter: Arc::new(match filter {
                Some(filter) => Filter::parse_with(filter, environment)?,
                None => Filter::all(),
            }),
            sort: SortSpec::parse(sort.unwrap_or(Doc::empty()))?.collated(environment.collator),
            hint: Hint::parse(hint)?,
            shown: None,
            limits: KeyLimits::default(),
            budget: Budget::in_memory("$sort", STAGE_MEMORY_BYTES_MAX),
            meta: MetaFields::default(),
            by_id_only: true,
            distinct: None,
            sample: None,
            example_query: ExampleQuery::new(filter, sort),
        })
    }

    /// Finds the index that answers the `$text` of the filter, and checks that metadata is available.
    fn bind(&mut self, collection: &Collection) -> Result<()> {
        let has_text = self.filter.text().is_some();
        if has_text {
            let index = collection
                .ready_indexes()
                .filter(|index| !index.spec.hidden)
                .find_map(|index| index.spec.method.as_ref()?.text().cloned());
            let Some(spec) = index else {
                return Err(command(
                    ErrorCode::IndexNotFound,
                    "text index required for $text query",
                ));
            };
            self.filter = Arc::new(self.filter.with_text_index(&spec));
        }
        let has_near = self.filter.near().is_some();
        if has_text && has_near {
            return Err(command(
                ErrorCode::BadValue,
                "text and geoNear not allowed in same query",
            ));
        }
        self.wanted_meta().check(has_text, has_near)?;
        Ok(())
    }

    /// The metadata that rows must have.
    pub fn wanted_meta(&self) -> MetaFields {
        self.meta | self.sort.meta()
    }

    /// The same query, returning only these fields.
    pub fn showing(self, shown: Option<BTreeSet<String>>) -> PlannedQuery {
        PlannedQuery {
            shown: shown.map(Arc::new),
            ..self
        }
    }

    /// Whether the server itself has chosen the index.
    fn is_own_choice(&self) -> bool {
        matches!(self.hint, Some(Hint::Tree(_)))
    }

    /// The hash of the shape that index filters are for.
    pub fn filter_shape(&self) -> u64 {
        let shape = cache::shape(&self.filter, &self.sort);
        // Those that need no fields at all, such as counts, have no projection.
        let fields = self.shown.as_ref().filter(|_| self.distinct.is_none());
        cache::shape_with_fields(shape, fields.iter().flat_map(|fields| fields.iter()))
    }

    /// Refuses to read a whole collection for a query that has conditions.
    fn check_scan(&self, ns: &Namespace, plan: &Plan) -> Result<()> {
        let is_own = matches!(ns.db(), "admin" | "config" | "local");
        if is_own || ns.coll().starts_with("system.") || self.filter.is_empty() {
            return Ok(());
        }
        if !matches!(plan.access, Access::CollScan(_)) {
            return Ok(());
        }
        let is_asked = matches!(self.hint, Some(Hint::Natural(_))) || self.sort.natural().is_some();
        let why = if is_asked {
            "hint $natural is not allowed, because 'notablescan' is enabled"
        } else {
            "No indexed plans available, and running with 'notablescan'"
        };
        Err(command(
            ErrorCode::NoQueryExecutionPlans,
            format!("error processing query: ns={ns} planner returned error :: caused by :: {why}"),
        ))
    }

    /// Plans on the current snapshot. `None` if there is no such collection.
    pub fn plan(
        self,
        catalog: &Catalog,
        ns: &Namespace,
        context: &OpContext,
    ) -> Result<Option<Planned>> {
        self.plan_keeping(catalog, ns, context, None)
    }

    /// As [`PlannedQuery::plan`]; keeps the trial runs of several plans for `explain`.
    pub fn plan_keeping(
        mut self,
        catalog: &Catalog,
        ns: &Namespace,
        context: &OpContext,
        kept: Option<&RefCell<Vec<TrialRun>>>,
    ) -> Result<Option<Planned>> {
        let Some((collection, snapshot)) = catalog.read(ns)? else {
            op_stats::set_summary("EOF");
            return Ok(None);
        };
        if let Some(oplog) = collection.oplog() {
            // The snapshot has all writes that were acknowledged, and so should the result.
            oplog.make_durable()?;
        }
        self.bind(&collection)?;
        let memory = OperationMemory::new(catalog.engine().memory());
        self.budget.memory.get_or_insert_with(|| memory.shared());
        let merge_limit_reached = Cell::new(false);
        let rules = context.rules.as_deref().filter(|_| !self.is_own_choice());
        let hints = rules.and_then(|rules| rules.hints_for(ns.as_str()));
        let filtered = match hints {
            None if !self.is_own_choice() => {
                let filters = collection.index_filters();
                filters.allowed(|| self.filter_shape())
            }
            _ => None,
        };
        let allowed = hints
            .or(filtered.as_deref())
            .filter(|_| self.limits.is_empty());
        let is_id_allowed = |allowed: &AllowedIndexes| {
            allowed.has(collection.id_index_name(), &frond_bson::doc! {"_id": 1})
        };
        let partitions = PartitionsRead::new(&collection, &snapshot, &self.filter);
        let query = Query {
            partitions: partitions.as_ref(),
            filter: &self.filter,
            sort: &self.sort,
            id_collator: collection.collator(),
            // They take precedence over the hint of the query.
            hint: self.hint.as_ref().filter(|_| allowed.is_none()),
            allowed,
            allows_id: allowed.is_none_or(is_id_allowed),
            shown: self.shown.as_deref(),
            limits: &self.limits,
            by_record: collection.is_by_record(),
            by_id_only: self.by_id_only,
            distinct: self.distinct.as_deref(),
            sample: self
                .sample
                .filter(|size| is_small_sample(*size, &collection, &snapshot)),
            merge_limit_reached: &merge_limit_reached,
        };
        let trial = Trial {
            collection: &collection,
            snapshot: &snapshot,
            filter: &self.filter,
            sort: &self.sort,
            example_query: self.example_query.as_ref(),
            context,
            kept,
        };
        let plan = choose(&collection, query, |several| trial.best(several))?;
        if rules.is_some_and(|rules| rules.no_collection_scans) {
            self.check_scan(ns, &plan)?;
        }
        let reports = op_stats::set_plan(|| {
            let summary = Summary::from_access(&plan.access);
            (
                summary,
                self.filter.clone(),
                self.sort.clone(),
                collection.clone(),
            )
        });
        if !plan.sorted {
            op_stats::update(|op_stats| op_stats.has_sort_stage = true);
        }
        Ok(Some(Planned {
            reports,
            engine: catalog.engine().clone(),
            memory,
            collection,
            snapshot,
            plan,
            question: self,
            merge_limit_reached: merge_limit_reached.get(),
            is_filtered: filtered.is_some(),
        }))
    }
}

/// A query with its plan, its collection and its snapshot.
#[derive(Clone)]
pub(crate) struct Planned {
    pub engine: Engine,
    /// The memory of the query, unless it is a part of a larger operation.
    pub memory: OperationMemory,
    pub collection: Arc<Collection>,
    pub snapshot: Snapshot,
    pub question: PlannedQuery,
    pub plan: Plan,
    /// Whether it is the first plan of its operation, whose statistics the profiler shows.
    pub reports: bool,
    /// Whether a sort is not done by merging scans because there are too many of them.
    pub merge_limit_reached: bool,
    /// Whether an index filter says which indexes it may use.
    pub is_filtered: bool,
}

impl Planned {
    /// Runs operators over the snapshot of the plan.
    fn run(&self, root: Node, wanted: &RowParts, context: &OpContext) -> Executor {
        let (collection, snapshot) = (self.collection.clone(), self.snapshot.clone());
        Executor::new(root, collection, snapshot, context.clone(), wanted.keys)
            .with_engine(self.engine.clone())
            .updating_op_stats(self.reports)
    }

    /// The same query by another plan.
    pub fn instead(&self, other: &Candidate) -> Planned {
        Planned {
            plan: Plan {
                access: other.access.clone(),
                sorted: other.sorted,
                rejected: Vec::new(),
            },
            ..self.clone()
        }
    }

    fn builder<'a>(&'a self, wanted: &'a RowParts) -> Builder<'a> {
        Builder {
            collection: &self.collection,
            filter: &self.question.filter,
            sort: &self.question.sort,
            wanted,
        }
    }

    /// The operators that find the rows, in any order.
    pub fn rows(&self, wanted: &RowParts, context: &OpContext) -> Executor {
        let rows = self.builder(wanted).rows(self.plan.access.clone());
        self.run(rows, wanted, context)
    }

    /// The operators of the whole query.
    pub fn query(&self, wanted: &RowParts, output: Output, context: &OpContext) -> Executor {
        let rows = (self.builder(wanted)).query(self.plan.access.clone(), output);
        self.run(rows, wanted, context)
    }

    /// The operators that count the rows.
    pub fn count(&self, skip: u64, limit: Option<u64>, context: &OpContext) -> Executor {
        let wanted = RowParts::count();
        let rows = self.builder(&wanted).rows(self.plan.access.clone());
        let count = Node::over(Count::new(skip, limit), vec![rows]);
        self.run(count, &wanted, context)
    }

    /// The sort that is still needed, if the plan does not give the order.
    pub fn pending_sort(&self) -> Option<&SortSpec> {
        (!self.plan.sorted).then_some(&self.question.sort)
    }

    /// The parts of the rows that a consumer needs who wants only the documents that the query returns.
    pub fn wanted(&self) -> RowParts {
        let loading = match &self.question.shown {
            Some(shown) => Loading::Fields(shown.clone(), self.pending_sort().cloned()),
            None => Loading::Everything,
        };
        RowParts {
            meta: self.question.wanted_meta(),
            ..RowParts::documents(loading)
        }
    }

    /// The sort that is still needed, with its budget.
    pub fn sort(&self) -> Option<(SortSpec, Budget)> {
        let sort = self.pending_sort()?.clone();
        Some((sort, self.question.budget.clone()))
    }

    /// A cursor over the result.
    pub fn cursor(&self, wanted: &RowParts, output: Output, context: &OpContext) -> QueryCursor {
        let spilled = output
            .sort
            .as_ref()
            .map(|(_, budget)| budget.spilled.clone());
        let executor = self.query(wanted, output, context);
        let memory = self.memory.clone();
        QueryCursor::of_plan(self.collection.ns.clone(), executor, spilled, memory)
    }
}

/// The prefix of errors in the execution of a reading command.
fn reading(command: &str, ns: &Namespace) -> String {
    format!("Executor error during {command} command on namespace: {ns}")
}

/// The parts of its rows that a find needs, and the operators above them.
pub(crate) fn shape_of(
    planned: &Planned,
    request: &FindRequest<'_>,
    projection: Option<Projection>,
) -> (RowParts, Output) {
    let wanted = RowParts {
        keys: request.show_record_id,
        index_keys: request.return_key,
        ..planned.wanted()
    };
    let output = Output {
        sort: planned.sort(),
        skip: request.skip,
        limit: request.limit,
        projection,
        return_key: request.return_key,
        record_id: request.show_record_id && !request.return_key,
    };
    (wanted, output)
}

/// Whether the options of a request allow the plan `IDHACK`, as in MongoDB.
fn takes_short_way(request: &FindRequest<'_>) -> bool {
    request.skip == 0
        && request.hint.is_none()
        && request.min.is_none()
        && request.max.is_none()
        && !request.show_record_id
        && !request.tailable
}

impl DocumentStore {
    /// Parses and plans a find. There is no plan if there is no such collection, but the request is
    /// still checked.
    pub(crate) fn plan_find(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        distinct: Option<&str>,
        kept: Option<&RefCell<Vec<TrialRun>>>,
        context: &OpContext,
    ) -> Result<(Projection, Option<Planned>)> {
        let collator = self.catalog().collator(ns, request.collation.as_ref());
        let environment = environment(request.variables, &collator);
        let projection = request.projection.unwrap_or(Doc::empty());
        let projection = Projection::parse_with(projection, &environment)?;
        let shown = projection.needed_paths().map(BTreeSet::from_iter);
        let question =
            PlannedQuery::parse(request.filter, request.sort, request.hint, &environment)?;
        let projection = projection.matching(&question.filter);
        let question = PlannedQuery {
            limits: KeyLimits {
                min: request.min.map(Doc::to_owned),
                max: request.max.map(Doc::to_owned),
            },
            budget: self
                .queries()
                .sort_budget(request.allow_disk_use, Arc::default()),
            meta: projection.meta(),
            by_id_only: takes_short_way(request),
            distinct: distinct.map(str::to_owned),
            sample: request.sample.filter(|_| request.hint.is_none()),
            ..question.showing(shown)
        };
        let planned = question.plan_keeping(self.catalog(), ns, context, kept)?;
        Ok((projection, planned))
    }

    /// As [`DocumentStore::find`], of a collection.
    pub(crate) fn find_in_collection(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        if request.tailable {
            return self.tail(ns, request, context);
        }
        let (projection, planned) = self.plan_find(ns, request, None, None, context)?;
        let projection = (!projection.is_identity()).then_some(projection);
        Ok(match planned {
            None => QueryCursor::empty(ns.clone()),
            Some(planned) => {
                let (wanted, output) = shape_of(&planned, request, projection);
                planned.cursor(&wanted, output, context)
            }
        })
    }

    /// Opens a tailable cursor. It reads in the order of insertion, and uses no index.
    fn tail(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        let collator = self.catalog().collator(ns, request.collation.as_ref());
        let environment = environment(request.variables, &collator);
        let projection = request.projection.unwrap_or(Doc::empty());
        let projection = Projection::parse_with(projection, &environment)?;
        let question =
            PlannedQuery::parse(request.filter, request.sort, request.hint, &environment)?;
        let projection = projection.matching(&question.filter);
        let projection = (!projection.is_identity()).then_some(projection);
        self.catalog().check_live()?;
        let catalog = self.shared_catalog();
        let Some(tail) = Tail::open(catalog, ns, question.filter, context)? else {
            return Ok(QueryCursor::empty(ns.clone()));
        };
        let tail = if request.show_record_id {
            tail.with_keys()
        } else {
            tail
        };
        let output = TailOutput {
            skip: request.skip,
            remaining: request.limit,
            projection,
            shows_record_ids: request.show_record_id,
        };
        Ok(QueryCursor::of_tail(ns.clone(), tail, output))
    }

    /// As [`DocumentStore::count`], of a collection.
    pub(crate) fn count_in_collection(
        &self,
        ns: &Namespace,
        request: &CountRequest<'_>,
        context: &OpContext,
    ) -> Result<u64> {
        let collator = self.catalog().collator(ns, request.collation.as_ref());
        let question = PlannedQuery::parse(
            request.filter,
            None,
            request.hint,
            &environment(None, &collator),
        )?;
        // The counter is that of the current state.
        let is_live = self.catalog().is_live();
        if is_live && question.filter.is_empty() && question.hint.is_none() {
            op_stats::set_summary("RECORD_STORE_FAST_COUNT");
            let limit = request.limit.unwrap_or(u64::MAX);
            return Ok(self
                .exact_count(ns, context)?
                .saturating_sub(request.skip)
                .min(limit));
        }
        let question = question.showing(Some(BTreeSet::new()));
        let Some(planned) = question.plan(self.catalog(), ns, context)? else {
            return Ok(0);
        };
        let mut found = 0;
        let mut executor = planned.count(request.skip, request.limit, context);
        // Its snapshot belongs to the executor, which may release memtables.
        drop(planned);
        let counted = executor.for_each(&mut |row| {
            found = row.doc.get_i64("n").unwrap_or(0);
            Ok(Flow::Continue)
        });
        counted.map_err(|error| error.in_execution(reading("count", ns)))?;
        Ok(u64::try_from(found).unwrap_or(0))
    }

    /// As [`DocumentStore::distinct`], of a collection.
    pub(crate) fn distinct_in_collection(
        &self,
        ns: &Namespace,
        path: &str,
        filter: Option<&Doc>,
        hint: Option<Value<'_>>,
        collation: Option<&Collator>,
        context: &OpContext,
    ) -> Result<ArrayBuf> {
        let collator = self.catalog().collator(ns, collation);
        let question = PlannedQuery::parse(filter, None, hint, &environment(None, &collator))?;
        let shown = BTreeSet::from([path.to_owned()]);
        let question = PlannedQuery {
            distinct: Some(path.to_owned()),
            ..question.showing(Some(shown))
        };
        match question.plan(self.catalog(), ns, context)? {
            None => Ok(ArrayBuf::new()),
            Some(planned) => distinct::values(planned, path, self.memory(), context)
                .map_err(|error| error.in_execution(reading("distinct", ns))),
        }
    }

    /// The number of documents in the current state of the store: from the counter, unless fast updates may have inserted some.
    ///
    /// # Errors
    /// Errors of the engine, the limits of the context.
    pub(crate) fn exact_count(&self, ns: &Namespace, context: &OpContext) -> Result<u64> {
        let collection = self.catalog().collection(ns);
        let is_known = collection.is_none_or(|collection| collection.counts().has_all_documents());
        if is_known {
            return Ok(self.estimated_count(ns));
        }
        op_stats::set_summary("COLLSCAN");
        self.count_again(ns, context)
    }

    /// The number of documents in the current state of the store, from the counter.
    pub fn estimated_count(&self, ns: &Namespace) -> u64 {
        let collection = self.catalog().collection(ns);
        collection.map_or(0, |collection| {
            u64::try_from(collection.counts().documents).unwrap_or(0)
        })
    }
}
