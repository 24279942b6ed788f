//! `_id`s and index keys that are longer than pages of the engine.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, INSERT, ns};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{
    DeleteRequest, Durability, EngineOptions, FindRequest, Namespace, OpContext, UpdateRequest,
};

/// Texts of more than 65,535 bytes that differ only behind them, ascending.
fn texts() -> Vec<String> {
    let begin = "x".repeat(70_000);
    let ends = [
        "",
        "\u{0}",
        "\u{0}a",
        "A",
        "a",
        "a\u{0}",
        "aa",
        "b",
        "\u{10ffff}",
    ];
    ends.map(|end| format!("{begin}{end}")).to_vec()
}

fn update(f: &Fixture, c: &Namespace, filter: &Doc, update: &Doc) -> Result<(), (i32, String)> {
    let request = UpdateRequest::new(filter, Value::Document(update));
    let updated = f
        .store
        .update(c, &request, Durability::Logged, &OpContext::new());
    let code = |error: frond_store::Error| (error.code().code(), error.message());
    updated.map(drop).map_err(code)
}

fn delete(f: &Fixture, c: &Namespace, filter: &Doc) -> u64 {
    let request = DeleteRequest {
        collation: None,
        filter,
        limit_one: false,
        hint: None,
        variables: None,
    };
    let deleted = f
        .store
        .delete(c, &request, Durability::Logged, &OpContext::new());
    deleted.unwrap()
}

/// The numbers of the documents found.
fn numbers(f: &Fixture, c: &Namespace, request: &FindRequest<'_>) -> Vec<i32> {
    let found = f.find(c, request);
    found.iter().map(|doc| doc.get_i32("n").unwrap()).collect()
}

fn assert_sound(f: &Fixture, c: &Namespace) {
    let report = f.store.verify(c).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
}

/// The errors of an insert: index and code.
fn refused(f: &Fixture, c: &Namespace, docs: &[DocBuf]) -> Vec<(usize, i32)> {
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let outcome = f.store.insert(c, &docs, INSERT).unwrap();
    let errors = outcome.errors.iter();
    errors
        .map(|error| (error.index, error.error.code().code()))
        .collect()
}

#[test]
fn long_ids_name_one_document_each() {
    let mut f = Fixture::new();
    let c = ns("db.c");
    let texts = texts();
    let docs: Vec<DocBuf> = (0..)
        .zip(&texts)
        .map(|(n, text)| {
            doc! {"_id": text.as_str(), "n": n, "more": "m".repeat(50_000)}
        })
        .collect();
    // Not in their order.
    let (odd, even): (Vec<_>, Vec<_>) = docs
        .iter()
        .cloned()
        .enumerate()
        .partition(|(n, _)| n % 2 == 1);
    for (_, doc) in odd.into_iter().chain(even) {
        assert_eq!(f.insert(&c, &[doc]).inserted, 1);
    }
    for _ in 0..2 {
        for (n, text) in texts.iter().enumerate() {
            let found = f.find_all(&c, doc! {"_id": text.as_str()});
            assert_eq!(found.len(), 1);
            assert_eq!(found[0], docs[n]);
            assert_eq!(refused(&f, &c, &docs[n..=n]), [(0, 11000)]);
        }
        for direction in [1, -1] {
            let request = FindRequest {
                filter: Some(&doc! {"_id": {"$gt": texts[2].as_str(), "$lte": texts[6].as_str()}}),
                sort: Some(&doc! {"_id": direction}),
                ..FindRequest::default()
            };
            let mut expected = vec![3, 4, 5, 6];
            if direction < 0 {
                expected.reverse();
            }
            assert_eq!(numbers(&f, &c, &request), expected);
        }
        assert_sound(&f, &c);
        f = f.reopen();
    }
    let filter = doc! {"_id": texts[4].as_str()};
    update(&f, &c, &filter, &doc! {"$set": {"changed": true}}).unwrap();
    assert_eq!(
        f.find_all(&c, filter.clone())[0].get_bool("changed"),
        Some(true)
    );
    assert_eq!(delete(&f, &c, &filter), 1);
    assert_eq!(delete(&f, &c, &filter), 0);
    assert_eq!(f.find_all(&c, doc! {}).len(), texts.len() - 1);
    assert_sound(&f, &c);
}

#[test]
fn unique_indexes_tell_long_keys_apart() {
    let f = Fixture::new();
    let c = ns("db.c");
    let texts = texts();
    let (before, after) = texts.split_at(4);
    let docs = |texts: &[String], first: i32| -> Vec<DocBuf> {
        (first..)
            .zip(texts)
            .map(|(n, text)| doc! {"_id": n, "n": n, "u": text.as_str()})
            .collect()
    };
    f.insert(&c, &docs(before, 0));
    // The bulk loader builds it.
    let unique = doc! {"key": {"u": 1}, "unique": true};
    f.store.create_indexes(&c, &[&unique]).unwrap();
    assert!(refused(&f, &c, &docs(after, 4)).is_empty());
    for (n, text) in texts.iter().enumerate() {
        let again = doc! {"_id": 100, "u": text.as_str()};
        assert_eq!(refused(&f, &c, &[again]), [(0, 11000)], "{n}");
        let filter = doc! {"_id": (n as i32 + 1) % 9};
        let taken = update(&f, &c, &filter, &doc! {"$set": {"u": text.as_str()}});
        assert_eq!(taken.unwrap_err().0, 11000, "{n}");
    }
    // A value that was changed is free.
    update(&f, &c, &doc! {"_id": 3}, &doc! {"$set": {"u": "short"}}).unwrap();
    update(
        &f,
        &c,
        &doc! {"_id": 5},
        &doc! {"$set": {"u": texts[3].as_str()}},
    )
    .unwrap();
    let found = f.find_all(&c, doc! {"u": texts[3].as_str()});
    assert_eq!(found[0].get_i32("_id"), Some(5));
    assert_sound(&f, &c);
    // Of two equal values no unique index is made.
    let other = ns("db.other");
    f.insert(
        &other,
        &docs(&[texts[0].clone(), texts[1].clone(), texts[0].clone()], 0),
    );
    let error = f.store.create_indexes(&other, &[&unique]).unwrap_err();
    assert_eq!(error.code().code(), 11000);
}

#[test]
fn bounds_may_lie_anywhere_in_long_keys() {
    let f = Fixture::new();
    let c = ns("db.c");
    let texts = texts();
    let docs: Vec<DocBuf> = (0..)
        .zip(&texts)
        .map(|(n, text)| doc! {"_id": n, "n": n, "a": text.as_str(), "b": n % 3, "list": [text.as_str(), n]})
        .collect();
    f.insert(&c, &docs);
    let indexes = [
        doc! {"key": {"a": 1}},
        doc! {"key": {"a": -1, "n": 1}},
        doc! {"key": {"b": 1, "a": 1}},
        doc! {"key": {"list": 1}},
    ];
    for index in &indexes {
        f.store.create_indexes(&c, &[index]).unwrap();
    }
    let begin = texts[0].get(..40_000).unwrap();
    let (first, last) = (texts[1].as_str(), texts[7].as_str());
    let filters = [
        doc! {"a": {"$gt": begin}},
        doc! {"a": {"$lt": begin}},
        doc! {"a": {"$gte": first, "$lt": last}},
        doc! {"a": {"$gt": first, "$lte": last}},
        doc! {"a": {"$in": [first, last, begin]}},
        doc! {"a": {"$nin": [first, last, begin]}},
        doc! {"a": {"$regex": "^xxx"}},
        doc! {"b": 1, "a": {"$gt": first}},
        doc! {"list": {"$gt": first}},
        doc! {"list": last},
        doc! {"$or": [{"a": first}, {"a": last}]},
    ];
    for filter in &filters {
        for sort in [doc! {"a": 1}, doc! {"a": -1}] {
            let mut found = Vec::new();
            let natural = doc! {"$natural": 1};
            let patterns = indexes.iter().map(|index| index.get_doc("key").unwrap());
            for hint in patterns.chain([&*natural]) {
                let request = FindRequest {
                    filter: Some(filter),
                    sort: Some(&sort),
                    hint: Some(Value::Document(hint)),
                    ..FindRequest::default()
                };
                found.push(numbers(&f, &c, &request));
            }
            let expected = found.pop().unwrap();
            assert!(found.iter().all(|numbers| *numbers == expected));
        }
    }
    let request = FindRequest {
        hint: Some(Value::Document(&doc! {"a": 1})),
        min: Some(&doc! {"a": first}),
        max: Some(&doc! {"a": last}),
        ..FindRequest::default()
    };
    assert_eq!(numbers(&f, &c, &request), [1, 2, 3, 4, 5, 6]);
    // The index alone has the whole values.
    let request = FindRequest {
        filter: Some(&doc! {"a": {"$gte": begin}}),
        hint: Some(Value::Document(&doc! {"a": -1, "n": 1})),
        projection: Some(&doc! {"_id": 0, "a": 1}),
        ..FindRequest::default()
    };
    let covered = f.find(&c, &request);
    let covered: Vec<_> = covered
        .iter()
        .map(|doc| doc.get_str("a").unwrap())
        .collect();
    assert!(covered.iter().eq(texts.iter().rev()));
    assert_eq!(delete(&f, &c, &doc! {"a": {"$gt": first}}), 7);
    assert_sound(&f, &c);
}

#[test]
fn an_id_may_be_as_large_as_a_document() {
    let f = Fixture::with(|path| {
        let mut options = EngineOptions::new(path);
        options.client_bytes = Some(1 << 30);
        options.cache_bytes = 32 << 20;
        options
    });
    let c = ns("db.c");
    f.store
        .create_indexes(&c, &[&doc! {"key": {"n": 1}}])
        .unwrap();
    let id = "i".repeat((16 << 20) - 64);
    f.insert(
        &c,
        &[
            doc! {"_id": id.as_str(), "n": 1},
            doc! {"_id": &id[1..], "n": 1},
        ],
    );
    assert_eq!(f.find_all(&c, doc! {"_id": id.as_str()}).len(), 1);
    assert_eq!(f.find_all(&c, doc! {"n": 1}).len(), 2);
    let again = [doc! {"_id": id.as_str()}];
    assert_eq!(refused(&f, &c, &again), [(0, 11000)]);
    assert_eq!(delete(&f, &c, &doc! {"_id": id.as_str()}), 1);
    assert_eq!(f.find_all(&c, doc! {"n": 1}).len(), 1);
    assert_sound(&f, &c);
    // Its encoding needs two bytes for each of these.
    let zeros = "\u{0}".repeat(9 << 20);
    assert_eq!(
        refused(&f, &c, &[doc! {"_id": zeros.as_str()}]),
        [(0, 17280)]
    );
}
