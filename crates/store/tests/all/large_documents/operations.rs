//! Operations on a collection, as data, so that they can be applied to a store and to a model, and repeated.

use frond_bson::{Doc, DocBuf, OwnedValue};
use frond_store::{
    DeleteRequest, DocumentStore, Durability, Error, FindAndModifyRequest, InsertOptions,
    Namespace, OpContext, UpdateRequest,
};

/// The order of the primary keys, in which the model finds documents.
const NATURAL: &str = "$natural";

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    Insert(Vec<DocBuf>),
    Update(UpdateOp),
    /// Documents before or after an update, or removed.
    Modify {
        /// The update; without one the document is removed.
        update: Option<UpdateOp>,
        filter: DocBuf,
        sort: DocBuf,
        new: bool,
        fields: DocBuf,
    },
    Delete {
        filter: DocBuf,
        one: bool,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct UpdateOp {
    pub filter: DocBuf,
    pub update: OwnedValue,
    pub array_filters: Vec<DocBuf>,
    pub multi: bool,
    pub upsert: bool,
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// The number of documents, and the positions and codes of errors.
    Inserted(usize, Vec<(usize, i32)>),
    Updated {
        matched: u64,
        modified: u64,
        upserted: Option<OwnedValue>,
    },
    Modified {
        value: Option<DocBuf>,
        existing: bool,
        removed: bool,
        upserted: Option<OwnedValue>,
    },
    Deleted(u64),
}

/// Code and message of an error.
pub type Outcome = Result<Done, (i32, String)>;

pub fn failure(error: &Error) -> (i32, String) {
    (error.code().code(), error.message())
}

fn borrowed(docs: &[DocBuf]) -> Vec<&Doc> {
    docs.iter().map(|doc| &**doc).collect()
}

/// Whether a filter asks for one `_id`.
pub fn names_one(filter: &Doc) -> bool {
    let is_operator = |id: &Doc| id.first().is_some_and(|(name, _)| name.starts_with('$'));
    filter.contains_key("_id") && !filter.get_doc("_id").is_some_and(is_operator)
}

/// Applies it to a store.
pub fn run(store: &DocumentStore, ns: &Namespace, op: &Op, durability: Durability) -> Outcome {
    let context = OpContext::new();
    let natural = frond_bson::doc! {NATURAL: 1};
    let natural = Some(frond_bson::Value::Document(&natural));
    // An operation that names an _id uses the index on it.
    let hint = |filter: &Doc| natural.filter(|_| !names_one(filter));
    match op {
        Op::Insert(docs) => {
            let options = InsertOptions {
                ordered: false,
                durability,
                bypass_validation: false,
                keep_empty_timestamps: false,
            };
            let outcome = store.insert(ns, &borrowed(docs), options);
            let outcome = outcome.map_err(|error| failure(&error))?;
            let errors = outcome.errors.iter();
            let errors = errors.map(|error| (error.index, error.error.code().code()));
            Ok(Done::Inserted(outcome.inserted, errors.collect()))
        }
        Op::Update(update) => {
            let request = UpdateRequest {
                upsert: update.upsert,
                multi: update.multi,
                array_filters: borrowed(&update.array_filters),
                hint: hint(&update.filter),
                ..UpdateRequest::new(&update.filter, update.update.as_value())
            };
            let outcome = store.update(ns, &request, durability, &context);
            let outcome = outcome.map_err(|error| failure(&error))?;
            Ok(Done::Updated {
                matched: outcome.matched,
                modified: outcome.modified,
                upserted: outcome.upserted_id,
            })
        }
        Op::Modify {
            update,
            filter,
            sort,
            new,
            fields,
        } => {
            let request = FindAndModifyRequest {
                filter: Some(filter),
                sort: Some(sort),
                remove: update.is_none(),
                update: update.as_ref().map(|update| update.update.as_value()),
                upsert: update.as_ref().is_some_and(|update| update.upsert),
                return_new: *new,
                projection: Some(fields),
                array_filters: update
                    .as_ref()
                    .map_or_else(Vec::new, |update| borrowed(&update.array_filters)),
                hint: hint(filter),
                ..FindAndModifyRequest::default()
            };
            let outcome = store.find_and_modify(ns, &request, durability, &context);
            let outcome = outcome.map_err(|error| failure(&error))?;
            Ok(Done::Modified {
                value: outcome.value,
                existing: outcome.updated_existing,
                removed: outcome.removed,
                upserted: outcome.upserted_id,
            })
        }
        Op::Delete { filter, one } => {
            let request = DeleteRequest {
                filter,
                limit_one: *one,
                hint: hint(filter),
                variables: None,
                collation: None,
            };
            let outcome = store.delete(ns, &request, durability, &context);
            Ok(Done::Deleted(outcome.map_err(|error| failure(&error))?))
        }
    }
}
