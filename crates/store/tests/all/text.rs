//! Text indexes: random searches find what a test of every document finds.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_query::text::{Language, TextMatch, TextQuery, TextSpec};
use frond_store::{
    AggregateRequest, DeleteRequest, Durability, FindRequest, OpContext, UpdateRequest, Verbosity,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const WORDS: [&str; 14] = [
    "tea",
    "teas",
    "Cake",
    "café",
    "cafe",
    "the",
    "running",
    "run",
    "dog-house",
    "dog",
    "house",
    "COLD",
    "ice cream",
    "ice",
];

fn sentence(random: &mut StdRng) -> String {
    let count = random.random_range(0..6);
    let words: Vec<&str> = (0..count)
        .map(|_| WORDS[random.random_range(0..WORDS.len())])
        .collect();
    words.join(" ")
}

fn document(random: &mut StdRng, id: i32) -> DocBuf {
    let mut doc = doc! {"_id": id, "x": id % 3, "title": sentence(random)};
    if random.random_bool(0.5) {
        let tags = [0, 1].map(|_| doc! {"t": sentence(random)});
        let tags: ArrayBuf = tags.iter().collect();
        doc.push("tags", &tags);
    }
    if random.random_bool(0.1) {
        doc.push("language", "none");
    }
    doc
}

fn search(random: &mut StdRng) -> DocBuf {
    let mut text = sentence(random);
    match random.random_range(0..5) {
        0 => text += " -cold",
        1 => text += " \"ice cream\"",
        2 => text += " -\"dog house\"",
        _ => {}
    }
    let mut query = doc! {"$search": text};
    if random.random_bool(0.2) {
        query.push("$caseSensitive", true);
    }
    if random.random_bool(0.2) {
        query.push("$diacriticSensitive", true);
    }
    query
}

fn bind(query: &Doc) -> TextMatch {
    let weights = [("title", 3.0), ("tags.t", 1.0)];
    let spec = TextSpec::new(weights, Language::english(), "language");
    let query = TextQuery::parse(Value::Document(query)).unwrap();
    query.bind(Arc::new(spec))
}

fn score(doc: &Doc) -> f64 {
    doc.get_f64("score").unwrap()
}

fn check(f: &Fixture, name: &str, random: &mut StdRng) {
    let all = f.find_all(&ns(name), doc! {});
    for _ in 0..60 {
        let query = search(random);
        let bound = bind(&query);
        let x = random.random_range(0..3);
        let mut expected: Vec<(i32, f64)> = all
            .iter()
            .filter(|doc| doc.get_i32("x") == Some(x) && bound.matches(doc).unwrap())
            .map(|doc| (doc.get_i32("_id").unwrap(), bound.score(doc).unwrap()))
            .collect();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let by_score = doc! {"score": {"$meta": "textScore"}};
        let order = doc! {"score": {"$meta": "textScore"}, "_id": 1};
        let found = f.find(
            &ns(name),
            &FindRequest {
                filter: Some(&doc! {"x": x, "$text": &query}),
                projection: Some(&by_score),
                sort: Some(&order),
                ..FindRequest::default()
            },
        );
        let found: Vec<(i32, f64)> = found
            .iter()
            .map(|doc| (doc.get_i32("_id").unwrap(), score(doc)))
            .collect();
        assert_eq!(found, expected, "{query:?}");
    }
}

#[test]
fn an_index_finds_and_scores_what_a_scan_does() {
    let mut random = StdRng::seed_from_u64(7);
    let f = Fixture::new();
    let weights = doc! {"title": 3, "tags.t": 1};
    let docs: Vec<DocBuf> = (0..200).map(|id| document(&mut random, id)).collect();
    for (name, key) in [
        ("db.plain", doc! {"title": "text", "tags.t": "text"}),
        (
            "db.prefix",
            doc! {"x": 1, "title": "text", "tags.t": "text"},
        ),
        (
            "db.suffix",
            doc! {"title": "text", "tags.t": "text", "x": -1},
        ),
    ] {
        let c = ns(name);
        // Half of the documents are there when the index is built.
        f.insert(&c, &docs[..100]);
        f.store
            .create_indexes(&c, &[&doc! {"key": key, "weights": &weights}])
            .unwrap();
        f.insert(&c, &docs[100..]);
        check(&f, name, &mut random);
        for id in 0..40 {
            let title = sentence(&mut random);
            let (filter, change) = (doc! {"_id": id}, doc! {"$set": {"title": title}});
            let request = UpdateRequest::new(&filter, Value::Document(&change));
            f.store
                .update(&c, &request, Durability::Logged, &OpContext::new())
                .unwrap();
        }
        check(&f, name, &mut random);
        let report = f.store.verify(&c).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
    let f = f.reopen();
    check(&f, "db.prefix", &mut random);
}

/// The entries of a document in an index on `title` and `tags.t` with `x` before or behind, which have to be unique.
fn entries(spec: &TextSpec, doc: &Doc) -> Vec<(String, u64, i32)> {
    let scores = spec.scores(doc).unwrap();
    let x = doc.get_i32("x").unwrap();
    (scores.into_iter())
        .map(|(term, score)| (term, score.to_bits(), x))
        .collect()
}

/// Issue 13: of a unique text index no two documents have the same term with the same score and the same values of
/// the other fields.
#[test]
fn unique_indexes_have_unique_entries() {
    let mut random = StdRng::seed_from_u64(11);
    let f = Fixture::new();
    let weights = doc! {"title": 3, "tags.t": 1};
    let spec = TextSpec::new(
        [("title", 3.0), ("tags.t", 1.0)],
        Language::english(),
        "language",
    );
    for (name, key, uses_x) in [
        (
            "db.uniqueplain",
            doc! {"title": "text", "tags.t": "text"},
            false,
        ),
        (
            "db.uniqueprefix",
            doc! {"x": 1, "title": "text", "tags.t": "text"},
            true,
        ),
        (
            "db.uniquesuffix",
            doc! {"title": "text", "tags.t": "text", "x": -1},
            true,
        ),
    ] {
        let c = ns(name);
        let index = doc! {"key": key, "weights": &weights, "unique": true, "name": "t"};
        f.store.create_indexes(&c, &[&index]).unwrap();
        let of = |doc: &Doc| -> BTreeSet<(String, u64, i32)> {
            let all = entries(&spec, doc).into_iter();
            all.map(|(term, score, x)| (term, score, if uses_x { x } else { 0 }))
                .collect()
        };
        let mut stored: BTreeMap<i32, BTreeSet<(String, u64, i32)>> = BTreeMap::new();
        let (mut taken, mut refused) = (0, 0);
        for round in 0..600 {
            let id = random.random_range(0..150);
            let mut doc = document(&mut random, id);
            if random.random_bool(0.3) {
                // Some words of its own, so that not every document is refused.
                let words = (0..random.random_range(1..4)).map(|n| format!("w{round}x{n}"));
                doc = doc! {"_id": id, "x": id % 3, "title": words.collect::<Vec<_>>().join(" ")};
            }
            let wanted = of(&doc);
            let others = |other: &i32| *other != id;
            let clash = (stored.iter())
                .any(|(other, theirs)| others(other) && !theirs.is_disjoint(&wanted));
            if round % 5 == 4 {
                let filter = doc! {"_id": id};
                let request = DeleteRequest {
                    filter: &filter,
                    limit_one: true,
                    hint: None,
                    variables: None,
                    collation: None,
                };
                let deleted = (f.store)
                    .delete(&c, &request, Durability::Logged, &OpContext::new())
                    .unwrap();
                assert_eq!(deleted == 1, stored.remove(&id).is_some());
                continue;
            }
            let filter = doc! {"_id": id};
            let request = UpdateRequest {
                upsert: true,
                ..UpdateRequest::new(&filter, Value::Document(&doc))
            };
            let outcome = f
                .store
                .update(&c, &request, Durability::Logged, &OpContext::new());
            assert_eq!(outcome.is_err(), clash, "{name} {round} {doc:?}");
            match outcome {
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.code().code(), 11000, "{error:?}");
                    let message = error.message();
                    assert!(
                        message.contains("dup key") && message.contains("_fts: "),
                        "{message}"
                    );
                }
                Ok(_) => {
                    taken += 1;
                    stored.insert(id, wanted);
                }
            }
        }
        assert!(taken > 50 && refused > 50, "{taken} {refused}");
        let report = f.store.verify(&c).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        check(&f, name, &mut random);

        // Over existing documents it is built if they are unique; otherwise nothing is left of it.
        f.store
            .drop_indexes(&c, &frond_store::IndexSelector::All)
            .unwrap();
        f.store.create_indexes(&c, &[&index]).unwrap();
        check(&f, name, &mut random);
        f.store
            .drop_indexes(&c, &frond_store::IndexSelector::All)
            .unwrap();
        let twice = [
            doc! {"_id": 1000, "x": 1, "title": "unheard of"},
            doc! {"_id": 1001, "x": 1, "title": "unheard"},
            doc! {"_id": 1002, "x": 1, "title": "unheard"},
        ];
        f.insert(&c, &twice);
        let error = f.store.create_indexes(&c, &[&index]).unwrap_err();
        assert_eq!(error.code().code(), 11000);
        let report = f.store.verify(&c).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}

fn pipeline(f: &Fixture, stages: &[DocBuf]) -> Result<Vec<DocBuf>, i32> {
    let array: ArrayBuf = stages.iter().collect();
    let request = AggregateRequest {
        collation: None,
        pipeline: array.as_doc(),
        hint: None,
        variables: None,
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: None,
    };
    let run = || {
        let context = OpContext::new();
        let mut cursor = f
            .store
            .aggregate("db", Some(&ns("db.c")), &request, &context)?;
        let mut found = Vec::new();
        while let Some(doc) = cursor.next()? {
            found.push(doc);
        }
        Ok(found)
    };
    run().map_err(|error: frond_store::Error| error.code().code())
}

fn small() -> Fixture {
    let f = Fixture::new();
    let c = ns("db.c");
    let key = doc! {"key": {"a": "text"}};
    f.store.create_indexes(&c, &[&key]).unwrap();
    f.insert(
        &c,
        &[
            doc! {"_id": 1, "a": "tea cake", "n": 5},
            doc! {"_id": 2, "a": "tea", "n": 3},
            doc! {"_id": 3, "a": "dog", "n": 4},
        ],
    );
    f
}

#[test]
fn pipelines_know_the_score() {
    let f = small();
    let text = doc! {"$match": {"$text": {"$search": "tea"}}};
    let meta = doc! {"$meta": "textScore"};
    for (stages, expected) in [
        (
            vec![
                text.clone(),
                doc! {"$sort": {"s": &meta}},
                doc! {"$project": {"_id": 1}},
            ],
            vec![doc! {"_id": 2}, doc! {"_id": 1}],
        ),
        (
            vec![
                text.clone(),
                doc! {"$project": {"_id": 1, "s": &meta}},
                doc! {"$sort": {"s": 1}},
            ],
            vec![doc! {"_id": 1, "s": 0.75}, doc! {"_id": 2, "s": 1.1}],
        ),
        (
            vec![
                text.clone(),
                doc! {"$group": {"_id": null, "most": {"$max": &meta}}},
            ],
            vec![doc! {"_id": null, "most": 1.1}],
        ),
        (
            vec![
                text.clone(),
                doc! {"$addFields": {"s": &meta}},
                doc! {"$match": {"s": {"$gt": 1}}},
            ],
            vec![doc! {"_id": 2, "a": "tea", "n": 3, "s": 1.1}],
        ),
        (
            vec![text.clone(), doc! {"$count": "n"}],
            vec![doc! {"n": 2}],
        ),
    ] {
        assert_eq!(pipeline(&f, &stages).unwrap(), expected, "{stages:?}");
    }
    for (stages, code) in [
        (vec![doc! {"$project": {"s": &meta}}], 40218),
        (vec![doc! {"$skip": 1}, text.clone()], 17313),
        (vec![doc! {"$match": {"$where": "1"}}], 2),
    ] {
        assert_eq!(pipeline(&f, &stages), Err(code), "{stages:?}");
    }
}

#[test]
fn unsupported_searches_are_refused() {
    let f = small();
    let c = ns("db.c");
    let other = ns("db.other");
    f.insert(&other, &[doc! {"a": "tea"}]);
    let prefix = ns("db.prefix");
    let key = doc! {"key": {"x": 1, "a": "text"}};
    f.store.create_indexes(&prefix, &[&key]).unwrap();
    let text = doc! {"$search": "tea"};
    let score = doc! {"s": {"$meta": "textScore"}};
    let code = |ns: &frond_store::Namespace, request: &FindRequest<'_>| {
        let found = f.store.find(ns, request, &OpContext::new());
        found.err().map(|error| error.code().code())
    };
    let only = doc! {"$text": &text};
    let plain = FindRequest {
        filter: Some(&only),
        ..FindRequest::default()
    };
    assert_eq!(code(&c, &plain), None);
    let nowhere = ns("db.nowhere");
    assert_eq!(code(&nowhere, &plain), None);
    assert_eq!(code(&other, &plain), Some(27));
    assert_eq!(code(&prefix, &plain), Some(291));
    for (filter, expected) in [
        (doc! {"x": 1, "$text": &text}, None),
        (doc! {"x": {"$gt": 1}, "$text": &text}, Some(291)),
        (
            doc! {"$or": [{"x": 1, "$text": &text}, {"y": 1}]},
            Some(291),
        ),
        (doc! {"$or": [{"x": 1, "$text": &text}, {"_id": 1}]}, None),
    ] {
        let request = FindRequest {
            filter: Some(&filter),
            ..FindRequest::default()
        };
        assert_eq!(code(&prefix, &request), expected, "{filter:?}");
    }
    let hinted = FindRequest {
        hint: Some(Value::String("a_text")),
        ..plain.clone()
    };
    assert_eq!(code(&c, &hinted), Some(2));
    let natural = doc! {"$natural": 1};
    let sorted = FindRequest {
        sort: Some(&natural),
        ..plain.clone()
    };
    assert_eq!(code(&c, &sorted), Some(2));
    let unscored = FindRequest {
        projection: Some(&score),
        ..FindRequest::default()
    };
    assert_eq!(code(&c, &unscored), Some(40218));
}

#[test]
fn explain_shows_the_search() {
    let f = small();
    let filter = doc! {"$text": {"$search": "tea -cake"}};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let explained = f
        .store
        .explain_find(
            &ns("db.c"),
            &request,
            Verbosity::ExecutionStats,
            &OpContext::new(),
        )
        .unwrap();
    let plan = explained.path("queryPlanner.winningPlan").unwrap();
    let plan = plan.as_doc().unwrap();
    assert_eq!(plan.get_str("stage"), Some("TEXT_MATCH"));
    assert_eq!(plan.get_str("indexName"), Some("a_text"));
    assert_eq!(
        plan.path("parsedTextQuery.negatedTerms.0")
            .unwrap()
            .as_str(),
        Some("cake")
    );
    let inner = plan.path("inputStage.inputStage.stage").unwrap();
    assert_eq!(inner.as_str(), Some("IXSCAN"));
    let returned = explained.path("executionStats.nReturned").unwrap();
    assert_eq!(returned.as_i64_lossless(), Some(1));
}
