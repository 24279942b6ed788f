//! `createBackup`, as Percona Server for MongoDB has it, and `backupStart`, `backupThrottle` and `backupStatus`, as TokuMX has them: a copy
//! of the running server as a data directory on its own disks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frond_bson::{DocBuf, Value};
use frond_error::{Error, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::backup_directory;
use crate::commands::crud::backup_stream;
use crate::commands::spec::{Command, Spec};
use crate::context::{Context, unsupported_option};
use frond_runtime::{AdmissionClass, Work};

const COPIES: Spec = Spec {
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    admin_only: true,
    ..Spec::CHEAP
};

pub struct CreateBackup;

const CREATE_BACKUP: Spec = Spec {
    names: &["createBackup"],
    audits: Audited::Backup,
    doc: "Copies the running server into a directory that another server can open, as in Percona Server for MongoDB.",
    fields: &["backupDir", "archive", "s3"],
    ..COPIES
};

impl Command for CreateBackup {
    fn spec(&self) -> &'static Spec {
        &CREATE_BACKUP
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(backup_stream::needs())
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        for option in ["archive", "s3"] {
            if args.get(option).is_some() {
                return Err(unsupported_option("createBackup", option));
            }
        }
        let path = args
            .str("backupDir")?
            .ok_or_else(|| args.missing("backupDir"))?;
        copy(cx, path)
    }
}

pub struct BackupStart;

const BACKUP_START: Spec = Spec {
    names: &["backupStart"],
    audits: Audited::Backup,
    doc: "Copies the running server into a directory that another server can open, as in TokuMX.",
    ..COPIES
};

impl Command for BackupStart {
    fn spec(&self) -> &'static Spec {
        &BACKUP_START
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(backup_stream::needs())
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        match cx.args().str("backupStart")? {
            Some(path) if !path.is_empty() => copy(cx, path),
            _ => Err(Error::bad_value("invalid destination directory: ''")),
        }
    }
}

fn copy(cx: &mut Context<'_>, path: &str) -> Result<DocBuf> {
    let settings = &cx.server.settings;
    let root = settings.backup_root.as_deref();
    let to = backup_directory::resolve(Path::new(path), &settings.db_path, root)?;
    cx.server
        .maintenance
        .fsync_lock
        .check_unlocked("a backup")?;
    let source = cx.server.settings.db_path.display().to_string();
    let entry = cx
        .server
        .maintenance
        .backups
        .begin_copy(source, path.to_owned())?;
    let progress = cx.limits.progress.insert(Arc::default()).clone();
    cx.connection.running.lock().progress = Some(progress);
    let throttle = cx.server.maintenance.backups.throttle().clone();
    let backup = cx.store().backup_to(&to, throttle)?;
    entry.show(backup.progress().clone());
    backup.run(&cx.limits)?;
    Ok(DocBuf::new())
}

pub struct BackupThrottle;

const BACKUP_THROTTLE: Spec = Spec {
    names: &["backupThrottle"],
    doc: "Limits backups into a directory of the server to some bytes per second, as in TokuMX.",
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for BackupThrottle {
    fn spec(&self) -> &'static Spec {
        &BACKUP_THROTTLE
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(backup_stream::needs())
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let limit = limit(&args.get("backupThrottle").unwrap_or(Value::Null))?;
        cx.server
            .maintenance
            .backups
            .throttle()
            .store(limit, Ordering::Relaxed);
        Ok(DocBuf::new())
    }
}

/// Bytes per second: a number, or digits with the suffix k, m or g.
fn limit(value: &Value<'_>) -> Result<u64> {
    let number = match value {
        Value::String(text) => {
            let (digits, shift) = match text.char_indices().last() {
                Some((at, 'k' | 'K')) => (&text[..at], 10),
                Some((at, 'm' | 'M')) => (&text[..at], 20),
                Some((at, 'g' | 'G')) => (&text[..at], 30),
                _ => (*text, 0),
            };
            let number: Option<i64> = digits.parse().ok();
            let number = number.and_then(|number| number.checked_mul(1 << shift));
            number.ok_or_else(|| Error::bad_value(format!("error parsing number {text}")))?
        }
        other => match other.as_f64() {
            Some(number) if other.is_number() => number as i64,
            _ => return Err(Error::bad_value("backupThrottle argument must be a number")),
        },
    };
    u64::try_from(number)
        .map_err(|_| Error::bad_value("backupThrottle argument cannot be negative"))
}

pub struct BackupStatus;

const BACKUP_STATUS: Spec = Spec {
    names: &["backupStatus"],
    doc: "Shows the progress of a backup into a directory of the server, as in TokuMX.",
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for BackupStatus {
    fn spec(&self) -> &'static Spec {
        &BACKUP_STATUS
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ServerStatus))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let status = cx.server.maintenance.backups.copy_status();
        status.ok_or_else(|| Error::bad_value("no backup running"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{OwnedValue, doc};

    use super::limit;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_directory_has_what_the_server_had() {
        let mut server = TestServer::new();
        server.fill("c", 500);
        let folder = tempfile::tempdir().unwrap();
        for (at, name) in ["a", "b"].into_iter().enumerate() {
            let path = folder.path().join(name);
            let text = path.to_str().unwrap();
            let command = match at {
                0 => doc! {"createBackup": 1, "backupDir": text},
                _ => doc! {"backupStart": text},
            };
            server.run("admin", command.clone());
            let report = frond_store::offline::verify(&path, &mut |_| ()).unwrap();
            assert_eq!(report.problems(), 0);
            assert_eq!(report.collections.len(), 1);
            // The folder is not empty any more.
            assert_eq!(server.code("admin", command), 2);
        }
        assert_eq!(server.code("admin", doc! {"backupStatus": 1}), 2);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_copies_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"createBackup": 1}, 40414),
            (doc! {"createBackup": 1, "backupDir": ""}, 30),
            (doc! {"createBackup": 1, "backupDir": "here"}, 30),
            (doc! {"createBackup": 1, "archive": "/tmp/x.tar"}, 238),
            (doc! {"createBackup": 1, "s3": {"bucket": "b"}}, 238),
            (doc! {"backupStart": ""}, 2),
            (doc! {"backupStart": 1}, 14),
            (doc! {"backupThrottle": -1}, 2),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn copies_go_only_where_they_may() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let mut server = TestServer::with(|settings| settings.backup_root = Some(root));
        let data = server.server.settings.db_path.clone();
        let inside = data.join("copy");
        let below = folder.path().join("copy");
        for (path, is_taken) in [
            (inside.as_path(), false),
            (data.as_path(), false),
            (folder.path(), false),
            (&below, true),
        ] {
            let text = path.to_str().unwrap();
            for command in [
                doc! {"createBackup": 1, "backupDir": text},
                doc! {"backupStart": text},
            ] {
                if !is_taken {
                    assert_eq!(server.code("admin", command), 30, "{text}");
                } else if !below.exists() {
                    drop(server.run("admin", command));
                }
            }
        }
        assert!(!inside.exists() && below.exists());
    }

    #[test]
    fn limits_are_read() {
        let cases = [
            (OwnedValue::from(1000), Some(1000)),
            (OwnedValue::from("10k"), Some(10 << 10)),
            (OwnedValue::from("3M"), Some(3 << 20)),
            (OwnedValue::from("12"), Some(12)),
            (OwnedValue::from("k"), None),
            (OwnedValue::from("-1"), None),
            (OwnedValue::from(true), None),
        ];
        for (value, expected) in cases {
            assert_eq!(limit(&value.as_value()).ok(), expected, "{value:?}");
        }
    }
}
