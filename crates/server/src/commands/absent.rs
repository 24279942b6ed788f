//! Commands of MongoDB that are not there: what to do instead.

/// Names, and what the error of each says.
struct Absent {
    names: &'static [&'static str],
    advice: &'static str,
}

static ABSENT: &[Absent] = &[
    Absent {
        names: &[
            "createRole",
            "createUser",
            "dropAllRolesFromDatabase",
            "dropAllUsersFromDatabase",
            "dropRole",
            "dropUser",
            "grantPrivilegesToRole",
            "grantRolesToRole",
            "grantRolesToUser",
            "revokePrivilegesFromRole",
            "revokeRolesFromRole",
            "revokeRolesFromUser",
            "updateRole",
            "updateUser",
        ],
        advice: "this server has no users and no roles: connect without credentials, and let only trusted \
                 addresses reach it (net.bindIp)",
    },
    Absent {
        names: &[
            "replSetInitiate",
            "replSetReconfig",
            "replSetStepDown",
            "replSetFreeze",
        ],
        advice: "this server stands alone: connect without replicaSet= in the address",
    },
    Absent {
        names: &[
            "addShard",
            "enableSharding",
            "moveCollection",
            "reshardCollection",
            "shardCollection",
            "unshardCollection",
        ],
        advice: "this server is not sharded; a collection needs nothing to be used",
    },
    Absent {
        names: &["abortTransaction", "commitTransaction"],
        advice: "transactions over several statements are not there; a single statement is atomic for each \
                 document, and writes can be retried",
    },
    Absent {
        names: &["$eval", "eval"],
        advice: "server-side JavaScript is not there; use commands and pipelines",
    },
    Absent {
        names: &["autoCompact", "compact"],
        advice: "space is given back to the file system without it",
    },
    Absent {
        names: &["removeQuerySettings", "setQuerySettings"],
        advice: "query settings are not there; name an index with hint",
    },
    Absent {
        names: &["getClusterParameter", "setClusterParameter"],
        advice: "cluster parameters are not there; give maxTimeMS with the operation in place of defaultMaxTimeMS",
    },
    Absent {
        names: &[
            "createSearchIndexes",
            "dropSearchIndex",
            "listSearchIndexes",
            "updateSearchIndex",
        ],
        advice: "search indexes are those of another server; text indexes are there",
    },
];

/// Advice for MongoDB's commands that this server lacks.
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
                assert!(super::super::find(name).is_none(), "{name} is there");
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
