use frond_bson::DocBuf;
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct InvalidateUserCache;

const SPEC: Spec = Spec {
    names: &["invalidateUserCache"],
    doc: "Reads all users and roles anew when they are needed next.",
    ..Spec::CHEAP
};

impl Command for InvalidateUserCache {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::InvalidateUserCache))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        cx.server.clients.access.invalidate();
        Ok(DocBuf::new())
    }
}
