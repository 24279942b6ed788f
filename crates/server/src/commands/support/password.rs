//! The fields of `createUser` and `updateUser` that make credentials: `pwd`, `digestPassword` and `mechanisms`.

use frond_auth::scram::{Credential, Mechanism, ScramError};
use frond_auth::{LoginMechanism, UserName, password_digest};
use frond_bson::{Doc, DocBuf};
use frond_error::{Error, Result};
use zeroize::Zeroizing;

use crate::access::stored::EXTERNAL;
use crate::arguments::Arguments;
use crate::context::Context;

/// The mechanisms with passwords, in the order in which credentials are stored.
const WITH_PASSWORD: [LoginMechanism; 3] = [
    LoginMechanism::MongoCr,
    LoginMechanism::Scram(Mechanism::Sha1),
    LoginMechanism::Scram(Mechanism::Sha256),
];

/// The mechanisms that the command names.
///
/// # Errors
/// `BadValue` (2) if there are none in the array, or one is unknown.
pub fn mechanisms(args: &Arguments<'_>) -> Result<Option<Vec<LoginMechanism>>> {
    let Some(array) = args.array("mechanisms")? else {
        return Ok(None);
    };
    if array.is_empty() {
        return Err(Error::bad_value("mechanisms field must not be empty"));
    }
    let mut mechanisms = Vec::new();
    for (at, value) in array.iter() {
        let name = value
            .as_str()
            .ok_or_else(|| args.wrong_type(&format!("mechanisms.{at}"), &value, "type 'string'"))?;
        let mechanism = LoginMechanism::named(name)
            .filter(|mechanism| WITH_PASSWORD.contains(mechanism))
            .ok_or_else(|| Error::bad_value(format!("Unknown auth mechanism '{name}'")))?;
        mechanisms.push(mechanism);
    }
    Ok(Some(mechanisms))
}

/// The new `credentials` of a user, from its password; `None` without one.
///
/// # Errors
/// `BadValue` (2) for a password that cannot be used, or for a mechanism that is not enabled.
pub fn credentials(cx: &Context<'_>, user: &UserName) -> Result<Option<DocBuf>> {
    let args = cx.args();
    let mechanisms = mechanisms(&args)?;
    let is_digested_here = args.flag("digestPassword")?.unwrap_or(true);
    let Some(password) = args.str("pwd")? else {
        return Ok(None);
    };
    if user.db == EXTERNAL {
        return Err(Error::bad_value(
            "Cannot set the password for users defined on the '$external' database",
        ));
    }
    if password.is_empty() {
        return Err(Error::bad_value("User passwords must not be empty"));
    }
    let logins = &cx.server.clients.logins;
    let is_enabled = |mechanism: &LoginMechanism| logins.allows(*mechanism);
    if let Some(other) = mechanisms.iter().flatten().find(|one| !is_enabled(one)) {
        return Err(Error::bad_value(format!(
            "{other} not supported in authMechanisms"
        )));
    }
    let mechanisms =
        mechanisms.unwrap_or_else(|| WITH_PASSWORD.into_iter().filter(is_enabled).collect());
    if mechanisms.is_empty() {
        return Err(Error::bad_value(
            "no mechanism with passwords is enabled: name SCRAM-SHA-256 in authenticationMechanisms",
        ));
    }
    // Checked before a credential is made: the credential of MONGODB-CR has the digest that was sent, and what a refused
    // command built is freed without being wiped.
    let sha256 = LoginMechanism::Scram(Mechanism::Sha256);
    if !is_digested_here && mechanisms.contains(&sha256) {
        return Err(Error::bad_value(
            "Use of SCRAM-SHA-256 requires undigested passwords",
        ));
    }
    let mut credentials = DocBuf::new();
    for mechanism in WITH_PASSWORD.iter().filter(|one| mechanisms.contains(one)) {
        let LoginMechanism::Scram(mechanism) = *mechanism else {
            let digest = if is_digested_here {
                password_digest(&user.name, password)
            } else {
                Zeroizing::new(password.to_owned())
            };
            credentials.push(mechanism.name(), digest.as_str());
            continue;
        };
        let iterations = logins.iterations(mechanism);
        let credential = if is_digested_here {
            Credential::new(mechanism, &user.name, password, iterations)
        } else {
            Credential::of_digest(password, iterations)
        };
        let credential = credential.map_err(|failure| match failure {
            ScramError::Random(_) => Error::internal(failure.to_string()),
            other => Error::bad_value(other.to_string()),
        })?;
        credentials.push(mechanism.name(), &credential.to_doc());
    }
    Ok(Some(credentials))
}

/// The fields of a user to remove, so that it keeps only the credentials for these mechanisms.
///
/// # Errors
/// `BadValue` (2) for a mechanism that the user has no credential for.
pub fn trimmed(user: &Doc, mechanisms: &[LoginMechanism]) -> Result<DocBuf> {
    let stored = user.get_doc("credentials").ok_or_else(|| {
        crate::access::stored::unsupported_format(
            "Unable to trim credentials from a user document with no credentials",
        )
    })?;
    if mechanisms
        .iter()
        .any(|one| !stored.contains_key(one.name()))
    {
        return Err(Error::bad_value(
            "mechanisms field must be a subset of previously set mechanisms",
        ));
    }
    let mut unset = DocBuf::new();
    for other in WITH_PASSWORD {
        if !mechanisms.contains(&other) {
            unset.push(&format!("credentials.{other}"), "");
        }
    }
    Ok(unset)
}
