//! Users and roles with their credentials, as dumps of the Database Tools carry them.
//!
//! The documents of `admin.system.users` and `admin.system.roles` go into two collections of the target, which then
//! takes them over by `_mergeAuthzCollections`.

use frond_auth::scram::Credential;
use frond_bson::{Doc, DocBuf, doc};
use frond_client::{BulkOptions, Client};

use crate::error::{Error, Result};
use crate::inventory::{self, in_database};
use crate::write::{self, Run};

/// Iterations of SCRAM-SHA-1, as MongoDB makes them.
const ITERATIONS: u32 = 10_000;

/// Users and roles as documents.
#[derive(Debug, Default)]
pub struct Accounts {
    /// Documents of `admin.system.users`.
    pub users: Vec<DocBuf>,
    /// Documents of `admin.system.roles`.
    pub roles: Vec<DocBuf>,
}

impl Accounts {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.roles.is_empty()
    }
}

/// Reads all users and roles. `Err` of the server says that this login may not.
pub fn read(client: &mut Client) -> Result<Accounts> {
    let mut accounts = Accounts::default();
    inventory::all_of(
        client,
        &in_database("admin", "system.roles"),
        Doc::empty(),
        &mut |role| {
            accounts.roles.push(role.to_owned());
        },
    )?;
    inventory::all_of(
        client,
        &in_database("admin", "system.users"),
        Doc::empty(),
        &mut |user| {
            accounts.users.push(user.to_owned());
        },
    )?;
    let old = accounts
        .users
        .iter()
        .any(|user| !user.contains_key("credentials"));
    if old || (accounts.users.is_empty() && client.limits().wire_version < 2) {
        // MongoDB 2.4 kept the users of each database there.
        accounts.users.clear();
        for database in inventory::databases(client)? {
            inventory::all_of(
                client,
                &in_database(&database, "system.users"),
                Doc::empty(),
                &mut |user| {
                    accounts.users.push(from_2_4(user, &database));
                },
            )?;
        }
    }
    // A user of MONGODB-CR alone could not log in by any driver of today.
    for user in &mut accounts.users {
        if let Some(better) = with_scram(user)? {
            *user = better;
        }
    }
    Ok(accounts)
}

/// A user of MongoDB 2.4 as later versions store it.
fn from_2_4(user: &Doc, database: &str) -> DocBuf {
    let name = user.get_str("user").unwrap_or_default();
    let source = user.get_str("userSource").unwrap_or(database);
    let mut out = doc! { "_id": format!("{source}.{name}"), "user": name, "db": source };
    out.push_doc("credentials", |credentials| match user.get_str("pwd") {
        Some(digest) => credentials.push("MONGODB-CR", digest),
        None => credentials.push("external", true),
    });
    out.push_array("roles", |roles| {
        let mut push =
            |role: &str, database: &str| roles.push(&doc! { "role": role, "db": database });
        match user.get_array("roles") {
            Some(names) => names
                .values()
                .filter_map(|role| role.as_str())
                .for_each(|role| push(role, database)),
            // The users of 2.2 had no roles: all rights on their database, or reading only.
            None => {
                let read_only = user.get_bool("readOnly") == Some(true);
                match (database, read_only) {
                    ("admin", true) => push("readAnyDatabase", "admin"),
                    ("admin", false) => push("root", "admin"),
                    (_, true) => push("read", database),
                    (_, false) => push("dbOwner", database),
                }
            }
        }
        for (database, names) in user.get_doc("otherDBRoles").unwrap_or(Doc::empty()) {
            let names = names.as_array().unwrap_or(Doc::empty());
            names
                .values()
                .filter_map(|role| role.as_str())
                .for_each(|role| push(role, database));
        }
    });
    out
}

/// The user with a credential of SCRAM-SHA-1 in the place of one of MONGODB-CR: both rest on the same digest.
fn with_scram(user: &Doc) -> Result<Option<DocBuf>> {
    let credentials = user.get_doc("credentials").unwrap_or(Doc::empty());
    let Some(digest) = credentials.get_str("MONGODB-CR") else {
        return Ok(None);
    };
    let mut out = DocBuf::new();
    let made = Credential::of_digest(digest, ITERATIONS)
        .map_err(|error| Error::Data(format!("the password of a user: {error}")))?;
    for element in user.iter_raw() {
        if element.name() != "credentials" {
            out.push_raw(&element);
            continue;
        }
        out.push_doc("credentials", |kept| {
            for (mechanism, credential) in credentials {
                if mechanism != "MONGODB-CR" {
                    kept.push_value(mechanism, &credential);
                }
            }
            if !credentials.contains_key("SCRAM-SHA-1") {
                kept.push("SCRAM-SHA-1", &made.to_doc());
            }
        });
    }
    Ok(Some(out))
}

/// Gives users and roles to a server. Those that it has besides stay; with `drop` they go.
pub fn merge(client: &mut Client, accounts: &Accounts, drop: bool) -> Result<()> {
    if accounts.is_empty() {
        return Ok(());
    }
    let mut command = doc! { "_mergeAuthzCollections": 1 };
    let parts = [
        ("tempusers", &accounts.users, "tempUsersCollection"),
        ("temproles", &accounts.roles, "tempRolesCollection"),
    ];
    let mut done = Ok(());
    for (name, documents, field) in parts {
        let temporary = in_database("admin", name);
        client.drop_collection(&temporary)?;
        let mut run = Run::default();
        documents.iter().for_each(|document| run.push(document));
        if !run.is_empty() {
            let failed =
                write::write_all(client, &temporary, "insert", &run, BulkOptions::default())?;
            done = done.and(write::first_failure("insert", &failed));
        }
        command.push(
            field,
            if documents.is_empty() {
                ""
            } else {
                field_namespace(name)
            },
        );
    }
    command.push("drop", drop);
    command.push("db", "");
    let done = done.and_then(|()| Ok(client.command("admin", &command).map(|_| ())?));
    for (name, ..) in parts {
        client.drop_collection(&in_database("admin", name))?;
    }
    done
}

fn field_namespace(name: &str) -> &'static str {
    if name == "tempusers" {
        "admin.tempusers"
    } else {
        "admin.temproles"
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_user_of_2_4() {
        let old = doc! { "user": "anna", "pwd": "0123", "roles": ["readWrite"], "otherDBRoles": { "b": ["read"] } };
        let new = from_2_4(&old, "a");
        assert_eq!(
            new,
            doc! {
                "_id": "a.anna", "user": "anna", "db": "a", "credentials": { "MONGODB-CR": "0123" },
                "roles": [{ "role": "readWrite", "db": "a" }, { "role": "read", "db": "b" }],
            }
        );
        let better = with_scram(&new).unwrap().unwrap();
        let credentials = better.get_doc("credentials").unwrap();
        assert!(
            credentials
                .get_doc("SCRAM-SHA-1")
                .unwrap()
                .contains_key("storedKey")
        );
        assert!(!credentials.contains_key("MONGODB-CR"));
        assert!(with_scram(&better).unwrap().is_none());
        let older = from_2_4(&doc! { "user": "x", "pwd": "1", "readOnly": true }, "a");
        assert_eq!(older.get_array("roles").unwrap().count(), 1);
    }
}
