use frond_auth::builtin_roles;
use frond_auth::roles::resolve;
use frond_auth::{Privilege, UserName};
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use super::users_info::{push_resolved, restriction_arrays};
use crate::access::stored::{self, ROLES, Stored};
use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, READS};
use crate::commands::support::asked_names::Selection;
use crate::context::Context;

/// The form in which privileges are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Omit,
    Show,
    AsUserFragment,
}

/// The parts of a role to show.
#[derive(Clone, Copy)]
struct RoleParts {
    privileges: bool,
    restrictions: bool,
}

pub struct RolesInfo;

const SPEC: Spec = Spec {
    names: &["rolesInfo"],
    doc: "Shows roles: all of the database (1), or those that are named.",
    fields: &[
        "showAuthenticationRestrictions",
        "showBuiltinRoles",
        "showPrivileges",
    ],
    ..READS
};

impl Command for RolesInfo {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let asked = Selection::parse(&request.args(), "rolesInfo", &ROLES, request.db)?;
        let Selection::Named(names) = asked else {
            return Ok(Needs::on_database(request, Action::ViewRole));
        };
        // Users may view the roles that they have.
        let user = match request.user {
            Some(name) => request.server.clients.access.find(name)?,
            None => None,
        };
        let has = |role: &&UserName| {
            user.as_ref()
                .is_some_and(|user| user.all_roles.contains(*role))
        };
        let others = names.iter().filter(|role| !has(role));
        let of = |role: &UserName| Needs::on(Place::database(role.db.clone()), Action::ViewRole);
        Ok(Needs::LoggedIn.and(Needs::All(others.map(of).collect())))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let asked = Selection::parse(&args, "rolesInfo", &ROLES, cx.db)?;
        let format = format(&args)?;
        let shown = RoleParts {
            privileges: format != Format::Omit,
            restrictions: args
                .flag("showAuthenticationRestrictions")?
                .unwrap_or(false),
        };
        let with_builtin = args.flag("showBuiltinRoles")?.unwrap_or(false);
        let stored = Stored::within(cx.store(), &cx.limits);
        let mut roles = ArrayBuf::new();
        let Selection::Named(names) = asked else {
            if format == Format::AsUserFragment {
                return Err(Error::new(
                    ErrorCode::IllegalOperation,
                    "Cannot get user fragment for all roles in a database",
                ));
            }
            if with_builtin {
                for name in builtin_roles::names(cx.db) {
                    roles.push(&builtin(&UserName::new(name, cx.db), shown));
                }
            }
            let order = doc! {"role": 1};
            for role in stored.find(&ROLES, &doc! {"db": cx.db}, Some(&order))? {
                roles.push(&describe(&role, shown, &stored)?);
            }
            return Ok(roles.into_field("roles"));
        };
        if format == Format::AsUserFragment {
            let mut fragment = DocBuf::new();
            fragment.push_value("roles", &fields::role_array(&names).as_value());
            let resolved = resolve(&names, &stored)?;
            push_resolved(&mut fragment, &names, resolved, true, shown.restrictions);
            return Ok(doc! {"userFragment": fragment});
        }
        for name in names {
            if builtin_roles::is_builtin(&name) {
                roles.push(&builtin(&name, shown));
            } else if let Some(role) = stored.role_document(&name)? {
                let described = describe(&role, shown, &stored);
                roles.push(&described.map_err(|error| {
                    Error::new(
                        error.code(),
                        format!("Failed fetching role '{name}': {}", error.message()),
                    )
                })?);
            }
        }
        Ok(roles.into_field("roles"))
    }
}

fn format(args: &Arguments<'_>) -> Result<Format> {
    match args.get("showPrivileges") {
        None => Ok(Format::Omit),
        Some(Value::String("asUserFragment")) => Ok(Format::AsUserFragment),
        Some(value) if value.is_number() || matches!(value, Value::Bool(_)) => {
            Ok(if value.truthy() {
                Format::Show
            } else {
                Format::Omit
            })
        }
        Some(_) => Err(Error::bad_value(
            "Failed to parse 'showPrivileges'. 'showPrivileges' should either be a boolean or the string 'asUserFragment'",
        )),
    }
}

fn builtin(name: &UserName, shown: RoleParts) -> DocBuf {
    let mut out = ROLES.named(name);
    out.push("isBuiltin", true);
    out.push_array("roles", |_| {});
    out.push_array("inheritedRoles", |_| {});
    if shown.privileges {
        let privileges = builtin_roles::builtin(name).unwrap_or_default();
        let privileges = fields::privilege_array(&privileges);
        out.push_value("privileges", &privileges.as_value());
        out.push_value("inheritedPrivileges", &privileges.as_value());
    }
    if shown.restrictions {
        out.push_array("authenticationRestrictions", |_| {});
        out.push_array("inheritedAuthenticationRestrictions", |_| {});
    }
    out
}

/// A role that was created.
fn describe(role: &Doc, shown: RoleParts, stored: &Stored) -> Result<DocBuf> {
    let own = stored::parse_role(role)?;
    let mut out = DocBuf::new();
    for (field, value) in role.iter() {
        match field {
            "privileges" if !shown.privileges => {}
            "authenticationRestrictions" => {}
            _ => out.push_value(field, &value),
        }
    }
    let own_restrictions: Vec<_> = own.restrictions.into_iter().collect();
    if shown.restrictions {
        let restrictions = restriction_arrays(&own_restrictions);
        out.push_value("authenticationRestrictions", &restrictions.as_value());
    }
    out.push("isBuiltin", false);
    let mut resolved = resolve(&own.roles, stored)?;
    resolved.restrictions.splice(0..0, own_restrictions);
    let inherited = std::mem::take(&mut resolved.privileges);
    let all = own.privileges.into_iter().chain(inherited);
    resolved.privileges = all.collect::<Vec<Privilege>>();
    push_resolved(
        &mut out,
        &own.roles,
        resolved,
        shown.privileges,
        shown.restrictions,
    );
    Ok(out)
}

#[cfg(test)]
mod tests;
