//! Corners of plans in which an index once changed the answer.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{Doc, DocBuf, Value, array, doc};
use frond_store::{
    CountRequest, DeleteRequest, Durability, FindRequest, Namespace, OpContext, Purpose, Task,
    Verbosity,
};

fn fixture(indexes: &[DocBuf], docs: &[DocBuf]) -> (Fixture, Namespace) {
    let (f, c) = (Fixture::new(), ns("db.c"));
    for index in indexes {
        f.store.create_indexes(&c, &[index]).unwrap();
    }
    f.insert(&c, docs);
    (f, c)
}

/// The winning plan of a find.
fn plan(f: &Fixture, c: &Namespace, request: &FindRequest<'_>) -> DocBuf {
    let (verbosity, context) = (Verbosity::QueryPlanner, OpContext::new());
    let reply = f
        .store
        .explain_find(c, request, verbosity, &context)
        .unwrap();
    let planner = reply.get_doc("queryPlanner").unwrap();
    planner.get_doc("winningPlan").unwrap().to_owned()
}

fn ids(found: &[DocBuf]) -> Vec<i64> {
    found
        .iter()
        .map(|doc| doc.get_i64("_id").unwrap())
        .collect()
}

#[test]
fn a_condition_that_never_holds_beside_an_id_finds_nothing() {
    let (f, c) = fixture(&[], &[doc! {"_id": 5, "a": 1}]);
    for filter in [
        doc! {"_id": 5, "a": {"$all": []}},
        doc! {"_id": 5, "$alwaysFalse": 1},
        doc! {"_id": 5, "$and": [{"$alwaysFalse": 1}]},
        doc! {"_id": {"$gte": 5}, "$alwaysFalse": 1},
    ] {
        assert!(f.find_all(&c, filter.clone()).is_empty(), "{filter:?}");
        let count = CountRequest {
            filter: Some(&filter),
            ..CountRequest::default()
        };
        assert_eq!(f.store.count(&c, &count, &OpContext::new()).unwrap(), 0);
        let delete = DeleteRequest {
            filter: &filter,
            limit_one: true,
            hint: None,
            variables: None,
            collation: None,
        };
        let context = OpContext::new();
        let deleted = f.store.delete(&c, &delete, Durability::Logged, &context);
        assert_eq!(deleted.unwrap(), 0, "{filter:?}");
    }
}

#[test]
fn an_index_on_a_part_of_the_id_shows_one_id() {
    let document = doc! {"_id": {"x": 1, "y": 2}, "b": 1};
    let index = doc! {"key": {"_id.x": 1, "b": 1}};
    let (f, c) = fixture(&[index], std::slice::from_ref(&document));
    let (filter, projection) = (doc! {"_id.x": 1}, doc! {"b": 1});
    let request = FindRequest {
        filter: Some(&filter),
        projection: Some(&projection),
        ..FindRequest::default()
    };
    assert_eq!(f.find(&c, &request), [document]);
}

#[test]
fn names_with_dots_do_not_answer_for_paths_in_a_wildcard_index() {
    let docs = [
        doc! {"_id": 1, "a": {"b.c": 1}},
        doc! {"_id": 2, "a.b.c": 1},
        doc! {"_id": 3, "a.b": {"c": 1}},
        doc! {"_id": 4, "a": {"b": {"c": 1}}},
        doc! {"_id": 5, "a": {"b": {"c": 3}}, "a.b": {"c": 0}},
    ];
    let (f, c) = fixture(&[doc! {"key": {"$**": 1}}], &docs);
    let filter = doc! {"a.b.c": 1};
    assert_eq!(ids(&f.find_all(&c, filter.clone())), [4]);
    let count = CountRequest {
        filter: Some(&filter),
        ..CountRequest::default()
    };
    assert_eq!(f.store.count(&c, &count, &OpContext::new()).unwrap(), 1);
    let (filter, sort) = (doc! {"a.b.c": {"$gte": 0}}, doc! {"a.b.c": 1});
    let request = FindRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        ..FindRequest::default()
    };
    assert_eq!(ids(&f.find(&c, &request)), [4, 5]);
}

#[test]
fn a_tailable_find_compares_by_the_collation() {
    let (f, c) = (Fixture::new(), ns("db.c"));
    let collation = doc! {"locale": "en", "strength": 2};
    let options = doc! {"capped": true, "size": 100_000, "collation": collation};
    f.store.create_collection(&c, &options).unwrap();
    f.insert(&c, &[doc! {"_id": 1, "s": "A"}, doc! {"_id": 2, "s": "a"}]);
    let filter = doc! {"s": "a"};
    let request = FindRequest {
        filter: Some(&filter),
        tailable: true,
        ..FindRequest::default()
    };
    assert_eq!(ids(&f.find(&c, &request)), [1, 2]);
    assert_eq!(plan(&f, &c, &request).get_str("stage"), Some("COLLSCAN"));
}

#[test]
fn min_and_max_beside_an_id_need_a_hint() {
    let (f, c) = fixture(&[], &[doc! {"_id": 3}]);
    let (filter, min) = (doc! {"_id": 3}, doc! {"_id": 5});
    let request = FindRequest {
        filter: Some(&filter),
        min: Some(&min),
        ..FindRequest::default()
    };
    let error = f.store.find(&c, &request, &OpContext::new()).err().unwrap();
    assert_eq!(error.code().code(), 51173);
}

#[test]
fn return_key_shows_the_id_in_a_branch_on_it() {
    let docs: Vec<DocBuf> = (0..5).map(|i| doc! {"_id": i, "a": i}).collect();
    let (f, c) = fixture(&[doc! {"key": {"a": 1}}], &docs);
    let filter = doc! {"$or": [{"a": 1}, {"_id": 3}]};
    let request = FindRequest {
        filter: Some(&filter),
        return_key: true,
        ..FindRequest::default()
    };
    let mut found = f.find(&c, &request);
    found.sort_by_key(|key| key.get_i64("_id"));
    assert_eq!(found, [doc! {"a": 1}, doc! {"_id": 3}]);
}

#[test]
fn a_scan_is_taken_apart_only_into_few_scans_and_intervals() {
    let docs: Vec<DocBuf> = (0..100)
        .map(|i| doc! {"_id": i, "a": i, "b": i, "c": i})
        .collect();
    let (f, c) = fixture(&[doc! {"key": {"a": 1, "c": 1, "b": 1}}], &docs);
    let values = |count: i32| -> frond_bson::ArrayBuf { (0..count).collect() };
    let sort = doc! {"c": 1};
    let is_merged = |filter: &DocBuf| {
        let request = FindRequest {
            filter: Some(filter),
            sort: Some(&sort),
            ..FindRequest::default()
        };
        let (verbosity, context) = (Verbosity::QueryPlanner, OpContext::new());
        let reply = f.store.explain_find(&c, &request, verbosity, &context);
        let reply = reply.unwrap();
        let planner = reply.get_doc("queryPlanner").unwrap();
        let winner = format!("{:?}", planner.get_doc("winningPlan").unwrap());
        let is_merged = winner.contains("SORT_MERGE");
        // It says so where there would be too many.
        let reached = planner.get_bool("maxScansToExplodeReached").unwrap();
        assert_eq!(reached, !is_merged, "{reply:?}");
        is_merged
    };
    for (a, b, expected) in [
        (3, 3, true),
        (200, 3, true),
        (201, 3, false),
        (200, 500, false),
    ] {
        let filter = doc! {"a": {"$in": values(a)}, "b": {"$in": values(b)}};
        assert_eq!(is_merged(&filter), expected, "{a} {b}");
    }
    for (branches, expected) in [(2, true), (3, false)] {
        let mut list = array![];
        for _ in 0..branches {
            list.push(&doc! {"a": {"$in": values(99)}, "b": {"$gte": 0}});
        }
        assert_eq!(is_merged(&doc! {"$or": list}), expected, "{branches}");
    }
}

#[test]
fn a_delete_is_explained_with_the_documents_that_it_reads() {
    let docs: Vec<DocBuf> = (0..10).map(|i| doc! {"_id": i, "a": i}).collect();
    let (f, c) = fixture(&[doc! {"key": {"a": 1}, "clustering": true}], &docs);
    let filter = doc! {"a": {"$gte": 5}};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let purpose = Purpose {
        task: Task::Delete,
        ..Purpose::FIND
    };
    let (verbosity, context) = (Verbosity::ExecutionStats, OpContext::new());
    let reply = (f.store).explain(&c, &request, &purpose, verbosity, &context);
    let reply = reply.unwrap();
    let stats = reply.get_doc("executionStats").unwrap();
    assert_eq!(stats.get_i64("totalDocsExamined"), Some(5));
}

#[test]
fn a_partial_index_serves_the_branch_that_implies_its_filter() {
    let docs: Vec<DocBuf> = (0..10)
        .map(|i| doc! {"_id": i, "a": i, "x": i % 2})
        .collect();
    let partial = doc! {"key": {"a": 1}, "partialFilterExpression": {"x": 1}};
    let (f, c) = fixture(&[partial], &docs);
    let filter = doc! {"$or": [{"a": 1, "x": 1}, {"_id": 5}]};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let text = format!("{:?}", plan(&f, &c, &request));
    assert!(text.contains("a_1") && !text.contains("COLLSCAN"), "{text}");
    let mut found = ids(&f.find(&c, &request));
    found.sort_unstable();
    assert_eq!(found, [1, 5]);
}

/// The filter of an index may hold types, alternatives and areas.
#[test]
fn partial_indexes_serve_conditions_that_imply_their_filters() {
    let mut docs: Vec<DocBuf> = (0..40)
        .map(|i| doc! {"_id": i, "u": format!("s{i}"), "n": i, "p": [i % 5, i / 8]})
        .collect();
    docs.extend((40..50).map(|i| doc! {"_id": i, "u": null, "n": [i, 100 + i]}));
    docs.push(doc! {"_id": 50, "n": []});
    let index = |name: &str, key: DocBuf, filter: DocBuf| {
        doc! {"key": key, "name": name, "partialFilterExpression": filter}
    };
    let mut unique = index("u", doc! {"u": 1}, doc! {"u": {"$type": "string"}});
    unique.push("unique", true);
    let box_of = |corner: i32| doc! {"$geoWithin": {"$box": [[0, 0], [corner, corner]]}};
    let indexes = [
        unique,
        index("n", doc! {"n": 1}, doc! {"n": {"$type": "number"}}),
        index(
            "either",
            doc! {"_id": 1, "u": 1},
            doc! {"$or": [{"n": {"$lt": 3}}, {"u": "s9"}]},
        ),
        index(
            "present",
            doc! {"u": 1, "n": 1},
            doc! {"u": {"$exists": true}},
        ),
        index("inside", doc! {"p": 1, "n": 1}, doc! {"p": box_of(3)}),
    ];
    let (f, c) = fixture(&indexes, &docs);
    let scan = doc! {"$natural": 1};
    for (filter, name) in [
        (doc! {"u": {"$eq": "s5", "$type": "string"}}, Some("u")),
        (doc! {"u": {"$type": "string", "$gt": "s38"}}, Some("u")),
        (doc! {"n": {"$gt": 36}}, Some("n")),
        (
            doc! {"n": {"$elemMatch": {"$gt": 140, "$lt": 143}}},
            Some("n"),
        ),
        (doc! {"u": {"$ne": null}, "n": {"$gt": -1}}, None),
        (
            doc! {"_id": {"$gt": 3}, "$or": [{"n": 1}, {"u": "s9", "n": 9}]},
            Some("either"),
        ),
        (doc! {"p": box_of(2), "n": {"$gte": 0}}, None),
        (doc! {"u": "s5", "n": "x"}, None),
        (doc! {"n": []}, None),
    ] {
        let request = FindRequest {
            filter: Some(&filter),
            ..FindRequest::default()
        };
        let natural = FindRequest {
            hint: Some(Value::Document(&scan)),
            ..request.clone()
        };
        let sorted = |request: &FindRequest<'_>| {
            let mut found = ids(&f.find(&c, request));
            found.sort_unstable();
            found
        };
        assert_eq!(sorted(&request), sorted(&natural), "{filter:?}");
        if let Some(name) = name {
            let reply =
                f.store
                    .explain_find(&c, &request, Verbosity::QueryPlanner, &OpContext::new());
            let text = format!("{:?}", reply.unwrap()).replace(' ', "");
            assert!(
                text.contains(&format!("\"indexName\":\"{name}\"")),
                "{filter:?}: {text}"
            );
        }
    }
}

#[test]
fn a_hinted_wildcard_index_serves_empty_arrays_and_the_branches_of_a_disjunction() {
    let docs = [
        doc! {"_id": 1, "a": []},
        doc! {"_id": 2, "a": [[]], "b": 2},
        doc! {"_id": 3, "a": [[1]], "b": [3]},
        doc! {"_id": 4, "a": {"x": []}, "b": {"c": []}},
        doc! {"_id": 5, "a": 1, "b": [[], 2]},
    ];
    let index = doc! {"key": {"$**": 1}, "name": "all"};
    let (f, c) = fixture(&[index], &docs);
    let find = |filter: &Doc, hint: Value<'_>| {
        let request = FindRequest {
            filter: Some(filter),
            hint: Some(hint),
            ..FindRequest::default()
        };
        let mut cursor = f.store.find(&c, &request, &OpContext::new())?;
        let mut found = Vec::new();
        while let Some(doc) = cursor.next()? {
            found.push(doc.get_i64("_id").unwrap());
        }
        found.sort_unstable();
        Ok::<_, frond_store::Error>(found)
    };
    let (hint, natural) = (doc! {"$**": 1}, doc! {"$natural": 1});
    for (filter, expected) in [
        (doc! {"a": []}, vec![1, 2]),
        (doc! {"a": {"$in": [[], 1]}}, vec![1, 2, 5]),
        (doc! {"a.x": []}, vec![4]),
        (doc! {"b": {"$elemMatch": {"$eq": []}}}, vec![5]),
        (doc! {"$or": [{"a": 1}, {"b": 3}]}, vec![3, 5]),
        (doc! {"$or": [{"a": []}, {"b": 2}]}, vec![1, 2, 5]),
        (
            doc! {"_id": {"$gt": 1}, "$or": [{"a": []}, {"b.c": []}]},
            vec![2, 4],
        ),
    ] {
        for hint in [&hint, &natural] {
            let found = find(&filter, Value::Document(hint));
            assert_eq!(found.unwrap(), expected, "{filter:?} {hint:?}");
        }
    }
    // Not all documents that match have entries.
    for filter in [
        doc! {"a": [[1]]},
        doc! {"a": null},
        doc! {"$or": [{"a": 1}, {"b": null}]},
    ] {
        let error = find(&filter, Value::Document(&hint)).unwrap_err();
        assert_eq!(error.code().code(), 291, "{filter:?}");
    }
}

#[test]
fn distinct_prefers_the_index_that_reads_less() {
    let docs: Vec<DocBuf> = (0..2000)
        .map(|i| doc! {"_id": i, "a": i, "b": i % 400})
        .collect();
    let indexes = [doc! {"key": {"a": 1, "b": 1}}, doc! {"key": {"b": 1}}];
    let (f, c) = fixture(&indexes, &docs);
    let filter = doc! {"b": 5};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let purpose = Purpose {
        distinct: Some("a"),
        ..Purpose::FIND
    };
    let (verbosity, context) = (Verbosity::ExecutionStats, OpContext::new());
    let reply = (f.store).explain(&c, &request, &purpose, verbosity, &context);
    let reply = reply.unwrap();
    let stats: &Doc = reply.get_doc("executionStats").unwrap();
    assert_eq!(stats.get_i64("totalKeysExamined"), Some(5), "{reply:?}");
}

#[test]
fn a_union_remembers_only_documents_that_pass_and_its_scans_none() {
    let docs: Vec<DocBuf> = (0..100)
        .map(|i| doc! {"_id": i, "a": i % 50, "t": [i, i + 1]})
        .collect();
    let (f, c) = fixture(&[doc! {"key": {"t": 1}}], &docs);
    let filter = doc! {"$or": [{"_id": {"$gte": 0}, "a": 1}, {"t": {"$gte": 10, "$lt": 20}}]};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let (verbosity, context) = (Verbosity::ExecutionStats, OpContext::new());
    let reply = f.store.explain_find(&c, &request, verbosity, &context);
    let reply = reply.unwrap();
    let stats = reply.get_doc("executionStats").unwrap();
    let fetch = stats.get_doc("executionStages").unwrap();
    let fetch = fetch.get_doc("inputStage").unwrap();
    let union = fetch.get_doc("inputStage").unwrap();
    assert_eq!(union.get_str("stage"), Some("OR"), "{reply:?}");
    let branches = union.get_array("inputStages").unwrap();
    let mut branches = branches.values().filter_map(|branch| branch.as_doc());
    let (by_id, by_array) = (branches.next().unwrap(), branches.next().unwrap());
    let found = f.find_all(&c, filter.clone()).len() as i64;
    assert_eq!(found, 2 + 11);
    assert_eq!(by_id.get_i64("docsExamined"), Some(100));
    assert_eq!(by_id.get_i64("nReturned"), Some(found));
    assert_eq!(by_array.get_str("indexName"), Some("t_1"));
    assert_eq!(by_array.get_i64("dupsTested"), Some(0));
    let entries = by_array.get_i64("nReturned").unwrap();
    assert_eq!(union.get_i64("dupsTested"), Some(found + entries));
}

#[test]
fn a_sorted_cursor_is_read_to_its_end_without_its_snapshot() {
    let docs: Vec<DocBuf> = (0..500)
        .map(|i| doc! {"_id": i, "a": i * 7 % 500})
        .collect();
    let (f, c) = fixture(&[], &docs);
    let sort = doc! {"a": 1};
    let request = FindRequest {
        sort: Some(&sort),
        skip: 10,
        show_record_id: true,
        ..FindRequest::default()
    };
    let mut cursor = f.store.find(&c, &request, &OpContext::new()).unwrap();
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().unwrap() {
        found.push(doc.get_i64("a").unwrap());
    }
    assert_eq!(found, (10..500).collect::<Vec<_>>());
}
