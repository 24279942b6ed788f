use frond_bson::{DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::access::stored::{EXTERNAL, USERS};
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::{self as fields, CHANGES};
use crate::commands::support::password;
use crate::context::Context;
use crate::host::random::uuid;

pub struct CreateUser;

const SPEC: Spec = Spec {
    names: &["createUser"],
    audits: Audited::User,
    doc: "Creates a user.",
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

impl Command for CreateUser {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let roles = fields::roles(&request.args(), request.db)?.unwrap_or_default();
        Ok(Needs::on_database(request, Action::CreateUser)
            .and(fields::needs_for_roles(&roles, Action::GrantRole))
            .and(fields::needs_for_restrictions(request)))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let name = fields::named(&args, "createUser", cx.db)?;
        let roles = fields::roles(&args, cx.db)?.ok_or_else(|| args.missing("roles"))?;
        let restrictions = fields::restrictions(&args)?;
        let custom_data = args.doc_field("customData")?;
        if name.db == "local" {
            return Err(Error::bad_value(
                "Cannot create users in the local database",
            ));
        }
        if name.name.is_empty() {
            return Err(Error::bad_value(
                "User document needs 'user' field to be non-empty",
            ));
        }
        if name.name.contains('\0') {
            return Err(Error::bad_value("Username cannot contain NULL characters"));
        }
        let credentials = match password::credentials(cx, &name)? {
            Some(credentials) => credentials,
            None if name.db == EXTERNAL => doc! {"external": true},
            None => {
                return Err(Error::bad_value(
                    "Must provide a 'pwd' field for all user documents, except those with '$external' as the user's source db",
                ));
            }
        };
        let id = uuid();
        let id = Value::Binary {
            subtype: 4,
            bytes: &id,
        };
        let mut user = doc! {"_id": format!("{}.{}", name.db, name.name), "userId": id};
        user.push_all(&USERS.named(&name));
        user.push("credentials", &credentials);
        if let Some(restrictions) = restrictions.filter(|array| !array.is_empty()) {
            user.push_value("authenticationRestrictions", &restrictions.as_value());
        }
        if let Some(custom_data) = custom_data {
            user.push("customData", custom_data);
        }
        user.push_value("roles", &fields::role_array(&roles).as_value());
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        // Others may have created the first user since the command was admitted.
        if cx.caller.is_exception() && cx.server.clients.access.has_users() {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                "Command createUser requires authentication: the first user has been created meanwhile",
            ));
        }
        changing.stored().check_roles_exist(&roles)?;
        changing.insert(&USERS, &name, &user)?;
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests;
