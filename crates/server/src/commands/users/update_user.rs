use frond_bson::DocBuf;
use frond_error::{Error, Result};

use crate::access::stored::USERS;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, CHANGES};
use crate::commands::support::password;
use crate::context::Context;

pub struct UpdateUser;

const SPEC: Spec = Spec {
    names: &["updateUser"],
    audits: Audited::User,
    doc: "Changes a user.",
    fields: &[
        "authenticationRestrictions",
        "customData",
        "digestPassword",
        "mechanisms",
        "pwd",
        "roles",
    ],
    secrets: &["pwd"],
    ..CHANGES
};

impl Command for UpdateUser {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let args = request.args();
        let name = fields::named(&args, "updateUser", request.db)?;
        let is_own = request.user == Some(&name);
        // Users who may change themselves need no right to change others.
        let or_own = |action, own| {
            let needs = Needs::on_database(request, action);
            if is_own {
                needs.or(Needs::on_database(request, own))
            } else {
                needs
            }
        };
        let mut needs = Needs::LoggedIn.and(fields::needs_for_restrictions(request));
        if request.body.contains_key("pwd") || request.body.contains_key("mechanisms") {
            needs = needs.and(or_own(Action::ChangePassword, Action::ChangeOwnPassword));
        }
        if request.body.contains_key("customData") {
            needs = needs.and(or_own(
                Action::ChangeCustomData,
                Action::ChangeOwnCustomData,
            ));
        }
        if let Some(roles) = fields::roles(&args, request.db)? {
            // The roles that the update revokes are unknown here, so the privilege to revoke any is needed.
            needs = needs
                .and(Needs::on(Place::AnyNormal, Action::RevokeRole))
                .and(fields::needs_for_roles(&roles, Action::GrantRole));
        }
        Ok(needs)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let name = fields::named(&args, "updateUser", cx.db)?;
        let roles = fields::roles(&args, cx.db)?;
        let restrictions = fields::restrictions(&args)?;
        let custom_data = args.doc_field("customData")?;
        let mechanisms = password::mechanisms(&args)?;
        let credentials = password::credentials(cx, &name)?;
        let mut set = DocBuf::new();
        let mut unset = DocBuf::new();
        if let Some(credentials) = &credentials {
            set.push("credentials", credentials);
        }
        if let Some(custom_data) = custom_data {
            set.push("customData", custom_data);
        }
        match &restrictions {
            Some(none) if none.is_empty() => unset.push("authenticationRestrictions", ""),
            Some(some) => set.push_value("authenticationRestrictions", &some.as_value()),
            None => {}
        }
        if let Some(roles) = &roles {
            set.push_value("roles", &fields::role_array(roles).as_value());
        }
        // Without a password only the named credentials stay.
        let kept = mechanisms.filter(|_| credentials.is_none());
        if set.is_empty() && unset.is_empty() && kept.is_none() {
            return Err(Error::bad_value(
                "Must specify at least one field to update in updateUser",
            ));
        }
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        changing.update(&USERS, &name, |user, stored| {
            stored.check_roles_exist(roles.as_deref().unwrap_or_default())?;
            let mut unset = unset.clone();
            if let Some(kept) = &kept {
                unset.push_all(&password::trimmed(user, kept)?);
            }
            Ok(fields::update_of(&set, &unset))
        })?;
        Ok(DocBuf::new())
    }
}
