use frond_bson::DocBuf;
use frond_error::{Error, Result};

use crate::access::stored::ROLES;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, CHANGES};
use crate::commands::support::role_checks;
use crate::context::Context;

pub struct UpdateRole;

const SPEC: Spec = Spec {
    names: &["updateRole"],
    audits: Audited::Role,
    doc: "Changes a role.",
    fields: &["authenticationRestrictions", "privileges", "roles"],
    ..CHANGES
};

impl Command for UpdateRole {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        // The roles and privileges that the update revokes are unknown here, so the privilege to revoke any is needed.
        let reserved = fields::needs_for_parts_of_role(request)?;
        Ok(Needs::on(Place::AnyNormal, Action::RevokeRole).and(reserved))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let name = fields::named(&args, "updateRole", cx.db)?;
        let privileges = fields::privileges(&args)?;
        let roles = fields::roles(&args, cx.db)?;
        let restrictions = fields::restrictions(&args)?;
        role_checks::is_changeable(&name)?;
        let mut set = DocBuf::new();
        let mut unset = DocBuf::new();
        if let Some(privileges) = &privileges {
            let privileges = fields::privilege_array(privileges);
            set.push_value("privileges", &privileges.as_value());
        }
        if let Some(roles) = &roles {
            set.push_value("roles", &fields::role_array(roles).as_value());
        }
        match &restrictions {
            Some(none) if none.is_empty() => unset.push("authenticationRestrictions", ""),
            Some(some) => set.push_value("authenticationRestrictions", &some.as_value()),
            None => {}
        }
        if set.is_empty() && unset.is_empty() {
            return Err(Error::bad_value(
                "Must specify at least one field to update in updateRole",
            ));
        }
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        changing
            .stored()
            .check_roles_exist(std::slice::from_ref(&name))?;
        changing.update(&ROLES, &name, |_, stored| {
            if let Some(roles) = &roles {
                role_checks::may_inherit(stored, &name, roles)?;
            }
            role_checks::may_have(&name, privileges.as_deref().unwrap_or_default())?;
            Ok(fields::update_of(&set, &unset))
        })?;
        Ok(DocBuf::new())
    }
}
