use frond_auth::builtin_roles;
use frond_bson::{DocBuf, doc};
use frond_error::{Error, Result};

use crate::access::stored::{EXTERNAL, ROLES};
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, CHANGES};
use crate::commands::support::role_checks;
use crate::context::Context;

pub struct CreateRole;

const SPEC: Spec = Spec {
    names: &["createRole"],
    audits: Audited::Role,
    doc: "Creates a role.",
    fields: &["authenticationRestrictions", "privileges", "roles"],
    ..CHANGES
};

impl Command for CreateRole {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let reserved = fields::needs_for_parts_of_role(request)?;
        Ok(Needs::on_database(request, Action::CreateRole).and(reserved))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let name = fields::named(&args, "createRole", cx.db)?;
        let privileges = fields::privileges(&args)?.ok_or_else(|| args.missing("privileges"))?;
        let roles = fields::roles(&args, cx.db)?.ok_or_else(|| args.missing("roles"))?;
        let restrictions = fields::restrictions(&args)?;
        let problem = if name.name.is_empty() {
            Some("Role name must be non-empty")
        } else if name.name.contains('\0') {
            Some("Role name cannot contain NULL characters")
        } else if name.db == "local" {
            Some("Cannot create roles in the local database")
        } else if name.db == EXTERNAL {
            Some("Cannot create roles in the $external database")
        } else if builtin_roles::is_builtin(&name) {
            Some("Cannot create roles with the same name as a built-in role")
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(Error::bad_value(problem));
        }
        let mut role = doc! {"_id": format!("{}.{}", name.db, name.name)};
        role.push_all(&ROLES.named(&name));
        role.push_value(
            "privileges",
            &fields::privilege_array(&privileges).as_value(),
        );
        role.push_value("roles", &fields::role_array(&roles).as_value());
        if let Some(restrictions) = restrictions.filter(|array| !array.is_empty()) {
            role.push_value("authenticationRestrictions", &restrictions.as_value());
        }
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        role_checks::may_inherit(&changing.stored(), &name, &roles)?;
        role_checks::may_have(&name, &privileges)?;
        changing.insert(&ROLES, &name, &role)?;
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests;
