//! Collations: an index finds what a scan of the collection finds, whatever the collations of index and query.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, OwnedValue, Value, doc};
use frond_query::collation;
use frond_query::sort::SortSpec;
use frond_store::{
    CountRequest, DeleteRequest, Durability, FindRequest, Namespace, OpContext, UpdateRequest,
    Verbosity,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

fn no_case() -> DocBuf {
    doc! {"locale": "en", "strength": 2}
}

fn collator(spec: &Doc) -> Collator {
    collation::parse(spec).unwrap()
}

/// Collations of queries and indexes.
fn collations() -> [DocBuf; 4] {
    [
        doc! {"locale": "simple"},
        no_case(),
        doc! {"locale": "fr_CA", "strength": 1, "backwards": false},
        doc! {"locale": "en", "numericOrdering": true, "caseFirst": "upper"},
    ]
}

struct Random(StdRng);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    fn text(&mut self) -> &'static str {
        const TEXTS: [&str; 12] = [
            "", "a", "A", "á", "b", "B", "ab", "aB", "2", "10", "a b", "x",
        ];
        TEXTS[self.below(TEXTS.len())]
    }

    fn scalar(&mut self) -> OwnedValue {
        match self.below(8) {
            0 => OwnedValue::Int32(self.below(3) as i32),
            1 => OwnedValue::Null,
            2 => OwnedValue::Document(doc! {"e": self.text()}),
            _ => self.text().into(),
        }
    }

    fn value(&mut self) -> OwnedValue {
        if self.below(6) > 0 {
            return self.scalar();
        }
        let mut array = ArrayBuf::new();
        for _ in 0..self.below(3) {
            array.push(&self.scalar());
        }
        array.into()
    }

    fn document(&mut self, id: OwnedValue, arrays: bool) -> DocBuf {
        let mut out = DocBuf::new();
        out.push("_id", &id);
        for name in ["a", "b"] {
            if self.below(6) > 0 {
                let value = if arrays { self.value() } else { self.scalar() };
                out.push(name, &value);
            }
        }
        out
    }

    fn condition(&mut self) -> OwnedValue {
        let value = self.value();
        match self.below(10) {
            0 | 1 => value,
            2 => doc! {"$gt": &value}.into(),
            3 => doc! {"$lte": &value}.into(),
            4 => doc! {"$in": [&value, self.text()]}.into(),
            5 => doc! {"$nin": [&value, self.text()]}.into(),
            6 => doc! {"$ne": &value}.into(),
            7 => doc! {"$regex": "^a"}.into(),
            8 => doc! {"$gte": self.text(), "$lt": self.text()}.into(),
            _ => doc! {"$elemMatch": {"$gte": self.text()}}.into(),
        }
    }

    fn filter(&mut self) -> DocBuf {
        let mut filter = DocBuf::new();
        for name in ["a", "b", "_id", "a.e"] {
            if self.below(3) == 0 {
                filter.push(name, &self.condition());
            }
        }
        if self.below(4) == 0 {
            let (one, two) = (self.condition(), self.condition());
            filter.push("$or", &frond_bson::array![{"a": &one}, {"b": &two}]);
        }
        filter
    }

    fn sort(&mut self) -> DocBuf {
        match self.below(5) {
            0 => doc! {"a": 1},
            1 => doc! {"b": -1, "a": 1},
            2 => doc! {"_id": 1},
            _ => doc! {},
        }
    }
}

fn run(f: &Fixture, c: &Namespace, request: &FindRequest<'_>) -> Result<Vec<DocBuf>, i32> {
    let code = |error: frond_store::Error| error.code().code();
    let mut cursor = f.store.find(c, request, &OpContext::new()).map_err(code)?;
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().map_err(code)? {
        found.push(doc);
    }
    Ok(found)
}

fn ids(docs: &[DocBuf]) -> Vec<String> {
    let mut ids: Vec<String> = docs
        .iter()
        .map(|doc| format!("{:?}", doc.get("_id")))
        .collect();
    ids.sort();
    ids
}

/// A collection with indexes of several collations. Returns their names.
fn fill(f: &Fixture, c: &Namespace, random: &mut Random, default: Option<&Doc>) -> Vec<String> {
    let mut options = DocBuf::new();
    if let Some(default) = default {
        options.push("collation", default);
    }
    f.store.create_collection(c, &options).unwrap();
    let arrays = random.below(2) == 0;
    let mut docs = Vec::new();
    for id in 0..40 {
        docs.push(random.document(id.into(), arrays));
    }
    for text in ["a", "B", "b2", "b10", "Z"] {
        docs.push(random.document(text.into(), arrays));
    }
    let (before, after) = docs.split_at(20);
    f.insert(c, before);
    let mut specs = Vec::new();
    for (number, collation) in collations().iter().enumerate() {
        for (key, name) in [
            (doc! {"a": 1}, "a"),
            (doc! {"b": -1, "a": 1}, "ba"),
            (doc! {"_id": -1, "b": 1}, "id"),
        ] {
            let name = format!("{name}{number}");
            let mut spec = doc! {"key": &key, "name": name.as_str(), "collation": collation};
            if random.below(5) == 0 {
                spec.push("partialFilterExpression", &doc! {"a": {"$gte": "a"}});
            }
            specs.push((name, spec));
        }
    }
    let docs: Vec<&Doc> = specs.iter().map(|(_, spec)| &**spec).collect();
    f.store.create_indexes(c, &docs).unwrap();
    f.insert(c, after);
    let whole = |(_, spec): &(String, DocBuf)| !spec.contains_key("partialFilterExpression");
    let whole: Vec<_> = specs.into_iter().filter(whole).collect();
    whole.into_iter().map(|(name, _)| name).collect()
}

fn compare(f: &Fixture, c: &Namespace, random: &mut Random, names: &[String], default: &Collator) {
    let (filter, sort) = (random.filter(), random.sort());
    let natural = doc! {"$natural": 1};
    let all = collations();
    let asked = all.get(random.below(5)).map(|spec| collator(spec));
    let base = FindRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        hint: Some(Value::Document(&natural)),
        collation: asked.clone(),
        ..FindRequest::default()
    };
    let expected = run(f, c, &base);
    let order = SortSpec::parse(&sort).unwrap();
    let order = order.collated(asked.as_ref().unwrap_or(default));
    let keys = |docs: &[DocBuf]| -> Vec<Vec<u8>> {
        docs.iter().map(|doc| order.key(doc).unwrap()).collect()
    };
    let hints = names.iter().map(|name| Some(Value::String(name)));
    for hint in hints.chain([Some(Value::String("_id_")), None]) {
        let request = FindRequest {
            hint,
            ..base.clone()
        };
        let what = format!("{filter:?} {sort:?} {hint:?} {asked:?}");
        match (&expected, run(f, c, &request)) {
            (Ok(expected), Ok(found)) => {
                assert_eq!(ids(&found), ids(expected), "{what}");
                assert_eq!(keys(&found), keys(expected), "{what}");
            }
            (Err(2), Ok(_)) => {}
            (expected, found) => assert_eq!(&found, expected, "{what}"),
        }
    }
    if let Ok(expected) = &expected {
        let count = CountRequest {
            filter: Some(&filter),
            collation: asked.clone(),
            ..CountRequest::default()
        };
        let counted = f.store.count(c, &count, &OpContext::new()).unwrap();
        assert_eq!(counted, expected.len() as u64, "{filter:?} {asked:?}");
        let shown = doc! {"a": 1, "b": 1};
        let projected = FindRequest {
            hint: None,
            projection: Some(&shown),
            sort: None,
            ..base
        };
        let found = run(f, c, &projected).unwrap();
        assert_eq!(ids(&found), ids(expected), "projected {filter:?} {asked:?}");
        let original = |doc: &DocBuf| expected.iter().find(|one| one.get("_id") == doc.get("_id"));
        for doc in &found {
            let original = original(doc).unwrap();
            for name in ["a", "b"] {
                // A covered plan shows null for a missing field, as elsewhere.
                let (shown, stored) = (doc.get(name), original.get(name));
                let same = shown == stored || shown.unwrap_or(Value::Null) == Value::Null;
                assert!(same, "{shown:?} {stored:?}");
            }
        }
    }
}

#[test]
fn indexes_find_what_scans_find() {
    for seed in 0..12 {
        let mut random = Random(StdRng::seed_from_u64(seed));
        let f = Fixture::new();
        let c = ns("db.c");
        let default = (seed % 2 == 1).then(no_case);
        let names = fill(&f, &c, &mut random, default.as_deref());
        let default = default.map_or_else(Collator::default, |spec| collator(&spec));
        for round in 0..60 {
            compare(&f, &c, &mut random, &names, &default);
            if round % 10 == 9 {
                let (filter, set) = (random.filter(), random.value());
                let update = doc! {"$set": {"a": &set}};
                let request = UpdateRequest {
                    multi: random.below(2) == 0,
                    ..UpdateRequest::new(&filter, Value::Document(&update))
                };
                let done = (f.store).update(&c, &request, Durability::Logged, &OpContext::new());
                done.unwrap();
            }
        }
        let report = f.store.verify(&c).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        let f = f.reopen();
        compare(&f, &c, &mut random, &names, &default);
    }
}

/// The names of the stages of the winning plan, outermost first.
fn stages(f: &Fixture, c: &Namespace, request: &FindRequest<'_>) -> (Vec<String>, DocBuf) {
    let explained = (f.store)
        .explain_find(c, request, Verbosity::QueryPlanner, &OpContext::new())
        .unwrap();
    let planner = explained.get_doc("queryPlanner").unwrap();
    let mut stage = planner.get_doc("winningPlan");
    let mut names = Vec::new();
    while let Some(here) = stage {
        names.push(here.get_str("stage").unwrap().to_owned());
        stage = here.get_doc("inputStage");
    }
    (names, planner.to_owned())
}

#[test]
fn plans_use_indexes_of_the_same_collation() {
    let f = Fixture::new();
    let c = ns("db.c");
    f.insert(&c, &[doc! {"_id": 1, "a": "x", "n": 5}]);
    let spec = no_case();
    f.store
        .create_indexes(
            &c,
            &[
                &doc! {"key": {"a": 1}, "name": "a", "collation": &spec},
                &doc! {"key": {"n": 1}, "name": "n", "collation": &spec},
            ],
        )
        .unwrap();
    let same = Some(collator(&spec));
    let other = Some(collator(&doc! {"locale": "fr"}));
    let cases: Vec<(DocBuf, DocBuf, &Option<Collator>, &[&str])> = vec![
        (doc! {"a": "X"}, doc! {}, &same, &["FETCH", "IXSCAN"]),
        (doc! {"a": "X"}, doc! {}, &other, &["COLLSCAN"]),
        (doc! {"a": "X"}, doc! {}, &None, &["COLLSCAN"]),
        (doc! {"a": {"$in": [1, "x"]}}, doc! {}, &None, &["COLLSCAN"]),
        // Numbers are the same in every order.
        (doc! {"n": 5}, doc! {}, &None, &["FETCH", "IXSCAN"]),
        (
            doc! {"n": {"$gt": 1}},
            doc! {"n": 1},
            &None,
            &["FETCH", "IXSCAN"],
        ),
        (
            doc! {"n": {"$gte": ""}},
            doc! {"n": 1},
            &None,
            &["SORT", "COLLSCAN"],
        ),
        (doc! {}, doc! {"a": 1}, &same, &["FETCH", "IXSCAN"]),
        (doc! {}, doc! {"a": 1}, &None, &["SORT", "COLLSCAN"]),
        (doc! {"_id": 1}, doc! {}, &same, &["IDHACK"]),
        (doc! {"_id": "x"}, doc! {}, &None, &["IDHACK"]),
        (doc! {"_id": "x"}, doc! {}, &same, &["COLLSCAN"]),
    ];
    for (filter, sort, collation, expected) in &cases {
        let request = FindRequest {
            filter: Some(filter),
            sort: Some(sort),
            collation: (*collation).clone(),
            ..FindRequest::default()
        };
        let (names, planner) = stages(&f, &c, &request);
        assert_eq!(names, *expected, "{filter:?} {sort:?} {collation:?}");
        let shown = planner.get_doc("collation");
        assert_eq!(shown, collation.as_ref().and_then(Collator::spec));
    }
    let filter = doc! {"a": "X"};
    let projection = doc! {"a": 1, "_id": 0};
    let request = FindRequest {
        filter: Some(&filter),
        projection: Some(&projection),
        collation: same.clone(),
        ..FindRequest::default()
    };
    // The string cannot be restored from its sort key, so nothing is covered.
    let (names, planner) = stages(&f, &c, &request);
    assert_eq!(names, ["PROJECTION_SIMPLE", "FETCH", "IXSCAN"]);
    let scan = planner.get_doc("winningPlan").unwrap();
    let scan = scan
        .get_doc("inputStage")
        .unwrap()
        .get_doc("inputStage")
        .unwrap();
    assert_eq!(scan.get_doc("collation"), collator(&spec).spec());
    let bounds = scan.get_doc("indexBounds").unwrap().get_array("a").unwrap();
    let bounds = bounds.values().next().unwrap().as_str().unwrap().to_owned();
    assert!(bounds.starts_with("[CollationKey(0x"), "{bounds}");
    assert_eq!(f.find(&c, &request), [doc! {"a": "x"}]);
}

#[test]
fn collections_have_a_default() {
    let f = Fixture::new();
    let c = ns("db.c");
    let spec = no_case();
    let resolved = collator(&spec).spec().unwrap().to_owned();
    f.store
        .create_collection(&c, &doc! {"collation": &spec})
        .unwrap();
    let collection = f.store.catalog().collection(&c).unwrap();
    assert_eq!(collection.options, doc! {"collation": &resolved});
    assert_eq!(collection.id_index().get_doc("collation"), Some(&*resolved));
    let indexes = [
        doc! {"key": {"a": 1}, "name": "a", "unique": true},
        doc! {"key": {"a": 1}, "name": "simple", "collation": {"locale": "simple"}},
        doc! {"key": {"b": 1}, "name": "old", "v": 1},
    ];
    for index in &indexes {
        f.store.create_indexes(&c, &[index]).unwrap();
    }
    let f = f.reopen();
    let collection = f.store.catalog().collection(&c).unwrap();
    let has = |name: &str| {
        collection
            .index(name)
            .unwrap()
            .spec
            .doc
            .contains_key("collation")
    };
    assert_eq!([has("a"), has("simple"), has("old")], [true, false, false]);

    let codes = |docs: &[DocBuf]| -> Vec<i32> {
        let outcome = f.insert(&c, docs);
        outcome
            .errors
            .iter()
            .map(|one| one.error.code().code())
            .collect()
    };
    assert_eq!(codes(&[doc! {"_id": "x", "a": "one"}]), []);
    // Under the default collation these are the same `_id`, and the same key of the unique index.
    assert_eq!(codes(&[doc! {"_id": "X", "a": "two"}]), [11000]);
    assert_eq!(codes(&[doc! {"_id": "y", "a": "ONE"}]), [11000]);

    let context = OpContext::new();
    let simple = Some(Collator::default());
    assert_eq!(f.find_all(&c, doc! {"_id": "X"}).len(), 1);
    assert_eq!(f.find_all(&c, doc! {"a": "ONE"}).len(), 1);
    let filter = doc! {"a": "ONE"};
    let request = FindRequest {
        filter: Some(&filter),
        collation: simple.clone(),
        ..FindRequest::default()
    };
    assert!(f.find(&c, &request).is_empty());
    let (names, _) = stages(&f, &c, &request);
    assert_eq!(names, ["FETCH", "IXSCAN"]);
    let values = f
        .store
        .distinct(&c, "a", None, None, None, &context)
        .unwrap();
    assert_eq!(values.as_doc().count(), 1);
    let request = DeleteRequest {
        filter: &filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: simple,
    };
    let deleted = f.store.delete(&c, &request, Durability::Logged, &context);
    assert_eq!(deleted.unwrap(), 0);
    let request = DeleteRequest {
        collation: None,
        ..request
    };
    let deleted = f.store.delete(&c, &request, Durability::Logged, &context);
    assert_eq!(deleted.unwrap(), 1);
}

#[test]
fn indexes_that_differ_in_the_collation_only_need_names_of_their_own() {
    let f = Fixture::new();
    let c = ns("db.c");
    let create = |spec: &DocBuf| {
        let created = f.store.create_indexes(&c, &[spec]);
        created
            .map_err(|error| error.code().code())
            .map(|info| info.after)
    };
    let (en, fr) = (doc! {"locale": "en"}, doc! {"locale": "fr"});
    f.store.create_collection(&c, Doc::empty()).unwrap();
    for (spec, expected) in [
        (doc! {"key": {"a": 1}, "name": "a", "collation": &en}, Ok(2)),
        (doc! {"key": {"a": 1}, "name": "a", "collation": &en}, Ok(2)),
        (
            doc! {"key": {"a": 1}, "name": "a", "collation": &fr},
            Err(86),
        ),
        (doc! {"key": {"a": 1}, "name": "a"}, Err(86)),
        (
            doc! {"key": {"a": 1}, "name": "b", "collation": &en},
            Err(85),
        ),
        (doc! {"key": {"a": 1}, "name": "b", "collation": &fr}, Ok(3)),
        (doc! {"key": {"a": 1}, "name": "c"}, Ok(4)),
        (
            doc! {"key": {"_id": 1}, "name": "_id_", "collation": &en},
            Err(2),
        ),
    ] {
        assert_eq!(create(&spec), expected, "{spec:?}");
    }
}
