use frond_auth::roles::resolve;
use frond_auth::{Resolved, Restrictions, UserName};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_query::matcher::Filter;

use crate::access::stored::{self, Stored, USERS};
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, READS};
use crate::commands::support::asked_names::Selection;
use crate::context::Context;

/// The parts of a user to show.
struct UserParts {
    privileges: bool,
    credentials: bool,
    custom_data: bool,
    restrictions: bool,
}

pub struct UsersInfo;

const SPEC: Spec = Spec {
    names: &["usersInfo"],
    doc: "Shows users: all of the database (1), of all databases ({forAllDBs: true}), or those that are named.",
    fields: &[
        "showAuthenticationRestrictions",
        "showCredentials",
        "showCustomData",
        "showPrivileges",
        "filter",
    ],
    ..READS
};

impl Command for UsersInfo {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let asked = Selection::parse(&request.args(), "usersInfo", &USERS, request.db)?;
        Ok(match asked {
            Selection::OfDatabase => Needs::on_database(request, Action::ViewUser),
            Selection::Everywhere => Needs::cluster(Action::ViewUser),
            Selection::Named(names) => {
                // Users may view themselves.
                let others = names.iter().filter(|name| request.user != Some(*name));
                let of =
                    |name: &UserName| Needs::on(Place::database(name.db.clone()), Action::ViewUser);
                Needs::LoggedIn.and(Needs::All(others.map(of).collect()))
            }
        })
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let asked = Selection::parse(&args, "usersInfo", &USERS, cx.db)?;
        let flag = |name, otherwise| Ok::<_, Error>(args.flag(name)?.unwrap_or(otherwise));
        let shown = UserParts {
            privileges: flag("showPrivileges", false)?,
            credentials: flag("showCredentials", false)?,
            custom_data: flag("showCustomData", true)?,
            restrictions: flag("showAuthenticationRestrictions", false)?,
        };
        let filter = args.doc_field("filter")?;
        let stored = Stored::within(cx.store(), &cx.limits);
        let mut users = ArrayBuf::new();
        if shown.privileges || shown.restrictions {
            let (Selection::Named(names), None) = (asked, filter) else {
                return Err(Error::new(
                    ErrorCode::IllegalOperation,
                    "Privilege or restriction details require exact-match usersInfo queries",
                ));
            };
            for name in names {
                if let Some(user) = stored.user(&name)? {
                    users.push(&describe(&user, &shown, &stored)?);
                }
            }
            return Ok(users.into_field("users"));
        }
        let filter = filter.map(Filter::parse).transpose()?;
        let wanted = match asked {
            Selection::Everywhere => DocBuf::new(),
            Selection::OfDatabase => doc! {"db": cx.db},
            Selection::Named(names) if names.is_empty() => return Ok(users.into_field("users")),
            Selection::Named(names) => doc! {"$or": fields::user_array(&names).as_value()},
        };
        for user in stored.find(&USERS, &wanted, Some(&doc! {"user": 1, "db": 1}))? {
            let user = summary(&user, &shown);
            let passes = match &filter {
                None => true,
                Some(filter) => filter.try_matches(&user)?,
            };
            if passes {
                users.push(&user);
            }
        }
        Ok(users.into_field("users"))
    }
}

/// The names of the credentials of a user.
fn mechanisms(user: &Doc) -> ArrayBuf {
    let mut out = ArrayBuf::new();
    for (name, _) in user.get_doc("credentials").unwrap_or(Doc::empty()).iter() {
        out.push(name);
    }
    out
}

/// A user in a list.
fn summary(user: &Doc, shown: &UserParts) -> DocBuf {
    let mut out = DocBuf::new();
    for (field, value) in user.iter() {
        let is_shown = match field {
            "authenticationRestrictions" => false,
            "credentials" => shown.credentials,
            "customData" => shown.custom_data,
            _ => true,
        };
        if is_shown {
            out.push_value(field, &value);
        }
    }
    if let Some(Value::Document(_)) = user.get("credentials") {
        out.push_value("mechanisms", &mechanisms(user).as_value());
    }
    out
}

/// A user with what its roles grant.
fn describe(user: &Doc, shown: &UserParts, stored: &Stored) -> Result<DocBuf> {
    let mut out = DocBuf::new();
    for (field, value) in user.iter() {
        match field {
            "credentials" => {
                out.push_value("mechanisms", &mechanisms(user).as_value());
                if shown.credentials {
                    out.push_value(field, &value);
                }
            }
            "authenticationRestrictions" if !shown.restrictions => {}
            "customData" if !shown.custom_data => {}
            _ => out.push_value(field, &value),
        }
    }
    if shown.restrictions && !user.contains_key("authenticationRestrictions") {
        out.push_array("authenticationRestrictions", |_| {});
    }
    let roles = stored::role_names(user)?;
    let resolved = resolve(&roles, stored)?;
    push_resolved(&mut out, &roles, resolved, true, true);
    Ok(out)
}

/// Adds what roles grant: the roles themselves with all that they inherit from, privileges and restrictions.
pub fn push_resolved(
    out: &mut DocBuf,
    roles: &[UserName],
    resolved: Resolved,
    with_privileges: bool,
    with_restrictions: bool,
) {
    let mut inherited = resolved.inherited;
    inherited.extend(roles.iter().cloned());
    out.push_value("inheritedRoles", &fields::role_array(&inherited).as_value());
    if with_privileges {
        let privileges = fields::privilege_array(&resolved.privileges);
        out.push_value("inheritedPrivileges", &privileges.as_value());
    }
    if with_restrictions {
        let restrictions = restriction_arrays(&resolved.restrictions);
        out.push_value(
            "inheritedAuthenticationRestrictions",
            &restrictions.as_value(),
        );
    }
}

/// Restrictions, one array for each role.
pub fn restriction_arrays(restrictions: &[Restrictions]) -> ArrayBuf {
    let mut out = ArrayBuf::new();
    for one in restrictions {
        out.push_value(&one.to_array().as_value());
    }
    out
}

#[cfg(test)]
mod tests;
