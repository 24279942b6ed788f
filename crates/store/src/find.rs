//! Reading: `find`, `count`, `distinct`.

use std::collections::BTreeSet;
use std::sync::Arc;

use frond_bson::{ArrayBuf, Doc, DocBuf};
use frond_query::matcher::Filter;
use frond_query::projection::Projection;
use frond_query::sort::SortSpec;

use crate::catalog::Collection;
use crate::context::OpContext;
use crate::error::Result;
use crate::exec::access::Executor;
use crate::exec::cursor::QueryCursor;
use crate::keyspace::Snapshot;
use crate::namespace::Namespace;
use crate::plan::choose::{Query, choose};
use crate::plan::{Hint, Plan};
use crate::store::DocumentStore;

/// What `find` was asked for.
#[derive(Clone, Debug, Default)]
pub struct FindRequest {
    /// Which documents.
    pub filter: DocBuf,
    /// Which of their fields; empty for all.
    pub projection: DocBuf,
    /// In which order; empty for none.
    pub sort: DocBuf,
    /// Documents to pass over.
    pub skip: u64,
    /// Most documents to return; 0 for no limit.
    pub limit: u64,
    /// The index to use.
    pub hint: Option<Hint>,
}

/// What `count` was asked for.
#[derive(Clone, Debug, Default)]
pub struct CountRequest {
    /// Which documents.
    pub filter: DocBuf,
    /// Documents to pass over.
    pub skip: u64,
    /// Most documents to count; 0 for no limit.
    pub limit: u64,
    /// The index to use.
    pub hint: Option<Hint>,
}

/// A parsed query with its plan, its collection and its snapshot.
pub(crate) struct Planned {
    pub collection: Arc<Collection>,
    pub snapshot: Snapshot,
    pub filter: Arc<Filter>,
    pub sort: SortSpec,
    pub plan: Plan,
}

impl DocumentStore {
    /// Parses and plans. `None` if there is no such collection; the request is checked all the same.
    pub(crate) fn plan(
        &self,
        ns: &Namespace,
        filter: &Doc,
        sort: &Doc,
        hint: Option<&Hint>,
        shown: Option<&BTreeSet<String>>,
    ) -> Result<Option<Planned>> {
        let filter = Arc::new(Filter::parse(filter)?);
        let sort = SortSpec::parse(sort)?;
        let Some((collection, snapshot)) = self.catalog().read(ns) else {
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

    /// Finds documents. A collection that does not exist has none.
    ///
    /// # Errors
    /// Errors of the filter, the projection, the sort and the hint. Later errors come from the
    /// cursor.
    pub fn find(
        &self,
        ns: &Namespace,
        request: &FindRequest,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        let projection = Projection::parse(&request.projection)?;
        let shown = projection.needed_paths().map(BTreeSet::from_iter);
        let hint = request.hint.as_ref();
        let planned = self.plan(ns, &request.filter, &request.sort, hint, shown.as_ref())?;
        let Some(planned) = planned else {
            return Ok(QueryCursor::empty(ns.clone()));
        };
        let Planned {
            collection,
            snapshot,
            filter,
            sort,
            plan,
        } = planned;
        let executor = Executor::open(collection, snapshot, plan.access, filter, context.clone())?;
        Ok(QueryCursor::of_plan(
            ns.clone(),
            executor,
            (!plan.sorted).then_some(sort),
            request.skip,
            (request.limit > 0).then_some(request.limit),
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
        request: &CountRequest,
        context: &OpContext,
    ) -> Result<u64> {
        let shown = BTreeSet::new();
        let hint = request.hint.as_ref();
        let planned = self.plan(ns, &request.filter, Doc::empty(), hint, Some(&shown))?;
        let Some(planned) = planned else {
            return Ok(0);
        };
        let limit = if request.limit == 0 {
            u64::MAX
        } else {
            request.limit
        };
        if planned.filter.is_empty() && hint.is_none() {
            let all = u64::try_from(planned.collection.counts().documents).unwrap_or(0);
            return Ok(all.saturating_sub(request.skip).min(limit));
        }
        let most = limit.saturating_add(request.skip);
        let mut executor = Executor::open(
            planned.collection,
            planned.snapshot,
            planned.plan.access,
            planned.filter,
            context.clone(),
        )?;
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
        filter: &Doc,
        hint: Option<&Hint>,
        context: &OpContext,
    ) -> Result<ArrayBuf> {
        let Some(planned) = self.plan(ns, filter, Doc::empty(), hint, None)? else {
            return Ok(ArrayBuf::new());
        };
        crate::distinct::values(planned, path, context)
    }

    /// The number of documents as the counter has it.
    pub fn estimated_count(&self, ns: &Namespace) -> u64 {
        let collection = self.catalog().collection(ns);
        collection.map_or(0, |collection| {
            u64::try_from(collection.counts().documents).unwrap_or(0)
        })
    }
}
