//! The settings `net.tls`.

use std::path::PathBuf;

use frond_tls::Protocol;

use super::Secret;

/// Which connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    #[default]
    Disabled,
    /// Those of clients that ask for it.
    Allow,
    /// The same, and those to other members. Other connections are logged.
    Prefer,
    Require,
}

impl TlsMode {
    /// The word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            TlsMode::Disabled => "disabled",
            TlsMode::Allow => "allowTLS",
            TlsMode::Prefer => "preferTLS",
            TlsMode::Require => "requireTLS",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// See [`TlsMode`].
    pub mode: TlsMode,
    /// The certificate and its private key.
    pub certificate_key_file: Option<PathBuf>,
    /// The password of the key, if it is encrypted.
    pub password: Option<Secret>,
    /// The certificate and key that are shown to other members, if it is another one.
    pub cluster_file: Option<PathBuf>,
    /// The password of its key, if it is encrypted.
    pub cluster_password: Option<Secret>,
    /// The authorities that certificates of clients are checked with, if these are others than those of `ca_file`.
    pub cluster_ca_file: Option<PathBuf>,
    /// The authorities that certificates of other members and of clients are checked with.
    pub ca_file: Option<PathBuf>,
    /// Lists of revoked certificates.
    pub crl_file: Option<PathBuf>,
    /// Whether a client may have no certificate.
    pub allow_connections_without_certificates: bool,
    /// Whether a client may have a certificate that is not valid, and then is anonymous.
    pub allow_invalid_certificates: bool,
    /// Whether another member may have a certificate of another host.
    pub allow_invalid_hostnames: bool,
    /// Versions of TLS that are not spoken.
    pub disabled_protocols: Vec<Protocol>,
    /// Versions of TLS whose connections are logged.
    pub log_versions: Vec<Protocol>,
}
