//! The mechanisms by which a user may log in, for `saslSupportedMechs` of `hello`.

use frond_auth::scram::Mechanism;
use frond_auth::{LoginMechanism, UserName};
use frond_bson::{DocBuf, doc};
use frond_error::{Error, Result};

use crate::context::Context;
use crate::observability::log::Component;

/// Adds the mechanisms of the user `database.name` to the reply of a `hello`. A user who does not exist looks like one
/// with credentials for all mechanisms, and so does one whose document cannot be read; mongod omits the field, which reveals that there is no such user.
///
/// # Errors
/// `BadValue` if the name has no database.
pub fn supported_mechanisms(cx: &Context<'_>, given: &str, reply: &mut DocBuf) -> Result<()> {
    let Some((db, name)) = given.split_once('.') else {
        return Err(Error::bad_value(
            "saslSupportedMechs must contain a '.' separated database.user pair",
        ));
    };
    let server = cx.server;
    server.clients.logins.counters.asked_for_mechanisms();
    let names: Vec<&str> = if db == "$external" {
        vec![LoginMechanism::X509.name()]
    } else {
        let found = server
            .clients
            .access
            .find_for_login(&UserName::new(name, db));
        // The client has not logged in: only the log may reveal that there is such a user.
        let user = found.unwrap_or_else(|error| {
            server.log.warning(
                Component::Access,
                9_100_045,
                &cx.connection.name,
                "A user cannot be read and so cannot log in",
                &doc! {"error": error.message()},
            );
            None
        });
        let has = |mechanism: Mechanism| {
            let user = user.as_ref();
            user.is_none_or(|user| user.credentials.for_mechanism(mechanism).is_some())
        };
        // The strongest first.
        let scram = Mechanism::ALL.into_iter().rev();
        let scram = scram.filter(|mechanism| {
            has(*mechanism)
                && server
                    .clients
                    .logins
                    .allows(LoginMechanism::Scram(*mechanism))
        });
        scram.map(Mechanism::name).collect()
    };
    reply.push_array("saslSupportedMechs", |list| {
        for name in names {
            list.push(name);
        }
    });
    Ok(())
}
