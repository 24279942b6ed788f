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
    /// The same: there are no other members to connect to. Other connections are logged.
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
    /// The authorities that certificates of clients are checked with.
    pub ca_file: Option<PathBuf>,
    /// Lists of revoked certificates.
    pub crl_file: Option<PathBuf>,
    /// Whether a client may have no certificate.
    pub allow_connections_without_certificates: bool,
    /// Whether a client may have a certificate that is not valid, and then is anonymous.
    pub allow_invalid_certificates: bool,
    /// For connections to other members, of which there are none.
    pub allow_invalid_hostnames: bool,
    /// Versions of TLS that are not spoken.
    pub disabled_protocols: Vec<Protocol>,
    /// Versions of TLS whose connections are logged.
    pub log_versions: Vec<Protocol>,
}
