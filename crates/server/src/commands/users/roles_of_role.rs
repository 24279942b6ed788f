use frond_auth::UserName;
use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::roles_of_user;
use crate::access::stored::{self, ROLES};
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, CHANGES};
use crate::commands::support::role_checks;
use crate::context::Context;

/// Changes the roles that a role inherits from.
pub struct RolesOfRole {
    spec: &'static Spec,
    action: Action,
    change: fn(&mut Vec<UserName>, &[UserName]),
}

pub static GRANT: RolesOfRole = RolesOfRole {
    spec: &Spec {
        names: &["grantRolesToRole"],
        audits: Audited::Role,
        doc: "Grants roles to a role.",
        fields: &["roles"],
        ..CHANGES
    },
    action: Action::GrantRole,
    change: roles_of_user::add,
};

pub static REVOKE: RolesOfRole = RolesOfRole {
    spec: &Spec {
        names: &["revokeRolesFromRole"],
        audits: Audited::Role,
        doc: "Revokes roles from a role.",
        fields: &["roles"],
        ..CHANGES
    },
    action: Action::RevokeRole,
    change: roles_of_user::take,
};

impl Command for RolesOfRole {
    fn spec(&self) -> &'static Spec {
        self.spec
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        fields::needs_for_named_roles(request, self.action)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let name = fields::named(&args, cx.name, cx.db)?;
        let roles = fields::some_roles(&args, cx.name, cx.db)?;
        role_checks::is_changeable(&name)?;
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        changing.update(&ROLES, &name, |role, now| {
            if self.action == Action::GrantRole {
                role_checks::may_inherit(now, &name, &roles)?;
            }
            let mut own = stored::role_names(role)?;
            (self.change)(&mut own, &roles);
            let own = fields::role_array(&own);
            Ok(doc! {"$set": {"roles": own.as_value()}})
        })?;
        Ok(DocBuf::new())
    }
}
