//! Tests with users of single privileges.

#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, doc};

use crate::commands::{COMMANDS, requires_login};
use crate::observability::metrics::Op;
use crate::testing::TestServer;

const UNAUTHORIZED: i32 = 13;

/// The code of a reply; 0 for success.
fn code(server: &mut TestServer, db: &str, command: DocBuf) -> i32 {
    server.reply(db, command).get_i32("code").unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_may_do_anything_without_a_login() {
    let mut server = TestServer::with_authorization();
    for (index, command) in COMMANDS.iter().enumerate() {
        let name = command.spec().name();
        let mut body = DocBuf::new();
        body.push(name, 1);
        server.state.last_error.reset();
        let reply = server.reply("admin", body);
        if requires_login(&server.server, index) {
            assert_eq!(reply.get_i32("code"), Some(UNAUTHORIZED), "{name}");
            let expected = format!("Command {name} requires authentication");
            assert_eq!(reply.get_str("errmsg"), Some(&*expected));
        } else {
            assert_ne!(reply.get_i32("code"), Some(UNAUTHORIZED), "{name}");
        }
    }
    assert_eq!(code(&mut server, "test", doc! {"nonsense": 1}), 59);
    // The fields are not looked at.
    let reply = server.reply("test", doc! {"find": "c", "nonsense": 1, "help": true});
    assert_eq!(reply.get_i32("code"), Some(UNAUTHORIZED));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_command_is_named_counted_and_without_effect() {
    let mut server = TestServer::with_authorization();
    server.log_in_with("ann", doc! {"db": "test", "collection": "c"}, &["find"]);
    let insert = doc! {"insert": "c", "documents": [{"_id": 1}]};
    let reply = server.reply("test", insert);
    assert_eq!(
        reply.get_str("errmsg").unwrap(),
        r#"not authorized on test to execute command {"insert":"c","documents":[{"_id":1}]}"#
    );
    assert_eq!(reply.get_i32("code"), Some(UNAUTHORIZED));
    assert_eq!(reply.get_str("codeName"), Some("Unauthorized"));
    let error = server.run("test", doc! {"getLastError": 1});
    assert_eq!(error.get_i32("code"), Some(UNAUTHORIZED));
    let found = server.run("test", doc! {"count": "c"});
    assert_eq!(found.get_i32("n"), Some(0));
    server.log_in_as_root();
    let status = server.run("admin", doc! {"serverStatus": 1});
    let metrics = status.get_doc("metrics").unwrap();
    let refused = metrics.get_doc("authorization").unwrap();
    assert_eq!(refused.get_i64("refused"), Some(1));
    let failed = metrics
        .get_doc("commands")
        .unwrap()
        .get_doc("insert")
        .unwrap();
    assert_eq!(failed.get_i64("failed"), Some(1));
}

/// Each command once with the privilege that it needs, and with every other one on the same resource.
#[tokio::test(flavor = "multi_thread")]
async fn one_privilege_opens_one_command() {
    let on = |collection: &str| doc! {"db": "test", "collection": collection};
    let cluster = || doc! {"cluster": true};
    let table: Vec<(DocBuf, &str, DocBuf)> = vec![
        (on("c"), "find", doc! {"find": "c"}),
        (on("c"), "find", doc! {"count": "c"}),
        (on("c"), "find", doc! {"distinct": "c", "key": "a"}),
        (on("c"), "insert", doc! {"insert": "c", "documents": [{}]}),
        (
            on("c"),
            "update",
            doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
        ),
        (
            on("c"),
            "remove",
            doc! {"delete": "c", "deletes": [{"q": {}, "limit": 1}]},
        ),
        (on("c"), "collStats", doc! {"collStats": "c"}),
        (on("c"), "validate", doc! {"validate": "c"}),
        (on("c"), "listIndexes", doc! {"listIndexes": "c"}),
        (
            on("c"),
            "createIndex",
            doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]},
        ),
        (
            on("c"),
            "dropIndex",
            doc! {"dropIndexes": "c", "index": "*"},
        ),
        (on("c"), "collMod", doc! {"collMod": "c"}),
        (
            on("c"),
            "indexStats",
            doc! {"aggregate": "c", "pipeline": [{"$indexStats": {}}], "cursor": {}},
        ),
        (on("d"), "createCollection", doc! {"create": "d"}),
        (on("d"), "dropCollection", doc! {"drop": "d"}),
        (on(""), "dbStats", doc! {"dbStats": 1}),
        (on(""), "listCollections", doc! {"listCollections": 1}),
        (on(""), "dropDatabase", doc! {"dropDatabase": 1}),
        (cluster(), "inprog", doc! {"currentOp": 1}),
        (cluster(), "serverStatus", doc! {"serverStatus": 1}),
        (cluster(), "getLog", doc! {"getLog": "global"}),
        (cluster(), "hostInfo", doc! {"hostInfo": 1}),
        (cluster(), "getParameter", doc! {"getParameter": "*"}),
    ];
    let actions: Vec<&str> = table.iter().map(|(_, action, _)| *action).collect();
    for (resource, action, command) in &table {
        let db = if resource.contains_key("cluster") {
            "admin"
        } else {
            "test"
        };
        let mut server = TestServer::with_authorization();
        server.log_in_as_root();
        server.run("test", doc! {"insert": "c", "documents": [{"_id": 1}]});
        for other in actions.iter().filter(|other| *other != action) {
            // An insert may create the collection.
            if (*action, *other) == ("createCollection", "insert") {
                continue;
            }
            server.log_in_with("ann", resource.clone(), &[*other]);
            assert_eq!(
                code(&mut server, db, command.clone()),
                UNAUTHORIZED,
                "{command:?} {other}"
            );
        }
        server.log_in_with("ann", resource.clone(), &[*action]);
        assert_eq!(code(&mut server, db, command.clone()), 0, "{command:?}");
        server.log_in_with("ann", doc! {"db": "other", "collection": ""}, &[*action]);
        assert_eq!(
            code(&mut server, db, command.clone()),
            UNAUTHORIZED,
            "{command:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_its_users_own() {
    let mut server = TestServer::with_authorization();
    server.log_in_as_root();
    server.fill("c", 10);
    let on = || doc! {"db": "test", "collection": "c"};
    let open = |server: &mut TestServer| {
        let reply = server.run("test", doc! {"find": "c", "batchSize": 2});
        reply.get_doc("cursor").unwrap().get_i64("id").unwrap()
    };
    let more = |id: i64| doc! {"getMore": id, "collection": "c", "batchSize": 1};
    let kill = |id: i64| doc! {"killCursors": "c", "cursors": [id]};
    server.log_in_with("ann", on(), &["find"]);
    let id = open(&mut server);
    assert_eq!(code(&mut server, "test", more(id)), 0);
    server.log_in_with("bob", on(), &["find"]);
    let refused = server.reply("test", more(id));
    assert_eq!(
        refused.get_str("errmsg").unwrap(),
        format!("cursor id {id} was not created by the authenticated user")
    );
    assert_eq!(code(&mut server, "test", kill(id)), UNAUTHORIZED);
    // Also not together with an own one.
    let own = open(&mut server);
    let both = doc! {"killCursors": "c", "cursors": [own, id]};
    assert_eq!(code(&mut server, "test", both), UNAUTHORIZED);
    assert_eq!(code(&mut server, "test", more(own)), 0);
    assert_eq!(code(&mut server, "test", kill(own)), 0);
    assert_eq!(code(&mut server, "test", more(own)), 43);
    server.log_in_as_root();
    assert_eq!(code(&mut server, "test", more(id)), UNAUTHORIZED);
    // A user who loses the privilege loses the cursor.
    server.log_in_with("ann", on(), &["insert"]);
    assert_eq!(code(&mut server, "test", more(id)), UNAUTHORIZED);
    server.log_in_with("ann", on(), &["find"]);
    assert_eq!(code(&mut server, "test", more(id)), 0);
    for (resource, actions) in [
        (on(), ["killAnyCursor"]),
        (doc! {"cluster": true}, ["killAnyCursor"]),
    ] {
        server.log_in_with("ann", on(), &["find"]);
        let id = open(&mut server);
        server.log_in_with("bob", resource, &actions);
        let reply = server.run("test", kill(id));
        assert_eq!(reply.get_array("cursorsKilled").unwrap().count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_checked_where_authorization_is_off() {
    let mut server = TestServer::new();
    server.fill("c", 10);
    server.log_in_with("ann", doc! {"cluster": true}, &["find"]);
    let reply = server.run("test", doc! {"find": "c", "batchSize": 2});
    let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
    server.log_in_with("bob", doc! {"cluster": true}, &["find"]);
    server.run("test", doc! {"getMore": id, "collection": "c"});
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_read_without_privileges_on_its_collection() {
    let mut server = TestServer::with_authorization();
    server.log_in_as_root();
    server.fill("c", 3);
    server.run("test", doc! {"create": "v", "viewOn": "c", "pipeline": []});
    server.log_in_with("ann", doc! {"db": "test", "collection": "v"}, &["find"]);
    assert_eq!(code(&mut server, "test", doc! {"find": "v"}), 0);
    assert_eq!(code(&mut server, "test", doc! {"find": "c"}), UNAUTHORIZED);
    // A user of a view cannot make it show other collections.
    let view = doc! {"create": "w", "viewOn": "c", "pipeline": []};
    let on_w = |actions: &[&str]| {
        let mut privilege = doc! {"resource": {"db": "test", "collection": "w"}};
        privilege.push_array("actions", |list| {
            actions.iter().for_each(|one| list.push(*one))
        });
        privilege
    };
    server.log_in("ann", &[on_w(&["createCollection", "find"])]);
    assert_eq!(code(&mut server, "test", view.clone()), UNAUTHORIZED);
    server.log_in("ann", &[on_w(&["createCollection"])]);
    assert_eq!(code(&mut server, "test", view), 0);
}

/// Privileges on a database are none on its system collections.
#[tokio::test(flavor = "multi_thread")]
async fn system_collections_need_privileges_of_their_own() {
    let mut server = TestServer::with_authorization();
    server.log_in_with("ann", doc! {"db": "", "collection": ""}, &["anyAction"]);
    for (db, name) in [
        ("admin", "system.users"),
        ("admin", "system.roles"),
        ("test", "system.js"),
        ("test", "system.profile"),
        ("local", "oplog.rs"),
        ("local", "startup_log"),
        ("config", "transactions"),
        ("config", "system.sessions"),
    ] {
        let find = doc! {"find": name};
        assert_eq!(code(&mut server, db, find), UNAUTHORIZED, "{db}.{name}");
        let drop = doc! {"drop": name};
        assert_eq!(code(&mut server, db, drop), UNAUTHORIZED, "{db}.{name}");
    }
    assert_eq!(code(&mut server, "test", doc! {"find": "c"}), 0);
    server.log_in_with(
        "ann",
        doc! {"db": "admin", "collection": "system.users"},
        &["find"],
    );
    assert_eq!(code(&mut server, "admin", doc! {"find": "system.users"}), 0);
}

/// The localhost exception opens what creates the first user, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn without_users_a_client_of_this_machine_may_create_one() {
    let mut server = TestServer::with(|settings| settings.security.authorization = true);
    for (db, command) in [
        ("test", doc! {"find": "c"}),
        ("admin", doc! {"listDatabases": 1}),
        ("admin", doc! {"startSession": 1}),
        (
            "admin",
            doc! {"listCollections": 1, "nameOnly": true, "authorizedCollections": true},
        ),
        (
            "admin",
            doc! {"aggregate": 1, "pipeline": [{"$documents": []}], "cursor": {}},
        ),
        ("admin", doc! {"bulkWrite": 1, "ops": [], "nsInfo": []}),
        ("admin", doc! {"shutdown": 1}),
        (
            "test",
            doc! {"createUser": "ann", "pwd": "pencil", "roles": []},
        ),
    ] {
        let reply = server.reply(db, command.clone());
        assert_eq!(reply.get_i32("code"), Some(UNAUTHORIZED), "{command:?}");
        let (name, _) = command.first().unwrap();
        let expected = format!("Command {name} requires authentication");
        assert_eq!(reply.get_str("errmsg"), Some(&*expected));
    }
    let create = doc! {"createUser": "ann", "pwd": "pencil", "roles": ["root"]};
    server.run("admin", create);
    let another = doc! {"createUser": "bob", "pwd": "pencil", "roles": ["root"]};
    assert_eq!(code(&mut server, "admin", another), UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_clients_may_not_create_the_first_user() {
    use std::sync::Arc;
    let mut server = TestServer::with(|settings| settings.security.authorization = true);
    let remote = crate::connection::Peer::Tcp("192.0.2.1:5".parse().unwrap());
    let connection = server
        .server
        .clients
        .connections
        .open(remote, 10, Arc::default());
    server.connection = connection.unwrap();
    let create = doc! {"createUser": "ann", "pwd": "pencil", "roles": ["root"]};
    assert_eq!(code(&mut server, "admin", create), UNAUTHORIZED);
    // Without authorization, only clients of this machine stop the server.
    let mut open = TestServer::new();
    let remote = crate::connection::Peer::Tcp("192.0.2.1:5".parse().unwrap());
    open.connection = open
        .server
        .clients
        .connections
        .open(remote, 10, Arc::default())
        .unwrap();
    let reply = open.reply("admin", doc! {"shutdown": 1});
    assert_eq!(
        reply.get_str("errmsg"),
        Some("shutdown must run from localhost when running db without auth")
    );
    server.log_in_with("eve", doc! {"cluster": true}, &["shutdown"]);
    server.run("admin", doc! {"shutdown": 1});
    assert!(server.server.is_stopping());
}

/// The privileges would be checked on the first of two fields, and the last one would be used.
#[tokio::test(flavor = "multi_thread")]
async fn no_view_is_made_over_what_another_field_of_the_same_name_hides() {
    let mut server = TestServer::with_authorization();
    let any = doc! {"resource": {"db": "", "collection": ""}, "actions": ["find", "createCollection", "collMod"]};
    let cluster = doc! {"resource": {"cluster": true}, "actions": ["applyOps"]};
    server.log_in("eve", &[any, cluster]);
    let apply = |object: &DocBuf| {
        doc! {"applyOps": [{"op": "c", "ns": "admin.$cmd", "o": object}]}
    };
    let once = doc! {"create": "w", "viewOn": "x", "pipeline": []};
    assert_eq!(code(&mut server, "admin", apply(&once)), 0);
    for first in ["create", "collMod"] {
        let mut on = doc! {first: "v", "viewOn": "x", "pipeline": []};
        if first == "collMod" {
            on = doc! {first: "w", "viewOn": "x", "pipeline": []};
        }
        let mut stages = on.clone();
        on.push("viewOn", "system.users");
        let lookup = doc! {"$lookup": {"from": "system.users", "pipeline": [], "as": "a"}};
        stages.push_array("pipeline", |list| list.push(&lookup));
        for twice in [on, stages] {
            assert_eq!(
                code(&mut server, "admin", twice.clone()),
                40413,
                "{twice:?}"
            );
            assert_eq!(
                code(&mut server, "admin", apply(&twice)),
                40413,
                "{twice:?}"
            );
        }
    }
    assert_eq!(
        code(&mut server, "admin", doc! {"explain": {"find": "v"}}),
        0
    );
    let mut find = doc! {"find": "v", "filter": {}};
    find.push("filter", &doc! {"a": 1});
    assert_eq!(code(&mut server, "admin", doc! {"explain": &find}), 40413);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_counted_as_a_command_without_a_namespace() {
    let mut server = TestServer::with_authorization();
    assert_eq!(
        code(&mut server, "test", doc! {"find": "made_up"}),
        UNAUTHORIZED
    );
    let metrics = &server.server.metrics;
    let counted = [Op::Query, Op::Command].map(|op| metrics.op(op).get());
    assert_eq!(counted, [0, 1]);
    server.log_in_with("ann", doc! {"cluster": true}, &["top"]);
    assert_eq!(
        code(&mut server, "test", doc! {"find": "made_up"}),
        UNAUTHORIZED
    );
    let top = server.run("admin", doc! {"top": 1});
    assert!(!format!("{top:?}").contains("made_up"));
}

/// A command that cannot be explained is not asked for its needs: its errors may quote what it holds.
#[tokio::test(flavor = "multi_thread")]
async fn only_commands_that_can_be_explained_are_looked_at() {
    let mut server = TestServer::with_authorization();
    server.log_in("ann", &[]);
    let inner = doc! {"createUser": "a", "pwd": "pencil", "roles": ["pencil"]};
    let reply = server.reply("test", doc! {"explain": &inner});
    assert_eq!(reply.get_i32("code"), Some(59));
    assert!(!format!("{reply:?}").contains("pencil"));
}

/// A bulkWrite needs nothing on the collections that no operation uses, so it reveals nothing about them.
#[tokio::test(flavor = "multi_thread")]
async fn unused_collections_of_a_bulk_write_are_not_compared() {
    let mut server = TestServer::with_authorization();
    server.log_in_as_root();
    server.run("payroll", doc! {"create": "x"});
    let info = server.run("payroll", doc! {"listCollections": 1});
    let info = server.batch(&info, "firstBatch").remove(0);
    let uuid = info.get_doc("info").unwrap().get("uuid").unwrap();
    let on_c = doc! {"db": "test", "collection": "c"};
    server.log_in_with("ann", on_c, &["insert"]);
    let write = |place: i32| {
        doc! {
            "bulkWrite": 1, "ops": [{"insert": place, "document": {}}],
            "nsInfo": [{"ns": "test.c"}, {"ns": "payroll.y", "collectionUUID": uuid}],
        }
    };
    assert_eq!(code(&mut server, "admin", write(0)), 0);
    assert_eq!(code(&mut server, "admin", write(1)), UNAUTHORIZED);
    server.log_in_as_root();
    assert_eq!(code(&mut server, "admin", write(1)), 361);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_do_not_show_credentials() {
    let mut server = TestServer::new();
    let reply = server.run(
        "admin",
        doc! {
            "bulkWrite": 1, "nsInfo": [{"ns": "admin.tempusers"}], "cursor": {"batchSize": 1},
            "ops": [{"insert": 0, "document": {"storedKey": "pencil"}}, {"insert": 0, "document": {}}],
        },
    );
    assert_ne!(reply.get_doc("cursor").unwrap().get_i64("id"), Some(0));
    let stage = doc! {"$currentOp": {"allUsers": true, "idleCursors": true}};
    let shown = server.run(
        "admin",
        doc! {"aggregate": 1, "pipeline": [&stage], "cursor": {}},
    );
    let shown = format!("{shown:?}");
    assert!(shown.contains("bulkWrite"));
    assert!(!shown.contains("pencil"), "{shown}");
}
