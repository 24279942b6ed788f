//! The setting of backups that the server writes itself.

use super::table::{Kind, Setting, path};

pub(super) const ROOT: Setting = Setting {
    flag: "backupRoot",
    key: "backup.root",
    aliases: &[],
    kind: Kind::Text("DIR"),
    help: "Let createBackup and backupStart write only to directories below this one (default: to every directory that the server may \
           write to, but not to its data directory)",
    apply: |s, v| {
        let root = path(v)?;
        if !root.is_absolute() {
            return Err("must be an absolute path".into());
        }
        s.backup_root = Some(root);
        Ok(())
    },
};
