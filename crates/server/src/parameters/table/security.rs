//! Authorization, the key file, server-side JavaScript.

use frond_javascript::JavaScript;

use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::{Setter, owned, saturated};
use crate::scripting;
use crate::settings::{ClusterAuthMode, SettingValue, Settings, read_key_file};

pub static SECURITY: &[Parameter] = &[
    Parameter {
        key: "security.authorization",
        kind: Kind::Choice(&["enabled", "disabled"]),
        default: "disabled",
        doc: "Whether clients must log in and need privileges (default {default})",
        apply: Some(set_authorization),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "auth",
        key: "security.authorization",
        kind: Kind::Word("enabled"),
        doc: "Let clients log in, and do what the privileges of their users allow",
        apply: Some(set_authorization),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "noauth",
        key: "security.authorization",
        kind: Kind::Word("disabled"),
        doc: "Let clients do everything without a login (default)",
        apply: Some(set_authorization),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "redactClientLogData",
        key: "security.redactClientLogData",
        name: "redactClientLogData",
        kind: Kind::Switch(true),
        doc: "Show no values of clients' commands and errors in the log",
        apply: Some(|s, v| v.switch().map(|on| s.security.redacts_log = on)),
        get: Some(|server| owned(server.log.redacts())),
        set: Some(Setter::Switch(|server, on| server.log.set_redacts(on))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "noscripting",
        key: "security.javascriptEnabled",
        kind: Kind::Switch(false),
        doc: "Refuse $where, $function, $accumulator and mapReduce",
        apply: Some(|s, v| v.switch().map(|on| s.javascript.is_enabled = on)),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "jsHeapLimitMB",
        kind: Kind::Integer(1, 1 << 20),
        default: "1100",
        doc: "MiB that the JavaScript of one request may have on a thread (default {default})",
        apply: Some(|s, v| v.integer().map(|mib| s.javascript.heap_limit_mb = mib)),
        get: Some(|server| {
            let engine = server.execution.javascript.as_ref();
            saturated(engine.map_or(0, JavaScript::heap_each) >> 20)
        }),
        set: Some(Setter::Integer(|server, mib| {
            if let Some(engine) = &server.execution.javascript {
                engine.set_heap_each(scripting::bytes(u32::try_from(mib).unwrap_or(u32::MAX)));
            }
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "enableGroupAndEval",
        kind: Kind::Switch(false),
        doc: "Allow the commands group and eval, which MongoDB has removed",
        apply: Some(|s, v| v.switch().map(|on| s.javascript.has_old_commands = on)),
        get: Some(|server| owned(server.settings.javascript.has_old_commands)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "keyFile",
        key: "security.keyFile",
        kind: Kind::Text("FILE"),
        doc: "A file with the key by which the members of a replica set log in to each other; turns authorization on",
        apply: Some(|s, v| {
            let path = v.path()?;
            s.security.keys = read_key_file(&path)?;
            s.security.key_file = Some(path);
            // As in mongod, also where authorization is disabled.
            s.security.authorization = true;
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "clusterAuthMode",
        key: "security.clusterAuthMode",
        kind: Kind::Text("MODE"),
        doc: "How members of a replica set log in to each other: keyFile (default), sendKeyFile (by the key, accepts both), sendX509 (by \
           the certificate, accepts both) or x509; other values than keyFile turn authorization on",
        apply: Some(|s, v| {
            let name = v.text()?;
            s.security.cluster_auth = ClusterAuthMode::named(name).ok_or_else(|| {
                format!("must be one of keyFile, sendKeyFile, sendX509, x509, not '{name}'")
            })?;
            s.security.authorization |= s.security.cluster_auth != ClusterAuthMode::KeyFile;
            Ok(())
        }),
        ..Parameter::EMPTY
    },
];

fn set_authorization(s: &mut Settings, v: &SettingValue) -> Result<(), String> {
    s.security.authorization = v.text()? == "enabled";
    Ok(())
}
