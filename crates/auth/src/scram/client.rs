//! The client's side of a conversation.

use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::keys::{Key, Keys, xor};
use super::message::{ServerFirst, escape, server_final};
use super::{ITERATIONS_MAX, ITERATIONS_MIN, Mechanism, ScramError};
use crate::random::random_bytes;

/// Random bytes of the client's nonce.
const NONCE_BYTES: usize = 24;

/// `gs2-header` of a client that does not support channel binding and acts for itself.
const HEADER: &str = "n,,";

/// A user and a password, for any number of logins. The salted password, which is expensive, is derived once for each
/// salt.
pub struct ClientPassword {
    mechanism: Mechanism,
    user: String,
    prepared: Zeroizing<String>,
    derived: Mutex<Option<Derived>>,
}

struct Derived {
    salt: Vec<u8>,
    iterations: u32,
    salted_password: Key,
}

impl ClientPassword {
    /// A user and a password.
    ///
    /// # Errors
    /// If SASLprep prohibits the password of SCRAM-SHA-256.
    pub fn new(
        mechanism: Mechanism,
        user: &str,
        password: &str,
    ) -> Result<ClientPassword, ScramError> {
        let prepared = mechanism.prepare(user, password)?;
        Ok(ClientPassword::prepared(mechanism, user, prepared))
    }

    pub(super) fn prepared(
        mechanism: Mechanism,
        user: &str,
        prepared: Zeroizing<String>,
    ) -> ClientPassword {
        ClientPassword {
            mechanism,
            user: user.to_owned(),
            prepared,
            derived: Mutex::new(None),
        }
    }

    /// Begins a login. Also returns the client's first message.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn start(&self) -> Result<(ClientConversation<'_>, String), ScramError> {
        let nonce: [u8; NONCE_BYTES] = random_bytes()?;
        Ok(self.with_nonce(STANDARD.encode(nonce)))
    }

    pub(super) fn with_nonce(&self, nonce: String) -> (ClientConversation<'_>, String) {
        let bare = format!("n={},r={nonce}", escape(&self.user));
        let first = format!("{HEADER}{bare}");
        let conversation = ClientConversation {
            password: self,
            nonce,
            bare,
            signature: None,
        };
        (conversation, first)
    }

    fn keys(&self, salt: &[u8], iterations: u32) -> Keys {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*derived
            && known.salt == salt
            && known.iterations == iterations
        {
            return Keys::derive(self.mechanism, &known.salted_password);
        }
        let mechanism = self.mechanism;
        let salted_password = mechanism.salted_password(&self.prepared, salt, iterations);
        let keys = Keys::derive(mechanism, &salted_password);
        *derived = Some(Derived {
            salt: salt.to_vec(),
            iterations,
            salted_password,
        });
        keys
    }
}

impl std::fmt::Debug for ClientPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientPassword")
            .field("mechanism", &self.mechanism)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A login of a client.
#[derive(Debug)]
pub struct ClientConversation<'a> {
    password: &'a ClientPassword,
    nonce: String,
    /// `client-first-message-bare`
    bare: String,
    /// The signature that the server has to send.
    signature: Option<Key>,
}

impl ClientConversation<'_> {
    /// The client's final message, for the server's first one.
    ///
    /// # Errors
    /// If the server's message is malformed, does not belong to the conversation, or asks for too few or too many
    /// iterations.
    pub fn answer(&mut self, server_first: &[u8]) -> Result<String, ScramError> {
        let first = ServerFirst::parse(server_first)?;
        let ours = first.nonce.strip_prefix(self.nonce.as_str());
        if ours.is_none_or(str::is_empty) {
            return Err(ScramError::Mismatch("another nonce"));
        }
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&first.iterations) {
            return Err(ScramError::Message(
                "the server asks for too few or too many iterations",
            ));
        }
        let salt = STANDARD.decode(first.salt).ok();
        let salt = salt.filter(|salt| !salt.is_empty());
        let salt = salt.ok_or(ScramError::Message("the salt is malformed"))?;
        let keys = self.password.keys(&salt, first.iterations);
        let mechanism = self.password.mechanism;
        let without_proof = format!("c={},r={}", STANDARD.encode(HEADER), first.nonce);
        // It was parsed, so it is UTF-8.
        let server_first = String::from_utf8_lossy(server_first);
        let messages = format!("{},{server_first},{without_proof}", self.bare);
        let client_signature = mechanism.hmac(&keys.stored, messages.as_bytes());
        self.signature = Some(mechanism.hmac(&keys.server, messages.as_bytes()));
        let proof = xor(&keys.client, &client_signature);
        Ok(format!("{without_proof},p={}", STANDARD.encode(&*proof)))
    }

    /// Checks that the server knows the credential of the user, by its final message.
    ///
    /// # Errors
    /// If it does not.
    pub fn verify(&self, last: &[u8]) -> Result<(), ScramError> {
        let given = STANDARD.decode(server_final(last)?).unwrap_or_default();
        match &self.signature {
            Some(expected) if bool::from(expected.ct_eq(&given)) => Ok(()),
            _ => Err(ScramError::Signature),
        }
    }
}
