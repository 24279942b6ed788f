//! Updates, deletes and findAndModify on the real engine.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, Doc, DocBuf, OwnedValue, Value, doc};
use frond_error::ErrorCode;
use frond_store::{
    DeleteRequest, Durability, FindAndModifyOutcome, FindAndModifyRequest, FindRequest, Namespace,
    OpContext, Result, UpdateOutcome, UpdateRequest,
};

const LOGGED: Durability = Durability::Logged;

fn request<'a>(filter: &'a Doc, update: &'a Doc) -> UpdateRequest<'a> {
    UpdateRequest::new(filter, Value::Document(update))
}

fn update(f: &Fixture, ns: &Namespace, request: &UpdateRequest<'_>) -> Result<UpdateOutcome> {
    f.store.update(ns, request, LOGGED, &OpContext::new())
}

fn delete(f: &Fixture, ns: &Namespace, filter: DocBuf, limit_one: bool) -> u64 {
    let request = DeleteRequest {
        collation: None,
        filter: &filter,
        limit_one,
        hint: None,
        variables: None,
    };
    f.store
        .delete(ns, &request, LOGGED, &OpContext::new())
        .unwrap()
}

fn modify(f: &Fixture, ns: &Namespace, request: &FindAndModifyRequest<'_>) -> FindAndModifyOutcome {
    f.store
        .find_and_modify(ns, request, LOGGED, &OpContext::new())
        .unwrap()
}

fn filled(indexes: &[DocBuf], count: i32) -> (Fixture, Namespace) {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let specs: Vec<&Doc> = indexes.iter().map(|doc| &**doc).collect();
    if !specs.is_empty() {
        fixture.store.create_indexes(&c, &specs).unwrap();
    }
    let docs: Vec<DocBuf> = (0..count)
        .map(|i| doc! {"_id": i, "a": i % 10, "u": i, "tags": ["x", format!("t{}", i % 3)]})
        .collect();
    fixture.insert(&c, &docs);
    (fixture, c)
}

fn sound(fixture: &Fixture, ns: &Namespace) {
    let report = fixture.store.verify(ns).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
}

#[test]
fn one_document_is_updated_with_its_indexes() {
    let (f, c) = filled(&[doc! {"key": {"a": 1}}, doc! {"key": {"tags": 1}}], 100);
    let (filter, change) = (
        doc! {"a": 3},
        doc! {"$set": {"a": 77}, "$push": {"tags": "new"}},
    );
    let outcome = update(&f, &c, &request(&filter, &change)).unwrap();
    assert_eq!((outcome.matched, outcome.modified), (1, 1));
    assert_eq!(f.find_all(&c, doc! {"a": 3}).len(), 9);
    assert_eq!(f.find_all(&c, doc! {"a": 77}).len(), 1);
    assert_eq!(
        f.find_all(&c, doc! {"tags": "new"}),
        [doc! {"_id": 3, "a": 77, "u": 3, "tags": ["x", "t0", "new"]}]
    );
    let same = doc! {"$set": {"a": 77}};
    let filter = doc! {"_id": 3};
    let outcome = update(&f, &c, &request(&filter, &same)).unwrap();
    assert_eq!((outcome.matched, outcome.modified), (1, 0));
    let filter = doc! {"_id": 1000};
    let outcome = update(&f, &c, &request(&filter, &same)).unwrap();
    assert_eq!((outcome.matched, outcome.modified), (0, 0));
    sound(&f, &c);
}

#[test]
fn many_documents_are_updated_once_each() {
    let (f, c) = filled(&[doc! {"key": {"u": 1}, "unique": true}], 3000);
    let (filter, change) = (
        doc! {"u": {"$gte": 1000}},
        doc! {"$inc": {"u": 5000, "n": 1}},
    );
    let outcome = update(
        &f,
        &c,
        &UpdateRequest {
            multi: true,
            ..request(&filter, &change)
        },
    )
    .unwrap();
    assert_eq!((outcome.matched, outcome.modified), (2000, 2000));
    assert_eq!(f.find_all(&c, doc! {"n": 1}).len(), 2000);
    assert_eq!(f.find_all(&c, doc! {"u": {"$gte": 6000}}).len(), 2000);
    sound(&f, &c);

    // Every value becomes its neighbour's, whichever of the two is updated first.
    for step in [-1, 1] {
        let (all, change) = (doc! {"_id": {"$gte": 0}}, doc! {"$inc": {"u": step}});
        let result = update(
            &f,
            &c,
            &UpdateRequest {
                multi: true,
                ..request(&all, &change)
            },
        );
        if step < 0 {
            assert_eq!(result.unwrap().modified, 3000);
        } else {
            assert_eq!(result.unwrap_err().code().code(), 11000);
        }
        sound(&f, &c);
    }
}

#[test]
fn failed_updates_change_nothing() {
    let (f, c) = filled(&[doc! {"key": {"u": 1}, "unique": true}], 10);
    for (filter, change, multi, code) in [
        (doc! {"_id": 1}, doc! {"$set": {"u": 2}}, false, 11000),
        (doc! {"_id": 1}, doc! {"$set": {"_id": 2}}, false, 66),
        (doc! {"_id": 1}, doc! {"$inc": {"tags": 2}}, false, 14),
        (doc! {}, doc! {"x": 1}, true, 9),
        (doc! {"$nonsense": 1}, doc! {"$set": {"u": 2}}, false, 2),
    ] {
        let before = f.find_all(&c, doc! {});
        let result = update(
            &f,
            &c,
            &UpdateRequest {
                multi,
                ..request(&filter, &change)
            },
        );
        assert_eq!(result.unwrap_err().code().code(), code, "{change:?}");
        assert_eq!(f.find_all(&c, doc! {}), before);
    }
    sound(&f, &c);
}

#[test]
fn upserts_insert_missing_documents() {
    let f = Fixture::new();
    let c = ns("db.c");
    let upsert = |filter: &DocBuf, change: &DocBuf, multi| {
        update(
            &f,
            &c,
            &UpdateRequest {
                sort: None,
                upsert: true,
                multi,
                ..request(filter, change)
            },
        )
        .unwrap()
    };
    let (filter, change) = (doc! {"_id": 5, "k": "x"}, doc! {"$inc": {"n": 1}});
    let outcome = upsert(&filter, &change, false);
    assert_eq!((outcome.matched, outcome.modified), (0, 0));
    assert!(matches!(outcome.upserted_id, Some(OwnedValue::Int32(5))));
    let outcome = upsert(&filter, &change, true);
    assert_eq!((outcome.matched, outcome.modified), (1, 1));
    assert_eq!(f.find_all(&c, doc! {}), [doc! {"_id": 5, "k": "x", "n": 2}]);
    let outcome = upsert(&doc! {"k": "y"}, &doc! {"z": 1}, false);
    assert!(matches!(outcome.upserted_id, Some(OwnedValue::ObjectId(_))));
    assert_eq!(f.find_all(&c, doc! {"z": 1}).len(), 1);
    sound(&f, &c);
}

#[test]
fn deletes_remove_documents_and_entries() {
    let (f, c) = filled(
        &[doc! {"key": {"a": 1}}, doc! {"key": {"tags": 1, "a": -1}}],
        2500,
    );
    assert_eq!(delete(&f, &c, doc! {"a": 4}, true), 1);
    assert_eq!(delete(&f, &c, doc! {"a": 4}, false), 249);
    assert_eq!(delete(&f, &c, doc! {"a": 4}, false), 0);
    assert_eq!(f.store.estimated_count(&c), 2250);
    sound(&f, &c);
    assert_eq!(delete(&f, &c, doc! {}, false), 2250);
    assert_eq!(f.store.estimated_count(&c), 0);
    assert_eq!(f.find_all(&c, doc! {"tags": "x"}).len(), 0);
    sound(&f, &c);
    assert_eq!(delete(&f, &ns("db.none"), doc! {}, false), 0);
    let f = f.reopen();
    assert_eq!(f.store.estimated_count(&c), 0);
    sound(&f, &c);
}

#[test]
fn find_and_modify_returns_the_document() {
    let (f, c) = filled(&[doc! {"key": {"a": 1, "u": 1}}], 50);
    let (filter, sort) = (doc! {"a": 7}, doc! {"u": -1});
    let (inc, fields) = (doc! {"$inc": {"u": 100}}, doc! {"u": 1});
    let base = FindAndModifyRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        update: Some(Value::Document(&inc)),
        projection: Some(&fields),
        ..FindAndModifyRequest::default()
    };
    let outcome = modify(&f, &c, &base);
    assert_eq!(outcome.value, Some(doc! {"_id": 47, "u": 47}));
    assert!(outcome.updated_existing);
    let outcome = modify(
        &f,
        &c,
        &FindAndModifyRequest {
            return_new: true,
            ..base.clone()
        },
    );
    assert_eq!(outcome.value, Some(doc! {"_id": 47, "u": 247}));
    let remove = FindAndModifyRequest {
        update: None,
        remove: true,
        ..base.clone()
    };
    let outcome = modify(&f, &c, &remove);
    assert_eq!(outcome.value, Some(doc! {"_id": 47, "u": 247}));
    assert!(outcome.removed && !outcome.updated_existing);
    assert_eq!(
        modify(&f, &c, &remove).value,
        Some(doc! {"_id": 37, "u": 37})
    );

    let none = doc! {"_id": "none"};
    let missing = FindAndModifyRequest {
        filter: Some(&none),
        ..base.clone()
    };
    assert_eq!(modify(&f, &c, &missing).value, None);
    let upsert = FindAndModifyRequest {
        upsert: true,
        ..missing
    };
    let outcome = modify(&f, &c, &upsert);
    assert_eq!(outcome.value, None);
    assert!(matches!(outcome.upserted_id, Some(OwnedValue::String(_))));
    assert_eq!(
        f.find_all(&c, none.clone()),
        [doc! {"_id": "none", "u": 100}]
    );

    for bad in [
        FindAndModifyRequest {
            remove: true,
            ..base.clone()
        },
        FindAndModifyRequest {
            update: None,
            ..base.clone()
        },
        FindAndModifyRequest {
            update: None,
            remove: true,
            upsert: true,
            ..base.clone()
        },
        FindAndModifyRequest {
            update: None,
            remove: true,
            return_new: true,
            ..base.clone()
        },
    ] {
        let result = f.store.find_and_modify(&c, &bad, LOGGED, &OpContext::new());
        assert_eq!(result.unwrap_err().code().code(), 9);
    }
    sound(&f, &c);
}

#[test]
fn verification_finds_missing_and_surplus_entries() {
    use frond_store::keyspace::{CATALOG_TREE, WriteSet};
    let (f, c) = filled(
        &[
            doc! {"key": {"a": 1}},
            doc! {"key": {"u": 1}, "unique": true},
        ],
        20,
    );
    sound(&f, &c);
    let collection = f.store.catalog().collection(&c).unwrap();
    let entry = |field: i32, id: i32| {
        let mut key = Vec::new();
        frond_bson::key::encode(&Value::Int32(field), &mut key);
        frond_bson::key::encode(&Value::Int32(id), &mut key);
        key
    };
    let mut damage = WriteSet::new();
    damage.delete(collection.indexes[0].tree, &entry(3, 3));
    damage.put(collection.indexes[0].tree, &entry(99, 4), &[]);
    damage.put(collection.indexes[0].tree, &entry(5, 4000), &[]);
    let mut counter = vec![4];
    counter.extend_from_slice(&collection.uuid);
    damage.delete(CATALOG_TREE, &counter);
    f.store.engine().commit(damage, LOGGED).unwrap();
    let report = f.store.verify(&c).unwrap();
    let valid: Vec<bool> = report.indexes.iter().map(|index| index.valid).collect();
    assert_eq!(valid, [true, false, true]);
    let text = report.errors.join("; ");
    for part in [
        "the counter says",
        "lacks an entry",
        "without a document",
        "does not have",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// Setting an element beyond the end of an array creates the elements before it, which lack the other fields.
#[test]
fn indexes_have_entries_of_elements_that_an_update_adds() {
    let (f, c) = filled(&[doc! {"key": {"list.k": 1}}], 0);
    f.insert(&c, &[doc! {"_id": 1, "list": [{"k": 7}]}]);
    let (filter, change) = (doc! {"_id": 1}, doc! {"$set": {"list.2.other": 1}});
    assert_eq!(
        update(&f, &c, &request(&filter, &change)).unwrap().modified,
        1
    );
    sound(&f, &c);
    assert_eq!(f.find_all(&c, doc! {"list.k": null}).len(), 1);
}

#[test]
fn changes_of_watched_collections_are_told_when_they_are_visible() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};

    let f = Fixture::new();
    let c = ns("db.c");
    let (told, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI64::new(0)));
    let (count, sum, store) = (told.clone(), seen.clone(), f.store.clone());
    f.store
        .catalog()
        .hooks()
        .on_change_of(&["db.c", "db.d"], move || {
            count.fetch_add(1, SeqCst);
            let found = store.find(&ns("db.c"), &FindRequest::default(), &OpContext::new());
            let mut found = found.unwrap();
            let mut values = 0;
            while let Some(doc) = found.next().unwrap() {
                values += doc.get_i64("a").unwrap();
            }
            sum.store(values, SeqCst);
        });
    // Runs a change; it must have been reported, and the callback must have seen this sum.
    let check = |what: &str, sum: i64, change: &dyn Fn()| {
        told.store(0, SeqCst);
        change();
        assert!(told.load(SeqCst) > 0, "{what}");
        assert_eq!(seen.load(SeqCst), sum, "{what}");
    };
    let set = doc! {"$set": {"a": 5i64}};
    check("insert", 3, &|| {
        f.insert(
            &c,
            &[doc! {"_id": 1, "a": 1i64}, doc! {"_id": 2, "a": 2i64}],
        );
    });
    check("update", 7, &|| {
        update(&f, &c, &request(&doc! {"_id": 1}, &set)).unwrap();
    });
    check("delete", 2, &|| {
        assert_eq!(delete(&f, &c, doc! {"_id": 1}, true), 1)
    });
    check("transaction", 5, &|| {
        let transaction = f.store.begin();
        let inside = f.store.in_transaction(&transaction);
        let request = request(Doc::empty(), &set);
        inside
            .update(&c, &request, LOGGED, &OpContext::new())
            .unwrap();
        assert_eq!(told.load(SeqCst), 0, "before the commit");
        transaction.commit(LOGGED).unwrap();
    });
    check("index", 5, &|| {
        let spec = doc! {"key": {"a": 1}, "name": "a"};
        f.store.create_indexes(&c, &[&spec]).unwrap();
    });
    check("rename", 0, &|| {
        f.store.rename_collection(&c, &ns("db.x"), false).unwrap()
    });
    check("rename over it", 5, &|| {
        f.insert(&c, &[doc! {"_id": 9, "a": 9i64}]);
        f.store.rename_collection(&ns("db.x"), &c, true).unwrap();
    });
    check("drop", 0, &|| {
        f.store.drop_collection(&c).unwrap();
    });
    check("create", 0, &|| {
        f.store
            .create_collection(&ns("db.d"), Doc::empty())
            .unwrap()
    });
    check("drop of the database", 0, &|| {
        f.insert(&c, &[doc! {"_id": 1, "a": 1i64}]);
        f.store.drop_database("db").unwrap();
    });
    told.store(0, SeqCst);
    let other = ns("db.e");
    f.insert(&other, &[doc! {"_id": 1}]);
    f.store
        .create_indexes(&other, &[&doc! {"key": {"a": 1}, "name": "a"}])
        .unwrap();
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    inside
        .insert(&other, &[&doc! {"_id": 2}], common::INSERT)
        .unwrap();
    transaction.commit(LOGGED).unwrap();
    f.store.drop_collection(&other).unwrap();
    assert_eq!(told.load(SeqCst), 0, "other collections are not told");
}

/// A change of one document by its `_id` takes no plan. With a second condition the same change is planned.
#[test]
fn a_change_by_id_does_what_a_planned_one_does() {
    let collation = doc! {"collation": {"locale": "en", "strength": 2}};
    let many: DocBuf = {
        let mut many = DocBuf::new();
        (0..4000).for_each(|n| many.push(&format!("f{n}"), n));
        many
    };
    let ids = [
        doc! {"_id": 1},
        doc! {"_id": 2.0},
        doc! {"_id": "Three"},
        doc! {"_id": "three"},
        doc! {"_id": "large"},
        doc! {"_id": null},
        doc! {"_id": {"$gte": 5}},
        doc! {"_id": 99},
    ];
    let change = doc! {"$inc": {"a": 1}, "$set": {"m.f7": "x"}};
    for options in [doc! {}, collation, doc! {"capped": true, "size": 1 << 20}] {
        let fixtures = [Fixture::new(), Fixture::new()];
        let c = ns("db.c");
        let outcomes = fixtures.each_ref().map(|f| {
            f.store.create_collection(&c, &options).unwrap();
            let index = doc! {"key": {"a": 1}};
            f.store.create_indexes(&c, &[&*index]).unwrap();
            let docs = [
                doc! {"_id": 1, "a": 1},
                doc! {"_id": 2, "a": 2},
                doc! {"_id": "Three", "a": 3},
                doc! {"_id": "large", "a": 4, "m": &many},
                doc! {"_id": null, "a": 5},
                doc! {"_id": 6, "a": 6},
            ];
            f.insert(&c, &docs);
            let is_planned = std::ptr::eq(f, &fixtures[1]);
            let mut outcomes = Vec::new();
            for id in &ids {
                let mut filter = id.clone();
                if is_planned {
                    filter.push("none", &doc! {"$exists": false});
                }
                let updated = update(f, &c, &request(&filter, &change)).unwrap();
                let found = modify(
                    f,
                    &c,
                    &FindAndModifyRequest {
                        filter: Some(&filter),
                        update: Some(Value::Document(&change)),
                        return_new: true,
                        ..FindAndModifyRequest::default()
                    },
                );
                let removes = id.get_i32("_id") == Some(1) || id.get_str("_id") == Some("large");
                let deleted = if removes {
                    delete(f, &c, filter, true)
                } else {
                    0
                };
                outcomes.push((updated.matched, updated.modified, found.value, deleted));
            }
            sound(f, &c);
            (outcomes, f.find_all(&c, doc! {}))
        });
        assert_eq!(outcomes[0], outcomes[1], "{options:?}");
        assert!(
            outcomes[0]
                .0
                .iter()
                .filter(|outcome| outcome.0 == 1)
                .count()
                >= 5
        );
    }
}

/// The value of `arr` after a change of the element that the filter matches, and what a projection shows of it before.
fn positional(f: &Fixture, c: &Namespace, filter: &Doc, hint: Value<'_>) -> Vec<DocBuf> {
    let projection = doc! {"_id": 0, "arr.$": 1};
    let find = FindRequest {
        filter: Some(filter),
        projection: Some(&projection),
        hint: Some(hint),
        ..FindRequest::default()
    };
    let mut found = f.find(c, &find);
    let set = doc! {"$set": {"arr.$": -1}};
    let removed = modify(
        f,
        c,
        &FindAndModifyRequest {
            filter: Some(filter),
            update: Some(Value::Document(&set)),
            projection: Some(&projection),
            hint: Some(hint),
            ..FindAndModifyRequest::default()
        },
    );
    found.extend(removed.value);
    found.extend(f.find_all(c, doc! {"_id": 1}));
    let restore = doc! {"$set": {"arr": [1, 2, 3, 4, 5]}};
    update(f, c, &request(&doc! {"_id": 1}, &restore)).unwrap();
    for multi in [false, true] {
        let one = UpdateRequest {
            multi,
            hint: Some(hint),
            ..request(filter, &set)
        };
        assert_eq!(update(f, c, &one).unwrap().modified, 1);
        found.extend(f.find_all(c, doc! {"_id": 1}));
        update(f, c, &request(&doc! {"_id": 1}, &restore)).unwrap();
    }
    found
}

#[test]
fn an_index_does_not_change_which_array_element_is_meant() {
    let f = Fixture::new();
    let c = ns("db.c");
    let keys = [
        doc! {"key": {"arr": 1}, "name": "arr"},
        doc! {"key": {"x": 1}, "name": "x"},
        doc! {"key": {"x": 1, "arr": 1}, "name": "both"},
    ];
    let keys: Vec<&Doc> = keys.iter().map(|key| &**key).collect();
    f.store.create_indexes(&c, &keys).unwrap();
    let pad = "p".repeat(40_000);
    let others = (2..50).map(|i| doc! {"_id": i, "x": i, "arr": [i, i + 1]});
    let first = doc! {"_id": 1, "x": 1, "arr": [1, 2, 3, 4, 5], "pad": &pad};
    let docs: Vec<DocBuf> = std::iter::once(first).chain(others).collect();
    f.insert(&c, &docs);
    let natural = doc! {"$natural": 1};
    for (filter, index) in [
        (doc! {"x": 1, "arr": {"$gt": 1, "$lt": 5}}, 1),
        (doc! {"x": 1, "arr": {"$lt": 5, "$gt": 1}}, 1),
        (doc! {"x": 1, "arr": {"$gte": 2, "$lte": 4}}, 1),
        (doc! {"x": 1, "arr": {"$in": [5, 4]}}, 3),
        (doc! {"x": 1, "arr": 5}, 4),
        (
            doc! {"x": 1, "arr": {"$elemMatch": {"$gt": 2, "$lt": 5}}},
            2,
        ),
        (doc! {"x": 1, "$or": [{"arr": 4}, {"arr": 3}]}, 2),
        (doc! {"x": 1, "$and": [{"arr": 5}, {"arr": 2}]}, 1),
        (doc! {"x": 1, "arr": {"$all": [2, 5]}}, 4),
    ] {
        let all = [1, 2, 3, 4, 5];
        let shown = doc! {"arr": [all[index]]};
        let mut after = all;
        after[index] = -1;
        let after = doc! {"_id": 1, "x": 1, "arr": ArrayBuf::from_iter(after), "pad": &pad};
        let expected = [&shown, &shown, &after, &after, &after].map(Clone::clone);
        for hint in [
            Value::Document(&natural),
            Value::String("x"),
            Value::String("arr"),
            Value::String("both"),
        ] {
            let found = positional(&f, &c, &filter, hint);
            assert_eq!(found, expected, "{filter:?} {hint:?}");
        }
    }
}

#[test]
fn without_a_condition_on_elements_there_is_no_array_element() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"x": 1}, "name": "x"};
    f.store.create_indexes(&c, &[&index]).unwrap();
    f.insert(&c, &[doc! {"_id": 1, "x": 1, "arr": [1, 2]}]);
    let projection = doc! {"arr.$": 1};
    let set = doc! {"$set": {"arr.$": 0}};
    for filter in [
        doc! {},
        doc! {"_id": 1},
        doc! {"x": 1},
        doc! {"arr": [1, 2]},
        doc! {"arr": {"$ne": 7}},
        doc! {"$or": [{"arr": 1}, {"x": 1}]},
    ] {
        let find = FindRequest {
            filter: Some(&filter),
            projection: Some(&projection),
            ..FindRequest::default()
        };
        let mut cursor = f.store.find(&c, &find, &OpContext::new()).unwrap();
        let error = cursor.next().unwrap_err();
        assert_eq!(error.code().code(), 51246, "{filter:?}");
        let error = update(&f, &c, &request(&filter, &set)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::BadValue, "{filter:?}");
    }
    // The new document may no longer match.
    let filter = doc! {"arr": 1};
    let new = FindAndModifyRequest {
        filter: Some(&filter),
        update: Some(Value::Document(&set)),
        projection: Some(&projection),
        return_new: true,
        ..FindAndModifyRequest::default()
    };
    let error = f
        .store
        .find_and_modify(&c, &new, LOGGED, &OpContext::new())
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadValue);
}
