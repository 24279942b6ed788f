//! The server's side of a conversation.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use super::credential::Credential;
use super::keys::xor;
use super::message::{ClientFinal, ClientFirst};
use super::{Mechanism, ScramError};
use crate::random::random_bytes;

/// Random bytes of the server's part of the nonce.
const NONCE_BYTES: usize = 24;

/// A conversation with a client that has named its user and not proved yet that it knows the password.
#[derive(Clone)]
pub struct ServerConversation {
    credential: Credential,
    /// Credentials of other passwords of the user, with the same salt and iterations.
    others: Vec<Credential>,
    /// The channel-binding header that the client must repeat, in base64.
    binding: String,
    /// The nonce of both sides.
    nonce: String,
    /// `AuthMessage` up to the client's final message.
    messages: String,
}

impl ServerConversation {
    /// Begins a conversation. Also returns the server's first message.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn start(
        first: &ClientFirst,
        credential: Credential,
    ) -> Result<(ServerConversation, String), ScramError> {
        let nonce: [u8; NONCE_BYTES] = random_bytes()?;
        Ok(Self::with_nonce(first, credential, &STANDARD.encode(nonce)))
    }

    pub(super) fn with_nonce(
        first: &ClientFirst,
        credential: Credential,
        nonce: &str,
    ) -> (ServerConversation, String) {
        let nonce = format!("{}{nonce}", first.nonce);
        let salt = STANDARD.encode(&credential.salt);
        let reply = format!("r={nonce},s={salt},i={}", credential.iterations);
        let conversation = ServerConversation {
            credential,
            others: Vec::new(),
            binding: STANDARD.encode(&first.header),
            nonce,
            messages: format!("{},{reply}", first.bare),
        };
        (conversation, reply)
    }

    /// Accepts other passwords of the user, too: credentials that [`Credential::of_any`] made together with the first one.
    #[must_use]
    pub fn or(mut self, others: Vec<Credential>) -> ServerConversation {
        self.others = others;
        self
    }

    pub fn mechanism(&self) -> Mechanism {
        self.credential.mechanism
    }

    /// Checks the client's final message. Returns the server's final message if the client knows the password. The time
    /// that it takes does not reveal whether the user exists.
    ///
    /// # Errors
    /// If the client does not know the password, or the message does not belong to the conversation.
    pub fn finish(&self, payload: &[u8]) -> Result<String, ScramError> {
        let last = ClientFinal::parse(payload)?;
        if last.binding != self.binding {
            return Err(ScramError::Mismatch("another channel binding"));
        }
        if last.nonce != self.nonce {
            return Err(ScramError::Mismatch("another nonce"));
        }
        let mechanism = self.credential.mechanism;
        let proof = STANDARD
            .decode(last.proof)
            .map(Zeroizing::new)
            .ok()
            .filter(|proof| proof.len() == mechanism.key_bytes())
            .ok_or(ScramError::Message("the proof is malformed"))?;
        let messages = format!("{},{}", self.messages, last.without_proof);
        for credential in std::iter::once(&self.credential).chain(&self.others) {
            let client_signature = mechanism.hmac(&credential.stored_key, messages.as_bytes());
            let client_key = xor(&client_signature, &proof);
            let stored_key = mechanism.hash(&client_key);
            let server_signature = mechanism.hmac(&credential.server_key, messages.as_bytes());
            let is_known = stored_key.ct_eq(&credential.stored_key);
            if bool::from(is_known & !Choice::from(u8::from(credential.is_fake))) {
                return Ok(format!("v={}", STANDARD.encode(&*server_signature)));
            }
        }
        Err(ScramError::Proof)
    }
}

/// Without nonces and keys.
impl std::fmt::Debug for ServerConversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConversation")
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}
