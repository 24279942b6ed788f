//! The server's own documents, in collections of `local` and `config`.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::Result;
use frond_store::{DocumentStore, Durability, FindRequest, Namespace, OpContext, UpdateRequest};

/// The only, or the first, document of a collection that passes a filter.
///
/// # Errors
/// Errors of the store.
pub fn find_one(
    store: &DocumentStore,
    (db, coll): (&str, &str),
    filter: DocBuf,
) -> Result<Option<DocBuf>> {
    let request = FindRequest {
        filter: Some(&filter),
        limit: Some(1),
        ..FindRequest::default()
    };
    let ns = Namespace::new(db, coll)?;
    Ok(store.find(&ns, &request, &OpContext::new())?.next()?)
}

/// Replaces the document with this `_id`, or inserts it. Durable when it returns.
///
/// # Errors
/// Errors of the store.
pub fn replace_one(
    store: &DocumentStore,
    (db, coll): (&str, &str),
    id: &str,
    document: &Doc,
) -> Result<()> {
    let filter = doc! {"_id": id};
    let request = UpdateRequest {
        filter: &filter,
        update: Value::Document(document),
        sort: None,
        upsert: true,
        multi: false,
        array_filters: Vec::new(),
        hint: None,
        variables: None,
        bypass_validation: true,
        keep_empty_timestamps: true,
        collation: None,
    };
    let ns = Namespace::new(db, coll)?;
    store.update(&ns, &request, Durability::Logged, &OpContext::new())?;
    Ok(store.flush_log()?)
}
