//! Views and validators over restarts.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{DocBuf, Value, array, doc};
use frond_error::ErrorCode;
use frond_store::{
    AggregateRequest, CollectionKind, Durability, FindRequest, Namespace, OpContext,
};

#[test]
fn views_survive_a_restart_and_are_dropped_with_their_database() {
    let fixture = Fixture::new();
    let (c, v, w) = (ns("db.c"), ns("db.v"), ns("db.w"));
    fixture.insert(&c, &[doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 2}]);
    let store = &fixture.store;
    let pipeline = doc! {"viewOn": "c", "pipeline": [{"$match": {"a": {"$gt": 1}}}]};
    store.create_collection(&v, &pipeline).unwrap();
    store
        .create_collection(&w, &doc! {"viewOn": "v", "pipeline": [{"$unset": "a"}]})
        .unwrap();
    let before = store.resolve_view(&w).unwrap().unwrap();
    assert_eq!((before.collection, before.pipeline.count()), (c.clone(), 2));

    let fixture = fixture.reopen();
    let store = &fixture.store;
    let sorted = doc! {"_id": 1};
    let request = FindRequest {
        sort: Some(&sorted),
        ..FindRequest::default()
    };
    assert_eq!(fixture.find(&w, &request), [doc! {"_id": 2}]);
    let listed = store.list_collections("db").unwrap();
    let kinds: Vec<_> = listed
        .iter()
        .map(|one| (one.name.as_str(), one.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("c", CollectionKind::Collection),
            ("system.views", CollectionKind::Collection),
            ("v", CollectionKind::View),
            ("w", CollectionKind::View),
        ]
    );
    let code = |outcome: Result<_, frond_store::Error>| outcome.err().map(|error| error.code());
    let view = Some(ErrorCode::CommandNotSupportedOnView);
    assert_eq!(code(store.list_indexes(&v).map(drop)), view);
    assert_eq!(code(store.verify(&v).map(drop)), view);
    assert_eq!(code(store.rename_collection(&v, &ns("db.x"), false)), view);
    let refused = fixture.insert(&ns("db.system.views"), &[doc! {"_id": "db.x"}]);
    assert_eq!(refused.errors[0].error.code(), ErrorCode::InvalidNamespace);
    assert!(
        store
            .verify(&ns("db.system.views"))
            .unwrap()
            .errors
            .is_empty()
    );

    store.drop_collection(&v).unwrap();
    assert!(store.resolve_view(&v).unwrap().is_none());
    // The view over it is empty now.
    assert!(fixture.find(&w, &request).is_empty());
    store.drop_database("db").unwrap();
    assert!(store.resolve_view(&w).unwrap().is_none());
    let fixture = fixture.reopen();
    assert!(fixture.store.list_collections("db").unwrap().is_empty());
    fixture.insert(&w, &[doc! {"_id": 1}]);
    assert_eq!(fixture.store.estimated_count(&w), 1);
}

#[test]
fn validators_survive_a_restart() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let options = doc! {"validator": {"a": {"$type": "int"}}};
    fixture.store.create_collection(&c, &options).unwrap();
    let fixture = fixture.reopen();
    let outcome = fixture.insert(&c, &[doc! {"_id": 1, "a": "x"}]);
    let error = &outcome.errors[0].error;
    assert_eq!(error.code(), ErrorCode::DocumentValidationFailure);
    let info = error.details().unwrap().get_doc("errInfo").unwrap();
    assert_eq!(info.get_i32("failingDocumentId"), Some(1));
    let off = doc! {"validationLevel": "off"};
    fixture.store.modify_collection(&c, &off).unwrap();
    let fixture = fixture.reopen();
    assert!(fixture.insert(&c, &[doc! {"_id": 1}]).errors.is_empty());
    let mut found = fixture
        .store
        .find(&c, &FindRequest::default(), &OpContext::new())
        .unwrap();
    assert_eq!(found.next().unwrap(), Some(doc! {"_id": 1}));
}

/// Also if the collation comes after the validator, the validator is changed, and the server restarts.
#[test]
fn validators_compare_strings_by_the_default_collation() {
    let fixture = Fixture::new();
    let (c, copy) = (ns("db.c"), ns("db.copy"));
    let options = doc! {
        "validator": {"s": {"$ne": "a"}}, "collation": {"locale": "en", "strength": 2},
    };
    fixture.store.create_collection(&c, &options).unwrap();
    let code = |fixture: &Fixture, c: &Namespace, s: &str| -> i32 {
        let outcome = fixture.insert(c, &[doc! {"s": s}]);
        outcome
            .errors
            .first()
            .map_or(0, |one| one.error.code().code())
    };
    assert_eq!([code(&fixture, &c, "A"), code(&fixture, &c, "b")], [121, 0]);
    let fixture = fixture.reopen();
    assert_eq!([code(&fixture, &c, "A"), code(&fixture, &c, "b")], [121, 0]);

    let changed = doc! {"validator": {"s": {"$in": ["active"]}}};
    fixture.store.modify_collection(&c, &changed).unwrap();
    let allowed = |fixture: &Fixture, c: &Namespace| ["ACTIVE", "b"].map(|s| code(fixture, c, s));
    assert_eq!(allowed(&fixture, &c), [0, 121]);
    let fixture = fixture.reopen();
    assert_eq!(allowed(&fixture, &c), [0, 121]);

    // $out keeps the options of its target, and the rules with them.
    fixture.store.create_collection(&copy, &options).unwrap();
    let request = AggregateRequest {
        pipeline: &array![{"$documents": [{"s": "b"}]}, {"$out": "copy"}],
        hint: None,
        variables: None,
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: None,
        collation: None,
    };
    let context = OpContext::new();
    let cursor = fixture.store.aggregate("db", None, &request, &context);
    let mut cursor = cursor.unwrap();
    assert!(cursor.next().unwrap().is_none());
    assert_eq!(code(&fixture, &copy, "A"), 121);
}

/// The stages of a view compare strings as the pipeline around them, so both have to have one collation.
#[test]
fn pipelines_read_views_of_their_collation_only() {
    let fixture = Fixture::new();
    let no_case = doc! {"locale": "en", "strength": 2};
    fixture.insert(
        &ns("db.c"),
        &[doc! {"_id": 1, "s": "a"}, doc! {"_id": 2, "s": "A"}],
    );
    let view = doc! {
        "viewOn": "c", "pipeline": [{"$match": {"s": "a"}}], "collation": &no_case,
    };
    fixture.store.create_collection(&ns("db.v"), &view).unwrap();
    let stages = [
        doc! {"$lookup": {"from": "v", "pipeline": [], "as": "found"}},
        doc! {"$unionWith": "v"},
        doc! {"$graphLookup": {
            "from": "v", "startWith": "$_id", "connectFromField": "_id", "connectToField": "_id",
            "as": "found",
        }},
        doc! {"$facet": {"x": [{"$unionWith": {"coll": "v"}}]}},
    ];
    let run = |stage: &DocBuf, collation: Option<&DocBuf>| {
        let pipeline = array![{"$match": {"_id": 1}}, stage];
        let request = AggregateRequest {
            pipeline: &pipeline,
            hint: None,
            variables: None,
            durability: Durability::Logged,
            bypass_validation: false,
            allow_disk_use: None,
            collation: collation.map(|spec| frond_query::collation::parse(spec).unwrap()),
        };
        let context = OpContext::new();
        let mut cursor = fixture
            .store
            .aggregate("db", Some(&ns("db.c")), &request, &context)?;
        let mut found = Vec::new();
        while let Some(doc) = cursor.next()? {
            found.push(doc);
        }
        Ok::<_, frond_store::Error>(found)
    };
    for stage in &stages {
        let error = run(stage, None).unwrap_err();
        assert_eq!(
            error.code(),
            ErrorCode::OptionNotSupportedOnView,
            "{stage:?}"
        );
        assert!(run(stage, Some(&no_case)).is_ok(), "{stage:?}");
    }
    let joined = run(&stages[0], Some(&no_case)).unwrap();
    assert_eq!(joined[0].get_array("found").unwrap().count(), 2);
    assert_eq!(run(&stages[1], Some(&no_case)).unwrap().len(), 3);
    // A view takes part in that, too, whichever of the two is made first.
    for stage in &stages {
        let other = doc! {"viewOn": "c", "pipeline": [stage]};
        let error = fixture.store.create_collection(&ns("db.w"), &other);
        let error = error.unwrap_err();
        assert_eq!(
            error.code(),
            ErrorCode::OptionNotSupportedOnView,
            "{stage:?}"
        );
    }
    let early = doc! {"viewOn": "c", "pipeline": [{"$unionWith": "later"}]};
    fixture
        .store
        .create_collection(&ns("db.w"), &early)
        .unwrap();
    let later = fixture.store.create_collection(&ns("db.later"), &view);
    let error = later.unwrap_err();
    assert_eq!(error.code(), ErrorCode::OptionNotSupportedOnView);
}

/// Expired documents are those that the index has: its filter compares by its collation, not by that of the collection.
#[test]
fn partial_ttl_indexes_expire_what_their_filter_matches() {
    let fixture = Fixture::new();
    let c = ns("db.c");
    let index = doc! {
        "key": {"t": 1}, "name": "t", "expireAfterSeconds": 1,
        "partialFilterExpression": {"s": "a"}, "collation": {"locale": "en", "strength": 2},
    };
    fixture.store.create_indexes(&c, &[&index]).unwrap();
    let time = Value::DateTime(0);
    fixture.insert(
        &c,
        &[
            doc! {"_id": 1, "s": "a", "t": time},
            doc! {"_id": 2, "s": "A", "t": time},
            doc! {"_id": 3, "s": "b", "t": time},
        ],
    );
    let pass = fixture.store.delete_expired(100_000, &OpContext::new());
    assert_eq!((pass.deleted, pass.failed.len()), (2, 0));
}

#[test]
fn views_have_no_names_of_system_collections() {
    let fixture = Fixture::new();
    let options = doc! {"viewOn": "c", "pipeline": []};
    for name in ["admin.system.users", "db.system.js", "db.system.x"] {
        let created = fixture.store.create_collection(&ns(name), &options);
        let error = created.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidNamespace, "{name}");
    }
}

/// Fields that are given twice are refused: one of them would be checked, and the other used.
#[test]
fn options_of_views_are_given_once() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let mut twice = doc! {"viewOn": "c", "pipeline": []};
    twice.push("viewOn", "d");
    let refused = Some(ErrorCode::IDLDuplicateField);
    let code = |outcome: Result<_, frond_store::Error>| outcome.err().map(|error| error.code());
    let created = store.create_collection(&ns("db.v"), &twice).map(drop);
    assert_eq!(code(created), refused);
    let once = doc! {"viewOn": "c", "pipeline": []};
    store.create_collection(&ns("db.v"), &once).unwrap();
    assert_eq!(
        code(store.modify_collection(&ns("db.v"), &twice).map(drop)),
        refused
    );
}

#[test]
fn a_view_does_not_read_itself_by_the_name_of_its_database() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let joining = |on: &str, stage: &DocBuf| doc! {"viewOn": on, "pipeline": [stage]};
    let from = |db: &str, coll: &str| {
        doc! {"$lookup": {"from": {"db": db, "coll": coll}, "pipeline": [], "as": "a"}}
    };
    let code = |name: &str, options: &DocBuf| {
        let created = store.create_collection(&ns(name), options);
        created.err().map(|error| error.code())
    };
    let cycle = Some(ErrorCode::GraphContainsCycle);
    assert_eq!(code("db.v", &joining("x", &from("db", "v"))), cycle);
    // Over another database, from inside of a pipeline of it.
    assert_eq!(code("other.w", &joining("x", &from("db", "v"))), None);
    let inner = doc! {"$lookup": {"from": "w", "pipeline": [], "as": "a"}};
    let nested = doc! {"$lookup": {
        "from": {"db": "other", "coll": "x"}, "pipeline": [&inner], "as": "a",
    }};
    assert_eq!(code("db.v", &joining("x", &nested)), cycle);
    let mut twice = doc! {"from": "x", "pipeline": [], "as": "a"};
    twice.push("from", "v");
    let twice = doc! {"$lookup": &twice};
    assert_eq!(
        code("db.v", &joining("x", &twice)),
        Some(ErrorCode::FailedToParse)
    );
}

/// The pipelines of views count, too, when pipelines are nested.
#[test]
fn the_depth_of_nested_pipelines_is_limited_through_views() {
    let fixture = Fixture::new();
    fixture.insert(&ns("db.c"), &[doc! {"_id": 1}]);
    for at in 0..12 {
        let below = match at {
            0 => "c".to_owned(),
            _ => format!("v{}", at - 1),
        };
        let inner = doc! {"$lookup": {"from": &below, "pipeline": [], "as": "a"}};
        let stage = doc! {"$lookup": {"from": "c", "pipeline": [&inner], "as": "a"}};
        let options = doc! {"viewOn": "c", "pipeline": [&stage]};
        let name = ns(&format!("db.v{at}"));
        fixture.store.create_collection(&name, &options).unwrap();
    }
    let request = FindRequest::default();
    assert_eq!(fixture.find(&ns("db.v9"), &request).len(), 1);
    let opened = fixture
        .store
        .find(&ns("db.v11"), &request, &OpContext::new());
    let read = opened.and_then(|mut cursor| cursor.next());
    assert_eq!(
        read.unwrap_err().code(),
        ErrorCode::MaxSubPipelineDepthExceeded
    );
}
