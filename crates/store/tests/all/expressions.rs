//! `$expr` with variables, and computed fields, in every command that has a filter or a projection.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{
    CountRequest, DeleteRequest, Durability, FindAndModifyRequest, FindRequest, OpContext,
    UpdateRequest,
};

fn larger_than_limit() -> DocBuf {
    doc! {"$expr": {"$gt": ["$a", "$$limit"]}}
}

#[test]
fn filters_and_projections_evaluate_expressions() {
    let f = Fixture::new();
    let c = ns("db.c");
    let specs: [&Doc; 1] = [&doc! {"key": {"a": 1}}];
    f.store.create_indexes(&c, &specs).unwrap();
    let docs: Vec<DocBuf> = (0..10).map(|i| doc! {"_id": i, "a": i}).collect();
    f.insert(&c, &docs);
    let (filter, limit) = (larger_than_limit(), doc! {"limit": 6});
    let context = OpContext::new();

    let found = f.find(
        &c,
        &FindRequest {
            filter: Some(&filter),
            projection: Some(&doc! {"_id": 0, "b": {"$add": ["$a", "$$limit"]}}),
            sort: Some(&doc! {"a": -1}),
            variables: Some(&limit),
            ..FindRequest::default()
        },
    );
    assert_eq!(found, [doc! {"b": 15}, doc! {"b": 14}, doc! {"b": 13}]);

    let expr = doc! {"$expr": {"$gt": ["$a", 6]}};
    let count = CountRequest {
        filter: Some(&expr),
        ..CountRequest::default()
    };
    assert_eq!(f.store.count(&c, &count, &context).unwrap(), 3);

    let change = doc! {"$set": {"seen": true}};
    let update = UpdateRequest {
        multi: true,
        variables: Some(&limit),
        ..UpdateRequest::new(&filter, Value::Document(&change))
    };
    let updated = f
        .store
        .update(&c, &update, Durability::Logged, &context)
        .unwrap();
    assert_eq!((updated.matched, updated.modified), (3, 3));

    let request = FindAndModifyRequest {
        filter: Some(&filter),
        sort: Some(&doc! {"a": 1}),
        remove: true,
        projection: Some(&doc! {"_id": 0, "twice": {"$multiply": ["$a", 2]}}),
        variables: Some(&limit),
        ..FindAndModifyRequest::default()
    };
    let removed = f
        .store
        .find_and_modify(&c, &request, Durability::Logged, &context)
        .unwrap();
    assert_eq!(removed.value.unwrap(), doc! {"twice": 14});

    let delete = DeleteRequest {
        collation: None,
        filter: &filter,
        limit_one: false,
        hint: None,
        variables: Some(&limit),
    };
    assert_eq!(
        f.store
            .delete(&c, &delete, Durability::Logged, &context)
            .unwrap(),
        2
    );
    assert_eq!(f.find_all(&c, doc! {"seen": true}).len(), 0);
}

#[test]
fn an_expression_that_fails_fails_the_query() {
    let f = Fixture::new();
    let c = ns("db.c");
    f.insert(&c, &[doc! {"_id": 1, "a": 0}]);
    let filter = doc! {"$expr": {"$divide": [1, "$a"]}};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let mut cursor = f.store.find(&c, &request, &OpContext::new()).unwrap();
    assert!(cursor.next().is_err());
}
