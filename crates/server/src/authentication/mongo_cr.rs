//! Logins by MONGODB-CR, for drivers before 2015: `getnonce`, then `authenticate` with a key that is made of the nonce and
//! the digest of the password.

use frond_auth::{LoginMechanism, UserName, mongo_cr};
use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

use super::{begin, fail, succeed, unavailable};
use crate::arguments::Arguments;
use crate::context::Context;

/// Makes the nonce for one login.
///
/// Some drivers send this on each new connection, however they log in, and close the connection if it fails. So it
/// succeeds where MONGODB-CR is not enabled, and does not begin a login, which would have to end in time.
///
/// # Errors
/// `InternalError` (8) if the system gives no random bytes.
pub fn get_nonce(cx: &mut Context<'_>) -> Result<DocBuf> {
    let nonce = mongo_cr::nonce()
        .map_err(|error| Error::new(ErrorCode::InternalError, error.to_string()))?;
    let reply = doc! {"nonce": &*nonce};
    cx.state.login.nonce = Some(nonce);
    Ok(reply)
}

/// Logs in as a user of `db`. `args` are the fields of `authenticate`.
///
/// # Errors
/// `AuthenticationFailed` (18), `MechanismUnavailable` (334) and those of wrong fields.
pub fn log_in_by_cr(cx: &mut Context<'_>, db: &str, args: &Arguments<'_>) -> Result<DocBuf> {
    check_enabled(cx)?;
    let text = |field: &str| args.str(field)?.ok_or_else(|| args.missing(field));
    let (name, nonce, key) = (text("user")?, text("nonce")?, text("key")?);
    let ours = cx.state.login.nonce.take();
    let attempt = begin(cx, LoginMechanism::MongoCr, UserName::new(name, db), false);
    if ours.is_none_or(|ours| ours != nonce) {
        let why = "the nonce is not that of the last getnonce";
        return Err(fail(cx, &attempt, why));
    }
    let user = match cx.server.clients.access.find_for_login(&attempt.user) {
        Ok(user) => user,
        Err(error) => return Err(fail(cx, &attempt, error.message())),
    };
    // Made in each case, so that the time does not reveal whether the user exists.
    let fake = cx.server.clients.logins.fake_digest(&attempt.user);
    let real = user.as_ref().and_then(|user| user.credentials.cr.as_ref());
    let is_known = mongo_cr::verify(nonce, name, real.unwrap_or(&fake), key);
    match user {
        Some(user) if is_known && user.credentials.cr.is_some() => {
            succeed(cx, &attempt, user.id)?;
            Ok(doc! {"dbname": db, "user": name})
        }
        Some(user) if user.credentials.cr.is_some() => {
            Err(fail(cx, &attempt, "the key does not match"))
        }
        _ => {
            let why = format!(
                "there is no user {} with a credential for MONGODB-CR",
                attempt.user
            );
            Err(fail(cx, &attempt, &why))
        }
    }
}

fn check_enabled(cx: &Context<'_>) -> Result<()> {
    if cx.server.clients.logins.allows(LoginMechanism::MongoCr) {
        Ok(())
    } else {
        Err(unavailable(cx.server, LoginMechanism::MongoCr.name()))
    }
}
