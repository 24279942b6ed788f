//! The settings of a log that goes to the system's.

use super::table::{Kind, Setting, switch, text};

/// Facilities of the system's log, as mongod names them.
const FACILITIES: &[&str] = &[
    "auth", "authpriv", "cron", "daemon", "ftp", "kern", "local0", "local1", "local2", "local3",
    "local4", "local5", "local6", "local7", "lpr", "mail", "news", "syslog", "user", "uucp",
];

/// `systemLog.destination`
pub const DESTINATION: Setting = Setting {
    flag: "",
    key: "systemLog.destination",
    aliases: &[],
    kind: Kind::Choice(&["file", "syslog"]),
    help: "Where the log goes: file, with systemLog.path, or syslog",
    apply: |s, v| match text(v)? {
        "syslog" if s.log_path.is_some() => Err("is syslog, and there is a systemLog.path".into()),
        "syslog" => {
            s.syslog = true;
            Ok(())
        }
        _ if s.log_path.is_none() => Err("needs systemLog.path".into()),
        _ => Ok(()),
    },
};

/// `--syslog`
pub const SYSLOG: Setting = Setting {
    flag: "syslog",
    key: "systemLog.syslog",
    aliases: &[],
    kind: Kind::Switch(true),
    help: "Send the log to the system's",
    apply: |s, v| {
        s.syslog = switch(v)?;
        match s.syslog && s.log_path.is_some() {
            true => Err("cannot be used with a log file".into()),
            false => Ok(()),
        }
    },
};

/// `--syslogFacility`
pub const FACILITY: Setting = Setting {
    flag: "syslogFacility",
    key: "systemLog.syslogFacility",
    aliases: &[],
    kind: Kind::Choice(FACILITIES),
    help: "Facility of lines in the system's log (default user)",
    apply: |s, v| text(v).map(|name| s.syslog_facility = name.to_owned()),
};
