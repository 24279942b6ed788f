//! Data files: their directory, the cache, the journal.

use std::time::Duration;

use frond_store::LogRecovery;

use crate::parameters::kind::Kind;
use crate::parameters::parameter::{Need, Parameter};
use crate::parameters::runtime::owned;

pub static DATA_DIRECTORY: &[Parameter] = &[Parameter {
    option: "dbpath",
    key: "storage.dbPath",
    kind: Kind::Text("DIR"),
    default: "/data/db",
    doc: "Directory of the data files (default {default})",
    apply: Some(|s, v| v.path().map(|path| s.db_path = path)),
    ..Parameter::EMPTY
}];

pub static STORAGE: &[Parameter] = &[
    Parameter {
        option: "cacheSizeGB",
        key: "storage.cacheSizeGB",
        needs: Some(Need::DataFiles(
            "TiKV caches the data: set storage.block-cache.capacity there",
        )),
        key_aliases: &["storage.wiredTiger.engineConfig.cacheSizeGB"],
        kind: Kind::Number(0.015, 10_000.0),
        doc: "Size of the cache in GiB (default half of the machine's memory, or five eighths of a smaller limit of the control group)",
        apply: Some(|s, v| {
            s.cache_bytes = Some((v.number()? * (1u64 << 30) as f64) as u64);
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "nojournal",
        key: "storage.journal.enabled",
        needs: Some(Need::DataFiles(
            "TiKV logs every write: there is no journal here",
        )),
        kind: Kind::Switch(false),
        doc: "Disable the journal (enabled: false): faster, but a crash loses writes since the last checkpoint",
        apply: Some(|s, v| v.switch().map(|on| s.journal = on)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "journalCommitInterval",
        key: "storage.journal.commitIntervalMs",
        needs: Some(Need::DataFiles(
            "TiKV logs every write: there is no journal here",
        )),
        name: "journalCommitInterval",
        kind: Kind::Integer(1, 500),
        default: "100",
        doc: "Milliseconds between syncs of the journal (default {default})",
        apply: Some(|s, v| {
            v.integer()
                .map(|ms| s.journal_commit_interval = Duration::from_millis(ms))
        }),
        get: Some(|server| owned(server.settings.journal_commit_interval.as_millis() as i64)),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "journalRecovery",
        key: "storage.journal.recovery",
        needs: Some(Need::DataFiles(
            "TiKV logs every write: there is no journal here",
        )),
        kind: Kind::Choice(&["complete", "pointInTime"]),
        default: "complete",
        doc: "With a damaged journal: do not start (complete, the default), or start with the writes before the damage \
               (pointInTime), and keep the files of the rest",
        apply: Some(|s, v| {
            s.journal_recovery = match v.text()? {
                "complete" => LogRecovery::Complete,
                _ => LogRecovery::PointInTime,
            };
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "diskReserveMB",
        key: "storage.diskReserveMB",
        needs: Some(Need::DataFiles(
            "set storage.reserve-space in TiKV's configuration",
        )),
        kind: Kind::Integer(0, 1 << 20),
        doc: "Space in MiB that only deletes and drops may use (default 5% of the file system, 16 to 512)",
        apply: Some(|s, v| {
            let mib: u64 = v.integer()?;
            s.disk_reserve_bytes = Some(mib << 20);
            Ok(())
        }),
        ..Parameter::EMPTY
    },
];
