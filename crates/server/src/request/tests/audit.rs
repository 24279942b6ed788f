//! Which commands make which audit events.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use frond_bson::{Doc, DocBuf, Value, doc, extjson};

use crate::audit::Audited;
use crate::commands::COMMANDS;
use crate::settings::{AuditDestination, AuditSettings, Settings};
use crate::testing::TestServer;

/// A server with an audit log in a file.
struct Trail {
    server: TestServer,
    path: PathBuf,
    read: usize,
    _directory: tempfile::TempDir,
}

impl Trail {
    fn new(change: impl FnOnce(&mut Settings)) -> Trail {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.json");
        let server = TestServer::with(|settings| {
            settings.audit = AuditSettings {
                destination: Some(AuditDestination::File),
                path: Some(path.clone()),
                ..AuditSettings::default()
            };
            change(settings);
        });
        Trail {
            server,
            path,
            read: 0,
            _directory: directory,
        }
    }

    /// The events since the last call.
    fn events(&mut self) -> Vec<DocBuf> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        let new = text.get(self.read..).unwrap_or(&text).to_owned();
        self.read = text.len();
        new.lines()
            .map(|line| extjson::parse(line).unwrap())
            .collect()
    }

    /// The type, the parameters and the result of each event since the last call.
    fn short(&mut self) -> Vec<DocBuf> {
        let short = |event: DocBuf| {
            let mut out = DocBuf::new();
            for field in ["atype", "param", "result"] {
                out.push(field, event.get(field).unwrap());
            }
            out
        };
        self.events().into_iter().map(short).collect()
    }

    /// Runs a command that must succeed, and compares its events.
    fn check(&mut self, db: &str, command: DocBuf, expected: &[DocBuf]) {
        self.server.run(db, command.clone());
        assert_eq!(self.short(), expected, "{command:?}");
    }
}

fn event(atype: &str, param: DocBuf) -> DocBuf {
    doc! {"atype": atype, "param": &param, "result": 0}
}

fn index(ns: &str, name: &str, key: DocBuf, state: &str) -> DocBuf {
    let spec = doc! {"v": 2, "key": &key, "name": name};
    let param = doc! {"ns": ns, "indexName": name, "indexSpec": &spec, "indexBuildState": state};
    event("createIndex", param)
}

fn id_index(ns: &str) -> DocBuf {
    index(ns, "_id_", doc! {"_id": 1}, "IndexBuildSucceeded")
}

fn created(ns: &str) -> [DocBuf; 2] {
    [event("createCollection", doc! {"ns": ns}), id_index(ns)]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_has_the_fields_of_mongodbs() {
    let mut audited = Trail::new(|_| {});
    audited.server.log_in_as_root();
    audited.server.run("test", doc! {"create": "c"});
    let events = audited.events();
    let names: Vec<&str> = events[0].iter().map(|(name, _)| name).collect();
    let expected = [
        "atype", "ts", "uuid", "local", "remote", "users", "roles", "param", "result",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        events[0].get_doc("remote"),
        Some(&*doc! {"unix": "anonymous"})
    );
    let users = events[0].get_array("users").unwrap();
    assert_eq!(
        users.get_doc("0"),
        Some(&*doc! {"user": "root", "db": "admin"})
    );
    let ids: Vec<_> = events
        .iter()
        .map(|event| event.get("uuid").unwrap().to_owned())
        .collect();
    assert!(
        ids.iter().all(|id| *id == ids[0]),
        "one connection has one UUID"
    );
    assert!(matches!(
        ids[0].as_value(),
        Value::Binary { subtype: 4, .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_the_catalog_are_recorded_whatever_makes_them() {
    let mut audited = Trail::new(|_| {});
    let [collection, id] = created("test.c");
    audited.check(
        "test",
        doc! {"insert": "c", "documents": [{"_id": 1, "x": 1}]},
        &[event("createDatabase", doc! {"ns": "test"}), collection, id],
    );
    audited.check("test", doc! {"insert": "c", "documents": [{"_id": 2}]}, &[]);
    let of_index = |state| index("test.c", "x_1", doc! {"x": 1}, state);
    audited.check(
        "test",
        doc! {"createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "x_1"}]},
        &[
            of_index("IndexBuildStarted"),
            of_index("IndexBuildSucceeded"),
        ],
    );
    let hidden = doc! {"collMod": "c", "index": {"name": "x_1", "hidden": true}};
    audited.check(
        "test",
        hidden.clone(),
        &[event("collMod", doc! {"db": "test", "args": &hidden})],
    );
    audited.check(
        "test",
        doc! {"dropIndexes": "c", "index": "x_1"},
        &[event(
            "dropIndex",
            doc! {"ns": "test.c", "indexName": "x_1"},
        )],
    );
    let view = doc! {"ns": "test.v", "viewOn": "test.c", "pipeline": [{"$match": {"x": 1}}]};
    audited.server.run(
        "test",
        doc! {"create": "v", "viewOn": "c", "pipeline": [{"$match": {"x": 1}}]},
    );
    let short = audited.short();
    assert_eq!(short.last(), Some(&event("createCollection", view.clone())));
    audited.check("test", doc! {"drop": "v"}, &[event("dropCollection", view)]);
    audited.check(
        "admin",
        doc! {"renameCollection": "test.c", "to": "test.d"},
        &[event(
            "renameCollection",
            doc! {"old": "test.c", "new": "test.d"},
        )],
    );
    audited.check(
        "test",
        doc! {"drop": "none"},
        &[doc! {"atype": "dropCollection", "param": {"ns": "test.none"}, "result": 26}],
    );
    audited.check(
        "test",
        doc! {"dropDatabase": 1},
        &[
            event("dropCollection", doc! {"ns": "test.d"}),
            event("dropCollection", doc! {"ns": "test.system.views"}),
            event("dropDatabase", doc! {"ns": "test"}),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_writes_another_collection_records_it() {
    let mut audited = Trail::new(|_| {});
    audited.server.fill("c", 3);
    audited.events();
    let out = doc! {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}};
    audited.server.run("test", out);
    let short = audited.short();
    let to: Vec<_> = short
        .iter()
        .filter(|one| one.get_str("atype") == Some("renameCollection"))
        .collect();
    assert_eq!(to.len(), 1, "{short:?}");
    assert_eq!(
        to[0].get_doc("param").unwrap().get_str("new"),
        Some("test.d")
    );
}

/// Each command on users and roles, with its event.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_users_and_roles_are_recorded() {
    let mut audited = Trail::new(|_| {});
    // It makes the collections, whose events have a test of their own.
    audited.server.run(
        "a",
        doc! {"createRole": "first", "roles": [], "privileges": []},
    );
    audited
        .server
        .run("a", doc! {"createUser": "first", "pwd": "p", "roles": []});
    audited.events();
    let read = doc! {"role": "read", "db": "a"};
    let privilege = doc! {"resource": {"db": "a", "collection": "c"}, "actions": ["find"]};
    let user = |more: DocBuf| {
        let mut param = doc! {"user": "ann", "db": "a"};
        param.push_all(&more);
        param
    };
    let role = |more: DocBuf| {
        let mut param = doc! {"role": "r", "db": "a"};
        param.push_all(&more);
        param
    };
    let cases = [
        (
            doc! {"createUser": "ann", "pwd": "pencil", "roles": ["read"]},
            user(doc! {"roles": [&read]}),
        ),
        (
            doc! {"updateUser": "ann", "pwd": "pencil2", "customData": {"x": 1}},
            user(doc! {"passwordChanged": true, "customData": {"x": 1}}),
        ),
        (
            doc! {"createRole": "r", "roles": [], "privileges": [&privilege]},
            role(doc! {"roles": [], "privileges": [&privilege]}),
        ),
        (
            doc! {"updateRole": "r", "roles": ["read"]},
            role(doc! {"roles": [&read]}),
        ),
        (
            doc! {"grantRolesToUser": "ann", "roles": ["r"]},
            user(doc! {"roles": [{"role": "r", "db": "a"}]}),
        ),
        (
            doc! {"revokeRolesFromUser": "ann", "roles": ["r"]},
            user(doc! {"roles": [{"role": "r", "db": "a"}]}),
        ),
        (
            doc! {"revokeRolesFromRole": "r", "roles": ["read"]},
            role(doc! {"roles": [&read]}),
        ),
        (
            doc! {"grantRolesToRole": "r", "roles": ["read"]},
            role(doc! {"roles": [&read]}),
        ),
        (
            doc! {"revokePrivilegesFromRole": "r", "privileges": [&privilege]},
            role(doc! {"privileges": [&privilege]}),
        ),
        (
            doc! {"grantPrivilegesToRole": "r", "privileges": [&privilege]},
            role(doc! {"privileges": [&privilege]}),
        ),
        (doc! {"dropUser": "ann"}, user(doc! {})),
        (doc! {"dropRole": "r"}, role(doc! {})),
        (doc! {"dropAllUsersFromDatabase": 1}, doc! {"db": "a"}),
        (doc! {"dropAllRolesFromDatabase": 1}, doc! {"db": "a"}),
    ];
    for (command, param) in cases {
        let name = command.first().unwrap().0.to_owned();
        audited.check("a", command, &[event(&name, param)]);
    }
    // One that fails changes nothing.
    assert_eq!(audited.server.code("a", doc! {"dropUser": "ann"}), 11);
    assert_eq!(audited.short(), [] as [DocBuf; 0]);
    let text = std::fs::read_to_string(&audited.path).unwrap();
    assert!(!text.contains("pencil"));
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_writes_of_users_are_recorded_without_credentials() {
    let mut audited = Trail::new(|_| {});
    audited
        .server
        .run("a", doc! {"createUser": "ann", "pwd": "p", "roles": []});
    audited.events();
    let update = doc! {"q": {"_id": "a.ann"}, "u": {"$set": {"credentials": {"x": "pencil"}}}};
    let delete = doc! {"q": {"_id": "a.ann"}, "limit": 1};
    let hidden = doc! {"q": {"_id": "a.ann"}, "u": {"$set": {"credentials": "xxx"}}};
    let direct = |operation: &str, document: &Doc| {
        event(
            "directAuthMutation",
            doc! {"document": document, "ns": "admin.system.users", "operation": operation},
        )
    };
    audited.check(
        "admin",
        doc! {"update": "system.users", "updates": [&update]},
        &[direct("update", &hidden)],
    );
    audited.check(
        "admin",
        doc! {"delete": "system.users", "deletes": [&delete]},
        &[direct("delete", &delete)],
    );
    // Nothing is left to delete.
    audited.check(
        "admin",
        doc! {"delete": "system.users", "deletes": [&delete]},
        &[],
    );
    audited.check(
        "a",
        doc! {"delete": "system.users", "deletes": [&delete]},
        &[],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_messages_are_recorded() {
    let mut audited = Trail::new(|_| {});
    let parameter = doc! {"setParameter": 1, "notablescan": true};
    audited.check(
        "admin",
        parameter.clone(),
        &[event(
            "setParameter",
            doc! {"db": "admin", "args": &parameter},
        )],
    );
    audited.check(
        "admin",
        doc! {"logApplicationMessage": "hello"},
        &[event("applicationMessage", doc! {"msg": "hello"})],
    );
    for wrong in [Value::Int32(1), Value::Null] {
        let mut command = DocBuf::new();
        command.push_value("logApplicationMessage", &wrong);
        assert_eq!(audited.server.code("admin", command), 2);
    }
    audited.events();
    audited.check(
        "admin",
        doc! {"getClusterParameter": "*"},
        &[event(
            "getClusterParameter",
            doc! {"requestedClusterServerParameters": "*"},
        )],
    );
    let options = doc! {"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": 100}}};
    audited
        .server
        .run("admin", doc! {"setClusterParameter": &options});
    let short = audited.short();
    let param = short.last().unwrap().get_doc("param").unwrap();
    let updated = param.get_doc("updatedClusterServerParameter").unwrap();
    let images = updated.get_doc("preAndPostImages").unwrap();
    assert_eq!(
        images
            .get("expireAfterSeconds")
            .and_then(|n| n.as_i64_lossless()),
        Some(100)
    );
    assert!(param.get_doc("originalClusterServerParameter").is_some());
    audited.server.run("admin", doc! {"shutdown": 1});
    assert_eq!(audited.short(), [event("shutdown", doc! {})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_set_has_both_configurations() {
    let mut audited = Trail::new(|settings| settings.replica_set = Some("rs0".into()));
    let given = doc! {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": "a:1"}]};
    audited
        .server
        .run("admin", doc! {"replSetInitiate": &given});
    audited.events();
    let next = doc! {"_id": "rs0", "version": 2, "members": [{"_id": 0, "host": "b:2"}]};
    audited.server.run("admin", doc! {"replSetReconfig": &next});
    let events = audited.short();
    let reconfig = events
        .iter()
        .find(|one| one.get_str("atype") == Some("replSetReconfig"));
    let param = reconfig.unwrap().get_doc("param").unwrap();
    let version = |side: &str| param.get_doc(side).unwrap().get_i32("version");
    assert_eq!((version("old"), version("new")), (Some(1), Some(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_recorded_and_permissions_if_that_is_wanted() {
    let mut audited = Trail::new(|settings| {
        settings.security.authorization = true;
        settings.logins.localhost_bypass = false;
    });
    assert_eq!(audited.server.code("test", doc! {"find": "c"}), 13);
    audited
        .server
        .log_in_with("ann", doc! {"db": "test", "collection": "c"}, &["find"]);
    audited
        .server
        .run("test", doc! {"find": "c", "filter": {"x": 1}});
    assert_eq!(
        audited.server.code(
            "test",
            doc! {"createUser": "u", "pwd": "pencil", "roles": []}
        ),
        13
    );
    let check = |command: &str, ns: &str, args: DocBuf, result: i32| {
        doc! {
            "atype": "authCheck", "param": {"command": command, "ns": ns, "args": &args},
            "result": result,
        }
    };
    let refused = [
        check("find", "test.c", doc! {"find": "c"}, 13),
        check(
            "createUser",
            "test",
            doc! {"createUser": "u", "pwd": "xxx", "roles": []},
            13,
        ),
    ];
    assert_eq!(audited.short(), refused);
    // A command that anyone may run is not checked.
    let set = |on: bool| doc! {"setParameter": 1, "auditAuthorizationSuccess": on};
    audited.server.log_in_as_root();
    audited.server.run("admin", set(true));
    audited.events();
    let find = doc! {"find": "c", "filter": {"x": 1}};
    audited.check("test", find.clone(), &[check("find", "test.c", find, 0)]);
    audited.check("test", doc! {"ping": 1}, &[]);
    let insert = doc! {"insert": "c", "documents": [{"_id": 1}]};
    audited.server.run("test", insert.clone());
    assert_eq!(audited.short()[0], check("insert", "test.c", insert, 0));
    audited.server.run("admin", set(false));
    audited.events();
    audited.check("test", doc! {"find": "c"}, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_filter_selects_is_recorded() {
    let filter = doc! {"atype": {"$in": ["createCollection"]}, "param.ns": "test.c"};
    let mut audited = Trail::new(|settings| settings.audit.filter = Some(filter));
    audited.server.run("test", doc! {"create": "b"});
    let expected = [event("createCollection", doc! {"ns": "test.c"})];
    audited.check("test", doc! {"create": "c"}, &expected);
    // Its filter matches no check of privileges.
    audited.server.run(
        "admin",
        doc! {"setParameter": 1, "auditAuthorizationSuccess": true},
    );
    let warned = audited.server.server.log.recent().0;
    assert!(
        warned
            .iter()
            .any(|line| line.contains("matches no event authCheck"))
    );
    assert!(
        !audited
            .server
            .server
            .audit
            .as_ref()
            .unwrap()
            .records_checks()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_stored_where_it_may_change() {
    let mut audited = Trail::new(|settings| settings.audit.is_runtime = true);
    let config = audited.server.run("admin", doc! {"getAuditConfig": 1});
    assert_eq!(config.get_bool("auditAuthorizationSuccess"), Some(false));
    assert_eq!(config.get_doc("filter"), Some(Doc::empty()));
    let filter = doc! {"atype": {"$in": ["createCollection", "auditConfigure"]}};
    let set = doc! {"setAuditConfig": 1, "filter": &filter, "auditAuthorizationSuccess": false};
    audited.server.run("admin", set);
    let config = audited.server.run("admin", doc! {"getAuditConfig": 1});
    assert_eq!(config.get_doc("filter"), Some(&*filter));
    let generation = config.get("generation").unwrap().to_owned();
    assert_ne!(
        generation,
        Value::ObjectId(frond_bson::ObjectId([0; 12])).to_owned()
    );
    let events = audited.short();
    let configured = events
        .iter()
        .find(|one| one.get_str("atype") == Some("auditConfigure"));
    let param = configured.unwrap().get_doc("param").unwrap();
    assert_eq!(
        param.get_doc("config").unwrap().get_doc("filter"),
        Some(&*filter)
    );
    // As another member of the set, or at the next start.
    let audit = audited.server.server.audit.as_ref().unwrap();
    audit.configure(crate::audit::AuditConfig::new(None, Doc::empty(), true).unwrap());
    audit.reload(&audited.server.server.store).unwrap();
    assert_eq!(audit.config().filter, filter);
    let wrong = doc! {"setAuditConfig": 1, "filter": {"atype": {"$nonsense": 1}}};
    assert_eq!(audited.server.code("admin", wrong), 2);
    let parameter = doc! {"setParameter": 1, "auditAuthorizationSuccess": true};
    assert_eq!(audited.server.code("admin", parameter), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_needs_an_audit_log() {
    let mut server = TestServer::new();
    for command in [doc! {"getAuditConfig": 1}, doc! {"setAuditConfig": 1}] {
        assert_eq!(server.code("admin", command), 344);
    }
    let parameter = |on: bool| doc! {"setParameter": 1, "auditAuthorizationSuccess": on};
    assert_eq!(server.code("admin", parameter(true)), 2);
    server.run("admin", parameter(false));
    server.run("admin", doc! {"logApplicationMessage": "no effect"});
    let mut audited = Trail::new(|_| {});
    audited.server.run("admin", doc! {"getAuditConfig": 1});
    assert_eq!(
        audited.server.code("admin", doc! {"setAuditConfig": 1}),
        345
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_rotates_by_itself_or_with_the_log() {
    let mut audited = Trail::new(|_| {});
    audited.server.run("test", doc! {"create": "c"});
    for (which, rotates) in [
        (Value::String("server"), false),
        (Value::String("audit"), true),
        (Value::Int32(1), true),
    ] {
        let mut command = DocBuf::new();
        command.push_value("logRotate", &which);
        let before = std::fs::read_to_string(&audited.path).unwrap();
        audited.server.run("admin", command);
        let text = std::fs::read_to_string(&audited.path).unwrap();
        assert_eq!(text != before, rotates, "{which:?}");
        if rotates {
            let first = extjson::parse(text.lines().next().unwrap()).unwrap();
            assert_eq!(first.get_str("atype"), Some("rotateLog"));
            let status = first
                .get_doc("param")
                .unwrap()
                .get_doc("logRotationStatus")
                .unwrap();
            let old = std::fs::read_to_string(status.get_str("rotatedLogPath").unwrap()).unwrap();
            assert_eq!(old, before);
        }
    }
}

#[test]
fn commands_that_change_users_or_roles_have_an_event() {
    for command in COMMANDS.iter() {
        let spec = command.spec();
        let changes = ["User", "Role", "Privileges"]
            .iter()
            .any(|part| spec.name().contains(part));
        let reads = spec.name().ends_with("Info") || spec.name() == "invalidateUserCache";
        if changes && !reads {
            assert_ne!(spec.audits, Audited::Nothing, "{}", spec.name());
        }
    }
}
