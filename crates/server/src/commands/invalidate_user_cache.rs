//! `invalidateUserCache`

use frond_bson::DocBuf;
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;

/// Reads all users and roles anew when they are needed next.
pub struct InvalidateUserCache;

impl Command for InvalidateUserCache {
    fn names(&self) -> &'static [&'static str] {
        &["invalidateUserCache"]
    }

    fn doc(&self) -> &'static str {
        "Reads all users and roles anew when they are needed next."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::InvalidateUserCache))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        cx.server.access.invalidate();
        Ok(DocBuf::new())
    }
}
