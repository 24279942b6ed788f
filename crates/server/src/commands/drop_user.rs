//! `dropUser` and `dropAllUsersFromDatabase`

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::access_fields::{self as fields, CHANGES};
use super::{Command, Traits};
use crate::access::stored::{USERS, user_not_found};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;

/// Removes a user.
pub struct DropUser;

/// Removes the users of a database.
pub struct DropAllUsersFromDatabase;

impl Command for DropUser {
    fn names(&self) -> &'static [&'static str] {
        &["dropUser"]
    }

    fn doc(&self) -> &'static str {
        "Removes a user."
    }

    fn traits(&self) -> Traits {
        CHANGES
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, Action::DropUser))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let name = fields::named(&cx.args(), "dropUser", cx.db)?;
        let changing = cx.server.access.change(cx.store(), &cx.limits)?;
        match changing.remove(&USERS, &USERS.named(&name))? {
            0 => Err(user_not_found(format!("User '{name}' not found"))),
            _ => Ok(DocBuf::new()),
        }
    }
}

impl Command for DropAllUsersFromDatabase {
    fn names(&self) -> &'static [&'static str] {
        &["dropAllUsersFromDatabase"]
    }

    fn doc(&self) -> &'static str {
        "Removes the users of a database."
    }

    fn traits(&self) -> Traits {
        CHANGES
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, Action::DropUser))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let changing = cx.server.access.change(cx.store(), &cx.limits)?;
        let removed = changing.remove(&USERS, &doc! {"db": cx.db})?;
        Ok(doc! {"n": i32::try_from(removed).unwrap_or(i32::MAX)})
    }
}
