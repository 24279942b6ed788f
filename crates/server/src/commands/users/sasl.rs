//! `saslStart` and `saslContinue`: logins by SCRAM.

use frond_bson::DocBuf;
use frond_error::Result;

use crate::authentication::{sasl_continue, sasl_start};
use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::Work;

/// A login reads the user, and derives no key.
const LOGIN: Spec = Spec {
    work: Work::Short,
    on_external: true,
    stable_api: true,
    secrets: &["payload"],
    ..Spec::CHEAP
};

pub struct SaslStart;

const SASL_START: Spec = Spec {
    names: &["saslStart"],
    doc: "Begins a login by SASL.",
    fields: &["mechanism", "payload", "autoAuthorize", "options"],
    ..LOGIN
};

impl Command for SaslStart {
    fn spec(&self) -> &'static Spec {
        &SASL_START
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        sasl_start(cx, cx.db, &args, false)
    }
}

pub struct SaslContinue;

const SASL_CONTINUE: Spec = Spec {
    names: &["saslContinue"],
    doc: "Continues a login by SASL.",
    fields: &["conversationId", "mechanism", "payload"],
    ..LOGIN
};

impl Command for SaslContinue {
    fn spec(&self) -> &'static Spec {
        &SASL_CONTINUE
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
