//! The user and mechanism of a connection.

use std::sync::{Arc, OnceLock};

use frond_auth::LoginMechanism;
use frond_auth::scram::{ClientPassword, Mechanism};
use frond_tls::Password;

use crate::error::{Error, Result};

/// The database of users that a certificate names.
const EXTERNAL: &str = "$external";

/// A user and how it logs in. What is derived from the password, which takes long, is shared by all connections.
#[derive(Clone, Debug)]
pub struct Login {
    mechanism: Option<LoginMechanism>,
    user: Option<String>,
    password: Option<Password>,
    source: String,
    derived: Arc<[OnceLock<ClientPassword>; 2]>,
}

impl Login {
    /// A user of a database. Without a mechanism the server reports those of the user.
    #[must_use]
    pub fn new(
        mechanism: Option<LoginMechanism>,
        user: Option<String>,
        password: Option<Password>,
        source: Option<String>,
    ) -> Login {
        let source = match mechanism {
            Some(LoginMechanism::X509) => EXTERNAL.to_owned(),
            _ => source.unwrap_or_else(|| "admin".to_owned()),
        };
        Login {
            mechanism,
            user,
            password,
            source,
            derived: Arc::default(),
        }
    }

    /// The user; none if the certificate names it.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The database of the user.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the certificate is the login.
    #[must_use]
    pub fn is_by_certificate(&self) -> bool {
        self.mechanism == Some(LoginMechanism::X509)
    }

    /// Whether it is by MONGODB-CR, whatever the server knows.
    #[must_use]
    pub fn is_by_nonce(&self) -> bool {
        self.mechanism == Some(LoginMechanism::MongoCr)
    }

    /// The SCRAM mechanism, given those that the server says the user has, if it does.
    #[must_use]
    pub fn scram(&self, has_sha256: bool) -> Mechanism {
        match self.mechanism {
            Some(LoginMechanism::Scram(mechanism)) => mechanism,
            _ if has_sha256 => Mechanism::Sha256,
            _ => Mechanism::Sha1,
        }
    }

    /// The password as it was given.
    pub(crate) fn plain_password(&self) -> Result<&str> {
        let password = self.password.as_ref().map_or(&[][..], Password::as_bytes);
        std::str::from_utf8(password)
            .map_err(|_| Error::Settings("the password is not UTF-8".to_owned()))
    }

    /// The password, as a mechanism uses it.
    pub fn password(&self, mechanism: Mechanism) -> Result<&ClientPassword> {
        let at = usize::from(mechanism == Mechanism::Sha256);
        let [sha1, sha256] = &*self.derived;
        let derived = if at == 1 { sha256 } else { sha1 };
        if let Some(known) = derived.get() {
            return Ok(known);
        }
        let user = self.user.as_deref().unwrap_or_default();
        let password = self.plain_password()?;
        let made = ClientPassword::new(mechanism, user, password)
            .map_err(|error| Error::Settings(error.to_string()))?;
        Ok(derived.get_or_init(|| made))
    }
}
