//! MONGODB-CR, the challenge and response of the drivers before 2015. It rests on MD5, and whoever reads the stored
//! digest can log in with it, so it is only for drivers that know nothing else.

use frond_bson::hex;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::random::{NoRandomness, random_bytes};

/// The digest of a password that MONGODB-CR and SCRAM-SHA-1 use in place of the password: the MD5 of
/// `user:mongo:password`, in hexadecimal digits.
pub fn password_digest(user: &str, password: &str) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(user.len() + password.len() + 8));
    text.push_str(user);
    text.push_str(":mongo:");
    text.push_str(password);
    hex_of(text.as_bytes())
}

/// A new nonce for a login by MONGODB-CR: 16 hexadecimal digits.
///
/// # Errors
/// If the operating system gives no random bytes.
pub fn nonce() -> Result<String, NoRandomness> {
    let bytes: [u8; 8] = random_bytes()?;
    Ok(hex(&bytes))
}

/// The client's proof of the password: the MD5 of the nonce, the user and the digest of the password.
pub fn response(nonce: &str, user: &str, digest: &str) -> Zeroizing<String> {
    let capacity = nonce.len() + user.len() + digest.len();
    let mut text = Zeroizing::new(String::with_capacity(capacity));
    text.push_str(nonce);
    text.push_str(user);
    text.push_str(digest);
    hex_of(text.as_bytes())
}

/// Whether a client's response shows that it knows the digest of the password. Takes the same time for each response of
/// the right length.
pub fn verify(nonce: &str, user: &str, digest: &str, given: &str) -> bool {
    let expected = response(nonce, user, digest);
    expected.as_bytes().ct_eq(given.as_bytes()).into()
}

fn hex_of(bytes: &[u8]) -> Zeroizing<String> {
    let mut digest = md5::compute(bytes);
    let text = Zeroizing::new(hex(&digest.0));
    digest.0.zeroize();
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_digest_is_that_of_the_drivers() {
        // The example of the drivers' specification of authentication.
        assert_eq!(
            *password_digest("user", "pencil"),
            "1c33006ec1ffd90f9cadcbcc0e118200"
        );
        // The user's name is a part of it.
        assert_ne!(
            password_digest("user", "pencil"),
            password_digest("user2", "pencil")
        );
    }

    #[test]
    fn a_response_is_checked() {
        let digest = password_digest("user", "pencil");
        let nonce = nonce().unwrap();
        assert_eq!(nonce.len(), 16);
        assert!(nonce.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(nonce, super::nonce().unwrap());
        let good = response(&nonce, "user", &digest);
        assert!(verify(&nonce, "user", &digest, &good));
        // The example of the drivers' specification of authentication.
        assert_eq!(
            *response("2375531c32080ae8", "user", &digest),
            "21742f26431831d5cfca035a08c5bdf6"
        );
        for (nonce, user, digest, given) in [
            ("2375531c32080ae8", "user", &**digest, &**good),
            (&*nonce, "user2", &**digest, &**good),
            (&*nonce, "user", "1c33006ec1ffd90f9cadcbcc0e118201", &**good),
            (&*nonce, "user", &**digest, ""),
            (&*nonce, "user", &**digest, &digest),
        ] {
            assert!(
                !verify(nonce, user, digest, given),
                "{nonce} {user} {given}"
            );
        }
    }
}
