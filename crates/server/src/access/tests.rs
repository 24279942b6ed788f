#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use frond_auth::scram::{Credential, Mechanism};
use frond_auth::{Action, Ends, Target, UserName};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{
    DocumentStore, LogRecovery, NoListener, OpContext, StorageOptions, StoreOptions,
};

use super::stored::{USERS, VERSION};
use super::{Access, User, restrictions_allow};
use crate::internal_collections::replace_one;
use crate::testing::TestServer;

/// A user as it is stored, with a password.
fn user(name: &str, db: &str, roles: &[(&str, &str)]) -> DocBuf {
    let credential = Credential::new(Mechanism::Sha256, name, "secret", 4096).unwrap();
    let id = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    let mut user = doc! {
        "_id": format!("{db}.{name}"), "userId": id, "user": name, "db": db,
        "credentials": {"SCRAM-SHA-256": &*credential.to_doc()},
    };
    user.push_array("roles", |out| {
        for (role, db) in roles {
            out.push_doc(|one| {
                one.push("role", *role);
                one.push("db", *db);
            });
        }
    });
    user
}

fn insert(server: &mut TestServer, collection: &str, document: &Doc) {
    let reply = server.run(
        "admin",
        doc! {"insert": collection, "documents": [document]},
    );
    assert_eq!(reply.get_i32("n"), Some(1), "{reply:?}");
}

fn find(server: &TestServer, name: &str, db: &str) -> Option<Arc<User>> {
    server
        .server
        .clients
        .access
        .find(&UserName::new(name, db))
        .unwrap()
}

fn may(user: &User, collection: &str, action: Action) -> bool {
    let target = Target::Collection("a", collection);
    user.privileges.allows(&target, action)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_read_with_what_their_roles_grant() {
    let mut server = TestServer::new();
    assert!(find(&server, "u", "a").is_none());
    let role = doc! {
        "_id": "a.r", "role": "r", "db": "a", "roles": [{"role": "read", "db": "a"}],
        "privileges": [{"resource": {"db": "a", "collection": "c"}, "actions": ["insert", "fromTheFuture"]}],
        "authenticationRestrictions": [{"clientSource": ["10.0.0.0/8"]}],
    };
    insert(&mut server, "system.roles", &role);
    let mut stored = user("u", "a", &[("r", "a"), ("missing", "a")]);
    stored.push_array("authenticationRestrictions", |list| {
        list.push(&doc! {"serverAddress": ["127.0.0.1"]});
    });
    insert(&mut server, "system.users", &stored);
    let found = find(&server, "u", "a").unwrap();
    assert_eq!(found.name, UserName::new("u", "a"));
    assert_eq!(found.id, Some([7; 16]));
    let candidate = |name| server.server.clients.access.find_for_login(name).unwrap();
    let candidate = candidate(&found.name).unwrap();
    assert_eq!(candidate.id, found.id);
    assert!(
        candidate
            .credentials
            .for_mechanism(Mechanism::Sha256)
            .is_some()
    );
    assert!(
        candidate
            .credentials
            .for_mechanism(Mechanism::Sha1)
            .is_none()
    );
    assert!(!candidate.credentials.is_external);
    let names: Vec<_> = found.all_roles.iter().map(|role| &*role.name).collect();
    assert_eq!(names, ["missing", "r", "read"]);
    assert!(may(&found, "c", Action::Insert) && may(&found, "c", Action::Find));
    assert!(!may(&found, "d", Action::Insert) && may(&found, "d", Action::Find));
    for (client, at, allowed) in [
        ("10.1.1.1", "127.0.0.1", true),
        ("11.1.1.1", "127.0.0.1", false),
        ("10.1.1.1", "127.0.0.2", false),
    ] {
        let ends = Ends {
            client: client.parse().ok(),
            server: at.parse().ok(),
        };
        assert_eq!(restrictions_allow(&found, &ends), allowed, "{client} {at}");
    }
    // The same object, until something changes.
    assert!(Arc::ptr_eq(&found, &find(&server, "u", "a").unwrap()));
    server.server.clients.access.invalidate();
    assert!(!Arc::ptr_eq(&found, &find(&server, "u", "a").unwrap()));
    let external = doc! {
        "_id": "$external.CN=x", "user": "CN=x", "db": "$external", "credentials": {"external": true}, "roles": [],
    };
    insert(&mut server, "system.users", &external);
    let external = find(&server, "CN=x", "$external").unwrap();
    assert!(external.id.is_none());
    let candidate = server
        .server
        .clients
        .access
        .external("CN=x")
        .unwrap()
        .unwrap();
    assert!(candidate.credentials.is_external && candidate.id.is_none());
    assert!(find(&server, "CN=x", "a").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_writes_take_effect_at_once() {
    let mut server = TestServer::new();
    insert(
        &mut server,
        "system.users",
        &user("u", "a", &[("read", "a")]),
    );
    let access = |server: &TestServer, action| {
        find(server, "u", "a").is_some_and(|user| may(&user, "c", action))
    };
    // A command, whether it is one that writes, and what the user may do after it.
    let set = |role: &str| doc! {"$set": {"roles": [{"role": role, "db": "a"}]}};
    let filter = doc! {"user": "u"};
    let ns = doc! {"ns": "admin.system.users"};
    let backup = doc! {
        "aggregate": "system.users", "pipeline": [{"$out": {"db": "test", "coll": "copy"}}], "cursor": {},
    };
    let same = user("u", "a", &[("readWrite", "a")]);
    let commands: Vec<(DocBuf, bool, bool)> = vec![
        (
            doc! {"update": "system.users", "updates": [{"q": &filter, "u": set("readWrite")}]},
            true,
            true,
        ),
        (
            doc! {"findAndModify": "system.users", "query": &filter, "update": set("read")},
            true,
            false,
        ),
        (
            doc! {
                "bulkWrite": 1, "nsInfo": [&ns],
                "ops": [{"update": 0, "filter": &filter, "updateMods": set("readWrite"), "multi": false}],
            },
            true,
            true,
        ),
        (
            doc! {"applyOps": [{"op": "u", "ns": "admin.system.users", "o2": {"_id": "a.u"}, "o": {"$v": 2, "diff": {"u": {"roles": []}}}}]},
            false,
            false,
        ),
        (
            doc! {"update": "system.users", "updates": [{"q": &filter, "u": [{"$set": {"roles": [{"role": "readWrite", "db": "a"}]}}]}]},
            true,
            true,
        ),
        (backup, true, true),
        (
            doc! {"delete": "system.users", "deletes": [{"q": &filter, "limit": 1}]},
            false,
            false,
        ),
        (
            doc! {"insert": "system.users", "documents": [&same]},
            true,
            true,
        ),
        (
            doc! {"renameCollection": "admin.system.users", "to": "admin.away"},
            false,
            false,
        ),
        (
            doc! {"renameCollection": "admin.away", "to": "admin.system.users"},
            true,
            true,
        ),
        (doc! {"drop": "system.users"}, false, false),
    ];
    for (command, reads, writes) in commands {
        let generation = server.server.clients.access.generation();
        access(&server, Action::Find);
        let reply = server.run("admin", command.clone());
        assert!(reply.get("writeErrors").is_none(), "{command:?} {reply:?}");
        assert_eq!(access(&server, Action::Find), reads, "{command:?}");
        assert_eq!(access(&server, Action::Insert), writes, "{command:?}");
        let is_change = !command.contains_key("pipeline");
        assert_eq!(
            server.server.clients.access.generation() > generation,
            is_change,
            "{command:?}"
        );
    }
    // Other collections of `admin` change nothing.
    let generation = server.server.clients.access.generation();
    insert(&mut server, "other", &doc! {"_id": 1});
    assert_eq!(server.server.clients.access.generation(), generation);
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_take_effect_at_once() {
    let mut server = TestServer::new();
    insert(&mut server, "system.users", &user("u", "a", &[("r", "a")]));
    assert!(!may(&find(&server, "u", "a").unwrap(), "c", Action::Find));
    let role = doc! {"_id": "a.r", "role": "r", "db": "a", "roles": [{"role": "read", "db": "a"}], "privileges": []};
    insert(&mut server, "system.roles", &role);
    assert!(may(&find(&server, "u", "a").unwrap(), "c", Action::Find));
    server.run("admin", doc! {"drop": "system.roles"});
    assert!(!may(&find(&server, "u", "a").unwrap(), "c", Action::Find));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cannot_be_read_is_nobody() {
    let mut server = TestServer::new();
    let good = user("u", "a", &[]);
    let without = |field: &str| {
        let mut out = DocBuf::new();
        for (name, value) in good.iter().filter(|(name, _)| *name != field) {
            out.push_value(name, &value);
        }
        out
    };
    let with = |field: &str, value: &Value<'_>| {
        let mut out = without(field);
        out.push_value(field, value);
        out
    };
    let bad_salt = doc! {"SCRAM-SHA-256": {"iterationCount": 4096, "salt": "?", "storedKey": "", "serverKey": ""}};
    for wrong in [
        without("credentials"),
        with("credentials", &Value::Int32(1)),
        with("credentials", &Value::Document(Doc::empty())),
        with("credentials", &Value::Document(&doc! {"external": true})),
        with("credentials", &Value::Document(&bad_salt)),
        with("roles", &Value::Int32(1)),
        with("roles", &doc! {"r": ["read"]}.get("r").unwrap()),
        with("roles", &doc! {"r": [{"role": "read"}]}.get("r").unwrap()),
        with(
            "authenticationRestrictions",
            &doc! {"r": [{"clientSource": ["x"]}]}.get("r").unwrap(),
        ),
    ] {
        insert(&mut server, "system.users", &wrong);
        assert!(
            server
                .server
                .clients
                .access
                .find(&UserName::new("u", "a"))
                .is_err(),
            "{wrong:?}"
        );
        server.run(
            "admin",
            doc! {"delete": "system.users", "deletes": [{"q": {}, "limit": 0}]},
        );
    }
    // A role that cannot be read takes everything from those who have it: it may restrict them.
    insert(
        &mut server,
        "system.users",
        &user("u", "a", &[("r", "a"), ("read", "a")]),
    );
    let role = doc! {"_id": "a.r", "role": "r", "db": "a", "roles": 1, "privileges": []};
    insert(&mut server, "system.roles", &role);
    assert!(
        server
            .server
            .clients
            .access
            .find(&UserName::new("u", "a"))
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_user_or_role_ends_the_exception_for_good() {
    for collection in ["system.users", "system.roles"] {
        let mut server = TestServer::new();
        assert!(!server.server.clients.access.has_users());
        insert(&mut server, "other", &doc! {"_id": 1});
        assert!(!server.server.clients.access.has_users());
        insert(
            &mut server,
            collection,
            &doc! {"_id": "a.u", "user": "u", "role": "u", "db": "a"},
        );
        assert!(server.server.clients.access.has_users());
        server.run("admin", doc! {"drop": collection});
        assert!(
            server.server.clients.access.has_users(),
            "until the next start"
        );
    }
}

#[test]
fn users_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let storage = StorageOptions {
            cache_bytes: 32 << 20,
            client_bytes: None,
            journal: true,
            journal_commit_interval: Duration::from_millis(100),
            listener: Arc::new(NoListener),
            disk_reserve_bytes: None,
            log_recovery: LogRecovery::default(),
            master_key: None,
        };
        let options = StoreOptions::default();
        DocumentStore::open_directory(directory.path(), &storage, options).unwrap()
    };
    let name = UserName::new("u", "a");
    {
        let store = open();
        let access = Access::new(store.clone(), true);
        assert!(access.is_enforced() && !access.has_users());
        let limits = OpContext::new();
        let changing = access.change(&store, &limits).unwrap();
        changing
            .insert(&USERS, &name, &user("u", "a", &[("read", "a")]))
            .unwrap();
        let again = changing.insert(&USERS, &name, &user("u", "a", &[]));
        assert_eq!(again.unwrap_err().code().code(), 51003);
        drop(changing);
        assert!(access.has_users());
        store.close().unwrap();
    }
    let store = open();
    let access = Access::new(store.clone(), true);
    assert!(access.has_users());
    let found = access.find(&name).unwrap().unwrap();
    assert!(may(&found, "c", Action::Find));
    // Users of a server that is too old, which are not understood.
    let limits = OpContext::new();
    let old = doc! {"_id": "authSchema", "currentVersion": 3};
    replace_one(&store, VERSION.parts, "authSchema", &old).unwrap();
    assert_eq!(
        access.change(&store, &limits).err().unwrap().code().code(),
        69
    );
}
