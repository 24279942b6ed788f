//! Changes of users and roles. Commands make them one after the other; a change by a direct write that comes in between is
//! noticed, and the command is tried again on what it left.

use std::time::Duration;

use frond_auth::UserName;
use frond_bson::{Collator, Doc, DocBuf, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{
    DeleteRequest, DocumentStore, Durability, InsertOptions, OpContext, UpdateOutcome,
    UpdateRequest,
};
use parking_lot::MutexGuard;

use super::Access;
use super::stored::{Place, ROLES, Stored, USERS, VERSION, role_not_found, user_not_found};

/// The version of the documents of users and roles: MongoDB's since 3.0.
pub const AUTH_SCHEMA: i32 = 5;

/// Attempts of a change that conflicts with direct writes.
const ATTEMPTS_MAX: u32 = 100;

/// Interval at which a waiting command checks its interrupt and its time limit.
const TURN: Duration = Duration::from_millis(10);

/// The right to change users and roles. Other commands wait until it is dropped.
pub struct Changing<'a> {
    store: &'a DocumentStore,
    limits: &'a OpContext,
    _only: MutexGuard<'a, ()>,
}

impl Access {
    /// Begins a change, through this handle of the store.
    ///
    /// # Errors
    /// If the command ends while it waits for another one. `AuthSchemaIncompatible` (69) if the users and roles are those of a server that is too old; errors of the store.
    pub fn change<'a>(
        &'a self,
        store: &'a DocumentStore,
        limits: &'a OpContext,
    ) -> Result<Changing<'a>> {
        let only = loop {
            if let Some(only) = self.changing.try_lock_for(TURN) {
                break only;
            }
            limits.check()?;
        };
        let changing = Changing {
            store,
            limits,
            _only: only,
        };
        changing.check_schema()?;
        Ok(changing)
    }
}

impl Changing<'_> {
    /// The users and roles as they are now.
    pub fn stored(&self) -> Stored {
        Stored::within(self.store, self.limits)
    }

    /// The stored version; `None` if there is none yet.
    fn check_schema(&self) -> Result<Option<i64>> {
        let filter = doc! {"_id": "authSchema"};
        let found = self.stored().find(&VERSION, &filter, None)?.pop();
        let Some(found) = found else {
            return Ok(None);
        };
        let version = found.get("currentVersion");
        let version = version.and_then(|version| version.as_i64_lossless());
        match version {
            Some(version) if version >= i64::from(AUTH_SCHEMA) => Ok(Some(version)),
            _ => Err(Error::new(
                ErrorCode::from_code(69),
                format!(
                    "User and role management commands require auth data to have at least schema version {AUTH_SCHEMA} \
                     but found {}",
                    version.unwrap_or(0)
                ),
            )),
        }
    }

    /// Stores the version with the first user or role.
    fn write_schema(&self) -> Result<()> {
        if self.check_schema()?.is_some() {
            return Ok(());
        }
        let filter = doc! {"_id": "authSchema"};
        let update = doc! {"$set": {"currentVersion": AUTH_SCHEMA}};
        let request = UpdateRequest {
            upsert: true,
            ..update_request(&filter, &update)
        };
        let ns = VERSION.namespace()?;
        (self.store).update(&ns, &request, Durability::Logged, self.limits)?;
        Ok(())
    }

    /// Stores a new user or role.
    ///
    /// # Errors
    /// 51003 if there is a user of this name, 51002 if there is such a role; errors of the store.
    pub fn insert(&self, place: &Place, name: &UserName, document: &Doc) -> Result<()> {
        self.write_schema()?;
        let options = InsertOptions {
            ordered: true,
            durability: Durability::Logged,
            bypass_validation: true,
            keep_empty_timestamps: true,
        };
        let outcome = self
            .store
            .insert(&place.namespace()?, &[document], options)?;
        match outcome.errors.into_iter().next() {
            None => Ok(()),
            Some(failed) => Err(exists(place, name, failed.error.into())),
        }
    }

    /// Changes the document of a user or of a role. `change` makes the update from the document; it is called again if
    /// the document was changed meanwhile.
    ///
    /// # Errors
    /// `UserNotFound` (11), `RoleNotFound` (31), those of `change`, errors of the store.
    pub fn update(
        &self,
        place: &Place,
        name: &UserName,
        change: impl Fn(&Doc, &Stored) -> Result<DocBuf>,
    ) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            self.limits.check()?;
            let stored = self.stored();
            let Some(before) = stored.find(place, &place.named(name), None)?.pop() else {
                return Err(not_found(place, name));
            };
            let update = change(&before, &stored)?;
            // It must still be the same document: its fields that commands change are compared.
            let mut filter = doc! {"_id": before.get("_id").unwrap_or(Value::Null)};
            for field in [
                "roles",
                "privileges",
                "credentials",
                "authenticationRestrictions",
            ] {
                match before.get(field) {
                    Some(value) => filter.push_doc(field, |is| is.push("$eq", value)),
                    None => filter.push(field, &doc! {"$exists": false}),
                }
            }
            let ns = place.namespace()?;
            let request = update_request(&filter, &update);
            let UpdateOutcome { matched, .. } =
                (self.store).update(&ns, &request, Durability::Logged, self.limits)?;
            if matched > 0 {
                return Ok(());
            }
        }
        Err(Error::new(
            ErrorCode::WriteConflict,
            format!("{name} is changed by others all the time; try again"),
        ))
    }

    /// Replaces the document of a user or of a role that exists.
    ///
    /// # Errors
    /// `UserNotFound` (11), `RoleNotFound` (31), errors of the store.
    pub fn replace(&self, place: &Place, name: &UserName, document: &Doc) -> Result<()> {
        let filter = place.named(name);
        let request = update_request(&filter, document);
        let ns = place.namespace()?;
        let outcome = (self.store).update(&ns, &request, Durability::Logged, self.limits)?;
        match outcome.matched {
            0 => Err(not_found(place, name)),
            _ => Ok(()),
        }
    }

    /// Removes the users or roles that pass a filter. Returns how many there were.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn remove(&self, place: &Place, filter: &Doc) -> Result<u64> {
        remove(self.store, place, filter, self.limits)
    }

    /// Removes the roles that pass a filter, first from all users and roles that have them: in one transaction. `pull` is a
    /// filter for the elements of `roles`. Returns how many roles there were, and the time of the entry in the oplog.
    ///
    /// # Errors
    /// Errors of the store; then nothing is changed.
    pub fn remove_roles(&self, roles: &Doc, pull: &Doc) -> Result<(u64, Option<Timestamp>)> {
        let mut attempts = 0;
        loop {
            self.limits.check()?;
            attempts += 1;
            match self.try_remove_roles(roles, pull) {
                Err(error)
                    if error.code() == ErrorCode::WriteConflict && attempts < ATTEMPTS_MAX => {}
                done => return done,
            }
        }
    }

    fn try_remove_roles(&self, roles: &Doc, pull: &Doc) -> Result<(u64, Option<Timestamp>)> {
        let transaction = self.store.begin_for_server();
        let inside = self.store.in_transaction(&transaction);
        let having = doc! {"roles": {"$elemMatch": pull}};
        let update = doc! {"$pull": {"roles": pull}};
        let run = || {
            for place in [USERS, ROLES] {
                let request = UpdateRequest {
                    multi: true,
                    ..update_request(&having, &update)
                };
                let ns = place.namespace()?;
                inside.update(&ns, &request, Durability::Logged, self.limits)?;
            }
            remove(&inside, &ROLES, roles, self.limits)
        };
        let removed = run().inspect_err(|_| transaction.abort())?;
        transaction.commit(Durability::Logged)?;
        Ok((removed, transaction.committed_at()))
    }
}

fn update_request<'a>(filter: &'a Doc, update: &'a Doc) -> UpdateRequest<'a> {
    UpdateRequest {
        bypass_validation: true,
        keep_empty_timestamps: true,
        collation: Some(Collator::default()),
        ..UpdateRequest::new(filter, Value::Document(update))
    }
}

fn remove(store: &DocumentStore, place: &Place, filter: &Doc, limits: &OpContext) -> Result<u64> {
    let request = DeleteRequest {
        filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: Some(Collator::default()),
    };
    Ok(store.delete(&place.namespace()?, &request, Durability::Logged, limits)?)
}

fn not_found(place: &Place, name: &UserName) -> Error {
    match place.key {
        "user" => user_not_found(format!("User {name} not found")),
        _ => role_not_found(format!("Role {name} not found")),
    }
}

/// The error of an insert: MongoDB's for a name that is taken.
fn exists(place: &Place, name: &UserName, error: Error) -> Error {
    if error.code() != ErrorCode::DuplicateKey {
        return error;
    }
    match place.key {
        "user" => Error::location(51003, format!("User \"{name}\" already exists")),
        _ => Error::location(51002, format!("Role \"{name}\" already exists")),
    }
}
