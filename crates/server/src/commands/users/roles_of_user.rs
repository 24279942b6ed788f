use frond_auth::UserName;
use frond_bson::{DocBuf, doc};
use frond_error::{ErrorCode, Result};

use crate::access::stored::{self, USERS, user_not_found};
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, CHANGES};
use crate::context::Context;

/// Changes the roles of a user.
pub struct RolesOfUser {
    spec: &'static Spec,
    action: Action,
    change: fn(&mut Vec<UserName>, &[UserName]),
}

pub static GRANT: RolesOfUser = RolesOfUser {
    spec: &Spec {
        names: &["grantRolesToUser"],
        audits: Audited::User,
        doc: "Grants roles to a user.",
        fields: &["roles"],
        ..CHANGES
    },
    action: Action::GrantRole,
    change: add,
};

pub static REVOKE: RolesOfUser = RolesOfUser {
    spec: &Spec {
        names: &["revokeRolesFromUser"],
        audits: Audited::User,
        doc: "Takes roles from a user.",
        fields: &["roles"],
        ..CHANGES
    },
    action: Action::RevokeRole,
    change: take,
};

/// Adds the roles that are not there yet.
pub fn add(roles: &mut Vec<UserName>, more: &[UserName]) {
    for role in more {
        if !roles.contains(role) {
            roles.push(role.clone());
        }
    }
}

pub fn take(roles: &mut Vec<UserName>, gone: &[UserName]) {
    roles.retain(|role| !gone.contains(role));
}

impl Command for RolesOfUser {
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
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        let changed = changing.update(&USERS, &name, |user, now| {
            now.check_roles_exist(&roles)?;
            let mut own = stored::role_names(user)?;
            (self.change)(&mut own, &roles);
            let own = fields::role_array(&own);
            Ok(doc! {"$set": {"roles": own.as_value()}})
        });
        changed.map_err(|error| match error.code() {
            ErrorCode::Location(11) => user_not_found(format!(
                "Could not find user \"{}\" for db \"{}\"",
                name.name, name.db
            )),
            _ => error,
        })?;
        Ok(DocBuf::new())
    }
}
