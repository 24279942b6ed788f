//! The destination, the format and the filter of the audit log.

use frond_bson::Value;
use frond_error::Error;

use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::{Setter, boolean, owned};
use crate::settings::{AuditDestination, AuditFormat, parse_audit_filter};
use crate::state::Server;

pub static AUDIT: &[Parameter] = &[
    Parameter {
        option: "auditDestination",
        key: "auditLog.destination",
        kind: Kind::Choice(&["file", "syslog", "console"]),
        doc: "Record who does what: to a file (auditLog.path), to the system's log, or to standard output",
        apply: Some(|s, v| {
            s.audit.destination = Some(match v.text()? {
                "syslog" => AuditDestination::Syslog,
                "console" => AuditDestination::Console,
                _ => AuditDestination::File,
            });
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "auditFormat",
        key: "auditLog.format",
        kind: Kind::Choice(&["JSON", "BSON"]),
        default: "JSON",
        doc: "Format of audit events in a file (default {default})",
        apply: Some(|s, v| {
            s.audit.format = match v.text()? {
                "BSON" => AuditFormat::Bson,
                _ => AuditFormat::Json,
            };
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "auditPath",
        key: "auditLog.path",
        kind: Kind::Text("FILE"),
        doc: "File of audit events, which is appended to",
        apply: Some(|s, v| v.path().map(|path| s.audit.path = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "auditFilter",
        key: "auditLog.filter",
        kind: Kind::Text("DOCUMENT"),
        doc: "Record only events that match this query, as JSON",
        apply: Some(|s, v| {
            s.audit.filter = Some(parse_audit_filter(v.text()?)?);
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        key: "auditLog.runtimeConfiguration",
        kind: Kind::Switch(true),
        default: "false",
        doc: "Whether setAuditConfig changes the filter and auditAuthorizationSuccess, for all members of a replica set (default {default})",
        apply: Some(|s, v| v.switch().map(|on| s.audit.is_runtime = on)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "auditOnFailure",
        key: "auditLog.onFailure",
        kind: Kind::Choice(&["refuse", "continue"]),
        default: "refuse",
        doc: "What happens to commands whose audit events cannot be written: refuse, or continue and count (default {default})",
        apply: Some(|s, v| v.text().map(|word| s.audit.continues = word == "continue")),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "auditAuthorizationSuccess",
        kind: Kind::Switch(true),
        default: "false",
        doc: "Whether commands that are permitted make audit events, too: reads and writes (default {default})",
        long_doc: "The [audit log](audit.md) has to be on.",
        apply: Some(|s, v| v.switch().map(|on| s.audit.authorization_success = on)),
        get: Some(|server| {
            let audit = server.audit.as_ref();
            owned(audit.is_some_and(|audit| audit.config().authorization_success))
        }),
        set: Some(Setter::Value(set_authorization_success)),
        ..Parameter::EMPTY
    },
];

fn set_authorization_success(server: &Server, value: &Value<'_>) -> frond_error::Result<()> {
    let on = boolean("auditAuthorizationSuccess", value)?;
    match &server.audit {
        Some(audit) => audit.set_authorization_success(on),
        None if !on => Ok(()),
        None => Err(Error::bad_value(
            "auditAuthorizationSuccess needs an audit log: start the server with --auditDestination",
        )),
    }
}
