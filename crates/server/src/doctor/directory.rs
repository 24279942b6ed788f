//! The configuration, the data directory and the ports.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use frond_store::offline::{FormatVersion, format_version};
use rustix::fs::Access;

use super::finding::Finding;
use crate::host::lock_file::{LockError, LockFile};
use crate::observability::startup_warnings;
use crate::settings::{AuditDestination, Settings, SettingsError, resolve};
use crate::tls::Tls;

/// Whether the settings can be used, and what they warn of.
pub fn configuration(settings: &Result<Settings, SettingsError>) -> Vec<Finding> {
    const AREA: &str = "configuration";
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => {
            return vec![Finding::problem(
                AREA,
                error.to_string(),
                "correct the setting: the server does not start with it (man frond.conf, docs/configuration.md)",
            )];
        }
    };
    let mut found = Vec::new();
    found.push(match &settings.config_file {
        Some(file) => Finding::good(AREA, format!("{} can be read", file.display())),
        None => Finding::good(
            AREA,
            "no file: the defaults, and what the command line says",
        ),
    });
    for warning in &settings.warnings {
        found.push(Finding::warning(AREA, warning, "see the message"));
    }
    for note in &settings.notes {
        found.push(Finding::note(AREA, note, ""));
    }
    for (id, message, _) in startup_warnings::of_settings(settings) {
        let advice = match id {
            // Doctor itself often runs as root.
            22138 => continue,
            22120 => "security.authorization: enabled, and create a first user (docs/security.md)",
            22140 => continue,
            9_940_006 => {
                "keep it in a folder of the server's user: chmod 700 the folder, 600 the file (docs/audit.md)"
            }
            9_937_071 => {
                "keep the key on another file system, or use security.encryptionKeyCommand"
            }
            _ => "storage.journal.enabled: true",
        };
        found.push(Finding::warning(AREA, message, advice));
    }
    if let Err(error) = Tls::open(&settings.tls) {
        found.push(Finding::problem(
            AREA,
            error,
            "correct net.tls: the server does not start",
        ));
    }
    for (what, path) in [
        ("log", &settings.log_path),
        ("audit log", &settings.audit.path),
    ] {
        let directory = path.as_deref().and_then(Path::parent);
        if let Some(directory) = directory.filter(|path| !path.as_os_str().is_empty())
            && !directory.is_dir()
        {
            found.push(Finding::problem(
                AREA,
                format!(
                    "the directory of the {what}, {}, does not exist",
                    directory.display()
                ),
                "create it, for the user of the server",
            ));
        }
    }
    found.extend(audit(settings));
    found
}

/// Whether the trail is complete.
fn audit(settings: &Settings) -> Option<Finding> {
    const AREA: &str = "audit log";
    let audit = &settings.audit;
    let destination = audit.destination?;
    Some(if audit.continues {
        Finding::note(
            AREA,
            "commands go on when their events cannot be written",
            "watch auditLog.lost of serverStatus, or set auditLog.onFailure: refuse",
        )
    } else if destination == AuditDestination::Syslog {
        Finding::note(
            AREA,
            "the system's log cuts long events",
            "auditLog.destination: file has all of them",
        )
    } else {
        Finding::good(AREA, "commands whose events cannot be written are refused")
    })
}

/// The user of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Nobody,
    /// A server, with its process id if that could be read.
    Server(Option<u32>),
}

/// The data directory: whether it can be used, who uses it, which format it has.
pub fn directory(path: &Path) -> (Vec<Finding>, User) {
    const AREA: &str = "data directory";
    let shown = path.display();
    if let Err(error) = std::fs::read_dir(path) {
        let found = match error.kind() {
            ErrorKind::NotFound => Finding::problem(
                AREA,
                format!("{shown} does not exist"),
                "create it, for the user of the server, or set storage.dbPath",
            ),
            _ => Finding::problem(
                AREA,
                format!("{shown}: {error}"),
                "run this as the user of the server, or change the directory's owner",
            ),
        };
        return (vec![found], User::Nobody);
    }
    let mut found = Vec::new();
    if rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
        found.push(Finding::problem(
            AREA,
            format!("this user cannot write to {shown}"),
            "run this as the user of the server, or change the directory's owner",
        ));
    }
    let user = match LockFile::hold(path) {
        Ok(file) => {
            let is_unclean = file
                .and_then(|file| file.metadata().ok())
                .is_some_and(|metadata| metadata.len() > 0);
            if is_unclean {
                found.push(Finding::note(
                    AREA,
                    "the last server did not shut down cleanly",
                    "the next start replays the journal; frond verify checks the files before",
                ));
            }
            User::Nobody
        }
        Err(LockError::Taken(_, pid)) => {
            let who = pid.map(|pid| format!(" (process {pid})"));
            found.push(Finding::good(
                AREA,
                format!("a server uses {shown}{}", who.unwrap_or_default()),
            ));
            User::Server(pid)
        }
        Err(error) => {
            found.push(Finding::problem(
                AREA,
                error.to_string(),
                "run this as the user of the server",
            ));
            User::Nobody
        }
    };
    if path.join("WiredTiger").exists() || path.join("storage.bson").exists() {
        found.push(Finding::problem(
            AREA,
            format!("{shown} has data files of MongoDB"),
            "choose an empty directory, and copy the data over the network (docs/migrate.md)",
        ));
    }
    found.extend(readable_by_others(path));
    found.push(match format_version(path) {
        Ok(version) => of_format(version, path.join("data.frond").exists()),
        Err(error) => Finding::problem(
            AREA,
            format!("data.frond cannot be read: {error}"),
            "run this as the user of the server",
        ),
    });
    (found, user)
}

/// The files of the store are private, unless an older version, a copy or `honorSystemUmask` made them.
fn readable_by_others(path: &Path) -> Option<Finding> {
    let entries = std::fs::read_dir(path).ok()?;
    let names = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let mode = entry.metadata().ok()?.permissions().mode();
        (name.ends_with(".frond") && mode & 0o077 != 0).then_some(name)
    });
    let name = names.min()?;
    Some(Finding::note(
        "data directory",
        format!(
            "other users of the machine have permissions for {}",
            path.join(name).display()
        ),
        "unless that is meant, take them away: chmod -R go= and the directory",
    ))
}

fn of_format(version: Option<FormatVersion>, has_file: bool) -> Finding {
    const AREA: &str = "data directory";
    let Some(FormatVersion {
        stored: Some(stored),
        supported,
    }) = version
    else {
        if version.is_some() {
            return Finding::good(AREA, "no checkpoint yet: all data is in the journal");
        }
        return if has_file {
            Finding::problem(
                AREA,
                "both superblocks of data.frond are damaged",
                "frond salvage copies what can be read",
            )
        } else {
            Finding::good(AREA, "no data yet")
        };
    };
    if stored == supported {
        Finding::good(AREA, format!("format version {stored}"))
    } else {
        Finding::problem(
            AREA,
            format!(
                "format version {stored} is not {supported}, which this version of frond reads"
            ),
            "use the version of frond that wrote it",
        )
    }
}

/// The time of the newest file of a directory.
pub fn newest_file(path: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(path).ok()?;
    entries
        .filter_map(|entry| entry.ok()?.metadata().ok()?.modified().ok())
        .max()
}

/// Whether the addresses can be bound, or a server listens there already.
pub fn ports(settings: &Settings, user: User) -> Vec<Finding> {
    let ips = match resolve(&settings.bind_ip) {
        Ok(ips) => ips,
        Err(error) => {
            return vec![Finding::problem(
                "port",
                error.to_string(),
                "net.bindIp names addresses of this machine, or names that it can resolve",
            )];
        }
    };
    let mut found = Vec::new();
    for port in std::iter::once(settings.port).chain(settings.http_port) {
        found.extend(ips.iter().map(|ip| of_port(*ip, port, user)));
    }
    found
}

fn of_port(ip: IpAddr, port: u16, user: User) -> Finding {
    const AREA: &str = "port";
    let address = SocketAddr::new(ip, port);
    match TcpListener::bind(address) {
        Ok(_) => Finding::good(AREA, format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => match user {
            User::Server(_) => Finding::good(AREA, format!("a server listens on {address}")),
            User::Nobody => Finding::problem(
                AREA,
                format!("another program listens on {address}"),
                "ss -ltnp shows which: stop it, or set net.port",
            ),
        },
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Finding::problem(AREA, format!("{address}: {error}"), "use a port above 1023")
        }
        Err(error) => Finding::problem(
            AREA,
            format!("{address}: {error}"),
            "net.bindIp names addresses of this machine: ip addr shows them",
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::finding::Level;
    use super::*;

    fn levels(found: &[Finding]) -> Vec<Level> {
        found.iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn directories() {
        use Level::{Good, Note, Problem};
        let (found, user) = directory(Path::new("/nonexistent/x"));
        assert_eq!((levels(&found), user), (vec![Problem], User::Nobody));
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path();
        let (found, _) = directory(path);
        assert_eq!(levels(&found), [Good]);
        assert_eq!(found[0].what, "no data yet");

        let lock = LockFile::take(path).unwrap();
        let (found, user) = directory(path);
        assert_eq!(levels(&found), [Good, Good]);
        assert_eq!(user, User::Server(Some(std::process::id())));
        drop(lock);
        assert_eq!(levels(&directory(path).0), [Note, Good]);
        LockFile::take(path).unwrap().release().unwrap();
        std::fs::write(path.join("data.frond"), "rubbish").unwrap();
        std::fs::write(path.join("WiredTiger"), "").unwrap();
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path.join("data.frond"), mode(0o600)).unwrap();
        assert_eq!(levels(&directory(path).0), [Problem, Problem]);
        std::fs::set_permissions(path.join("data.frond"), mode(0o640)).unwrap();
        let (found, _) = directory(path);
        assert_eq!(levels(&found), [Problem, Note, Problem]);
        assert!(found[1].what.contains("data.frond"), "{}", found[1].what);
        assert!(newest_file(path).is_some());
    }

    #[test]
    fn formats() {
        let level = |stored| {
            let version = FormatVersion {
                stored,
                supported: 1,
            };
            of_format(Some(version), true).level
        };
        assert_eq!(level(None), Level::Good);
        assert_eq!(level(Some(1)), Level::Good);
        assert_eq!(level(Some(0)), Level::Problem);
        assert_eq!(level(Some(2)), Level::Problem);
    }

    #[test]
    fn ports_that_are_free_or_in_use() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ip = IpAddr::from([127, 0, 0, 1]);
        let port = listener.local_addr().unwrap().port();
        assert_eq!(of_port(ip, port, User::Nobody).level, Level::Problem);
        assert_eq!(of_port(ip, port, User::Server(None)).level, Level::Good);
        drop(listener);
        assert_eq!(of_port(ip, port, User::Nobody).level, Level::Good);
        let elsewhere = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(of_port(elsewhere, 0, User::Nobody).level, Level::Problem);
        let settings = Settings {
            bind_ip: vec!["name.invalid".into()],
            ..Settings::default()
        };
        assert_eq!(levels(&ports(&settings, User::Nobody)), [Level::Problem]);
    }

    #[test]
    fn configurations() {
        let error = Err(SettingsError("unknown option 'net.prot'".into()));
        let found = configuration(&error);
        assert_eq!(levels(&found), [Level::Problem]);
        assert!(found[0].what.contains("net.prot"));
        let mut settings = Settings {
            log_path: Some("/nonexistent/x/frond.log".into()),
            notes: vec!["a note".into()],
            ..Settings::default()
        };
        settings.security.authorization = true;
        let found = configuration(&Ok(settings));
        assert_eq!(levels(&found), [Level::Good, Level::Note, Level::Problem]);
    }

    #[test]
    fn audit_logs_that_others_reach_or_that_may_have_gaps() {
        use Level::{Good, Note, Problem, Warning};
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("audit");
        std::fs::create_dir(&folder).unwrap();
        let mode = |path: &Path, mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, permissions).unwrap();
        };
        let levels_with = |path: &Path, continues| {
            let mut settings = Settings::default();
            settings.security.authorization = true;
            settings.audit.destination = Some(AuditDestination::File);
            settings.audit.path = Some(path.to_owned());
            settings.audit.continues = continues;
            levels(&configuration(&Ok(settings)))
        };
        let file = folder.join("audit.json");
        mode(&folder, 0o700);
        assert_eq!(levels_with(&file, false), [Good, Good]);
        assert_eq!(levels_with(&file, true), [Good, Note]);
        mode(&folder, 0o755);
        assert_eq!(levels_with(&file, false), [Good, Warning, Good]);
        mode(&folder, 0o711);
        std::fs::write(&file, "").unwrap();
        mode(&file, 0o640);
        assert_eq!(levels_with(&file, false), [Good, Warning, Good]);
        mode(&file, 0o600);
        assert_eq!(levels_with(&file, false), [Good, Good]);
        let nowhere = folder.join("none/audit.json");
        assert_eq!(levels_with(&nowhere, false), [Good, Problem, Good]);
    }
}
