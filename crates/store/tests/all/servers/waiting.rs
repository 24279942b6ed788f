//! Cursors that wait for what another server writes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use frond_bson::{ArrayBuf, Doc, doc};
use frond_store::{
    AggregateRequest, DocumentStore, Durability, FindRequest, Namespace, OpContext, OplogSettings,
    QueryCursor,
};

use crate::common::waiting::PATIENCE;
use crate::servers::{Servers, insert, ns};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The next document of a cursor, which waits for it as a `getMore` does. Returns its `_id`, or that of the document in an
/// event or an entry.
fn await_next(cursor: &mut QueryCursor) -> Option<i32> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(doc) = cursor.next().unwrap() {
            let inner = doc.get_doc("documentKey").or_else(|| doc.get_doc("o"));
            match inner.unwrap_or(&doc).get_i32("_id") {
                Some(id) => return Some(id),
                None => continue,
            }
        }
        let Some((signal, seen)) = cursor.tail_signal() else {
            continue;
        };
        let mut newer = signal.newer(seen);
        while Pin::new(&mut newer).poll(&mut Context::from_waker(&waker)) == Poll::Pending {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }
}

fn tail(store: &DocumentStore, c: &Namespace, filter: &Doc) -> QueryCursor {
    let request = FindRequest {
        filter: Some(filter),
        tailable: true,
        ..FindRequest::default()
    };
    store.find(c, &request, &OpContext::new()).unwrap()
}

fn watch(store: &DocumentStore, c: &Namespace) -> QueryCursor {
    let mut pipeline = ArrayBuf::new();
    pipeline.push(&doc! {"$changeStream": {}});
    let request = AggregateRequest {
        pipeline: &pipeline,
        hint: None,
        variables: None,
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: None,
        collation: None,
    };
    store
        .watch(c.db(), Some(c), &request, &OpContext::new())
        .unwrap()
}

#[test]
fn a_tailable_cursor_hears_of_inserts_of_other_servers() {
    let servers = Servers::new(2);
    let (c, d) = (ns("db.c"), ns("db.d"));
    for name in [&c, &d] {
        let options = doc! {"capped": true, "size": 1 << 20};
        servers.one().create_collection(name, &options).unwrap();
        insert(servers.one(), name, &[doc! {"_id": 0}]);
    }
    let mut here = tail(servers.one(), &c, Doc::empty());
    let mut there = tail(servers.two(), &c, Doc::empty());
    let mut other = tail(servers.two(), &d, Doc::empty());
    for cursor in [&mut here, &mut there, &mut other] {
        assert_eq!(await_next(cursor), Some(0));
        assert!(cursor.next().unwrap().is_none());
    }
    for id in 1..6 {
        let writer = &servers.stores[id as usize % 2];
        thread::scope(|scope| {
            let (c, writer) = (&c, writer);
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(100));
                insert(writer, c, &[doc! {"_id": id}]);
            });
            assert_eq!(await_next(&mut here), Some(id));
            assert_eq!(await_next(&mut there), Some(id));
        });
    }
    assert!(other.next().unwrap().is_none());
    // It is found without a wait, too.
    insert(servers.one(), &d, &[doc! {"_id": 1}]);
    assert_eq!(
        other.next().unwrap().and_then(|doc| doc.get_i32("_id")),
        Some(1)
    );
    servers.one().drop_collection(&c).unwrap();
    let gone = loop {
        match there.next() {
            // The scan that was under way ends.
            Ok(next) => assert_eq!(next, None),
            Err(error) => break error,
        }
    };
    assert_eq!(gone.code().code(), 175);
}

/// A stream took its collection for quiet up to the last look, because its own server had not written there.
#[test]
fn streams_and_tails_of_the_oplog_hear_of_writes_of_other_servers() {
    let servers = Servers::new(2);
    // Two stores over one embedded engine have no oplog.
    if !servers.are_in_a_cluster() {
        return;
    }
    let settings = OplogSettings {
        bytes_max: OplogSettings::BYTES_MIN,
        min_retention_hours: 0.0,
    };
    servers.one().turn_on_oplog(settings).unwrap();
    let (c, d) = (ns("db.c"), ns("db.d"));
    for name in [&c, &d] {
        insert(servers.one(), name, &[doc! {"_id": 0}]);
    }
    let mut streams = [watch(servers.one(), &c), watch(servers.two(), &c)];
    let filter = doc! {"ns": "db.c", "op": "i"};
    let oplog = ns("local.oplog.rs");
    let mut tails = [
        tail(servers.one(), &oplog, &filter),
        tail(servers.two(), &oplog, &filter),
    ];
    for tail in &mut tails {
        assert_eq!(await_next(tail), Some(0));
    }
    for id in 1..9 {
        let writer = &servers.stores[id as usize % 2];
        thread::scope(|scope| {
            let (c, d) = (&c, &d);
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(150));
                insert(writer, d, &[doc! {"_id": id}]);
                thread::sleep(Duration::from_millis(50 * id as u64));
                insert(writer, c, &[doc! {"_id": id}]);
            });
            for cursor in streams.iter_mut().chain(&mut tails) {
                assert_eq!(await_next(cursor), Some(id));
            }
        });
    }
}
