//! Commands of MongoDB that this server does not have, with advice on what to do instead.

/// Names of commands, and the advice in their error.
struct Absent {
    names: &'static [&'static str],
    advice: &'static str,
}

static ABSENT: &[Absent] = &[
    Absent {
        names: &[
            "addShard",
            "addShardToZone",
            "mergeChunks",
            "moveChunk",
            "moveCollection",
            "moveRange",
            "refineCollectionShardKey",
            "removeShard",
            "reshardCollection",
            "split",
            "unshardCollection",
            "updateZoneKeyRange",
        ],
        advice: "there is nothing to place: collections are used without it, and a TiKV cluster divides and places them by itself",
    },
    Absent {
        names: &["autoCompact"],
        advice: "space is returned to the file system without it; compact does so at once for one collection",
    },
    Absent {
        names: &["dropConnections"],
        advice: "this server keeps no pools of connections to other servers; a member of a replica set opens its connection to another one again when it breaks",
    },
    Absent {
        names: &["setUserWriteBlockMode"],
        advice: "fsync with lock: true keeps all writes waiting, and roles can be revoked from the users who write",
    },
    Absent {
        names: &[
            "createSearchIndexes",
            "dropSearchIndex",
            "listSearchIndexes",
            "updateSearchIndex",
        ],
        advice: "search indexes need a separate search server; use text indexes",
    },
];

/// Advice for a command of MongoDB that this server does not have.
pub fn advice(name: &str) -> Option<&'static str> {
    let absent = ABSENT.iter().find(|absent| absent.names.contains(&name))?;
    Some(absent.advice)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_error_says_what_to_do() {
        let mut server = TestServer::new();
        for absent in ABSENT {
            for name in absent.names {
                assert!(crate::commands::find(name).is_none(), "{name} is there");
                let name = *name;
                let reply = server.reply("admin", doc! {name: 1});
                assert_eq!(reply.get_i32("code"), Some(59), "{name}");
                let message = format!("no such command: '{name}'; {}", absent.advice);
                assert_eq!(reply.get_str("errmsg"), Some(message.as_str()));
            }
        }
        let reply = server.reply("admin", doc! {"nonsense": 1});
        assert_eq!(reply.get_str("errmsg"), Some("no such command: 'nonsense'"));
    }
}
