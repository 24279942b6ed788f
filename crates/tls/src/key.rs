//! A certificate chain and its private key, which lie in one file.

use std::path::Path;

use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::password::Password;
use crate::pem::{self, Section};

/// Reads a certificate chain and its key. The first certificate is the one of the key.
pub(crate) fn load(path: &Path, password: Option<&Password>) -> Result<CertifiedKey> {
    let sections = pem::read_secret(path)?;
    let mut chain = Vec::new();
    let mut key = None;
    for section in &sections {
        if section.label == "CERTIFICATE" {
            chain.push(CertificateDer::from(section.der.to_vec()));
        } else if let Some(found) = private_key(path, section, password)?
            && key.replace(found).is_some()
        {
            return Err(Error::file(path, "it holds more than one private key"));
        }
    }
    if chain.is_empty() {
        return Err(Error::file(path, "it holds no certificate"));
    }
    let key = key.ok_or_else(|| Error::file(path, "it holds no private key"))?;
    // By reference, so that no copy of the key is left behind.
    let signing = any_supported_type(&key).map_err(|error| {
        let what = format!(
            "the private key cannot be used ({error}): supported are RSA of 2048 bits or more, ECDSA on P-256 or P-384, and \
             Ed25519"
        );
        Error::file(path, what)
    })?;
    let pair = CertifiedKey::new(chain, signing);
    match pair.keys_match() {
        Ok(()) => Ok(pair),
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err(Error::file(
                path,
                "the private key is not the key of the first certificate",
            ))
        }
        Err(error) => Err(Error::file(
            path,
            format!("the certificate cannot be used: {error}"),
        )),
    }
}

/// The private key in a section, if it has one.
fn private_key(
    path: &Path,
    section: &Section,
    password: Option<&Password>,
) -> Result<Option<Zeroizing<PrivateKeyDer<'static>>>> {
    let key = match section.label.as_str() {
        "PRIVATE KEY" => PrivatePkcs8KeyDer::from(section.der.to_vec()).into(),
        "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(section.der.to_vec()).into(),
        "EC PRIVATE KEY" => PrivateSec1KeyDer::from(section.der.to_vec()).into(),
        "ENCRYPTED PRIVATE KEY" => decrypt(path, &section.der, password)?,
        _ => return Ok(None),
    };
    Ok(Some(Zeroizing::new(key)))
}

fn decrypt(path: &Path, der: &[u8], password: Option<&Password>) -> Result<PrivateKeyDer<'static>> {
    let password = password.ok_or_else(|| {
        Error::file(
            path,
            "the private key is encrypted: give its password with --tlsCertificateKeyFilePassword \
             (net.tls.certificateKeyFilePassword)",
        )
    })?;
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(der).map_err(|error| {
        let what = format!(
            "the encrypted private key uses a method that is not supported ({error}); convert it with: openssl pkcs8 -topk8 -v2 \
             aes-256-cbc -in OLD.pem -out NEW.pem"
        );
        Error::file(path, what)
    })?;
    let key = encrypted.decrypt(password.as_bytes()).map_err(|_| {
        Error::file(
            path,
            "the private key cannot be decrypted: the password is wrong, or the method is not supported",
        )
    })?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Authority, write_secret};

    use super::*;

    fn keys_in(text: &str, password: Option<&str>) -> std::result::Result<usize, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        write_secret(&path, text);
        let password = password.map(Password::new);
        load(&path, password.as_ref())
            .map(|pair| pair.cert.len())
            .map_err(|error| error.to_string())
    }

    const ENCRYPTED: &str = include_str!("testdata/rsa-pkcs8-encrypted.pem");
    const SEC1: &str = include_str!("testdata/ec-sec1.pem");

    #[test]
    fn every_form_of_a_key_is_read() {
        assert_eq!(keys_in(include_str!("testdata/rsa-pkcs1.pem"), None), Ok(1));
        assert_eq!(keys_in(SEC1, None), Ok(1));
        assert_eq!(keys_in(ENCRYPTED, Some("secret")), Ok(1));
        let authority = Authority::new();
        let pkcs8 = std::fs::read_to_string(authority.issue(1, |_| {})).unwrap();
        let ca = std::fs::read_to_string(&authority.ca_file).unwrap();
        assert_eq!(keys_in(&pkcs8, Some("of no use")), Ok(1));
        assert_eq!(keys_in(&(pkcs8 + &ca), None), Ok(2));
    }

    #[test]
    fn keys_that_cannot_be_used_are_refused() {
        let certificate = |text: &str| {
            let at = text.find("-----BEGIN CERT").unwrap();
            let end = text.find("-----END CERTIFICATE-----\n").unwrap() + 26;
            (
                text[at..end].to_owned(),
                text[..at].to_owned() + &text[end..],
            )
        };
        let (own, key) = certificate(SEC1);
        let (other, _) = certificate(ENCRYPTED);
        for (text, password, part) in [
            (
                ENCRYPTED.to_owned(),
                None,
                "--tlsCertificateKeyFilePassword",
            ),
            (ENCRYPTED.to_owned(), Some("wrong"), "password is wrong"),
            (
                include_str!("testdata/rsa-old-encrypted.pem").to_owned(),
                Some("secret"),
                "openssl pkcs8 -topk8",
            ),
            (
                include_str!("testdata/rsa-pkcs8-3des.pem").to_owned(),
                Some("secret"),
                "not supported",
            ),
            (
                include_str!("testdata/ec-p521.pem").to_owned(),
                None,
                "P-256 or P-384",
            ),
            (own, None, "no private key"),
            (key.clone(), None, "no certificate"),
            (other + &key, None, "not the key of the first certificate"),
            (SEC1.to_owned() + &key, None, "more than one private key"),
        ] {
            let error = keys_in(&text, password).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
            assert!(!error.contains("wrong") || password == Some("wrong"));
        }
    }
}
