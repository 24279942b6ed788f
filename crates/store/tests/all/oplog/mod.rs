//! The oplog: an entry for every change, in MongoDB's format, that restores the collections; pre-images; trimming.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod commands;
use crate::common;
mod crashes;
mod formats;
mod pre_images;
mod random;
mod replay;
mod switching;
mod transactions;
mod trimming;

use std::ops::Bound;

use common::{Fixture, INSERT, OPLOG};
use frond_bson::{Doc, DocBuf, Timestamp, Value};
use frond_oplog::entry::{RawEntry, document};
use frond_store::keyspace::Direction;
use frond_store::{
    DeleteRequest, DocumentStore, Durability, FindAndModifyRequest, Namespace, OpContext,
    OplogSettings, SessionKey, StatementId, UpdateOutcome, UpdateRequest,
};

const LOGGED: Durability = Durability::Logged;

/// The keys and the values of all entries.
fn values(store: &DocumentStore) -> Vec<(u64, Vec<u8>)> {
    let tree = store.oplog().tree().unwrap();
    let snapshot = store.engine().snapshot();
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = snapshot
        .cursor(tree, low, high, Direction::Forward)
        .unwrap();
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        found.push((u64::from_be_bytes(key.try_into().unwrap()), value.to_vec()));
    }
    found
}

/// MongoDB's documents of all entries.
fn documents(store: &DocumentStore) -> Vec<DocBuf> {
    let values = values(store);
    let all = values.iter().map(|(ts, value)| {
        let raw = RawEntry::read(value).unwrap();
        document(*ts, &raw, 1).unwrap()
    });
    all.collect()
}

/// The fields `op`, `ns`, `o` and `o2` of the entries that `run` adds.
fn added(store: &DocumentStore, run: impl FnOnce()) -> Vec<DocBuf> {
    let before = documents(store).len();
    run();
    let after = documents(store);
    after[before..].iter().map(|entry| brief(entry)).collect()
}

fn brief(entry: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    for (name, value) in entry.iter() {
        if matches!(name, "op" | "ns" | "o" | "o2") {
            out.push(name, value);
        }
    }
    out
}

fn insert(store: &DocumentStore, ns: &Namespace, docs: &[DocBuf]) {
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let outcome = store.insert(ns, &docs, INSERT).unwrap();
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

fn update(store: &DocumentStore, ns: &Namespace, filter: &Doc, update: &Doc) -> UpdateOutcome {
    let request = UpdateRequest::new(filter, Value::Document(update));
    store
        .update(ns, &request, LOGGED, &OpContext::new())
        .unwrap()
}

fn delete(store: &DocumentStore, ns: &Namespace, filter: &Doc) -> u64 {
    let request = DeleteRequest {
        filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    store
        .delete(ns, &request, LOGGED, &OpContext::new())
        .unwrap()
}
