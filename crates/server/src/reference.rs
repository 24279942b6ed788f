//! The pages of `docs/` that are generated from tables: the fields of commands, what is not supported, and
//! the settings.

mod mongodb_8;

use std::borrow::Cow;
use std::fmt::Write;

use crate::commands::COMMANDS;
use crate::parameters::{self, Kind, Parameter};

pub use mongodb_8::page as mongodb_8;

/// The page `docs/compatibility.md`.
pub fn compatibility() -> String {
    let mut page = String::from(COMPATIBILITY);
    page.push_str(
        "\n## Commands\n\n| command | what it does | unsupported fields |\n| --- | --- | --- |\n",
    );
    let mut specs: Vec<_> = COMMANDS.iter().map(|command| command.spec()).collect();
    specs.sort_by_key(|spec| spec.name());
    for spec in specs {
        let (names, unsupported) = (code(spec.names), code(spec.unsupported_fields));
        let _ = writeln!(page, "| {names} | {} | {unsupported} |", spec.doc);
    }
    for family in frond_query::reference::families() {
        section(&mut page, family.title, &family.names, &family.unsupported);
    }
    for options in frond_store::reference::options() {
        section(
            &mut page,
            options.title,
            &options.names,
            &options.unsupported,
        );
    }
    page
}

const COMPATIBILITY: &str = "\
# Compatibility

This page is generated from the tables in the code: `FROND_WRITE_DOCS=1 cargo test --test all docs::`.

Frond speaks MongoDB's wire protocol, versions 0 to 25: OP_MSG, OP_COMPRESSED (snappy, zlib, zstd), OP_QUERY
and the legacy opcodes. Behaviour, error codes and messages follow MongoDB 8.0; [mongodb-8.md](mongodb-8.md) lists the
changes of 8.0 that Frond has. What is not supported fails with an error that names it; nothing that changes a result is silently ignored.

## What is not supported yet

| what | what happens |
| --- | --- |
| logins by LDAP, Kerberos, OIDC and AWS IAM | refused, as a mechanism that is not enabled |
| encryption at rest | its settings are errors |
| audit logs in the schema OCSF, encrypted or compressed; the cluster parameter `auditConfig` | an error. The rest of the [audit log](audit.md) is there |
| the UUID of a session in the oplog and in events of transactions, with authorization on | `lsid.id` is a digest of the UUID and the user |
| the users and roles that `killAllSessionsByPattern` impersonates | an error; `uid` and `lsid` select sessions |
| the old commands `group` and `eval` | an error, unless the server is started with `--setParameter enableGroupAndEval=true`; `eval` has no `db` ([functions](javascript.md)) |
| arbiters, horizons | refused. The rest of a [replica set](replica-set.md) is there |
| writes to the database `local` on a secondary; `local.startup_log` of a member | refused (10107); empty. A member has one log, that of the set, so `local` is the same on all members |
| `atClusterTime` on a secondary | the times between the commits that it has applied, and those that snapshot reads have returned; otherwise error 239 |
| `replicaSet=` in the connection string of a standalone server | the driver waits for a replica set and times out, as with mongod: start the server with `--replSet` |
| sharding with data files | the commands reply as a mongod without shards does. Servers over a [TiKV cluster](scale-out.md) have them: TiKV divides the data |
| search collations (`de@collation=search`) and a few other locale variants | an error |
| `normalization: false` of collations | taken, and text is normalized all the same: MongoDB's order differs only for text with several marks on one letter that are not in canonical order |
| `$median` and `$percentile` with `approximate` | the exact values: they do not depend on the order in which documents are read |
| `autoIndexId: false`, which MongoDB allowed in `local` | error 72: each collection has its index on `_id` |
| the plans that lost, in `planCacheListPlans` of shells before MongoDB 4.4 | only the chosen plan is kept and listed; `planCacheListQueryShapes` lists no queries of more than 2 KiB or from pipelines |
| buckets of time series | measurements are stored as ordinary documents, in insertion order. They are deleted like others; updates change the metadata of all that a filter on it matches, as in MongoDB, or are error 72 |
| every command that is not listed below | error 59, as for an unknown command |

## Security

[Users, roles, logins and TLS](security.md) follow MongoDB, with all its built-in roles. Their page says how to turn them on, and what differs.

## Change streams

[Change streams](change-streams.md) and the oplog are on in a replica set, and with `--oplog`. Their page lists the limits and the differences from
MongoDB.

## Transactions

[Transactions](transactions.md) over several statements, collections and databases work with every driver that has them, also on a server
that is no member of a replica set. Their page lists the limits and the differences from MongoDB.

## Large documents

Documents of 32 KiB or more with a large sub-document are [stored in parts](large-documents.md). Clients notice
two differences: `dataSize` and `collStats.size` do not count a field that an `$inc` added without reading, until the document is
rewritten as a whole, and `explain` reports how many such documents were examined.

## Sizes

`collStats`, `dbStats`, `listDatabases` and `$collStats` report the compressed space in the data file, plus the data that no
checkpoint has written yet: the keys and values in memory and in the log, rounded up to blocks of 4 KiB. Where documents are stored
by `_id`, the index on `_id` has no tree of its own: its size is that of the internal nodes, the indexes of runs and the filters,
and `storageSize` is the rest of that tree, so nothing is counted twice. Free space belongs to the file of all databases and is not
divided among them. Servers over a TiKV cluster [estimate](scale-out.md#sizes) sizes.

A reply has at most 16 MiB and 16 KiB. A larger one is error 10334; `explain` leaves out what does not fit, with a
warning.

## Natural order

A `find` without a sort, and `$natural`, return documents in the order of `_id`, which for ObjectIds is nearly insertion order.
Capped collections and time series have insertion order. So does a collection that is created with
`naturalOrder: \"insertion\"`, like MongoDB's collections until documents are deleted; `--setParameter naturalOrder=insertion` makes that
the default of new collections. [Natural order](natural-order.md) describes its costs.

## Collections

- A collection with `fastUpdates: true` takes updates by `_id` as messages that read nothing, and so does any collection with `w: 0`: the reply assumes that the document was there
  and was changed. [Fast updates](rolling-data.md#fast-updates) has the conditions and consequences.
- A record id (`showRecordId`) is a counter in capped collections, time series and those with `naturalOrder: \"insertion\"`. Elsewhere documents are
  stored by `_id`, and the number is derived from that.
- Of `storageEngine` and `indexOptionDefaults` the `block_compressor` in WiredTiger's `configString` has an effect; the rest is only stored. `clusteredIndex` changes how the
  index on `_id` is listed: documents are stored in it in any case.
- A time series has no index on `_id`, as in MongoDB, and no buckets: `system.buckets.NAME` is another name for it, so
  that it can be dumped and restored between Frond servers. Buckets of MongoDB that are inserted by that name, as `mongorestore` does, are unpacked, and
  their measurements are stored; a damaged one is error 2 with its `_id`. Dumps of a time series of Frond have measurements, which MongoDB does not
  restore; `frond export --buckets` writes buckets for it. A `find` or `count` by that name takes conditions on `meta`, which `mongodump` sends for a query on the metadata; others that only buckets
  can meet are error 238.
- `system.views` can be read. It is changed by `create`, `collMod` and `drop`.

## Operations

`$currentOp` and `currentOp` show commands up to 64 KiB in full, and only the short fields of longer ones. With `truncateOps: true`, and
in the command unless `$truncateOps` is false, the limit is 1 KiB. `backtrace` is accepted and adds nothing: no
operation waits for a latch whose holder could be shown. A read whose client disconnects ends soon, with error 279 in the log, as in MongoDB; a
write does not, but for a function of JavaScript in it.

The command `compact` moves the pending messages of a collection's trees to their leaves, so it also makes reads faster where there is
nothing to free; `bytesFreed` is by how much the trees have become smaller. Without `freeSpaceTargetMB` there is no least amount (MongoDB's
default is 20). While `fsync` holds a lock, writes of clients, `compact`, the TTL monitor, the trimming of the oplog and the
profiler wait, and the data files do not change; backups are an error (20). `lockInfo` shows this lock and the operations that run or wait for it:
there are no locks of databases and collections. `connPoolStats` shows no pools, because there are none. Index filters and query
settings bound the indexes of a query, except for `$text` and `$near`, which need an index of their kind, and for a look-up by `_id`; a query
shape of `setQuerySettings` is Frond's own, so hashes differ from MongoDB's, and `queryFramework` is kept and has no effect. With
`notablescan` queries with conditions that would read a whole collection are error 291, also if a hint requests it. `syncdelay` is 0 by
default: the engine decides when checkpoints are written.

Of MongoDB's fail points (with `enableTestCommands`) there are `failCommand`, `onPrimaryTransactionalWrite`, `failGetMoreAfterCursorCheckout`,
`maxTimeAlwaysTimeOut`, `maxTimeNeverTimeOut`, `waitInFindBeforeMakingBatch`, `waitAfterPinningCursorBeforeGetMoreBatch`,
`waitBeforeUnpinningOrDeletingCursorAfterGetMoreBatch` and `stopReplProducer`; others are error 193.

The stage `$operationMetrics` and the section `indexBulkBuilder` of `serverStatus` are not there. In entries of `system.profile` the fields
`numYield`, `storage` and `flowControl` are 0 or empty, because no operation yields, and `executionTimeMillisEstimate` of `execStats` is 0: use
`explain` for the times of operators. A `bulkWrite` has one entry, not one for each statement.

## Drivers and shells before MongoDB 3.2

Over OP_QUERY the reply to an `aggregate` without `cursor` is `{result: […]}`, up to 16 MiB (beyond that, error 16389). OP_MSG requires
`cursor`. `snapshot` of a query is accepted, because every query reads a snapshot; in OP_MSG it is an error, as in today's MongoDB.
MongoDB itself has removed the commands `geoNear` and `text`, and `group` and `eval`, which a setting of Frond allows.

## Text that is not UTF-8

Strings, symbols, code and patterns are stored and returned byte for byte, also if they are not UTF-8, as in MongoDB. Names of
fields must be UTF-8 (error 22), which MongoDB does not require.

| what | on a string that is not UTF-8 |
| --- | --- |
| comparisons, sorts, `distinct`, `$group`, `_id`, indexes of every kind, hashes | by its bytes, like any other string |
| `$concat`, `$toUpper`, `$toLower`, `$strcasecmp`, `$split`, `$replaceOne`, `$replaceAll`, `$trim`, `$substrBytes`, `$indexOfBytes`, `$strLenBytes`, `$binarySize` | by its bytes, which are also in the result |
| `$strLenCP`, `minLength` and `maxLength` of `$jsonSchema` | the number of bytes that begin a code point |
| `$substrCP`, `$indexOfCP` | errors 34456 and 40095; `chars` of `$trim`: 5156305 |
| `$regex`, `pattern` of `$jsonSchema` | no match |
| `$regexMatch`, `$regexFind`, `$regexFindAll` | error 51156 |
| conversions to other types | fail as for text that is not a number, date or ObjectId; to binData with the format `utf8`: its bytes |
| collations | invalid bytes compare as U+FFFD |
| text indexes, `$text` | invalid bytes end a word (MongoDB refuses the document: 28755) |
| patterns, names in `$setField` and `$arrayToObject`, paths, names of collections, options | an error: they must be UTF-8 |
| messages, logs, `explain` | U+FFFD in place of invalid bytes; in duplicate key errors hexadecimal digits |

## Regular expressions

They are those of PCRE2 10.46 in UTF mode, as MongoDB's are those of PCRE2 10.42; braces like `{,3}`, which newer versions read as a repetition, are plain
text as in MongoDB. `(*UTF8)`, the name of old versions for `(*UTF)`, is accepted. The limits are MongoDB's: 200,000 steps of backtracking from one
place of the text and 4,000 open steps; in machine code other steps are counted, so that some matches succeed that exceed MongoDB's limits. A match that
begins or ends inside a character, with `\\C`, is error 51156 in `$regexFind` and `$regexFindAll`.

## Names that begin with `$`

Inserted documents may have such names at every level, and so may the documents of upserts and pipelines. Update
operators and replacements may write them to stored documents below the first level; at the first level only `$ref`, `$id` and `$db`
(errors 52 and 55). An `_id` may contain references, but no other such name.

## Points on the sphere

`$nearSphere` with a legacy coordinate pair searches across the antimeridian with every index: 180 and -180 degrees of longitude are
the same meridian. MongoDB's `2d` indexes do not, and miss documents on the other side.

## Retryable writes

Retryable writes are supported: a write that is sent again is not applied again, [also over a restart](replica-set.md#retryable-writes).
`config.transactions` and `config.image_collection` do not exist.
";

fn section(page: &mut String, title: &str, names: &[&str], unsupported: &[&str]) {
    let _ = write!(page, "\n## {title}\n\nYes: {}.\n", code(names));
    if !unsupported.is_empty() {
        let _ = write!(page, "\nNo: {}.\n", code(unsupported));
    }
}

/// The names in code quotes; text in brackets after a name is a note on it.
fn code(names: &[&str]) -> String {
    let quote = |name: &&str| match name.split_once(" (") {
        Some((name, note)) => format!("`{name}` ({note}"),
        None => format!("`{name}`"),
    };
    let quoted: Vec<String> = names.iter().map(quote).collect();
    quoted.join(", ")
}

/// A setting as pages and manuals show it.
pub struct SettingEntry {
    /// Its form on the command line; empty if it is only in the configuration file.
    pub flag: String,
    /// Its paths in the configuration file, the preferred one first.
    pub keys: Vec<Cow<'static, str>>,
    /// The values that it takes.
    pub values: String,
    pub help: String,
    /// Further sentences; empty for most.
    pub long_help: &'static str,
}

/// All settings of `frond serve`.
pub fn settings() -> impl Iterator<Item = SettingEntry> {
    let settings = parameters::all().filter(|parameter| parameter.apply.is_some());
    settings.map(|parameter| {
        let flag = match (parameter.option, parameter.kind) {
            ("", _) if parameter.key.is_empty() => format!("--setParameter {}=…", parameter.name),
            ("", _) => String::new(),
            (option, Kind::Switch(_) | Kind::Word(_)) => format!("--{option}"),
            (option, _) => format!("--{option} …"),
        };
        SettingEntry {
            flag,
            keys: parameter.keys(),
            values: parameter.kind.values(),
            help: parameter.help(),
            long_help: parameter.long_doc,
        }
    })
}

/// The page `docs/configuration.md`.
pub fn configuration() -> String {
    let mut page = String::from(CONFIGURATION);
    for setting in settings() {
        let flag = match setting.flag.as_str() {
            "" => String::new(),
            flag => format!("`{flag}`"),
        };
        let keys: Vec<&str> = setting.keys.iter().map(|key| &**key).collect();
        let (keys, values, help) = (code(&keys), setting.values, setting.help);
        let _ = writeln!(page, "| {flag} | {keys} | {values} | {help} |");
    }
    page.push_str(PARAMETERS);
    for parameter in parameters::readable() {
        let (name, values, help) = (parameter.name, parameter.kind.values(), parameter.help());
        let when = settable(parameter);
        let _ = writeln!(page, "| `{name}` | {when} | {values} | {help} |");
    }
    let with_notes = parameters::all().filter(|parameter| !parameter.long_doc.is_empty());
    for parameter in with_notes {
        let _ = write!(page, "\n`{}`: {}\n", parameter.name, parameter.long_doc);
    }
    page
}

/// The times at which a parameter can be set by its name.
fn settable(parameter: &Parameter) -> &'static str {
    match (parameter.is_start_parameter(), parameter.set.is_some()) {
        (true, true) => "at the start, at runtime",
        (true, false) => "at the start",
        (false, true) => "at runtime",
        (false, false) => "no",
    }
}

const PARAMETERS: &str = "
## Parameters

`getParameter` reads them. `--setParameter NAME=VALUE` and `setParameter.NAME` in the file set them at the start, the command `setParameter`
at runtime; a value that is set at runtime lasts until the server stops. Some have an option or a key of their own besides: see above.

| parameter | can be set by this name | values | meaning |
| --- | --- | --- | --- |
";

const CONFIGURATION: &str = "\
# Configuration

This page is generated from the table in the code: `FROND_WRITE_DOCS=1 cargo test --test all docs::`.

`frond serve` takes options on the command line and from a file (`--config FILE` or `-f FILE`) in the
format of mongod.conf. The command line overrides the file. An unknown key is an error that names it.

```yaml
storage:
  dbPath: /var/lib/frond
  cacheSizeGB: 4
net:
  port: 27017
  bindIp: 127.0.0.1
systemLog:
  path: /var/log/frond.log
  destination: file
```

| option | key | values | meaning |
| --- | --- | --- | --- |
";

#[cfg(test)]
mod tests {
    use super::*;

    /// An option with a comma in its note was split in two.
    #[test]
    fn every_name_of_the_pages_is_whole() {
        let mut names: Vec<&str> = COMMANDS
            .iter()
            .map(|command| command.spec())
            .flat_map(|spec| [spec.names, spec.fields, spec.unsupported_fields])
            .flatten()
            .copied()
            .collect();
        for family in frond_query::reference::families() {
            names.extend(family.names.iter().chain(&family.unsupported));
        }
        for options in frond_store::reference::options() {
            names.extend(options.names.iter().chain(&options.unsupported));
        }
        for name in names {
            let (word, note) = name.split_once(" (").unwrap_or((name, ")"));
            assert!(!word.is_empty() && !word.contains(' '), "{name:?}");
            assert!(!word.contains(['(', ')', '`']), "{name:?}");
            assert_eq!(note.find(')'), Some(note.len() - 1), "{name:?}");
        }
        assert_eq!(
            code(&["a", "b (kept; not used)"]),
            "`a`, `b` (kept; not used)"
        );
    }

    #[test]
    fn the_settings_say_where_time_zones_come_from() {
        let page = configuration();
        let row = page.lines().find(|row| row.contains("timeZoneInfo"));
        assert!(row.is_some_and(|row| row.contains("built in")), "{row:?}");
    }
}
