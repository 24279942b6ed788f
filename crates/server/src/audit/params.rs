//! The audit event that a command makes, and the parameters of events, as in MongoDB.

use frond_auth::UserName;
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_store::{CatalogChange, IndexState, ViewChange};

/// The event that a successful command makes. Changes of the catalog make theirs besides, whatever command they are by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audited {
    Nothing,
    /// None of its own: it changes the catalog.
    Catalog,
    /// An event with the name of the command and its fields, which MongoDB does not have.
    Itself,
    /// A copy of everything begins or was made.
    Backup,
    /// The name of the command, the user that it names, and what it gives to it.
    User,
    /// The same for a role.
    Role,
    /// All users or roles of the database.
    Database,
    /// `dropCollection` of what is not there.
    DropCollection,
    DropDatabase,
    EnableSharding,
    ShardCollection,
    ReplSetReconfig,
    Logout,
    ApplicationMessage,
    GetClusterParameter,
    SetClusterParameter,
    AuditConfigure,
    Shutdown,
}

/// Types of events of changes of the catalog.
const OF_CATALOG: &[&str] = &[
    "createDatabase",
    "createCollection",
    "createIndex",
    "dropCollection",
    "dropDatabase",
    "dropIndex",
    "renameCollection",
];

impl Audited {
    /// The types of events that the command with this name may make.
    pub fn types<'a>(self, name: &'a &'a str) -> &'a [&'a str] {
        match self {
            Audited::Nothing => &[],
            Audited::Catalog | Audited::DropCollection | Audited::DropDatabase => OF_CATALOG,
            Audited::Backup => &["backup"],
            Audited::ReplSetReconfig => &["replSetReconfig"],
            Audited::ApplicationMessage => &["applicationMessage"],
            Audited::AuditConfigure => &["auditConfigure"],
            _ => std::slice::from_ref(name),
        }
    }
}

/// The result of an index build that has failed, and of a drop of what is not there.
const INDEX_BUILD_ABORTED: i32 = 276;
pub const NAMESPACE_NOT_FOUND: i32 = 26;

/// Fields that commands share and that say nothing about what they do.
const SHARED: [&str; 10] = [
    "$db",
    "lsid",
    "$clusterTime",
    "$readPreference",
    "writeConcern",
    "comment",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "maxTimeMS",
];

/// The parameters of a command on a user (`kind` is `user`) or on a role (`role`), by its name.
pub fn of_access(command: &str, kind: &str, db: &str, body: &Doc) -> DocBuf {
    let name = body.get_str(command).unwrap_or_default();
    let mut param = DocBuf::new();
    param.push(kind, name);
    param.push("db", db);
    if command == "updateUser" {
        param.push("passwordChanged", body.contains_key("pwd"));
    }
    if let Some(data) = body.get_doc("customData") {
        param.push("customData", data);
    }
    if let Some(roles) = body.get_array("roles") {
        param.push_value("roles", &named_roles(roles, db).as_value());
    }
    for field in ["privileges", "authenticationRestrictions"] {
        if let Some(given) = body.get_array(field) {
            param.push_value(field, &Value::Array(given));
        }
    }
    param
}

/// Roles that are named by a string are those of the command's database.
fn named_roles(roles: &Doc, db: &str) -> ArrayBuf {
    let mut out = ArrayBuf::new();
    for role in roles.values() {
        match role {
            Value::String(name) => out.push(&doc! {"role": name, "db": db}),
            other => out.push_value(&other),
        }
    }
    out
}

/// The parameters of an event that has the name of its command: the database, and the fields of the command without those that hold
/// secrets.
pub fn of_command(db: &str, body: &Doc, hidden: &[&str]) -> DocBuf {
    let mut args = DocBuf::new();
    for (name, value) in body.iter() {
        if hidden.contains(&name) {
            args.push(name, crate::shown_command::REDACTED);
        } else if !SHARED.contains(&name) {
            args.push(name, value);
        }
    }
    doc! {"db": db, "args": args}
}

/// The parameters of a login.
pub fn of_login(user: &UserName, mechanism: &str) -> DocBuf {
    doc! {"user": &*user.name, "db": &*user.db, "mechanism": mechanism}
}

/// The parameters of the end of a login. A connection has one user at most.
pub fn of_logout(reason: &str, user: &UserName) -> DocBuf {
    doc! {
        "reason": reason,
        "initialUsers": [{"user": &*user.name, "db": &*user.db}],
        "updatedUsers": [],
    }
}

/// The event of a change of the catalog: its type, its parameters, its result.
pub fn of_change(change: &CatalogChange) -> (&'static str, DocBuf, i32) {
    match change {
        CatalogChange::DatabaseCreated(db) => ("createDatabase", doc! {"ns": db}, 0),
        CatalogChange::CollectionCreated(ns) => ("createCollection", doc! {"ns": ns.as_str()}, 0),
        CatalogChange::CollectionDropped(ns) => ("dropCollection", doc! {"ns": ns.as_str()}, 0),
        CatalogChange::CollectionRenamed { from, to } => (
            "renameCollection",
            doc! {"old": from.as_str(), "new": to.as_str()},
            0,
        ),
        CatalogChange::ViewCreated(view) => ("createCollection", of_view(view), 0),
        CatalogChange::ViewDropped(view) => ("dropCollection", of_view(view), 0),
        CatalogChange::Index(state, index) => {
            let (state, result) = match state {
                IndexState::Started => ("IndexBuildStarted", 0),
                IndexState::Succeeded => ("IndexBuildSucceeded", 0),
                IndexState::Aborted => ("IndexBuildAborted", INDEX_BUILD_ABORTED),
            };
            let param = doc! {
                "ns": index.ns.as_str(), "indexName": &index.name, "indexSpec": &index.spec,
                "indexBuildState": state,
            };
            ("createIndex", param, result)
        }
        CatalogChange::IndexDropped(index) => (
            "dropIndex",
            doc! {"ns": index.ns.as_str(), "indexName": &index.name},
            0,
        ),
    }
}

fn of_view(view: &ViewChange) -> DocBuf {
    doc! {"ns": view.ns.as_str(), "viewOn": &view.on, "pipeline": view.pipeline.as_value()}
}

/// The parameters of an event that has the documents of a write to users or roles, without credentials.
pub fn of_direct_write(ns: &str, operation: &str, document: &Doc) -> DocBuf {
    doc! {"document": without_credentials(document), "ns": ns, "operation": operation}
}

/// A document or an update without anything that is a credential, at any depth.
fn without_credentials(document: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    for (name, value) in document.iter() {
        let is_secret = name
            .split('.')
            .any(|part| matches!(part, "credentials" | "pwd"));
        match value {
            _ if is_secret => out.push(name, crate::shown_command::REDACTED),
            Value::Document(inner) => out.push(name, &without_credentials(inner)),
            Value::Array(inner) => {
                let mut list = ArrayBuf::new();
                for value in inner.values() {
                    match value {
                        Value::Document(inner) => list.push(&without_credentials(inner)),
                        other => list.push_value(&other),
                    }
                }
                out.push_value(name, &list.as_value());
            }
            other => out.push_value(name, &other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_store::{IndexNamed, Namespace};

    use super::*;

    #[test]
    fn commands_on_users_and_roles() {
        let read = doc! {"role": "read", "db": "a"};
        let privileges = doc! {"resource": {"cluster": true}, "actions": ["inprog"]};
        let cases = [
            (
                "createUser",
                "user",
                doc! {"createUser": "ann", "pwd": "pencil", "roles": ["read"], "customData": {"x": 1}},
                doc! {"user": "ann", "db": "a", "customData": {"x": 1}, "roles": [&read]},
            ),
            (
                "updateUser",
                "user",
                doc! {"updateUser": "ann", "pwd": "pencil"},
                doc! {"user": "ann", "db": "a", "passwordChanged": true},
            ),
            (
                "updateUser",
                "user",
                doc! {"updateUser": "ann", "roles": [{"role": "read", "db": "b"}]},
                doc! {
                    "user": "ann", "db": "a", "passwordChanged": false,
                    "roles": [{"role": "read", "db": "b"}],
                },
            ),
            (
                "dropUser",
                "user",
                doc! {"dropUser": "ann"},
                doc! {"user": "ann", "db": "a"},
            ),
            (
                "grantRolesToUser",
                "user",
                doc! {"grantRolesToUser": "ann", "roles": ["read"]},
                doc! {"user": "ann", "db": "a", "roles": [&read]},
            ),
            (
                "createRole",
                "role",
                doc! {"createRole": "r", "privileges": [&privileges], "roles": ["read"]},
                doc! {"role": "r", "db": "a", "roles": [&read], "privileges": [&privileges]},
            ),
            (
                "revokePrivilegesFromRole",
                "role",
                doc! {"revokePrivilegesFromRole": "r", "privileges": [&privileges]},
                doc! {"role": "r", "db": "a", "privileges": [&privileges]},
            ),
            (
                "dropRole",
                "role",
                doc! {"dropRole": "r"},
                doc! {"role": "r", "db": "a"},
            ),
        ];
        for (command, kind, body, expected) in cases {
            assert_eq!(of_access(command, kind, "a", &body), expected, "{command}");
        }
    }

    #[test]
    fn changes_of_the_catalog() {
        let ns = |name| Namespace::parse(name).unwrap();
        let index = || IndexNamed {
            ns: ns("a.c"),
            name: "x_1".into(),
            spec: doc! {"v": 2, "key": {"x": 1}, "name": "x_1"},
        };
        let of_index = |state: &str| {
            doc! {
                "ns": "a.c", "indexName": "x_1",
                "indexSpec": {"v": 2, "key": {"x": 1}, "name": "x_1"}, "indexBuildState": state,
            }
        };
        let view = || {
            let mut pipeline = ArrayBuf::new();
            pipeline.push(&doc! {"$match": {}});
            ViewChange {
                ns: ns("a.v"),
                on: "a.c".into(),
                pipeline,
            }
        };
        let of_view = doc! {"ns": "a.v", "viewOn": "a.c", "pipeline": [{"$match": {}}]};
        let cases = [
            (
                CatalogChange::DatabaseCreated("a".into()),
                ("createDatabase", doc! {"ns": "a"}, 0),
            ),
            (
                CatalogChange::CollectionCreated(ns("a.c")),
                ("createCollection", doc! {"ns": "a.c"}, 0),
            ),
            (
                CatalogChange::CollectionDropped(ns("a.c")),
                ("dropCollection", doc! {"ns": "a.c"}, 0),
            ),
            (
                CatalogChange::CollectionRenamed {
                    from: ns("a.c"),
                    to: ns("b.d"),
                },
                ("renameCollection", doc! {"old": "a.c", "new": "b.d"}, 0),
            ),
            (
                CatalogChange::ViewCreated(view()),
                ("createCollection", of_view.clone(), 0),
            ),
            (
                CatalogChange::ViewDropped(view()),
                ("dropCollection", of_view, 0),
            ),
            (
                CatalogChange::Index(IndexState::Started, index()),
                ("createIndex", of_index("IndexBuildStarted"), 0),
            ),
            (
                CatalogChange::Index(IndexState::Succeeded, index()),
                ("createIndex", of_index("IndexBuildSucceeded"), 0),
            ),
            (
                CatalogChange::Index(IndexState::Aborted, index()),
                ("createIndex", of_index("IndexBuildAborted"), 276),
            ),
            (
                CatalogChange::IndexDropped(index()),
                ("dropIndex", doc! {"ns": "a.c", "indexName": "x_1"}, 0),
            ),
        ];
        for (change, expected) in cases {
            assert_eq!(of_change(&change), expected, "{change:?}");
        }
    }

    #[test]
    fn secrets_are_in_no_event() {
        let body = doc! {"rotateMasterKey": 1, "key": "pencil", "lsid": {"id": 1}, "$db": "admin"};
        assert_eq!(
            of_command("admin", &body, &["key"]),
            doc! {"db": "admin", "args": {"rotateMasterKey": 1, "key": "xxx"}}
        );
        let user = doc! {"_id": "a.ann", "credentials": {"SCRAM-SHA-1": {"storedKey": "pencil"}}};
        let update = doc! {
            "q": {"_id": "a.ann"},
            "u": [{"$set": {"credentials.SCRAM-SHA-1.storedKey": "pencil", "roles": []}}],
        };
        for document in [user, update] {
            let param = of_direct_write("admin.system.users", "update", &document);
            let shown = format!("{param:?}");
            assert!(
                !shown.contains("pencil") && shown.contains("a.ann"),
                "{shown}"
            );
        }
    }
}
