//! Reading: `find`, `count`, `distinct`.

mod distinct;
pub(crate) mod trial;

use std::collections::BTreeSet;
use std::sync::Arc;

use frond_bson::{ArrayBuf, Collator, Doc, Value};
use frond_query::Environment;
use frond_query::aggregate::STAGE_MEMORY_BYTES_MAX;
use frond_query::error::ErrorCode;
use frond_query::matcher::Filter;
use frond_query::meta::MetaFields;
use frond_query::projection::Projection;
use frond_query::sort::SortSpec;
use frond_query::spill::Budget;

use crate::catalog::{Catalog, Collection};
use crate::clock::environment;
use crate::context::OpContext;
use crate::error::{Result, command};
use crate::exec::access::{Executor, Loading};
use crate::exec::cursor::QueryCursor;
use crate::exec::tail::Tail;
use crate::keyspace::Snapshot;
use crate::namespace::Namespace;
use crate::plan::choose::{Query, choose};
use crate::plan::{Hint, KeyLimits, Plan};
use crate::store::DocumentStore;
pub(crate) use distinct::Distinct;
use trial::Trial;

/// What `find` was asked for.
#[derive(Clone, Debug, Default)]
pub struct FindRequest<'a> {
    /// Which documents; all if there is none.
    pub filter: Option<&'a Doc>,
    /// Which of their fields.
    pub projection: Option<&'a Doc>,
    /// In which order.
    pub sort: Option<&'a Doc>,
    /// Documents to pass over.
    pub skip: u64,
    /// Most documents to return.
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
    /// Variables for `$expr`.
    pub variables: Option<&'a Doc>,
    /// Whether temporary files may be written; by the settings if it is not said.
    pub allow_disk_use: Option<bool>,
    /// How strings compare; as the collection says if there is none.
    pub collation: Option<Collator>,
}

/// What `count` was asked for.
#[derive(Clone, Debug, Default)]
pub struct CountRequest<'a> {
    /// Which documents; all if there is none.
    pub filter: Option<&'a Doc>,
    /// Documents to pass over.
    pub skip: u64,
    /// Most documents to count.
    pub limit: Option<u64>,
    /// The index to use, as in a find.
    pub hint: Option<Value<'a>>,
    /// How strings compare; as the collection says if there is none.
    pub collation: Option<Collator>,
}

/// A parsed query.
#[derive(Clone)]
pub(crate) struct Question {
    pub filter: Arc<Filter>,
    /// The order, with the collator of the query.
    pub sort: SortSpec,
    pub hint: Option<Hint>,
    /// The fields that are looked at, if not all are.
    pub shown: Option<Arc<BTreeSet<String>>>,
    /// Bounds of the hinted index.
    pub limits: KeyLimits,
    /// What a blocking sort may use.
    pub budget: Budget,
    /// The metadata that is shown or looked at, besides what is sorted by.
    pub meta: MetaFields,
}

impl Question {
    /// Parses a query.
    pub fn parse(
        filter: Option<&Doc>,
        sort: Option<&Doc>,
        hint: Option<Value<'_>>,
        environment: &Environment<'_>,
    ) -> Result<Question> {
        Ok(Question {
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

    /// The metadata that documents have to come with.
    pub fn wanted_meta(&self) -> MetaFields {
        self.meta | self.sort.meta()
    }

    /// The same query, of which only these fields are looked at.
    pub fn showing(self, shown: Option<BTreeSet<String>>) -> Question {
        Question {
            shown: shown.map(Arc::new),
            ..self
        }
    }

    /// Plans on the current snapshot. `None` if there is no such collection.
    pub fn plan(
        mut self,
        catalog: &Catalog,
        ns: &Namespace,
        context: &OpContext,
    ) -> Result<Option<Planned>> {
        let Some((collection, snapshot)) = catalog.read(ns) else {
            return Ok(None);
        };
        self.bind(&collection)?;
        let query = Query {
            filter: &self.filter,
            sort: &self.sort,
            id_collator: collection.collator(),
            hint: self.hint.as_ref(),
            shown: self.shown.as_deref(),
            limits: &self.limits,
            by_record: collection.is_by_record(),
        };
        let trial = Trial {
            collection: &collection,
            snapshot: &snapshot,
            filter: &self.filter,
            sort: &self.sort,
            context,
        };
        let plan = choose(&collection, query, |several| trial.best(several))?;
        Ok(Some(Planned {
            collection,
            snapshot,
            plan,
            question: self,
        }))
    }
}

/// A query with its plan, its collection and its snapshot.
pub(crate) struct Planned {
    pub collection: Arc<Collection>,
    pub snapshot: Snapshot,
    pub question: Question,
    pub plan: Plan,
}

impl Planned {
    /// Opens the plan.
    pub fn open(&self, context: &OpContext) -> Result<Executor> {
        Executor::open(
            self.collection.clone(),
            self.snapshot.clone(),
            self.plan.access.clone(),
            self.question.filter.clone(),
            context.clone(),
        )
        .map(|executor| {
            let executor = executor.with_meta(self.question.wanted_meta());
            match &self.question.shown {
                Some(shown) => {
                    let sort = self.pending_sort().cloned();
                    executor.loading(Loading::Shown(shown.clone(), sort))
                }
                None => executor,
            }
        })
    }

    /// The sort that has to be done, if the plan is not in order.
    pub fn pending_sort(&self) -> Option<&SortSpec> {
        (!self.plan.sorted).then_some(&self.question.sort)
    }

    /// A cursor over the result. `shapes_early` if nobody asks its rows for anything but what the projection shows.
    pub fn into_cursor(
        self,
        skip: u64,
        limit: Option<u64>,
        projection: Option<Projection>,
        shapes_early: bool,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        let executor = self.open(context)?;
        let sort = self.pending_sort().cloned();
        let (executor, projection) = match projection {
            // What is passed over is not projected.
            Some(projection) if shapes_early && skip == 0 && shows_order(&projection, &sort) => {
                executor.shaped(projection)
            }
            projection => (executor, projection),
        };
        let sort = sort.map(|sort| (sort, self.question.budget.clone()));
        let ns = self.collection.ns.clone();
        let cursor = QueryCursor::of_plan(ns, executor, sort, skip, limit, projection);
        Ok(cursor.with_meta(self.question.wanted_meta(), &self.question.sort))
    }
}

/// Whether all that the sort looks at is in what the projection shows. With a limit most documents are dropped by the
/// sort, but what is held of them is smaller.
fn shows_order(projection: &Projection, sort: &Option<SortSpec>) -> bool {
    let Some(sort) = sort else { return true };
    let keeps = |path: &str| projection.keeps(path.split('.').next().unwrap_or_default());
    sort.meta().is_empty()
        && !projection.computes()
        && sort.fields().all(|(path, _)| keeps(path.as_str()))
}

impl DocumentStore {
    /// Parses and plans a find. No plan if there is no such collection; the request is checked all
    /// the same.
    pub(crate) fn plan_find(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        context: &OpContext,
    ) -> Result<(Projection, Option<Planned>)> {
        let collator = self.catalog().collator(ns, request.collation.as_ref());
        let environment = environment(request.variables, &collator);
        let projection = request.projection.unwrap_or(Doc::empty());
        let projection = Projection::parse_with(projection, &environment)?;
        let shown = projection.needed_paths().map(BTreeSet::from_iter);
        let question = Question::parse(request.filter, request.sort, request.hint, &environment)?;
        let question = Question {
            limits: KeyLimits {
                min: request.min.map(Doc::to_owned),
                max: request.max.map(Doc::to_owned),
            },
            budget: self
                .queries()
                .sort_budget(request.allow_disk_use, Arc::default()),
            meta: projection.meta(),
            ..question.showing(shown)
        };
        let planned = question.plan(self.catalog(), ns, context)?;
        Ok((projection, planned))
    }

    /// Finds documents. A collection that does not exist has none.
    ///
    /// # Errors
    /// Errors of the filter, the projection, the sort and the hint. Later errors come from the
    /// cursor.
    pub fn find(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        if self.catalog().is_view(ns) {
            return self.find_in_view(ns, request, context);
        }
        if request.tailable {
            return self.tail(ns, request, context);
        }
        let (projection, planned) = self.plan_find(ns, request, context)?;
        let projection = (!projection.is_identity()).then_some(projection);
        match planned {
            None => Ok(QueryCursor::empty(ns.clone())),
            Some(planned) => {
                let by_record = planned.collection.is_by_record();
                let (skip, limit) = (request.skip, request.limit);
                let cursor =
                    planned.into_cursor(skip, limit, projection, !request.return_key, context)?;
                let cursor = match request.show_record_id {
                    true => cursor.showing_record_ids(by_record),
                    false => cursor,
                };
                Ok(if request.return_key {
                    cursor.returning_keys()
                } else {
                    cursor
                })
            }
        }
    }

    /// Opens a tailable cursor. It reads in the order of insertion, whatever indexes there are.
    fn tail(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        let environment = environment(request.variables, Collator::BINARY);
        let projection = request.projection.unwrap_or(Doc::empty());
        let projection = Projection::parse_with(projection, &environment)?;
        let projection = (!projection.is_identity()).then_some(projection);
        let question = Question::parse(request.filter, request.sort, request.hint, &environment)?;
        let catalog = self.shared_catalog();
        let Some(tail) = Tail::open(catalog, ns, question.filter, context)? else {
            return Ok(QueryCursor::empty(ns.clone()));
        };
        let (skip, limit) = (request.skip, request.limit);
        let cursor = QueryCursor::of_tail(ns.clone(), tail, skip, limit, projection);
        Ok(match request.show_record_id {
            true => cursor.showing_record_ids(true),
            false => cursor,
        })
    }

    /// Counts documents. Without a filter this reads a counter.
    ///
    /// # Errors
    /// As [`DocumentStore::find`], and those of its cursor.
    pub fn count(
        &self,
        ns: &Namespace,
        request: &CountRequest<'_>,
        context: &OpContext,
    ) -> Result<u64> {
        if self.catalog().is_view(ns) {
            return self.count_in_view(ns, request, context);
        }
        let collator = self.catalog().collator(ns, request.collation.as_ref());
        let question = Question::parse(
            request.filter,
            None,
            request.hint,
            &environment(None, &collator),
        )?;
        let limit = request.limit.unwrap_or(u64::MAX);
        if question.filter.is_empty() && question.hint.is_none() {
            return Ok(self
                .estimated_count(ns)
                .saturating_sub(request.skip)
                .min(limit));
        }
        let question = question.showing(Some(BTreeSet::new()));
        let Some(planned) = question.plan(self.catalog(), ns, context)? else {
            return Ok(0);
        };
        let most = limit.saturating_add(request.skip);
        let mut executor = planned.open(context)?.without_docs();
        let mut found = 0;
        while found < most && executor.next_row()?.is_some() {
            found += 1;
        }
        Ok(found.saturating_sub(request.skip))
    }

    /// The distinct values of a field in the documents that pass a filter, elements of arrays taken
    /// one by one.
    ///
    /// # Errors
    /// As [`DocumentStore::find`]; 17217 if the values are larger than one document.
    pub fn distinct(
        &self,
        ns: &Namespace,
        path: &str,
        filter: Option<&Doc>,
        hint: Option<Value<'_>>,
        collation: Option<&Collator>,
        context: &OpContext,
    ) -> Result<ArrayBuf> {
        if self.catalog().is_view(ns) {
            return self.distinct_in_view(ns, path, filter, hint, collation, context);
        }
        let collator = self.catalog().collator(ns, collation);
        let question = Question::parse(filter, None, hint, &environment(None, &collator))?;
        let shown = BTreeSet::from([path.to_owned()]);
        let question = question.showing(Some(shown));
        match question.plan(self.catalog(), ns, context)? {
            None => Ok(ArrayBuf::new()),
            Some(planned) => distinct::values(&planned, path, context),
        }
    }

    /// The number of documents as the counter has it.
    pub fn estimated_count(&self, ns: &Namespace) -> u64 {
        let collection = self.catalog().collection(ns);
        collection.map_or(0, |collection| {
            u64::try_from(collection.counts().documents).unwrap_or(0)
        })
    }
}
