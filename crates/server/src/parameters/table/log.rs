//! The log: its place, its format, its verbosity.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::arguments::whole;
use crate::observability::log::{Component, Log};
use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::{Setter, number, owned};
use crate::settings::{LogFormat, LogRotate};
use crate::state::Server;

/// Facilities of the system's log, as mongod names them.
const FACILITIES: &[&str] = &[
    "auth", "authpriv", "cron", "daemon", "ftp", "kern", "local0", "local1", "local2", "local3",
    "local4", "local5", "local6", "local7", "lpr", "mail", "news", "syslog", "user", "uucp",
];

/// Verbosity of one component in the configuration file. `logComponentVerbosity` changes it at runtime.
macro_rules! component {
    ($name:literal, $component:expr) => {
        Parameter {
            key: concat!("systemLog.component.", $name, ".verbosity"),
            kind: Kind::Integer(-1, 5),
            default: "-1",
            doc: concat!(
                "Level of debug lines of ",
                $name,
                ": 0 to 5, or -1 for that of all (default {default})"
            ),
            apply: Some(|s, v| {
                let level: i8 = v.integer()?;
                s.log_components[$component as usize] = u8::try_from(level).ok();
                Ok(())
            }),
            ..Parameter::EMPTY
        }
    };
}

pub static LOG: &[Parameter] = &[
    Parameter {
        option: "logpath",
        key: "systemLog.path",
        kind: Kind::Text("FILE"),
        doc: "Write the log to this file instead of standard output",
        apply: Some(|s, v| v.path().map(|path| s.log_path = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        key: "systemLog.destination",
        kind: Kind::Choice(&["file", "syslog"]),
        doc: "Where the log goes: file, with systemLog.path, or syslog",
        apply: Some(|s, v| match v.text()? {
            "syslog" if s.log_path.is_some() => {
                Err("is syslog, and there is a systemLog.path".into())
            }
            "syslog" => {
                s.syslog = true;
                Ok(())
            }
            _ if s.log_path.is_none() => Err("needs systemLog.path".into()),
            _ => Ok(()),
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "syslog",
        key: "systemLog.syslog",
        kind: Kind::Switch(true),
        doc: "Send the log to the system's",
        apply: Some(|s, v| {
            s.syslog = v.switch()?;
            if s.syslog && s.log_path.is_some() {
                return Err("cannot be used with a log file".into());
            }
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "syslogFacility",
        key: "systemLog.syslogFacility",
        kind: Kind::Choice(FACILITIES),
        default: "user",
        doc: "Facility of lines in the system's log (default {default})",
        apply: Some(|s, v| v.text().map(|name| s.syslog_facility = name.to_owned())),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "logappend",
        key: "systemLog.logAppend",
        kind: Kind::Switch(true),
        doc: "Append to an existing log file instead of renaming it",
        apply: Some(|s, v| v.switch().map(|on| s.log_append = on)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "logRotate",
        key: "systemLog.logRotate",
        kind: Kind::Choice(&["rename", "reopen"]),
        default: "rename",
        doc: "What SIGUSR1 does to the log file (default {default})",
        apply: Some(|s, v| {
            s.log_rotate = match v.text()? {
                "reopen" if !s.log_append => return Err("reopen needs logAppend".into()),
                "reopen" => LogRotate::Reopen,
                _ => LogRotate::Rename,
            };
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "logFormat",
        key: "systemLog.format",
        kind: Kind::Choice(&["json", "text"]),
        default: "json",
        doc: "Format of log lines (default {default})",
        apply: Some(|s, v| {
            s.log_format = if v.text()? == "text" {
                LogFormat::Text
            } else {
                LogFormat::Json
            };
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "quiet",
        key: "systemLog.quiet",
        name: "quiet",
        kind: Kind::Switch(true),
        doc: "Do not log connections",
        apply: Some(|s, v| v.switch().map(|on| s.quiet = on)),
        get: Some(|server| owned(server.settings.quiet)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "verbosity",
        key: "systemLog.verbosity",
        name: "logLevel",
        kind: Kind::Integer(0, 5),
        default: "0",
        doc: "Level of debug lines in the log: 0 (none, the default) to 5",
        apply: Some(|s, v| v.integer().map(|n| s.log_verbosity = n)),
        get: Some(|server| owned(i32::from(server.log.verbosity()))),
        set: Some(Setter::Integer(|server, level| {
            server.log.set_verbosity(u8::try_from(level).unwrap_or(0))
        })),
        ..Parameter::EMPTY
    },
    component!("control", Component::Control),
    component!("network", Component::Network),
    component!("accessControl", Component::Access),
    component!("command", Component::Command),
    component!("storage", Component::Storage),
    component!("index", Component::Index),
    component!("query", Component::Query),
    component!("transaction", Component::Transaction),
    Parameter {
        name: "logComponentVerbosity",
        kind: Kind::Document,
        doc: "Levels of debug lines, of all and of each component, as db.setLogLevel() sends them; -1 for that of all",
        long_doc: "The document has the field verbosity, and one document for each component: {verbosity: 0, query: {verbosity: 2}}. -1 \
                   means that a component has the level of all. Components of MongoDB that have no lines here take only -1.",
        get: Some(|server| owned(&component_verbosity(&server.log))),
        set: Some(Setter::Value(set_component_verbosity)),
        ..Parameter::EMPTY
    },
];

/// Components of MongoDB's log that this server has no lines of. Their verbosity can only be set to be inherited.
const WITHOUT_LINES: [&str; 5] = ["replication", "recovery", "journal", "sharding", "write"];

/// The reply to `db.getLogComponents()`: the verbosity of all, and that of each component, -1 if it inherits it.
fn component_verbosity(log: &Log) -> DocBuf {
    let mut levels = doc! {"verbosity": i32::from(log.verbosity())};
    for (name, component) in Component::NAMED {
        let own = log.of_component(component).map_or(-1, i32::from);
        levels.push(name, &doc! {"verbosity": own});
    }
    for name in WITHOUT_LINES {
        levels.push(name, &doc! {"verbosity": -1});
    }
    levels
}

/// Reads `{verbosity: n, command: {verbosity: m}}`, as `db.setLogLevel(n)` and `db.setLogLevel(m, "command")` send it.
fn set_component_verbosity(server: &Server, value: &Value<'_>) -> Result<()> {
    const NAME: &str = "logComponentVerbosity";
    let Value::Document(levels) = value else {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "the parameter '{NAME}' must be an object, not a {}",
                value.type_name()
            ),
        ));
    };
    let mut level = None;
    let mut of_components = Vec::new();
    for (name, value) in levels.iter() {
        let component = Component::NAMED.iter().find(|(known, _)| *known == name);
        match (name, value, component) {
            ("verbosity", value, _) => level = Some(number(NAME, &value, -1, 5)?),
            (_, Value::Document(of), Some((_, component))) if !inherits(of) => {
                let own = of.get("verbosity").filter(|_| of.count() == 1);
                let own = own.ok_or_else(|| {
                    Error::not_supported(format!("a part of the log component '{name}'"))
                })?;
                of_components.push((*component, number(NAME, &own, -1, 5)?));
            }
            (_, Value::Document(of), _) if inherits(of) => {
                of_components.extend(component.map(|(_, component)| (*component, -1)));
            }
            _ => {
                return Err(Error::not_supported(format!(
                    "a verbosity of its own for the log component '{name}'"
                )));
            }
        }
    }
    if let Some(level) = level {
        server.log.set_verbosity(u8::try_from(level).unwrap_or(0));
    }
    for (component, level) in of_components {
        server
            .log
            .set_of_component(component, u8::try_from(level).ok());
    }
    Ok(())
}

/// Whether a component and its parts inherit their verbosity.
fn inherits(component: &Doc) -> bool {
    component.iter().all(|(name, value)| match value {
        Value::Document(inner) => inherits(inner),
        value => name == "verbosity" && value.is_number() && whole(&value) == -1,
    })
}
