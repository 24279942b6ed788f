//! The targets.

mod bson;
mod catalog;
mod commands;
mod imports;
mod merge;
mod query;
mod replset;
mod settings;
mod tree;
mod tree_store;
mod wire;

use crate::target::{Format, Target};

const MIB: u64 = 1 << 20;

/// The target of this name.
pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// All targets; a run that names none of them runs each in turn.
pub const TARGETS: &[Target] = &[
    Target {
        name: "wire",
        about: "messages of all opcodes, compressed ones, and replies",
        format: Format::Bytes,
        seeds: wire::seeds,
        run: wire::run,
        // A compressed message may have 48 MB.
        memory_bytes: 128 * MIB,
    },
    Target {
        name: "bson",
        about: "validation of documents; whatever passes is read, compared, printed and encoded",
        format: Format::Bytes,
        seeds: bson::seeds,
        run: bson::run,
        memory_bytes: 64 * MIB,
    },
    Target {
        name: "buckets",
        about: "buckets of MongoDB's time series, compressed ones included: their measurements are documents",
        format: Format::Bytes,
        seeds: bson::bucket_seeds,
        run: bson::run_buckets,
        memory_bytes: 64 * MIB,
    },
    Target {
        name: "index_keys",
        about: "decoding of index keys, the order of encoded values, and restoring them",
        format: Format::Bytes,
        seeds: bson::key_seeds,
        run: bson::run_keys,
        memory_bytes: 64 * MIB,
    },
    Target {
        name: "extended_json",
        about: "extended JSON: what is parsed is written and parsed to the same",
        format: Format::Json,
        seeds: bson::json_seeds,
        run: bson::run_json,
        memory_bytes: 64 * MIB,
    },
    Target {
        name: "tree_blocks",
        about: "payloads of the data file and of the log: pages, indexes of runs, nodes, manifests, maps, operations",
        format: Format::Bytes,
        seeds: tree::seeds,
        run: tree::run,
        memory_bytes: 128 * MIB,
    },
    Target {
        name: "tree_store",
        about: "a store with changes below valid checksums: opened with its log, read, written, verified, salvaged",
        format: Format::Bytes,
        seeds: tree_store::seeds,
        run: tree_store::run,
        memory_bytes: 256 * MIB,
    },
    Target {
        name: "merge",
        about: "update messages of large documents, counters and multikey paths",
        format: Format::Bytes,
        seeds: merge::seeds,
        run: merge::run,
        memory_bytes: 64 * MIB,
    },
    Target {
        name: "catalog",
        about: "a store whose catalog has an entry with other bytes: opened, and used as far as it opens",
        format: Format::Bytes,
        seeds: catalog::seeds,
        run: catalog::run,
        memory_bytes: 128 * MIB,
    },
    Target {
        name: "configuration",
        about: "mongod.conf",
        format: Format::Bytes,
        seeds: settings::file_seeds,
        run: settings::run_file,
        memory_bytes: 64 * MIB,
    },
    Target {
        name: "command_line",
        about: "the words after frond serve, one in each line",
        format: Format::Bytes,
        seeds: settings::line_seeds,
        run: settings::run_line,
        memory_bytes: 64 * MIB,
    },
    Target {
        name: "imports",
        about: "files that are imported: archives, Extended JSON, CSV, TSV",
        format: Format::Bytes,
        seeds: imports::seeds,
        run: imports::run,
        // A document in a damaged archive may say that it has 16 MiB.
        memory_bytes: 128 * MIB,
    },
    Target {
        name: "connection_string",
        about: "connection strings of the client",
        format: Format::Bytes,
        seeds: imports::uri_seeds,
        run: imports::run_uri,
        memory_bytes: 64 * MIB,
    },
    Target {
        name: "replica_set",
        about: "configurations of replica sets: what is read is written and read to the same, and changes to itself",
        format: Format::Bytes,
        seeds: replset::seeds,
        run: replset::run,
        memory_bytes: 64 * MIB,
    },
    Target {
        name: "find",
        about: "filters, sorts, projections and collations: with indexes they find what a scan finds",
        format: Format::Json,
        seeds: Vec::new,
        run: query::run_find,
        memory_bytes: 256 * MIB,
    },
    Target {
        name: "update",
        about: "update documents, pipelines and array filters on some documents",
        format: Format::Json,
        seeds: Vec::new,
        run: query::run_update,
        memory_bytes: 256 * MIB,
    },
    Target {
        name: "aggregate",
        about: "pipelines on some documents",
        format: Format::Json,
        seeds: Vec::new,
        run: query::run_aggregate,
        memory_bytes: 512 * MIB,
    },
    Target {
        name: "messages",
        about: "messages to a server on a Unix socket, which must go on answering",
        format: Format::Bytes,
        seeds: commands::message_seeds,
        run: commands::run_messages,
        memory_bytes: 128 * MIB,
    },
    Target {
        name: "commands",
        about: "lists of commands to a server, which must answer each",
        format: Format::Json,
        seeds: Vec::new,
        run: commands::run_commands,
        memory_bytes: 128 * MIB,
    },
];
