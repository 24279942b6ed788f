//! The SCRAM credential that a server stores for a password.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frond_bson::{Doc, DocBuf};
use zeroize::Zeroizing;

use super::keys::{Key, Keys};
use super::{Mechanism, ScramError};
use crate::name::UserName;
use crate::random::random_bytes;

/// The stored SCRAM credential of a password. It suffices to verify a proof, but not to log in.
#[derive(Clone)]
pub struct Credential {
    pub(super) mechanism: Mechanism,
    pub(super) iterations: u32,
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: Key,
    pub(super) server_key: Key,
    /// It belongs to no user, so no proof is accepted.
    pub(super) is_fake: bool,
}

impl Credential {
    /// The credential of a password, with a random salt. It takes some milliseconds.
    ///
    /// # Errors
    /// If SASLprep prohibits the password, which only SCRAM-SHA-256 asks, or the system gives no random bytes.
    pub fn new(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        iterations: u32,
    ) -> Result<Credential, ScramError> {
        let prepared = mechanism.prepare(user, password)?;
        Credential::with_random_salt(mechanism, &prepared, iterations)
    }

    /// The credentials of a user with several passwords, each of which is right. They have the same salt, for [`ServerConversation::or`].
    ///
    /// # Errors
    /// As [`Credential::new`].
    ///
    /// [`ServerConversation::or`]: super::ServerConversation::or
    pub fn of_any<'a>(
        mechanism: Mechanism,
        user: &str,
        passwords: impl IntoIterator<Item = &'a str>,
        iterations: u32,
    ) -> Result<Vec<Credential>, ScramError> {
        let salt: [u8; 32] = random_bytes()?;
        let salt = salt.get(..mechanism.salt_bytes()).unwrap_or(&salt);
        let derive = |password| {
            let prepared = mechanism.prepare(user, password)?;
            Ok(Credential::derive(mechanism, &prepared, salt, iterations))
        };
        passwords.into_iter().map(derive).collect()
    }

    /// The credential for SCRAM-SHA-1 of the digest that [`crate::password_digest`] makes of a password.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn of_digest(digest: &str, iterations: u32) -> Result<Credential, ScramError> {
        Credential::with_random_salt(Mechanism::Sha1, digest, iterations)
    }

    fn with_random_salt(
        mechanism: Mechanism,
        prepared: &str,
        iterations: u32,
    ) -> Result<Credential, ScramError> {
        let salt: [u8; 32] = random_bytes()?;
        let salt = salt.get(..mechanism.salt_bytes()).unwrap_or(&salt);
        Ok(Credential::derive(mechanism, prepared, salt, iterations))
    }

    /// The credential of a prepared password.
    pub(super) fn derive(
        mechanism: Mechanism,
        prepared: &str,
        salt: &[u8],
        iterations: u32,
    ) -> Credential {
        let salted = mechanism.salted_password(prepared, salt, iterations);
        let keys = Keys::derive(mechanism, &salted);
        Credential {
            mechanism,
            iterations,
            salt: salt.to_vec(),
            stored_key: keys.stored,
            server_key: keys.server,
            is_fake: false,
        }
    }

    /// A credential for the conversation with a client that names a user who is unknown, or cannot use the mechanism: it
    /// looks like a real one, is the same for the same name, and no password fits it. `secret` is known to this server
    /// only.
    pub fn fake(
        mechanism: Mechanism,
        secret: &[u8],
        user: &UserName,
        iterations: u32,
    ) -> Credential {
        let part = |what: &str| {
            let message = [what, mechanism.name(), &user.db, &user.name].join("\0");
            Mechanism::Sha256.hmac(secret, message.as_bytes()).to_vec()
        };
        let mut salt = part("salt");
        salt.truncate(mechanism.salt_bytes());
        let key = |what| {
            let mut key = Zeroizing::new(part(what));
            key.truncate(mechanism.key_bytes());
            key
        };
        Credential {
            mechanism,
            iterations,
            salt,
            stored_key: key("stored"),
            server_key: key("server"),
            is_fake: true,
        }
    }

    /// Reads a stored credential.
    ///
    /// # Errors
    /// If a field is missing or wrong.
    pub fn parse(mechanism: Mechanism, stored: &Doc) -> Result<Credential, ScramError> {
        let bytes = |field: &'static str| {
            let text = stored.get_str(field).ok_or(ScramError::Credential(field))?;
            let decoded = STANDARD.decode(text);
            decoded.map_err(|_| ScramError::Credential(field))
        };
        let key = |field| {
            let key = Zeroizing::new(bytes(field)?);
            if key.len() == mechanism.key_bytes() {
                Ok(key)
            } else {
                Err(ScramError::Credential(field))
            }
        };
        let iterations = stored
            .get("iterationCount")
            .and_then(|count| count.as_i64_lossless())
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| (super::ITERATIONS_MIN..=i32::MAX as u32).contains(count))
            .ok_or(ScramError::Credential("iterationCount"))?;
        let salt = bytes("salt")?;
        if salt.is_empty() {
            return Err(ScramError::Credential("salt"));
        }
        Ok(Credential {
            mechanism,
            iterations,
            salt,
            stored_key: key("storedKey")?,
            server_key: key("serverKey")?,
            is_fake: false,
        })
    }

    /// The document to store, a part of a user's `credentials`. Whoever reads it can try passwords.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuf::new();
        out.push(
            "iterationCount",
            i32::try_from(self.iterations).unwrap_or(i32::MAX),
        );
        out.push("salt", &*STANDARD.encode(&self.salt));
        for (field, key) in [
            ("storedKey", &self.stored_key),
            ("serverKey", &self.server_key),
        ] {
            out.push(field, &**Zeroizing::new(STANDARD.encode(&**key)));
        }
        out
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The iteration count of the hash.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    pub fn salt(&self) -> &[u8] {
        &self.salt
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("mechanism", &self.mechanism)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}
