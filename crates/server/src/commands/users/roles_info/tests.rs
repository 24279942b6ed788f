#![allow(clippy::unwrap_used)]

use frond_bson::{Doc, DocBuf, doc};

use crate::testing::TestServer;

fn server() -> TestServer {
    let mut server = TestServer::new();
    let base = doc! {
        "createRole": "base", "roles": ["read"], "privileges": [],
        "authenticationRestrictions": [{"clientSource": ["10.0.0.1"]}],
    };
    server.run("a", base);
    let top = doc! {
        "createRole": "top", "roles": ["base"],
        "privileges": [{"resource": {"db": "a", "collection": "c"}, "actions": ["insert"]}],
        "authenticationRestrictions": [{"serverAddress": ["::1"]}],
    };
    server.run("a", top);
    server.run(
        "b",
        doc! {"createRole": "other", "roles": [], "privileges": []},
    );
    server
}

fn roles(server: &mut TestServer, db: &str, command: DocBuf) -> Vec<DocBuf> {
    let reply = server.run(db, command);
    let roles = reply.get_array("roles").unwrap();
    roles
        .values()
        .map(|role| role.as_doc().unwrap().to_owned())
        .collect()
}

fn names(doc: &Doc) -> Vec<&str> {
    doc.iter().map(|(name, _)| name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_found_in_every_way() {
    let mut server = server();
    let cases: Vec<(&str, DocBuf, &[&str])> = vec![
        ("a", doc! {"rolesInfo": 1}, &["base", "top"]),
        ("c", doc! {"rolesInfo": 1}, &[]),
        (
            "c",
            doc! {"rolesInfo": 1, "showBuiltinRoles": true},
            &[
                "read",
                "readWrite",
                "dbAdmin",
                "dbOwner",
                "userAdmin",
                "enableSharding",
            ],
        ),
        ("a", doc! {"rolesInfo": "top"}, &["top"]),
        ("b", doc! {"rolesInfo": "top"}, &[]),
        (
            "b",
            doc! {"rolesInfo": ["other", {"role": "top", "db": "a"}, "readWrite", "nothing"]},
            &["other", "top", "readWrite"],
        ),
        ("b", doc! {"rolesInfo": "root"}, &[]),
        ("admin", doc! {"rolesInfo": "root"}, &["root"]),
    ];
    for (db, command, expected) in cases {
        let found = roles(&mut server, db, command.clone());
        let found: Vec<_> = found
            .iter()
            .map(|role| role.get_str("role").unwrap())
            .collect();
        assert_eq!(found, expected, "{command:?}");
    }
    let in_admin = roles(
        &mut server,
        "admin",
        doc! {"rolesInfo": 1, "showBuiltinRoles": true},
    );
    assert_eq!(in_admin.len(), 21);
    for (command, code) in [
        (doc! {"rolesInfo": 0}, 2),
        (doc! {"rolesInfo": {"forAllDBs": true}}, 2),
        (doc! {"rolesInfo": {"user": "top", "db": "a"}}, 2),
        (
            doc! {"rolesInfo": 1, "showPrivileges": "asUserFragment"},
            20,
        ),
        (doc! {"rolesInfo": 1, "showPrivileges": "yes"}, 2),
        (doc! {"rolesInfo": 1, "other": true}, 40415),
    ] {
        assert_eq!(server.code("a", command.clone()), code, "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_shown_with_what_was_asked_for() {
    let mut server = server();
    let mut one = |command: DocBuf| roles(&mut server, "a", command).remove(0);
    let expected = doc! {
        "_id": "a.top", "role": "top", "db": "a", "roles": [{"role": "base", "db": "a"}], "isBuiltin": false,
        "inheritedRoles": [{"role": "base", "db": "a"}, {"role": "read", "db": "a"}],
    };
    assert_eq!(one(doc! {"rolesInfo": "top"}), expected);
    let top = one(
        doc! {"rolesInfo": "top", "showPrivileges": true, "showAuthenticationRestrictions": true},
    );
    assert_eq!(
        names(&top),
        [
            "_id",
            "role",
            "db",
            "privileges",
            "roles",
            "authenticationRestrictions",
            "isBuiltin",
            "inheritedRoles",
            "inheritedPrivileges",
            "inheritedAuthenticationRestrictions",
        ]
    );
    let own = doc! {"resource": {"db": "a", "collection": "c"}, "actions": ["insert"]};
    assert_eq!(top.get_array("privileges").unwrap().count(), 1);
    let inherited = top.get_array("inheritedPrivileges").unwrap();
    assert_eq!(inherited.values().next().unwrap().as_doc(), Some(&*own));
    // Those of `read`: on the database, and on `system.js`.
    assert_eq!(inherited.count(), 3);
    let restrictions =
        doc! {"r": [[{"serverAddress": ["::1/128"]}], [{"clientSource": ["10.0.0.1/32"]}]]};
    let found = top.get_array("inheritedAuthenticationRestrictions");
    assert_eq!(found, restrictions.get_array("r"));
    let read = one(doc! {"rolesInfo": "read", "showPrivileges": true});
    assert_eq!(
        names(&read),
        [
            "role",
            "db",
            "isBuiltin",
            "roles",
            "inheritedRoles",
            "privileges",
            "inheritedPrivileges"
        ]
    );
    assert_eq!(read.get_bool("isBuiltin"), Some(true));
    let privileges = read.get_array("privileges").unwrap();
    let on_database = privileges.values().next().unwrap();
    let actions = on_database.as_doc().unwrap().get_array("actions").unwrap();
    assert_eq!(actions.count(), 10);
    let command = doc! {"rolesInfo": ["top", "nothing"], "showPrivileges": "asUserFragment", "showAuthenticationRestrictions": true};
    let reply = server.run("a", command);
    let fragment = reply.get_doc("userFragment").unwrap();
    assert_eq!(
        names(fragment),
        [
            "roles",
            "inheritedRoles",
            "inheritedPrivileges",
            "inheritedAuthenticationRestrictions"
        ]
    );
    assert_eq!(fragment.get_array("roles").unwrap().count(), 2);
}
