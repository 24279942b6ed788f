//! One user, as logins and commands see it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use frond_auth::roles::resolve;
use frond_auth::scram::{Credential, Mechanism};
use frond_auth::{LoginMechanism, Privileges, Restrictions, UserName};
use frond_bson::{Doc, Value};
use frond_error::Result;
use zeroize::Zeroizing;

use crate::sessions::SessionOwner;

use super::stored::{self, Stored, unsupported_format};

/// A user with everything that its roles grant.
#[derive(Debug)]
pub struct User {
    pub name: UserName,
    /// Distinguishes it from another user that had the same name; old documents have none.
    pub id: Option<[u8; 16]>,
    /// The roles that it was granted, and those that they inherit from.
    pub all_roles: BTreeSet<UserName>,
    pub privileges: Arc<Privileges>,
    /// Its own restrictions, and those of its roles. All must be met.
    pub restrictions: Vec<Restrictions>,
    /// Owns the sessions of the user.
    pub sessions: SessionOwner,
    /// The generation of users and roles that it was read at.
    pub generation: u64,
}

/// The stored credentials of a user.
#[derive(Default)]
pub struct Credentials {
    /// By SCRAM-SHA-1.
    pub sha1: Option<Credential>,
    /// By SCRAM-SHA-256.
    pub sha256: Option<Credential>,
    /// By MONGODB-CR: the digest of the password, with which one can log in.
    pub cr: Option<Zeroizing<String>>,
    /// Whether another authority vouches for it.
    pub is_external: bool,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("sha1", &self.sha1)
            .field("sha256", &self.sha256)
            .field("is_external", &self.is_external)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// The credential for a mechanism.
    pub fn for_mechanism(&self, mechanism: Mechanism) -> Option<&Credential> {
        match mechanism {
            Mechanism::Sha1 => self.sha1.as_ref(),
            Mechanism::Sha256 => self.sha256.as_ref(),
        }
    }

    fn external() -> Credentials {
        Credentials {
            is_external: true,
            ..Credentials::default()
        }
    }

    /// Reads the field `credentials` of a user.
    fn parse(stored: Option<Value<'_>>, is_external: bool) -> Result<Credentials> {
        if is_external {
            return match stored {
                None => Ok(Credentials::external()),
                Some(Value::Document(stored)) if stored.get_bool("external") == Some(true) => {
                    Ok(Credentials::external())
                }
                Some(_) => Err(unsupported_format(
                    "User documents with 'db' == \"$external\" must have the credentials {external: true}",
                )),
            };
        }
        let Some(Value::Document(stored)) = stored else {
            return Err(unsupported_format(
                "'credentials' field in user documents must be an object",
            ));
        };
        let scram = |mechanism: Mechanism| match stored.get(mechanism.name()) {
            None => Ok(None),
            Some(Value::Document(stored)) => Credential::parse(mechanism, stored)
                .map(Some)
                .map_err(|error| unsupported_format(&error.to_string())),
            Some(_) => Err(unsupported_format(&format!(
                "Invalid {mechanism} credential"
            ))),
        };
        let credentials = Credentials {
            sha1: scram(Mechanism::Sha1)?,
            sha256: scram(Mechanism::Sha256)?,
            cr: match stored.get(LoginMechanism::MongoCr.name()) {
                None => None,
                Some(Value::String(digest)) => Some(Zeroizing::new(digest.to_owned())),
                Some(_) => return Err(unsupported_format("Invalid MONGODB-CR credential")),
            },
            is_external,
        };
        let has_scram = credentials.sha1.is_some() || credentials.sha256.is_some();
        if !has_scram && credentials.cr.is_none() {
            return Err(unsupported_format(
                "User documents must provide credentials for SCRAM-SHA-1, SCRAM-SHA-256 or MONGODB-CR authentication",
            ));
        }
        Ok(credentials)
    }
}

/// A user who has not proved yet who it is: what a login needs of its document.
#[derive(Debug)]
pub struct Candidate {
    /// As [`User::id`].
    pub id: Option<[u8; 16]>,
    pub credentials: Credentials,
}

impl Candidate {
    /// Reads the document of a user, but not its roles.
    ///
    /// # Errors
    /// `UnsupportedFormat` (12) for a document that cannot be used.
    pub(super) fn parse(name: &UserName, document: &Doc) -> Result<Candidate> {
        let is_external = name.db == stored::EXTERNAL;
        let credentials = Credentials::parse(document.get("credentials"), is_external);
        let id = document.get_binary("userId");
        Ok(Candidate {
            id: id.and_then(|id| id.try_into().ok()),
            credentials: credentials
                .map_err(|error| error.context(format!("The stored user {name}")))?,
        })
    }
}

impl User {
    /// Reads the document of a user, and resolves its roles.
    ///
    /// # Errors
    /// `UnsupportedFormat` (12) and others for a document or a role that cannot be used; errors of the store.
    pub(super) fn parse(
        name: &UserName,
        document: &Doc,
        stored: &Stored,
        generation: u64,
    ) -> Result<User> {
        let read = || {
            let roles = stored::role_names(document)?;
            let own = stored::restrictions(document)?;
            Ok((roles, own))
        };
        // One that cannot log in is not used either.
        let Candidate { id, .. } = Candidate::parse(name, document)?;
        let (roles, own) = read().map_err(|error: frond_error::Error| {
            error.context(format!("The stored user {name}"))
        })?;
        let resolved = resolve(&roles, stored)?;
        let mut all_roles = resolved.inherited;
        all_roles.extend(roles);
        Ok(User {
            sessions: SessionOwner::for_user(name),
            name: name.clone(),
            id,
            all_roles,
            privileges: Arc::new(Privileges::new(resolved.privileges)),
            restrictions: own.into_iter().chain(resolved.restrictions).collect(),
            generation,
        })
    }
}
