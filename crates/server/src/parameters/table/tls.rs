//! `net.tls`, with mongod's names and its old ones, `net.ssl`.

use frond_tls::Protocol;

use crate::parameters::kind::Kind;
use crate::parameters::parameter::{Need, Parameter};
use crate::parameters::runtime::owned;
use crate::settings::{SettingValue, Settings, TlsMode};

pub static TLS: &[Parameter] = &[
    Parameter {
        option: "tlsMode",
        key: "net.tls.mode",
        name: "tlsMode",
        is_named_at_start: false,
        kind: Kind::Choice(&["disabled", "allowTLS", "preferTLS", "requireTLS"]),
        default: "disabled",
        doc: "Encrypt no connections (disabled, the default), those of clients that ask for it (allowTLS, preferTLS), or all \
           (requireTLS)",
        apply: Some(|s, v| {
            s.tls.mode = match v.text()? {
                "allowTLS" => TlsMode::Allow,
                "preferTLS" => TlsMode::Prefer,
                "requireTLS" => TlsMode::Require,
                _ => TlsMode::Disabled,
            };
            Ok(())
        }),
        get: Some(|server| owned(server.settings.tls.mode.name())),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "sslMode",
        key: "net.ssl.mode",
        kind: Kind::Choice(&["disabled", "allowSSL", "preferSSL", "requireSSL"]),
        doc: "The same, with the words of former versions",
        apply: Some(|s, v| {
            if s.is_explicit("net.tls.mode") {
                return Err("cannot be given together with --tlsMode (net.tls.mode)".into());
            }
            s.tls.mode = match v.text()? {
                "allowSSL" => TlsMode::Allow,
                "preferSSL" => TlsMode::Prefer,
                "requireSSL" => TlsMode::Require,
                _ => TlsMode::Disabled,
            };
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsCertificateKeyFile",
        option_aliases: &["sslPEMKeyFile"],
        key: "net.tls.certificateKeyFile",
        needs: Some(Need::Tls),
        key_aliases: &["net.ssl.PEMKeyFile"],
        kind: Kind::Text("FILE"),
        doc: "The server's certificate, those between it and its authority, and its private key (PEM); only the owner may be able \
           to read the file",
        apply: Some(|s, v| v.path().map(|path| s.tls.certificate_key_file = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsCertificateKeyFilePassword",
        option_aliases: &["sslPEMKeyPassword"],
        key: "net.tls.certificateKeyFilePassword",
        needs: Some(Need::Tls),
        key_aliases: &["net.ssl.PEMKeyPassword"],
        kind: Kind::Secret("PASSWORD"),
        doc: "The password of the private key; in the configuration file other users of the machine do not see it",
        apply: Some(|s, v| v.secret().map(|password| s.tls.password = Some(password))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsCAFile",
        option_aliases: &["sslCAFile"],
        key: "net.tls.CAFile",
        needs: Some(Need::Tls),
        key_aliases: &["net.ssl.CAFile"],
        kind: Kind::Text("FILE"),
        doc: "The authorities that certificates of other members are checked with, and those of clients (PEM)",
        apply: Some(|s, v| v.path().map(|path| s.tls.ca_file = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsCRLFile",
        option_aliases: &["sslCRLFile"],
        key: "net.tls.CRLFile",
        needs: Some(Need::Tls),
        key_aliases: &["net.ssl.CRLFile"],
        kind: Kind::Text("FILE"),
        doc: "Lists of certificates that their authority has revoked (PEM)",
        apply: Some(|s, v| v.path().map(|path| s.tls.crl_file = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsAllowConnectionsWithoutCertificates",
        option_aliases: &[
            "sslAllowConnectionsWithoutCertificates",
            "tlsWeakCertificateValidation",
            "sslWeakCertificateValidation",
        ],
        key: "net.tls.allowConnectionsWithoutCertificates",
        needs: Some(Need::Tls),
        key_aliases: &[
            "net.ssl.allowConnectionsWithoutCertificates",
            "net.tls.weakCertificateValidation",
            "net.ssl.weakCertificateValidation",
        ],
        kind: Kind::Switch(true),
        doc: "Accept clients that have no certificate",
        apply: Some(|s, v| {
            v.switch()
                .map(|on| s.tls.allow_connections_without_certificates = on)
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsAllowInvalidCertificates",
        option_aliases: &["sslAllowInvalidCertificates"],
        key: "net.tls.allowInvalidCertificates",
        needs: Some(Need::Tls),
        key_aliases: &["net.ssl.allowInvalidCertificates"],
        kind: Kind::Switch(true),
        doc: "Accept clients whose certificate is not valid; they cannot log in by it",
        apply: Some(|s, v| v.switch().map(|on| s.tls.allow_invalid_certificates = on)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsAllowInvalidHostnames",
        option_aliases: &["sslAllowInvalidHostnames"],
        key: "net.tls.allowInvalidHostnames",
        needs: Some(Need::Tls),
        key_aliases: &["net.ssl.allowInvalidHostnames"],
        kind: Kind::Switch(true),
        doc: "Accept other members whose certificate is of another host",
        apply: Some(|s, v| v.switch().map(|on| s.tls.allow_invalid_hostnames = on)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsDisabledProtocols",
        option_aliases: &["sslDisabledProtocols"],
        key: "net.tls.disabledProtocols",
        needs: Some(Need::Tls),
        key_aliases: &["net.ssl.disabledProtocols"],
        kind: Kind::Text("NAMES"),
        doc: "Versions that are not spoken, separated by commas: TLS1_2 or TLS1_3 (TLS1_0 and TLS1_1 never are)",
        apply: Some(|s, v| protocols(v).map(|list| s.tls.disabled_protocols = list)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsLogVersions",
        key: "net.tls.logVersions",
        needs: Some(Need::Tls),
        kind: Kind::Text("NAMES"),
        doc: "Versions whose connections are logged, separated by commas: TLS1_0, TLS1_1, TLS1_2, TLS1_3",
        apply: Some(|s, v| protocols(v).map(|list| s.tls.log_versions = list)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsClusterFile",
        option_aliases: &["sslClusterFile"],
        needs: Some(Need::Tls),
        key: "net.tls.clusterFile",
        key_aliases: &["net.ssl.clusterFile"],
        kind: Kind::Text("FILE"),
        doc: "The certificate and key that are shown to other members, if it is another one than that of tlsCertificateKeyFile (PEM)",
        apply: Some(|s, v| v.path().map(|path| s.tls.cluster_file = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsClusterPassword",
        option_aliases: &["sslClusterPassword"],
        needs: Some(Need::Tls),
        key: "net.tls.clusterPassword",
        key_aliases: &["net.ssl.clusterPassword"],
        kind: Kind::Secret("PASSWORD"),
        doc: "The password of the private key in tlsClusterFile",
        apply: Some(|s, v| {
            v.secret()
                .map(|password| s.tls.cluster_password = Some(password))
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsClusterCAFile",
        option_aliases: &["sslClusterCAFile"],
        needs: Some(Need::Tls),
        key: "net.tls.clusterCAFile",
        key_aliases: &["net.ssl.clusterCAFile"],
        kind: Kind::Text("FILE"),
        doc: "The authorities that certificates of clients and of members that connect are checked with, if these are others than \
           those of tlsCAFile (PEM)",
        apply: Some(|s, v| v.path().map(|path| s.tls.cluster_ca_file = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsCertificateSelector",
        option_aliases: &["sslCertificateSelector"],
        key: "net.tls.certificateSelector",
        key_aliases: &["net.ssl.certificateSelector"],
        kind: Kind::Text("VALUE"),
        doc: "Not supported: certificates are read from files",
        apply: Some(no_system_store),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsClusterCertificateSelector",
        option_aliases: &["sslClusterCertificateSelector"],
        key: "net.tls.clusterCertificateSelector",
        key_aliases: &["net.ssl.clusterCertificateSelector"],
        kind: Kind::Text("VALUE"),
        doc: "Not supported: certificates are read from files",
        apply: Some(no_system_store),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsCipherConfig",
        option_aliases: &["sslCipherConfig"],
        key: "net.tls.tlsCipherConfig",
        key_aliases: &["net.ssl.sslCipherConfig"],
        kind: Kind::Text("VALUE"),
        doc: "Not supported: all cipher suites are strong ones",
        apply: Some(|_, _| {
            Err("is not supported by this server: the cipher suites are those of TLS 1.3, and those of TLS 1.2 with an \
             ephemeral key exchange and authenticated encryption"
            .into())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsFIPSMode",
        option_aliases: &["sslFIPSMode"],
        key: "net.tls.FIPSMode",
        key_aliases: &["net.ssl.FIPSMode"],
        kind: Kind::Switch(true),
        doc: "Only false: the cryptography is not certified",
        apply: Some(|_, v| v.only_off("its cryptography is not certified for FIPS 140")),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "tlsOnNormalPorts",
        option_aliases: &["sslOnNormalPorts"],
        key: "net.tls.tlsOnNormalPorts",
        key_aliases: &["net.ssl.sslOnNormalPorts"],
        kind: Kind::Switch(true),
        doc: "Not supported: use tlsMode",
        apply: Some(|_, v| v.only_off("use --tlsMode requireTLS")),
        ..Parameter::EMPTY
    },
];

fn protocols(value: &SettingValue) -> Result<Vec<Protocol>, String> {
    Protocol::parse_list(value.text()?).map_err(|name| {
        format!("does not know the protocol '{name}': it is one of TLS1_0, TLS1_1, TLS1_2, TLS1_3")
    })
}

fn no_system_store(_: &mut Settings, _: &SettingValue) -> Result<(), String> {
    Err("is not supported by this server: certificates are read from files, see --tlsCertificateKeyFile".into())
}
