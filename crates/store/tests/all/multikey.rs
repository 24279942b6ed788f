//! Which components of an index's paths are arrays, and what that allows of bounds.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_store::{
    CountRequest, DeleteRequest, Durability, FindRequest, IndexSelector, OpContext, UpdateRequest,
    Verbosity,
};

fn ids(found: &[DocBuf]) -> Vec<i64> {
    let mut ids: Vec<i64> = found
        .iter()
        .map(|doc| doc.get_i64("_id").unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

/// The `_id`s that a filter finds through an index, and by a scan of the collection.
fn both(f: &Fixture, filter: &Doc, hint: &str) -> (Vec<i64>, Vec<i64>) {
    let natural = doc! {"$natural": 1};
    let find = |hint: Value<'_>| {
        let request = FindRequest {
            filter: Some(filter),
            hint: Some(hint),
            ..FindRequest::default()
        };
        ids(&f.find(&ns("db.c"), &request))
    };
    (find(Value::String(hint)), find(Value::Document(&natural)))
}

fn index_scan(f: &Fixture, filter: &Doc, hint: &str) -> DocBuf {
    let request = FindRequest {
        filter: Some(filter),
        hint: Some(Value::String(hint)),
        ..FindRequest::default()
    };
    let context = OpContext::new();
    let verbosity = Verbosity::QueryPlanner;
    let explained = f
        .store
        .explain_find(&ns("db.c"), &request, verbosity, &context);
    let plan = explained.unwrap();
    plan.get_doc("queryPlanner")
        .and_then(|planner| planner.get_doc("winningPlan"))
        .and_then(|plan| plan.get_doc("inputStage"))
        .unwrap()
        .to_owned()
}

#[test]
fn two_paths_into_an_inner_array_are_not_both_bounded_by_an_element_of_the_outer() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"orders.items.sku": 1, "orders.items.qty": 1}, "name": "i"};
    f.store.create_indexes(&c, &[&index]).unwrap();
    f.insert(
        &c,
        &[
            doc! {"_id": 1, "orders": [{"items": [{"sku": "A", "qty": 1}, {"sku": "B", "qty": 5}]}]},
            doc! {"_id": 2, "orders": [{"items": [{"sku": "A", "qty": 5}]}]},
            doc! {"_id": 3, "orders": [{"items": [{"sku": "A", "qty": 1}]}, {"items": [{"sku": "B", "qty": 5}]}]},
        ],
    );
    let filter = doc! {"orders": {"$elemMatch": {"items.sku": "A", "items.qty": 5}}};
    assert_eq!(both(&f, &filter, "i"), (vec![1, 2], vec![1, 2]));
    assert_eq!(ids(&f.find_all(&c, filter.clone())), [1, 2]);
    let scan = index_scan(&f, &filter, "i");
    assert_eq!(
        scan.get_doc("multiKeyPaths").unwrap(),
        &*doc! {"orders.items.sku": ["orders", "orders.items"], "orders.items.qty": ["orders", "orders.items"]}
    );
    // An `$elemMatch` over each array ties both to one item.
    let tied = doc! {"orders": {"$elemMatch": {"items": {"$elemMatch": {"sku": "A", "qty": 5}}}}};
    assert_eq!(both(&f, &tied, "i"), (vec![2], vec![2]));
    let bounds = |filter: &Doc| {
        index_scan(&f, filter, "i")
            .get_doc("indexBounds")
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        bounds(&tied),
        doc! {"orders.items.sku": ["[\"A\", \"A\"]"], "orders.items.qty": ["[5, 5]"]}
    );
    assert_eq!(
        bounds(&filter)
            .get("orders.items.qty")
            .map(|ranges| ranges.to_owned()),
        doc! {"x": ["[MinKey, MaxKey]"]}
            .get("x")
            .map(|ranges| ranges.to_owned())
    );

    let context = OpContext::new();
    let count = CountRequest {
        filter: Some(&filter),
        ..CountRequest::default()
    };
    assert_eq!(f.store.count(&c, &count, &context).unwrap(), 2);
    let distinct = f
        .store
        .distinct(&c, "_id", Some(&filter), None, None, &context);
    assert_eq!(distinct.unwrap().as_doc().count(), 2);
    let change = doc! {"$set": {"seen": true}};
    let update = UpdateRequest {
        multi: true,
        ..UpdateRequest::new(&filter, Value::Document(&change))
    };
    let updated = f.store.update(&c, &update, Durability::Logged, &context);
    assert_eq!(updated.unwrap().matched, 2);
    let delete = DeleteRequest {
        collation: None,
        filter: &filter,
        limit_one: false,
        hint: None,
        variables: None,
    };
    assert_eq!(
        f.store
            .delete(&c, &delete, Durability::Logged, &context)
            .unwrap(),
        2
    );
}

/// Filters over `a`, an array of documents, and what each finds.
#[test]
fn conditions_bound_an_index_together_only_if_one_element_meets_them() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"a.x": 1, "a.y": 1}, "name": "i"};
    f.store.create_indexes(&c, &[&index]).unwrap();
    f.insert(
        &c,
        &[
            doc! {"_id": 1, "a": [{"x": 1, "y": 1}, {"x": 2, "y": 2}]},
            doc! {"_id": 2, "a": [{"x": 1, "y": 2}]},
            doc! {"_id": 3, "a": [{"x": 5}, {"x": 1, "y": 9}]},
        ],
    );
    for (filter, x, y, found) in [
        (
            doc! {"a.x": 1, "a.y": 2},
            "[1, 1]",
            "[MinKey, MaxKey]",
            &[1, 2][..],
        ),
        (
            doc! {"a": {"$elemMatch": {"x": 1, "y": 2}}},
            "[1, 1]",
            "[2, 2]",
            &[2],
        ),
        // Each branch numbers its own `$elemMatch` conditions.
        (
            doc! {"a": {"$elemMatch": {"x": 1}}, "$and": [{"a": {"$elemMatch": {"y": 2}}}]},
            "[1, 1]",
            "[MinKey, MaxKey]",
            &[1, 2],
        ),
        // One element, so both ends; `x` itself is no array.
        (
            doc! {"a": {"$elemMatch": {"x": {"$gt": 1, "$lt": 5}}}},
            "(1, 5)",
            "[MinKey, MaxKey]",
            &[1],
        ),
        (
            doc! {"a.x": {"$gt": 1, "$lt": 5}},
            "[-inf.0, 5)",
            "[MinKey, MaxKey]",
            &[1, 3],
        ),
        // A negation of a field of one element.
        (
            doc! {"a": {"$elemMatch": {"x": 1, "y": {"$ne": 2}}}},
            "[1, 1]",
            "[MinKey, 2), (2, MaxKey]",
            &[1, 3],
        ),
        (
            doc! {"a.x": 1, "a.y": {"$ne": 2}},
            "[1, 1]",
            "[MinKey, MaxKey]",
            &[3],
        ),
    ] {
        let (indexed, scanned) = both(&f, &filter, "i");
        assert_eq!((&*indexed, &*scanned), (found, found), "{filter:?}");
        let scan = index_scan(&f, &filter, "i");
        let bounds = scan.get_doc("indexBounds").unwrap();
        let shown = |path: &str| -> String {
            let ranges = bounds.get_array(path).unwrap().values();
            let ranges: Vec<&str> = ranges.map(|range| range.as_str().unwrap()).collect();
            ranges.join(", ")
        };
        assert_eq!((&*shown("a.x"), &*shown("a.y")), (x, y), "{filter:?}");
    }
}

#[test]
fn an_element_match_of_an_or_branch_is_not_that_of_the_filter_around_it() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"a.x": 1, "a.y": 1}, "name": "i"};
    f.store.create_indexes(&c, &[&index]).unwrap();
    f.insert(
        &c,
        &[doc! {"_id": 1, "a": [{"x": 1, "y": 1}, {"x": 2, "y": 2}]}],
    );
    let filter = doc! {"a": {"$elemMatch": {"y": 2}}, "$or": [{"a": {"$elemMatch": {"x": 1}}}, {"a": {"$elemMatch": {"x": 7}}}]};
    assert_eq!(ids(&f.find_all(&c, filter)), [1]);
}

#[test]
fn a_sparse_index_lacks_documents_with_empty_arrays_that_ne_null_finds() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"a.x": 1}, "name": "i", "sparse": true};
    f.store.create_indexes(&c, &[&index]).unwrap();
    f.insert(
        &c,
        &[doc! {"_id": 1, "a": []}, doc! {"_id": 2, "a": {"x": 1}}],
    );
    let filter = doc! {"a.x": {"$ne": null}};
    let (_, scanned) = both(&f, &filter, "i");
    assert_eq!(ids(&f.find_all(&c, filter)), scanned);
}

#[test]
fn a_sparse_index_lacks_entries_of_elements_without_its_fields() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"a.x": 1, "a.y": 1}, "name": "i", "sparse": true};
    f.store.create_indexes(&c, &[&index]).unwrap();
    f.insert(
        &c,
        &[
            doc! {"_id": 1, "a": [{"x": 1}, {"z": 1}]},
            doc! {"_id": 2, "a": [{"x": 1, "y": null}]},
        ],
    );
    for filter in [
        doc! {"a.x": {"$gt": 0}, "a": {"$elemMatch": {"x": null}}},
        doc! {"a.x": {"$exists": true}, "a": {"$elemMatch": {"x": null, "y": null}}},
        doc! {"a.x": {"$exists": true}, "a": {"$elemMatch": {"y": null}}},
    ] {
        let (_, scanned) = both(&f, &filter, "i");
        assert_eq!(ids(&f.find_all(&c, filter.clone())), scanned, "{filter:?}");
    }
}

/// As of MongoDB 8.0.
#[test]
fn undefined_is_not_null_to_an_index_either() {
    for key in [doc! {"a": 1}, doc! {"a": 1, "b": 1}, doc! {"a.x": 1}] {
        let f = Fixture::new();
        let c = ns("db.c");
        let index = doc! {"key": &key, "name": "i"};
        f.store.create_indexes(&c, &[&index]).unwrap();
        let undefined = Value::Undefined;
        f.insert(
            &c,
            &[
                doc! {"_id": 1, "a": undefined},
                doc! {"_id": 2, "a": null},
                doc! {"_id": 3},
                doc! {"_id": 4, "a": [undefined, 1]},
                doc! {"_id": 5, "a": []},
                doc! {"_id": 6, "a": {"x": undefined}},
                doc! {"_id": 7, "a": [{"x": undefined}, {"x": null}]},
            ],
        );
        for path in ["a", "a.x"] {
            for condition in [
                doc! {"$eq": null},
                doc! {"$ne": null},
                doc! {"$in": [null, 1]},
                doc! {"$nin": [null]},
                doc! {"$gte": null},
                doc! {"$lte": null},
                doc! {"$not": {"$gte": null}},
                doc! {"$exists": false},
                doc! {"$elemMatch": {"$ne": null}},
                doc! {"$elemMatch": {"$eq": null}},
            ] {
                let filter = doc! {path: &condition};
                let (indexed, scanned) = both(&f, &filter, "i");
                assert_eq!(indexed, scanned, "{filter:?} by {key:?}");
            }
        }
    }
}

/// To `$elemMatch` an array inside of an array is a document whose names are numbers.
#[test]
fn a_sparse_index_on_a_position_lacks_arrays_inside_of_arrays() {
    for (key, document, filter) in [
        (
            doc! {"a.1": 1},
            doc! {"_id": 1, "a": [[7, 5]]},
            doc! {"a": {"$elemMatch": {"1": 5}}},
        ),
        (
            doc! {"a.0.b": 1},
            doc! {"_id": 1, "a": [1, [{"b": 5}]]},
            doc! {"a": {"$elemMatch": {"0.b": 5}}},
        ),
    ] {
        let f = Fixture::new();
        let c = ns("db.c");
        let index = doc! {"key": key, "name": "i", "sparse": true};
        f.store.create_indexes(&c, &[&index]).unwrap();
        f.insert(&c, &[document]);
        assert_eq!(ids(&f.find_all(&c, filter.clone())), [1], "{filter:?}");
    }
}

/// Many conditions on one field of an array are planned in linear time, without losing documents.
#[test]
fn many_conditions_on_an_element_are_planned() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"a.b": 1}, "name": "i"};
    f.store.create_indexes(&c, &[&index]).unwrap();
    f.insert(&c, &[doc! {"_id": 1, "a": [{"b": 5}, {"b": -1}]}]);
    let mut all = ArrayBuf::new();
    for low in 0..5000 {
        all.push(&doc! {"b": {"$gt": -low}});
    }
    let filter = doc! {"a": {"$elemMatch": {"$and": all}}};
    assert_eq!(both(&f, &filter, "i"), (vec![1], vec![1]));
}

/// A store from before components were tracked records only which fields had an array.
#[test]
fn an_older_store_opens_and_gives_correct_results_at_once() {
    let f = Fixture::new();
    let c = ns("db.c");
    let indexes = [
        doc! {"key": {"a.b.x": 1, "a.b.y": 1}, "name": "i"},
        doc! {"key": {"n": 1, "a.b.x": 1}, "name": "j"},
    ];
    f.store
        .create_indexes(&c, &[&indexes[0], &indexes[1]])
        .unwrap();
    f.insert(
        &c,
        &[
            doc! {"_id": 1, "n": 1, "a": [{"b": [{"x": 1, "y": 1}, {"x": 2, "y": 2}]}]},
            doc! {"_id": 2, "n": 2, "a": [{"b": [{"x": 1, "y": 2}]}]},
        ],
    );
    common::write_multikey_as_before_components(&f.store);
    let f = f.reopen();
    let filter = doc! {"a": {"$elemMatch": {"b.x": 1, "b.y": 2}}};
    assert_eq!(both(&f, &filter, "i"), (vec![1, 2], vec![1, 2]));
    assert_eq!(ids(&f.find_all(&c, filter.clone())), [1, 2]);
    let paths = |hint: &str| {
        let scan = index_scan(&f, &filter, hint);
        scan.get_doc("multiKeyPaths").unwrap().to_owned()
    };
    // It is unknown which components are arrays, so all are treated as arrays.
    assert_eq!(
        paths("i"),
        doc! {"a.b.x": ["a", "a.b", "a.b.x"], "a.b.y": ["a", "a.b", "a.b.y"]}
    );
    assert_eq!(paths("j"), doc! {"n": [], "a.b.x": ["a", "a.b", "a.b.x"]});
    // New arrays are added to the stored paths.
    f.insert(
        &c,
        &[doc! {"_id": 3, "n": [1, 2], "a": [{"b": [{"x": 1, "y": 2}]}]}],
    );
    let f = f.reopen();
    let scan = index_scan(&f, &filter, "j");
    assert_eq!(
        scan.get_doc("multiKeyPaths").unwrap(),
        &*doc! {"n": ["n"], "a.b.x": ["a", "a.b", "a.b.x"]}
    );
    assert_eq!(both(&f, &filter, "i"), (vec![1, 2, 3], vec![1, 2, 3]));
    assert_eq!(f.store.verify(&c).unwrap().errors, Vec::<String>::new());
}

#[test]
fn unreadable_multikey_paths_cost_plans_but_no_results() {
    let f = Fixture::new();
    let c = ns("db.c");
    let index = doc! {"key": {"a.b": 1}, "name": "i"};
    f.store.create_indexes(&c, &[&index]).unwrap();
    f.insert(&c, &[doc! {"_id": 1, "a": {"b": [1, 9]}}]);
    let verified = |f: &Fixture| f.store.verify(&c).unwrap().errors;
    assert!(verified(&f).is_empty());

    common::overwrite_multikey(&f.store, b"?");
    let f = f.reopen();
    let filter = doc! {"a.b": {"$gt": 2, "$lt": 5}};
    let (by_index, by_scan) = both(&f, &filter, "i");
    assert_eq!((by_index, by_scan), (vec![1], vec![1]));
    let errors = verified(&f);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("the multikey paths of index 'i' cannot be read"));
    assert!(errors[0].contains("create it again"));

    let all = f.store.drop_indexes(&c, &IndexSelector::All).unwrap();
    assert_eq!(all, 2);
    f.store.create_indexes(&c, &[&index]).unwrap();
    let f = f.reopen();
    assert!(verified(&f).is_empty());
}
