//! What the server says about itself while a run goes on.

use frond_bson::{Doc, DocBuf, Value, doc};

use crate::client::Client;

/// The server's own figures at one moment. `None` where it does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Resident memory of the server's process, in MiB.
    pub resident_mib: Option<f64>,
    /// What its cache holds, in MiB.
    pub cache_mib: Option<f64>,
}

/// Where servers report the bytes in their cache, in `serverStatus`.
const CACHE_BYTES: &[&[&str]] = &[
    &["frond", "cache", "bytes of pages in the cache"],
    &["wiredTiger", "cache", "bytes currently in the cache"],
];

impl Figures {
    /// Asks the server. Figures are a help, not what is measured, so a server that does not
    /// answer gives none.
    #[must_use]
    pub fn ask(client: &mut Client) -> Figures {
        client
            .command("admin", &doc! { "serverStatus": 1 })
            .map(|reply| Figures::read(&reply))
            .unwrap_or_default()
    }

    fn read(status: &Doc) -> Figures {
        let cache = CACHE_BYTES
            .iter()
            .find_map(|path| number_at(status, path))
            .map(|bytes| bytes / 1024.0 / 1024.0);
        Figures {
            resident_mib: number_at(status, &["mem", "resident"]),
            cache_mib: cache,
        }
    }
}

fn number_at(doc: &Doc, path: &[&str]) -> Option<f64> {
    let (first, rest) = path.split_first()?;
    match doc.get(first)? {
        Value::Document(inner) => number_at(inner, rest),
        value if rest.is_empty() => value.as_f64(),
        _ => None,
    }
}

/// Who the server is.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// The version of MongoDB that it says it is, or is compatible with.
    pub version: String,
    /// Its own name and version when it is not MongoDB, and its storage engine.
    pub engine: String,
    /// Memory that it may use, in MiB, if it says so.
    pub memory_limit_mib: Option<f64>,
}

impl ServerFacts {
    /// Asks the server; what it does not tell stays empty.
    #[must_use]
    pub fn ask(client: &mut Client) -> ServerFacts {
        let mut ask = |command: DocBuf| client.command("admin", &command).unwrap_or_default();
        let build = ask(doc! { "buildInfo": 1 });
        let status = ask(doc! { "serverStatus": 1 });
        let host = ask(doc! { "hostInfo": 1 });
        let name = status
            .get_doc("storageEngine")
            .and_then(|engine| engine.get_str("name"));
        ServerFacts {
            version: build.get_str("version").unwrap_or("unknown").to_owned(),
            engine: name.unwrap_or("unknown").to_owned(),
            memory_limit_mib: number_at(&host, &["system", "memLimitMB"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_different_servers() {
        let wired = doc! {
            "mem": { "resident": 300 },
            "wiredTiger": { "cache": { "bytes currently in the cache": 1_048_576_i64 } },
        };
        let figures = Figures::read(&wired);
        assert_eq!(figures.resident_mib, Some(300.0));
        assert_eq!(figures.cache_mib, Some(1.0));
        let own = doc! { "frond": { "cache": { "bytes of pages in the cache": 2_097_152_i64 } } };
        assert_eq!(Figures::read(&own).cache_mib, Some(2.0));
        assert_eq!(Figures::read(&doc! { "mem": 5 }), Figures::default());
    }
}
