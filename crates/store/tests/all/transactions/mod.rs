//! Transactions over several collections: what they see, conflicts, collections created inside, crashes, fixed moments.
//!
//! Answers of a transaction through each kind of index: `same_results.rs`.
#![allow(clippy::unwrap_used, missing_docs)]

use crate::common;
mod conflicts;
mod creation;
mod history;
mod limits;
mod moments;
mod visibility;

use common::INSERT;
use frond_bson::{Doc, DocBuf, Value};
use frond_error::ErrorCode;
use frond_store::{
    AggregateRequest, DeleteRequest, DocumentStore, Durability, Error, FindRequest, InsertOutcome,
    Namespace, OpContext, Result, UpdateOutcome, UpdateRequest,
};

const LOGGED: Durability = Durability::Logged;

fn insert(store: &DocumentStore, ns: &Namespace, docs: &[DocBuf]) -> Result<InsertOutcome> {
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    store.insert(ns, &docs, INSERT)
}

/// The codes of the documents that an insert refused, or of the insert itself.
fn insert_codes(store: &DocumentStore, ns: &Namespace, docs: &[DocBuf]) -> Vec<i32> {
    match insert(store, ns, docs) {
        Ok(outcome) => {
            let codes = outcome.errors.iter();
            codes.map(|failed| failed.error.code().code()).collect()
        }
        Err(error) => vec![error.code().code()],
    }
}

fn update_request<'a>(filter: &'a Doc, update: &'a Doc) -> UpdateRequest<'a> {
    UpdateRequest::new(filter, Value::Document(update))
}

fn update(
    store: &DocumentStore,
    ns: &Namespace,
    filter: &Doc,
    update: &Doc,
) -> Result<UpdateOutcome> {
    let request = update_request(filter, update);
    store.update(ns, &request, LOGGED, &OpContext::new())
}

fn delete(store: &DocumentStore, ns: &Namespace, filter: &Doc) -> Result<u64> {
    let request = DeleteRequest {
        filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    store.delete(ns, &request, LOGGED, &OpContext::new())
}

fn find(store: &DocumentStore, ns: &Namespace, filter: &Doc) -> Result<Vec<DocBuf>> {
    let request = FindRequest {
        filter: Some(filter),
        ..FindRequest::default()
    };
    let mut cursor = store.find(ns, &request, &OpContext::new())?;
    let mut found = Vec::new();
    while let Some(doc) = cursor.next()? {
        found.push(doc);
    }
    Ok(found)
}

fn aggregate(store: &DocumentStore, ns: &Namespace, stages: &[DocBuf]) -> Result<Vec<DocBuf>> {
    let pipeline: frond_bson::ArrayBuf = stages.iter().collect();
    let request = AggregateRequest {
        pipeline: &pipeline,
        hint: None,
        variables: None,
        durability: LOGGED,
        allow_disk_use: None,
        bypass_validation: false,
        collation: None,
    };
    let mut cursor = store.aggregate(ns.db(), Some(ns), &request, &OpContext::new())?;
    let mut found = Vec::new();
    while let Some(doc) = cursor.next()? {
        found.push(doc);
    }
    Ok(found)
}

fn code<T>(result: Result<T>) -> ErrorCode {
    match result {
        Ok(_) => panic!("it must fail"),
        Err(error) => Error::code(&error),
    }
}

fn assert_sound(store: &DocumentStore, names: &[&Namespace]) {
    for ns in names {
        let report = store.verify(ns).unwrap();
        assert_eq!(report.errors, Vec::<String>::new(), "{ns}");
        assert_eq!(store.estimated_count(ns), report.documents, "{ns}");
    }
}
