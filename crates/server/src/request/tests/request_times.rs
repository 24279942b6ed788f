//! `$$NOW` and `$$CLUSTER_TIME` do not change during a command.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};

use crate::testing::TestServer;

/// Enough statements to take several milliseconds.
const STATEMENTS: i32 = 3000;

fn list(documents: impl Iterator<Item = DocBuf>) -> ArrayBuf {
    let mut list = ArrayBuf::new();
    documents.for_each(|one| list.push(&one));
    list
}

fn number(reply: &DocBuf, field: &str) -> i64 {
    let value = reply.get(field).unwrap();
    value.as_i64_lossless().unwrap()
}

/// The different times in a field of the documents.
fn times(server: &mut TestServer, field: &str) -> BTreeSet<i64> {
    let reply = server.run(
        "test",
        doc! {"find": "c", "batchSize": STATEMENTS, "projection": {"_id": 0, field: 1}},
    );
    let documents = server.batch(&reply, "firstBatch");
    (documents.iter())
        .map(|one| match one.get(field) {
            Some(Value::DateTime(ms)) => ms,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn now_is_the_same_for_all_statements_of_a_command() {
    let mut server = TestServer::new();
    server.fill("c", STATEMENTS);
    let now = |id: i32| doc! {"q": {"_id": id}, "u": [{"$set": {"t": "$$NOW"}}]};
    server.run(
        "test",
        doc! {"update": "c", "updates": &list((0..STATEMENTS).map(now))},
    );
    let first = times(&mut server, "t");
    assert_eq!(first.len(), 1, "{first:?}");

    // Also in `let`, in the filter, and in upserts.
    let same = |id: i32| {
        doc! {
            "update": 0, "filter": {"_id": id, "$expr": {"$eq": ["$$now", "$$NOW"]}},
            "updateMods": [{"$set": {"u": "$$NOW", "let": "$$now"}}], "multi": false
        }
    };
    let reply = server.run(
        "admin",
        doc! {
            "bulkWrite": 1, "nsInfo": [{"ns": "test.c"}], "let": {"now": "$$NOW"},
            "ops": &list((0..STATEMENTS).map(same))
        },
    );
    assert_eq!(
        number(&reply, "nMatched"),
        i64::from(STATEMENTS),
        "{reply:?}"
    );
    assert_eq!(times(&mut server, "u").len(), 1);
    assert_eq!(times(&mut server, "u"), times(&mut server, "let"));
    // Deletes that hold of no document if the time has changed.
    let old = |id: i32| {
        doc! {"q": {"_id": id, "$expr": {"$ne": ["$$now", "$$NOW"]}}, "limit": 1}
    };
    let reply = server.run(
        "test",
        doc! {"delete": "c", "let": {"now": "$$NOW"}, "deletes": &list((0..STATEMENTS).map(old))},
    );
    assert_eq!(number(&reply, "n"), 0, "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn now_is_the_same_in_all_batches_and_pipelines_of_an_aggregation() {
    let mut server = TestServer::new();
    server.fill("c", 300);
    server.run(
        "test",
        doc! {"create": "v", "viewOn": "c", "pipeline": [{"$set": {"view": "$$NOW"}}]},
    );
    let inner = [
        doc! {"$match": {"$expr": {"$eq": ["$$NOW", "$$now"]}}},
        doc! {"$project": {"_id": 0, "t": "$$NOW", "view": 1}},
        doc! {"$limit": 1},
    ];
    let mut reply = server.run(
        "test",
        doc! {
            "aggregate": "c", "cursor": {"batchSize": 10}, "let": {"now": "$$NOW"},
            "pipeline": [
                {"$lookup": {"from": "v", "as": "found", "let": {"id": "$_id"},
                    "pipeline": &list(inner.into_iter())}},
                {"$project": {"_id": 0, "outer": "$$NOW", "found": 1}},
            ]
        },
    );
    let mut documents = server.batch(&reply, "firstBatch");
    loop {
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        if id == 0 {
            break;
        }
        reply = server.run(
            "test",
            doc! {"getMore": id, "collection": "c", "batchSize": 10},
        );
        documents.extend(server.batch(&reply, "nextBatch"));
    }
    assert_eq!(documents.len(), 300);
    let mut times = BTreeSet::new();
    for one in &documents {
        let found = one.get("found").unwrap();
        let found = found.as_array().and_then(|found| found.values().next());
        let found = found.unwrap().as_doc().map(Doc::to_owned).unwrap();
        times.insert(format!("{:?}", one.get("outer").unwrap()));
        times.insert(format!("{:?}", found.get("t").unwrap()));
        times.insert(format!("{:?}", found.get("view").unwrap()));
    }
    assert_eq!(times.len(), 1, "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_time_is_known_in_a_replica_set_only() {
    let mut server = TestServer::new();
    server.fill("c", 1);
    let set =
        || doc! {"update": "c", "updates": [{"q": {}, "u": [{"$set": {"t": "$$CLUSTER_TIME"}}]}]};
    let reply = server.reply("test", set());
    assert!(format!("{reply:?}").contains("51144"), "{reply:?}");

    let mut member = TestServer::member("rs");
    member.run("admin", doc! {"replSetInitiate": {}});
    member.fill("c", 50);
    let before = member.server.store.cluster_time().last();
    let statement = |id: i32| doc! {"q": {"_id": id}, "u": [{"$set": {"t": "$$CLUSTER_TIME"}}]};
    member.run(
        "test",
        doc! {"update": "c", "updates": &list((0..50).map(statement))},
    );
    let reply = member.run("test", doc! {"distinct": "c", "key": "t"});
    let values: Vec<Value<'_>> = reply
        .get("values")
        .unwrap()
        .as_array()
        .unwrap()
        .values()
        .collect();
    match values[..] {
        [Value::Timestamp(time)] => assert!(time >= before, "{time:?} {before:?}"),
        _ => panic!("{values:?}"),
    }
}
