use frond_auth::{Privilege, merge};
use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::access::stored::{self, ROLES};
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, CHANGES};
use crate::commands::support::role_checks;
use crate::context::Context;

/// Changes the privileges of a role.
pub struct PrivilegesOfRole {
    spec: &'static Spec,
    action: Action,
    change: fn(Vec<Privilege>, &[Privilege]) -> Vec<Privilege>,
}

pub static GRANT: PrivilegesOfRole = PrivilegesOfRole {
    spec: &Spec {
        names: &["grantPrivilegesToRole"],
        audits: Audited::Role,
        doc: "Grants privileges to a role.",
        fields: &["privileges"],
        ..CHANGES
    },
    action: Action::GrantRole,
    change: |own, more| merge(own.into_iter().chain(more.iter().cloned())),
};

pub static REVOKE: PrivilegesOfRole = PrivilegesOfRole {
    spec: &Spec {
        names: &["revokePrivilegesFromRole"],
        audits: Audited::Role,
        doc: "Takes privileges from a role.",
        fields: &["privileges"],
        ..CHANGES
    },
    action: Action::RevokeRole,
    change: take,
};

/// Removes actions from the privileges on the same resources.
fn take(own: Vec<Privilege>, gone: &[Privilege]) -> Vec<Privilege> {
    let mut left = merge(own);
    for privilege in &mut left {
        for gone in gone
            .iter()
            .filter(|gone| gone.resource == privilege.resource)
        {
            privilege.actions = privilege.actions.without(gone.actions);
        }
    }
    left.retain(|privilege| !privilege.actions.is_empty());
    left
}

impl Command for PrivilegesOfRole {
    fn spec(&self) -> &'static Spec {
        self.spec
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let privileges = fields::privileges(&request.args())?.unwrap_or_default();
        let of_privileges = fields::needs_for_privileges(&privileges, self.action);
        Ok(Needs::LoggedIn.and(of_privileges))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let name = fields::named(&args, cx.name, cx.db)?;
        let privileges = fields::some_privileges(&args, cx.name)?;
        role_checks::is_changeable(&name)?;
        if self.action == Action::GrantRole {
            role_checks::may_have(&name, &privileges)?;
        }
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        changing.update(&ROLES, &name, |role, _| {
            let own = stored::parse_role(role)?.privileges;
            let changed = fields::privilege_array(&(self.change)(own, &privileges));
            Ok(doc! {"$set": {"privileges": changed.as_value()}})
        })?;
        Ok(DocBuf::new())
    }
}
