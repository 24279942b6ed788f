//! Servers that stop, and come back.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use frond_bson::{Doc, doc};

use crate::common::waiting::{PATIENCE, wait_until};
use crate::servers::{Servers, check, find, insert, ns};

/// A busy machine needs some time for a renewal.
const LEASE: Duration = Duration::from_secs(1);

#[test]
fn the_others_wait_for_a_server_that_stops_until_its_lease_ends() {
    let servers = Servers::with_lease(2, LEASE);
    let c = ns("db.c");
    insert(servers.one(), &c, &[doc! {"_id": 1, "a": 1}]);
    find(servers.two(), &c, Doc::empty());
    servers.two().stall(true);
    servers
        .one()
        .create_indexes(&c, &[&doc! {"key": {"a": 1}, "name": "a"}])
        .unwrap();
    assert_eq!(servers.one().servers().unwrap().len(), 1);
    insert(servers.one(), &c, &[doc! {"_id": 2, "a": 2}]);
    // It may not write with what it knows: it waits until it is registered again.
    thread::scope(|scope| {
        let late = scope.spawn(|| {
            insert(servers.two(), &c, &[doc! {"_id": 3, "a": 3}]);
            find(servers.two(), &c, &doc! {"a": 3}).len()
        });
        thread::sleep(LEASE / 4);
        assert!(!late.is_finished());
        servers.two().stall(false);
        assert_eq!(late.join().unwrap(), 1);
    });
    assert_eq!(servers.one().servers().unwrap().len(), 2);
    for store in &servers.stores {
        assert_eq!(check(store, &c), 3);
        assert_eq!(store.list_indexes(&c).unwrap().len(), 2);
    }
}

#[test]
fn a_server_without_a_lease_serves_nothing() {
    let servers = Servers::with_lease(2, LEASE);
    let c = ns("db.c");
    insert(servers.one(), &c, &[doc! {"_id": 1}]);
    find(servers.two(), &c, Doc::empty());
    servers.two().stall(true);
    let request = frond_store::FindRequest::default();
    let read = || {
        let context = frond_store::OpContext::new();
        let found = servers.two().find(&c, &request, &context);
        found.map(drop).map_err(|error| error.code().code())
    };
    wait_until("a server without a lease", || read() == Err(10107));
    servers.two().stall(false);
    wait_until("a server with a lease again", || read() == Ok(()));
    assert_eq!(find(servers.two(), &c, Doc::empty()).len(), 1);
}

#[test]
fn a_server_that_ends_is_not_waited_for() {
    let mut servers = Servers::with_lease(2, Duration::from_secs(3600));
    let c = ns("db.c");
    insert(servers.two(), &c, &[doc! {"_id": 1}]);
    let two = servers.stores.pop().unwrap();
    two.leave().unwrap();
    drop(two);
    let (store, dropped, (done, is_done)) = (servers.one().clone(), c.clone(), channel());
    thread::spawn(move || done.send(store.drop_collection(&dropped).map(drop)));
    let outcome = is_done.recv_timeout(PATIENCE);
    outcome.expect("it does not wait for the lease").unwrap();
    let again = servers.add("127.0.0.1:1", LEASE);
    assert_eq!(again.server_number(), 2);
    assert!(!again.collection_exists(&c));
}

#[test]
fn one_server_leads_until_it_stops() {
    let servers = Servers::with_lease(2, LEASE);
    assert!(servers.one().leads("ttl").unwrap());
    assert!(!servers.two().leads("ttl").unwrap());
    assert!(servers.two().leads("oplog").unwrap());
    servers.one().stall(true);
    wait_until("another leader", || servers.two().leads("ttl").unwrap());
    assert!(!servers.one().leads("ttl").unwrap());
    servers.one().stall(false);
    wait_until("two servers", || {
        servers.two().servers().unwrap().len() == 2
    });
    assert!(!servers.one().leads("ttl").unwrap());
}
