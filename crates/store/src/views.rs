//! Reads by name: of a collection, or of a view. A read of a view becomes a pipeline over the underlying collection.

use frond_bson::{ArrayBuf, Collator, Doc, Value, doc};
use frond_error::ErrorCode;

use crate::aggregate::AggregateRequest;
use crate::catalog::ResolvedView;
use crate::exec::cursor::QueryCursor;
use crate::find::Distinct;
use crate::find::{CountRequest, FindRequest};
use crate::memory::take;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::error::{Result, command};
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;

impl ResolvedView {
    /// The collation of all reads of the view.
    ///
    /// # Errors
    /// If the stored collation is not one.
    pub fn collator(&self) -> Result<Collator> {
        match &self.collation {
            Some(spec) => Ok(frond_query::collation::parse(spec)?),
            None => Ok(Collator::default()),
        }
    }

    /// The stages of the view, followed by these.
    pub fn with_stages(&self, stages: &Doc) -> ArrayBuf {
        let mut all = self.pipeline.clone();
        for stage in stages.values() {
            all.push_value(&stage);
        }
        all
    }
}

/// Error 168: pipelines do not support this.
fn not_in_aggregation(option: &str) -> frond_storage::error::Error {
    command(
        ErrorCode::InvalidPipelineOperator,
        format!("Option {option} not supported in aggregation."),
    )
}

/// The stages equivalent to a find.
///
/// # Errors
/// `InvalidPipelineOperator` (168) for what pipelines do not support.
pub fn stages_of_find(request: &FindRequest<'_>) -> Result<ArrayBuf> {
    for (name, is_given) in [
        ("min", request.min.is_some()),
        ("max", request.max.is_some()),
        ("returnKey", request.return_key),
        ("showRecordId", request.show_record_id),
        ("tailable", request.tailable),
    ] {
        if is_given {
            return Err(not_in_aggregation(name));
        }
    }
    let mut stages = ArrayBuf::new();
    let given = |doc: Option<&'_ Doc>| doc.filter(|doc| !doc.is_empty()).map(Doc::to_owned);
    if let Some(filter) = given(request.filter) {
        stages.push(&doc! {"$match": filter});
    }
    if let Some(sort) = given(request.sort) {
        if sort.contains_key("$natural") {
            return Err(command(
                ErrorCode::InvalidPipelineOperator,
                "Sort option $natural not supported in aggregation.",
            ));
        }
        stages.push(&doc! {"$sort": sort});
    }
    if request.skip > 0 {
        stages.push(&doc! {"$skip": clamped(request.skip)});
    }
    if let Some(limit) = request.limit {
        stages.push(&doc! {"$limit": clamped(limit)});
    }
    if let Some(projection) = given(request.projection) {
        stages.push(&doc! {"$project": projection});
    }
    Ok(stages)
}

/// The stages equivalent to a count, without the count itself.
pub fn stages_of_count(request: &CountRequest<'_>) -> ArrayBuf {
    let find = FindRequest {
        filter: request.filter,
        skip: request.skip,
        limit: request.limit,
        ..FindRequest::default()
    };
    // Pipelines support all that a count can contain.
    stages_of_find(&find).unwrap_or_default()
}

fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A request to run stages over a view.
fn reading<'a>(
    stages: &'a Doc,
    hint: Option<Value<'a>>,
    collation: Option<&Collator>,
) -> AggregateRequest<'a> {
    AggregateRequest {
        pipeline: stages,
        hint,
        variables: None,
        durability: Durability::Logged,
        allow_disk_use: None,
        bypass_validation: false,
        collation: collation.cloned(),
    }
}

impl DocumentStore {
    /// The pipeline over a collection that a view stands for; `None` if this is no view.
    ///
    /// # Errors
    /// `ViewDepthLimitExceeded` (165).
    pub fn resolve_view(&self, ns: &Namespace) -> Result<Option<ResolvedView>> {
        self.catalog().resolve(ns)
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
            self.find_in_view(ns, request, context)
        } else {
            self.find_in_collection(ns, request, context)
        }
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
            self.count_in_view(ns, request, context)
        } else {
            self.count_in_collection(ns, request, context)
        }
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
            self.distinct_in_view(ns, path, filter, hint, collation, context)
        } else {
            self.distinct_in_collection(ns, path, filter, hint, collation, context)
        }
    }

    fn find_in_view(
        &self,
        ns: &Namespace,
        request: &FindRequest<'_>,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        let stages = stages_of_find(request)?;
        let reading = AggregateRequest {
            variables: request.variables,
            allow_disk_use: request.allow_disk_use,
            ..reading(&stages, request.hint, request.collation.as_ref())
        };
        self.aggregate(ns.db(), Some(ns), &reading, context)
    }

    fn count_in_view(
        &self,
        ns: &Namespace,
        request: &CountRequest<'_>,
        context: &OpContext,
    ) -> Result<u64> {
        let mut stages = stages_of_count(request);
        stages.push(&doc! {"$count": "n"});
        let reading = reading(&stages, request.hint, request.collation.as_ref());
        let mut cursor = self.aggregate(ns.db(), Some(ns), &reading, context)?;
        let counted = cursor.next()?.and_then(|counted| counted.get_i64("n"));
        Ok(counted.and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
    }

    fn distinct_in_view(
        &self,
        ns: &Namespace,
        path: &str,
        filter: Option<&Doc>,
        hint: Option<Value<'_>>,
        collation: Option<&Collator>,
        context: &OpContext,
    ) -> Result<ArrayBuf> {
        let find = FindRequest {
            filter,
            ..FindRequest::default()
        };
        let stages = stages_of_find(&find)?;
        let reading = reading(&stages, hint, collation);
        let mut cursor = self.aggregate(ns.db(), Some(ns), &reading, context)?;
        let view = self.resolve_view(ns)?;
        let collator = view.map(|view| view.collator()).transpose()?;
        let mut distinct = Distinct::new(path, collator.as_ref().unwrap_or(Collator::BINARY));
        let mut reserved = None;
        while let Some(doc) = cursor.next()? {
            let bytes = distinct.bytes_with(&doc);
            take(&mut reserved, Some(self.memory()), bytes, "distinct")?;
            distinct.add(&doc)?;
        }
        Ok(distinct.into_array())
    }
}
