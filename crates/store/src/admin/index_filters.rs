//! Index filters: set, listed, removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use frond_bson::Doc;
use frond_error::ErrorCode;
use frond_query::projection::Projection;

use crate::catalog::{Collection, IndexFilter};
use crate::clock::environment;
use crate::error::{Result, command};
use crate::find::Question;
use crate::namespace::Namespace;
use crate::plan_rules::AllowedIndexes;
use crate::store::DocumentStore;

/// An example of queries with one shape.
#[derive(Clone, Copy, Debug)]
pub struct ShapeExample<'a> {
    /// The filter.
    pub query: &'a Doc,
    /// The order.
    pub sort: &'a Doc,
    /// The fields.
    pub projection: &'a Doc,
    /// How strings compare; none as the collection does.
    pub collation: Option<&'a Doc>,
}

impl DocumentStore {
    /// The hash of the shape of a query.
    fn shape_of(&self, collection: &Collection, example: &ShapeExample<'_>) -> Result<u64> {
        let own = (example.collation)
            .filter(|collation| !collation.is_empty())
            .map(frond_query::collation::parse)
            .transpose()?;
        let collator = self.catalog().collator(&collection.ns, own.as_ref());
        let environment = environment(None, &collator);
        let projection = Projection::parse_with(example.projection, &environment)?;
        let shown = projection.needed_paths().map(BTreeSet::from_iter);
        let question =
            Question::parse(Some(example.query), Some(example.sort), None, &environment)?;
        Ok(question.showing(shown).filter_shape())
    }

    fn filtered(&self, ns: &Namespace) -> Result<Option<Arc<Collection>>> {
        match self.catalog().existing(ns) {
            Ok(collection) => Ok(Some(collection)),
            Err(error) if error.code() == ErrorCode::NamespaceNotFound => Ok(None),
            Err(error) => Err(error),
        }
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
            .filtered(ns)?
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
        let Some(collection) = self.filtered(ns)? else {
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
        let collection = self.filtered(ns)?;
        Ok(collection.map_or_else(Vec::new, |collection| collection.index_filters().list()))
    }
}
