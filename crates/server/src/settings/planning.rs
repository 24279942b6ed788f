//! Settings of plans and of checkpoints.

use super::table::{Kind, Setting, integer, switch};

/// `--notablescan`
pub const NO_TABLE_SCAN: Setting = Setting {
    flag: "notablescan",
    key: "setParameter.notablescan",
    aliases: &[],
    kind: Kind::Switch(true),
    help: "Refuse queries that would have to read a whole collection (default false)",
    apply: |s, v| switch(v).map(|on| s.no_collection_scans = on),
};

/// `--syncdelay`
pub const SYNC_DELAY: Setting = Setting {
    flag: "syncdelay",
    key: "storage.syncPeriodSecs",
    aliases: &["setParameter.syncdelay"],
    kind: Kind::Integer(0, 9_000_000),
    help: "Seconds after which a checkpoint is written at the latest if there were commits; 0 leaves it to the engine, which \
           writes one when memory is flushed and when it is idle (default 0)",
    apply: |s, v| integer(v).map(|secs| s.checkpoint_secs = secs),
};
