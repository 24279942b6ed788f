//! `authenticate` and `getnonce`: logins by a certificate, and those of drivers before 2015.

use frond_bson::DocBuf;
use frond_error::{Error, Result};

use crate::authentication::{get_nonce, log_in_by_certificate, log_in_by_cr};
use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::Work;

pub struct Authenticate;

const AUTHENTICATE: Spec = Spec {
    names: &["authenticate"],
    doc: "Logs in by MONGODB-X509 or MONGODB-CR.",
    fields: &["mechanism", "user", "nonce", "key"],
    work: Work::Short,
    on_external: true,
    stable_api: true,
    secrets: &["nonce", "key", "pwd"],
    ..Spec::CHEAP
};

impl Command for Authenticate {
    fn spec(&self) -> &'static Spec {
        &AUTHENTICATE
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

pub struct GetNonce;

const GET_NONCE: Spec = Spec {
    names: &["getnonce"],
    doc: "Makes the nonce for a login by MONGODB-CR.",
    on_external: true,
    ..Spec::CHEAP
};

impl Command for GetNonce {
    fn spec(&self) -> &'static Spec {
        &GET_NONCE
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        get_nonce(cx)
    }
}
