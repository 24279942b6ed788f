//! The specification of an index, and the behaviour of one with computed fields. Each names the other: a specification
//! owns the object that computes the fields, and that object checks the specification.

use std::fmt::Debug;
use std::sync::Arc;

use frond_bson::{Collator, Doc, DocBuf, key};
use frond_error::Result;
use frond_query::geo::Near;
use frond_query::matcher::{Expr, Filter};
use frond_query::paths::{KeyPaths, MultikeyPaths, Path};
use frond_query::text::TextSpec;

use super::Index;
use super::field::{Holds, IndexField};
use super::kinds::near::GeoField;
use super::route::Route;
use super::slots::Slots;
use crate::intervals::conditions::Conditions;
use crate::keyspace::TreeOptions;
use crate::record_layout::RecordLayout;

/// The name of the index on `_id` that every collection has.
pub const ID_INDEX_NAME: &str = "_id_";

/// The filter of a partial index.
#[derive(Clone, Debug)]
pub struct Partial {
    /// As it was given.
    pub doc: DocBuf,
    pub filter: Arc<Filter>,
}

/// The specification of one index in `createIndexes`.
#[derive(Clone, Debug)]
pub struct IndexSpec {
    /// Its name, unique in the collection.
    pub name: String,
    /// The key pattern as `listIndexes` shows it.
    pub key: DocBuf,
    /// The parts of an entry: the fields of the key pattern.
    pub fields: Vec<IndexField>,
    /// The paths of those that hold values, ready to be followed.
    pub paths: KeyPaths,
    /// Its behaviour if it has computed fields; `None` for an ordered index.
    pub method: Option<Arc<dyn IndexMethod>>,
    /// Whether two documents may not have the same key.
    pub unique: bool,
    /// Whether documents that lack every field have no entry.
    pub sparse: bool,
    /// Whether the planner does not see it.
    pub hidden: bool,
    /// Whether writes that add to duplicates fail, though there may be some.
    pub prepare_unique: bool,
    /// Whether each entry holds the whole document, so that a range scan of the index fetches nothing else.
    pub clustering: bool,
    /// Seconds after which documents expire.
    pub expire_after: Option<i32>,
    pub collator: Collator,
    /// Only documents that match have entries.
    pub partial: Option<Partial>,
    /// The composition of the keys of the collection's documents, with which entries end.
    pub records: RecordLayout,
    /// Whether its entries are the documents of the collection: it is the primary key.
    pub primary: bool,
    /// Compression and sizes of the tree.
    pub tree: TreeOptions,
    /// The whole specification as `listIndexes` shows it.
    pub doc: DocBuf,
}

impl IndexSpec {
    /// Whether the key pattern is that of the index on `_id`.
    pub fn is_id_index(&self) -> bool {
        matches!(
            self.fields.as_slice(),
            [field] if field.path == "_id"
                && field.direction == key::Direction::Ascending
                && field.holds == Holds::Value
        )
    }

    /// Sets the layout of the collection's keys, on which the entries depend.
    #[must_use]
    pub fn over(self, records: &RecordLayout) -> IndexSpec {
        IndexSpec {
            records: records.clone(),
            ..self
        }
    }

    /// The fields that hold the value at their path.
    pub fn value_fields(&self) -> impl Iterator<Item = &IndexField> {
        let mut fields = self.fields.iter();
        std::iter::from_fn(move || fields.find(|field| field.holds == Holds::Value))
    }

    /// Whether a change at the paths that `touches` accepts can change the entries of a document.
    pub fn is_affected(&self, touches: &dyn Fn(&str) -> bool) -> bool {
        // The filter of a partial index may look at any path, and a clustering index holds them all.
        self.partial.is_some()
            || self.clustering
            || self.value_fields().any(|field| touches(&field.path))
            || self
                .method
                .as_ref()
                .is_some_and(|method| method.is_affected(touches))
    }
}

/// A query, for which an index method has to find routes.
pub struct PlanRequest<'a> {
    /// The filter of the query.
    pub filter: &'a Expr,
    /// The conditions of its filter that all documents must meet. A branch of an `$or` comes with those of
    /// the whole filter, too.
    pub conditions: &'a Conditions,
    pub index: &'a Arc<Index>,
    /// The components of the parts that have several values in some document.
    pub multikey: &'a MultikeyPaths,
    /// Whether the query has a hint of this index.
    pub hinted: bool,
}

/// The behaviour of one index of a kind other than the ordered one: PostgreSQL calls it an access method.
pub trait IndexMethod: Debug + Send + Sync {
    /// Its line in [`KINDS`](super::kinds::KINDS).
    fn kind(&self) -> &'static str;

    /// Refuses options that the kind cannot have.
    ///
    /// # Errors
    /// `CannotCreateIndex` (67) and others.
    fn check(&self, spec: &IndexSpec) -> Result<()> {
        let _ = spec;
        Ok(())
    }

    /// Fills in the alternatives of the computed fields of `doc`.
    ///
    /// # Errors
    /// Errors in the document.
    fn parts<'a>(&self, doc: &'a Doc, out: &mut Slots<'a>) -> Result<()>;

    /// Whether a change at the paths that `touches` accepts can change the parts of the computed fields.
    /// `touches` takes a path and returns whether a value there, or above, or below, may differ.
    fn is_affected(&self, touches: &dyn Fn(&str) -> bool) -> bool;

    /// The routes by which the index can find the documents of a query.
    fn routes(&self, request: &PlanRequest<'_>) -> Vec<Route>;

    /// The part that finds geometries at `path` near a point. `None` if there is none.
    fn near(&self, path: &Path, near: &Near) -> Option<GeoField> {
        let _ = (path, near);
        None
    }

    /// The fields that a text index covers; other kinds answer no `$text`.
    fn text(&self) -> Option<&Arc<TextSpec>> {
        None
    }
}
