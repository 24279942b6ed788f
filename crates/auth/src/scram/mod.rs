//! SCRAM-SHA-1 and SCRAM-SHA-256 (RFC 5802, RFC 7677) with MongoDB's details, for both sides.
//!
//! The password of SCRAM-SHA-1 is MongoDB's MD5 digest of `user:mongo:password`; that of SCRAM-SHA-256 is prepared by
//! SASLprep. Channel binding is not supported, which both sides say. A login costs the server a few hashes: the client
//! derives the key from the password, and the server only when the password is set.

mod client;
mod credential;
mod keys;
mod message;
mod server;
#[cfg(test)]
mod tests;

use std::fmt;

pub use client::{ClientConversation, ClientPassword};
pub use credential::Credential;
pub use message::ClientFirst;
pub use server::ServerConversation;

use crate::random::NoRandomness;

/// The fewest iterations of a credential: what RFC 5802 recommends at least, and drivers require.
pub const ITERATIONS_MIN: u32 = 4096;

/// The most iterations that a client derives a key with: a server must not keep it busy for minutes.
pub const ITERATIONS_MAX: u32 = 10_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// `SCRAM-SHA-1`
    Sha1,
    /// `SCRAM-SHA-256`
    Sha256,
}

impl Mechanism {
    /// Both, in the order of their names.
    pub const ALL: [Mechanism; 2] = [Mechanism::Sha1, Mechanism::Sha256];

    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Sha1 => "SCRAM-SHA-1",
            Mechanism::Sha256 => "SCRAM-SHA-256",
        }
    }

    /// The mechanism with this name. Names are compared exactly.
    pub fn named(name: &str) -> Option<Mechanism> {
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a conversation fails, or a credential cannot be made. The texts never quote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScramError {
    /// A message is not as RFC 5802 has it, or asks for what is not supported.
    Message(&'static str),
    /// The nonce or the channel binding of a message is not that of the messages before.
    Mismatch(&'static str),
    /// The client's proof shows that it does not know the password.
    Proof,
    /// The server's signature shows that it does not know the credential.
    Signature,
    /// The password has characters that SASLprep prohibits.
    Password,
    /// A stored credential cannot be read.
    Credential(&'static str),
    /// The operating system gives no random bytes.
    Random(NoRandomness),
}

impl fmt::Display for ScramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScramError::Message(what) => write!(f, "invalid SCRAM message: {what}"),
            ScramError::Mismatch(what) => write!(f, "the SCRAM conversation was changed: {what}"),
            ScramError::Proof => f.write_str("SCRAM authentication failed, storedKey mismatch"),
            ScramError::Signature => {
                f.write_str("the server does not know the credential of the user")
            }
            ScramError::Password => f.write_str(
                "the password has characters that SASLprep (RFC 4013) prohibits, such as control characters",
            ),
            ScramError::Credential(what) => write!(f, "invalid stored credential: {what}"),
            ScramError::Random(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ScramError {}

impl From<NoRandomness> for ScramError {
    fn from(error: NoRandomness) -> ScramError {
        ScramError::Random(error)
    }
}
