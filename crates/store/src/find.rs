//! Reading: `find`, `count`, `distinct`.

use std::collections::BTreeSet;
use std::sync::Arc;

use frond_bson::{ArrayBuf, Doc, Value};
use frond_query::Environment;
use frond_query::error::Error as CommandError;
use frond_query::matcher::Filter;
use frond_query::projection::Projection;
use frond_query::sort::SortSpec;

use crate::catalog::{Catalog, Collection};
use crate::context::OpContext;
use crate::error::Result;
use crate::exec::access::Executor;
use crate::exec::cursor::QueryCursor;
use crate::keyspace::Snapshot;
use crate::namespace::Namespace;
use crate::plan::choose::{Query, choose};
use crate::plan::{Hint, Plan};
use crate::store::DocumentStore;
use crate::write::environment;

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
    /// Variables for `$expr`.
    pub variables: Option<&'a Doc>,
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
}

/// A parsed query with its plan, its collection and its snapshot.
pub(crate) struct Planned {
    pub collection: Arc<Collection>,
    pub snapshot: Snapshot,
    pub filter: Arc<Filter>,
    pub sort: SortSpec,
    pub plan: Plan,
}

impl Planned {
    /// Plans on the current snapshot. `None` if there is no such collection.
    pub fn new(
        catalog: &Catalog,
        ns: &Namespace,
        filter: Arc<Filter>,
        sort: SortSpec,
        hint: Option<&Hint>,
        shown: Option<&BTreeSet<String>>,
    ) -> Result<Option<Planned>> {
        let Some((collection, snapshot)) = catalog.read(ns) else {
            return Ok(None);
        };
        let query = Query {
            filter: &filter,
            sort: &sort,
            hint,
            shown,
        };
        let plan = choose(&collection, query)?;
        Ok(Some(Planned {
            collection,
            snapshot,
            filter,
            sort,
            plan,
        }))
    }

    /// Opens the plan.
    pub fn open(&self, context: &OpContext) -> Result<Executor> {
        Executor::open(
            self.collection.clone(),
            self.snapshot.clone(),
            self.plan.access.clone(),
            self.filter.clone(),
            context.clone(),
        )
    }
}

impl DocumentStore {
    /// Parses and plans. `None` if there is no such collection; the request is checked all the same.
    pub(crate) fn plan(
        &self,
        ns: &Namespace,
        filter: Option<&Doc>,
        sort: Option<&Doc>,
        hint: Option<Value<'_>>,
        shown: Option<&BTreeSet<String>>,
        environment: &Environment<'_>,
    ) -> Result<Option<Planned>> {
        let filter = Arc::new(match filter {
            Some(filter) => Filter::parse_with(filter, environment)?,
            None => Filter::all(),
        });
        let sort = SortSpec::parse(sort.unwrap_or(Doc::empty()))?;
        let hint = Hint::parse(hint)?;
        Planned::new(self.catalog(), ns, filter, sort, hint.as_ref(), shown)
    }

    /// Parses and plans a find.
    pub(crate) fn plan_find(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
    ) -> Result<(Projection, Option<Planned>)> {
        for (option, given) in [("min", request.min), ("max", request.max)] {
            if given.is_some() {
                return Err(CommandError::not_supported(format_args!(
                    "the option '{option}' of find"
                ))
                .into());
            }
        }
        let environment = environment(request.variables);
        let projection = request.projection.unwrap_or(Doc::empty());
        let projection = Projection::parse_with(projection, &environment)?;
        let shown = projection.needed_paths().map(BTreeSet::from_iter);
        let planned = self.plan(
            ns,
            request.filter,
            request.sort,
            request.hint,
            shown.as_ref(),
            &environment,
        )?;
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
        let (projection, planned) = self.plan_find(ns, request)?;
        let Some(planned) = planned else {
            return Ok(QueryCursor::empty(ns.clone()));
        };
        let executor = planned.open(context)?;
        Ok(QueryCursor::of_plan(
            ns.clone(),
            executor,
            (!planned.plan.sorted).then_some(planned.sort),
            request.skip,
            request.limit,
            (!projection.is_identity()).then_some(projection),
        ))
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
        let shown = BTreeSet::new();
        let planned = self.plan(
            ns,
            request.filter,
            None,
            request.hint,
            Some(&shown),
            &environment(None),
        )?;
        let Some(planned) = planned else {
            return Ok(0);
        };
        let limit = request.limit.unwrap_or(u64::MAX);
        if planned.filter.is_empty() && request.hint.is_none() {
            let all = u64::try_from(planned.collection.counts().documents).unwrap_or(0);
            return Ok(all.saturating_sub(request.skip).min(limit));
        }
        let most = limit.saturating_add(request.skip);
        let mut executor = planned.open(context)?;
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
        context: &OpContext,
    ) -> Result<ArrayBuf> {
        let Some(planned) = self.plan(ns, filter, None, hint, None, &environment(None))? else {
            return Ok(ArrayBuf::new());
        };
        crate::distinct::values(&planned, path, context)
    }

    /// The number of documents as the counter has it.
    pub fn estimated_count(&self, ns: &Namespace) -> u64 {
        let collection = self.catalog().collection(ns);
        collection.map_or(0, |collection| {
            u64::try_from(collection.counts().documents).unwrap_or(0)
        })
    }
}
