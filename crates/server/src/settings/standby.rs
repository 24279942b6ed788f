//! The settings of a standby.

use super::table::{Kind, Setting, SettingValue, switch};

pub(super) const FOLLOW: Setting = Setting {
    flag: "follow",
    key: "replication.follow",
    aliases: &[],
    kind: Kind::Secret("URI"),
    help: "Be a standby of the primary at this connection string (mongodb://…): take over its data and its oplog, serve reads. With \
           a password in it, set it in the configuration file, where other users of the machine do not see it",
    apply: |s, v| match v {
        SettingValue::Secret(uri) => {
            s.follow = Some(uri.clone());
            Ok(())
        }
        _ => Err("must be text".into()),
    },
};

pub(super) const FOLLOW_ANEW: Setting = Setting {
    flag: "followAnew",
    key: "replication.followAnew",
    aliases: &[],
    kind: Kind::Switch(true),
    help: "Of a standby whose position the primary's oplog does not have any more: discard its data and start anew from a copy \
           (default false: it stops, and serves what it has)",
    apply: |s, v| switch(v).map(|on| s.follow_anew = on),
};
