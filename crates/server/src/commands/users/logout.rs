use frond_bson::DocBuf;
use frond_error::Result;

use crate::audit::Audited;
use crate::authentication::log_out;
use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct Logout;

const SPEC: Spec = Spec {
    names: &["logout"],
    audits: Audited::Logout,
    doc: "Ends the login of this connection as a user of the database.",
    on_external: true,
    ..Spec::CHEAP
};

impl Command for Logout {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let user = cx.state.identity.as_ref();
        if user.is_some_and(|user| user.name.db == cx.db) {
            log_out(cx.connection, cx.state);
        }
        Ok(DocBuf::new())
    }
}
