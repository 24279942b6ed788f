//! Collections with a primary key of several fields.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{Doc, DocBuf, Value, array, doc};
use frond_store::{
    DeleteRequest, DocumentStore, Durability, FindRequest, IndexSelector, Namespace, OpContext,
    UpdateOutcome, UpdateRequest,
};

fn fixture(options: &Doc) -> (Fixture, Namespace) {
    let (f, c) = (Fixture::new(), ns("db.c"));
    f.store.create_collection(&c, options).unwrap();
    (f, c)
}

fn by_time() -> (Fixture, Namespace) {
    let (f, c) = fixture(&doc! {"primaryKey": {"ts": 1, "_id": 1}});
    f.store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}, "name": "a_1"}])
        .unwrap();
    let docs =
        [(1, 30), (2, 10), (3, 20), (4, 10)].map(|(id, ts)| doc! {"_id": id, "ts": ts, "a": -id});
    assert_eq!(f.insert(&c, &docs).inserted, 4);
    (f, c)
}

fn ids(found: &[DocBuf]) -> Vec<i64> {
    let id = |doc: &DocBuf| doc.get("_id").unwrap().as_i64_lossless().unwrap();
    found.iter().map(id).collect()
}

fn check(f: &Fixture, c: &Namespace) {
    assert_eq!(f.store.verify(c).unwrap().errors, Vec::<String>::new());
}

fn update(
    store: &DocumentStore,
    c: &Namespace,
    filter: &Doc,
    change: &Doc,
) -> frond_store::Result<UpdateOutcome> {
    let request = UpdateRequest {
        multi: true,
        ..UpdateRequest::new(filter, Value::Document(change))
    };
    store.update(c, &request, Durability::Logged, &OpContext::new())
}

#[test]
fn documents_are_stored_in_the_order_of_the_primary_key() {
    let (f, c) = by_time();
    let order = [2, 4, 3, 1];
    assert_eq!(ids(&f.find_all(&c, doc! {})), order);
    let f = f.reopen();
    assert_eq!(ids(&f.find_all(&c, doc! {})), order);
    for (filter, found) in [
        (doc! {"ts": 10}, vec![2, 4]),
        (doc! {"ts": 10, "_id": 4}, vec![4]),
        (doc! {"ts": {"$gt": 10}}, vec![3, 1]),
        (
            doc! {"ts": {"$gte": 10, "$lt": 30}, "a": {"$lt": -2}},
            vec![4, 3],
        ),
        (doc! {"_id": 3}, vec![3]),
        (doc! {"a": -1}, vec![1]),
        (doc! {"$or": [{"ts": 30}, {"a": -3}]}, vec![3, 1]),
        (doc! {"ts": {"$in": [30, 20]}}, vec![3, 1]),
        (doc! {"ts": null}, vec![]),
    ] {
        let mut all = ids(&f.find_all(&c, filter.clone()));
        all.sort_by_key(|id| order.iter().position(|other| other == id));
        assert_eq!(all, found, "{filter:?}");
    }
    for (sort, found) in [
        (doc! {"ts": 1, "_id": 1}, [2, 4, 3, 1]),
        (doc! {"ts": -1, "_id": -1}, [1, 3, 4, 2]),
        (doc! {"ts": 1, "_id": -1}, [4, 2, 3, 1]),
        (doc! {"_id": -1}, [4, 3, 2, 1]),
        (doc! {"$natural": -1}, [1, 3, 4, 2]),
    ] {
        let request = FindRequest {
            sort: Some(&sort),
            ..FindRequest::default()
        };
        assert_eq!(ids(&f.find(&c, &request)), found, "{sort:?}");
    }
    check(&f, &c);
}

#[test]
fn an_update_of_its_fields_moves_the_document() {
    let (f, c) = by_time();
    let unique = doc! {"key": {"u": 1}, "name": "u_1", "unique": true, "sparse": true};
    f.store.create_indexes(&c, &[&unique]).unwrap();
    update(&f.store, &c, &doc! {"_id": 3}, &doc! {"$set": {"u": 7}}).unwrap();
    let moved = update(&f.store, &c, &doc! {"_id": 3}, &doc! {"$set": {"ts": 5}}).unwrap();
    assert_eq!((moved.matched, moved.modified), (1, 1));
    assert_eq!(ids(&f.find_all(&c, doc! {})), [3, 2, 4, 1]);
    assert_eq!(ids(&f.find_all(&c, doc! {"u": 7})), [3]);
    assert_eq!(ids(&f.find_all(&c, doc! {"a": -3})), [3]);
    check(&f, &c);
    // Each is changed once, although the new places are ahead of the search.
    let all = update(
        &f.store,
        &c,
        &doc! {"ts": {"$gt": 0}},
        &doc! {"$inc": {"ts": 100}},
    )
    .unwrap();
    assert_eq!((all.matched, all.modified), (4, 4));
    let ts: Vec<_> = f
        .find_all(&c, doc! {})
        .iter()
        .map(|doc| doc.get_i32("ts").unwrap())
        .collect();
    assert_eq!(ts, [105, 110, 110, 130]);
    update(&f.store, &c, &doc! {"_id": 1}, &doc! {"$unset": {"ts": 1}}).unwrap();
    assert_eq!(ids(&f.find_all(&c, doc! {}))[0], 1);
    let replaced = doc! {"u": 7};
    let refused = update(&f.store, &c, &doc! {"_id": 1}, &doc! {"$set": &replaced});
    assert_eq!(refused.unwrap_err().code().code(), 11000);
    check(&f, &c);
}

#[test]
fn an_id_is_unique_whatever_the_other_fields_are() {
    let (f, c) = by_time();
    let outcome = f.insert(&c, &[doc! {"_id": 2, "ts": 99}, doc! {"_id": 5, "ts": 1}]);
    assert_eq!(outcome.inserted, 0);
    assert_eq!(outcome.errors[0].error.code().code(), 11000);
    assert_eq!(f.insert(&c, &[doc! {"_id": 5, "ts": 1}]).inserted, 1);
    let filter = doc! {"_id": 6, "ts": 15};
    let change = doc! {"$set": {"a": 1}};
    let request = UpdateRequest {
        upsert: true,
        ..UpdateRequest::new(&filter, Value::Document(&change))
    };
    for matched in [0, 1] {
        let done = f
            .store
            .update(&c, &request, Durability::Logged, &OpContext::new());
        assert_eq!(done.unwrap().matched, matched);
    }
    let delete = DeleteRequest {
        collation: None,
        filter: &doc! {"ts": {"$lte": 15}},
        limit_one: false,
        hint: None,
        variables: None,
    };
    let deleted = f
        .store
        .delete(&c, &delete, Durability::Logged, &OpContext::new());
    assert_eq!(deleted.unwrap(), 4);
    assert_eq!(ids(&f.find_all(&c, doc! {})), [3, 1]);
    check(&f, &c);
}

#[test]
fn a_field_of_the_primary_key_is_no_array() {
    let (f, c) = by_time();
    let outcome = f.insert(&c, &[doc! {"_id": 9, "ts": array![1, 2]}]);
    assert_eq!(outcome.errors[0].error.code().code(), 2);
    let refused = update(
        &f.store,
        &c,
        &doc! {"_id": 1},
        &doc! {"$set": {"ts": array![1]}},
    );
    assert_eq!(refused.unwrap_err().code().code(), 2);
    let long = "x".repeat(17 << 20);
    let (f, c) = fixture(&doc! {"primaryKey": {"s": 1, "_id": 1}});
    let half = long.get(..9 << 20).unwrap();
    assert_eq!(f.insert(&c, &[doc! {"_id": 1, "s": half}]).inserted, 1);
    check(&f, &c);
}

#[test]
fn strings_are_in_the_order_of_the_collation() {
    let collation = doc! {"locale": "en", "strength": 1};
    let (f, c) = fixture(&doc! {"primaryKey": {"name": 1, "_id": 1}, "collation": &collation});
    let docs =
        [("b", 1), ("A", 2), ("C", 3), ("a", 4)].map(|(name, id)| doc! {"_id": id, "name": name});
    assert_eq!(f.insert(&c, &docs).inserted, 4);
    assert_eq!(ids(&f.find_all(&c, doc! {})), [2, 4, 1, 3]);
    assert_eq!(ids(&f.find_all(&c, doc! {"name": "a"})), [2, 4]);
    let simple = FindRequest {
        filter: Some(&doc! {"name": "a"}),
        collation: Some(frond_query::collation::parse(&doc! {"locale": "simple"}).unwrap()),
        ..FindRequest::default()
    };
    assert_eq!(ids(&f.find(&c, &simple)), [4]);
    check(&f, &c);
}

#[test]
fn it_is_shown_among_the_indexes_and_can_be_hinted() {
    let (f, c) = by_time();
    let names: Vec<String> = (f.store.list_indexes(&c).unwrap().iter())
        .map(|index| index.get_str("name").unwrap().to_owned())
        .collect();
    assert_eq!(names, ["primaryKey", "_id_", "a_1"]);
    let pattern = doc! {"ts": 1, "_id": 1};
    for hint in [Value::String("primaryKey"), Value::Document(&pattern)] {
        let (min, max) = (doc! {"ts": 10, "_id": 3}, doc! {"ts": 30, "_id": 0});
        let request = FindRequest {
            hint: Some(hint),
            min: Some(&min),
            max: Some(&max),
            ..FindRequest::default()
        };
        assert_eq!(ids(&f.find(&c, &request)), [4, 3]);
    }
    for name in ["primaryKey", "_id_"] {
        let selector = IndexSelector::Name(name.to_owned());
        assert!(f.store.drop_indexes(&c, &selector).is_err(), "{name}");
    }
    f.store.drop_indexes(&c, &IndexSelector::All).unwrap();
    assert_eq!(f.store.list_indexes(&c).unwrap().len(), 2);
    assert_eq!(ids(&f.find_all(&c, doc! {"ts": 20})), [3]);
}
