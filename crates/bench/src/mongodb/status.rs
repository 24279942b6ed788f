//! Reads `serverStatus`, `buildInfo` and `hostInfo`.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_client::{Client, Result};

use crate::null::BUILD_INFO_FIELD;
use crate::system::{MemoryUsage, OPERATIONS, Status};

/// Where servers report the bytes in their cache, in `serverStatus`.
const CACHE_BYTES: &[&[&str]] = &[
    &["frond", "cache", "bytes of pages in the cache"],
    &["wiredTiger", "cache", "bytes currently in the cache"],
];

const LOG_BYTES: &[&[&str]] = &[
    &["frond", "log", "bytes written"],
    &["wiredTiger", "log", "log bytes written"],
];

const DATA_BYTES: &[&[&str]] = &[
    &["frond", "disk", "bytes written"],
    &["wiredTiger", "block-manager", "bytes written"],
];

/// Asks the server for its counters.
pub fn status(client: &mut Client) -> Result<Status> {
    let reply = client.command("admin", &doc! { "serverStatus": 1 })?;
    Ok(read_status(&reply))
}

/// The process of the server, if it is one of this machine.
pub fn process(client: &mut Client) -> Result<Option<u32>> {
    let status = client.command("admin", &doc! { "serverStatus": 1 })?;
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = status.get_str("host").unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let pid = number_at(&status, &["pid"]).map(|pid| pid as u32);
    Ok(pid.filter(|_| host == here.trim()))
}

fn read_status(status: &Doc) -> Status {
    Status {
        operations: OPERATIONS.map(|name| number_at(status, &["opcounters", name])),
        log_bytes: first_at(status, LOG_BYTES),
        data_bytes: first_at(status, DATA_BYTES),
        network_in: number_at(status, &["network", "bytesIn"]),
        network_out: number_at(status, &["network", "bytesOut"]),
        connections: number_at(status, &["connections", "current"]),
        virtual_mib: number_at(status, &["mem", "virtual"]),
        memory: MemoryUsage {
            resident_mib: number_at(status, &["mem", "resident"]),
            cache_mib: first_at(status, CACHE_BYTES).map(|bytes| bytes / 1024.0 / 1024.0),
        },
    }
}

fn first_at(doc: &Doc, paths: &[&[&str]]) -> Option<f64> {
    paths.iter().find_map(|path| number_at(doc, path))
}

fn number_at(doc: &Doc, path: &[&str]) -> Option<f64> {
    let (first, rest) = path.split_first()?;
    match doc.get(first)? {
        Value::Document(inner) => number_at(inner, rest),
        value if rest.is_empty() => value.as_f64(),
        _ => None,
    }
}

/// Name, version and engine of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    pub name: String,
    pub null: bool,
    /// The version of MongoDB that it says it is, or is compatible with.
    pub version: String,
    /// Its own name and version when it is not MongoDB, and its storage engine.
    pub engine: String,
    /// Memory that it may use, in MiB, if it says so.
    pub memory_limit_mib: Option<f64>,
}

impl ServerFacts {
    /// Asks the server; fields that it does not report stay empty.
    pub fn ask(client: &mut Client) -> ServerFacts {
        let mut ask = |command: DocBuf| client.command("admin", &command).unwrap_or_default();
        let build = ask(doc! { "buildInfo": 1 });
        let status = ask(doc! { "serverStatus": 1 });
        let host = ask(doc! { "hostInfo": 1 });
        let name = status
            .get_doc("storageEngine")
            .and_then(|engine| engine.get_str("name"));
        ServerFacts {
            name: name_of(&build),
            null: is_null(&build),
            version: build.get_str("version").unwrap_or("unknown").to_owned(),
            engine: name.unwrap_or("unknown").to_owned(),
            memory_limit_mib: number_at(&host, &["system", "memLimitMB"]),
        }
    }
}

fn is_null(build: &Doc) -> bool {
    build
        .get(BUILD_INFO_FIELD)
        .is_some_and(|null| null.truthy())
}

/// The name of a server: those other than MongoDB have a version field of their own.
fn name_of(build: &Doc) -> String {
    let own =
        |name: &str, version: Option<&str>| version.map(|version| format!("{name} {version}"));
    if is_null(build) {
        return "null server".to_owned();
    }
    let inner = |name: &str| {
        build
            .get_doc(name)
            .and_then(|inner| inner.get_str("version"))
    };
    own("Frond", inner("frond"))
        .or_else(|| own("FerretDB", inner("ferretdb")))
        .or_else(|| own("FerretDB", build.get_str("ferretdbVersion")))
        .or_else(|| own("TokuMX", build.get_str("tokumxVersion")))
        .or_else(|| own("MongoDB", build.get_str("version")))
        .unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_names() {
        for (build, name) in [
            (
                doc! { "version": "7.0.5", "frond": { "version": "0.1.0" } },
                "Frond 0.1.0",
            ),
            (doc! { "version": "3.0.10" }, "MongoDB 3.0.10"),
            (
                doc! { "version": "2.4.10", "tokumxVersion": "2.0.1" },
                "TokuMX 2.0.1",
            ),
            (
                doc! { "version": "7.0.77", "ferretdb": { "version": "v2.1.0" } },
                "FerretDB v2.1.0",
            ),
            (
                doc! { "version": "7.0.0", "nullServer": true },
                "null server",
            ),
            (doc! {}, "unknown"),
        ] {
            assert_eq!(name_of(&build), name);
        }
    }

    #[test]
    fn memory_of_different_servers() {
        let wired = doc! {
            "mem": { "resident": 300 },
            "wiredTiger": { "cache": { "bytes currently in the cache": 1_048_576_i64 } },
        };
        let memory = read_status(&wired).memory;
        assert_eq!(memory.resident_mib, Some(300.0));
        assert_eq!(memory.cache_mib, Some(1.0));
        let own = doc! { "frond": { "cache": { "bytes of pages in the cache": 2_097_152_i64 } } };
        assert_eq!(read_status(&own).memory.cache_mib, Some(2.0));
        assert_eq!(
            read_status(&doc! { "mem": 5 }).memory,
            MemoryUsage::default()
        );
    }

    #[test]
    fn counters_of_different_servers() {
        let wired = doc! {
            "opcounters": { "insert": 1, "query": 2, "update": 3, "delete": 4, "getmore": 5,
                            "command": 6_i64 },
            "network": { "bytesIn": 7_i64, "bytesOut": 8_i64 },
            "connections": { "current": 9 },
            "mem": { "resident": 10, "virtual": 11 },
            "wiredTiger": { "log": { "log bytes written": 12 },
                            "block-manager": { "bytes written": 13 } },
        };
        let status = read_status(&wired);
        assert_eq!(status.operations, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(Some));
        for (value, expected) in [
            (status.network_in, 7.0),
            (status.network_out, 8.0),
            (status.connections, 9.0),
            (status.memory.resident_mib, 10.0),
            (status.virtual_mib, 11.0),
            (status.log_bytes, 12.0),
            (status.data_bytes, 13.0),
        ] {
            assert_eq!(value, Some(expected));
        }
        let own =
            doc! { "frond": { "log": { "bytes written": 1 }, "disk": { "bytes written": 2 } } };
        let status = read_status(&own);
        assert_eq!(
            (status.log_bytes, status.data_bytes),
            (Some(1.0), Some(2.0))
        );
        assert_eq!(read_status(&doc! {}), Status::default());
    }
}
