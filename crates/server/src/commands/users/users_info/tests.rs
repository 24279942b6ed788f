#![allow(clippy::unwrap_used)]

use frond_bson::{Doc, DocBuf, Value, doc};

use crate::testing::TestServer;

fn server() -> TestServer {
    let mut server = TestServer::new();
    let role = doc! {
        "createRole": "r", "roles": ["read"],
        "privileges": [{"resource": {"db": "a", "collection": "c"}, "actions": ["insert"]}],
        "authenticationRestrictions": [{"clientSource": ["10.0.0.1"]}],
    };
    server.run("a", role);
    let ann = doc! {
        "createUser": "ann", "pwd": "p", "roles": ["r"], "customData": {"age": 7},
        "authenticationRestrictions": [{"serverAddress": ["::1"]}],
    };
    server.run("a", ann);
    for (db, name) in [("a", "bob"), ("b", "ann")] {
        let mechanisms =
            doc! {"createUser": name, "pwd": "p", "roles": [], "mechanisms": ["SCRAM-SHA-256"]};
        server.run(db, mechanisms);
    }
    server.run("$external", doc! {"createUser": "CN=x", "roles": []});
    server
}

fn users(server: &mut TestServer, db: &str, command: DocBuf) -> Vec<DocBuf> {
    let reply = server.run(db, command);
    let users = reply.get_array("users").unwrap();
    users
        .values()
        .map(|user| user.as_doc().unwrap().to_owned())
        .collect()
}

fn ids(users: &[DocBuf]) -> Vec<&str> {
    users
        .iter()
        .map(|user| user.get_str("_id").unwrap())
        .collect()
}

fn names(doc: &Doc) -> Vec<&str> {
    doc.iter().map(|(name, _)| name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_found_in_every_way() {
    let mut server = server();
    let cases: Vec<(&str, DocBuf, &[&str])> = vec![
        ("a", doc! {"usersInfo": 1}, &["a.ann", "a.bob"]),
        ("a", doc! {"usersInfo": 1.0}, &["a.ann", "a.bob"]),
        ("c", doc! {"usersInfo": 1}, &[]),
        ("$external", doc! {"usersInfo": 1}, &["$external.CN=x"]),
        (
            "b",
            doc! {"usersInfo": {"forAllDBs": true}},
            &["$external.CN=x", "a.ann", "b.ann", "a.bob"],
        ),
        ("a", doc! {"usersInfo": "bob"}, &["a.bob"]),
        ("b", doc! {"usersInfo": "bob"}, &[]),
        (
            "b",
            doc! {"usersInfo": {"user": "bob", "db": "a"}},
            &["a.bob"],
        ),
        (
            "b",
            doc! {"usersInfo": ["ann", {"user": "ann", "db": "a"}, "nobody"]},
            &["a.ann", "b.ann"],
        ),
        ("a", doc! {"usersInfo": []}, &[]),
        (
            "a",
            doc! {"usersInfo": 1, "filter": {"mechanisms": "SCRAM-SHA-1"}},
            &["a.ann"],
        ),
        (
            "a",
            doc! {"usersInfo": {"forAllDBs": 1}, "filter": {"customData.age": {"$gt": 5}}},
            &["a.ann"],
        ),
        // A filter cannot test credentials unless they are shown.
        (
            "a",
            doc! {"usersInfo": 1, "filter": {"credentials": {"$exists": true}}},
            &[],
        ),
        (
            "a",
            doc! {"usersInfo": ["ann", "bob"], "showPrivileges": true},
            &["a.ann", "a.bob"],
        ),
        (
            "a",
            doc! {"usersInfo": ["bob", "ann", "nobody"], "showPrivileges": true},
            &["a.bob", "a.ann"],
        ),
    ];
    for (db, command, expected) in cases {
        let found = users(&mut server, db, command.clone());
        assert_eq!(ids(&found), expected, "{command:?}");
    }
    for (command, code) in [
        (doc! {"usersInfo": 0}, 2),
        (doc! {"usersInfo": true}, 2),
        (doc! {"usersInfo": {"user": "ann"}}, 2),
        (doc! {"usersInfo": {"role": "ann", "db": "a"}}, 2),
        (doc! {"usersInfo": 1, "showPrivileges": true}, 20),
        (
            doc! {"usersInfo": {"forAllDBs": true}, "showAuthenticationRestrictions": true},
            20,
        ),
        (
            doc! {"usersInfo": "ann", "showPrivileges": true, "filter": {}},
            20,
        ),
        (doc! {"usersInfo": 1, "filter": {"$bad": 1}}, 2),
        (doc! {"usersInfo": 1, "filter": 1}, 14),
        (doc! {"usersInfo": 1, "showEverything": true}, 40415),
    ] {
        assert_eq!(server.code("a", command.clone()), code, "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_shown_with_what_was_asked_for() {
    let mut server = server();
    let mut one = |command: DocBuf| users(&mut server, "a", command).remove(0);
    let ann = one(doc! {"usersInfo": "ann"});
    assert_eq!(
        names(&ann),
        [
            "_id",
            "userId",
            "user",
            "db",
            "customData",
            "roles",
            "mechanisms"
        ]
    );
    let mechanisms = doc! {"m": ["SCRAM-SHA-1", "SCRAM-SHA-256"]};
    assert_eq!(ann.get_array("mechanisms"), mechanisms.get_array("m"));
    let ann = one(doc! {"usersInfo": 1, "showCredentials": true, "showCustomData": false});
    assert_eq!(
        names(&ann),
        [
            "_id",
            "userId",
            "user",
            "db",
            "credentials",
            "roles",
            "mechanisms"
        ]
    );
    let key = ann.path("credentials.SCRAM-SHA-1.storedKey");
    assert!(matches!(key, Some(Value::String(_))));
    let ann = one(doc! {"usersInfo": "ann", "showPrivileges": true});
    assert_eq!(
        names(&ann),
        [
            "_id",
            "userId",
            "user",
            "db",
            "mechanisms",
            "customData",
            "roles",
            "inheritedRoles",
            "inheritedPrivileges",
            "inheritedAuthenticationRestrictions",
        ]
    );
    let roles = doc! {"r": [{"role": "r", "db": "a"}, {"role": "read", "db": "a"}]};
    assert_eq!(ann.get_array("inheritedRoles"), roles.get_array("r"));
    let privileges = ann.get_array("inheritedPrivileges").unwrap();
    assert!(privileges.values().any(|one| {
        let one = one.as_doc().unwrap();
        *one == *doc! {"resource": {"db": "a", "collection": "c"}, "actions": ["insert"]}
    }));
    let restrictions = doc! {"r": [[{"clientSource": ["10.0.0.1/32"]}]]};
    let inherited = ann.get_array("inheritedAuthenticationRestrictions");
    assert_eq!(inherited, restrictions.get_array("r"));
    let ann = one(
        doc! {"usersInfo": "ann", "showAuthenticationRestrictions": true, "showCustomData": false},
    );
    let restrictions = doc! {"r": [{"serverAddress": ["::1"]}]};
    assert_eq!(
        ann.get_array("authenticationRestrictions"),
        restrictions.get_array("r")
    );
    assert!(ann.get("customData").is_none() && ann.get("credentials").is_none());
    let bob = one(
        doc! {"usersInfo": "bob", "showAuthenticationRestrictions": true, "showCredentials": true},
    );
    assert_eq!(
        bob.get_array("authenticationRestrictions").unwrap().count(),
        0
    );
    assert!(bob.get_doc("credentials").is_some());
}
