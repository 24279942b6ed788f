//! Clients that wait, on a disk that takes no writes for a while, beside others.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, doc};
use frond_wire::{Flags, MAX_MESSAGE_BYTES, MsgBuilder, Reply, read_message};
use parking_lot::{Condvar, Mutex};

use crate::connection::Peer;
use crate::host::file_handles::HandleLimit;
use crate::net::serve::serve;
use crate::sessions::SessionId;
use crate::testing::{HookedDisk, PATIENCE, TestServer, wait_for, wait_until};
use frond_runtime::AdmissionClass;

mod long_reads;

/// The files whose writes and syncs wait.
#[derive(Default)]
struct Gate {
    closed: Mutex<Option<&'static str>>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self, name: &str) {
        let mut closed = self.closed.lock();
        while closed.is_some_and(|prefix| name.starts_with(prefix)) {
            self.opened.wait(&mut closed);
        }
    }

    fn set(&self, closed: Option<&'static str>) {
        *self.closed.lock() = closed;
        self.opened.notify_all();
    }
}

/// Opens the gate even if the test fails, so that the store can be closed.
struct Stuck(Arc<Gate>);

impl Drop for Stuck {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// A server with a gate, on a socket.
struct Served {
    test: TestServer,
    gate: Arc<Gate>,
    listener: TcpListener,
}

impl Served {
    fn new() -> Served {
        HandleLimit::raise();
        let gate = Arc::new(Gate::default());
        let disk = |directory: PathBuf| {
            let pass = || {
                let gate = gate.clone();
                move |name: &str| {
                    gate.pass(name);
                    Ok(())
                }
            };
            Some(HookedDisk::new(directory, pass(), pass()))
        };
        Served {
            test: TestServer::on(disk, |settings| settings.connections_max = 10_000),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            gate,
        }
    }

    fn connect(&self) -> RawClient {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let (stream, address) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let server = &self.test.server;
        let pool = &server.execution.executor.pool;
        pool.spawn(stream, |socket| {
            let gone = socket.gone();
            serve(server.clone(), socket, Peer::Tcp(address), gone)
        })
        .unwrap();
        RawClient(client)
    }

    /// Closes the gate for some files until the result is dropped.
    fn stick(&self, prefix: &'static str) -> Stuck {
        self.gate.set(Some(prefix));
        Stuck(self.gate.clone())
    }

    /// Writers that fill the memory until they have to wait for room. They are sent one after the other.
    fn writers(&self, most: usize) -> Vec<RawClient> {
        let command = doc! {"insert": "c", "documents": [{"x": "x".repeat(4 << 20)}]};
        let mut writers = Vec::new();
        while writers.len() < most {
            let mut writer = self.connect();
            writer.send(&command);
            writers.push(writer);
            let for_room =
                |op: &&DocBuf| op.get_str("waitingFor") == Some("a memtable to be flushed");
            if self.waiting("c").iter().filter(for_room).count() >= 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        writers
    }

    /// The operations on a collection that wait, with what they wait for.
    fn waiting(&self, collection: &str) -> Vec<DocBuf> {
        let namespace = if collection.contains('.') {
            collection.to_owned()
        } else {
            format!("admin.{collection}")
        };
        let reply = self.connect().run(&doc! {
            "currentOp": 1, "ns": namespace.as_str(), "waitingForLock": true,
        });
        let list = reply.get_array("inprog").unwrap();
        list.values()
            .map(|value| value.as_doc().unwrap().to_owned())
            .collect()
    }

    /// Waits until this number of operations on a collection wait.
    fn until_waiting(&self, collection: &str, count: usize) -> Vec<DocBuf> {
        wait_for(&format!("{count} on {collection} that wait"), || {
            let waiting = self.waiting(collection);
            (waiting.len() >= count).then_some(waiting)
        })
    }

    /// Kills what runs or waits on a collection until there is nothing more.
    fn kill_all(&self, collection: &str) {
        let namespace = format!("admin.{collection}");
        let mut client = self.connect();
        wait_until("killed operations", || {
            let reply = client.run(&doc! {"currentOp": 1, "ns": namespace.as_str()});
            let list = reply.get_array("inprog").unwrap();
            for operation in list.values() {
                let id = operation.as_doc().unwrap().get_i64("opid").unwrap();
                client.run(&doc! {"killOp": 1, "op": id});
            }
            list.is_empty()
        });
    }

    /// Sends these commands one after the other until one waits for room. Returns its operation and its number.
    fn until_one_waits(
        &self,
        client: &mut RawClient,
        collection: &str,
        command: impl Fn(i64) -> DocBuf,
    ) -> (DocBuf, i64) {
        for number in 1..100 {
            client.send(&command(number));
            loop {
                let is = |op: &DocBuf| op.get_str("waitingFor") == Some("a memtable to be flushed");
                if let Some(operation) = self.waiting(collection).into_iter().find(is) {
                    return (operation, number);
                }
                if client.is_answered() {
                    let reply = client.receive();
                    assert_eq!(reply.get_f64("ok"), Some(1.0), "{reply:?}");
                    break;
                }
            }
        }
        panic!("there is always room");
    }

    /// Other clients are served while the test keeps operations waiting: commands without tickets, and readers.
    fn others_are_served(&self) {
        let mut other = self.connect();
        for command in [
            doc! {"ping": 1},
            doc! {"find": "other", "filter": {"_id": 1}},
            doc! {"serverStatus": 1},
        ] {
            for _ in 0..20 {
                other.run(&command);
            }
        }
    }
}

/// A client of the database `admin`, in which every command may be run, unless a command names another one.
struct RawClient(TcpStream);

impl RawClient {
    fn send(&mut self, command: &Doc) {
        let mut body = command.to_owned();
        if !body.contains_key("$db") {
            body.push("$db", "admin");
        }
        let mut message = Vec::new();
        MsgBuilder::new(&mut message, 1, 0, Flags::NONE)
            .body(body.as_bytes())
            .finish();
        self.0.write_all(&message).unwrap();
    }

    /// Whether there is something to receive, or is after a moment.
    fn is_answered(&self) -> bool {
        let timeout = self.0.read_timeout().unwrap();
        let moment = Some(Duration::from_millis(20));
        self.0.set_read_timeout(moment).unwrap();
        let arrived = self.0.peek(&mut [0]);
        self.0.set_read_timeout(timeout).unwrap();
        arrived.is_ok()
    }

    fn receive(&mut self) -> DocBuf {
        let message = read_message(&mut self.0, MAX_MESSAGE_BYTES).unwrap();
        let message = message.expect("a reply");
        let (_, Reply::Msg(reply)) = Reply::parse(&message).unwrap() else {
            panic!("not an OP_MSG")
        };
        Doc::validate(reply.body).unwrap().to_owned()
    }

    fn run(&mut self, command: &Doc) -> DocBuf {
        self.send(command);
        let reply = self.receive();
        assert_eq!(reply.get_f64("ok"), Some(1.0), "{reply:?}");
        reply
    }

    /// The reply to an [`endless_scan`] that was killed.
    fn receive_end_of_scan(&mut self) {
        let reply = self.receive();
        assert_eq!(reply.get_i32("code"), Some(11601), "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_writers_that_wait_for_room_keep_no_other_waiting() {
    let served = Served::new();
    served
        .connect()
        .run(&doc! {"insert": "other", "documents": [{"_id": 1}]});
    let stuck = served.stick("data");
    let mut filling = served.writers(200);
    let insert = doc! {"insert": "c", "documents": [{"x": "y".repeat(1 << 17)}]};
    let mut writers: Vec<_> = (0..2000)
        .map(|_| {
            let mut writer = served.connect();
            writer.send(&insert);
            writer
        })
        .collect();
    // The first ones still find room.
    let waiting = served.until_waiting("c", 1900);
    served.others_are_served();
    let what = |text: &str| {
        let is = |op: &&DocBuf| op.get_str("waitingFor") == Some(text);
        waiting.iter().filter(is).count()
    };
    assert!(what("a write ticket") > 1700, "{}", what("a write ticket"));
    assert!(what("a memtable to be flushed") > 0);
    drop(stuck);
    for writer in filling.iter_mut().chain(&mut writers) {
        assert_eq!(writer.receive().get_i32("n"), Some(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_waits_for_room_can_be_interrupted() {
    let served = Served::new();
    served
        .connect()
        .run(&doc! {"insert": "other", "documents": [{"_id": 1}]});
    let stuck = served.stick("data");
    let mut filling = served.writers(200);
    served.until_waiting("c", 1);
    let text = "x".repeat(4 << 20);
    let insert = |number: i32| doc! {"insert": "d", "documents": [{"_id": number, "x": &text}]};

    let mut timed = served.connect();
    let mut command = insert(1);
    command.push("maxTimeMS", 50);
    let began = Instant::now();
    timed.send(&command);
    let reply = timed.receive();
    assert_eq!(reply.get_i32("code"), Some(50), "{reply:?}");
    assert!(began.elapsed() >= Duration::from_millis(50));

    let mut killed = served.connect();
    killed.send(&insert(2));
    let operation = served.until_waiting("d", 1).remove(0);
    let id = operation.get_i64("opid").unwrap();
    served.connect().run(&doc! {"killOp": 1, "op": id});
    assert_eq!(killed.receive().get_i32("code"), Some(11601));

    let mut closed = served.connect();
    closed.send(&insert(3));
    served.until_waiting("d", 1);
    drop(closed);
    wait_until("the end of the writer", || served.waiting("d").is_empty());
    drop(stuck);
    for writer in &mut filling {
        assert_eq!(writer.receive().get_i32("n"), Some(1));
    }
    // None of the three has taken place.
    let found = served
        .connect()
        .run(&doc! {"find": "d", "projection": {"_id": 1}});
    let batch = found.get_doc("cursor").unwrap().get_array("firstBatch");
    assert_eq!(batch.unwrap().count(), 0);
}

/// The commits before the interrupted one stay. A retry used to insert their documents again and failed with duplicate keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_an_interrupted_insert_goes_on_where_it_ended() {
    for name in ["insert", "bulkWrite"] {
        // Where the memory is full depends on sizes of the engine. It has to be in the middle of a command.
        assert!(
            (0..6).any(|before| retry_interrupted(name, before)),
            "{name}"
        );
    }
}

/// Interrupts an insert of ten documents that waits for room, and retries it. `before` documents come before it. False if it had
/// inserted none when it was interrupted.
fn retry_interrupted(name: &str, before: i32) -> bool {
    let text = "x".repeat(4 << 20);
    let lsid = crate::sessions::SessionId::random().to_doc();
    let served = Served::new();
    let mut client = served.connect();
    client.run(&doc! {"create": "c"});
    let command = |number: i64| {
        let mut command = match name {
            "insert" => doc! {"insert": "c"},
            _ => doc! {"bulkWrite": 1, "nsInfo": [{"ns": "admin.c"}]},
        };
        let field = if name == "insert" { "documents" } else { "ops" };
        command.push_array(field, |list| {
            for id in 0..10 {
                let document = doc! {"_id": 10 * number + id, "x": &text};
                match name {
                    "insert" => list.push(&document),
                    _ => list.push(&doc! {"insert": 0, "document": &document}),
                }
            }
        });
        command.push("lsid", &lsid);
        command.push("txnNumber", number);
        command
    };
    let stuck = served.stick("data");
    for id in 0..before {
        client.run(&doc! {"insert": "c", "documents": [{"_id": id - 10, "x": &text}]});
    }
    let collection = if name == "insert" { "c" } else { "$cmd" };
    let (operation, number) = served.until_one_waits(&mut client, collection, command);
    let id = operation.get_i64("opid").unwrap();
    served.connect().run(&doc! {"killOp": 1, "op": id});
    let reply = client.receive();
    assert_eq!(reply.get_i32("code"), Some(11601), "{name}: {reply:?}");
    drop(stuck);
    let count = |client: &mut RawClient| {
        let reply = client.run(&doc! {"count": "c", "query": {"_id": {"$gte": 10 * number}}});
        reply.get_i32("n").unwrap()
    };
    let inserted = count(&mut client);
    assert!((0..10).contains(&inserted), "{name}: {inserted}");
    let reply = client.run(&command(number));
    let n = if name == "insert" { "n" } else { "nInserted" };
    assert_eq!(reply.get_i32(n), Some(10), "{name}: {reply:?}");
    assert!(reply.get("writeErrors").is_none(), "{name}: {reply:?}");
    assert_eq!(count(&mut client), 10, "{name}");
    inserted > 0
}

/// An interruption does not stop the drop of its temporary collection.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_out_drops_its_temporary_collection() {
    let served = Served::new();
    let mut client = served.connect();
    let mut insert = doc! {"insert": "source"};
    let text = "x".repeat(4 << 20);
    insert.push_array("documents", |list| {
        (0..10).for_each(|id| list.push(&doc! {"_id": id, "x": &text}));
    });
    client.run(&insert);
    let stuck = served.stick("data");
    let out = |number: i64| {
        doc! {
            "aggregate": "source", "cursor": {},
            "pipeline": [{"$out": {"db": "test", "coll": format!("out{number}").as_str()}}],
        }
    };
    let (operation, number) = served.until_one_waits(&mut client, "source", out);
    let id = operation.get_i64("opid").unwrap();
    served.connect().run(&doc! {"killOp": 1, "op": id});
    std::thread::sleep(Duration::from_millis(200));
    drop(stuck);
    assert_eq!(client.receive().get_i32("code"), Some(11601));
    let reply = client.run(&doc! {"listCollections": 1, "nameOnly": true, "$db": "test"});
    let reply = format!("{reply:?}");
    assert!(
        !reply.contains("agg_out") && !reply.contains(&format!("out{number}")),
        "{reply}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_writers_that_wait_for_the_journal_keep_no_other_waiting() {
    let served = Served::new();
    served
        .connect()
        .run(&doc! {"insert": "other", "documents": [{"_id": 1}]});
    let stuck = served.stick("log");
    let insert = doc! {"insert": "c", "documents": [{"x": 1}], "writeConcern": {"j": true}};
    let mut writers: Vec<_> = (0..2000)
        .map(|_| {
            let mut writer = served.connect();
            writer.send(&insert);
            writer
        })
        .collect();
    served.until_waiting("c", 2000);
    served.others_are_served();
    let mut timed = served.connect();
    let mut command = insert.clone();
    command.push("maxTimeMS", 50);
    timed.send(&command);
    let reply = timed.receive();
    // It is applied.
    assert_eq!(reply.get_i32("n"), Some(1), "{reply:?}");
    assert!(reply.get_doc("writeConcernError").is_some());
    drop(stuck);
    for writer in &mut writers {
        let reply = writer.receive();
        assert_eq!(reply.get_i32("n"), Some(1));
        assert!(reply.get("writeConcernError").is_none(), "{reply:?}");
    }
}

/// Its cursor used to stay in use for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_getmore_that_waits_for_documents_closes_its_cursor() {
    let served = Served::new();
    let mut client = served.connect();
    client.run(&doc! {"create": "log", "capped": true, "size": 1 << 20});
    client.run(&doc! {"insert": "log", "documents": [{"_id": 1}]});
    let found = client.run(&doc! {"find": "log", "tailable": true, "awaitData": true});
    let id = found.get_doc("cursor").unwrap().get_i64("id").unwrap();
    client.send(&doc! {"getMore": id, "collection": "log", "maxTimeMS": 600_000});
    let operation = served.until_waiting("log", 1).remove(0);
    let operation = operation.get_i64("opid").unwrap();
    served.connect().run(&doc! {"killOp": 1, "op": operation});
    assert_eq!(client.receive().get_i32("code"), Some(11601));
    client.send(&doc! {"getMore": id, "collection": "log"});
    assert_eq!(client.receive().get_i32("code"), Some(43));
    assert_eq!(served.test.server.clients.cursors.counts().open, 0);
}

/// It used to take a second write ticket for its reply only.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_has_waited_for_the_journal_needs_no_ticket() {
    let served = Served::new();
    let mut client = served.connect();
    client.run(&doc! {"create": "c"});
    let stuck = served.stick("log");
    let insert = doc! {"insert": "c", "documents": [{"x": 1}], "writeConcern": {"j": true}};
    client.send(&insert);
    wait_until("a write that waits for the journal", || {
        served.until_waiting("c", 1)[0].get_str("waitingFor") == Some("the journal")
    });
    let executor = &served.test.server.execution.executor;
    let mut tickets = Vec::new();
    wait_until("all tickets", || {
        tickets.extend(executor.try_ticket(AdmissionClass::Write, &None));
        tickets.len() == AdmissionClass::Write.tickets()
    });
    drop(stuck);
    assert_eq!(client.receive().get_i32("n"), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_getmores_that_wait_for_documents_keep_no_other_waiting() {
    let served = Served::new();
    let mut first = served.connect();
    first.run(&doc! {"insert": "other", "documents": [{"_id": 1}]});
    first.run(&doc! {"create": "log", "capped": true, "size": 1 << 20});
    first.run(&doc! {"insert": "log", "documents": [{"_id": 1}]});
    let find = doc! {"find": "log", "tailable": true, "awaitData": true};
    let mut tails: Vec<_> = (0..2000)
        .map(|_| {
            let mut tail = served.connect();
            let found = tail.run(&find);
            let id = found.get_doc("cursor").unwrap().get_i64("id").unwrap();
            tail.send(&doc! {"getMore": id, "collection": "log", "maxTimeMS": 600_000});
            tail
        })
        .collect();
    served.until_waiting("log", 2000);
    served.others_are_served();
    first.run(&doc! {"insert": "log", "documents": [{"_id": 2}]});
    for tail in &mut tails {
        let batch = tail.receive();
        let batch = batch.get_doc("cursor").unwrap().get_array("nextBatch");
        assert_eq!(batch.unwrap().count(), 1);
    }
}

/// More long scans than there are tickets. Each waits for its turn, and what needs no ticket goes on.
#[tokio::test(flavor = "multi_thread")]
async fn pings_go_on_beside_any_number_of_long_scans() {
    let served = Served::new();
    let mut first = served.connect();
    let mut insert = doc! {"insert": "scanned"};
    insert.push_array("documents", |list| {
        for id in 0..20_000 {
            list.push(&doc! {"_id": id, "a": id % 7});
        }
    });
    first.run(&insert);
    let mut scans: Vec<_> = (0..300)
        .map(|_| {
            let mut scan = served.connect();
            scan.send(&endless_scan("scanned"));
            scan
        })
        .collect();
    served.until_waiting("scanned", 100);
    for _ in 0..20 {
        first.run(&doc! {"ping": 1});
    }
    assert!(served.waiting("scanned").len() >= 100);
    served.kill_all("scanned");
    for scan in &mut scans {
        scan.receive_end_of_scan();
    }
}

/// A count that takes longer than any test: some milliseconds for each document. It can be killed after each of them.
fn endless_scan(collection: &str) -> DocBuf {
    doc! {
        "count": collection,
        "query": {"$expr": {"$lt": [{"$reduce": {
            "input": {"$range": [0, 400]}, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]},
        }}, "$a"]}},
    }
}

/// Long commands used to keep their tickets to their end.
#[tokio::test(flavor = "multi_thread")]
async fn reads_go_on_beside_as_many_long_scans_as_there_are_tickets() {
    let served = Served::new();
    let mut first = served.connect();
    first.run(&doc! {"insert": "other", "documents": [{"_id": 1}]});
    let mut insert = doc! {"insert": "scanned"};
    insert.push_array("documents", |list| {
        for id in 0..20_000 {
            list.push(&doc! {"_id": id, "a": id % 7});
        }
    });
    first.run(&insert);
    let mut scans: Vec<_> = (0..AdmissionClass::Read.tickets())
        .map(|_| {
            let mut scan = served.connect();
            scan.send(&endless_scan("scanned"));
            scan
        })
        .collect();
    // The first ones may have given their tickets back before the last ones begin.
    wait_until("as many scans as tickets", || {
        let scanned = doc! {"currentOp": 1, "ns": "admin.scanned"};
        let running = first
            .run(&scanned)
            .get_array("inprog")
            .unwrap()
            .values()
            .count();
        running == AdmissionClass::Read.tickets()
    });
    first.run(&doc! {"find": "other", "filter": {"_id": 1}});
    served.kill_all("scanned");
    for scan in &mut scans {
        scan.receive_end_of_scan();
    }
}

/// Writers that wait for an open transaction hold all tickets. They must not keep it from going on and ending.
#[tokio::test(flavor = "multi_thread")]
async fn statements_of_transactions_do_not_wait_behind_the_writers_that_wait_for_them() {
    let served = Served::new();
    let documents =
        doc! {"insert": "c", "$db": "test", "documents": [{"_id": 1, "n": 0}, {"_id": 2, "n": 0}]};
    served.connect().run(&documents);
    // The end of a wait is not that of a transaction that has expired.
    served
        .connect()
        .run(&doc! {"setParameter": 1, "transactionLifetimeLimitSeconds": 3600});
    let lsid = SessionId::random().to_doc();
    let statement = |mut command: DocBuf, starts: bool| {
        command.push_all(&doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": false});
        if starts {
            command.push("startTransaction", true);
        }
        command
    };
    let increment = |id: i32| doc! {"update": "c", "$db": "test", "updates": [{"q": {"_id": id}, "u": {"$inc": {"n": 1}}}]};
    let mut owner = served.connect();
    owner.run(&statement(increment(1), true));
    let mut writers: Vec<_> = (0..200)
        .map(|_| {
            let mut writer = served.connect();
            writer.send(&increment(1));
            writer
        })
        .collect();
    let waiting = served.until_waiting("test.c", 200);
    let for_owner = |op: &&DocBuf| op.get_str("waitingFor") == Some("an open transaction");
    let behind = AdmissionClass::Write.tickets();
    assert!(waiting.iter().filter(for_owner).count() >= behind);
    let executor = &served.test.server.execution.executor;
    assert_eq!(executor.available(AdmissionClass::Write), 0);
    owner.run(&statement(increment(2), false));
    // Others are refused at once instead of waiting, and a second transaction goes on beside the first one.
    let other = SessionId::random().to_doc();
    let mut beside = doc! {"insert": "c", "$db": "test", "documents": [{"_id": 3}]};
    beside.push_all(
        &doc! {"lsid": &other, "txnNumber": 1i64, "autocommit": false, "startTransaction": true},
    );
    let mut second = served.connect();
    second.run(&beside);
    second.run(
        &doc! {"commitTransaction": 1, "lsid": &other, "txnNumber": 1i64, "autocommit": false},
    );
    owner.run(&statement(doc! {"commitTransaction": 1}, false));
    for writer in &mut writers {
        assert_eq!(writer.receive().get_i32("nModified"), Some(1));
    }
    let reply = owner.run(&doc! {"find": "c", "$db": "test", "sort": {"_id": 1}});
    let batch = reply
        .get_doc("cursor")
        .and_then(|cursor| cursor.get_array("firstBatch"));
    let values = batch
        .unwrap()
        .values()
        .map(|doc| doc.as_doc().and_then(|doc| doc.get_i32("n")));
    assert_eq!(values.collect::<Vec<_>>(), [Some(201), Some(1), None]);
}

/// Replies of up to 256 KiB need no room beforehand, so thousands of clients that did not read theirs were more than there is memory for.
#[tokio::test(flavor = "multi_thread")]
async fn reads_wait_while_clients_have_too_many_unread_replies() {
    let served = Served::new();
    let mut client = served.connect();
    client.run(&doc! {"insert": "c", "documents": [{"_id": 1}]});
    let replies = &served.test.server.execution.quotas.replies;
    let unread = replies.count(replies.bytes().max(17 << 20) + 1);
    let mut reader = served.connect();
    reader.send(&doc! {"find": "c"});
    let waiting = served.until_waiting("c", 1).remove(0);
    assert_eq!(waiting.get_str("waitingFor"), Some("replies to be read"));
    // Writes and commands that read no documents go on.
    client.run(&doc! {"insert": "c", "documents": [{"_id": 2}]});
    client.run(&doc! {"ping": 1});
    client.send(&doc! {"find": "c", "maxTimeMS": 20});
    assert_eq!(client.receive().get_i32("code"), Some(50));
    assert!(!reader.is_answered());
    drop(unread);
    assert_eq!(reader.receive().get_f64("ok"), Some(1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_counted_as_memory() {
    let served = Served::new();
    let memory = served.test.server.store.memory();
    let used = || memory.used(frond_store::MemoryUse::Connections);
    let before = used();
    let clients: Vec<_> = (0..10).map(|_| served.connect()).collect();
    wait_until("connections", || {
        used() == before + 10 * super::serve::CONNECTION_BYTES as u64
    });
    drop(clients);
    wait_until("their end", || used() == before);
}
