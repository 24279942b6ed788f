//! The changes of MongoDB 8.0 since 7.0, and which of them Frond has. For commands, their fields and operators
//! this comes from the tables by which they are run.

use std::fmt::Write;

use crate::commands::diagnostics::build_info::{COMPATIBLE_VERSION, FEATURE_COMPATIBILITY_VERSION};
use crate::commands::diagnostics::hello::WIRE_VERSION_MAX;
use crate::commands::find;

/// The test for the presence of a change in Frond.
enum Support {
    /// Commands, looked up by name.
    Commands(&'static [&'static str]),
    /// A field of a command.
    Field(&'static str, &'static str),
    /// Expressions and stages, looked up by name.
    Operators(&'static [&'static str]),
    /// A behaviour that tests check.
    Yes,
    /// A behaviour that Frond does not have, and what happens instead.
    No(&'static str),
}

struct Change {
    what: &'static str,
    support: Support,
}

static CHANGES: &[Change] = &[
    Change {
        what: "writes to several collections in one command",
        support: Support::Commands(&["bulkWrite"]),
    },
    Change {
        what: "`sort` in updates and replacements of one document",
        support: Support::Yes,
    },
    Change {
        what: "a filter for `null` (`$eq`, `$in`, `$lookup`) does not match `undefined`",
        support: Support::Yes,
    },
    Change {
        what: "`$convert` between strings and binData with `format`, `to: {type, subtype}`; `$toString` of binData",
        support: Support::Yes,
    },
    Change {
        what: "UUIDs from strings",
        support: Support::Operators(&["$toUUID"]),
    },
    Change {
        what: "`$rank` and `$denseRank` treat null and missing values alike",
        support: Support::Yes,
    },
    Change {
        what: "`confirm: true` to set the feature compatibility version",
        support: Support::Commands(&["setFeatureCompatibilityVersion"]),
    },
    Change {
        what: "`explain`: `planCacheShapeHash` beside `queryHash`, `prunedSimilarIndexes`",
        support: Support::Yes,
    },
    Change {
        what: "`serverStatus`: `queues.execution` in place of `wiredTiger.concurrentTransactions`",
        support: Support::Yes,
    },
    Change {
        what: "empty timestamps that are kept when documents are restored",
        support: Support::Field("insert", "bypassEmptyTsReplacement"),
    },
    Change {
        what: "query settings, `$querySettings`, `queryShapeHash`",
        support: Support::Commands(&["setQuerySettings", "removeQuerySettings"]),
    },
    Change {
        what: "index filters are deprecated",
        support: Support::Yes,
    },
    Change {
        what: "statistics of queries by their shape as a stage",
        support: Support::Operators(&["$queryStats"]),
    },
    Change {
        what: "query settings as a stage",
        support: Support::Operators(&["$querySettings"]),
    },
    Change {
        what: "the cluster parameter `defaultMaxTimeMS`",
        support: Support::No("`setClusterParameter` is error 4; set `maxTimeMS` on the operation"),
    },
    Change {
        what: "compaction",
        support: Support::Commands(&["compact", "autoCompact"]),
    },
    Change {
        what: "express plans for an `_id`",
        support: Support::No("`explain` shows `IDHACK`, as in 7.0"),
    },
    Change {
        what: "`isCached` in `explain`",
        support: Support::No("the field is missing"),
    },
    Change {
        what: "slow operations are logged by `workingMillis`",
        support: Support::No("they are logged by `durationMillis`"),
    },
    Change {
        what: "server-side JavaScript is deprecated (`$where`, `$function`, `$accumulator`)",
        support: Support::No("it runs as before, without a warning"),
    },
    Change {
        what: "time series are read by blocks",
        support: Support::No("their measurements are ordinary documents"),
    },
    Change {
        what: "range queries on encrypted fields",
        support: Support::No("`encryptedFields` is an error"),
    },
    Change {
        what: "moving and resharding collections, config shards",
        support: Support::Commands(&["moveCollection", "unshardCollection", "reshardCollection"]),
    },
    Change {
        what: "majority writes are acknowledged before they are applied on secondaries",
        support: Support::No("there are no secondaries; a majority is this server"),
    },
];

/// The page `docs/mongodb-8.md`.
pub fn page() -> String {
    let mut page = format!(
        "\
# MongoDB 8.0

This page is generated from the tables in the code: `FROND_WRITE_DOCS=1 cargo test --test all docs::`.

Frond reports itself as MongoDB {COMPATIBLE_VERSION}: `buildInfo.version`, `maxWireVersion` {WIRE_VERSION_MAX}, and the
feature compatibility version {FEATURE_COMPATIBILITY_VERSION}, which cannot be changed. Drivers and tools choose by these versions what they
send: client-side `bulkWrite` and unacknowledged writes with `sort` need wire version 25. `buildInfo.frond.version` is Frond's own
version.

The changes of MongoDB 8.0 since 7.0, and whether Frond has them; [compatibility.md](compatibility.md) has the rest.

| since 7.0 | in Frond | otherwise |
| --- | --- | --- |
"
    );
    for change in CHANGES {
        let (names, here, otherwise) = answer(&change.support);
        let what = match names.as_str() {
            "" => change.what.to_owned(),
            names => format!("{}: {names}", change.what),
        };
        let here = if here { "yes" } else { "no" };
        let _ = writeln!(page, "| {what} | {here} | {otherwise} |");
    }
    page.push_str(CLIENTS_AND_MONITORING);
    page
}

/// Names, whether Frond has them, and what happens otherwise.
fn answer(support: &Support) -> (String, bool, &'static str) {
    const UNKNOWN: &str = "error 59";
    match support {
        Support::Commands(names) => {
            let there = names.iter().all(|name| find(name).is_some());
            (super::code(names), there, if there { "" } else { UNKNOWN })
        }
        Support::Field(command, field) => {
            let there = find(command).is_some_and(|(_, command)| command.spec().has_field(field));
            let otherwise = if there {
                ""
            } else {
                "an error names the field"
            };
            (super::code(&[*field]), there, otherwise)
        }
        Support::Operators(names) => {
            let families = frond_query::reference::families();
            let is_there = |name| families.iter().any(|family| family.names.contains(name));
            let there = names.iter().all(is_there);
            let otherwise = if there { "" } else { "an error names it" };
            (super::code(names), there, otherwise)
        }
        Support::Yes => (String::new(), true, ""),
        Support::No(otherwise) => (String::new(), false, otherwise),
    }
}

const CLIENTS_AND_MONITORING: &str = "
## How clients use the version

| client | what it uses from 8.0 on, according to its source |
| --- | --- |
| PyMongo 4.20 | `MongoClient.bulk_write`, and `sort` in updates and replacements without acknowledgement: wire version 25 |
| Node.js driver 7.9 | nothing; `MongoClient.bulkWrite` goes to every version, raw data only to wire version 27 |
| mongosh 2.12 | `Mongo.bulkWrite`, and `sh.moveCollection` and others for sharded clusters |
| Database Tools | nothing; they ask for 8.1 and newer versions only |

## Monitoring

`serverStatus` has the sections that agents for mongod read, with counters of Frond's engine under the names that they expect:

| section | counters |
| --- | --- |
| `wiredTiger.cache` | `bytes currently in the cache`: pages and memtables; `tracked dirty bytes in the cache`: memtables, which are in the log but not yet in the data file; `pages read into cache`: cache misses that read the disk |
| `wiredTiger.block-manager`, `.log`, `.transaction` | reads and writes of the data file, bytes written to the log, commits and checkpoints |
| `queues.execution` | the tickets of readers and writers; `out`: those that are held |
| `transactions` | open, started, committed and aborted transactions, `totalExpired` and `totalAbortedForMemory` of those, retried commits and statements; the counters of prepared ones are 0, as there are no shards |
| `transportSecurity` | connections over TLS by its version; 1.0 and 1.1 are never spoken |
| `security` | `authentication`: logins that began and that succeeded, by mechanism, and `failed`: those that failed; with TLS the subject and the end of the server's certificate |
| `locks`, `opcountersRepl` | 0 or empty: there are no collection locks and no replication |
| `frond` | the engine's counters under their own names |

`storageEngine.name` and `process` are `frond`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_has_an_answer() {
        for change in CHANGES {
            let (_, here, otherwise) = answer(&change.support);
            assert_eq!(here, otherwise.is_empty(), "{}", change.what);
        }
        // Commands that Frond does not have are listed as absent, so that their errors give advice.
        for change in CHANGES {
            if let Support::Commands(names) = change.support {
                for name in names {
                    assert!(
                        find(name).is_some() != crate::commands::absent::advice(name).is_some(),
                        "{name}"
                    );
                }
            }
        }
    }
}
