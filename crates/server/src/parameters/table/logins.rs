//! Mechanisms of logins and the hashes of new passwords.

use std::time::Duration;

use frond_auth::LoginMechanism;
use frond_auth::scram::Mechanism;
use frond_bson::{ArrayBuf, OwnedValue, Value};

use crate::access::change::AUTH_SCHEMA;
use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::{Setter, owned, saturated};
use crate::state::Server;

/// The range of an iteration count, as in mongod.
const ITERATIONS: Kind = Kind::Integer(5000, i32::MAX as i64);

pub static LOGINS: &[Parameter] = &[
    Parameter {
        name: "authenticationMechanisms",
        kind: Kind::Text("NAMES"),
        default: "MONGODB-X509,SCRAM-SHA-1,SCRAM-SHA-256",
        doc: "Mechanisms of logins, separated by commas (default {default}); MONGODB-CR, which \
           drivers before 2015 need, is weak",
        apply: Some(|s, v| {
            let mut mechanisms = Vec::new();
            for name in v.text()?.split(',').map(str::trim) {
                let mechanism = LoginMechanism::named(name).ok_or_else(|| {
                let known = LoginMechanism::ALL.map(LoginMechanism::name).join(", ");
                format!(
                    "names the mechanism '{name}', which is not supported; those that are: {known}"
                )
            })?;
                if !mechanisms.contains(&mechanism) {
                    mechanisms.push(mechanism);
                }
            }
            mechanisms.sort();
            s.logins.mechanisms = mechanisms;
            Ok(())
        }),
        get: Some(|server| {
            let mut names = ArrayBuf::new();
            for mechanism in server.clients.logins.mechanisms() {
                names.push(mechanism.name());
            }
            OwnedValue::from(Value::Array(&names))
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "scramIterationCount",
        kind: ITERATIONS,
        default: "10000",
        doc: "Iterations of the hash of new passwords for SCRAM-SHA-1 (default {default})",
        apply: Some(|s, v| v.integer().map(|count| s.logins.sha1_iterations = count)),
        get: Some(|server| saturated(server.clients.logins.iterations(Mechanism::Sha1))),
        set: Some(Setter::Integer(|server, count| {
            set_iterations(server, Mechanism::Sha1, count)
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "scramSHA256IterationCount",
        kind: ITERATIONS,
        default: "15000",
        doc: "Iterations of the hash of new passwords for SCRAM-SHA-256 (default {default})",
        apply: Some(|s, v| v.integer().map(|count| s.logins.sha256_iterations = count)),
        get: Some(|server| saturated(server.clients.logins.iterations(Mechanism::Sha256))),
        set: Some(Setter::Integer(|server, count| {
            set_iterations(server, Mechanism::Sha256, count)
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "authFailedDelayMs",
        kind: Kind::Integer(0, 5000),
        default: "100",
        doc: "Milliseconds until a failed login is answered; doubled with each further one of the connection (default {default})",
        apply: Some(|s, v| {
            v.integer()
                .map(|ms| s.logins.failed_delay = Duration::from_millis(ms))
        }),
        get: Some(|server| owned(server.settings.logins.failed_delay.as_millis() as i32)),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "enableLocalhostAuthBypass",
        kind: Kind::Switch(true),
        default: "true",
        doc: "Until there is a user, let clients on this machine create the first one without a login (default {default})",
        apply: Some(|s, v| v.switch().map(|on| s.logins.localhost_bypass = on)),
        get: Some(|server| owned(server.settings.logins.localhost_bypass)),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "authSchemaVersion",
        kind: Kind::ReadOnly,
        doc: "Version of the stored users and roles, which tools read before they dump and restore them",
        get: Some(|_| owned(AUTH_SCHEMA)),
        ..Parameter::EMPTY
    },
];

fn set_iterations(server: &Server, mechanism: Mechanism, count: i64) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    server.clients.logins.set_iterations(mechanism, count);
}
