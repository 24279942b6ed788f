//! The settings of logins.

use std::time::Duration;

use frond_auth::LoginMechanism;

/// Login settings: mechanisms, and iteration counts of new passwords.
#[derive(Clone, Debug)]
pub struct LoginSettings {
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
