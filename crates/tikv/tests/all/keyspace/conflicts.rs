//! Conflicts of transactions with other servers, at the statement.

use frond_kv::{Error, Operations, Result, TreeId};
use frond_tikv::{Cluster, Transaction, WriteSet};

use super::{get, keys, new_tree, put, servers};

fn stage(transaction: &Transaction, tree: TreeId, key: &str, value: &str) -> Result<()> {
    let mut set = Operations::default();
    set.put_guarded(tree, key.as_bytes(), value.as_bytes());
    transaction.stage_leaving_room(set, 0)
}

fn is_conflict<T: std::fmt::Debug>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Conflict { held: false, .. }))
}

fn delete(engine: &Cluster, tree: TreeId, key: &str) {
    let mut set = WriteSet::new();
    set.delete(tree, key.as_bytes());
    engine.commit(set).unwrap();
}

#[test]
fn a_statement_meets_what_another_server_has_committed() {
    let Some(open) = servers() else {
        return;
    };
    let (one, other) = (open(), open());
    let tree = new_tree(&one);
    put(
        &one,
        tree,
        &[
            ("changed", "0"),
            ("deleted", "0"),
            ("kept", "0"),
            ("later", "0"),
        ],
    );
    let base = one.snapshot();
    put(&other, tree, &[("changed", "1"), ("inserted", "1")]);
    delete(&other, tree, "deleted");
    for key in ["changed", "deleted", "inserted"] {
        let transaction = one.begin(&base);
        assert!(is_conflict(stage(&transaction, tree, key, "mine")), "{key}");
        // Nothing of the statement is left, and no key is held after the end.
        assert!(transaction.is_empty());
    }
    // Of many keys one is enough.
    let transaction = one.begin(&base);
    let mut set = Operations::default();
    for n in 0..100 {
        set.put_guarded(tree, format!("new {n}").as_bytes(), b"");
    }
    set.put_guarded(tree, b"changed", b"mine");
    assert!(is_conflict(transaction.stage_leaving_room(set, 0)));
    drop(transaction);
    // A change that is committed after the statement is met at the commit.
    let transaction = one.begin(&base);
    stage(&transaction, tree, "kept", "mine").unwrap();
    stage(&transaction, tree, "later", "mine").unwrap();
    put(&other, tree, &[("later", "1")]);
    assert!(is_conflict(transaction.commit(Operations::default())));
    let transaction = one.begin(&one.snapshot());
    let began = one.stats().round_trips;
    stage(&transaction, tree, "changed", "mine").unwrap();
    let taken = one.stats().round_trips - began;
    assert!(taken <= 2, "{taken} round trips of a statement");
    stage(&transaction, tree, "absent", "mine").unwrap();
    transaction.commit(Operations::default()).unwrap();
    assert_eq!(
        get(&other.snapshot(), tree, "changed").as_deref(),
        Some("mine")
    );
}

#[test]
fn a_transaction_in_the_past_writes_what_has_not_changed_since() {
    let Some(open) = servers() else {
        return;
    };
    let (one, other) = (open(), open());
    let tree = new_tree(&one);
    put(
        &one,
        tree,
        &[("a", "0"), ("b", "0"), ("c", "0"), ("blind", "0")],
    );
    let (reader, stamp) = loop {
        let snapshot = one.snapshot();
        if let Some(stamp) = snapshot.stamp().unwrap() {
            break (snapshot, stamp);
        }
    };
    put(&other, tree, &[("a", "1")]);
    let past = || other.snapshot_at(stamp).unwrap();
    let transaction = other.begin(&past());
    assert_eq!(
        get(&transaction.snapshot(), tree, "a").as_deref(),
        Some("0")
    );
    assert!(is_conflict(stage(&transaction, tree, "a", "mine")));
    drop(transaction);
    // Any number of transactions may begin at the same time, also on the server that has its snapshot still.
    let writers = [(&one, "b"), (&other, "c"), (&other, "d")];
    let begun: Vec<Transaction> = (writers.iter())
        .map(|(engine, key)| {
            let transaction = engine.begin(&engine.snapshot_at(stamp).unwrap());
            stage(&transaction, tree, key, "mine").unwrap();
            transaction
        })
        .collect();
    let meets = other.begin(&past());
    stage(&meets, tree, "e", "mine").unwrap();
    let blind = other.begin(&past());
    let mut set = Operations::default();
    set.put(tree, b"blind", b"mine");
    set.put_guarded(tree, b"f", b"mine");
    blind.stage_leaving_room(set, 0).unwrap();
    for transaction in begun {
        transaction.commit(Operations::default()).unwrap();
    }
    put(&one, tree, &[("e", "1"), ("blind", "1")]);
    assert!(is_conflict(meets.commit(Operations::default())));
    assert!(is_conflict(blind.commit(Operations::default())));
    let now = one.snapshot();
    assert_eq!(keys(&now, tree), ["a", "b", "blind", "c", "d", "e"]);
    for (key, value) in [
        ("a", "1"),
        ("b", "mine"),
        ("c", "mine"),
        ("d", "mine"),
        ("e", "1"),
    ] {
        assert_eq!(get(&now, tree, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(get(&reader, tree, "b").as_deref(), Some("0"));
    let transaction = other.begin(&past());
    assert!(is_conflict(stage(&transaction, tree, "b", "again")));
}
