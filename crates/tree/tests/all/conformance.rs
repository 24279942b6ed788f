//! The store passes the conformance suite of the seam.

use std::sync::Arc;

use frond_kv_testing::{Adds, Keyspace, Numbers};
use frond_tree::{Options, Store};
use parking_lot::Mutex;

fn fresh() -> Option<Keyspace<Store>> {
    let directory = tempfile::tempdir().unwrap();
    let numbers = Arc::new(Numbers::default());
    let stamps = numbers.clone();
    let open = move || {
        Store::open(Options {
            merge: Arc::new(Adds),
            stamps: Some(stamps.clone()),
            ..Options::new(directory.path())
        })
        .unwrap()
    };
    let store = Arc::new(Mutex::new(open()));
    let current = store.clone();
    Some(Keyspace {
        open: Box::new(move || current.lock().clone()),
        reopen: Some(Box::new(move || {
            let mut store = store.lock();
            store.close().unwrap();
            *store = open();
            store.clone()
        })),
        numbers: Some(numbers),
        remembers_guards: true,
        scans_the_past_backward: true,
    })
}

frond_kv_testing::conformance!(fresh);
