//! The hash functions of the mechanisms, and the keys that are derived by them.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{Mechanism, ScramError};
use crate::mongo_cr::password_digest;

/// A key or a signature, wiped when it is dropped.
pub type Key = Zeroizing<Vec<u8>>;

impl Mechanism {
    /// Bytes of a key.
    pub(super) fn key_bytes(self) -> usize {
        match self {
            Mechanism::Sha1 => 20,
            Mechanism::Sha256 => 32,
        }
    }

    /// Bytes of a new salt, as many as MongoDB takes.
    pub(super) fn salt_bytes(self) -> usize {
        self.key_bytes() - 4
    }

    /// `H` of RFC 5802.
    pub(super) fn hash(self, bytes: &[u8]) -> Key {
        Zeroizing::new(match self {
            Mechanism::Sha1 => Sha1::digest(bytes).to_vec(),
            Mechanism::Sha256 => Sha256::digest(bytes).to_vec(),
        })
    }

    /// `HMAC` of RFC 5802.
    pub(super) fn hmac(self, key: &[u8], message: &[u8]) -> Key {
        fn compute<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Key {
            let mut mac =
                <M as KeyInit>::new_from_slice(key).expect("an HMAC takes a key of any length");
            mac.update(message);
            Zeroizing::new(mac.finalize().into_bytes().to_vec())
        }
        match self {
            Mechanism::Sha1 => compute::<Hmac<Sha1>>(key, message),
            Mechanism::Sha256 => compute::<Hmac<Sha256>>(key, message),
        }
    }

    /// `Hi` of RFC 5802: PBKDF2, the only expensive step.
    pub(super) fn salted_password(self, password: &str, salt: &[u8], iterations: u32) -> Key {
        let mut key = Zeroizing::new(vec![0; self.key_bytes()]);
        let password = password.as_bytes();
        match self {
            Mechanism::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut key),
            Mechanism::Sha256 => {
                pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut key)
            }
        }
        key
    }

    /// The password that enters the key derivation.
    ///
    /// # Errors
    /// If SASLprep prohibits the password of SCRAM-SHA-256.
    pub(super) fn prepare(
        self,
        user: &str,
        password: &str,
    ) -> Result<Zeroizing<String>, ScramError> {
        match self {
            Mechanism::Sha1 => Ok(password_digest(user, password)),
            Mechanism::Sha256 => {
                let prepared = stringprep::saslprep(password).map_err(|_| ScramError::Password)?;
                Ok(Zeroizing::new(prepared.into_owned()))
            }
        }
    }
}

/// The keys that a salted password gives.
pub struct Keys {
    /// `ClientKey`, which only the client knows.
    pub client: Key,
    /// `StoredKey`: the hash of the client's key.
    pub stored: Key,
    /// `ServerKey`, with which the server shows that it knows the user.
    pub server: Key,
}

impl Keys {
    pub fn derive(mechanism: Mechanism, salted_password: &[u8]) -> Keys {
        let client = mechanism.hmac(salted_password, b"Client Key");
        Keys {
            stored: mechanism.hash(&client),
            server: mechanism.hmac(salted_password, b"Server Key"),
            client,
        }
    }
}

/// Combines two keys of the same length by XOR.
pub fn xor(one: &[u8], other: &[u8]) -> Key {
    let bytes = one.iter().zip(other).map(|(one, other)| one ^ other);
    Zeroizing::new(bytes.collect())
}
