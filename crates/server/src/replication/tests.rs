#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, Timestamp, Value, doc};
use frond_replica::{Lane, Peer, Reply};
use frond_store::disk::FsDisk;
use frond_store::{DocumentStore, StoreOptions};

use std::time::Instant;

use frond_replset::SetConfig;

use super::*;
use crate::operation::Exhaust;
use crate::outcome::Wait;
use crate::request::{InFlight, Request, Step};
use crate::settings::OplogMode;
use crate::testing::TestServer;

/// A network without other members.
struct NoPeers;

impl Transport for NoPeers {
    fn send(&self, _: u64, _: &Peer, _: Lane, _: Vec<u8>) -> Reply {
        Box::pin(std::future::ready(Err(
            std::io::ErrorKind::Unsupported.into()
        )))
    }
}

fn initiated() -> TestServer {
    let mut server = TestServer::member("rs0");
    server.run("admin", doc! {"replSetInitiate": {}});
    server
}

fn time(reply: &DocBuf, name: &str) -> Timestamp {
    match reply.get(name) {
        Some(Value::Timestamp(time)) => time,
        other => panic!("{name}: {other:?}"),
    }
}

fn gossiped(reply: &DocBuf) -> Timestamp {
    time(
        &reply.get_doc("$clusterTime").unwrap().to_owned(),
        "clusterTime",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_not_initiated_does_nothing_for_clients() {
    let mut server = TestServer::member("rs0");
    let hello = server.run("admin", doc! {"hello": 1});
    assert_eq!(hello.get_bool("isWritablePrimary"), Some(false));
    assert_eq!(
        (hello.get_bool("isreplicaset"), hello.get_str("setName")),
        (Some(true), None)
    );
    assert!(!hello.contains_key("$clusterTime") && !hello.contains_key("operationTime"));
    let secondary = doc! {"mode": "secondaryPreferred"};
    for (command, code) in [
        (doc! {"insert": "c", "documents": [{"_id": 1}]}, 10107),
        (doc! {"create": "c"}, 10107),
        (doc! {"find": "c"}, 13435),
        (doc! {"find": "c", "$readPreference": &secondary}, 13436),
    ] {
        let reply = server.reply("test", command.clone());
        assert_eq!(reply.get_i32("code"), Some(code), "{command:?}");
        let version = server.server.topology_version();
        assert_eq!(reply.get_doc("topologyVersion"), Some(&*version));
    }
    server.run("admin", doc! {"ping": 1});
    server.run("admin", doc! {"serverStatus": 1});
    server.run("local", doc! {"find": "system.replset"});
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_carry_times_that_never_go_back() {
    let mut server = initiated();
    let first = server.run("test", doc! {"insert": "c", "documents": [{"_id": 1}]});
    let write = time(&first, "operationTime");
    let read = server.run("test", doc! {"find": "c"});
    assert_eq!(time(&read, "operationTime"), write);
    assert_eq!(gossiped(&read), write);
    let second = server.run("test", doc! {"insert": "c", "documents": [{"_id": 2}]});
    assert!(time(&second, "operationTime") > write);
    // Errors have them, too.
    let error = server.reply("test", doc! {"nonsense": 1});
    assert!(time(&error, "operationTime") > write);
    let status = server.run("admin", doc! {"serverStatus": 1});
    let repl = status.get_doc("repl").unwrap();
    assert_eq!(
        (repl.get_str("setName"), repl.get_bool("isWritablePrimary")),
        (Some("rs0"), Some(true))
    );
    let hello = server.run("admin", doc! {"hello": 1});
    let last = hello
        .get_doc("lastWrite")
        .unwrap()
        .get_doc("opTime")
        .unwrap();
    assert_eq!(
        last.get("ts"),
        Some(Value::Timestamp(time(&second, "operationTime")))
    );

    let mut standalone = TestServer::new();
    let reply = standalone.run("test", doc! {"insert": "c", "documents": [{"_id": 1}]});
    assert_eq!(reply, doc! {"n": 1, "ok": 1.0});
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_move_the_clock_within_a_limit() {
    let mut server = initiated();
    let now = gossiped(&server.run("admin", doc! {"ping": 1}));
    let ahead = Timestamp {
        time: now.time + 1000,
        increment: 7,
    };
    let gossip = |time: Timestamp| doc! {"ping": 1, "$clusterTime": {"clusterTime": time}};
    assert_eq!(gossiped(&server.run("admin", gossip(ahead))), ahead);
    assert_eq!(gossiped(&server.run("admin", gossip(now))), ahead);
    let write = server.run("test", doc! {"insert": "c", "documents": [{}]});
    assert!(time(&write, "operationTime") > ahead);
    let years = Timestamp {
        time: now.time + 2 * 31_536_000,
        increment: 0,
    };
    assert_eq!(server.code("admin", gossip(years)), 202);
    let never = Timestamp {
        time: u32::MAX,
        increment: 0,
    };
    assert_eq!(server.code("admin", gossip(never)), 40482);
    for (wrong, code) in [
        (doc! {"ping": 1, "$clusterTime": {}}, 40414),
        (doc! {"ping": 1, "$clusterTime": {"clusterTime": 1}}, 14),
        (doc! {"ping": 1, "$clusterTime": 1}, 14),
    ] {
        assert_eq!(server.code("admin", wrong), code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_after_a_time() {
    let mut server = initiated();
    let write = server.run("test", doc! {"insert": "c", "documents": [{"_id": 1}]});
    let at = time(&write, "operationTime");
    let find = |concern: DocBuf| doc! {"find": "c", "readConcern": concern};
    let reply = server.run(
        "test",
        find(doc! {"level": "majority", "afterClusterTime": at}),
    );
    assert_eq!(server.batch(&reply, "firstBatch").len(), 1);
    let future = Timestamp {
        time: at.time + 1000,
        increment: 1,
    };
    assert_eq!(
        server.code("test", find(doc! {"afterClusterTime": future})),
        72
    );
    // A linearizable read waits for the journal, which the test server does.
    let reply = server.run("test", find(doc! {"level": "linearizable"}));
    assert_eq!(server.batch(&reply, "firstBatch").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_concern_that_one_member_cannot_satisfy_is_reported_after_the_write() {
    let mut server = initiated();
    for (id, w, code) in [(1, Value::Int32(2), 100), (2, Value::String("east"), 79)] {
        let reply = server.run(
            "test",
            doc! {"insert": "c", "documents": [{"_id": id}], "writeConcern": {"w": w, "wtimeout": 5}},
        );
        let error = reply.get_doc("writeConcernError").unwrap();
        assert_eq!(error.get_i32("code"), Some(code));
        let concern = error
            .get_doc("errInfo")
            .unwrap()
            .get_doc("writeConcern")
            .unwrap();
        assert_eq!(concern.get("w"), Some(w));
        // With j, it waits first.
        let reply = server.run(
            "test",
            doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": {"$set": {"a": 1}}}], "writeConcern": {"w": w, "j": true}},
        );
        assert!(reply.contains_key("writeConcernError"));
    }
    let reply = server.run("test", doc! {"find": "c", "filter": {"a": 1}});
    assert_eq!(server.batch(&reply, "firstBatch").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_fails_by_what_it_finds_reports_its_write_concern() {
    let mut server = initiated();
    server.run("test", doc! {"insert": "c", "documents": [{"_id": 1}]});
    server.run("test", doc! {"insert": "d", "documents": [{"_id": 1}]});
    let concern = doc! {"w": 2, "wtimeout": 5};
    for (db, command, code) in [
        (
            "test",
            doc! {"create": "c", "capped": true, "size": 4096},
            48,
        ),
        (
            "admin",
            doc! {"renameCollection": "test.c", "to": "test.d"},
            48,
        ),
        (
            "admin",
            doc! {"renameCollection": "test.none", "to": "test.e"},
            26,
        ),
        ("test", doc! {"dropIndexes": "c", "index": "none"}, 27),
    ] {
        for (with, expected) in [(true, Some(100)), (false, None)] {
            let mut command = command.clone();
            if with {
                command.push("writeConcern", &concern);
            }
            let reply = server.reply(db, command);
            assert_eq!(reply.get_i32("code"), Some(code), "{reply:?}");
            let error = reply.get_doc("writeConcernError");
            assert_eq!(
                error.and_then(|error| error.get_i32("code")),
                expected,
                "{reply:?}"
            );
        }
    }
    // One that is refused has found nothing.
    let reply = server.reply("test", doc! {"create": "", "writeConcern": &concern});
    assert!(!reply.contains_key("writeConcernError"), "{reply:?}");
}

fn at(reply: &DocBuf) -> Timestamp {
    let cursor = reply.get_doc("cursor").unwrap().to_owned();
    time(&cursor, "atClusterTime")
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_reads_see_one_time() {
    let mut server = initiated();
    server.fill("c", 10);
    let snapshot = |at: Option<Timestamp>| {
        let mut concern = doc! {"level": "snapshot"};
        if let Some(at) = at {
            concern.push("atClusterTime", at);
        }
        concern
    };
    let find = |at| doc! {"find": "c", "batchSize": 3, "readConcern": snapshot(at)};
    let first = server.run("test", find(None));
    let then = at(&first);
    // Nothing was written since: it is the same time.
    assert_eq!(at(&server.run("test", find(None))), then);
    server.run(
        "test",
        doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
    );
    server.run("test", doc! {"insert": "d", "documents": [{"_id": 1}]});

    let again = server.run("test", find(Some(then)));
    assert_eq!(
        (server.batch(&again, "firstBatch").len(), at(&again)),
        (3, then)
    );
    let id = again.get_doc("cursor").unwrap().get_i64("id").unwrap();
    let rest = server.run("test", doc! {"getMore": id, "collection": "c"});
    assert_eq!(server.batch(&rest, "nextBatch").len(), 7);
    let distinct = doc! {"distinct": "c", "key": "_id", "readConcern": snapshot(Some(then))};
    let distinct = server.run("test", distinct);
    assert_eq!(distinct.get_array("values").unwrap().count(), 10);
    assert_eq!(time(&distinct, "atClusterTime"), then);
    let count = doc! {
        "aggregate": "c", "cursor": {}, "readConcern": snapshot(Some(then)),
        "pipeline": [{"$lookup": {"from": "d", "pipeline": [], "as": "d"}}, {"$match": {"d": []}}, {"$count": "n"}],
    };
    let counted = server.run("test", count);
    assert_eq!(server.batch(&counted, "firstBatch"), [doc! {"n": 10}]);

    let now = server.run("test", find(None));
    assert!(server.batch(&now, "firstBatch").is_empty() && at(&now) > then);
    let early = Timestamp {
        time: then.time,
        increment: then.increment - 1,
    };
    let before = server.run("test", find(Some(early)));
    assert_eq!(server.batch(&before, "firstBatch").len(), 3);
    let unknown = Timestamp {
        time: then.time - 10,
        increment: 1,
    };
    assert_eq!(server.code("test", find(Some(unknown))), 239);
    let future = Timestamp {
        time: then.time + 10_000,
        increment: 1,
    };
    assert_eq!(server.code("test", find(Some(future))), 72);
    let count = doc! {"count": "c", "readConcern": snapshot(None)};
    assert_eq!(server.code("test", count), 72);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_may_begin_at_a_time() {
    let mut server = initiated();
    server.fill("c", 3);
    let find = doc! {"find": "c", "readConcern": {"level": "snapshot"}};
    let then = at(&server.run("test", find));
    server.run(
        "test",
        doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
    );
    let lsid = crate::sessions::SessionId::random().to_doc();
    let inside = |mut command: DocBuf, number: i64, concern: Option<DocBuf>| {
        command.push_all(&doc! {"lsid": &lsid, "txnNumber": number, "autocommit": false});
        if let Some(concern) = concern {
            command.push("startTransaction", true);
            command.push("readConcern", &concern);
        }
        command
    };
    let past = doc! {"level": "snapshot", "atClusterTime": then};
    let reply = server.run("test", inside(doc! {"find": "c"}, 1, Some(past)));
    assert_eq!(server.batch(&reply, "firstBatch").len(), 3);
    assert!(
        !reply
            .get_doc("cursor")
            .unwrap()
            .contains_key("atClusterTime")
    );
    let after = doc! {"level": "snapshot", "afterClusterTime": then};
    let reply = server.run("test", inside(doc! {"find": "c"}, 2, Some(after)));
    assert_eq!(server.batch(&reply, "firstBatch").len(), 0);
    // A transaction in the past conflicts with writes since then.
    let past = doc! {"level": "snapshot", "atClusterTime": then};
    let update = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}]};
    assert_eq!(server.code("test", inside(update, 3, Some(past))), 112);
}

#[tokio::test(flavor = "multi_thread")]
async fn moments_are_kept_for_a_while() {
    let mut server = initiated();
    let find = doc! {"find": "c", "readConcern": {"level": "snapshot"}};
    let mut first = None;
    for n in 0..300 {
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"_id": n}], "writeConcern": {"w": 1}},
        );
        let reply = server.run("test", find.clone());
        first.get_or_insert(at(&reply));
    }
    let then = first.unwrap();
    let old = doc! {"find": "c", "readConcern": {"level": "snapshot", "atClusterTime": then}};
    assert_eq!(server.code("test", old), 239);
    let kept = || {
        server
            .server
            .set
            .replication
            .as_ref()
            .unwrap()
            .read_timestamps
            .count()
    };
    let set = server.server.set.replication.as_ref().unwrap();
    assert_eq!(kept(), 256);
    set.read_timestamps.expire(Instant::now(), true);
    assert_eq!(kept(), 1);
    set.read_timestamps
        .expire(Instant::now() + Duration::from_secs(299), false);
    assert_eq!(kept(), 1);
    set.read_timestamps
        .expire(Instant::now() + Duration::from_secs(301), false);
    assert_eq!(kept(), 0);
    let parameter = "minSnapshotHistoryWindowInSeconds";
    server.run("admin", doc! {"setParameter": 1, parameter: 5});
    let reply = server.run("admin", doc! {"getParameter": 1, parameter: 1});
    assert_eq!(reply.get_i32(parameter), Some(5));
}

#[test]
fn a_set_is_found_again_in_a_later_term() {
    let directory = tempfile::tempdir().unwrap();
    let store = || {
        let disk = Arc::new(FsDisk::new(directory.path().to_owned(), false));
        DocumentStore::open_on_disk(disk, StoreOptions::default().of_member()).unwrap()
    };
    let open = |store: &DocumentStore, name: &str| {
        let path = directory.path();
        Replication::open(store, name, "a:1".into(), path, |_, _| Arc::new(NoPeers))
    };
    let first = store();
    let set = open(&first, "rs0").unwrap();
    assert!(set.member().is_none());
    let config = SetConfig::default_doc("rs0", "a:1");
    set.initiate(&config, |_| Ok(Some(0)), || Ok(())).unwrap();
    let before = set.member().unwrap();
    assert!(before.is_primary());
    let last = first.cluster_time().last();
    set.consensus().unwrap().stop();
    // Tasks of the member that end later hold the store.
    first.close().unwrap();
    drop((set, first));

    let second = store();
    let set = open(&second, "rs0").unwrap();
    assert!(!set.is_primary());
    let consensus = set.consensus().unwrap();
    consensus.lead_alone().unwrap();
    set.take_over(consensus.role().term).unwrap();
    let after = set.member().unwrap();
    assert_eq!(after.config.members, before.config.members);
    assert!(after.term > before.term);
    assert_eq!(after.config.term, Some(after.term));
    assert_eq!(after.config.settings, before.config.settings);
    assert!(after.election.unwrap().time > last);
    consensus.stop();
    second.close().unwrap();
    drop((set, second));
    let failure = open(&store(), "rs1").err().unwrap();
    assert_eq!(failure.code(), ErrorCode::InvalidReplicaSetConfig);
}

/// A restored backup has the configuration of the set that was copied, and has not taken part in consensus.
#[test]
fn a_configuration_counts_once_consensus_has_begun() {
    let members = |hosts: &[&str]| {
        let mut config = doc! {"_id": "rs0", "version": 3};
        config.push_array("members", |list| {
            for (id, host) in (0i32..).zip(hosts) {
                list.push(&doc! {"_id": id, "host": *host});
            }
        });
        SetConfig::parse(&config).unwrap()
    };
    for (hosts, name, goes_on) in [
        (&["a:1"][..], "rs0", true),
        (&["a:1"], "rs1", false),
        (&["a:1", "b:1", "c:1"], "rs0", false),
        (&["a:1", "b:1", "c:1"], "rs1", false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let store = |options| {
            let disk = Arc::new(FsDisk::new(directory.path().to_owned(), false));
            DocumentStore::open_on_disk(disk, options).unwrap()
        };
        let alone = store(StoreOptions::default());
        let config = members(hosts).to_doc();
        crate::internal_collections::replace_one(&alone, CONFIG_COLLECTION, "rs0", &config)
            .unwrap();
        drop(alone);
        let of_member = store(StoreOptions::default().of_member());
        let set = Replication::open(&of_member, name, "a:1".into(), directory.path(), |_, _| {
            Arc::new(NoPeers)
        })
        .unwrap();
        assert!(set.member().is_none());
        assert_eq!(set.begin_alone().unwrap(), goes_on, "{hosts:?} {name}");
        if goes_on {
            set.take_over(set.consensus().unwrap().role().term).unwrap();
            assert_eq!(set.member().unwrap().config.version, 3);
        } else {
            let new = SetConfig::default_doc(name, "d:1");
            set.initiate(&new, |_| Ok(Some(0)), || Ok(())).unwrap();
        }
        let member = set.member().unwrap();
        assert!(member.is_primary());
        assert_eq!(member.config.name, name);
        assert_eq!(member.config.members.len(), 1);
        let count = crate::internal_collections::find_one(
            &of_member,
            CONFIG_COLLECTION,
            doc! {"_id": {"$ne": name}},
        );
        assert_eq!(count.unwrap(), None, "the old configuration is gone");
        set.consensus().unwrap().stop();
    }
}

/// A linearizable read does not return data that may not be durable.
#[tokio::test(flavor = "multi_thread")]
async fn a_linearizable_read_fails_if_the_journal_does() {
    let mut server = initiated();
    server.fill("c", 10);
    let level = doc! {"level": "linearizable"};
    let find = doc! {"find": "c", "batchSize": 2, "readConcern": &level};
    let reply = {
        let request = Request::new("test", &find);
        let (mut client, mut exhaust) = (server.client(), Exhaust::default());
        let Ok(mut running) = InFlight::begin(&mut client, &request, &mut exhaust) else {
            panic!("it is refused");
        };
        let Step::Wait(Wait::Durability(wait)) = running.run(None) else {
            panic!("it does not wait");
        };
        let late = Error::new(ErrorCode::MaxTimeMSExpired, "time");
        running.after_durability(wait.outcome, Some(late)).reply
    };
    assert_eq!(
        (reply.get_f64("ok"), reply.get_i32("code")),
        (Some(0.0), Some(50)),
        "{reply:?}"
    );
    assert!(!reply.contains_key("cursor"));
    assert!(server.server.clients.cursors.list().is_empty());
    let reply = server.run("test", find.clone());
    assert_eq!(server.batch(&reply, "firstBatch").len(), 2);
}

/// The newest entries of the oplog, the newest first. The writes before have waited for the journal.
fn entries(server: &mut TestServer, count: i32) -> Vec<DocBuf> {
    let find = doc! {"find": "oplog.rs", "sort": {"$natural": -1}, "limit": count};
    let reply = server.run("local", find);
    server.batch(&reply, "firstBatch")
}

/// A stream that starts at the time of a write begins with that write, whatever others write meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_write_is_that_of_its_last_entry() {
    let mut server = initiated();
    let lsid = crate::sessions::SessionId::random().to_doc();
    let transaction = doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": false};
    let mut inside =
        doc! {"insert": "c", "documents": [{"_id": 3}, {"_id": 4}], "startTransaction": true};
    inside.push_all(&transaction);
    let mut commit = doc! {"commitTransaction": 1};
    commit.push_all(&transaction);
    let index = doc! {"key": {"a": 1}, "name": "a_1"};
    for (db, command, kind) in [
        ("test", doc! {"create": "c"}, "c"),
        (
            "test",
            doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]},
            "i",
        ),
        (
            "test",
            doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}, "multi": true}]},
            "u",
        ),
        (
            "test",
            doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"a": 2}}},
            "u",
        ),
        (
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$merge": {"into": "d"}}], "cursor": {}},
            "i",
        ),
        (
            "test",
            doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
            "d",
        ),
        (
            "test",
            doc! {"createIndexes": "c", "indexes": [&index]},
            "c",
        ),
        ("test", doc! {"dropIndexes": "c", "index": "a_1"}, "c"),
        ("test", inside, ""),
        ("admin", commit, "c"),
        (
            "admin",
            doc! {"appendOplogNote": 1, "data": {"msg": "x"}},
            "n",
        ),
        (
            "admin",
            doc! {"renameCollection": "test.d", "to": "test.e"},
            "c",
        ),
        ("test", doc! {"drop": "e"}, "c"),
        ("test", doc! {"dropDatabase": 1}, "c"),
    ] {
        let reply = server.run(db, command.clone());
        if kind.is_empty() {
            continue;
        }
        let newest = entries(&mut server, 1).remove(0);
        assert_eq!(newest.get_str("op"), Some(kind), "{command:?} {newest:?}");
        let written = time(&reply, "operationTime");
        assert_eq!(written, time(&newest, "ts"), "{command:?}");
        assert!(gossiped(&reply) >= written);
        let hello = server.run("admin", doc! {"hello": 1});
        let last = hello.get_doc("lastWrite").unwrap().get_doc("opTime");
        assert_eq!(last.unwrap().get("ts"), Some(Value::Timestamp(written)));
    }
    // One that changes nothing has the time of the last entry, which other members reach.
    let last = time(&entries(&mut server, 1).remove(0), "ts");
    let nothing = doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]};
    let reply = server.run("test", nothing);
    assert_eq!(time(&reply, "operationTime"), last);
    assert_eq!(time(&entries(&mut server, 1).remove(0), "ts"), last);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_without_an_oplog_has_times_all_the_same() {
    let mut server = TestServer::with(|settings| {
        settings.replica_set = Some("rs0".into());
        settings.oplog = OplogMode::Off;
    });
    server.run("admin", doc! {"replSetInitiate": {}});
    assert!(!server.server.store.oplog().is_on());
    let insert = |id: i32| doc! {"insert": "c", "documents": [{"_id": id}]};
    let first = server.run("test", insert(1));
    let second = server.run("test", insert(2));
    assert!(time(&second, "operationTime") > time(&first, "operationTime"));
    let watch = doc! {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}};
    assert_eq!(server.code("test", watch), 40573);
}
