//! `saslStart` and `saslContinue`: logins by SCRAM.

use frond_bson::DocBuf;
use frond_error::Result;

use super::{Command, Traits};
use crate::authentication::{sasl_continue, sasl_start};
use crate::authorization::{Needs, Requested};
use crate::context::Context;
use crate::exec::Work;

/// A login reads the user, and derives no key.
const TRAITS: Traits = Traits {
    work: Work::Short,
    ..Traits::CHEAP
        .stable(true)
        .external()
        .with_secrets(&["payload"])
};

/// Begins a login by SASL.
pub struct SaslStart;

impl Command for SaslStart {
    fn names(&self) -> &'static [&'static str] {
        &["saslStart"]
    }

    fn doc(&self) -> &'static str {
        "Begins a login by SASL."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["mechanism", "payload", "autoAuthorize", "options"]
    }

    fn traits(&self) -> Traits {
        TRAITS
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        sasl_start(cx, cx.db, &args, false)
    }
}

/// Continues a login by SASL.
pub struct SaslContinue;

impl Command for SaslContinue {
    fn names(&self) -> &'static [&'static str] {
        &["saslContinue"]
    }

    fn doc(&self) -> &'static str {
        "Continues a login by SASL."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["conversationId", "mechanism", "payload"]
    }

    fn traits(&self) -> Traits {
        TRAITS
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        // mgo repeats the mechanism, which is that of the conversation in any case.
        args.str("mechanism")?;
        sasl_continue(cx, &args)
    }
}
