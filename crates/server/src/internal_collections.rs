//! The server's own documents, in collections of `local` and `config`.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::Result;
use frond_store::{
    DeleteRequest, DocumentStore, Durability, FindRequest, Namespace, OpContext, UpdateRequest,
};

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
    collection: (&str, &str),
    id: &str,
    document: &Doc,
) -> Result<()> {
    replace_first(store, collection, &doc! {"_id": id}, document)?;
    Ok(store.flush_log()?)
}

/// Replaces the first document that passes a filter, or inserts it.
///
/// # Errors
/// Errors of the store.
pub fn replace_first(
    store: &DocumentStore,
    (db, coll): (&str, &str),
    filter: &Doc,
    document: &Doc,
) -> Result<()> {
    let request = UpdateRequest {
        upsert: true,
        bypass_validation: true,
        keep_empty_timestamps: true,
        ..UpdateRequest::new(filter, Value::Document(document))
    };
    let ns = Namespace::new(db, coll)?;
    store.update(&ns, &request, Durability::Logged, &OpContext::new())?;
    Ok(())
}

/// Deletes all documents that pass a filter.
///
/// # Errors
/// Errors of the store.
pub fn delete_all(store: &DocumentStore, (db, coll): (&str, &str), filter: &Doc) -> Result<()> {
    let request = DeleteRequest {
        filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    let ns = Namespace::new(db, coll)?;
    store.delete(&ns, &request, Durability::Logged, &OpContext::new())?;
    Ok(())
}
