//! `authenticate` and `getnonce`: logins by a certificate, and those of drivers before 2015.

use frond_bson::DocBuf;
use frond_error::{Error, Result};

use super::{Command, Traits};
use crate::authentication::{get_nonce, log_in_by_certificate, log_in_by_cr};
use crate::authorization::{Needs, Requested};
use crate::context::Context;
use crate::exec::Work;

/// Logs in by MONGODB-X509 or MONGODB-CR.
pub struct Authenticate;

impl Command for Authenticate {
    fn names(&self) -> &'static [&'static str] {
        &["authenticate"]
    }

    fn doc(&self) -> &'static str {
        "Logs in by MONGODB-X509 or MONGODB-CR."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["mechanism", "user", "nonce", "key"]
    }

    fn traits(&self) -> Traits {
        Traits {
            work: Work::Short,
            ..Traits::CHEAP
                .stable(true)
                .external()
                .with_secrets(&["nonce", "key", "pwd"])
        }
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        match args.str("mechanism")? {
            Some("MONGODB-X509") => log_in_by_certificate(cx, cx.db, &args, false),
            None | Some("MONGODB-CR") => log_in_by_cr(cx, cx.db, &args),
            Some(_) => Err(Error::bad_value(
                "authenticate knows the mechanisms MONGODB-X509 and MONGODB-CR; others begin with saslStart",
            )),
        }
    }
}

/// Makes the nonce for a login by MONGODB-CR.
pub struct GetNonce;

impl Command for GetNonce {
    fn names(&self) -> &'static [&'static str] {
        &["getnonce"]
    }

    fn doc(&self) -> &'static str {
        "Makes the nonce for a login by MONGODB-CR."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP.external()
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        get_nonce(cx)
    }
}
