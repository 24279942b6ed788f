//! Logins by MONGODB-X509: the client's certificate, which TLS has verified, names the user.

use std::sync::atomic::Ordering;

use frond_auth::{LoginMechanism, UserName};
use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

use super::{begin, fail, succeed, unavailable};
use crate::arguments::Arguments;
use crate::context::Context;

/// Logs in as the user of `$external` whose name is the subject of the certificate. `args` are the fields of
/// `authenticate`.
///
/// # Errors
/// `AuthenticationFailed` (18), `ProtocolError` (17), `MechanismUnavailable` (334) and those of wrong fields.
pub fn log_in_by_certificate(
    cx: &mut Context<'_>,
    db: &str,
    args: &Arguments<'_>,
    speculative: bool,
) -> Result<DocBuf> {
    if db != "$external" {
        return Err(Error::new(
            ErrorCode::ProtocolError,
            "X.509 authentication must always use the $external database.",
        ));
    }
    let given = args.str("user")?;
    let is_member = cx.server.clients.access.members().accept_certificates()
        && (cx.connection.has_member_certificate).load(Ordering::Relaxed);
    if is_member && let Some(subject) = cx.connection.certificate_subject.get().cloned() {
        let attempt = begin(cx, LoginMechanism::X509, UserName::system(), speculative);
        if given.is_some_and(|given| !given.is_empty() && given != subject) {
            let why = "There is no x.509 client certificate matching the user.";
            return Err(fail(cx, &attempt, why));
        }
        succeed(cx, &attempt, None)?;
        return Ok(doc! {"dbname": db, "user": subject});
    }
    if !cx.server.clients.logins.allows(LoginMechanism::X509) {
        return Err(unavailable(cx.server, LoginMechanism::X509.name()));
    }
    let subject = cx.connection.certificate_subject.get().cloned();
    let name = subject.as_deref().or(given).unwrap_or_default();
    let user = UserName::new(name, db);
    let attempt = begin(cx, LoginMechanism::X509, user, speculative);
    let Some(subject) = subject.filter(|subject| !subject.is_empty()) else {
        let why = "No verified subject name available from client";
        return Err(fail(cx, &attempt, why));
    };
    if given.is_some_and(|given| !given.is_empty() && given != subject) {
        let why = "There is no x.509 client certificate matching the user.";
        return Err(fail(cx, &attempt, why));
    }
    let user = match cx.server.clients.access.external(&subject) {
        Ok(Some(user)) if user.credentials.is_external => user,
        Ok(_) => {
            let why = format!("there is no user {}", attempt.user);
            return Err(fail(cx, &attempt, &why));
        }
        Err(error) => return Err(fail(cx, &attempt, error.message())),
    };
    succeed(cx, &attempt, user.id)?;
    Ok(doc! {"dbname": db, "user": subject})
}
