//! The replica set, the oplog, backups.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use frond_error::Error;

use crate::parameters::kind::Kind;
use crate::parameters::parameter::{Need, Parameter};
use crate::parameters::runtime::{Setter, boolean, owned, saturated};
use crate::replication::ReadTimestamps;
use crate::settings::OplogMode;

pub static REPLICATION: &[Parameter] = &[
    Parameter {
        option: "replSet",
        key: "replication.replSetName",
        needs: Some(Need::DataFiles(
            "TiKV replicates the data, and all servers of the cluster are alike",
        )),
        key_aliases: &["replication.replSet"],
        kind: Kind::Text("NAME"),
        doc: "Be a member of this replica set (default: a standalone server)",
        apply: Some(|s, v| match v.text()? {
            "" => Err("must not be empty".into()),
            name if name.contains('/') => {
                Err("must be the name of a set, without a list of hosts".into())
            }
            name => {
                s.replica_set = Some(name.to_owned());
                Ok(())
            }
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "backupRoot",
        key: "backup.root",
        kind: Kind::Text("DIR"),
        doc: "Let createBackup and backupStart write only to directories below this one (default: to every directory that the server may \
           write to, but not to its data directory)",
        apply: Some(|s, v| {
            let root = v.path()?;
            if !root.is_absolute() {
                return Err("must be an absolute path".into());
            }
            s.backup_root = Some(root);
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "oplog",
        key: "replication.oplog",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
        doc: "Keep an oplog, which change streams need: in a replica set (auto, the default), always (on; --oplog alone \
               means this), or never (off)",
        apply: Some(|s, v| {
            s.oplog = match v.text()? {
                "on" => OplogMode::On,
                "off" => OplogMode::Off,
                _ => OplogMode::Auto,
            };
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "oplogSize",
        key: "replication.oplogSizeMB",
        kind: Kind::Integer(1, 1 << 30),
        doc: "Size in MiB of a new oplog (default 5% of the free space, 990 to 51200); replSetResizeOplog changes it later",
        apply: Some(|s, v| {
            let mib: u64 = v.integer()?;
            s.oplog_bytes = Some(mib << 20);
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "oplogMinRetentionHours",
        key: "storage.oplogMinRetentionHours",
        kind: Kind::Number(0.0, 1e6),
        default: "0",
        doc: "Keep entries of the oplog for at least so many hours, also beyond its size (default {default}: only the size counts)",
        apply: Some(|s, v| {
            s.oplog_min_retention = Duration::from_secs_f64(v.number()? * 3600.0);
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "createRollbackDataFiles",
        kind: Kind::Switch(true),
        default: "true",
        doc: "Write documents that a former primary discards to files in the folder rollback of the data directory (default {default})",
        apply: Some(|s, v| v.switch().map(|on| s.creates_rollback_files = on)),
        get: Some(|server| owned(server.set.creates_rollback_files.load(Relaxed))),
        set: Some(Setter::Value(|server, value| {
            let on = boolean("createRollbackDataFiles", value)?;
            server.set.creates_rollback_files.store(on, Relaxed);
            Ok(())
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "minSnapshotHistoryWindowInSeconds",
        kind: Kind::Integer(0, i32::MAX as i64),
        doc: "Seconds for which a member of a replica set keeps snapshots that reads at a past time can name",
        get: Some(|server| {
            let set = server.set.replication.as_ref();
            let window = set.map_or(ReadTimestamps::default().window(), |set| {
                set.read_timestamps.window()
            });
            saturated(window.as_secs())
        }),
        set: Some(Setter::TryInteger(|server, secs| {
            let set = server.set.replication.as_ref().ok_or_else(|| {
                Error::bad_value(
                    "minSnapshotHistoryWindowInSeconds has no effect on a standalone server",
                )
            })?;
            set.read_timestamps.set_window_seconds(secs.unsigned_abs());
            Ok(())
        })),
        ..Parameter::EMPTY
    },
];
