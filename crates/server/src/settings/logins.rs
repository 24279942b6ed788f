//! The settings of logins.

use std::time::Duration;

use frond_auth::LoginMechanism;

use super::table::{Kind, Setting, integer, switch, text};

/// The range of an iteration count, as in mongod.
pub const ITERATIONS: (i64, i64) = (5000, i32::MAX as i64);

/// Login settings: mechanisms, and iteration counts of new passwords.
#[derive(Clone, Debug)]
pub struct LoginSettings {
    /// The enabled mechanisms.
    pub mechanisms: Vec<LoginMechanism>,
    /// Iterations of new credentials for SCRAM-SHA-1.
    pub sha1_iterations: u32,
    /// Iterations of new credentials for SCRAM-SHA-256.
    pub sha256_iterations: u32,
    /// The delay of the reply to a connection's first failed login. Each further failure doubles it.
    pub failed_delay: Duration,
    /// Whether a client on this machine may create the first user without a login.
    pub localhost_bypass: bool,
}

impl Default for LoginSettings {
    fn default() -> Self {
        LoginSettings {
            mechanisms: LoginMechanism::DEFAULT.to_vec(),
            sha1_iterations: 10_000,
            sha256_iterations: 15_000,
            failed_delay: Duration::from_millis(100),
            localhost_bypass: true,
        }
    }
}

/// `authenticationMechanisms`
pub const MECHANISMS: Setting = Setting {
    flag: "",
    key: "setParameter.authenticationMechanisms",
    aliases: &[],
    kind: Kind::Text("NAMES"),
    help: "Mechanisms of logins, separated by commas (default MONGODB-X509,SCRAM-SHA-1,SCRAM-SHA-256); MONGODB-CR, which \
           drivers before 2015 need, is weak",
    apply: |s, v| {
        let mut mechanisms = Vec::new();
        for name in text(v)?.split(',').map(str::trim) {
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
    },
};

/// `scramIterationCount`
pub const SHA1_ITERATIONS: Setting = Setting {
    flag: "",
    key: "setParameter.scramIterationCount",
    aliases: &[],
    kind: Kind::Integer(ITERATIONS.0, ITERATIONS.1),
    help: "Iterations of the hash of new passwords for SCRAM-SHA-1 (default 10000)",
    apply: |s, v| integer(v).map(|count| s.logins.sha1_iterations = count),
};

/// `scramSHA256IterationCount`
pub const SHA256_ITERATIONS: Setting = Setting {
    flag: "",
    key: "setParameter.scramSHA256IterationCount",
    aliases: &[],
    kind: Kind::Integer(ITERATIONS.0, ITERATIONS.1),
    help: "Iterations of the hash of new passwords for SCRAM-SHA-256 (default 15000)",
    apply: |s, v| integer(v).map(|count| s.logins.sha256_iterations = count),
};

/// `authFailedDelayMs`
pub const FAILED_DELAY: Setting = Setting {
    flag: "",
    key: "setParameter.authFailedDelayMs",
    aliases: &[],
    kind: Kind::Integer(0, 5000),
    help: "Milliseconds until a failed login is answered; doubled with each further one of the connection (default 100)",
    apply: |s, v| integer(v).map(|ms| s.logins.failed_delay = Duration::from_millis(ms)),
};

/// `enableLocalhostAuthBypass`
pub const LOCALHOST_BYPASS: Setting = Setting {
    flag: "",
    key: "setParameter.enableLocalhostAuthBypass",
    aliases: &[],
    kind: Kind::Switch(true),
    help: "Until there is a user, let clients on this machine create the first one without a login (default true)",
    apply: |s, v| switch(v).map(|on| s.logins.localhost_bypass = on),
};
