//! Certificate revocation lists.

use std::path::Path;
use std::time::SystemTime;

use rustls::pki_types::CertificateRevocationListDer;
use sha1::{Digest, Sha1};
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;

use crate::error::{Error, Result};
use crate::hex::hex;
use crate::pem;
use crate::subject;

/// Facts of a revocation list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationInfo {
    /// The issuer, as in RFC 2253.
    pub issuer: String,
    /// The SHA-1 of the list, in hex.
    pub thumbprint: String,
    /// When it was issued.
    pub this_update: SystemTime,
    /// When it expires; none if it does not.
    pub next_update: Option<SystemTime>,
}

/// The lists of a file.
pub(crate) fn load(
    path: &Path,
) -> Result<(
    Vec<CertificateRevocationListDer<'static>>,
    Vec<RevocationInfo>,
)> {
    let mut lists = Vec::new();
    let mut facts = Vec::new();
    for section in pem::read(path)? {
        if section.label != "X509 CRL" {
            continue;
        }
        facts.push(read(&section.der).map_err(|what| Error::file(path, what))?);
        lists.push(CertificateRevocationListDer::from(section.der.to_vec()));
    }
    if lists.is_empty() {
        return Err(Error::file(path, "it holds no revocation list (X509 CRL)"));
    }
    Ok((lists, facts))
}

fn read(der: &[u8]) -> std::result::Result<RevocationInfo, String> {
    let list = CertificateList::<x509_cert::certificate::Rfc5280>::from_der(der)
        .map_err(|error| format!("a revocation list cannot be read: {error}"))?;
    let list = list.tbs_cert_list;
    Ok(RevocationInfo {
        issuer: subject::text(&list.issuer)
            .ok_or_else(|| "the issuer of a revocation list is not text".to_owned())?,
        thumbprint: hex(&Sha1::digest(der)),
        this_update: list.this_update.to_system_time(),
        next_update: list.next_update.map(|time| time.to_system_time()),
    })
}
