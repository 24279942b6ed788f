//! Change streams: the events of every kind of write, resuming, waiting; `local.oplog.rs` as a collection.
#![allow(clippy::unwrap_used, missing_docs)]

use crate::common;
mod errors;
mod events;
mod images;
mod large;
mod model;
mod oplog;
mod resume;
mod waiting;

use common::{Fixture, OPLOG};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_store::{
    AggregateRequest, DeleteRequest, DocumentStore, Durability, Error, IndexSelector, Namespace,
    OpContext, OplogSettings, QueryCursor, UpdateOutcome, UpdateRequest,
};

const LOGGED: Durability = Durability::Logged;

fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

/// Where a stream is opened.
#[derive(Clone, Copy, Debug)]
enum On<'a> {
    Collection(&'a str),
    Database(&'a str),
    Cluster,
}

fn open(
    store: &DocumentStore,
    on: On<'_>,
    spec: &Doc,
    stages: &[DocBuf],
) -> Result<QueryCursor, Error> {
    let mut spec = spec.to_owned();
    let (db, coll) = match on {
        On::Collection(name) => (name.split('.').next().unwrap(), Some(ns(name))),
        On::Database(db) => (db, None),
        On::Cluster => {
            spec.push("allChangesForCluster", true);
            ("admin", None)
        }
    };
    let mut pipeline = ArrayBuf::new();
    pipeline.push(&doc! {"$changeStream": spec});
    stages.iter().for_each(|stage| pipeline.push(&**stage));
    let request = AggregateRequest {
        pipeline: &pipeline,
        hint: None,
        variables: None,
        durability: LOGGED,
        bypass_validation: false,
        allow_disk_use: None,
        collation: None,
    };
    store.watch(db, coll.as_ref(), &request, &OpContext::new())
}

fn watch(store: &DocumentStore, on: On<'_>, spec: &Doc) -> QueryCursor {
    open(store, on, spec, &[]).unwrap()
}

/// All events that are there, once everything is durable.
fn all(store: &DocumentStore, stream: &mut QueryCursor) -> Vec<DocBuf> {
    store.flush_log().unwrap();
    let mut events = Vec::new();
    loop {
        match stream.next().unwrap() {
            Some(event) => events.push(event),
            // It looked for long.
            None if stream.is_tailable() && stream.tail_signal().is_none() => {}
            None => return events,
        }
    }
}

/// Some fields of events.
fn brief(events: &[DocBuf], fields: &[&str]) -> Vec<DocBuf> {
    let part = |event: &DocBuf| {
        let mut out = DocBuf::new();
        for name in fields {
            if let Some(value) = event.get(name) {
                out.push_value(name, &value);
            }
        }
        out
    };
    events.iter().map(part).collect()
}

/// The types of events, and the `_id`s of their documents.
fn types(events: &[DocBuf]) -> Vec<String> {
    let show = |event: &DocBuf| {
        let kind = event.get_str("operationType").unwrap_or("-");
        let id = event.get_doc("documentKey").and_then(|key| key.get("_id"));
        match id {
            Some(id) => format!("{kind} {}", frond_bson::extjson::value_to_relaxed(&id)),
            None => kind.to_owned(),
        }
    };
    events.iter().map(show).collect()
}

fn token_of(event: &Doc) -> DocBuf {
    event.get_doc("_id").unwrap().to_owned()
}

fn with(name: &str, token: &Doc) -> DocBuf {
    let mut spec = DocBuf::new();
    spec.push(name, token);
    spec
}

fn insert(fixture: &Fixture, name: &str, docs: &[DocBuf]) {
    let outcome = fixture.insert(&ns(name), docs);
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

fn update_in(store: &DocumentStore, name: &str, filter: &Doc, update: Value<'_>) -> UpdateOutcome {
    let request = UpdateRequest::new(filter, update);
    let context = OpContext::new();
    store.update(&ns(name), &request, LOGGED, &context).unwrap()
}

fn update(fixture: &Fixture, name: &str, filter: &Doc, update: &Doc) -> UpdateOutcome {
    update_in(&fixture.store, name, filter, Value::Document(update))
}

fn delete_in(store: &DocumentStore, name: &str, filter: &Doc) -> u64 {
    let request = DeleteRequest {
        filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    let context = OpContext::new();
    store.delete(&ns(name), &request, LOGGED, &context).unwrap()
}

fn delete(fixture: &Fixture, name: &str, filter: &Doc) -> u64 {
    delete_in(&fixture.store, name, filter)
}

fn code<T>(result: Result<T, Error>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.code().code(),
    }
}

fn drop_index(store: &DocumentStore, name: &str, index: &str) {
    let which = IndexSelector::Name(index.to_owned());
    store.drop_indexes(&ns(name), &which).unwrap();
}
