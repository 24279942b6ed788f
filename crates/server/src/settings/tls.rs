//! The settings `net.tls`, with mongod's names and its old ones, `net.ssl`.

use std::path::PathBuf;

use frond_tls::Protocol;

use super::table::{Kind, Setting, SettingValue, path, switch, text};
use super::{Secret, Settings, SettingsError};

/// Which connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// None.
    #[default]
    Disabled,
    /// Those of clients that ask for it.
    Allow,
    /// The same: there are no other members to connect to. Other connections are logged.
    Prefer,
    /// All of them.
    Require,
}

/// The TLS settings.
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
    /// Whether a client may have a certificate that is not valid, and then is nobody.
    pub allow_invalid_certificates: bool,
    /// For connections to other members, of which there are none.
    pub allow_invalid_hostnames: bool,
    /// Versions of TLS that are not spoken.
    pub disabled_protocols: Vec<Protocol>,
    /// Versions of TLS whose connections are logged.
    pub log_versions: Vec<Protocol>,
}

impl TlsSettings {
    /// Checks the settings together, when all of them are known. `given` tells whether a setting was given.
    pub(super) fn check(&self, given: impl Fn(&str) -> bool) -> Result<(), SettingsError> {
        let refused = |text: &str| Err(SettingsError(text.to_owned()));
        if self.mode == TlsMode::Disabled {
            let switches = [
                (self.allow_invalid_certificates, INVALID_CERTIFICATES),
                (self.allow_invalid_hostnames, INVALID_HOSTNAMES),
            ];
            let on = switches.iter().find(|(is_on, _)| *is_on);
            let found = NEED_TLS.iter().find(|setting| given(setting.key));
            return match found.or(on.map(|(_, setting)| setting)) {
                None => Ok(()),
                Some(setting) => refused(&format!(
                    "{} needs TLS: set --tlsMode (net.tls.mode) to allowTLS, preferTLS or requireTLS",
                    setting.name()
                )),
            };
        }
        if self.certificate_key_file.is_none() {
            return refused(
                "need --tlsCertificateKeyFile (net.tls.certificateKeyFile) when TLS is enabled",
            );
        }
        if self.ca_file.is_none() {
            return refused(
                "The use of TLS without specifying a chain of trust is no longer supported: give the certificates of the \
                 authorities that clients are checked with, by --tlsCAFile (net.tls.CAFile)",
            );
        }
        Ok(())
    }
}

/// The former names of an option of the command line.
pub(super) fn old_flags(flag: &str) -> &'static [&'static str] {
    match flag {
        "tlsCertificateKeyFile" => &["sslPEMKeyFile"],
        "tlsCertificateKeyFilePassword" => &["sslPEMKeyPassword"],
        "tlsCAFile" => &["sslCAFile"],
        "tlsCRLFile" => &["sslCRLFile"],
        "tlsAllowConnectionsWithoutCertificates" => &[
            "sslAllowConnectionsWithoutCertificates",
            "tlsWeakCertificateValidation",
            "sslWeakCertificateValidation",
        ],
        "tlsAllowInvalidCertificates" => &["sslAllowInvalidCertificates"],
        "tlsAllowInvalidHostnames" => &["sslAllowInvalidHostnames"],
        "tlsDisabledProtocols" => &["sslDisabledProtocols"],
        "tlsClusterFile" => &["sslClusterFile"],
        "tlsClusterPassword" => &["sslClusterPassword"],
        "tlsClusterCAFile" => &["sslClusterCAFile"],
        "tlsCertificateSelector" => &["sslCertificateSelector"],
        "tlsClusterCertificateSelector" => &["sslClusterCertificateSelector"],
        "tlsCipherConfig" => &["sslCipherConfig"],
        "tlsFIPSMode" => &["sslFIPSMode"],
        "tlsOnNormalPorts" => &["sslOnNormalPorts"],
        _ => &[],
    }
}

/// Settings that are of no use without TLS.
static NEED_TLS: &[Setting] = &[
    CERTIFICATE_KEY_FILE,
    PASSWORD,
    CA_FILE,
    CRL_FILE,
    WITHOUT_CERTIFICATES,
    DISABLED_PROTOCOLS,
    LOG_VERSIONS,
];

pub(super) const MODE: Setting = Setting {
    flag: "tlsMode",
    key: "net.tls.mode",
    aliases: &[],
    kind: Kind::Choice(&["disabled", "allowTLS", "preferTLS", "requireTLS"]),
    help: "Encrypt no connections (disabled, the default), those of clients that ask for it (allowTLS, preferTLS), or all \
           (requireTLS)",
    apply: |s, v| {
        s.tls.mode = match text(v)? {
            "allowTLS" => TlsMode::Allow,
            "preferTLS" => TlsMode::Prefer,
            "requireTLS" => TlsMode::Require,
            _ => TlsMode::Disabled,
        };
        Ok(())
    },
};

pub(super) const OLD_MODE: Setting = Setting {
    flag: "sslMode",
    key: "net.ssl.mode",
    aliases: &[],
    kind: Kind::Choice(&["disabled", "allowSSL", "preferSSL", "requireSSL"]),
    help: "The same, with the words of former versions",
    apply: |s, v| {
        if s.given.contains_key(MODE.key) {
            return Err("cannot be given together with --tlsMode (net.tls.mode)".into());
        }
        s.tls.mode = match text(v)? {
            "allowSSL" => TlsMode::Allow,
            "preferSSL" => TlsMode::Prefer,
            "requireSSL" => TlsMode::Require,
            _ => TlsMode::Disabled,
        };
        Ok(())
    },
};

pub(super) const CERTIFICATE_KEY_FILE: Setting = Setting {
    flag: "tlsCertificateKeyFile",
    key: "net.tls.certificateKeyFile",
    aliases: &["net.ssl.PEMKeyFile"],
    kind: Kind::Text("FILE"),
    help: "The server's certificate, those between it and its authority, and its private key (PEM); only the owner may be able \
           to read the file",
    apply: |s, v| path(v).map(|path| s.tls.certificate_key_file = Some(path)),
};

pub(super) const PASSWORD: Setting = Setting {
    flag: "tlsCertificateKeyFilePassword",
    key: "net.tls.certificateKeyFilePassword",
    aliases: &["net.ssl.PEMKeyPassword"],
    kind: Kind::Secret("PASSWORD"),
    help: "The password of the private key; in the configuration file other users of the machine do not see it",
    apply: |s, v| match v {
        SettingValue::Secret(password) => {
            s.tls.password = Some(password.clone());
            Ok(())
        }
        _ => Err("must be text".into()),
    },
};

pub(super) const CA_FILE: Setting = Setting {
    flag: "tlsCAFile",
    key: "net.tls.CAFile",
    aliases: &["net.ssl.CAFile"],
    kind: Kind::Text("FILE"),
    help: "The authorities that certificates of clients are checked with (PEM)",
    apply: |s, v| path(v).map(|path| s.tls.ca_file = Some(path)),
};

pub(super) const CRL_FILE: Setting = Setting {
    flag: "tlsCRLFile",
    key: "net.tls.CRLFile",
    aliases: &["net.ssl.CRLFile"],
    kind: Kind::Text("FILE"),
    help: "Lists of certificates that their authority has revoked (PEM)",
    apply: |s, v| path(v).map(|path| s.tls.crl_file = Some(path)),
};

pub(super) const WITHOUT_CERTIFICATES: Setting = Setting {
    flag: "tlsAllowConnectionsWithoutCertificates",
    key: "net.tls.allowConnectionsWithoutCertificates",
    aliases: &[
        "net.ssl.allowConnectionsWithoutCertificates",
        "net.tls.weakCertificateValidation",
        "net.ssl.weakCertificateValidation",
    ],
    kind: Kind::Switch(true),
    help: "Accept clients that have no certificate",
    apply: |s, v| switch(v).map(|on| s.tls.allow_connections_without_certificates = on),
};

pub(super) const INVALID_CERTIFICATES: Setting = Setting {
    flag: "tlsAllowInvalidCertificates",
    key: "net.tls.allowInvalidCertificates",
    aliases: &["net.ssl.allowInvalidCertificates"],
    kind: Kind::Switch(true),
    help: "Accept clients whose certificate is not valid; they cannot log in by it",
    apply: |s, v| switch(v).map(|on| s.tls.allow_invalid_certificates = on),
};

pub(super) const INVALID_HOSTNAMES: Setting = Setting {
    flag: "tlsAllowInvalidHostnames",
    key: "net.tls.allowInvalidHostnames",
    aliases: &["net.ssl.allowInvalidHostnames"],
    kind: Kind::Switch(true),
    help: "Accepted without effect: it is about connections to other members, of which there are none",
    apply: |s, v| switch(v).map(|on| s.tls.allow_invalid_hostnames = on),
};

pub(super) const DISABLED_PROTOCOLS: Setting = Setting {
    flag: "tlsDisabledProtocols",
    key: "net.tls.disabledProtocols",
    aliases: &["net.ssl.disabledProtocols"],
    kind: Kind::Text("NAMES"),
    help: "Versions that are not spoken, separated by commas: TLS1_2 or TLS1_3 (TLS1_0 and TLS1_1 never are)",
    apply: |s, v| protocols(v).map(|list| s.tls.disabled_protocols = list),
};

pub(super) const LOG_VERSIONS: Setting = Setting {
    flag: "tlsLogVersions",
    key: "net.tls.logVersions",
    aliases: &[],
    kind: Kind::Text("NAMES"),
    help: "Versions whose connections are logged, separated by commas: TLS1_0, TLS1_1, TLS1_2, TLS1_3",
    apply: |s, v| protocols(v).map(|list| s.tls.log_versions = list),
};

fn protocols(given: &SettingValue) -> Result<Vec<Protocol>, String> {
    Protocol::parse_list(text(given)?).map_err(|name| {
        format!("does not know the protocol '{name}': it is one of TLS1_0, TLS1_1, TLS1_2, TLS1_3")
    })
}

/// An option of mongod that is refused.
const fn refused(
    flag: &'static str,
    key: &'static str,
    aliases: &'static [&'static str],
    help: &'static str,
    kind: Kind,
    apply: fn(&mut Settings, &SettingValue) -> Result<(), String>,
) -> Setting {
    Setting {
        flag,
        key,
        aliases,
        kind,
        help,
        apply,
    }
}

fn no_members(_: &mut Settings, _: &SettingValue) -> Result<(), String> {
    Err(
        "is not supported by this server: there are no other members that it could connect to"
            .into(),
    )
}

fn no_system_store(_: &mut Settings, _: &SettingValue) -> Result<(), String> {
    Err("is not supported by this server: certificates are read from files, see --tlsCertificateKeyFile".into())
}

pub(super) const CLUSTER_FILE: Setting = refused(
    "tlsClusterFile",
    "net.tls.clusterFile",
    &["net.ssl.clusterFile"],
    "Not supported: there are no other members",
    Kind::Text("VALUE"),
    no_members,
);

pub(super) const CLUSTER_PASSWORD: Setting = refused(
    "tlsClusterPassword",
    "net.tls.clusterPassword",
    &["net.ssl.clusterPassword"],
    "Not supported: there are no other members",
    Kind::Secret("PASSWORD"),
    no_members,
);

pub(super) const CLUSTER_CA_FILE: Setting = refused(
    "tlsClusterCAFile",
    "net.tls.clusterCAFile",
    &["net.ssl.clusterCAFile"],
    "Not supported: certificates of clients are checked with tlsCAFile",
    Kind::Text("VALUE"),
    |_, _| {
        Err(
            "is not supported by this server: certificates of clients are checked with --tlsCAFile (net.tls.CAFile)"
                .into(),
        )
    },
);

pub(super) const CERTIFICATE_SELECTOR: Setting = refused(
    "tlsCertificateSelector",
    "net.tls.certificateSelector",
    &["net.ssl.certificateSelector"],
    "Not supported: certificates are read from files",
    Kind::Text("VALUE"),
    no_system_store,
);

pub(super) const CLUSTER_CERTIFICATE_SELECTOR: Setting = refused(
    "tlsClusterCertificateSelector",
    "net.tls.clusterCertificateSelector",
    &["net.ssl.clusterCertificateSelector"],
    "Not supported: certificates are read from files",
    Kind::Text("VALUE"),
    no_system_store,
);

pub(super) const CIPHER_CONFIG: Setting = refused(
    "tlsCipherConfig",
    "net.tls.tlsCipherConfig",
    &["net.ssl.sslCipherConfig"],
    "Not supported: all cipher suites are strong ones",
    Kind::Text("VALUE"),
    |_, _| {
        Err("is not supported by this server: the cipher suites are those of TLS 1.3, and those of TLS 1.2 with an \
             ephemeral key exchange and authenticated encryption"
            .into())
    },
);

pub(super) const FIPS_MODE: Setting = Setting {
    flag: "tlsFIPSMode",
    key: "net.tls.FIPSMode",
    aliases: &["net.ssl.FIPSMode"],
    kind: Kind::Switch(true),
    help: "Only false: the cryptography is not certified",
    apply: |_, v| match switch(v)? {
        true => Err(
            "is not supported by this server: its cryptography is not certified for FIPS 140"
                .into(),
        ),
        false => Ok(()),
    },
};

pub(super) const ON_NORMAL_PORTS: Setting = Setting {
    flag: "tlsOnNormalPorts",
    key: "net.tls.tlsOnNormalPorts",
    aliases: &["net.ssl.sslOnNormalPorts"],
    kind: Kind::Switch(true),
    help: "Not supported: use tlsMode",
    apply: |_, v| match switch(v)? {
        true => Err("is not supported by this server: use --tlsMode requireTLS".into()),
        false => Ok(()),
    },
};
