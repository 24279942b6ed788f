//! Change streams and readers of the oplog over sockets: waiting without cost, resuming after `kill -9`, tokens that are gone,
//! labels, and the legacy opcodes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};
use frond_wire::{Flags, Query, Reply, op_get_more, op_query};
use support::{Client, Running, wait_for, wait_until};

/// A member of an initiated replica set.
/// Starts the primary of a set of one.
fn member(directory: &Path, more: &[&str]) -> Running {
    let mut arguments = vec!["--replSet", "rs0"];
    arguments.extend_from_slice(more);
    let server = Running::start(directory, &arguments);
    let reply = server
        .connect()
        .reply("admin", &doc! {"replSetInitiate": {}});
    assert!(
        [Some(1.0), Some(0.0)].contains(&reply.get_f64("ok")),
        "{reply:?}"
    );
    // After a restart it serves clients before it leads.
    wait_for("a primary", || {
        let hello = server.connect().run("admin", &doc! {"hello": 1});
        (hello.get_bool("isWritablePrimary") == Some(true)).then_some(())
    });
    server
}

/// A change stream of a client.
struct Stream {
    client: Client<TcpStream>,
    id: i64,
    /// The events that have not been returned.
    events: std::collections::VecDeque<DocBuf>,
    token: DocBuf,
}

impl Stream {
    fn open(mut client: Client<TcpStream>, options: &DocBuf) -> Stream {
        let command = aggregate(options);
        let reply = client.run("test", &command);
        let mut stream = Stream {
            client,
            id: 0,
            events: std::collections::VecDeque::new(),
            token: DocBuf::new(),
        };
        stream.take(&reply, "firstBatch");
        stream
    }

    fn take(&mut self, reply: &Doc, name: &str) {
        let cursor = reply.get_doc("cursor").unwrap();
        self.id = cursor.get_i64("id").unwrap();
        self.token = cursor.get_doc("postBatchResumeToken").unwrap().to_owned();
        let batch = cursor.get_array(name).unwrap();
        for event in batch.values() {
            self.events.push_back(event.as_doc().unwrap().to_owned());
        }
    }

    fn read(&mut self, wait: Duration) {
        let wait = i64::try_from(wait.as_millis()).unwrap();
        let command = doc! {"getMore": self.id, "collection": "c", "maxTimeMS": wait};
        let reply = self.client.run("test", &command);
        self.take(&reply, "nextBatch");
    }

    fn next(&mut self) -> DocBuf {
        wait_for("an event", || {
            if self.events.is_empty() {
                assert_ne!(self.id, 0, "the stream has ended");
                self.read(Duration::from_secs(10));
            }
            self.events.pop_front()
        })
    }
}

fn aggregate(options: &DocBuf) -> DocBuf {
    doc! {"aggregate": "c", "pipeline": [{"$changeStream": options}], "cursor": {}}
}

fn insert(client: &mut Client<TcpStream>, id: i64) -> DocBuf {
    client.run("test", &doc! {"insert": "c", "documents": [{"_id": id}]})
}

fn kind(event: &Doc) -> &str {
    event.get_str("operationType").unwrap()
}

fn time(reply: &Doc, name: &str) -> Timestamp {
    match reply.get(name) {
        Some(Value::Timestamp(time)) => time,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_stream_tells_of_changes() {
    let directory = tempfile::tempdir().unwrap();
    let server = member(directory.path(), &[]);
    let mut writer = server.connect();
    let mut stream = Stream::open(server.connect(), &doc! {});
    assert!(stream.events.is_empty());
    let token = stream.token.clone();
    let began = Instant::now();
    stream.read(Duration::from_millis(200));
    assert!(stream.events.is_empty(), "nothing happened");
    assert!(began.elapsed() >= Duration::from_millis(200), "it waits");

    let written = insert(&mut writer, 1);
    let event = stream.next();
    assert_eq!(kind(&event), "insert");
    assert_eq!(event.get_doc("fullDocument"), Some(&*doc! {"_id": 1i64}));
    assert_eq!(event.get_doc("documentKey"), Some(&*doc! {"_id": 1i64}));
    assert_eq!(
        event.get_doc("ns"),
        Some(&*doc! {"db": "test", "coll": "c"})
    );
    assert_eq!(
        time(&event, "clusterTime"),
        time(&written, "operationTime"),
        "the reply of a write names its entry"
    );
    assert_ne!(stream.token, token);

    let update = doc! {"update": "c", "updates": [{"q": {"_id": 1i64}, "u": {"$set": {"a": 5}}}]};
    writer.run("test", &update);
    let event = stream.next();
    assert_eq!(kind(&event), "update");
    let description = event.get_doc("updateDescription").unwrap();
    assert_eq!(description.get_doc("updatedFields"), Some(&*doc! {"a": 5}));

    // Its token goes on with writes to another collection.
    let token = stream.token.clone();
    writer.run("test", &doc! {"insert": "other", "documents": [{}]});
    wait_until("a later token", || {
        stream.read(Duration::from_millis(100));
        assert!(stream.events.is_empty());
        stream.token != token
    });

    writer.run("test", &doc! {"drop": "c"});
    assert_eq!(kind(&stream.next()), "drop");
    assert_eq!(kind(&stream.next()), "invalidate");
    if stream.id != 0 {
        stream.read(Duration::from_millis(1));
    }
    assert_eq!(stream.id, 0, "it has ended");
}

#[test]
fn the_token_of_a_full_batch_is_that_of_its_last_event() {
    let directory = tempfile::tempdir().unwrap();
    let server = member(directory.path(), &[]);
    let mut writer = server.connect();
    let mut stream = Stream::open(server.connect(), &doc! {});
    let text = "x".repeat(6 << 20);
    for id in 0..4 {
        let document = doc! {"_id": id, "t": text.as_str()};
        let concern = doc! {"j": true};
        let command = doc! {"insert": "c", "documents": [document], "writeConcern": concern};
        writer.run("test", &command);
    }
    stream.read(Duration::from_secs(10));
    let read = stream.events.len();
    assert!((1..4).contains(&read), "{read} events fit");
    // An event that did not fit is kept by the cursor: a client that goes on elsewhere has not seen it.
    let last = stream.events.back().unwrap();
    assert_eq!(last.get_doc("_id"), Some(&*stream.token));
    let mut resumed = Stream::open(server.connect(), &doc! {"resumeAfter": &*stream.token});
    stream.events.clear();
    for stream in [&mut stream, &mut resumed] {
        for id in read..4 {
            let event = stream.next();
            let key = event.get_doc("documentKey").unwrap();
            assert_eq!(key.get_i64("_id"), i64::try_from(id).ok());
        }
    }
}

#[test]
fn an_event_wakes_a_stream_that_waits_for_long() {
    let directory = tempfile::tempdir().unwrap();
    let server = member(directory.path(), &[]);
    let mut writer = server.connect();
    let mut stream = Stream::open(server.connect(), &doc! {});
    let read = doc! {"getMore": stream.id, "collection": "c", "maxTimeMS": 600_000};
    let message = stream.client.build(Flags::NONE, "test", &read, &[]);
    stream.client.send(&message);
    wait_until_reading(&server, 1);
    insert(&mut writer, 1);
    // The client does not wait for as long as the stream may.
    let reply = stream.client.receive_msg().2;
    stream.take(&reply, "nextBatch");
    assert_eq!(stream.events.len(), 1);
}

/// Waits until this many streams read.
fn wait_until_reading(server: &Running, streams: usize) {
    wait_until("streams that read", || {
        let operations = server.operations("test.c");
        let reads = |operation: &&DocBuf| operation.get_str("op") == Some("getmore");
        operations.iter().filter(reads).count() == streams
    });
}

#[test]
fn the_first_batch_does_not_wait() {
    let directory = tempfile::tempdir().unwrap();
    let server = member(directory.path(), &[]);
    let mut client = server.connect();
    for options in [doc! {}, doc! {"batchSize": 0}] {
        let mut command = doc! {"aggregate": "c", "pipeline": [{"$changeStream": {}}]};
        command.push("cursor", &options);
        // A busy machine may delay some. If they waited, none would take less than a second.
        wait_until("a first batch within a second", || {
            let began = Instant::now();
            let reply = client.run("test", &command);
            let cursor = reply.get_doc("cursor").unwrap();
            assert!(cursor.get_array("firstBatch").unwrap().is_empty());
            assert!(cursor.get_doc("postBatchResumeToken").is_some());
            assert_ne!(cursor.get_i64("id"), Some(0));
            began.elapsed() < Duration::from_millis(900)
        });
    }
}

#[test]
fn a_stream_goes_on_after_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut token: Option<DocBuf> = None;
    let (mut seen, mut next) = (Vec::new(), 0i64);
    for round in 0..5 {
        let server = member(directory.path(), &[]);
        let mut writer = server.connect();
        let options = match &token {
            None => doc! {},
            Some(token) => doc! {"resumeAfter": token},
        };
        let mut stream = Stream::open(server.connect(), &options);
        for _ in 0..20 {
            insert(&mut writer, next);
            next += 1;
        }
        // Some are left for the next round.
        let wanted = if round == 4 { next } else { next - 7 };
        while (seen.len() as i64) < wanted {
            let event = stream.next();
            let id = event.get_doc("documentKey").unwrap().get_i64("_id");
            seen.push(id.unwrap());
            token = Some(event.get_doc("_id").unwrap().to_owned());
        }
        server.signal("KILL");
        drop(server);
    }
    assert_eq!(seen, (0..next).collect::<Vec<i64>>());
}

#[test]
fn a_token_that_was_trimmed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = member(directory.path(), &["--oplogSize", "1"]);
    let mut client = server.connect();
    let mut stream = Stream::open(server.connect(), &doc! {});
    insert(&mut client, 0);
    let token = stream.next().get_doc("_id").unwrap().to_owned();
    let text = "x".repeat(8 << 10);
    let refused = wait_for("a trimmed oplog", || {
        for _ in 0..100 {
            client.run("test", &doc! {"insert": "c", "documents": [{"t": &text}]});
        }
        let reply = client.reply("test", &aggregate(&doc! {"resumeAfter": &token}));
        (reply.get_f64("ok") == Some(0.0)).then_some(reply)
    });
    assert_eq!(refused.get_i32("code"), Some(286), "{refused:?}");
    let labels = refused.get_array("errorLabels").unwrap();
    assert_eq!(labels.get_str("0"), Some("NonResumableChangeStreamError"));
    let status = client.run("admin", &doc! {"serverStatus": 1});
    let trimming = status.get_doc("oplogTruncation").unwrap();
    assert!(
        trimming.get_i64("truncateCount").unwrap() > 0,
        "{trimming:?}"
    );
}

#[test]
fn there_are_no_streams_without_an_oplog() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    let refused = client.reply("test", &aggregate(&doc! {}));
    assert_eq!(refused.get_i32("code"), Some(40573), "{refused:?}");
    server.stop();
    let server = Running::start(directory.path(), &["--oplog"]);
    let mut client = server.connect();
    let mut stream = Stream::open(server.connect(), &doc! {});
    insert(&mut client, 1);
    assert_eq!(kind(&stream.next()), "insert");
    server.stop();
    // An oplog that is there has no gap.
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    insert(&mut client, 2);
    let resume = doc! {"resumeAfter": &stream.token};
    assert_eq!(
        kind(&Stream::open(server.connect(), &resume).next()),
        "insert"
    );
    server.stop();
    // One that was turned off is gone.
    let server = Running::start(directory.path(), &["--oplog", "off"]);
    let mut client = server.connect();
    let refused = client.reply("test", &aggregate(&resume));
    assert_eq!(refused.get_i32("code"), Some(40573), "{refused:?}");
    server.stop();
    let server = Running::start(directory.path(), &["--oplog"]);
    let refused = server.connect().reply("test", &aggregate(&resume));
    assert_eq!(refused.get_i32("code"), Some(286), "{refused:?}");
}

#[test]
fn errors_say_whether_a_stream_may_be_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = member(
        directory.path(),
        &["--setParameter", "enableTestCommands=1"],
    );
    let mut client = server.connect();
    let fail = |client: &mut Client<TcpStream>, code: i32| {
        let data = doc! {"errorCode": code, "closeConnection": false};
        let name = "failGetMoreAfterCursorCheckout";
        let command = doc! {"configureFailPoint": name, "mode": {"times": 1}, "data": &data};
        client.run("admin", &command);
    };
    for (code, label) in [
        (6, Some("ResumableChangeStreamError")),
        (234, Some("ResumableChangeStreamError")),
        (133, Some("ResumableChangeStreamError")),
        (280, Some("NonResumableChangeStreamError")),
        (216, None),
    ] {
        let stream = Stream::open(server.connect(), &doc! {});
        fail(&mut client, code);
        let command = doc! {"getMore": stream.id, "collection": "c"};
        let mut reader = stream.client;
        let reply = reader.reply("test", &command);
        assert_eq!(reply.get_i32("code"), Some(code));
        let labels = reply.get_array("errorLabels");
        assert_eq!(labels.and_then(|labels| labels.get_str("0")), label);
    }
    let data = doc! {"failCommands": ["aggregate", "getMore"], "errorCode": 91};
    let command = doc! {"configureFailPoint": "failCommand", "mode": {"times": 2}, "data": &data};
    let stream = Stream::open(server.connect(), &doc! {});
    client.run("admin", &command);
    let get_more = doc! {"getMore": stream.id, "collection": "c"};
    // This point comes before a getMore has its cursor: then it is not known what it reads, as in MongoDB.
    let label = Some("ResumableChangeStreamError");
    for (command, label) in [(aggregate(&doc! {}), label), (get_more, None)] {
        let reply = client.reply("test", &command);
        assert_eq!(reply.get_i32("code"), Some(91));
        let labels = reply.get_array("errorLabels");
        assert_eq!(labels.and_then(|labels| labels.get_str("0")), label);
    }
}

#[test]
fn streams_that_wait_use_no_processor_time() {
    const STREAMS: usize = 200;
    let directory = tempfile::tempdir().unwrap();
    let server = member(directory.path(), &[]);
    let mut writer = server.connect();
    insert(&mut writer, 0);
    let mut streams: Vec<Stream> = (0..STREAMS)
        .map(|_| Stream::open(server.connect(), &doc! {}))
        .collect();
    for stream in &mut streams {
        let command = doc! {"getMore": stream.id, "collection": "c", "maxTimeMS": 600_000};
        let message = stream.client.build(Flags::NONE, "test", &command, &[]);
        stream.client.send(&message);
    }
    wait_until_reading(&server, STREAMS);
    server.wait_until_idle();
    // The write wakes every stream.
    insert(&mut writer, 1);
    for stream in &mut streams {
        let (_, _, reply) = stream.client.receive_msg();
        stream.take(&reply, "nextBatch");
        assert_eq!(stream.events.len(), 1);
    }
}

/// Sends a legacy message and returns the documents and the cursor.
fn legacy(client: &mut Client<TcpStream>, message: &[u8]) -> (Vec<DocBuf>, i64) {
    client.send(message);
    let reply = client.receive().expect("a reply");
    let (_, Reply::Reply(reply)) = Reply::parse(&reply).unwrap() else {
        panic!("not an OP_REPLY")
    };
    let documents = reply.documents;
    let documents = documents.map(|bytes| Doc::validate(bytes).unwrap().to_owned());
    (documents.collect(), reply.cursor_id)
}

/// As Meteor's driver and mongo-connector did.
#[test]
fn old_drivers_tail_the_oplog() {
    let directory = tempfile::tempdir().unwrap();
    let server = member(directory.path(), &[]);
    let mut writer = server.connect();
    insert(&mut writer, 1);
    let mut tailer = server.connect();
    let newest = doc! {"$query": {}, "$orderby": {"$natural": -1}};
    let query = |flags: u32, count: i32, body: &DocBuf| {
        op_query(
            1,
            &Query {
                flags,
                namespace: "local.oplog.rs",
                skip: 0,
                count,
                query: body.as_bytes(),
                projection: None,
            },
        )
    };
    let (last, _) = legacy(&mut tailer, &query(Query::SECONDARY_OK, -1, &newest));
    let last = last.first().expect("the newest entry");
    assert_eq!(
        (last.get_str("op"), last.get_str("ns")),
        (Some("i"), Some("test.c"))
    );
    let from = time(last, "ts");
    let flags = Query::TAILABLE | Query::AWAIT_DATA | Query::OPLOG_REPLAY | Query::SECONDARY_OK;
    let body = doc! {"ts": {"$gt": from}, "ns": {"$regex": "^test\\."}};
    let (mut entries, cursor) = legacy(&mut tailer, &query(flags, 0, &body));
    assert_ne!(cursor, 0);
    insert(&mut writer, 2);
    writer.run(
        "test",
        &doc! {"delete": "c", "deletes": [{"q": {"_id": 1i64}, "limit": 1}]},
    );
    wait_until("two entries", || {
        let more = op_get_more(2, "local.oplog.rs", 0, cursor);
        let (documents, left) = legacy(&mut tailer, &more);
        assert_eq!(left, cursor);
        entries.extend(documents);
        entries.len() >= 2
    });
    let kinds: Vec<_> = entries.iter().map(|entry| entry.get_str("op")).collect();
    assert_eq!(kinds, [Some("i"), Some("d")]);
}

/// `rs.printReplicationInfo()` and old checks for an oplog read these fields.
#[test]
fn shells_find_the_oplog() {
    let directory = tempfile::tempdir().unwrap();
    let server = member(directory.path(), &["--oplogSize", "16"]);
    let mut client = server.connect();
    let written = insert(&mut client, 1);
    let reply = client.run(
        "local",
        &doc! {"listCollections": 1, "filter": {"name": "oplog.rs"}},
    );
    let cursor = reply.get_doc("cursor").unwrap();
    let info = cursor
        .get_array("firstBatch")
        .unwrap()
        .get_doc("0")
        .unwrap();
    let options = info.get_doc("options").unwrap();
    assert_eq!(options.get_bool("capped"), Some(true));
    let size = options.get("size").unwrap();
    assert_eq!(size.as_i64_lossless(), Some(16 << 20));
    let stats = client.run("local", &doc! {"collStats": "oplog.rs"});
    assert_eq!(
        stats.get("maxSize").unwrap().as_i64_lossless(),
        Some(16 << 20)
    );
    assert!(stats.get("size").unwrap().as_i64_lossless().unwrap() > 0);
    for (order, op) in [(1, "n"), (-1, "i")] {
        let find = doc! {"find": "oplog.rs", "sort": {"$natural": order}, "limit": 1};
        let reply = client.run("local", &find);
        let cursor = reply.get_doc("cursor").unwrap();
        let entry = cursor
            .get_array("firstBatch")
            .unwrap()
            .get_doc("0")
            .unwrap();
        assert_eq!(entry.get_str("op"), Some(op));
        if op == "i" {
            assert_eq!(time(entry, "ts"), time(&written, "operationTime"));
        }
    }
    let reply = client.run("admin", &doc! {"listDatabases": 1, "nameOnly": true});
    let names = reply.get_array("databases").unwrap();
    let local = names
        .values()
        .filter_map(|one| one.as_doc()?.get_str("name"));
    assert_eq!(local.filter(|name| *name == "local").count(), 1);
    let status = client.run("admin", &doc! {"replSetGetStatus": 1});
    let times = status.get_doc("optimes").unwrap();
    let applied = times.get_doc("appliedOpTime").unwrap();
    assert_eq!(time(applied, "ts"), time(&written, "operationTime"));
    let hello = client.run("admin", &doc! {"hello": 1});
    let last = hello
        .get_doc("lastWrite")
        .unwrap()
        .get_doc("opTime")
        .unwrap();
    assert_eq!(time(last, "ts"), time(&written, "operationTime"));
}
