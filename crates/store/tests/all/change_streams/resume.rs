//! Resuming: from every kind of token, after drops, renames, trims and restarts.

use frond_bson::{Timestamp, Value, doc};

use super::*;

/// A stream that goes on after a token.
fn resumed(store: &DocumentStore, on: On<'_>, token: &Doc) -> Result<QueryCursor, Error> {
    open(store, on, &with("resumeAfter", token), &[])
}

fn batch_token(stream: &QueryCursor) -> DocBuf {
    stream.resume_token().unwrap()
}

#[test]
fn from_each_event() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let on = On::Collection("d.c");
    let mut stream = watch(store, on, &doc! {});
    for id in 0..3 {
        insert(&fixture, "d.c", &[doc! {"_id": id}]);
        insert(&fixture, "d.other", &[doc! {"_id": id}]);
    }
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    for id in 10..14 {
        inside
            .insert(&ns("d.other"), &[&doc! {"_id": id}], common::INSERT)
            .unwrap();
        inside
            .insert(&ns("d.c"), &[&doc! {"_id": id}], common::INSERT)
            .unwrap();
    }
    transaction.commit(LOGGED).unwrap();
    update(&fixture, "d.c", &doc! {"_id": 1}, &doc! {"$set": {"a": 1}});
    delete(&fixture, "d.c", &doc! {"_id": 2});
    let events = all(store, &mut stream);
    assert_eq!(events.len(), 9);
    for at in 0..events.len() {
        for option in ["resumeAfter", "startAfter"] {
            let mut again = watch(store, on, &with(option, &token_of(&events[at])));
            assert_eq!(all(store, &mut again), events[at + 1..], "{option} {at}");
            assert_eq!(batch_token(&again), batch_token(&stream));
        }
    }
    let fixture = fixture.reopen();
    for at in 0..events.len() {
        let mut again = resumed(&fixture.store, on, &token_of(&events[at])).unwrap();
        assert_eq!(all(&fixture.store, &mut again), events[at + 1..]);
    }
}

#[test]
fn from_times_and_high_water_marks() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let on = On::Collection("d.c");
    let mut stream = watch(store, on, &doc! {});
    let begin = batch_token(&stream);
    insert(&fixture, "d.c", &[doc! {"_id": 1}]);
    assert_eq!(types(&all(store, &mut stream)), ["insert 1"]);
    let first = batch_token(&stream);
    assert!(begin.get_str("_data") < first.get_str("_data"));
    // The mark advances while nothing matches.
    insert(&fixture, "d.other", &[doc! {"_id": 1}]);
    assert_eq!(all(store, &mut stream).len(), 0);
    let later = batch_token(&stream);
    assert!(first.get_str("_data") < later.get_str("_data"));
    insert(&fixture, "d.c", &[doc! {"_id": 2}]);
    let events = all(store, &mut stream);
    for (token, expected) in [
        (&begin, 2),
        (&first, 1),
        (&later, 1),
        (&batch_token(&stream), 0),
    ] {
        for option in ["resumeAfter", "startAfter"] {
            let mut again = watch(store, on, &with(option, token));
            assert_eq!(all(store, &mut again).len(), expected, "{option} {token:?}");
        }
    }
    let Some(Value::Timestamp(time)) = events[0].get("clusterTime") else {
        panic!("{events:?}");
    };
    let mut at = watch(store, on, &doc! {"startAtOperationTime": time});
    assert_eq!(types(&all(store, &mut at)), ["insert 2"]);
    let next = Timestamp::from_u64(time.to_u64() + 1);
    let mut at = watch(store, on, &doc! {"startAtOperationTime": next});
    assert_eq!(all(store, &mut at).len(), 0);
    let before = Timestamp {
        time: 1,
        increment: 1,
    };
    let mut at = watch(store, on, &doc! {"startAtOperationTime": before});
    assert_eq!(types(&all(store, &mut at)), ["insert 1", "insert 2"]);
    // In a future: nothing until then.
    let future = Timestamp {
        time: time.time + 10_000,
        increment: 1,
    };
    let mut at = watch(store, on, &doc! {"startAtOperationTime": future});
    insert(&fixture, "d.c", &[doc! {"_id": 3}]);
    assert_eq!(all(store, &mut at).len(), 0);
}

#[test]
fn a_token_that_is_not_in_the_oplog() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let mut stream = watch(store, On::Database("d"), &doc! {});
    insert(&fixture, "d.c", &[doc! {"_id": 1}]);
    let events = all(store, &mut stream);
    let token = token_of(&events[0]);
    // The event is not in this stream.
    let mut other = resumed(store, On::Collection("d.other"), &token).unwrap();
    insert(&fixture, "d.c", &[doc! {"_id": 2}]);
    store.flush_log().unwrap();
    let error = other.next().unwrap_err();
    assert_eq!(error.code().code(), 280);
    assert!(
        error
            .message()
            .starts_with("cannot resume stream; the resume token was not found.")
    );
    // The same time, another document.
    let data = token.get_str("_data").unwrap();
    let changed = data.replace("5F6964002B02", "5F6964002B04");
    assert_ne!(changed, data);
    let changed = doc! {"_data": changed.as_str()};
    let mut other = resumed(store, On::Database("d"), &changed).unwrap();
    assert_eq!(code(other.next()), 280);
}

#[test]
fn invalidation_of_collections() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let on = On::Collection("d.c");
    for end in ["drop", "rename from", "rename to", "database"] {
        insert(&fixture, "d.c", &[doc! {"_id": end}]);
        let mut stream = watch(store, on, &doc! {});
        delete(&fixture, "d.c", &doc! {});
        match end {
            "drop" => drop(store.drop_collection(&ns("d.c")).unwrap()),
            "rename from" => store
                .rename_collection(&ns("d.c"), &ns("d.x"), true)
                .unwrap(),
            "rename to" => {
                insert(&fixture, "d.y", &[doc! {"_id": 1}]);
                store
                    .rename_collection(&ns("d.y"), &ns("d.c"), true)
                    .unwrap();
            }
            _ => drop(store.drop_database("d").unwrap()),
        }
        insert(&fixture, "d.c", &[doc! {"_id": "new"}]);
        let kind = if end.starts_with("rename") {
            "rename"
        } else {
            "drop"
        };
        let events = all(store, &mut stream);
        let kinds: Vec<_> = events
            .iter()
            .map(|event| event.get_str("operationType").unwrap())
            .collect();
        assert_eq!(kinds, ["delete", kind, "invalidate"]);
        assert!(stream.is_invalidated() && !stream.is_tailable());
        assert_eq!(stream.next().unwrap(), None);
        let last = token_of(&events[2]);
        assert_eq!(batch_token(&stream), last);
        assert!(token_of(&events[1]).get_str("_data") < last.get_str("_data"));
        // The stream goes on only where it may start over.
        assert_eq!(code(resumed(store, on, &last)), 260);
        let mut after = watch(store, on, &with("startAfter", &last));
        assert_eq!(types(&all(store, &mut after)), [r#"insert "new""#], "{end}");
        // From the command on the stream ends again.
        let mut again = resumed(store, on, &token_of(&events[1])).unwrap();
        assert_eq!(all(store, &mut again), events[2..]);
        assert!(again.is_invalidated());
        // It ends although the pipeline drops the event, and that of the command.
        let stages = [doc! {"$match": {"operationType": "insert"}}];
        let spec = with("resumeAfter", &token_of(&events[0]));
        let mut quiet = open(store, on, &spec, &stages).unwrap();
        assert_eq!(all(store, &mut quiet).len(), 0);
        assert!(quiet.is_invalidated());
        assert_eq!(batch_token(&quiet), last);
        delete(&fixture, "d.c", &doc! {});
    }
}

#[test]
fn invalidation_of_databases() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    insert(&fixture, "d.c", &[doc! {"_id": 1}]);
    let mut stream = watch(store, On::Database("d"), &doc! {});
    let mut cluster = watch(store, On::Cluster, &doc! {});
    store.drop_collection(&ns("d.c")).unwrap();
    insert(&fixture, "d.c", &[doc! {"_id": 2}]);
    store.drop_database("d").unwrap();
    insert(&fixture, "d.c", &[doc! {"_id": 3}]);
    let events = all(store, &mut stream);
    assert_eq!(
        types(&events),
        ["drop", "insert 2", "drop", "dropDatabase", "invalidate"]
    );
    let last = token_of(&events[4]);
    assert_eq!(code(resumed(store, On::Database("d"), &last)), 260);
    let mut after = watch(store, On::Database("d"), &with("startAfter", &last));
    assert_eq!(types(&all(store, &mut after)), ["insert 3"]);
    assert_eq!(
        types(&all(store, &mut cluster)),
        ["drop", "insert 2", "drop", "dropDatabase", "insert 3"]
    );
    assert!(cluster.is_tailable());
}

#[test]
fn an_oplog_that_was_turned_off_is_lost() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let on = On::Collection("d.c");
    let mut off = watch(store, on, &doc! {});
    let mut again = watch(store, on, &doc! {});
    insert(&fixture, "d.c", &[doc! {"_id": 1}]);
    let token = token_of(&all(store, &mut again)[0]);
    let time = store.oplog().last();
    store.turn_off_oplog().unwrap();
    assert_eq!(code(off.next()), 20);
    insert(&fixture, "d.c", &[doc! {"_id": 2}]);
    store.turn_on_oplog(OPLOG).unwrap();
    insert(&fixture, "d.c", &[doc! {"_id": 3}]);
    assert_eq!(code(again.next()), 286);
    assert_eq!(code(resumed(store, on, &token)), 286);
    let from = doc! {"startAtOperationTime": time};
    assert_eq!(code(open(store, on, &from, &[])), 286);
    let mut stream = watch(store, on, &doc! {});
    insert(&fixture, "d.c", &[doc! {"_id": 4}]);
    assert_eq!(types(&all(store, &mut stream)), ["insert 4"]);
}

#[test]
fn what_was_trimmed_is_lost() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let on = On::Collection("d.c");
    let mut stream = watch(store, on, &doc! {});
    let begin = batch_token(&stream);
    insert(&fixture, "d.c", &[doc! {"_id": 1}]);
    let token = token_of(&all(store, &mut stream)[0]);
    let mut idle = watch(store, on, &with("resumeAfter", &token));
    let text = "x".repeat(100_000);
    // More than is kept.
    let settings = OplogSettings {
        bytes_max: 1 << 20,
        min_retention_hours: 0.0,
    };
    store.oplog().resize(settings).unwrap();
    for round in 0..40 {
        let docs: Vec<DocBuf> = (0..10)
            .map(|n| doc! {"_id": 100 + round * 10 + n, "t": text.as_str()})
            .collect();
        insert(&fixture, "d.other", &docs);
    }
    store.flush_log().unwrap();
    let now = i64::MAX / 2;
    for _ in 0..100 {
        store.oplog().trim(now).unwrap();
    }
    assert!(store.oplog().first() > Timestamp::default());
    for lost in [&begin, &token] {
        let error = resumed(store, on, lost).err().unwrap();
        assert_eq!(error.code().code(), 286);
        assert!(error.message().contains("may no longer be in the oplog"));
    }
    let error = idle.next().unwrap_err();
    assert_eq!(error.code().code(), 286);
    let before = Timestamp {
        time: 1,
        increment: 1,
    };
    assert_eq!(
        code(open(store, on, &doc! {"startAtOperationTime": before}, &[])),
        286
    );
    let kept = store.oplog().first();
    assert_eq!(
        code(open(store, on, &doc! {"startAtOperationTime": kept}, &[])),
        0
    );
}
