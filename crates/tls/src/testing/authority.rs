//! An authority in a temporary directory, for the tests of this crate and of the server.

#![allow(clippy::unwrap_used, dead_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};

/// An authority, and the files that it made.
pub struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    pub ca_file: PathBuf,
}

impl Authority {
    pub fn new() -> Authority {
        Authority::named("authority")
    }

    pub fn named(common: &str) -> Authority {
        Authority::with(common, |_| {})
    }

    /// An authority whose certificate is changed before it is signed.
    pub fn with(common: &str, change: impl FnOnce(&mut CertificateParams)) -> Authority {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = name(common);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let ca_file = directory.path().join("ca.pem");
        fs::write(&ca_file, params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Authority {
            directory,
            issuer,
            ca_file,
        }
    }

    /// A file in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A certificate with its key, changed before it is signed.
    pub fn issue(&self, serial: u64, change: impl FnOnce(&mut CertificateParams)) -> PathBuf {
        let mut params = CertificateParams::new(["localhost".into(), "127.0.0.1".into()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        params.distinguished_name = name(&format!("number {serial}"));
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = self.path(&format!("{serial}.pem"));
        write_secret(&path, &(certificate.pem() + &key.serialize_pem()));
        path
    }

    /// A list that revokes certificates.
    pub fn revoke(&self, serials: &[u64], next_update: i32) -> PathBuf {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2019, 1, 1),
            next_update: date_time_ymd(next_update, 1, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.path(&format!("{next_update}.crl"));
        let list = list.signed_by(&self.issuer).unwrap();
        fs::write(&path, list.pem().unwrap()).unwrap();
        path
    }
}

pub fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Frond");
    name.push(DnType::CommonName, common);
    name
}

/// Writes a file that only its owner can read.
pub fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
