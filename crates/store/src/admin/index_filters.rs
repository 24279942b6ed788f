//! Index filters: set, listed, removed.

use std::sync::Arc;

use frond_error::ErrorCode;

use super::plan_cache::ShapeExample;
use crate::catalog::{Collection, IndexFilter};
use crate::store::DocumentStore;
use frond_storage::error::{Result, command};
use frond_storage::namespace::Namespace;
use frond_storage::plan_rules::AllowedIndexes;

impl DocumentStore {
    /// The hash of the shape that index filters are for.
    fn shape_of(&self, collection: &Collection, example: &ShapeExample<'_>) -> Result<u64> {
        Ok(self.parse_example(collection, example)?.filter_shape())
    }

    /// Lets queries of a shape use only these indexes, until the store is closed.
    ///
    /// # Errors
    /// `BadValue` (2) if there is no such collection, or the query is none.
    pub fn set_index_filter(
        &self,
        ns: &Namespace,
        example: &ShapeExample<'_>,
        allowed: AllowedIndexes,
    ) -> Result<()> {
        let collection = self
            .planned_collection(ns)?
            .ok_or_else(|| command(ErrorCode::BadValue, format!("no such collection {ns}")))?;
        let shape = self.shape_of(&collection, example)?;
        let mut query = frond_bson::doc! {
            "query": example.query, "sort": example.sort, "projection": example.projection,
        };
        if let Some(collation) = example.collation.filter(|collation| !collation.is_empty()) {
            query.push("collation", collation);
        }
        let filter = IndexFilter {
            query,
            allowed: Arc::new(allowed),
        };
        collection.index_filters().set(shape, filter);
        // Plans that were chosen may use what is not allowed any more.
        collection.plans().clear();
        Ok(())
    }

    /// Removes the index filter of a shape, or all of a collection.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166); the query is none.
    pub fn clear_index_filters(
        &self,
        ns: &Namespace,
        example: Option<&ShapeExample<'_>>,
    ) -> Result<()> {
        let Some(collection) = self.planned_collection(ns)? else {
            return Ok(());
        };
        let shape = example.map(|one| self.shape_of(&collection, one));
        collection.index_filters().clear(shape.transpose()?);
        collection.plans().clear();
        Ok(())
    }

    /// The index filters of a collection.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166).
    pub fn index_filters(&self, ns: &Namespace) -> Result<Vec<IndexFilter>> {
        let collection = self.planned_collection(ns)?;
        Ok(collection.map_or_else(Vec::new, |collection| collection.index_filters().list()))
    }
}
