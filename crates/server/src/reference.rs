//! The pages of `docs/` that are made from tables: what a command takes, what is lacking, which
//! settings there are.

mod mongodb_8;

use std::fmt::Write;

use crate::commands::COMMANDS;
use crate::settings::{Kind, SETTINGS};

pub use mongodb_8::page as mongodb_8;

/// The page `docs/compatibility.md`.
pub fn compatibility() -> String {
    let mut page = String::from(COMPATIBILITY);
    page.push_str("\n## Commands\n\n| command | what it does | lacks |\n| --- | --- | --- |\n");
    let mut commands: Vec<_> = COMMANDS.iter().collect();
    commands.sort_by_key(|command| command.names().first().copied());
    for command in commands {
        let (names, lacking) = (code(command.names()), code(command.lacking()));
        let _ = writeln!(page, "| {names} | {} | {lacking} |", command.doc());
    }
    for family in frond_query::reference::families() {
        section(&mut page, family.title, &family.names, &family.unsupported);
    }
    for options in frond_store::reference::options() {
        section(&mut page, options.title, &options.names, &options.lacking);
    }
    page
}

const COMPATIBILITY: &str = "\
# Compatibility

This page is made from the tables in the code: `FROND_WRITE_DOCS=1 cargo test --test docs`.

Frond speaks MongoDB's wire protocol, versions 0 to 25: OP_MSG, OP_COMPRESSED (snappy, zlib, zstd), OP_QUERY
and the legacy opcodes. Behaviour, error codes and messages follow MongoDB 8.0; [mongodb-8.md](mongodb-8.md) tells what is there of
what 8.0 changed. What is lacking fails with an error that names it; nothing is silently ignored that changes a result.

## What is not there yet

| what | what happens |
| --- | --- |
| authentication, users and roles | a client that authenticates gets an error: connect without credentials, and bind to trusted addresses only |
| TLS | `net.tls` in the configuration is an error; a client that speaks TLS gets an alert, and the log tells why |
| server-side JavaScript (`$where`, `$function`, `$accumulator`, `mapReduce`) | an error that names what to use instead |
| transactions over several statements | `startTransaction` is an error, as on a stand-alone mongod |
| replica sets, sharding, change streams | the commands answer as a stand-alone mongod does; leave `replicaSet=` out of the address, or the driver waits for a replica set and gives up |
| collations for searching (`de@collation=search`) and a few other variants of locales | an error |
| `normalization: false` of collations | text is always normalized |
| wildcard indexes with a collation | an error of `createIndexes`; give the index the simple collation where the collection has another |
| buckets of time series | measurements are kept as ordinary documents, in the order of insertion; they can be updated and deleted like others |
| every command that is not listed below | error 59, as for a command that nobody knows |

## Large documents

Documents of 32 KiB or more with a large sub-document are [stored in parts](large-documents.md), which nobody notices
but for two things. `dataSize` and `collStats.size` do not count a field that an `$inc` added without reading, until the document is written
whole again. `explain` tells how many such documents were examined.

## Sizes

`collStats`, `dbStats`, `listDatabases` and `$collStats` give the space in the data file, which is compressed, and with it what no
checkpoint has written yet: the keys and values that are in memory and in the log, rounded up to blocks of 4 KiB. Where documents lie
under their `_id`, the index on it has no tree of its own: its size is what leads to them (internal nodes, indexes of runs, filters),
and `storageSize` is the rest of that tree, so nothing is counted twice. Free space belongs to the file of all databases and is not
divided among them.

A reply has at most 16 MiB and 16 KiB. One that would be larger is error 10334, and `explain` leaves out what does not fit, with a
warning.

## Natural order

A `find` without a sort, and `$natural`, give the order of `_id`, which for ObjectIds is nearly the order of insertion.
Capped collections and time series give the order of insertion itself. So does a collection that is created with
`naturalOrder: \"insertion\"`, as MongoDB's do until documents are deleted; `--setParameter naturalOrder=insertion` makes that
the order of new collections. [Natural order](natural-order.md) tells what it costs.

## Collections

- A record id (`showRecordId`) is a number that counts up in capped collections, time series and those with `naturalOrder: \"insertion\"`. Elsewhere documents lie
  under their `_id`, and the number is made of that.
- Of `storageEngine` and `indexOptionDefaults` the `block_compressor` in WiredTiger's `configString` counts; the rest is kept. `clusteredIndex` changes how the
  index on `_id` is shown: documents lie in it in any case.
- A time series has no index on `_id`, as in MongoDB, and no buckets: `system.buckets.NAME` is another name for it, so
  that it can be dumped and restored between servers of this kind, but not from or to MongoDB.
- `system.views` can be read. It is changed by `create`, `collMod` and `drop`.

## Operations that run

`$currentOp` and `currentOp` show a command whole up to 64 KiB, and of a longer one its short fields. With `truncateOps: true`, and
in the command unless `$truncateOps` is false, that begins at 1 KiB. `backtrace` and `idleSessions` are accepted and add nothing: no
operation waits for a latch whose holder could be shown, and no session keeps an open transaction. `$collStats` has no `latencyStats` and no
`queryExecStats`: an error names them; `top` has the latencies of collections.

## Drivers and shells of before MongoDB 3.2

Over OP_QUERY an `aggregate` without `cursor` is answered with `{result: […]}`, up to 16 MiB (error 16389 beyond). In OP_MSG it needs a
cursor. `snapshot` of a query is accepted, as every query here reads a snapshot; in OP_MSG it is an error, as in today's MongoDB. `group`,
`geoNear`, `eval` and `text` are commands that MongoDB itself has no more.

## Text that is not UTF-8

Strings, symbols, code and patterns are stored and returned byte for byte, whatever the bytes are, as in MongoDB. Names of
fields have to be UTF-8 (error 22), which MongoDB does not ask for.

| what | on a string that is not UTF-8 |
| --- | --- |
| comparisons, sorts, `distinct`, `$group`, `_id`, indexes of every kind, hashes | by its bytes, as of every other string |
| `$concat`, `$toUpper`, `$toLower`, `$strcasecmp`, `$split`, `$replaceOne`, `$replaceAll`, `$trim`, `$substrBytes`, `$indexOfBytes`, `$strLenBytes`, `$binarySize` | by its bytes; the result has them, too |
| `$strLenCP`, `minLength` and `maxLength` of `$jsonSchema` | the number of bytes that begin a code point |
| `$substrCP`, `$indexOfCP` | errors 34456 and 40095; `chars` of `$trim`: 5156305 |
| `$regex`, `pattern` of `$jsonSchema` | no match |
| `$regexMatch`, `$regexFind`, `$regexFindAll` | error 51156 |
| conversions to other types | fail as for text that is no number, date or ObjectId; to binData with the format `utf8`: its bytes |
| collations | what is not UTF-8 counts as U+FFFD |
| text indexes, `$text` | what is not UTF-8 ends a word (MongoDB refuses the document: 28755) |
| patterns, names in `$setField` and `$arrayToObject`, paths, names of collections, options | an error: they have to be UTF-8 |
| messages, logs, `explain` | U+FFFD in the place of what is not UTF-8; in duplicate key errors hexadecimal digits |

## Names that begin with `$`

Inserted documents may have such names at every level, as may those that an upsert inserts or a pipeline makes. Update
operators and replacements write them to stored documents below the first level; at the first level only `$ref`, `$id` and `$db`
(errors 52 and 55). An `_id` may have references inside, but no other such name.

## Places on the sphere

`$nearSphere` with a legacy pair finds what is near on the sphere with every index: 180 and -180 degrees of longitude are one
meridian. MongoDB's `2d` indexes do not look across it, and miss documents on the other side.

## Retryable writes

Drivers that retry writes can do so: the results of a session's statements are kept in memory. A server that is
restarted forgets them, so a retry over a restart may apply a statement again.
";

fn section(page: &mut String, title: &str, names: &[&str], lacking: &[&str]) {
    let _ = write!(page, "\n## {title}\n\nYes: {}.\n", code(names));
    if !lacking.is_empty() {
        let _ = write!(page, "\nNo: {}.\n", code(lacking));
    }
}

/// The names in code quotes; what stands in brackets behind a name is a note on it.
fn code(names: &[&str]) -> String {
    let quote = |name: &&str| match name.split_once(" (") {
        Some((name, note)) => format!("`{name}` ({note}"),
        None => format!("`{name}`"),
    };
    let quoted: Vec<String> = names.iter().map(quote).collect();
    quoted.join(", ")
}

/// The page `docs/configuration.md`.
pub fn configuration() -> String {
    let mut page = String::from(CONFIGURATION);
    for setting in SETTINGS {
        let flag = match (setting.flag, setting.kind) {
            ("", _) => match setting.key.strip_prefix("setParameter.") {
                Some(name) => format!("`--setParameter {name}=…`"),
                None => String::new(),
            },
            (flag, Kind::Switch(_)) => format!("`--{flag}`"),
            (flag, _) => format!("`--{flag} …`"),
        };
        let takes = match setting.kind {
            Kind::Switch(_) => "true or false".to_owned(),
            Kind::Text(_) => "text".to_owned(),
            Kind::Integer(least, most) => format!("{least} to {most}"),
            Kind::Number(least, most) => format!("{least} to {most}"),
            Kind::Choice(words) => words.join(", "),
        };
        let mut keys = vec![setting.key];
        keys.extend(setting.aliases);
        let _ = writeln!(
            page,
            "| {flag} | {} | {takes} | {} |",
            code(&keys),
            setting.help
        );
    }
    page
}

const CONFIGURATION: &str = "\
# Configuration

This page is made from the table in the code: `FROND_WRITE_DOCS=1 cargo test --test docs`.

`frond serve` takes options on the command line and from a file (`--config FILE` or `-f FILE`) in the
format of mongod.conf. The command line wins. A key that is not known is an error that names it.

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

| option | key | takes | meaning |
| --- | --- | --- | --- |
";

#[cfg(test)]
mod tests {
    use super::*;

    /// An option with a note was cut in two at the comma of its note.
    #[test]
    fn every_name_of_the_pages_is_whole() {
        let mut names: Vec<&str> = COMMANDS
            .iter()
            .flat_map(|command| [command.names(), command.fields(), command.lacking()])
            .flatten()
            .copied()
            .collect();
        for family in frond_query::reference::families() {
            names.extend(family.names.iter().chain(&family.unsupported));
        }
        for options in frond_store::reference::options() {
            names.extend(options.names.iter().chain(&options.lacking));
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
