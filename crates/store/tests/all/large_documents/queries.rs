//! Compares a collection with the model: all of it, and the results of queries.

use std::ops::Bound;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_query::Environment;
use frond_query::matcher::Filter;
use frond_query::projection::Projection;
use frond_query::sort::SortSpec;
use frond_store::keyspace::Direction;
use frond_store::{CountRequest, DocumentStore, FindRequest, Namespace, OpContext};

use crate::large_documents::model::{Docs, Model};
use crate::large_documents::operations::failure;
use crate::large_documents::updates::Shape;
use crate::large_documents::values::Random;

/// The start of what could be long.
pub fn brief(value: &impl std::fmt::Debug) -> String {
    let mut text = format!("{value:?}");
    if text.len() > 1500 && std::env::var("FROND_LARGE_VERBOSE").is_err() {
        let end = text.floor_char_boundary(1500);
        text.truncate(end);
        text.push('…');
    }
    text
}

type Found = Result<Vec<DocBuf>, (i32, String)>;

pub fn find(store: &DocumentStore, ns: &Namespace, request: &FindRequest<'_>) -> Found {
    let read = || {
        let mut cursor = store.find(ns, request, &OpContext::new())?;
        let mut found = Vec::new();
        while let Some(doc) = cursor.next()? {
            found.push(doc);
        }
        Ok(found)
    };
    read().map_err(|error| failure(&error))
}

pub fn all(store: &DocumentStore, ns: &Namespace) -> Vec<DocBuf> {
    find(store, ns, &FindRequest::default()).expect("all documents")
}

/// The first difference between two documents.
fn difference(found: &Doc, wanted: &Doc, path: &str) -> String {
    let (mut left, mut right) = (found.iter_raw(), wanted.iter_raw());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return format!("{path}: the same"),
            (Some(a), Some(b)) if a.as_bytes() == b.as_bytes() => {}
            (Some(a), Some(b)) if a.name() == b.name() && a.tag() == b.tag() => {
                let path = format!("{path}.{}", a.name());
                return match (a.value(), b.value()) {
                    (
                        Some(Value::Document(a) | Value::Array(a)),
                        Some(Value::Document(b) | Value::Array(b)),
                    ) => difference(a, b, &path),
                    (a, b) => format!("{path}: {} in place of {}", brief(&a), brief(&b)),
                };
            }
            (a, b) => {
                let show = |element: Option<frond_bson::RawElement<'_>>| {
                    element.map(|e| (e.name().to_owned(), brief(&e.value())))
                };
                return format!("{path}: {:?} in place of {:?}", show(a), show(b));
            }
        }
    }
}

/// The difference between documents and those of the model.
pub fn differences<'a>(
    found: impl Iterator<Item = &'a DocBuf>,
    wanted: impl Iterator<Item = &'a DocBuf>,
) -> Option<String> {
    let (found, wanted): (Vec<_>, Vec<_>) = (found.collect(), wanted.collect());
    for (found, wanted) in found.iter().zip(&wanted) {
        if found.as_bytes() != wanted.as_bytes() {
            let id = |doc: &DocBuf| format!("{:?}", doc.get("_id"));
            if id(found) != id(wanted) {
                return Some(format!("{} in place of {}", id(found), id(wanted)));
            }
            return Some(format!("{}: {}", id(found), difference(found, wanted, "")));
        }
    }
    let (found, wanted) = (found.len(), wanted.len());
    (found != wanted).then(|| format!("{found} documents in place of {wanted}"))
}

/// Compares the whole collection and its counters, and validates it.
pub fn check_all(store: &DocumentStore, ns: &Namespace, docs: &Docs, what: &str) {
    let found = all(store, ns);
    if let Some(wrong) = differences(found.iter(), docs.values()) {
        panic!("{what}: {wrong}");
    }
    assert_eq!(store.estimated_count(ns), docs.len() as u64, "{what}");
    let size: usize = docs.values().map(|doc| doc.len_bytes()).sum();
    let stats = store.collection_stats(ns).unwrap();
    assert_eq!(stats.count, docs.len() as u64, "{what}");
    // Fields that an `$inc` added without reading are not counted until the document is rewritten.
    assert!(
        stats.size <= size as u64 && stats.size * 2 >= size as u64,
        "{what}: {} bytes in place of {size}",
        stats.size
    );
}

/// The number of documents stored in parts: their records begin with a length that no document has.
pub fn in_parts(store: &DocumentStore, ns: &Namespace) -> usize {
    let Some(collection) = store.catalog().collection(ns) else {
        return 0;
    };
    let (low, high) = (Bound::Unbounded, Bound::Unbounded);
    let snapshot = store.engine().snapshot();
    let mut cursor = snapshot
        .cursor(collection.primary, low, high, Direction::Forward)
        .unwrap();
    let mut found = 0;
    while let Some((_, record)) = cursor.next().unwrap() {
        found += usize::from(record[3] & 0x80 != 0);
    }
    found
}

/// Validates the stored data.
pub fn check_sound(store: &DocumentStore, ns: &Namespace, what: &str) {
    if store.collection_exists(ns) {
        let report = store.verify(ns).unwrap();
        assert_eq!(report.errors, Vec::<String>::new(), "{what}");
    }
}

pub fn check_query(
    store: &DocumentStore,
    ns: &Namespace,
    model: &Model,
    random: &mut Random,
    shape: Shape,
    what: &str,
) {
    let Some(doc) = random.some_doc(&model.docs).cloned() else {
        return;
    };
    let filter = random.filter(&model.docs, shape);
    let projection = random.projection(&doc);
    let sort = random.sort(Some(&doc));
    let environment = Environment::default();
    let modelled = || -> Result<_, frond_error::Error> {
        let projection = Projection::parse_with(&projection, &environment)?;
        let filter = Filter::parse_with(&filter, &environment)?;
        let projection = projection.matching(&filter);
        let sort = SortSpec::parse(&sort)?;
        let mut keyed = Vec::new();
        for key in model.matching(&filter)? {
            let doc = &model.docs[&key];
            keyed.push((sort.key(doc)?, doc));
        }
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        let count = keyed.len() as u64;
        let shown = keyed.into_iter();
        let shown = shown.map(|(_, doc)| projection.apply(doc));
        Ok((count, shown.collect::<Result<Vec<_>, _>>()?))
    };
    let request = FindRequest {
        filter: Some(&filter),
        projection: Some(&projection),
        sort: Some(&sort),
        ..FindRequest::default()
    };
    let found = find(store, ns, &request);
    let what = format!("{what}: find {filter:?} sort {sort:?} show {projection:?}");
    match (modelled(), found) {
        (Ok((count, wanted)), Ok(found)) => {
            assert_eq!(found.len() as u64, count, "{what}");
            if let Some(wrong) = differences(found.iter(), wanted.iter()) {
                panic!("{what}: {wrong}");
            }
            let request = CountRequest {
                filter: Some(&filter),
                ..CountRequest::default()
            };
            let counted = store.count(ns, &request, &OpContext::new()).unwrap();
            assert_eq!(counted, count, "{what}: count");
        }
        (Err(error), Err((code, _))) => assert_eq!(code, error.code().code(), "{what}"),
        // A plan without a sort does not raise the error of a sort.
        (Err(error), Ok(_)) if [2, 16746].contains(&error.code().code()) => {}
        (wanted, found) => panic!("{what}: {} in place of {}", brief(&found), brief(&wanted)),
    }
}

/// One document by its `_id`.
pub fn check_one(store: &DocumentStore, ns: &Namespace, docs: &Docs, key: &[u8], what: &str) {
    let id = match docs.get(key) {
        Some(doc) => doc.get("_id").unwrap(),
        None => return,
    };
    let filter = doc! {"_id": id};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let found = find(store, ns, &request).expect("a document");
    if let Some(wrong) = differences(found.iter(), docs.get(key).into_iter()) {
        panic!("{what}: {wrong}");
    }
}
