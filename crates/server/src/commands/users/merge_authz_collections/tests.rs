#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, doc};

use crate::testing::TestServer;

/// A server with users and roles, which are copied as `mongodump` and `mongorestore` do. Then some are changed.
fn server() -> TestServer {
    let mut server = TestServer::new();
    for db in ["a", "b"] {
        server.run(db, doc! {"createRole": "r", "roles": [], "privileges": []});
        server.run(db, doc! {"createUser": "ann", "pwd": "p", "roles": ["r"]});
    }
    for (from, to) in [("system.users", "tempusers"), ("system.roles", "temproles")] {
        let found = server.run("admin", doc! {"find": from});
        let batch = server.batch(&found, "firstBatch");
        let mut insert = doc! {"insert": to};
        insert.push_array("documents", |list| {
            batch.iter().for_each(|found| list.push(found))
        });
        server.run("admin", insert);
    }
    server.run("a", doc! {"updateUser": "ann", "roles": []});
    server.run("a", doc! {"createUser": "new", "pwd": "p", "roles": []});
    server.run(
        "a",
        doc! {"createRole": "new", "roles": [], "privileges": []},
    );
    server.run("b", doc! {"dropUser": "ann"});
    server.run("b", doc! {"dropRole": "r"});
    server
}

fn merge(db: &str, drop: bool) -> DocBuf {
    doc! {
        "_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers", "tempRolesCollection": "admin.temproles",
        "drop": drop, "db": db, "writeConcern": {"w": 1},
    }
}

fn ids(server: &mut TestServer, collection: &str) -> Vec<String> {
    let found = server.run("admin", doc! {"find": collection, "sort": {"_id": 1}});
    let found = server.batch(&found, "firstBatch");
    found
        .iter()
        .map(|doc| doc.get_str("_id").unwrap().to_owned())
        .collect()
}

fn roles_of_ann(server: &mut TestServer) -> usize {
    let found = server.run(
        "admin",
        doc! {"find": "system.users", "filter": {"_id": "a.ann"}},
    );
    server.batch(&found, "firstBatch")[0]
        .get_array("roles")
        .unwrap()
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_added() {
    let mut server = server();
    let generation = server.server.clients.access.generation();
    assert_eq!(server.run("admin", merge("", false)), doc! {"ok": 1.0});
    assert_eq!(
        ids(&mut server, "system.users"),
        ["a.ann", "a.new", "b.ann"]
    );
    assert_eq!(ids(&mut server, "system.roles"), ["a.new", "a.r", "b.r"]);
    // Those that were there stay as they are.
    assert_eq!(roles_of_ann(&mut server), 0);
    assert!(server.server.clients.access.generation() > generation);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_drop_everything_is_as_in_the_dump() {
    let mut server = server();
    server.run("admin", merge("", true));
    assert_eq!(ids(&mut server, "system.users"), ["a.ann", "b.ann"]);
    assert_eq!(ids(&mut server, "system.roles"), ["a.r", "b.r"]);
    assert_eq!(roles_of_ann(&mut server), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_database_is_restored_alone() {
    let mut server = server();
    server.run("admin", merge("b", true));
    assert_eq!(
        ids(&mut server, "system.users"),
        ["a.ann", "a.new", "b.ann"]
    );
    assert_eq!(ids(&mut server, "system.roles"), ["a.new", "a.r", "b.r"]);
    assert_eq!(roles_of_ann(&mut server), 0);
    server.run("admin", merge("a", true));
    assert_eq!(ids(&mut server, "system.users"), ["a.ann", "b.ann"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_merged_is_refused() {
    let mut server = server();
    for (command, code) in [
        (doc! {"_mergeAuthzCollections": 1, "db": ""}, 2),
        (
            doc! {"_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers"},
            40414,
        ),
        (
            doc! {"_mergeAuthzCollections": 1, "db": "", "tempUsersCollection": ""},
            2,
        ),
        (
            doc! {"_mergeAuthzCollections": 1, "db": "", "tempUsersCollection": "tempusers"},
            73,
        ),
        (
            doc! {"_mergeAuthzCollections": 1, "db": "", "tempUsersCollection": "admin.tempusers", "drop": 1},
            14,
        ),
        // A collection of something else.
        (
            doc! {"_mergeAuthzCollections": 1, "db": "", "tempUsersCollection": "admin.temproles"},
            4,
        ),
    ] {
        assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
    }
    assert_eq!(server.code("a", merge("", false)), 13);
    let bad = doc! {"insert": "tempusers", "documents": [{"_id": "c.x", "user": "x", "db": "c", "roles": 1}]};
    server.run("admin", bad);
    assert_eq!(server.code("admin", merge("c", true)), 12);
}
