//! Options and tokens that are refused.

use frond_bson::{Timestamp, doc};

use super::*;

#[test]
fn without_an_oplog_there_are_no_streams() {
    let fixture = Fixture::new();
    assert_eq!(
        code(open(&fixture.store, On::Cluster, &doc! {}, &[])),
        40573
    );
}

#[test]
fn stages_that_may_not_follow() {
    let fixture = Fixture::with_oplog();
    let tried = |stage: DocBuf| {
        code(open(
            &fixture.store,
            On::Collection("d.c"),
            &doc! {},
            &[stage],
        ))
    };
    assert_eq!(tried(doc! {"$group": {"_id": 1}}), 20);
    assert_eq!(tried(doc! {"$limit": 1}), 20);
    assert_eq!(tried(doc! {"$out": "x"}), 20);
    assert_eq!(tried(doc! {"$nothing": 1}), 40324);
    assert_eq!(tried(doc! {"$changeStream": {}}), 40602);
    assert_eq!(tried(doc! {"$indexStats": {}}), 40602);
    assert_eq!(
        tried(doc! {"$changeStreamSplitLargeEvent": {"a": 1}}),
        7_182_800
    );
    assert_eq!(tried(doc! {"$changeStreamSplitLargeEvent": {}}), 0);
    let stages = [
        doc! {"$changeStreamSplitLargeEvent": {}},
        doc! {"$match": {}},
    ];
    assert_eq!(
        code(open(
            &fixture.store,
            On::Collection("d.c"),
            &doc! {},
            &stages
        )),
        7_182_802
    );
}

#[test]
fn places_without_events() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let view = doc! {"viewOn": "c", "pipeline": []};
    store.create_collection(&ns("d.v"), &view).unwrap();
    let series = doc! {"timeseries": {"timeField": "t"}};
    store.create_collection(&ns("d.s"), &series).unwrap();
    let on = |name| code(open(store, On::Collection(name), &doc! {}, &[]));
    assert_eq!(on("d.v"), 166);
    assert_eq!(on("d.s"), 166);
    assert_eq!(on("d.system.views"), 73);
    assert_eq!(on("d.new"), 0);
    assert_eq!(on("local.oplog.rs"), 73);
    for db in ["admin", "config", "local"] {
        assert_eq!(code(open(store, On::Database(db), &doc! {}, &[])), 73);
    }
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    assert_eq!(code(open(&inside, On::Cluster, &doc! {}, &[])), 263);
}

#[test]
fn a_stage_that_changes_the_token_ends_the_stream() {
    let fixture = Fixture::with_oplog();
    for stage in [doc! {"$project": {"_id": 0}}, doc! {"$set": {"_id": 1}}] {
        let mut stream = open(&fixture.store, On::Cluster, &doc! {}, &[stage]).unwrap();
        insert(&fixture, "d.c", &[doc! {"a": 1}]);
        fixture.store.flush_log().unwrap();
        let error = stream.next().unwrap_err();
        assert_eq!(error.code().code(), 280);
        assert!(error.message().contains("resume token"), "{error}");
        assert!(!stream.is_tailable());
    }
}

#[test]
fn wrong_options_and_tokens() {
    let fixture = Fixture::with_oplog();
    let tried = |spec: DocBuf| code(open(&fixture.store, On::Collection("d.c"), &spec, &[]));
    assert_eq!(tried(doc! {"nothing": 1}), 40415);
    assert_eq!(tried(doc! {"resumeAfter": {"_data": "00"}}), 260);
    let time = Timestamp {
        time: 5,
        increment: 1,
    };
    // Nothing was written before the oplog began.
    assert_eq!(tried(doc! {"startAtOperationTime": time}), 0);
}
