//! Checks of the roles and privileges that a role may have.

use frond_auth::roles::resolve;
use frond_auth::{Privilege, Resource, UserName, builtin_roles};
use frond_error::{Error, ErrorCode, Result};

use crate::access::stored::Stored;

/// Checks that a role is not built in.
///
/// # Errors
/// `BadValue` (2).
pub fn is_changeable(role: &UserName) -> Result<()> {
    if builtin_roles::is_builtin(role) {
        Err(Error::bad_value(format!(
            "{role} is a built-in role and cannot be modified"
        )))
    } else {
        Ok(())
    }
}

/// Checks that a role may inherit from others: they exist, they are of its database unless it is one of `admin`, and none of
/// them inherits from it.
///
/// # Errors
/// `RoleNotFound` (31), `InvalidRoleModification` (49), errors of the store.
pub fn may_inherit(stored: &Stored, role: &UserName, others: &[UserName]) -> Result<()> {
    for other in others {
        if other == role {
            return Err(invalid(format!("Cannot grant role {role} to itself.")));
        }
        if role.db != "admin" && other.db != role.db {
            return Err(invalid(format!(
                "Roles on the '{}' database cannot be granted roles from other databases",
                role.db
            )));
        }
    }
    let found = stored.check_roles_exist(others);
    found.map_err(|error| {
        Error::new(
            error.code(),
            format!("Cannot grant roles to '{role}': {}", error.message()),
        )
    })?;
    if resolve(others, stored)?.inherited.contains(role) {
        return Err(invalid(format!(
            "Granting roles to {role} would introduce a cycle in the role graph"
        )));
    }
    Ok(())
}

/// Checks that privileges are about the database of a role, unless it is one of `admin`.
///
/// # Errors
/// `InvalidRoleModification` (49).
pub fn may_have(role: &UserName, privileges: &[Privilege]) -> Result<()> {
    let is_own = |privilege: &Privilege| match &privilege.resource {
        Resource::Database(db) | Resource::Collection(db, _) => *db == role.db,
        _ => false,
    };
    if role.db == "admin" || privileges.iter().all(is_own) {
        return Ok(());
    }
    Err(invalid(format!(
        "Roles on the '{}' database cannot be granted privileges that target other databases or the cluster",
        role.db
    )))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorCode::from_code(49), message)
}
