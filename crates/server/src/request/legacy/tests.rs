#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, doc};
use frond_wire::{
    Delete, Insert, OpReply, Query, Reply, Request, Update, op_delete, op_get_more, op_insert,
    op_kill_cursors, op_query, op_update,
};

use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::handle;
use crate::testing::TestServer;

/// Sends a message and returns the documents, the cursor and the flags of the reply.
fn send(server: &mut TestServer, message: &[u8]) -> Option<(Vec<DocBuf>, i64, u32, i32)> {
    let (header, request) = Request::parse(message).unwrap();
    let mut client = server.client();
    let handled = handle(&mut client, header.request_id, &request);
    let handled = block_in_place(|| Handle::current().block_on(handled));
    let reply = handled.unwrap().reply?;
    let (header, Reply::Reply(reply)) = Reply::parse(&reply).unwrap() else {
        panic!()
    };
    assert_eq!(header.response_to, 9);
    let documents = reply
        .documents
        .map(|bytes| DocBuf::from_vec(bytes.to_vec()).unwrap())
        .collect();
    Some((documents, reply.cursor_id, reply.flags, reply.starting_from))
}

fn query(namespace: &str, count: i32, body: &DocBuf) -> Vec<u8> {
    op_query(
        9,
        &Query {
            flags: 0,
            namespace,
            skip: 0,
            count,
            query: body.as_bytes(),
            projection: None,
        },
    )
}

fn command(server: &mut TestServer, body: DocBuf) -> DocBuf {
    send(server, &query("test.$cmd", -1, &body))
        .unwrap()
        .0
        .remove(0)
}

fn insert(namespace: &str, flags: u32, documents: &[DocBuf]) -> Vec<u8> {
    op_insert(
        9,
        flags,
        namespace,
        documents.iter().map(|document| document.as_bytes()),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_come_plain_and_wrapped() {
    let mut server = TestServer::new();
    assert_eq!(command(&mut server, doc! {"ping": 1}), doc! {"ok": 1.0});
    let wrapped = doc! {"$query": {"ping": 1}, "$readPreference": {"mode": "secondary"}};
    assert_eq!(command(&mut server, wrapped), doc! {"ok": 1.0});
    let unknown = command(&mut server, doc! {"nonsense": 1});
    assert_eq!(
        (unknown.get_f64("ok"), unknown.get_i32("code")),
        (Some(0.0), Some(59))
    );
    let hello = command(&mut server, doc! {"isMaster": 1});
    assert_eq!(hello.get_bool("ismaster"), Some(true));
    let running = send(&mut server, &query("admin.$cmd.sys.inprog", -1, &doc! {})).unwrap();
    assert!(running.0[0].get_array("inprog").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_is_found_again_and_paged() {
    let mut server = TestServer::new();
    let documents: Vec<DocBuf> = (0..250).map(|n| doc! {"_id": n, "a": n % 7}).collect();
    assert!(send(&mut server, &insert("test.c", 0, &documents)).is_none());
    let last = command(&mut server, doc! {"getlasterror": 1});
    assert!(last.get("err").unwrap().is_nullish());

    let all = doc! {"$query": {}, "$orderby": {"_id": 1}};
    let (first, id, flags, start) = send(&mut server, &query("test.c", 100, &all)).unwrap();
    assert_eq!(
        (first.len(), flags, start),
        (100, OpReply::AWAIT_CAPABLE, 0)
    );
    let (second, id, _, start) = send(&mut server, &op_get_more(9, "test.c", 100, id)).unwrap();
    assert_eq!((second.len(), start), (100, 100));
    let (third, end, _, start) = send(&mut server, &op_get_more(9, "test.c", 100, id)).unwrap();
    assert_eq!((third.len(), end, start), (50, 0, 200));
    let (none, _, flags, _) = send(&mut server, &op_get_more(9, "test.c", 100, id)).unwrap();
    assert_eq!((none.len(), flags & OpReply::CURSOR_NOT_FOUND), (0, 1));

    let (some, id, _, _) = send(&mut server, &query("test.c", -120, &all)).unwrap();
    assert_eq!((some.len(), id), (120, 0));
    let (one, id, _, _) = send(&mut server, &query("test.c", 1, &doc! {"a": 3})).unwrap();
    assert_eq!((one.len(), id), (1, 0));
    let (default, id, _, _) = send(&mut server, &query("test.c", 0, &doc! {})).unwrap();
    assert_eq!(default.len(), 101);
    assert!(send(&mut server, &op_kill_cursors(9, &[id])).is_none());
    assert!(server.server.clients.cursors.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_queries_say_so() {
    let mut server = TestServer::new();
    for (namespace, body, code) in [
        ("test.c", doc! {"a": {"$nonsense": 1}}, 2),
        ("test.c", doc! {"$query": {}, "$maxScan": 5}, 238),
        ("test", doc! {}, 73),
    ] {
        let (documents, id, flags, _) = send(&mut server, &query(namespace, 0, &body)).unwrap();
        assert_eq!((id, flags & OpReply::QUERY_FAILURE), (0, 2));
        assert_eq!(documents[0].get_i32("code"), Some(code), "{documents:?}");
        assert!(documents[0].get_str("$err").is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_writes_wait_for_get_last_error() {
    let mut server = TestServer::new();
    let twice = [doc! {"_id": 1}, doc! {"_id": 1}, doc! {"_id": 2}];
    send(&mut server, &insert("test.c", 0, &twice));
    for _ in 0..2 {
        let last = command(&mut server, doc! {"getlasterror": 1, "w": 1});
        assert_eq!(
            (last.get_i32("code"), last.get_f64("ok")),
            (Some(11000), Some(1.0))
        );
        assert!(last.get_str("err").unwrap().starts_with("E11000"));
    }
    assert_eq!(
        command(&mut server, doc! {"count": "c"}).get_i32("n"),
        Some(1)
    );
    send(
        &mut server,
        &insert("test.c", Insert::CONTINUE_ON_ERROR, &twice),
    );
    assert_eq!(
        command(&mut server, doc! {"getlasterror": 1}).get_i32("code"),
        Some(11000)
    );
    assert_eq!(
        command(&mut server, doc! {"count": "c"}).get_i32("n"),
        Some(2)
    );

    send(&mut server, &insert("nodot", 0, &[doc! {}]));
    assert_eq!(
        command(&mut server, doc! {"getlasterror": 1}).get_i32("code"),
        Some(73)
    );
    // A success clears it.
    send(&mut server, &insert("test.c", 0, &[doc! {"_id": 3}]));
    assert!(
        command(&mut server, doc! {"getlasterror": 1})
            .get("code")
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_and_deletes_report_what_they_did() {
    let mut server = TestServer::new();
    server.fill("c", 5);
    let update = |flags, filter: DocBuf, change: DocBuf| {
        op_update(
            9,
            &Update {
                namespace: "test.c",
                flags,
                filter: filter.as_bytes(),
                update: change.as_bytes(),
            },
        )
    };
    let cases = [
        (
            update(0, doc! {"_id": 1}, doc! {"$set": {"x": 1}}),
            doc! {"updatedExisting": true, "n": 1},
        ),
        (
            update(Update::MULTI, doc! {}, doc! {"$set": {"x": 2}}),
            doc! {"updatedExisting": true, "n": 5},
        ),
        (
            update(0, doc! {"_id": 99}, doc! {"$set": {"x": 1}}),
            doc! {"updatedExisting": false, "n": 0},
        ),
        (
            update(Update::UPSERT, doc! {"_id": 77}, doc! {"$set": {"x": 1}}),
            doc! {"updatedExisting": false, "upserted": 77, "n": 1},
        ),
        (
            op_delete(
                9,
                &Delete {
                    namespace: "test.c",
                    flags: 1,
                    filter: doc! {}.as_bytes(),
                },
            ),
            doc! {"n": 1},
        ),
        (
            op_delete(
                9,
                &Delete {
                    namespace: "test.c",
                    flags: 0,
                    filter: doc! {}.as_bytes(),
                },
            ),
            doc! {"n": 5},
        ),
    ];
    for (message, expected) in cases {
        assert!(send(&mut server, &message).is_none());
        let last = command(&mut server, doc! {"getlasterror": 1});
        for name in ["updatedExisting", "upserted", "n"] {
            assert_eq!(
                last.get(name).map(|v| v.to_owned()),
                expected.get(name).map(|v| v.to_owned()),
                "{name} {last:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn system_indexes_is_the_catalog() {
    let mut server = TestServer::new();
    let index = doc! {"ns": "test.c", "key": {"a": 1}, "name": "a_1", "unique": true};
    send(
        &mut server,
        &insert("test.system.indexes", 0, std::slice::from_ref(&index)),
    );
    assert!(
        command(&mut server, doc! {"getlasterror": 1})
            .get("code")
            .is_none()
    );
    let find = query("test.system.indexes", 0, &doc! {"ns": "test.c"});
    let (indexes, id, _, _) = send(&mut server, &find).unwrap();
    assert_eq!((indexes.len(), id), (2, 0));
    assert_eq!(indexes[1].get_str("name"), Some("a_1"));
    let find = query("test.system.namespaces", 0, &doc! {});
    let (names, _, _, _) = send(&mut server, &find).unwrap();
    let names: Vec<_> = names
        .iter()
        .map(|name| name.get_str("name").unwrap())
        .collect();
    assert_eq!(names, ["test.c", "test.c.$_id_", "test.c.$a_1"]);

    let elsewhere = doc! {"ns": "other.c", "key": {"a": 1}, "name": "a_1"};
    send(&mut server, &insert("test.system.indexes", 0, &[elsewhere]));
    assert_eq!(
        command(&mut server, doc! {"getlasterror": 1}).get_i32("code"),
        Some(2)
    );
}

/// PyMongo 2.4 to 2.9 and Java 2.10 to 2.14 aggregate without a cursor.
#[tokio::test(flavor = "multi_thread")]
async fn an_aggregation_without_a_cursor_is_answered_in_one_document() {
    let mut server = TestServer::new();
    server.fill("c", 300);
    let pipeline = doc! {"pipeline": [{"$match": {"a": {"$lt": 30}}}, {"$project": {"a": 1}}]};
    let mut aggregate = doc! {"aggregate": "c"};
    aggregate.push_all(&pipeline);
    let expected = doc! {
        "result": [{"_id": 0, "a": 0}, {"_id": 1, "a": 10}, {"_id": 2, "a": 20}], "ok": 1.0,
    };
    assert_eq!(command(&mut server, aggregate.clone()), expected);
    let wrapped = doc! {"$query": &aggregate, "$readPreference": {"mode": "nearest"}};
    assert_eq!(command(&mut server, wrapped), expected);
    // All of it, however many documents there are, and nothing behind $out.
    let all = command(&mut server, doc! {"aggregate": "c", "pipeline": []});
    assert_eq!(all.get_array("result").unwrap().count(), 300);
    let out = command(
        &mut server,
        doc! {"aggregate": "c", "pipeline": [{"$out": "o"}]},
    );
    assert_eq!(out, doc! {"result": [], "ok": 1.0});
    assert_eq!(
        command(&mut server, doc! {"count": "o"}).get_i32("n"),
        Some(300)
    );
    // A request with `cursor` gets a cursor, and one with `explain` a plan.
    let mut with_cursor = aggregate.clone();
    with_cursor.push("cursor", &doc! {});
    assert!(
        command(&mut server, with_cursor)
            .get_doc("cursor")
            .is_some()
    );
    let mut explained = aggregate.clone();
    explained.push("explain", true);
    assert!(
        command(&mut server, explained)
            .get_array("stages")
            .is_some()
    );
    // In OP_MSG it is the error of today's MongoDB.
    assert_eq!(server.code("test", aggregate), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aggregation_without_a_cursor_fails_beyond_16_mib() {
    let mut server = TestServer::new();
    let large = "x".repeat(1 << 20);
    for n in 0..17 {
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"_id": n, "x": &large}]},
        );
    }
    let too_many = command(&mut server, doc! {"aggregate": "c", "pipeline": []});
    assert_eq!(too_many.get_i32("code"), Some(16389), "{too_many:?}");
    let limited = doc! {"aggregate": "c", "pipeline": [{"$limit": 15}]};
    let found = command(&mut server, limited);
    assert_eq!(found.get_array("result").unwrap().count(), 15);
}

/// The shell of MongoDB 3.0.
#[tokio::test(flavor = "multi_thread")]
async fn a_find_with_options_is_explained() {
    let mut server = TestServer::new();
    server.fill("c", 3);
    let explain = |options: DocBuf| {
        let find = doc! {"find": "c", "filter": {"a": 10}, "options": options};
        doc! {"explain": find, "verbosity": "executionStats"}
    };
    for options in [
        doc! {},
        doc! {"slaveOk": true, "comment": "x", "maxTimeMS": 1000, "snapshot": true},
    ] {
        let reply = command(&mut server, explain(options));
        let stats = reply.get_doc("executionStats").unwrap();
        assert_eq!(stats.get_i64("nReturned"), Some(1), "{reply:?}");
    }
    let unsupported = command(&mut server, explain(doc! {"maxScan": 5}));
    assert_eq!(unsupported.get_i32("code"), Some(238));
    assert_eq!(server.code("test", explain(doc! {})), 40415);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pseudo_collection_that_unlocks_names_its_command() {
    let mut server = TestServer::new();
    let unlocked = send(&mut server, &query("admin.$cmd.sys.unlock", -1, &doc! {})).unwrap();
    assert_eq!(
        unlocked.0[0].get_str("errmsg"),
        Some("fsyncUnlock called when not locked")
    );
}

/// Mongodump and drivers of before MongoDB 4.0 ask for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_what_every_find_reads() {
    let mut server = TestServer::new();
    server.fill("c", 3);
    let wrapped = doc! {"$query": {}, "$snapshot": true};
    let (found, ..) = send(&mut server, &query("test.c", 0, &wrapped)).unwrap();
    assert_eq!(found.len(), 3);
    let reply = command(&mut server, doc! {"find": "c", "snapshot": true});
    let batch = reply.get_doc("cursor").unwrap().get_array("firstBatch");
    assert_eq!(batch.unwrap().count(), 3, "{reply:?}");
}

/// Legacy opcodes pass the same gate as commands, and getLastError reports the writes that were refused.
#[tokio::test(flavor = "multi_thread")]
async fn every_opcode_needs_privileges() {
    let mut server = TestServer::with_authorization();
    server.log_in_as_root();
    server.fill("c", 5);
    let on = || doc! {"db": "test", "collection": "c"};
    let (filter, change) = (doc! {}, doc! {"$set": {"a": 1}});
    let update = op_update(
        9,
        &Update {
            flags: Update::UPSERT,
            namespace: "test.c",
            filter: filter.as_bytes(),
            update: change.as_bytes(),
        },
    );
    let delete = op_delete(
        9,
        &Delete {
            flags: 0,
            namespace: "test.c",
            filter: filter.as_bytes(),
        },
    );
    let index = doc! {"ns": "test.c", "key": {"a": 1}, "name": "a"};
    let writes = [
        insert("test.c", 0, &[doc! {"x": 1}]),
        update,
        delete,
        insert("test.system.indexes", 0, &[index]),
    ];
    let reads = [
        ("test.c", doc! {}),
        ("test.c", doc! {"$query": {}, "$explain": true}),
        ("test.system.indexes", doc! {}),
        ("test.system.namespaces", doc! {}),
    ];
    let admin = ["$cmd.sys.inprog", "$cmd.sys.killop", "$cmd.sys.unlock"];
    let refuses_all = |server: &mut TestServer, reads: &[(&str, DocBuf)]| {
        for write in &writes {
            assert!(send(server, write).is_none());
            let error = server.run("test", doc! {"getLastError": 1});
            assert_eq!(error.get_i32("code"), Some(13), "{error:?}");
        }
        for (namespace, body) in reads {
            let (documents, cursor, flags, _) = send(server, &query(namespace, 0, body)).unwrap();
            assert_eq!(
                (cursor, flags & OpReply::QUERY_FAILURE),
                (0, OpReply::QUERY_FAILURE)
            );
            assert_eq!(documents[0].get_i32("code"), Some(13), "{namespace}");
        }
        for name in admin {
            let body = if name.ends_with("unlock") {
                doc! {}
            } else {
                doc! {"op": 1}
            };
            let reply = send(server, &query(&format!("admin.{name}"), -1, &body)).unwrap();
            let code = reply.0[0].get_i32("code");
            // An operation that has ended needs no privilege, only a login.
            let has_ended = name.ends_with("killop") && server.state.identity.is_some();
            let expected = (!has_ended).then_some(13);
            assert_eq!(code, expected, "{name}");
        }
        let reply = command(server, doc! {"count": "d"});
        assert_eq!(reply.get_i32("code"), Some(13));
    };
    server.state.identity = None;
    refuses_all(&mut server, &reads);
    server.log_in_with("ann", on(), &["find"]);
    refuses_all(&mut server, &reads[2..]);
    let (documents, id, ..) = send(&mut server, &query("test.c", 2, &doc! {})).unwrap();
    assert_eq!(documents.len(), 2);
    // The cursor is hers.
    server.log_in_with("bob", on(), &["find"]);
    let more = op_get_more(9, "test.c", 1, id);
    let failed = send(&mut server, &more).unwrap();
    assert_eq!(failed.0[0].get_i32("code"), Some(13));
    assert!(send(&mut server, &op_kill_cursors(9, &[id])).is_none());
    server.log_in_with("ann", on(), &["find"]);
    assert_eq!(send(&mut server, &more).unwrap().0.len(), 1);
    assert!(send(&mut server, &op_kill_cursors(9, &[id])).is_none());
    let flags = send(&mut server, &more).unwrap().2;
    assert_eq!(flags & OpReply::CURSOR_NOT_FOUND, OpReply::CURSOR_NOT_FOUND);
    server.log_in_as_root();
    let count = server.run("test", doc! {"count": "c"});
    assert_eq!(count.get_i32("n"), Some(5));
    let reply = send(&mut server, &query("test.system.namespaces", 0, &doc! {})).unwrap();
    assert!(!reply.0.is_empty());
}
