//! `createRole`, and the commands that change roles.
#![allow(clippy::unwrap_used)]

use frond_auth::{Action, Target, UserName};
use frond_bson::{DocBuf, Value, doc};

use crate::testing::TestServer;

fn stored(server: &mut TestServer, id: &str) -> Option<DocBuf> {
    let found = server.run(
        "admin",
        doc! {"find": "system.roles", "filter": {"_id": id}},
    );
    server.batch(&found, "firstBatch").pop()
}

fn create(name: &str, roles: &[&str]) -> DocBuf {
    let mut command = doc! {"createRole": name, "privileges": []};
    command.push_array("roles", |list| {
        roles.iter().for_each(|role| list.push(*role))
    });
    command
}

/// A privilege on a collection of the database `a`.
fn on(collection: &str, actions: &[&str]) -> DocBuf {
    let mut out = doc! {"resource": {"db": "a", "collection": collection}};
    out.push_array("actions", |list| {
        actions.iter().for_each(|action| list.push(*action))
    });
    out
}

/// The actions of the stored privileges of a role, by collection.
fn actions(server: &mut TestServer, id: &str) -> Vec<(String, Vec<String>)> {
    let role = stored(server, id).unwrap();
    let privileges = role.get_array("privileges").unwrap();
    let mut out = Vec::new();
    for privilege in privileges.values() {
        let privilege = privilege.as_doc().unwrap();
        let collection = privilege.path("resource.collection").unwrap();
        let actions = privilege.get_array("actions").unwrap().values();
        let actions = actions.map(|action| action.as_str().unwrap().to_owned());
        out.push((collection.as_str().unwrap().to_owned(), actions.collect()));
    }
    out
}

fn expected(of: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    of.iter()
        .map(|(name, actions)| ((*name).to_owned(), owned(actions)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_stored_as_in_mongodb() {
    let mut server = TestServer::new();
    let create = doc! {
        "createRole": "r",
        "privileges": [on("c", &["insert", "find"]), on("d", &["find"]), on("c", &["remove"])],
        "roles": ["read", {"role": "dbAdmin", "db": "a"}],
        "authenticationRestrictions": [{"serverAddress": ["::1"], "clientSource": ["10.0.0.0/8"]}],
    };
    assert_eq!(server.run("a", create), doc! {"ok": 1.0});
    let expected = doc! {
        "_id": "a.r", "role": "r", "db": "a",
        "privileges": [on("c", &["find", "insert", "remove"]), on("d", &["find"])],
        "roles": [{"role": "read", "db": "a"}, {"role": "dbAdmin", "db": "a"}],
        "authenticationRestrictions": [{"clientSource": ["10.0.0.0/8"], "serverAddress": ["::1"]}],
    };
    assert_eq!(stored(&mut server, "a.r"), Some(expected));
    let anything = doc! {
        "createRole": "all", "roles": [{"role": "r", "db": "a"}, "root"],
        "privileges": [{"resource": {"anyResource": true}, "actions": ["anyAction"]}, {"resource": {"cluster": true}, "actions": ["inprog"]}],
    };
    server.run("admin", anything);
    let version = server.run("admin", doc! {"count": "system.version"});
    assert_eq!(version.get_i32("n"), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_role_is_refused() {
    let mut server = TestServer::new();
    server.run("a", create("r", &[]));
    server.run("a", create("s", &["r"]));
    server.run("b", create("other", &[]));
    let with = |name: &str, privilege: DocBuf| {
        doc! {"createRole": name, "roles": [], "privileges": [privilege]}
    };
    let elsewhere = doc! {"resource": {"db": "b", "collection": "c"}, "actions": ["find"]};
    let cluster = doc! {"resource": {"cluster": true}, "actions": ["inprog"]};
    let from_b = doc! {"role": "other", "db": "b"};
    let cases: Vec<(&str, DocBuf, i32)> = vec![
        ("a", create("r", &[]), 51002),
        ("a", create("", &[]), 2),
        ("a", create("x\0y", &[]), 2),
        ("local", create("x", &[]), 2),
        ("$external", create("x", &[]), 2),
        ("a", create("readWrite", &[]), 2),
        ("admin", create("root", &[]), 2),
        ("a", create("x", &["x"]), 49),
        ("a", create("x", &["missing"]), 31),
        (
            "a",
            doc! {"createRole": "x", "privileges": [], "roles": [&from_b]},
            49,
        ),
        ("a", doc! {"createRole": "x", "privileges": []}, 40414),
        ("a", doc! {"createRole": "x", "roles": []}, 40414),
        (
            "a",
            doc! {"createRole": 1, "roles": [], "privileges": []},
            14,
        ),
        (
            "a",
            doc! {"createRole": "x", "roles": [], "privileges": [1]},
            14,
        ),
        ("a", with("x", elsewhere.clone()), 49),
        ("a", with("x", cluster.clone()), 49),
        (
            "a",
            with(
                "x",
                doc! {"resource": {"db": "", "collection": "c"}, "actions": ["find"]},
            ),
            49,
        ),
        ("a", with("x", on("c", &["fly"])), 2),
        ("a", with("x", on("c", &[])), 2),
        (
            "a",
            with("x", doc! {"resource": {"db": "a"}, "actions": ["find"]}),
            2,
        ),
        ("a", with("x", doc! {"actions": ["find"]}), 40414),
        ("a", doc! {"updateRole": "r"}, 2),
        ("a", doc! {"updateRole": "missing", "roles": []}, 31),
        ("a", doc! {"updateRole": "read", "roles": []}, 2),
        ("a", doc! {"updateRole": "r", "roles": ["s"]}, 49),
        (
            "a",
            doc! {"updateRole": "r", "privileges": [&elsewhere]},
            49,
        ),
        ("a", doc! {"dropRole": "missing"}, 31),
        ("a", doc! {"dropRole": "read"}, 2),
        ("a", doc! {"grantRolesToRole": "r", "roles": []}, 2),
        ("a", doc! {"grantRolesToRole": "r", "roles": ["s"]}, 49),
        ("a", doc! {"grantRolesToRole": "r", "roles": ["r"]}, 49),
        ("a", doc! {"grantRolesToRole": "r", "roles": [&from_b]}, 49),
        (
            "a",
            doc! {"grantRolesToRole": "r", "roles": ["missing"]},
            31,
        ),
        (
            "a",
            doc! {"grantRolesToRole": "missing", "roles": ["read"]},
            31,
        ),
        ("a", doc! {"grantRolesToRole": "read", "roles": ["r"]}, 2),
        (
            "a",
            doc! {"revokeRolesFromRole": "missing", "roles": ["read"]},
            31,
        ),
        ("a", doc! {"revokeRolesFromRole": "read", "roles": ["r"]}, 2),
        (
            "a",
            doc! {"grantPrivilegesToRole": "r", "privileges": []},
            2,
        ),
        (
            "a",
            doc! {"grantPrivilegesToRole": "r", "privileges": [&cluster]},
            49,
        ),
        (
            "a",
            doc! {"grantPrivilegesToRole": "read", "privileges": [on("c", &["find"])]},
            2,
        ),
        (
            "a",
            doc! {"grantPrivilegesToRole": "missing", "privileges": [on("c", &["find"])]},
            31,
        ),
        (
            "a",
            doc! {"revokePrivilegesFromRole": "r", "privileges": []},
            2,
        ),
        (
            "a",
            doc! {"revokePrivilegesFromRole": "missing", "privileges": [on("c", &["find"])]},
            31,
        ),
        (
            "a",
            doc! {"revokePrivilegesFromRole": "r", "privileges": [on("c", &["fly"])]},
            2,
        ),
    ];
    for (db, command, code) in cases {
        assert_eq!(server.code(db, command.clone()), code, "{command:?}");
    }
    let reply = server.reply("a", with("x", on("c", &["fly"])));
    let message = "Unknown action type in privilege set: 'fly'";
    assert_eq!(reply.get_str("errmsg"), Some(message));
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_their_privileges_are_changed() {
    let mut server = TestServer::new();
    server.run("a", create("r", &["read"]));
    server.run("a", create("s", &[]));
    let privileges = |command: &str, privileges: &[DocBuf]| {
        let mut out = doc! {command: "r"};
        out.push_array("privileges", |list| {
            privileges.iter().for_each(|one| list.push(one))
        });
        out
    };
    server.run(
        "a",
        privileges(
            "grantPrivilegesToRole",
            &[on("c", &["insert"]), on("d", &["find"])],
        ),
    );
    server.run(
        "a",
        privileges("grantPrivilegesToRole", &[on("c", &["find", "remove"])]),
    );
    let all: &[(&str, &[&str])] = &[("c", &["find", "insert", "remove"]), ("d", &["find"])];
    assert_eq!(actions(&mut server, "a.r"), expected(all));
    server.run(
        "a",
        privileges(
            "revokePrivilegesFromRole",
            &[
                on("c", &["insert", "update"]),
                on("d", &["find"]),
                on("e", &["find"]),
            ],
        ),
    );
    assert_eq!(
        actions(&mut server, "a.r"),
        expected(&[("c", &["find", "remove"])])
    );
    server.run("a", doc! {"grantRolesToRole": "r", "roles": ["s", "read"]});
    let roles = |server: &mut TestServer| {
        stored(server, "a.r")
            .unwrap()
            .get_array("roles")
            .unwrap()
            .count()
    };
    assert_eq!(roles(&mut server), 2);
    server.run(
        "a",
        doc! {"revokeRolesFromRole": "r", "roles": ["read", "dbAdmin"]},
    );
    assert_eq!(roles(&mut server), 1);
    let update = doc! {
        "updateRole": "r", "privileges": [], "roles": ["readWrite"],
        "authenticationRestrictions": [{"clientSource": ["::1"]}],
    };
    server.run("a", update);
    let role = stored(&mut server, "a.r").unwrap();
    let inherited = role.path("roles.0.role");
    assert_eq!(inherited, Some(Value::String("readWrite")));
    assert_eq!(role.get_array("privileges").unwrap().count(), 0);
    server.run(
        "a",
        doc! {"updateRole": "r", "authenticationRestrictions": []},
    );
    assert!(
        stored(&mut server, "a.r")
            .unwrap()
            .get("authenticationRestrictions")
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_role_is_taken_from_everybody() {
    for set in [None, Some("rs0")] {
        let mut server = TestServer::with(|settings| settings.replica_set = set.map(str::to_owned));
        if set.is_some() {
            server.run("admin", doc! {"replSetInitiate": {}});
        }
        server.run(
            "a",
            doc! {"createRole": "r", "roles": [], "privileges": [on("c", &["find"])]},
        );
        server.run("a", create("s", &["r", "read"]));
        server.run("b", create("r", &[]));
        let user =
            doc! {"createUser": "ann", "pwd": "p", "roles": ["r", "s", {"role": "r", "db": "b"}]};
        server.run("a", user);
        let name = UserName::new("ann", "a");
        let may = |server: &TestServer| {
            let user = server.server.clients.access.find(&name).unwrap().unwrap();
            let target = Target::Collection("a", "c");
            (
                user.all_roles.len(),
                user.privileges.allows(&target, Action::Find),
            )
        };
        assert_eq!(may(&server), (4, true));
        server.run("a", doc! {"revokeRolesFromRole": "s", "roles": ["read"]});
        assert_eq!(
            server.run("a", doc! {"dropRole": "r"}).get_f64("ok"),
            Some(1.0)
        );
        assert_eq!(may(&server), (2, false));
        assert!(stored(&mut server, "a.r").is_none() && stored(&mut server, "b.r").is_some());
        let inherited = stored(&mut server, "a.s").unwrap();
        assert_eq!(inherited.get_array("roles").unwrap().count(), 0);
        let dropped = server.run("b", doc! {"dropAllRolesFromDatabase": 1});
        assert_eq!(dropped.get_i32("n"), Some(1));
        assert_eq!(may(&server).0, 1);
        let dropped = server.run("c", doc! {"dropAllRolesFromDatabase": 1});
        assert_eq!(dropped.get_i32("n"), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oplog_has_the_changes() {
    let mut server = TestServer::member("rs0");
    server.run("admin", doc! {"replSetInitiate": {}});
    server.run("a", create("r", &[]));
    server.run("a", doc! {"createUser": "ann", "pwd": "p", "roles": ["r"]});
    server.run("a", doc! {"updateUser": "ann", "customData": {"a": 1}});
    server.run("a", doc! {"dropRole": "r"});
    server.run("a", doc! {"dropUser": "ann"});
    let filter = doc! {"ns": {"$in": ["admin.system.users", "admin.system.roles", "admin.system.version", "admin.$cmd"]}};
    let found = server.run("local", doc! {"find": "oplog.rs", "filter": filter});
    let entries = server.batch(&found, "firstBatch");
    let described: Vec<_> = entries
        .iter()
        .map(|entry| {
            let o = entry.get_doc("o").unwrap();
            let (first, _) = o.first().unwrap();
            let what = match entry.get_str("op").unwrap() {
                "c" => first,
                op => op,
            };
            let ns = entry.get_str("ns").unwrap();
            format!("{what} {}", ns.trim_start_matches("admin."))
        })
        .collect();
    assert_eq!(
        described,
        [
            "create $cmd",
            // The feature compatibility version of a new set.
            "i system.version",
            "i system.version",
            "create $cmd",
            "createIndexes $cmd",
            "i system.roles",
            "create $cmd",
            "createIndexes $cmd",
            "i system.users",
            "u system.users",
            "applyOps $cmd",
            "d system.users",
        ]
    );
}
