//! The fields that commands on users and roles share, and the base of their specifications.

use frond_auth::{Privilege, UserName, merge, restrictions};
use frond_bson::{ArrayBuf, DocBuf, Value};
use frond_error::{Error, Result};

use crate::access::stored::{self, ROLES, USERS};
use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::Spec;
use frond_runtime::{AdmissionClass, Work};

/// A command that changes users or roles.
pub const CHANGES: Spec = Spec {
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    writes: true,
    on_external: true,
    ..Spec::CHEAP
};

/// A command that reads users or roles.
pub const READS: Spec = Spec {
    work: Work::Long,
    admission: Some(AdmissionClass::Read),
    on_external: true,
    ..Spec::CHEAP
};

/// The user or the role that the command's first field names, in the command's database.
pub fn named(args: &Arguments<'_>, command: &str, db: &str) -> Result<UserName> {
    let name = args.str(command)?.ok_or_else(|| args.missing(command))?;
    Ok(UserName::new(name, db))
}

/// The roles that a field names: each by its name, in the command's database, or as a document.
pub fn roles(args: &Arguments<'_>, db: &str) -> Result<Option<Vec<UserName>>> {
    let Some(array) = args.array("roles")? else {
        return Ok(None);
    };
    let mut roles: Vec<UserName> = Vec::new();
    for value in array.values() {
        let role = match value {
            Value::String(name) => UserName::new(name, db),
            other => stored::parse_name(&ROLES, &other)?,
        };
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    Ok(Some(roles))
}

/// The same, of a command that needs some.
///
/// # Errors
/// `BadValue` (2) for an empty array.
pub fn some_roles(args: &Arguments<'_>, command: &str, db: &str) -> Result<Vec<UserName>> {
    let roles = roles(args, db)?.ok_or_else(|| args.missing("roles"))?;
    if roles.is_empty() {
        Err(non_empty(command, "roles"))
    } else {
        Ok(roles)
    }
}

/// The privileges that a field names, one for each resource.
pub fn privileges(args: &Arguments<'_>) -> Result<Option<Vec<Privilege>>> {
    let Some(given) = args.documents("privileges")? else {
        return Ok(None);
    };
    let parsed: Result<Vec<_>> = given.into_iter().map(Privilege::parse).collect();
    Ok(Some(merge(parsed?)))
}

/// The same, of a command that needs some.
///
/// # Errors
/// `BadValue` (2) for an empty array.
pub fn some_privileges(args: &Arguments<'_>, command: &str) -> Result<Vec<Privilege>> {
    let privileges = privileges(args)?.ok_or_else(|| args.missing("privileges"))?;
    if privileges.is_empty() {
        Err(non_empty(command, "privileges"))
    } else {
        Ok(privileges)
    }
}

fn non_empty(command: &str, field: &str) -> Error {
    Error::bad_value(format!(
        "{command} command requires a non-empty \"{field}\" array"
    ))
}

/// `authenticationRestrictions`, as they are stored.
pub fn restrictions(args: &Arguments<'_>) -> Result<Option<ArrayBuf>> {
    let given = args.array("authenticationRestrictions")?;
    given.map(restrictions::normalized).transpose()
}

/// Names of roles as an array of documents.
pub fn role_array<'r>(roles: impl IntoIterator<Item = &'r UserName>) -> ArrayBuf {
    let mut out = ArrayBuf::new();
    for role in roles {
        out.push(&ROLES.named(role));
    }
    out
}

/// Names of users as an array of documents.
pub fn user_array<'r>(users: impl IntoIterator<Item = &'r UserName>) -> ArrayBuf {
    let mut out = ArrayBuf::new();
    for user in users {
        out.push(&USERS.named(user));
    }
    out
}

/// Privileges as an array of documents.
pub fn privilege_array<'r>(privileges: impl IntoIterator<Item = &'r Privilege>) -> ArrayBuf {
    let mut out = ArrayBuf::new();
    for privilege in privileges {
        out.push(&privilege.to_doc());
    }
    out
}

/// `{$set: …, $unset: …}`, without the operators that have nothing to do.
pub fn update_of(set: &DocBuf, unset: &DocBuf) -> DocBuf {
    let mut update = DocBuf::new();
    if !set.is_empty() {
        update.push("$set", set);
    }
    if !unset.is_empty() {
        update.push("$unset", unset);
    }
    update
}

/// The privileges needed to grant or revoke roles: the action on the database of each.
pub fn needs_for_roles<'a>(roles: &[UserName], action: Action) -> Needs<'a> {
    let of = |role: &UserName| Needs::on(Place::database(role.db.clone()), action);
    Needs::All(roles.iter().map(of).collect())
}

/// The privileges needed to grant or revoke privileges: the action on the database of each resource, and on `admin` for
/// those that are not about one database.
pub fn needs_for_privileges<'a>(privileges: &[Privilege], action: Action) -> Needs<'a> {
    let of = |privilege: &Privilege| {
        let db = match &privilege.resource {
            frond_auth::Resource::Database(db) | frond_auth::Resource::Collection(db, _) => db,
            _ => "admin",
        };
        Needs::on(Place::database(db.to_owned()), action)
    };
    Needs::All(privileges.iter().map(of).collect())
}

/// The privileges needed to grant or revoke the roles in the command's field `roles`.
///
/// # Errors
/// As [`roles`].
pub fn needs_for_named_roles<'a>(request: &Requested<'a>, action: Action) -> Result<Needs<'a>> {
    let roles = roles(&request.args(), request.db)?.unwrap_or_default();
    Ok(Needs::LoggedIn.and(needs_for_roles(&roles, action)))
}

/// The privileges needed to give a role what the command names in `roles`, `privileges` and `authenticationRestrictions`.
///
/// # Errors
/// As [`roles`] and [`privileges`].
pub fn needs_for_parts_of_role<'a>(request: &Requested<'a>) -> Result<Needs<'a>> {
    let args = request.args();
    let roles = roles(&args, request.db)?.unwrap_or_default();
    let privileges = privileges(&args)?.unwrap_or_default();
    Ok(needs_for_roles(&roles, Action::GrantRole)
        .and(needs_for_privileges(&privileges, Action::GrantRole))
        .and(needs_for_restrictions(request)))
}

/// The privileges needed to set authentication restrictions, if the command has any.
pub fn needs_for_restrictions<'a>(request: &Requested<'a>) -> Needs<'a> {
    if request.body.contains_key("authenticationRestrictions") {
        Needs::on_database(request, Action::SetAuthenticationRestriction)
    } else {
        Needs::All(Vec::new())
    }
}

#[cfg(test)]
mod tests;
