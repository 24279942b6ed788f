//! Encryption at rest.

use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;

/// The only mode of the cipher.
const MODE: &str = "AES256-GCM";

pub static ENCRYPTION: &[Parameter] = &[
    Parameter {
        option: "enableEncryption",
        key: "security.enableEncryption",
        kind: Kind::Switch(true),
        doc: "Encrypt the data directory; needs --encryptionKeyFile or --encryptionKeyCommand",
        apply: Some(|s, v| v.switch().map(|on| s.encryption.is_on = on)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "encryptionKeyFile",
        key: "security.encryptionKeyFile",
        kind: Kind::Text("FILE"),
        doc: "A file with the master key, 32 bytes in base64, which only its owner may read",
        apply: Some(|s, v| {
            s.encryption.key_file = Some(v.path()?);
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "encryptionKeyCommand",
        key: "security.encryptionKeyCommand",
        kind: Kind::Text("COMMAND"),
        doc: "A command that prints the master key, 32 bytes in base64: words that spaces separate, run without a shell",
        apply: Some(|s, v| {
            s.encryption.key_command = Some(v.text()?.to_owned());
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "encryptionCipherMode",
        key: "security.encryptionCipherMode",
        kind: Kind::Text("MODE"),
        doc: "How the data directory is encrypted: AES256-GCM, the only mode",
        apply: Some(|_, v| match v.text()? {
            mode if mode == MODE => Ok(()),
            "AES256-CBC" => Err(format!(
                "AES256-CBC does not notice changed data, so this server has only {MODE}"
            )),
            other => Err(format!("must be {MODE}, not '{other}'")),
        }),
        ..Parameter::EMPTY
    },
];
