//! Reading a mongod.conf: YAML, nested or with dotted keys.

use yaml_rust2::Yaml;

use super::kind::Kind;
use super::parameter::Parameter;
use super::replaced::REPLACED;
use super::table::{all, by_key};
use super::yaml;
use crate::settings::SettingValue;

/// Sections of mongod's configuration that this server does not support, or not all of, and the reason in the error for an unknown
/// setting of them.
const UNSUPPORTED_SECTIONS: &[(&str, &str)] = &[
    (
        "replication",
        "there is no such setting under `replication`",
    ),
    ("sharding", "this server has no sharding"),
    (
        "security.kmip",
        "this server does not speak KMIP; --encryptionKeyCommand (security.encryptionKeyCommand) runs a program that prints the key",
    ),
    (
        "security.vault",
        "this server does not speak with Vault; --encryptionKeyCommand (security.encryptionKeyCommand) runs a program that prints the \
         key, such as `vault kv get -field=key secret/frond`",
    ),
    (
        "security",
        "this server does not have this part of security",
    ),
    ("net.tls", "there is no such setting under `net.tls`"),
    ("net.ssl", "there is no such setting under `net.ssl`"),
    (
        "auditLog.schema",
        "audit events have MongoDB's schema mongo, and no other",
    ),
    (
        "auditLog",
        "this server does not have this part of auditing",
    ),
    ("snmp", "this server has no SNMP"),
    ("cloud", "this server has no free monitoring"),
];

/// All settings in the text of a configuration file. An unknown key is an error that names it.
pub fn parse(text: &str) -> Result<Vec<(&'static Parameter, SettingValue)>, String> {
    let documents = yaml::load(text)?;
    let mut found = Vec::new();
    match documents.as_slice() {
        [] => {}
        [root] => walk("", root, &mut found)?,
        _ => return Err("more than one YAML document".into()),
    }
    Ok(found)
}

/// Visits every leaf of the YAML. It descends only into known sections, so the depth is bounded.
fn walk(
    path: &str,
    node: &Yaml,
    found: &mut Vec<(&'static Parameter, SettingValue)>,
) -> Result<(), String> {
    match node {
        Yaml::Hash(entries) => {
            if !is_section(path) {
                return Err(unknown(path));
            }
            for (key, value) in entries {
                let Some(key) = key.as_str() else {
                    return Err(format!("a key under '{path}' is not text"));
                };
                let inner = if path.is_empty() {
                    key.to_string()
                } else {
                    format!("{path}.{key}")
                };
                walk(&inner, value, found)?;
            }
            Ok(())
        }
        // An empty section, such as `storage:` with everything below it commented out.
        Yaml::Null => match by_key(path) {
            Some(_) => Err(format!("'{path}' has no value")),
            None if is_section(path) => Ok(()),
            None => Err(unknown(path)),
        },
        leaf => {
            let parameter = by_key(path).ok_or_else(|| unknown(path))?;
            let value = value(parameter.kind, leaf).map_err(|why| format!("'{path}' {why}"))?;
            if (found.iter()).any(|(other, _)| std::ptr::eq(*other, parameter)) {
                return Err(format!("'{}' is given twice", parameter.key()));
            }
            found.push((parameter, value));
            Ok(())
        }
    }
}

fn is_section(path: &str) -> bool {
    let prefix = format!("{path}.");
    path.is_empty()
        || UNSUPPORTED_SECTIONS
            .iter()
            .any(|(section, _)| *section == path)
        || all()
            .filter(|parameter| parameter.apply.is_some())
            .any(|parameter| parameter.keys().iter().any(|key| key.starts_with(&prefix)))
}

fn unknown(path: &str) -> String {
    if let Some(old) = REPLACED.iter().find(|old| old.key == path) {
        return format!("the option '{path}' is not supported: {}", old.instead);
    }
    let unsupported = UNSUPPORTED_SECTIONS.iter().find(|(section, _)| {
        path == *section
            || path
                .strip_prefix(section)
                .is_some_and(|rest| rest.starts_with('.'))
    });
    match unsupported {
        Some((_, why)) => format!("the option '{path}' is not supported: {why}"),
        None => format!("unknown option '{path}'"),
    }
}

fn value(kind: Kind, leaf: &Yaml) -> Result<SettingValue, String> {
    if let (Kind::List(_), Yaml::Array(parts)) = (kind, leaf) {
        let parts: Option<Vec<_>> = parts
            .iter()
            .map(|part| part.as_str().map(str::to_owned))
            .collect();
        return parts
            .map(SettingValue::List)
            .ok_or_else(|| "must be a list of texts".to_owned());
    }
    let text = match leaf {
        Yaml::String(text) | Yaml::Real(text) => text.clone(),
        Yaml::Integer(n) => n.to_string(),
        // YAML 1.1 words for booleans, which MongoDB's parser knows, arrive as strings.
        Yaml::Boolean(on) => on.to_string(),
        Yaml::Array(_) => return Err("must be one value, not a list".into()),
        _ => return Err("has a value that cannot be read".into()),
    };
    let text = match (kind, text.to_ascii_lowercase().as_str()) {
        (Kind::Switch(_), "yes" | "on") => "true".to_string(),
        (Kind::Switch(_), "no" | "off") => "false".to_string(),
        // `mode: off` may be read as a boolean.
        (Kind::Choice(words), "false") if words.contains(&"off") => "off".to_string(),
        (Kind::Choice(words), "true") if words.contains(&"on") => "on".to_string(),
        _ => text,
    };
    kind.parse(&text)
}
