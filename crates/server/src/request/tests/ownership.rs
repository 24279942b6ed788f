//! Tests of what belongs to one user: sessions, transactions, operations, listed databases.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use frond_bson::{DocBuf, Value, doc};

use crate::connection::Peer;
use crate::operation::Exhaust;
use crate::sessions::{SessionId, SessionOwner};
use crate::testing::{TestServer, on_connection_of};

const UNAUTHORIZED: i32 = 13;

fn code(server: &mut TestServer, db: &str, command: DocBuf) -> i32 {
    server.reply(db, command).get_i32("code").unwrap_or(0)
}

fn on_c() -> DocBuf {
    doc! {"db": "test", "collection": "c"}
}

fn ann(server: &mut TestServer) {
    server.log_in_with("ann", on_c(), &["find", "insert", "update"]);
}

fn bob(server: &mut TestServer) {
    server.log_in_with("bob", on_c(), &["find", "insert", "update"]);
}

/// `command` with the session and more fields.
fn with(mut command: DocBuf, more: &DocBuf) -> DocBuf {
    command.push_all(more);
    command
}

fn sessions(server: &mut TestServer, spec: &DocBuf) -> Vec<DocBuf> {
    let command = doc! {"aggregate": 1, "pipeline": [{"$listLocalSessions": spec}], "cursor": {}};
    let reply = server.run("admin", command);
    server.batch(&reply, "firstBatch")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_its_users_own() {
    let mut server = TestServer::with_authorization();
    server.log_in_as_root();
    server.fill("c", 1);
    let lsid = SessionId::random().to_doc();
    let in_transaction = doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": false};
    let first = with(in_transaction.clone(), &doc! {"startTransaction": true});
    ann(&mut server);
    let insert = doc! {"insert": "c", "documents": [{"_id": 10}]};
    server.run("test", with(insert.clone(), &first));
    // With the same lsid it is another session.
    bob(&mut server);
    let no_such = 251;
    for command in ["commitTransaction", "abortTransaction"] {
        let mut ends = DocBuf::new();
        ends.push(command, 1);
        assert_eq!(
            code(&mut server, "admin", with(ends, &in_transaction)),
            no_such
        );
    }
    let find = doc! {"find": "c", "filter": {"_id": 10}};
    assert_eq!(
        code(&mut server, "test", with(find, &in_transaction)),
        no_such
    );
    for command in ["endSessions", "killSessions", "refreshSessions"] {
        let mut ends = DocBuf::new();
        ends.push_array(command, |list| list.push(&lsid));
        server.run("admin", ends);
    }
    // A refused statement does not abort it.
    ann(&mut server);
    let refused = doc! {"insert": "d", "documents": [{"_id": 10}]};
    assert_eq!(
        code(&mut server, "test", with(refused, &in_transaction)),
        UNAUTHORIZED
    );
    server.run(
        "admin",
        with(doc! {"commitTransaction": 1}, &in_transaction),
    );
    let found = server.run("test", doc! {"count": "c"});
    assert_eq!(found.get_i32("n"), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retryable_write_is_its_users_own() {
    let mut server = TestServer::with_authorization();
    let lsid = SessionId::random().to_doc();
    let write = doc! {"lsid": &lsid, "txnNumber": 5i64};
    let insert = |id: i32| doc! {"insert": "c", "documents": [{"_id": id}]};
    ann(&mut server);
    server.run("test", with(insert(1), &write));
    server.run("test", with(insert(1), &write));
    // A user does not get the result of another user's statement.
    bob(&mut server);
    server.run("test", with(insert(2), &write));
    let found = server.run("test", doc! {"count": "c"});
    assert_eq!(found.get_i32("n"), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_and_end_their_own_sessions() {
    let mut server = TestServer::with_authorization();
    let id = SessionId::random();
    let lsid = id.to_doc();
    ann(&mut server);
    let name = server.state.identity.as_ref().unwrap().name.clone();
    let of_ann = id.owned_by(SessionOwner::for_user(&name));
    server.run("test", doc! {"find": "c", "lsid": &lsid});
    let started = server.run("test", doc! {"startSession": 1});
    assert!(!started.get_doc("id").unwrap().contains_key("uid"));
    assert_eq!(sessions(&mut server, &doc! {}).len(), 2);
    bob(&mut server);
    assert_eq!(sessions(&mut server, &doc! {}).len(), 0);
    let spec = doc! {"users": [{"user": "ann", "db": "admin"}]};
    let list = |spec: &DocBuf| {
        doc! {"aggregate": 1, "pipeline": [{"$listLocalSessions": spec}], "cursor": {}}
    };
    for spec in [&spec, &doc! {"allUsers": true}] {
        assert_eq!(code(&mut server, "admin", list(spec)), UNAUTHORIZED);
    }
    // The digest of another user needs privileges.
    let hers = of_ann.to_doc();
    let find = doc! {"find": "c", "lsid": &hers};
    assert_eq!(code(&mut server, "test", find.clone()), UNAUTHORIZED);
    let kill = doc! {"killSessions": [&hers]};
    assert_eq!(code(&mut server, "admin", kill.clone()), UNAUTHORIZED);
    let end = doc! {"endSessions": [&hers]};
    assert_eq!(code(&mut server, "admin", end), UNAUTHORIZED);
    ann(&mut server);
    server.run("test", find.clone());
    let opened = server.run("test", doc! {"find": "c", "lsid": &lsid});
    assert_eq!(opened.get_f64("ok"), Some(1.0));
    server.log_in_as_root();
    assert_eq!(sessions(&mut server, &spec).len(), 2);
    assert_eq!(sessions(&mut server, &doc! {"allUsers": true}).len(), 2);
    server.run("test", find);
    server.run("admin", kill);
}

/// The cursors of a user's sessions are closed by `killAllSessions` and by patterns.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_some_users_are_killed() {
    let mut server = TestServer::with_authorization();
    server.log_in_as_root();
    server.fill("c", 10);
    let lsid = SessionId::random().to_doc();
    let find = doc! {"find": "c", "batchSize": 1, "lsid": &lsid};
    let open = |server: &mut TestServer| {
        ann(server);
        server.run("test", find.clone());
        bob(server);
        server.run("test", find.clone());
        let kill = doc! {"killAllSessions": []};
        assert_eq!(code(server, "admin", kill), UNAUTHORIZED);
        server.log_in_as_root();
    };
    let users = |server: &TestServer| {
        let list = server.server.clients.cursors.list();
        let owner =
            |cursor: &crate::cursors::CursorInfo| cursor.owner.as_ref().unwrap().user.name.clone();
        let mut users: Vec<String> = list.iter().map(owner).collect();
        users.sort();
        users
    };
    let uid = SessionOwner::for_user(&frond_auth::UserName::new("bob", "admin"));
    let his = SessionId::random().owned_by(uid).to_doc();
    let uid = his.get("uid").unwrap();
    for (command, left) in [
        (
            doc! {"killAllSessions": [{"user": "ann", "db": "admin"}]},
            vec!["bob"],
        ),
        (
            doc! {"killAllSessions": [{"user": "ann", "db": "test"}]},
            vec!["ann", "bob"],
        ),
        (
            doc! {"killAllSessionsByPattern": [{"uid": uid}]},
            vec!["ann"],
        ),
        (doc! {"killAllSessionsByPattern": []}, vec![]),
    ] {
        open(&mut server);
        assert_eq!(users(&server), ["ann", "bob"]);
        server.run("admin", command.clone());
        assert_eq!(users(&server), left, "{command:?}");
        server.run("admin", doc! {"killAllSessions": []});
        assert!(users(&server).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_have_no_owner_without_authorization() {
    let mut server = TestServer::new();
    let lsid = SessionId::random().to_doc();
    let write = |id: i32| {
        doc! {"insert": "c", "documents": [{"_id": id}], "lsid": &lsid, "txnNumber": 1i64}
    };
    ann(&mut server);
    server.run("test", write(1));
    bob(&mut server);
    server.run("test", write(2));
    // It is a retry.
    let found = server.run("test", doc! {"count": "c"});
    assert_eq!(found.get_i32("n"), Some(1));
    assert_eq!(sessions(&mut server, &doc! {}).len(), 1);
}

/// A client that is not logged in cannot fill the table of sessions.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_have_no_sessions() {
    let mut server = TestServer::with_authorization();
    server.run(
        "admin",
        doc! {"ping": 1, "lsid": SessionId::random().to_doc()},
    );
    assert_eq!(server.server.clients.sessions.len(), 0);
    ann(&mut server);
    server.run(
        "admin",
        doc! {"ping": 1, "lsid": SessionId::random().to_doc()},
    );
    assert_eq!(server.server.clients.sessions.len(), 1);
}

/// A second connection that runs an operation for its user.
fn busy(server: &TestServer, user: &mut TestServer) -> (Arc<crate::connection::Connection>, i64) {
    let connections = &server.server.clients.connections;
    let connection = connections.open(Peer::Unix, 10, Arc::default()).unwrap();
    *connection.identity.lock() = user.state.identity.clone();
    let id = connections.operation_id();
    let mut running = connection.running.lock();
    running.active = true;
    running.id = id;
    drop(running);
    (connection, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_and_kill_their_own_operations() {
    let mut server = TestServer::with_authorization();
    let mut other = TestServer::with_authorization();
    bob(&mut other);
    let (connection, of_bob) = busy(&server, &mut other);
    ann(&mut other);
    let (_, of_ann) = busy(&server, &mut other);
    let was_killed = || connection.killed.load(std::sync::atomic::Ordering::Relaxed);
    ann(&mut server);
    let shown = |server: &mut TestServer, spec: DocBuf| {
        let command = doc! {"aggregate": 1, "pipeline": [
            {"$currentOp": spec}, {"$match": {"effectiveUsers.user": {"$exists": true}}},
        ], "cursor": {}};
        let reply = server.run("admin", command);
        server.batch(&reply, "firstBatch")
    };
    let names = |list: Vec<DocBuf>| -> Vec<String> {
        let name = |one: &DocBuf| {
            let user = one
                .get_array("effectiveUsers")
                .unwrap()
                .get_doc("0")
                .unwrap();
            user.get_str("user").unwrap().to_owned()
        };
        list.iter().map(name).collect()
    };
    assert_eq!(names(shown(&mut server, doc! {})), ["ann", "ann"]);
    let own = server.run("admin", doc! {"currentOp": 1, "$ownOps": true});
    assert_eq!(own.get_array("inprog").unwrap().count(), 2);
    assert_eq!(
        code(&mut server, "admin", doc! {"currentOp": 1}),
        UNAUTHORIZED
    );
    let kill = |id: i64| doc! {"killOp": 1, "op": id};
    assert_eq!(code(&mut server, "admin", kill(of_bob)), UNAUTHORIZED);
    assert_eq!(code(&mut server, "admin", kill(9999)), 0);
    assert!(!was_killed());
    assert_eq!(code(&mut server, "admin", kill(of_ann)), 0);
    server.log_in_with("eve", doc! {"cluster": true}, &["inprog", "killop"]);
    assert_eq!(
        names(shown(&mut server, doc! {"allUsers": true})),
        ["eve", "bob", "ann"]
    );
    assert_eq!(code(&mut server, "admin", kill(of_bob)), 0);
    assert!(was_killed());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_what_the_user_may_use() {
    let mut server = TestServer::with_authorization();
    server.log_in_as_root();
    for (db, name) in [("a", "c"), ("a", "d"), ("b", "c")] {
        server.run(db, doc! {"create": name});
    }
    let databases = |server: &mut TestServer, more: DocBuf| -> Vec<String> {
        let reply = server.run("admin", with(doc! {"listDatabases": 1}, &more));
        let list = reply.get_array("databases").unwrap();
        let name = |one: Value<'_>| one.as_doc().unwrap().get_str("name").unwrap().to_owned();
        list.values().map(name).collect()
    };
    let all = ["a", "admin", "b", "config", "local"];
    assert_eq!(databases(&mut server, doc! {}), all);
    assert_eq!(
        databases(&mut server, doc! {"authorizedDatabases": true}),
        all
    );
    let on_a = || doc! {"db": "a", "collection": "c"};
    server.log_in_with("ann", on_a(), &["find"]);
    let only = doc! {"authorizedDatabases": true, "nameOnly": true};
    assert_eq!(databases(&mut server, doc! {}), ["a"]);
    assert_eq!(databases(&mut server, only.clone()), ["a"]);
    let every = doc! {"listDatabases": 1, "authorizedDatabases": false};
    assert_eq!(code(&mut server, "admin", every.clone()), UNAUTHORIZED);
    let listing = |name_only: bool, own: bool| {
        doc! {"listCollections": 1, "nameOnly": name_only, "authorizedCollections": own}
    };
    for (name_only, own) in [(false, false), (true, false), (false, true)] {
        assert_eq!(
            code(&mut server, "a", listing(name_only, own)),
            UNAUTHORIZED
        );
    }
    assert_eq!(code(&mut server, "b", listing(true, true)), UNAUTHORIZED);
    let reply = server.run("a", listing(true, true));
    assert_eq!(
        server.batch(&reply, "firstBatch"),
        [doc! {"name": "c", "type": "collection"}]
    );
    server.log_in_with("eve", doc! {"cluster": true}, &["listDatabases"]);
    assert_eq!(databases(&mut server, doc! {}), all);
    assert_eq!(databases(&mut server, only), Vec::<String>::new());
    assert_eq!(code(&mut server, "admin", every), 0);
    server.log_in_with(
        "ann",
        doc! {"db": "a", "collection": ""},
        &["listCollections"],
    );
    let reply = server.run("a", listing(false, false));
    assert_eq!(server.batch(&reply, "firstBatch").len(), 2);
}

/// A change stream ends when its user may not watch any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_checked_with_each_batch() {
    let mut server = TestServer::with(|settings| {
        settings.security.authorization = true;
        settings.oplog = crate::settings::OplogMode::On;
    });
    let watch = doc! {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}};
    server.log_in_with("ann", on_c(), &["find"]);
    assert_eq!(code(&mut server, "test", watch.clone()), UNAUTHORIZED);
    server.log_in_with("ann", on_c(), &["changeStream"]);
    assert_eq!(code(&mut server, "test", watch.clone()), UNAUTHORIZED);

    server.log_in_as_root();
    let privileges = |actions: &[&str]| {
        let mut privilege = doc! {"resource": &on_c()};
        privilege.push_array("actions", |list| {
            actions.iter().for_each(|action| list.push(*action));
        });
        privilege
    };
    let both = privileges(&["changeStream", "find"]);
    let role = doc! {"createRole": "reader", "privileges": [&both], "roles": []};
    server.run("test", role);
    server.log_in_as_root();
    server.run(
        "test",
        doc! {"createUser": "ann", "pwd": "p", "roles": ["reader"]},
    );
    server.log_in_as_root();
    let root = server.state.identity.clone();
    server.log_in_as("ann", "test");
    let reply = server.run("test", watch);
    let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! {"getMore": id, "collection": "c", "maxTimeMS": 60_000};
    // It waits for events when the privilege is revoked.
    let other = server.server.clone();
    let mut update = doc! {"updateRole": "reader"};
    update.push_array("privileges", |list| list.push(&privileges(&["find"])));
    let mut waits = 0;
    let refused = server.answer_after("test", &more, &mut Exhaust::default(), |_| {
        waits += 1;
        let reply = on_connection_of(&other, root.clone(), "test", &update);
        assert_eq!(reply.get_f64("ok"), Some(1.0), "{reply:?}");
    });
    assert_eq!(waits, 1);
    assert_eq!(refused.reply.get_i32("code"), Some(UNAUTHORIZED));
    server.log_in_with("ann", on_c(), &["changeStream", "find"]);
    assert_eq!(code(&mut server, "test", more), 43);
}

/// A client that is not allowed to cannot move the server's clock.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_time_is_advanced_with_a_privilege_only() {
    let mut server = TestServer::with(|settings| {
        settings.security.authorization = true;
        settings.replica_set = Some("rs".into());
    });
    server.log_in_as_root();
    server.run("admin", doc! {"replSetInitiate": {}});
    let ahead = |server: &TestServer| {
        let mut time = server.server.store.cluster_time().last();
        time.time += 1000;
        time
    };
    let gossip = |server: &mut TestServer| {
        let time = ahead(server);
        server.run(
            "admin",
            doc! {"ping": 1, "$clusterTime": {"clusterTime": time}},
        );
        server.server.store.cluster_time().last() >= time
    };
    server.state.identity = None;
    assert!(!gossip(&mut server));
    ann(&mut server);
    assert!(!gossip(&mut server));
    server.log_in_with("eve", doc! {"cluster": true}, &["advanceClusterTime"]);
    assert!(gossip(&mut server));
}

/// The cursor of a getMore that waits is closed when its user is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_user_is_gone_is_closed() {
    let mut server = TestServer::with(|settings| {
        settings.security.authorization = true;
        settings.logins.localhost_bypass = false;
        settings.oplog = crate::settings::OplogMode::On;
    });
    let watch = doc! {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}};
    server.log_in_with("ann", on_c(), &["changeStream", "find"]);
    let reply = server.run("test", watch);
    let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! {"getMore": id, "collection": "c", "maxTimeMS": 60_000};
    let other = server.server.clone();
    let mut waits = 0;
    let refused = server.answer_after("test", &more, &mut Exhaust::default(), |_| {
        waits += 1;
        // There is no such user in the store.
        other.clients.access.invalidate();
    });
    assert_eq!(waits, 1);
    assert_eq!(refused.reply.get_i32("code"), Some(UNAUTHORIZED));
    assert!(server.server.clients.cursors.list().is_empty());
}
