//! Tests of the privileges that user and role commands need.
#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, doc};

use crate::testing::TestServer;

/// Actions on a database; on the server as a whole for `cluster`, on all databases for an empty name.
fn on(db: &str, actions: &[&str]) -> DocBuf {
    let mut out = match db {
        "cluster" => doc! {"resource": {"cluster": true}},
        db => doc! {"resource": {"db": db, "collection": ""}},
    };
    out.push_array("actions", |list| {
        actions.iter().for_each(|action| list.push(*action))
    });
    out
}

/// Runs a command as a user who may do everything. A change of users logs those out who are not stored.
fn run_as_root(server: &mut TestServer, db: &str, command: DocBuf) {
    server.log_in_as_root();
    server.run(db, command);
}

fn server() -> TestServer {
    let mut server = TestServer::with_authorization();
    for db in ["a", "admin"] {
        let privileges = on(db, &["find"]);
        run_as_root(
            &mut server,
            db,
            doc! {"createRole": "r", "roles": [], "privileges": [privileges]},
        );
        run_as_root(
            &mut server,
            db,
            doc! {"createUser": "ann", "pwd": "p", "roles": []},
        );
    }
    server
}

/// Each command with exactly what it needs; without any one of these actions it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn each_action_is_needed() {
    let mut server = server();
    let on_a = on("a", &["find"]);
    let on_b = on("b", &["find"]);
    let everywhere = doc! {"resource": {"db": "", "collection": "c"}, "actions": ["find"]};
    let restricted = doc! {"clientSource": ["::1"]};
    // A database, a command, and the actions by database.
    type Case<'a> = (&'a str, DocBuf, Vec<(&'a str, &'a str)>);
    let cases: Vec<Case<'_>> = vec![
        (
            "a",
            doc! {"createUser": "u", "pwd": "p", "roles": []},
            vec![("a", "createUser")],
        ),
        (
            "a",
            doc! {"createUser": "v", "pwd": "p", "roles": ["r", {"role": "r", "db": "admin"}], "authenticationRestrictions": [&restricted]},
            vec![
                ("a", "createUser"),
                ("a", "grantRole"),
                ("admin", "grantRole"),
                ("a", "setAuthenticationRestriction"),
            ],
        ),
        (
            "a",
            doc! {"updateUser": "ann", "pwd": "p"},
            vec![("a", "changePassword")],
        ),
        (
            "a",
            doc! {"updateUser": "ann", "mechanisms": ["SCRAM-SHA-256"]},
            vec![("a", "changePassword")],
        ),
        (
            "a",
            doc! {"updateUser": "ann", "customData": {}},
            vec![("a", "changeCustomData")],
        ),
        (
            "a",
            doc! {"updateUser": "ann", "roles": ["r"]},
            vec![("", "revokeRole"), ("a", "grantRole")],
        ),
        (
            "a",
            doc! {"updateUser": "ann", "authenticationRestrictions": []},
            vec![("a", "setAuthenticationRestriction")],
        ),
        (
            "admin",
            doc! {"updateUser": "ann", "pwd": "p"},
            vec![("admin", "changeOwnPassword")],
        ),
        (
            "admin",
            doc! {"updateUser": "ann", "customData": {}},
            vec![("admin", "changeOwnCustomData")],
        ),
        (
            "a",
            doc! {"grantRolesToUser": "ann", "roles": [{"role": "r", "db": "admin"}, "r"]},
            vec![("admin", "grantRole"), ("a", "grantRole")],
        ),
        (
            "a",
            doc! {"revokeRolesFromUser": "ann", "roles": [{"role": "r", "db": "admin"}, "r"]},
            vec![("admin", "revokeRole"), ("a", "revokeRole")],
        ),
        ("a", doc! {"usersInfo": 1}, vec![("a", "viewUser")]),
        (
            "a",
            doc! {"usersInfo": {"forAllDBs": true}},
            vec![("cluster", "viewUser")],
        ),
        (
            "a",
            doc! {"usersInfo": ["ann", {"user": "ann", "db": "b"}]},
            vec![("a", "viewUser"), ("b", "viewUser")],
        ),
        ("a", doc! {"rolesInfo": 1}, vec![("a", "viewRole")]),
        (
            "a",
            doc! {"rolesInfo": ["r", {"role": "r", "db": "b"}]},
            vec![("a", "viewRole"), ("b", "viewRole")],
        ),
        (
            "a",
            doc! {"createRole": "x", "roles": [], "privileges": []},
            vec![("a", "createRole")],
        ),
        (
            "admin",
            doc! {"createRole": "x", "roles": ["r"], "privileges": [&on_a, &on_b], "authenticationRestrictions": [&restricted]},
            vec![
                ("admin", "createRole"),
                ("admin", "grantRole"),
                ("a", "grantRole"),
                ("b", "grantRole"),
                ("admin", "setAuthenticationRestriction"),
            ],
        ),
        (
            "admin",
            doc! {"createRole": "y", "roles": [], "privileges": [&everywhere]},
            vec![("admin", "createRole"), ("admin", "grantRole")],
        ),
        (
            "a",
            doc! {"updateRole": "r", "roles": [], "privileges": [&on_a]},
            vec![("", "revokeRole"), ("a", "grantRole")],
        ),
        (
            "admin",
            doc! {"grantPrivilegesToRole": "r", "privileges": [&on_a, &everywhere]},
            vec![("a", "grantRole"), ("admin", "grantRole")],
        ),
        (
            "admin",
            doc! {"revokePrivilegesFromRole": "r", "privileges": [&on_a, &everywhere]},
            vec![("a", "revokeRole"), ("admin", "revokeRole")],
        ),
        (
            "admin",
            doc! {"grantRolesToRole": "r", "roles": [{"role": "r", "db": "a"}]},
            vec![("a", "grantRole")],
        ),
        (
            "admin",
            doc! {"revokeRolesFromRole": "r", "roles": [{"role": "r", "db": "a"}]},
            vec![("a", "revokeRole")],
        ),
        ("a", doc! {"dropUser": "ann"}, vec![("a", "dropUser")]),
        (
            "a",
            doc! {"dropAllUsersFromDatabase": 1},
            vec![("a", "dropUser")],
        ),
        ("a", doc! {"dropRole": "r"}, vec![("a", "dropRole")]),
        (
            "a",
            doc! {"dropAllRolesFromDatabase": 1},
            vec![("a", "dropRole")],
        ),
        (
            "admin",
            doc! {"invalidateUserCache": 1},
            vec![("cluster", "invalidateUserCache")],
        ),
        (
            "admin",
            doc! {"_mergeAuthzCollections": 1, "db": "", "drop": true, "tempUsersCollection": "b.users", "tempRolesCollection": "c.roles"},
            vec![
                ("", "createUser"),
                ("", "createRole"),
                ("", "grantRole"),
                ("", "revokeRole"),
                ("", "dropUser"),
                ("", "dropRole"),
                ("b", "find"),
                ("c", "find"),
            ],
        ),
    ];
    for (db, command, needed) in cases {
        let privileges = |without: Option<usize>| {
            let all = needed.iter().enumerate();
            let left = all.filter(|(at, _)| Some(*at) != without);
            left.map(|(_, (db, action))| on(db, &[action]))
                .collect::<Vec<_>>()
        };
        for (without, left_out) in needed.iter().enumerate() {
            server.log_in("ann", &privileges(Some(without)));
            let code = server.code(db, command.clone());
            assert_eq!(code, 13, "{command:?} without {left_out:?}");
        }
        server.log_in("ann", &privileges(None));
        let reply = server.reply(db, command.clone());
        assert_eq!(reply.get_f64("ok"), Some(1.0), "{command:?} {reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_sees_themselves_and_their_roles() {
    let mut server = server();
    run_as_root(
        &mut server,
        "a",
        doc! {"createRole": "top", "roles": ["r", "read"], "privileges": []},
    );
    run_as_root(
        &mut server,
        "a",
        doc! {"grantRolesToUser": "ann", "roles": ["top"]},
    );
    server.log_in_as("ann", "a");
    for command in [
        doc! {"usersInfo": "ann", "showPrivileges": true, "showCredentials": true},
        doc! {"rolesInfo": ["top", "r", "read"], "showPrivileges": true},
        doc! {"connectionStatus": 1, "showPrivileges": true},
    ] {
        server.run("a", command);
    }
    for command in [
        doc! {"usersInfo": {"user": "ann", "db": "admin"}},
        doc! {"usersInfo": ["ann", "bob"]},
        doc! {"usersInfo": 1},
        doc! {"rolesInfo": ["top", "readWrite"]},
        doc! {"rolesInfo": 1},
        doc! {"updateUser": "ann", "pwd": "other"},
        doc! {"updateUser": "ann", "customData": {}},
        doc! {"updateUser": "ann"},
    ] {
        let code = server.code("a", command.clone());
        // An update of nothing is not refused for its lack of privileges.
        let expected = if command.count() == 1 && command.contains_key("updateUser") {
            2
        } else {
            13
        };
        assert_eq!(code, expected, "{command:?}");
    }
}
