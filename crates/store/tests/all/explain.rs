//! Plans as `explain` shows them.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns, outline};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{FindRequest, OpContext, Verbosity};

fn innermost(stage: &Doc) -> &Doc {
    stage.get_doc("inputStage").map_or(stage, innermost)
}

fn fixture() -> Fixture {
    let f = Fixture::new();
    let c = ns("db.c");
    for index in [
        doc! {"key": {"a": 1}},
        doc! {"key": {"a": 1, "b": -1}},
        doc! {"key": {"t": 1}},
        doc! {"key": {"u": 1}, "unique": true},
        doc! {"key": {"s": 1}, "sparse": true},
        doc! {"key": {"h": 1}, "hidden": true},
    ] {
        f.store.create_indexes(&c, &[&index]).unwrap();
    }
    let docs: Vec<DocBuf> = (0..200)
        .map(|i| doc! {"_id": i, "a": i % 20, "b": i % 7, "t": [i % 3, i % 5], "u": i, "h": i})
        .collect();
    f.insert(&c, &docs);
    f
}

/// The explanation of a find's plan, which does not run.
fn planned(f: &Fixture, request: &FindRequest<'_>) -> DocBuf {
    let (ns, context) = (ns("db.c"), OpContext::new());
    let explained = f
        .store
        .explain_find(&ns, request, Verbosity::QueryPlanner, &context);
    explained.unwrap()
}

fn winning_plan(explained: &Doc) -> &Doc {
    let planner = explained.get_doc("queryPlanner").unwrap();
    planner.get_doc("winningPlan").unwrap()
}

#[test]
fn plans_are_those_that_a_user_expects() {
    let f = fixture();
    let none = doc! {};
    for (filter, sort, projection, expected) in [
        (doc! {}, doc! {}, doc! {}, "COLLSCAN"),
        (doc! {"x": 1}, doc! {}, doc! {}, "COLLSCAN"),
        (doc! {"h": 1}, doc! {}, doc! {}, "COLLSCAN"),
        (doc! {"_id": 1}, doc! {}, doc! {}, "IDHACK"),
        (
            doc! {"_id": {"$gt": 1}},
            doc! {},
            doc! {},
            "FETCH > IXSCAN _id_",
        ),
        (doc! {}, doc! {"_id": -1}, doc! {}, "FETCH > IXSCAN _id_"),
        (doc! {"a": 1}, doc! {}, doc! {}, "FETCH > IXSCAN a_1"),
        (
            doc! {"a": 1, "b": 2},
            doc! {},
            doc! {},
            "FETCH > IXSCAN a_1_b_-1",
        ),
        (
            doc! {"a": 1},
            doc! {"b": 1},
            doc! {},
            "FETCH > IXSCAN a_1_b_-1",
        ),
        (
            doc! {"a": {"$gt": 1}},
            doc! {"b": 1},
            doc! {},
            "SORT > FETCH > IXSCAN a_1",
        ),
        (
            doc! {"a": 1},
            doc! {"_id": 1},
            doc! {},
            "FETCH > IXSCAN a_1",
        ),
        (
            doc! {},
            doc! {"a": -1, "b": 1},
            doc! {},
            "FETCH > IXSCAN a_1_b_-1",
        ),
        (doc! {"x": 1}, doc! {"x": 1}, doc! {}, "SORT > COLLSCAN"),
        (
            doc! {"u": 7, "a": 7},
            doc! {},
            doc! {},
            "FETCH > IXSCAN u_1",
        ),
        (doc! {"a": {"$in": []}}, doc! {}, doc! {}, "EOF"),
        (doc! {"s": null}, doc! {}, doc! {}, "COLLSCAN"),
        (doc! {"s": 1}, doc! {}, doc! {}, "FETCH > IXSCAN s_1"),
        (
            doc! {"s": {"$exists": true}},
            doc! {},
            doc! {},
            "FETCH > IXSCAN s_1",
        ),
        (
            doc! {"$or": [{"a": 1}, {"u": 2}]},
            doc! {},
            doc! {},
            "SUBPLAN > FETCH > OR > [IXSCAN a_1, IXSCAN u_1]",
        ),
        (
            doc! {"$or": [{"a": 1}, {"x": 2}]},
            doc! {},
            doc! {},
            "SUBPLAN > COLLSCAN",
        ),
        (
            doc! {"a": {"$gt": 3}},
            doc! {},
            doc! {"a": 1},
            "PROJECTION_COVERED > IXSCAN a_1",
        ),
        (
            doc! {"a": {"$gt": 3}},
            doc! {},
            doc! {"x": 1},
            "PROJECTION_SIMPLE > FETCH > IXSCAN a_1",
        ),
        (
            doc! {"a": {"$gt": 3}},
            doc! {},
            doc! {"x.y": 1},
            "PROJECTION_DEFAULT > FETCH > IXSCAN a_1",
        ),
        (
            doc! {"_id": 3, "b": 1},
            doc! {},
            doc! {},
            "FETCH > IXSCAN _id_",
        ),
        (
            doc! {"$expr": {"$and": [{"$eq": ["$u", 7]}, {"$gt": ["$a", 1]}]}},
            doc! {},
            doc! {},
            "FETCH > IXSCAN u_1",
        ),
        (
            doc! {"$expr": {"$eq": [[1], "$u"]}},
            doc! {},
            doc! {},
            "COLLSCAN",
        ),
        (
            doc! {"t": 1},
            doc! {},
            doc! {"t": 1},
            "PROJECTION_SIMPLE > FETCH > IXSCAN t_1",
        ),
    ] {
        let request = FindRequest {
            filter: Some(&filter),
            sort: Some(&sort),
            projection: Some(&projection),
            ..FindRequest::default()
        };
        let plan = planned(&f, &request);
        let winning = winning_plan(&plan);
        assert_eq!(outline(winning), expected, "{filter:?} {sort:?}");
        assert!(!plan.contains_key("executionStats"));
    }
    let request = FindRequest {
        filter: Some(&none),
        skip: 3,
        limit: Some(4),
        ..FindRequest::default()
    };
    let plan = f
        .store
        .explain_find(
            &ns("db.c"),
            &request,
            Verbosity::QueryPlanner,
            &OpContext::new(),
        )
        .unwrap();
    let winning = winning_plan(&plan);
    assert_eq!(outline(winning), "LIMIT > SKIP > COLLSCAN");
}

#[test]
fn filters_are_shown_where_they_are_applied() {
    let f = fixture();
    for (filter, hint, stage, expected) in [
        (
            doc! {"x": 1},
            None,
            "COLLSCAN",
            Some(doc! {"x": {"$eq": 1}}),
        ),
        (doc! {"a": 1}, None, "FETCH", None),
        (
            doc! {"a": 1, "x": {"$ne": 2}},
            Some("a_1"),
            "FETCH",
            Some(doc! {"x": {"$not": {"$eq": 2}}}),
        ),
        (
            doc! {"_id": 1, "x": 2},
            None,
            "FETCH",
            Some(doc! {"x": {"$eq": 2}}),
        ),
    ] {
        let request = FindRequest {
            filter: Some(&filter),
            hint: hint.map(Value::String),
            ..FindRequest::default()
        };
        let plan = planned(&f, &request);
        let planner = plan.get_doc("queryPlanner").unwrap();
        let winning = planner.get_doc("winningPlan").unwrap();
        assert_eq!(winning.get_str("stage"), Some(stage), "{filter:?}");
        assert_eq!(winning.get_doc("filter"), expected.as_deref(), "{filter:?}");
        let parsed = frond_query::matcher::canonical(&filter);
        assert_eq!(planner.get_doc("parsedQuery"), Some(&*parsed));
        assert_eq!(planner.get_str("queryHash").map(str::len), Some(8));
    }
}

#[test]
fn bounds_are_shown_as_text() {
    let f = fixture();
    for (filter, hint, expected) in [
        (doc! {"a": 5}, "a_1", doc! {"a": ["[5, 5]"]}),
        (doc! {"a": {"$gt": 5}}, "a_1", doc! {"a": ["(5, inf.0]"]}),
        (
            doc! {"a": {"$gte": 5, "$lt": 9.5}},
            "a_1",
            doc! {"a": ["[5, 9.5)"]},
        ),
        (
            doc! {"a": {"$in": [7, 3]}},
            "a_1",
            doc! {"a": ["[3, 3]", "[7, 7]"]},
        ),
        (
            doc! {"a": {"$ne": 3}},
            "a_1",
            doc! {"a": ["[MinKey, 3)", "(3, MaxKey]"]},
        ),
        (doc! {"a": "x"}, "a_1", doc! {"a": ["[\"x\", \"x\"]"]}),
        (doc! {"a": {"$gt": "x"}}, "a_1", doc! {"a": ["(\"x\", {})"]}),
        (
            doc! {"a": {"$regex": "^ab"}},
            "a_1",
            doc! {"a": ["[\"ab\", \"ac\")", "[/^ab/, /^ab/]"]},
        ),
        (doc! {"x": 1}, "a_1", doc! {"a": ["[MinKey, MaxKey]"]}),
        (
            doc! {"a": {"$lte": 2}, "b": {"$gt": 1}},
            "a_1_b_-1",
            doc! {"a": ["[-inf.0, 2]"], "b": ["[inf.0, 1)"]},
        ),
        // Two conditions on an array may be met by two elements.
        (
            doc! {"t": {"$gt": 1, "$lt": 3}},
            "t_1",
            doc! {"t": ["[-inf.0, 3)"]},
        ),
        (
            doc! {"t": {"$elemMatch": {"$gt": 1, "$lt": 3}}},
            "t_1",
            doc! {"t": ["(1, 3)"]},
        ),
    ] {
        let request = FindRequest {
            filter: Some(&filter),
            hint: Some(Value::String(hint)),
            ..FindRequest::default()
        };
        let plan = planned(&f, &request);
        let winning = winning_plan(&plan);
        let bounds = innermost(winning).get_doc("indexBounds").unwrap();
        assert_eq!(bounds, &expected, "{filter:?}");
    }
    let request = FindRequest {
        hint: Some(Value::String("none")),
        ..FindRequest::default()
    };
    let error = f
        .store
        .find(&ns("db.c"), &request, &OpContext::new())
        .err()
        .unwrap();
    assert_eq!(error.code().code(), 2);
    assert!(
        error
            .message()
            .contains("hint provided does not correspond to an existing index")
    );
}

#[test]
fn execution_stats_count_keys_and_documents() {
    let f = fixture();
    for (filter, sort, returned, keys, docs) in [
        (doc! {"a": 3}, doc! {}, 10, 10, 10),
        (doc! {"_id": 3}, doc! {}, 1, 1, 1),
        (doc! {"x": 3}, doc! {}, 0, 0, 200),
        (doc! {"a": 3, "b": 3}, doc! {}, 2, 2, 2),
        (doc! {"u": {"$in": [1, 3, 500]}}, doc! {"a": 1}, 2, 4, 2),
    ] {
        let request = FindRequest {
            filter: Some(&filter),
            sort: Some(&sort),
            ..FindRequest::default()
        };
        let reply = f
            .store
            .explain_find(
                &ns("db.c"),
                &request,
                Verbosity::ExecutionStats,
                &OpContext::new(),
            )
            .unwrap();
        let stats = reply.get_doc("executionStats").unwrap();
        let op_stats = (
            stats.get_i64("nReturned").unwrap(),
            stats.get_i64("totalKeysExamined").unwrap(),
            stats.get_i64("totalDocsExamined").unwrap(),
        );
        assert_eq!(op_stats, (returned, keys, docs), "{filter:?}");
        let stages = stats.get_doc("executionStages").unwrap();
        assert_eq!(stages.get_i64("nReturned"), Some(returned), "{filter:?}");
    }
}

#[test]
fn of_several_indexes_the_one_with_the_least_work_wins() {
    let f = Fixture::new();
    let c = ns("db.c");
    for key in [doc! {"status": 1}, doc! {"user": 1}, doc! {"at": 1}] {
        f.store.create_indexes(&c, &[&doc! {"key": &key}]).unwrap();
    }
    let docs: Vec<DocBuf> = (0..3000)
        .map(|i| doc! {"_id": i, "status": "active", "user": i % 600, "at": i})
        .collect();
    f.insert(&c, &docs);
    let winner = |filter: DocBuf, sort: DocBuf| {
        let request = FindRequest {
            filter: Some(&filter),
            sort: Some(&sort),
            ..FindRequest::default()
        };
        let reply = f
            .store
            .explain_find(&c, &request, Verbosity::ExecutionStats, &OpContext::new())
            .unwrap();
        let planner = reply.get_doc("queryPlanner").unwrap();
        let examined = reply.get_doc("executionStats").unwrap();
        (
            outline(planner.get_doc("winningPlan").unwrap()),
            planner.get_array("rejectedPlans").unwrap().count(),
            examined.get_i64("totalKeysExamined").unwrap(),
        )
    };
    for user in [7, 8, 9] {
        let filter = doc! {"status": "active", "user": user};
        let expected = ("FETCH > IXSCAN user_1".to_owned(), 1, 5);
        assert_eq!(winner(filter, doc! {}), expected);
    }
    // None of the first thousand documents in the order of time matches, so sorting the few matches is cheaper.
    let few = winner(doc! {"user": 599, "status": "active"}, doc! {"at": 1});
    assert_eq!(few.0, "SORT > FETCH > IXSCAN user_1");
    // All documents match, so a scan in the order of time finds a batch immediately.
    let many = winner(doc! {"status": "active"}, doc! {"at": -1});
    assert_eq!(many.0, "FETCH > IXSCAN at_1");
}

#[test]
fn min_and_max_bound_the_hinted_index() {
    let f = fixture();
    let c = ns("db.c");
    let run = |hint: Option<&DocBuf>, min: Option<&DocBuf>, max: Option<&DocBuf>| {
        let request = FindRequest {
            hint: hint.map(|hint| Value::Document(hint)),
            min: min.map(|doc| &**doc),
            max: max.map(|doc| &**doc),
            ..FindRequest::default()
        };
        let mut cursor = f
            .store
            .find(&c, &request, &OpContext::new())
            .map_err(|error| error.code().code())?;
        let mut ids = Vec::new();
        while let Some(doc) = cursor.next().unwrap() {
            ids.push(doc.get_i64("_id").unwrap());
        }
        Ok(ids)
    };
    let (id, u, ab) = (doc! {"_id": 1}, doc! {"u": 1}, doc! {"a": 1, "b": -1});
    let (five, eight) = (doc! {"u": 5}, doc! {"u": 8});
    assert_eq!(run(Some(&u), Some(&five), Some(&eight)), Ok(vec![5, 6, 7]));
    assert_eq!(
        run(Some(&u), Some(&doc! {"u": 198}), None),
        Ok(vec![198, 199])
    );
    assert_eq!(run(Some(&id), None, Some(&doc! {"_id": 2})), Ok(vec![0, 1]));
    let low = doc! {"a": 3, "b": 2};
    let high = doc! {"a": 3, "b": 0};
    // Descending in b: from 2 down to, but without, 0.
    let expected: Vec<i64> = [2, 1]
        .into_iter()
        .flat_map(|b| (0..200).filter(move |i| i % 20 == 3 && i % 7 == b))
        .collect();
    assert_eq!(run(Some(&ab), Some(&low), Some(&high)), Ok(expected));
    assert_eq!(run(None, Some(&five), None), Err(51173));
    assert_eq!(run(Some(&ab), Some(&five), None), Err(51174));
    assert_eq!(run(Some(&u), Some(&eight), Some(&five)), Err(51175));
}

/// With these options MongoDB plans a query by `_id` like any other.
#[test]
fn some_options_prevent_the_idhack_plan() {
    let f = fixture();
    let filter = doc! {"_id": 7};
    let hint = doc! {"_id": 1};
    let plain = || FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    for (request, expected) in [
        (plain(), "IDHACK"),
        (
            FindRequest {
                limit: Some(1),
                ..plain()
            },
            "IDHACK",
        ),
        (
            FindRequest { skip: 1, ..plain() },
            "SKIP > FETCH > IXSCAN _id_",
        ),
        (
            FindRequest {
                hint: Some(Value::Document(&hint)),
                ..plain()
            },
            "FETCH > IXSCAN _id_",
        ),
        (
            FindRequest {
                show_record_id: true,
                ..plain()
            },
            "FETCH > IXSCAN _id_",
        ),
    ] {
        let reply = f
            .store
            .explain_find(
                &ns("db.c"),
                &request,
                Verbosity::ExecutionStats,
                &OpContext::new(),
            )
            .unwrap();
        let shown = outline(
            reply
                .get_doc("queryPlanner")
                .unwrap()
                .get_doc("winningPlan")
                .unwrap(),
        );
        assert!(shown.ends_with(expected), "{shown} {request:?}");
    }
}
