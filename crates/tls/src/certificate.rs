//! The parts of a certificate that are shown.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use sha1::{Digest, Sha1};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;

use crate::hex::hex;
use crate::subject;

/// Facts of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The subject as in RFC 2253: the name of a user in `$external`.
    pub subject: String,
    /// Its attributes O, OU and DC.
    pub organisation: Vec<(&'static str, String)>,
    /// The issuer in the same form.
    pub issuer: String,
    /// The SHA-1 of the certificate, in hex.
    pub thumbprint: String,
    /// When it begins to be valid.
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    /// Whether it names hosts or addresses, as clients of today require of a server.
    pub has_alternative_name: bool,
}

impl CertificateInfo {
    pub(crate) fn read(der: &CertificateDer<'_>) -> Result<CertificateInfo, String> {
        CertificateInfo::read_with(der, |name| {
            name.ok_or_else(|| "a name in the certificate is not text".to_owned())
        })
    }

    /// Reads the certificate of an authority, whose names identify no user.
    pub(crate) fn read_authority(der: &CertificateDer<'_>) -> Result<CertificateInfo, String> {
        CertificateInfo::read_with(der, |name| {
            Ok(name.unwrap_or_else(|| "(a name that is not text)".to_owned()))
        })
    }

    fn read_with(
        der: &CertificateDer<'_>,
        name: impl Fn(Option<String>) -> Result<String, String>,
    ) -> Result<CertificateInfo, String> {
        let certificate = Certificate::from_der(der)
            .map_err(|error| format!("the certificate cannot be read: {error}"))?;
        let facts = certificate.tbs_certificate();
        let alternatives = facts.get_extension::<SubjectAltName>();
        Ok(CertificateInfo {
            subject: name(subject::text(facts.subject()))?,
            organisation: subject::organisation(facts.subject()),
            issuer: name(subject::text(facts.issuer()))?,
            thumbprint: hex(&Sha1::digest(der)),
            not_before: facts.validity().not_before.to_system_time(),
            not_after: facts.validity().not_after.to_system_time(),
            has_alternative_name: alternatives
                .is_ok_and(|found| found.is_some_and(|(_, names)| !names.0.is_empty())),
        })
    }

    /// Whether it is of the same organisation as another one, as the certificates of the members of a replica set are: the subjects
    /// have the same attributes O, OU and DC, and at least one of them.
    #[must_use]
    pub fn is_of_same_organisation(&self, other: &CertificateInfo) -> bool {
        !self.organisation.is_empty() && self.organisation == other.organisation
    }

    /// Whether it is valid at a time.
    #[must_use]
    pub fn is_valid_at(&self, time: SystemTime) -> bool {
        self.not_before <= time && time <= self.not_after
    }
}
