//! The plan cache of a collection: listed and cleared.

use std::collections::BTreeSet;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf};
use frond_error::ErrorCode;
use frond_query::projection::Projection;

use crate::catalog::{Cached, Collection};
use crate::find::PlannedQuery;
use crate::op_stats::PlanHashes;
use crate::plan::cache;
use crate::store::DocumentStore;
use frond_storage::environment::environment;
use frond_storage::error::Result;
use frond_storage::namespace::Namespace;

/// An example of queries with one shape.
#[derive(Clone, Copy, Debug)]
pub struct ShapeExample<'a> {
    pub query: &'a Doc,
    pub sort: &'a Doc,
    pub projection: &'a Doc,
    /// The collation; none for that of the collection.
    pub collation: Option<&'a Doc>,
}

/// A plan that won a trial run, and is used for queries of its shape.
#[derive(Clone, Debug)]
pub struct CachedPlan {
    /// Hashes of the shape.
    pub hashes: PlanHashes,
    /// `planSummary` of the plan.
    pub summary: String,
    /// Units of work that the plan did in its run, at least one.
    pub works: u64,
    /// The query that was tried, `{query, sort, projection}`. `None` if it is large, or came from a pipeline.
    pub example: Option<DocBuf>,
    /// When it was chosen, in milliseconds since 1970.
    pub chosen_ms: i64,
    /// The number of uses since.
    pub uses: u32,
}

impl CachedPlan {
    fn new(cached: Cached, collection: &Collection) -> CachedPlan {
        let winner = cached.winner;
        CachedPlan {
            hashes: PlanHashes::of_shape(cached.shape, collection),
            summary: winner.summary,
            works: winner.works,
            example: winner.example,
            chosen_ms: cached.chosen_ms,
            uses: cached.uses,
        }
    }
}

impl DocumentStore {
    /// The plans in the cache of a collection: none if there is no such collection.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166).
    pub fn cached_plans(&self, ns: &Namespace) -> Result<Vec<CachedPlan>> {
        let Some(collection) = self.planned_collection(ns)? else {
            return Ok(Vec::new());
        };
        let all = collection.plans().list().into_iter();
        Ok(all
            .map(|cached| CachedPlan::new(cached, &collection))
            .collect())
    }

    /// The plan in the cache for queries like this one.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166); the query is none.
    pub fn cached_plan(
        &self,
        ns: &Namespace,
        example: &ShapeExample<'_>,
    ) -> Result<Option<CachedPlan>> {
        let Some(collection) = self.planned_collection(ns)? else {
            return Ok(None);
        };
        let shape = self.cache_shape(&collection, example)?;
        let mut all = collection.plans().list().into_iter();
        let found = all.find(|cached| cached.shape == shape);
        Ok(found.map(|cached| CachedPlan::new(cached, &collection)))
    }

    /// Removes the plan for queries like the example from the cache of a collection, or all plans. A missing collection is no error.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166); the query is none.
    pub fn forget_plans(&self, ns: &Namespace, example: Option<&ShapeExample<'_>>) -> Result<()> {
        let Some(collection) = self.planned_collection(ns)? else {
            return Ok(());
        };
        match example {
            None => collection.plans().clear(),
            Some(example) => {
                let shape = self.cache_shape(&collection, example)?;
                collection.plans().remove(shape);
            }
        }
        Ok(())
    }

    /// The hash that the plan cache has for a shape. It does not depend on the projection.
    fn cache_shape(&self, collection: &Collection, example: &ShapeExample<'_>) -> Result<u64> {
        let question = self.parse_example(collection, example)?;
        Ok(cache::shape(&question.filter, &question.sort))
    }

    /// Parses the example of a shape.
    pub(super) fn parse_example(
        &self,
        collection: &Collection,
        example: &ShapeExample<'_>,
    ) -> Result<PlannedQuery> {
        let own = (example.collation)
            .filter(|collation| !collation.is_empty())
            .map(frond_query::collation::parse)
            .transpose()?;
        let collator = self.catalog().collator(&collection.ns, own.as_ref());
        let environment = environment(None, &collator);
        let projection = Projection::parse_with(example.projection, &environment)?;
        let shown = projection.needed_paths().map(BTreeSet::from_iter);
        let question =
            PlannedQuery::parse(Some(example.query), Some(example.sort), None, &environment)?;
        Ok(question.showing(shown))
    }

    /// The collection of a command about plans. `None` if there is none of this name.
    pub(super) fn planned_collection(&self, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
        match self.catalog().existing(ns) {
            Ok(collection) => Ok(Some(collection)),
            Err(error) if error.code() == ErrorCode::NamespaceNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
