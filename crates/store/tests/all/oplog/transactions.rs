//! Entries of transactions.

use frond_bson::doc;
use frond_error::ErrorCode;

use super::*;
use crate::common::ns;

const OF: StatementId = StatementId {
    session: [4; 16],
    number: 11,
    statement: 0,
    clears: false,
};

#[test]
fn a_transaction_is_one_entry_of_its_operations() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let (c, d) = (ns("db.c"), ns("other.d"));
    insert(store, &c, &[doc! {"_id": 1, "a": 1}]);
    insert(store, &d, &[doc! {"_id": 1}]);
    let before = documents(store).len();
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    insert(&inside, &c, &[doc! {"_id": 2}, doc! {"_id": 3}]);
    update(&inside, &c, &doc! {"_id": 1}, &doc! {"$set": {"a": 2}});
    delete(&inside, &d, &doc! {"_id": 1});
    assert_eq!(documents(store).len(), before, "nothing before the commit");
    assert_eq!(transaction.committed_at(), None);
    let empty = store.begin();
    empty.commit(LOGGED).unwrap();
    assert!(transaction.commit_recorded(LOGGED, OF).unwrap());
    let after = documents(store);
    assert_eq!(after.len(), before + 1);
    let entry = &after[before];
    assert_eq!(entry.get_str("op"), Some("c"));
    assert_eq!(entry.get_str("ns"), Some("admin.$cmd"));
    assert_eq!(entry.get_i64("txnNumber"), Some(11));
    let lsid = entry.get_doc("lsid").unwrap();
    assert_eq!(lsid.get_binary("id"), Some(&[4; 16][..]));
    assert_eq!(transaction.committed_at(), Some(store.oplog().last()));
    let o = entry.get_doc("o").unwrap();
    let operations = o.get_array("applyOps").unwrap();
    let operations: Vec<DocBuf> = (operations.values())
        .map(|one| brief(one.as_doc().unwrap()))
        .collect();
    let expected = [
        doc! {"op": "i", "ns": "db.c", "o": {"_id": 2}, "o2": {"_id": 2}},
        doc! {"op": "i", "ns": "db.c", "o": {"_id": 3}, "o2": {"_id": 3}},
        doc! {"op": "u", "ns": "db.c", "o": {"$v": 2, "diff": {"u": {"a": 2}}}, "o2": {"_id": 1}},
        doc! {"op": "d", "ns": "other.d", "o": {"_id": 1}},
    ];
    assert_eq!(operations, expected);
    replay::check(store);
}

#[test]
fn a_transaction_that_is_aborted_or_only_reads_has_no_entry() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    insert(store, &c, &[doc! {"_id": 1}]);
    let entries = added(store, || {
        let aborted = store.begin();
        insert(&store.in_transaction(&aborted), &c, &[doc! {"_id": 2}]);
        aborted.abort();
        let reading = store.begin();
        let inside = store.in_transaction(&reading);
        inside
            .find(&c, &Default::default(), &OpContext::new())
            .unwrap();
        reading.commit(LOGGED).unwrap();
        assert_eq!(reading.committed_at(), None);
    });
    assert!(entries.is_empty());
}

#[test]
fn collections_and_indexes_that_a_transaction_creates_are_operations() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    let entries = added(store, || {
        let transaction = store.begin();
        let inside = store.in_transaction(&transaction);
        inside.create_collection(&c, &doc! {}).unwrap();
        inside
            .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
            .unwrap();
        insert(&inside, &c, &[doc! {"_id": 1}]);
        transaction.commit(LOGGED).unwrap();
    });
    assert_eq!(entries.len(), 1);
    let operations = entries[0]
        .get_doc("o")
        .unwrap()
        .get_array("applyOps")
        .unwrap();
    let first: Vec<_> = (operations.values())
        .map(|one| {
            one.as_doc()
                .unwrap()
                .get_doc("o")
                .unwrap()
                .first()
                .unwrap()
                .0
                .to_owned()
        })
        .collect();
    assert_eq!(first, ["create", "createIndexes", "_id"]);
    replay::check(store);
}

#[test]
fn a_large_transaction_is_a_chain_of_entries() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    store.create_collection(&c, &doc! {}).unwrap();
    let text = "x".repeat(1 << 20);
    let entries = {
        let before = documents(store).len();
        let transaction = store.begin();
        let inside = store.in_transaction(&transaction);
        for n in 0..20 {
            insert(&inside, &c, &[doc! {"_id": n, "t": &text}]);
        }
        assert!(transaction.bytes() > 40 << 20, "with its operations");
        transaction.commit_recorded(LOGGED, OF).unwrap();
        assert_eq!(transaction.committed_at(), Some(store.oplog().last()));
        documents(store).split_off(before)
    };
    assert_eq!(entries.len(), 2);
    let parts: Vec<&Doc> = entries
        .iter()
        .map(|entry| entry.get_doc("o").unwrap())
        .collect();
    assert_eq!(parts[0].get_bool("partialTxn"), Some(true));
    assert_eq!(parts[1].get_i64("count"), Some(20));
    let before = entries[1].get_doc("prevOpTime").unwrap().get("ts");
    assert_eq!(before, entries[0].get("ts"));
    for entry in &entries {
        assert!(entry.len_bytes() <= (16 << 20) + (16 << 10));
    }
    replay::check(store);
}

#[test]
fn a_transaction_that_began_before_the_oplog_fails() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let c = ns("db.c");
    insert(store, &c, &[doc! {"_id": 1}]);
    let open = store.begin();
    insert(&store.in_transaction(&open), &c, &[doc! {"_id": 2}]);
    store.turn_on_oplog(OPLOG).unwrap();
    let error = open.commit(LOGGED).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteConflict);
    assert_eq!(documents(store).len(), 1);
    assert_eq!(fixture.find_all(&c, doc! {}).len(), 1);
    // One that has not written anything by then goes on.
    let reading = store.begin();
    store.turn_off_oplog().unwrap();
    reading.commit(LOGGED).unwrap();
}

/// It was found out at the commit only.
#[test]
fn a_statement_fails_whose_operations_do_not_fit_in_the_commit() {
    let fixture = Fixture::with_oplog();
    let store = &fixture.store;
    let c = ns("db.c");
    store.create_collection(&c, &doc! {}).unwrap();
    let text = "x".repeat(15 << 20);
    let fill = |inside: &DocumentStore, ids: std::ops::Range<i32>| {
        ids.map(|n| inside.insert(&c, &[&doc! {"_id": n, "t": &text}], INSERT))
            .find_map(|outcome| match outcome {
                Ok(outcome) => outcome
                    .errors
                    .into_iter()
                    .next()
                    .map(|one| one.error.code()),
                Err(error) => Some(error.code()),
            })
    };
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    // Twice 120 MiB fit in a write set of 256 MiB, and twice 135 MiB do not.
    assert_eq!(fill(&inside, 0..8), None);
    let refused = fill(&inside, 8..9);
    assert_eq!(refused, Some(ErrorCode::TransactionTooLarge));
    transaction.abort();
    let transaction = store.begin();
    assert_eq!(fill(&store.in_transaction(&transaction), 0..8), None);
    transaction.commit(LOGGED).unwrap();
    assert_eq!(store.oplog().last(), transaction.committed_at().unwrap());
}
