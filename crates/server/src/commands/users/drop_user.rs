use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::access::stored::{USERS, user_not_found};
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, CHANGES};
use crate::context::Context;

pub struct DropUser;

const DROP_USER: Spec = Spec {
    names: &["dropUser"],
    audits: Audited::User,
    doc: "Removes a user.",
    ..CHANGES
};

impl Command for DropUser {
    fn spec(&self) -> &'static Spec {
        &DROP_USER
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, Action::DropUser))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let name = fields::named(&cx.args(), "dropUser", cx.db)?;
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        match changing.remove(&USERS, &USERS.named(&name))? {
            0 => Err(user_not_found(format!("User '{name}' not found"))),
            _ => Ok(DocBuf::new()),
        }
    }
}

pub struct DropAllUsersFromDatabase;

const DROP_ALL_USERS_FROM_DATABASE: Spec = Spec {
    names: &["dropAllUsersFromDatabase"],
    audits: Audited::Database,
    doc: "Removes the users of a database.",
    ..CHANGES
};

impl Command for DropAllUsersFromDatabase {
    fn spec(&self) -> &'static Spec {
        &DROP_ALL_USERS_FROM_DATABASE
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, Action::DropUser))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        let removed = changing.remove(&USERS, &doc! {"db": cx.db})?;
        Ok(doc! {"n": i32::try_from(removed).unwrap_or(i32::MAX)})
    }
}
