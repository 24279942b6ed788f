//! The certificates of the server while it runs.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frond_bson::{DocBuf, Value, doc};
use frond_tls::{CertificateInfo, Password, Protocol, ServerOptions, ServerTls};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use crate::observability::log::{Component, Log, iso_ms};
use crate::observability::metrics::Counter;
use crate::settings::{TlsMode, TlsSettings};

/// A certificate that expires within this time is warned of.
const SOON: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The encryption of this server's connections.
pub struct Tls {
    /// Which connections are encrypted.
    pub mode: TlsMode,
    /// Handshakes that may compute at the same time. They are long, compared with a request, so they leave processors to
    /// requests.
    pub turns: Semaphore,
    /// Connections by their version of TLS.
    pub counts: TlsCounts,
    /// Versions whose connections are logged.
    pub log_versions: Vec<Protocol>,
    options: ServerOptions,
    current: RwLock<Arc<ServerTls>>,
    /// Locked by a rotation.
    rotating: Mutex<()>,
}

/// Connections by their version of TLS.
#[derive(Default)]
pub struct TlsCounts {
    tls12: Counter,
    tls13: Counter,
    unknown: Counter,
}

impl TlsCounts {
    pub fn add(&self, protocol: Option<Protocol>) {
        let counter = match protocol {
            Some(Protocol::Tls12) => &self.tls12,
            Some(Protocol::Tls13) => &self.tls13,
            _ => &self.unknown,
        };
        counter.add(1);
    }

    /// As `serverStatus` shows them.
    pub fn to_doc(&self) -> DocBuf {
        doc! {
            "1.0": 0i64,
            "1.1": 0i64,
            "1.2": self.tls12.get(),
            "1.3": self.tls13.get(),
            "unknown": self.unknown.get(),
        }
    }
}

impl Tls {
    /// Reads the files of the settings. None if TLS is off.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn open(settings: &TlsSettings) -> Result<Option<Tls>, String> {
        let (Some(certificate_key_file), Some(ca_file)) =
            (&settings.certificate_key_file, &settings.ca_file)
        else {
            return match settings.mode {
                TlsMode::Disabled => Ok(None),
                _ => Err("TLS needs a certificate and the certificates of authorities".into()),
            };
        };
        if settings.mode == TlsMode::Disabled {
            return Ok(None);
        }
        let options = ServerOptions {
            certificate_key_file: certificate_key_file.clone(),
            password: (settings.password.as_ref()).map(|password| Password::new(password.expose())),
            ca_file: settings.cluster_ca_file.as_ref().unwrap_or(ca_file).clone(),
            crl_file: settings.crl_file.clone(),
            allow_connections_without_certificates: settings.allow_connections_without_certificates,
            allow_invalid_certificates: settings.allow_invalid_certificates,
            disabled_protocols: settings.disabled_protocols.clone(),
        };
        let current = options.load().map_err(|error| error.to_string())?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Some(Tls {
            mode: settings.mode,
            turns: Semaphore::new((processors / 2).max(1)),
            counts: TlsCounts::default(),
            log_versions: settings.log_versions.clone(),
            options,
            current: RwLock::new(Arc::new(current)),
            rotating: Mutex::new(()),
        }))
    }

    /// The configuration of new connections.
    pub fn current(&self) -> Arc<ServerTls> {
        self.current.read().clone()
    }

    /// Reads the files again, for new connections. Open ones stay as they are.
    ///
    /// # Errors
    /// If a file cannot be used; then nothing changes.
    pub fn rotate(&self, log: &Log) -> Result<(), String> {
        let _rotating = self.rotating.lock();
        let next = Arc::new(self.options.load().map_err(|error| error.to_string())?);
        *self.current.write() = next;
        log.info(
            Component::Network,
            4_913_400,
            "rotateCertificates",
            "Successfully rotated X509 certificates.",
            &DocBuf::new(),
        );
        self.log_files(log);
        self.warn_of_expiry(log);
        Ok(())
    }

    /// Adds the facts of the server's certificate, for `serverStatus`.
    pub fn describe(&self, out: &mut DocBuf) {
        let current = self.current();
        let certificate = &current.certificate;
        out.push("SSLServerSubjectName", certificate.subject.as_str());
        out.push("SSLServerHasCertificateAuthority", true);
        let expires = Value::DateTime(millis(certificate.not_after));
        out.push("SSLServerCertificateExpirationDate", expires);
    }

    /// Logs what the files hold.
    pub fn log_files(&self, log: &Log) {
        let current = self.current();
        let certificate = &current.certificate;
        let attributes = doc! {
            "subject": &certificate.subject,
            "issuer": &certificate.issuer,
            "thumbprint": &certificate.thumbprint,
            "notValidBefore": Value::DateTime(millis(certificate.not_before)),
            "notValidAfter": Value::DateTime(millis(certificate.not_after)),
            "keyFile": self.options.certificate_key_file.to_string_lossy().into_owned(),
            "type": "Server",
        };
        log.info(
            Component::Network,
            4_913_010,
            "main",
            "Certificate information",
            &attributes,
        );
        for list in &current.revocations {
            let attributes = doc! {
                "issuer": &list.issuer,
                "thumbprint": &list.thumbprint,
                "notValidBefore": iso_ms(millis(list.this_update)),
                "notValidAfter": list.next_update.map(|time| iso_ms(millis(time))),
            };
            log.info(
                Component::Network,
                4_913_012,
                "main",
                "CRL information",
                &attributes,
            );
        }
    }

    /// Logs what an operator should know at the start.
    pub fn warn_at_start(&self, settings: &TlsSettings, log: &Log) {
        if settings.allow_invalid_certificates {
            log.startup_warning(
                22124,
                "While invalid X509 certificates may be used to connect to this server, they will not be considered \
                 permissible for authentication",
                &DocBuf::new(),
            );
        }
        if settings.allow_invalid_hostnames {
            log.startup_warning(
                22128,
                "This server will not perform X.509 hostname validation. This may allow your server to make or accept \
                 connections to untrusted parties",
                &DocBuf::new(),
            );
        }
        let current = self.current();
        if !current.certificate.has_alternative_name {
            log.startup_warning(
                551_190,
                "Server certificate has no compatible Subject Alternative Name. This may prevent TLS clients from connecting",
                &DocBuf::new(),
            );
        }
        for warning in expiry(&current, SystemTime::now()) {
            log.startup_warning(warning.id, warning.message, &warning.attributes);
        }
    }

    /// Logs what expires soon, or has expired.
    pub fn warn_of_expiry(&self, log: &Log) {
        for warning in expiry(&self.current(), SystemTime::now()) {
            let context = "CertificateExpirationMonitor";
            let Warning {
                id,
                message,
                attributes,
            } = warning;
            log.warning(Component::Network, id, context, message, &attributes);
        }
    }
}

/// A line of the log.
#[derive(Debug, PartialEq)]
struct Warning {
    id: u32,
    message: &'static str,
    attributes: DocBuf,
}

/// The warnings about certificates and lists at a time.
fn expiry(current: &ServerTls, now: SystemTime) -> Vec<Warning> {
    let mut warnings = Vec::new();
    warnings.extend(certificate_expiry(&current.certificate, now));
    for authority in &current.authorities {
        warnings.extend(authority_expiry(authority, now));
    }
    for list in &current.revocations {
        let Some(end) = list.next_update else {
            continue;
        };
        let message = match end.duration_since(now) {
            Err(_) => {
                "A certificate revocation list has expired: clients of its authority are refused"
            }
            // Lists are replaced far more often than certificates.
            Ok(left) if left < Duration::from_secs(24 * 60 * 60) => {
                "A certificate revocation list will expire soon: clients of its authority will be refused"
            }
            Ok(_) => continue,
        };
        warnings.push(Warning {
            id: 9_100_041,
            message,
            attributes: doc! {"issuer": &list.issuer, "nextUpdate": iso_ms(millis(end))},
        });
    }
    warnings
}

fn certificate_expiry(certificate: &CertificateInfo, now: SystemTime) -> Option<Warning> {
    let end = iso_ms(millis(certificate.not_after));
    match certificate.not_after.duration_since(now) {
        Err(_) => Some(Warning {
            id: 23785,
            message: "Server certificate has expired",
            attributes: doc! {"certExpiration": end},
        }),
        Ok(left) if left <= SOON => Some(Warning {
            id: 23786,
            message: "Server certificate will expire soon",
            attributes: doc! {
                "certExpiration": end,
                "validDuration": format!("{} hours", left.as_secs() / 3600),
            },
        }),
        Ok(_) => None,
    }
}

fn authority_expiry(authority: &CertificateInfo, now: SystemTime) -> Option<Warning> {
    let end = authority.not_after;
    let message = match end.duration_since(now) {
        Err(_) => "The certificate of an authority has expired: its clients are refused",
        Ok(_) if authority.not_before > now => {
            "The certificate of an authority is not valid yet: its clients are refused"
        }
        Ok(left) if left <= SOON => {
            "The certificate of an authority will expire soon: its clients will be refused"
        }
        Ok(_) => return None,
    };
    Some(Warning {
        id: 9_100_046,
        message,
        attributes: doc! {
            "subject": &authority.subject, "certExpiration": iso_ms(millis(end)),
        },
    })
}

/// Milliseconds since 1970.
pub fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_certificate_is_warned_of_from_thirty_days_before_its_end() {
        let day = Duration::from_secs(24 * 60 * 60);
        let end = UNIX_EPOCH + 20_000 * day;
        let certificate = CertificateInfo {
            subject: "CN=x".into(),
            organisation: Vec::new(),
            issuer: "CN=y".into(),
            thumbprint: "00".into(),
            not_before: UNIX_EPOCH,
            not_after: end,
            has_alternative_name: true,
        };
        let at = |time| certificate_expiry(&certificate, time);
        assert_eq!(at(end - 31 * day), None);
        let soon = at(end - 10 * day).unwrap();
        assert_eq!(
            (soon.id, soon.attributes.get_str("validDuration")),
            (23786, Some("240 hours"))
        );
        let expiration = soon.attributes.get_str("certExpiration");
        assert_eq!(expiration, Some("2024-10-04T00:00:00.000+00:00"));
        assert_eq!(at(end).unwrap().id, 23786);
        assert_eq!(at(end + day).unwrap().id, 23785);
        let said = |time| authority_expiry(&certificate, time).map(|warning| warning.message);
        assert_eq!(said(end - 31 * day), None);
        assert!(said(end - 10 * day).unwrap().contains("will expire soon"));
        assert!(said(end + day).unwrap().contains("has expired"));
    }

    #[test]
    fn connections_are_counted_by_their_version() {
        let counts = TlsCounts::default();
        for protocol in [
            Some(Protocol::Tls12),
            Some(Protocol::Tls13),
            Some(Protocol::Tls13),
            None,
        ] {
            counts.add(protocol);
        }
        let expected = doc! {"1.0": 0i64, "1.1": 0i64, "1.2": 1i64, "1.3": 2i64, "unknown": 1i64};
        assert_eq!(counts.to_doc(), expected);
    }
}
