//! The process: its id, its files, the background.

use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::owned;

pub static PROCESS: &[Parameter] = &[
    Parameter {
        option: "pidfilepath",
        key: "processManagement.pidFilePath",
        kind: Kind::Text("FILE"),
        doc: "Write the process id to this file",
        apply: Some(|s, v| v.path().map(|path| s.pid_file = Some(path))),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "honorSystemUmask",
        kind: Kind::Switch(true),
        default: "false",
        doc: "Create files with the permissions that the umask of the system leaves; else only the owner may use them (default {default})",
        apply: Some(|s, v| v.switch().map(|on| s.honor_umask = on)),
        get: Some(|server| owned(server.settings.honor_umask)),
        ..Parameter::EMPTY
    },
    Parameter {
        key: "processManagement.fork",
        kind: Kind::Switch(true),
        doc: "Only false: let the service manager run it in the background",
        apply: Some(|_, v| {
            v.only_off("let the service manager run it in the background (systemd Type=exec)")
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        key: "processManagement.timeZoneInfo",
        kind: Kind::Text("DIR"),
        doc: "Accepted and not used: the time zone database is built in",
        apply: Some(|s, v| {
            let directory = v.path()?;
            s.notes.push(format!(
                "processManagement.timeZoneInfo ({}) is not used: the time zone database \
                 is built in",
                directory.display()
            ));
            Ok(())
        }),
        ..Parameter::EMPTY
    },
];
