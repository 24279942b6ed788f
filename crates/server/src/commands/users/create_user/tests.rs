//! `createUser`, and the commands that change users.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use frond_auth::UserName;
use frond_auth::scram::Mechanism;
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::OpContext;

use crate::access::stored::USERS;
use crate::testing::{TestServer, wait_until};

/// The stored document of a user.
fn stored(server: &mut TestServer, id: &str) -> Option<DocBuf> {
    let found = server.run(
        "admin",
        doc! {"find": "system.users", "filter": {"_id": id}},
    );
    server.batch(&found, "firstBatch").pop()
}

fn names(doc: &Doc) -> Vec<&str> {
    doc.iter().map(|(name, _)| name).collect()
}

fn create(name: &str) -> DocBuf {
    doc! {"createUser": name, "pwd": "secret", "roles": []}
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_stored_as_in_mongodb() {
    let mut server = TestServer::new();
    let create = doc! {
        "createUser": "ann", "pwd": "secret", "roles": ["read", {"role": "readWrite", "db": "b"}, "read"],
        "customData": {"a": 1}, "authenticationRestrictions": [{"clientSource": ["127.0.0.1"]}],
        "writeConcern": {"w": 1},
    };
    assert_eq!(server.run("a", create), doc! {"ok": 1.0});
    let user = stored(&mut server, "a.ann").unwrap();
    assert_eq!(
        names(&user),
        [
            "_id",
            "userId",
            "user",
            "db",
            "credentials",
            "authenticationRestrictions",
            "customData",
            "roles"
        ]
    );
    let roles = doc! {"r": [{"role": "read", "db": "a"}, {"role": "readWrite", "db": "b"}]};
    assert_eq!(user.get_array("roles"), roles.get_array("r"));
    let Some(Value::Binary { subtype: 4, bytes }) = user.get("userId") else {
        panic!("{user:?}");
    };
    assert_eq!((bytes.len(), bytes[6] >> 4), (16, 4));
    let credentials = user.get_doc("credentials").unwrap();
    assert_eq!(names(credentials), ["SCRAM-SHA-1", "SCRAM-SHA-256"]);
    for (mechanism, iterations, salt) in
        [("SCRAM-SHA-1", 10_000, 24), ("SCRAM-SHA-256", 15_000, 40)]
    {
        let credential = credentials.get_doc(mechanism).unwrap();
        assert_eq!(
            names(credential),
            ["iterationCount", "salt", "storedKey", "serverKey"]
        );
        assert_eq!(credential.get_i32("iterationCount"), Some(iterations));
        assert_eq!(credential.get_str("salt").unwrap().len(), salt);
    }
    let version = server.run("admin", doc! {"find": "system.version", "filter": {}});
    let version = server.batch(&version, "firstBatch");
    assert_eq!(version, [doc! {"_id": "authSchema", "currentVersion": 5}]);
    let name = UserName::new("ann", "a");
    let found = server.server.clients.access.find(&name).unwrap().unwrap();
    let candidate = server.server.clients.access.find_for_login(&name).unwrap();
    let candidate = candidate.unwrap();
    assert!(
        candidate
            .credentials
            .for_mechanism(Mechanism::Sha1)
            .is_some()
    );
    assert_eq!((found.restrictions.len(), found.all_roles.len()), (1, 2));
    let external = doc! {"createUser": "CN=x,O=y", "roles": [{"role": "read", "db": "a"}]};
    server.run("$external", external);
    let user = stored(&mut server, "$external.CN=x,O=y").unwrap();
    assert_eq!(user.get_doc("credentials"), Some(&*doc! {"external": true}));
    let name = UserName::new("CN=x,O=y", "$external");
    assert!(server.server.clients.access.find(&name).unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn mechanisms_decide_the_credentials() {
    let mut server = TestServer::with(|settings| settings.logins.sha256_iterations = 5000);
    let with = |name: &str, mechanisms: &[&str], digests: bool| {
        let mut command =
            doc! {"createUser": name, "pwd": "secret", "roles": [], "digestPassword": digests};
        command.push_array("mechanisms", |list| {
            mechanisms.iter().for_each(|one| list.push(*one))
        });
        command
    };
    for (name, mechanisms) in [
        ("one", &["SCRAM-SHA-1"][..]),
        ("two", &["SCRAM-SHA-256"]),
        ("both", &["SCRAM-SHA-256", "SCRAM-SHA-1"]),
    ] {
        server.run("a", with(name, mechanisms, true));
        let user = stored(&mut server, &format!("a.{name}")).unwrap();
        let mut expected = mechanisms.to_vec();
        expected.sort_unstable();
        assert_eq!(names(user.get_doc("credentials").unwrap()), expected);
    }
    server.run("a", with("digested", &["SCRAM-SHA-1"], false));
    let two = stored(&mut server, "a.two").unwrap();
    assert_eq!(
        two.path("credentials.SCRAM-SHA-256.iterationCount"),
        Some(Value::Int32(5000))
    );
    for (mechanisms, digests, code) in [
        (&[][..], true, 2),
        (&["SCRAM-SHA-512"], true, 2),
        (&["MONGODB-CR"], true, 2),
        (&["SCRAM-SHA-256"], false, 2),
        (&["SCRAM-SHA-1", "SCRAM-SHA-256"], false, 2),
    ] {
        assert_eq!(
            server.code("a", with("x", mechanisms, digests)),
            code,
            "{mechanisms:?}"
        );
    }
    // Only some of what there is stays; what there is not cannot come without the password.
    let only = |name: &str, mechanism: &str| doc! {"updateUser": name, "mechanisms": [mechanism]};
    server.run("a", only("both", "SCRAM-SHA-256"));
    let both = stored(&mut server, "a.both").unwrap();
    assert_eq!(
        names(both.get_doc("credentials").unwrap()),
        ["SCRAM-SHA-256"]
    );
    for name in ["both", "two"] {
        assert_eq!(server.code("a", only(name, "SCRAM-SHA-1")), 2);
    }
    let mut server = TestServer::with(|settings| {
        let scram = frond_auth::LoginMechanism::Scram(Mechanism::Sha256);
        settings.logins.mechanisms = vec![scram];
    });
    server.run("a", create("u"));
    let user = stored(&mut server, "a.u").unwrap();
    assert_eq!(
        names(user.get_doc("credentials").unwrap()),
        ["SCRAM-SHA-256"]
    );
    assert_eq!(server.code("a", with("x", &["SCRAM-SHA-1"], true)), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_user_is_refused() {
    let mut server = TestServer::new();
    server.run("a", create("ann"));
    let cases: Vec<(&str, DocBuf, i32)> = vec![
        ("a", create("ann"), 51003),
        ("local", create("x"), 2),
        ("a", create(""), 2),
        ("a", create("a\0b"), 2),
        ("a", doc! {"createUser": 1, "pwd": "p", "roles": []}, 14),
        ("a", doc! {"createUser": "x", "roles": []}, 2),
        ("a", doc! {"createUser": "x", "pwd": "", "roles": []}, 2),
        ("a", doc! {"createUser": "x", "pwd": 1, "roles": []}, 14),
        (
            "a",
            doc! {"createUser": "x", "pwd": "a\u{7}b", "roles": []},
            2,
        ),
        ("a", doc! {"createUser": "x", "pwd": "p"}, 40414),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": "read"},
            14,
        ),
        ("a", doc! {"createUser": "x", "pwd": "p", "roles": [1]}, 2),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": [{"role": "read"}]},
            2,
        ),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": [{"role": "read", "db": "a", "z": 1}]},
            2,
        ),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": ["missing"]},
            31,
        ),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": ["root"]},
            31,
        ),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": [{"role": "read", "db": "$external"}]},
            31,
        ),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": [], "customData": 1},
            14,
        ),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": [], "passwordDigestor": "server"},
            40415,
        ),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": [], "authenticationRestrictions": [{}]},
            2,
        ),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": [], "authenticationRestrictions": [{"clientSource": ["x"]}]},
            2,
        ),
        (
            "a",
            doc! {"createUser": "x", "pwd": "p", "roles": [], "writeConcern": {"w": 2}},
            2,
        ),
        (
            "$external",
            doc! {"createUser": "x", "pwd": "p", "roles": []},
            2,
        ),
        ("a", doc! {"updateUser": "ann"}, 2),
        ("a", doc! {"updateUser": "bob", "pwd": "p"}, 11),
        ("a", doc! {"updateUser": "ann", "pwd": ""}, 2),
        ("a", doc! {"updateUser": "ann", "roles": ["missing"]}, 31),
        ("a", doc! {"updateUser": "ann", "mechanisms": []}, 2),
        ("a", doc! {"dropUser": "bob"}, 11),
        ("b", doc! {"dropUser": "ann"}, 11),
        ("a", doc! {"grantRolesToUser": "ann", "roles": []}, 2),
        ("a", doc! {"grantRolesToUser": "ann"}, 40414),
        ("a", doc! {"grantRolesToUser": "bob", "roles": ["read"]}, 11),
        (
            "a",
            doc! {"grantRolesToUser": "ann", "roles": ["missing"]},
            31,
        ),
        (
            "a",
            doc! {"revokeRolesFromUser": "ann", "roles": ["missing"]},
            31,
        ),
        (
            "a",
            doc! {"revokeRolesFromUser": "bob", "roles": ["read"]},
            11,
        ),
        ("a", doc! {"revokeRolesFromUser": "ann", "roles": []}, 2),
    ];
    for (db, command, code) in cases {
        assert_eq!(server.code(db, command.clone()), code, "{command:?}");
    }
    let all = server.run("admin", doc! {"usersInfo": {"forAllDBs": true}});
    assert_eq!(all.get_array("users").unwrap().count(), 1);
    let message = server.reply("a", create("ann"));
    assert_eq!(
        message.get_str("errmsg"),
        Some("User \"ann@a\" already exists")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_changed_and_dropped() {
    let mut server = TestServer::new();
    for (db, name) in [("a", "ann"), ("a", "bob"), ("b", "ann")] {
        server.run(db, create(name));
    }
    let before = stored(&mut server, "a.ann").unwrap();
    let update = doc! {
        "updateUser": "ann", "pwd": "other", "customData": {"b": 2}, "roles": ["read"],
        "authenticationRestrictions": [{"serverAddress": ["::1"]}],
    };
    assert_eq!(server.run("a", update), doc! {"ok": 1.0});
    let after = stored(&mut server, "a.ann").unwrap();
    assert_eq!(before.get("userId"), after.get("userId"));
    let key = "credentials.SCRAM-SHA-256.storedKey";
    assert_ne!(before.path(key), after.path(key));
    assert_eq!(after.get_doc("customData"), Some(&*doc! {"b": 2}));
    assert_eq!(
        after
            .get_array("authenticationRestrictions")
            .unwrap()
            .count(),
        1
    );
    server.run(
        "a",
        doc! {"updateUser": "ann", "authenticationRestrictions": []},
    );
    assert!(
        stored(&mut server, "a.ann")
            .unwrap()
            .get("authenticationRestrictions")
            .is_none()
    );
    let roles = |server: &mut TestServer| {
        let user = stored(server, "a.ann").unwrap();
        let roles = user.get_array("roles").unwrap();
        let names = roles
            .values()
            .map(|role| role.as_doc().unwrap().get_str("role").unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let grant =
        doc! {"grantRolesToUser": "ann", "roles": ["dbAdmin", "read", {"role": "read", "db": "b"}]};
    server.run("a", grant);
    assert_eq!(roles(&mut server), ["read", "dbAdmin", "read"]);
    server.run(
        "a",
        doc! {"revokeRolesFromUser": "ann", "roles": ["read", "dbOwner"]},
    );
    assert_eq!(roles(&mut server), ["dbAdmin", "read"]);
    server.run("a", doc! {"dropUser": "bob"});
    assert!(stored(&mut server, "a.bob").is_none());
    let dropped = server.run("a", doc! {"dropAllUsersFromDatabase": 1});
    assert_eq!(dropped, doc! {"n": 1, "ok": 1.0});
    assert!(stored(&mut server, "a.ann").is_none() && stored(&mut server, "b.ann").is_some());
}

/// Commands of several clients at once.
fn at_once(server: &TestServer, commands: Vec<DocBuf>) -> Vec<DocBuf> {
    use crate::testing::on_other_connection;
    let run = |command: &DocBuf| {
        let is_bulk = command.contains_key("bulkWrite");
        on_other_connection(&server.server, if is_bulk { "admin" } else { "a" }, command)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (commands.iter())
            .map(|one| scope.spawn(|| run(one)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_create_the_same_user_one_fails() {
    let server = TestServer::new();
    let replies = at_once(&server, vec![create("ann"); 4]);
    let codes: Vec<_> = replies
        .iter()
        .filter_map(|reply| reply.get_i32("code"))
        .collect();
    assert_eq!(codes, [51003; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_grant_is_lost() {
    let mut server = TestServer::new();
    server.run("a", create("ann"));
    let privileges = |n: i32| {
        doc! {"grantPrivilegesToRole": "r", "privileges": [{"resource": {"db": "a", "collection": n.to_string()}, "actions": ["find"]}]}
    };
    server.run("a", doc! {"createRole": "r", "privileges": [], "roles": []});
    for n in 0..8 {
        server.run(
            "a",
            doc! {"createRole": n.to_string(), "privileges": [], "roles": []},
        );
    }
    let mut commands = Vec::new();
    for n in 0..8 {
        commands.push(doc! {"grantRolesToUser": "ann", "roles": [n.to_string()]});
        commands.push(doc! {"grantRolesToRole": "r", "roles": [n.to_string()]});
        commands.push(privileges(n));
        // A direct write to the same document, which takes no lock of these commands.
        let push = doc! {"$push": {"roles": {"role": "read", "db": format!("d{n}")}}};
        commands.push(doc! {
            "bulkWrite": 1, "nsInfo": [{"ns": "admin.system.users"}],
            "ops": [{"update": 0, "filter": {"user": "ann"}, "updateMods": push}],
        });
    }
    for reply in at_once(&server, commands) {
        assert_eq!(reply.get_f64("ok"), Some(1.0), "{reply:?}");
    }
    let user = stored(&mut server, "a.ann").unwrap();
    assert_eq!(user.get_array("roles").unwrap().count(), 16, "{user:?}");
    let role = server.run("a", doc! {"rolesInfo": "r", "showPrivileges": true});
    let role = role.path("roles.0").unwrap();
    let role = role.as_doc().unwrap();
    assert_eq!(role.get_array("roles").unwrap().count(), 8);
    assert_eq!(role.get_array("privileges").unwrap().count(), 8);
}

/// Of two clients that were both let in to create the first user, only one does.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_user_is_created_once() {
    let mut pause = Duration::from_millis(5);
    wait_until("a client that was admitted before the other one", || {
        let mut server = TestServer::with(|settings| settings.security.authorization = true);
        let shared = server.server.clone();
        let limits = OpContext::new();
        let changing = shared
            .clients
            .access
            .change(&shared.store, &limits)
            .unwrap();
        let reply = std::thread::scope(|scope| {
            let late = scope.spawn(|| server.reply("admin", create("eve")));
            // It is admitted, and waits for the other change. Otherwise the next one gets more time.
            std::thread::sleep(pause);
            pause *= 2;
            let name = UserName::new("ann", "admin");
            let mut user = doc! {"_id": "admin.ann", "user": "ann", "db": "admin"};
            user.push("roles", &doc! {});
            changing.insert(&USERS, &name, &user).unwrap();
            drop(changing);
            late.join().unwrap()
        });
        assert_eq!(reply.get_i32("code"), Some(13));
        server.log_in_as_root();
        assert!(stored(&mut server, "admin.eve").is_none());
        reply.get_str("errmsg").unwrap().contains("meanwhile")
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_waits_for_another_one_ends_in_time() {
    let mut server = TestServer::new();
    let shared = server.server.clone();
    let limits = OpContext::new();
    let _changing = shared
        .clients
        .access
        .change(&shared.store, &limits)
        .unwrap();
    let mut late = create("ann");
    late.push("maxTimeMS", 50);
    assert_eq!(server.code("a", late), 50);
}
