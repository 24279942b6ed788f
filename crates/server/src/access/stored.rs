//! The documents of users and roles, as they are at one moment.

use frond_auth::{Privilege, Restrictions, Role, RoleSource, UserName, builtin_roles};
use frond_bson::{Collator, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{DocumentStore, FindRequest, Namespace, OpContext, SERVER_CONFIGURATION};

/// The database of users that another authority vouches for.
pub const EXTERNAL: &str = "$external";

/// A collection of the server.
pub struct Place {
    /// Its database and its name.
    pub parts: (&'static str, &'static str),
    pub full: &'static str,
    /// The field that names what is stored, beside `db`.
    pub key: &'static str,
}

pub const USERS: Place = Place {
    parts: ("admin", "system.users"),
    full: "admin.system.users",
    key: "user",
};

pub const ROLES: Place = Place {
    parts: ("admin", "system.roles"),
    full: "admin.system.roles",
    key: "role",
};

/// The versions of what is stored.
pub const VERSION: Place = Place {
    parts: ("admin", "system.version"),
    full: SERVER_CONFIGURATION,
    key: "_id",
};

impl Place {
    /// Its namespace.
    ///
    /// # Errors
    /// `InvalidNamespace` (73); not for the collections of this module.
    pub fn namespace(&self) -> Result<Namespace> {
        Ok(Namespace::new(self.parts.0, self.parts.1)?)
    }

    /// The filter for one user or role, which is also how documents name it.
    pub fn named(&self, name: &UserName) -> DocBuf {
        let key = self.key;
        doc! {key: &*name.name, "db": &*name.db}
    }
}

/// Users and roles at one moment.
pub struct Stored {
    store: DocumentStore,
    limits: OpContext,
}

impl Stored {
    pub fn now(store: &DocumentStore) -> Stored {
        Stored::within(store, &OpContext::new())
    }

    /// Those of now, read within the limits of a command.
    pub fn within(store: &DocumentStore, limits: &OpContext) -> Stored {
        let point_in_time = store.snapshot_reads();
        Stored {
            store: store.at(&point_in_time),
            limits: limits.clone(),
        }
    }

    /// The documents of a collection that pass a filter, in an order.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn find(&self, place: &Place, filter: &Doc, sort: Option<&Doc>) -> Result<Vec<DocBuf>> {
        let request = FindRequest {
            filter: Some(filter),
            sort,
            // The names are compared exactly, whatever collation the collection was created with.
            collation: Some(Collator::default()),
            ..FindRequest::default()
        };
        let mut cursor = (self.store).find(&place.namespace()?, &request, &self.limits)?;
        let mut found = Vec::new();
        while let Some(document) = cursor.next()? {
            found.push(document);
        }
        Ok(found)
    }

    /// Whether a collection has a document.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn has_any(&self, place: &Place) -> Result<bool> {
        let request = FindRequest {
            limit: Some(1),
            ..FindRequest::default()
        };
        let mut found = (self.store).find(&place.namespace()?, &request, &self.limits)?;
        Ok(found.next()?.is_some())
    }

    fn one(&self, place: &Place, name: &UserName) -> Result<Option<DocBuf>> {
        Ok(self.find(place, &place.named(name), None)?.pop())
    }

    /// The document of a user.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn user(&self, name: &UserName) -> Result<Option<DocBuf>> {
        self.one(&USERS, name)
    }

    /// The document of a role that was created.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn role_document(&self, name: &UserName) -> Result<Option<DocBuf>> {
        self.one(&ROLES, name)
    }

    /// Fails if one of these roles does not exist.
    ///
    /// # Errors
    /// `RoleNotFound` (31), errors of the store.
    pub fn check_roles_exist(&self, roles: &[UserName]) -> Result<()> {
        let mut missing = Vec::new();
        for role in roles {
            if !builtin_roles::is_builtin(role) && self.role_document(role)?.is_none() {
                missing.push(role.to_string());
            }
        }
        let many = match missing.len() {
            0 => return Ok(()),
            1 => "",
            _ => "s",
        };
        Err(role_not_found(format!(
            "Could not find role{many}: {}",
            missing.join(", ")
        )))
    }
}

impl RoleSource for Stored {
    fn role(&self, name: &UserName) -> Result<Option<Role>> {
        let Some(document) = self.role_document(name)? else {
            return Ok(None);
        };
        let parsed = parse_role(&document);
        let role = parsed.map_err(|error| error.context(format!("The stored role {name}")))?;
        Ok(Some(role))
    }
}

/// Reads the document of a role.
///
/// # Errors
/// `UnsupportedFormat` (12) and others if it is not one.
pub fn parse_role(document: &Doc) -> Result<Role> {
    let mut privileges = Vec::new();
    for value in stored_array(document, "privileges")?.values() {
        let Value::Document(privilege) = value else {
            return Err(unsupported_format("Invalid 'privileges' field"));
        };
        privileges.push(Privilege::parse_stored(privilege)?);
    }
    Ok(Role {
        roles: role_names(document)?,
        privileges,
        restrictions: restrictions(document)?,
    })
}

/// The roles that the document of a user or of a role names.
///
/// # Errors
/// `UnsupportedFormat` (12) and `BadValue` (2).
pub fn role_names(document: &Doc) -> Result<Vec<UserName>> {
    let roles = stored_array(document, "roles")?;
    roles
        .values()
        .map(|role| parse_name(&ROLES, &role))
        .collect()
}

/// The restrictions in the document of a user or of a role.
///
/// # Errors
/// As [`Restrictions::parse`].
pub fn restrictions(document: &Doc) -> Result<Option<Restrictions>> {
    let array = stored_array(document, "authenticationRestrictions")?;
    if array.is_empty() {
        Ok(None)
    } else {
        Restrictions::parse(array).map(Some)
    }
}

/// A field that is an array, if it is there.
fn stored_array<'a>(document: &'a Doc, field: &str) -> Result<&'a Doc> {
    match document.get(field) {
        None => Ok(Doc::empty()),
        Some(Value::Array(array)) => Ok(array),
        Some(_) => Err(unsupported_format(&format!("Invalid '{field}' field"))),
    }
}

/// Reads `{role, db}` or `{user, db}`.
///
/// # Errors
/// `BadValue` (2).
pub fn parse_name(place: &Place, value: &Value<'_>) -> Result<UserName> {
    let what = match place.key {
        "user" => "User name",
        _ => "Role name",
    };
    let Value::Document(given) = value else {
        return Err(Error::bad_value(format!(
            "{what} must be either a document or string"
        )));
    };
    if let Some((name, _)) = given
        .iter()
        .find(|(name, _)| ![place.key, "db"].contains(name))
    {
        return Err(Error::bad_value(format!(
            "{what} contains an unknown field named: '{name}'"
        )));
    }
    let text = |field: &str| match given.get(field) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(Error::bad_value(format!(
            "{what} must contain a string field named: {field}"
        ))),
    };
    Ok(UserName::new(text(place.key)?, text("db")?))
}

/// Error 31.
pub fn role_not_found(message: String) -> Error {
    Error::new(ErrorCode::from_code(31), message)
}

/// Error 11.
pub fn user_not_found(message: String) -> Error {
    Error::new(ErrorCode::from_code(11), message)
}

/// Error 12.
pub fn unsupported_format(message: &str) -> Error {
    Error::new(ErrorCode::UnsupportedFormat, message)
}
