//! `logout`

use frond_bson::DocBuf;
use frond_error::Result;

use super::{Command, Traits};
use crate::authentication::log_out;
use crate::authorization::{Needs, Requested};
use crate::context::Context;

/// Ends the login of this connection as a user of the database.
pub struct Logout;

impl Command for Logout {
    fn names(&self) -> &'static [&'static str] {
        &["logout"]
    }

    fn doc(&self) -> &'static str {
        "Ends the login of this connection as a user of the database."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP.external()
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
