use frond_auth::UserName;
use frond_bson::{Doc, DocBuf, doc};
use frond_error::Result;

use crate::access::stored::ROLES;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, CHANGES};
use crate::commands::support::role_checks;
use crate::context::Context;

/// Removes the roles that pass a filter, which is also one for their names in other documents. A role that is named must exist.
fn remove(cx: &mut Context<'_>, name: Option<&UserName>, roles: &Doc) -> Result<u64> {
    let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
    if let Some(name) = name {
        let stored = changing.stored();
        stored.check_roles_exist(std::slice::from_ref(name))?;
    }
    let (removed, at) = changing.remove_roles(roles, roles)?;
    drop(changing);
    cx.operation.entry_at = at;
    Ok(removed)
}

pub struct DropRole;

const DROP_ROLE: Spec = Spec {
    names: &["dropRole"],
    audits: Audited::Role,
    doc: "Removes a role, also from those who have it.",
    ..CHANGES
};

impl Command for DropRole {
    fn spec(&self) -> &'static Spec {
        &DROP_ROLE
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, Action::DropRole))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let name = fields::named(&cx.args(), "dropRole", cx.db)?;
        role_checks::is_changeable(&name)?;
        remove(cx, Some(&name), &ROLES.named(&name))?;
        Ok(DocBuf::new())
    }
}

pub struct DropAllRolesFromDatabase;

const DROP_ALL_ROLES_FROM_DATABASE: Spec = Spec {
    names: &["dropAllRolesFromDatabase"],
    audits: Audited::Database,
    doc: "Removes the roles of a database, also from those who have them.",
    ..CHANGES
};

impl Command for DropAllRolesFromDatabase {
    fn spec(&self) -> &'static Spec {
        &DROP_ALL_ROLES_FROM_DATABASE
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, Action::DropRole))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let removed = remove(cx, None, &doc! {"db": cx.db})?;
        Ok(doc! {"n": i32::try_from(removed).unwrap_or(i32::MAX)})
    }
}
