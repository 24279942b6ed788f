//! Collections and figures over the wire.

use frond_bson::{Doc, DocBuf, doc};
use frond_client::{Collection, Dialect, Error, Result};

use super::status::{self, ServerFacts};
use super::{Connection, retention};
use crate::format::thousands;
use crate::system::{Compression, Definition, Description, Setup, Sizes, Status};

/// A server below this wire version does not know `indexOptionDefaults`.
const WIRE_VERSION_INDEX_DEFAULTS: i32 = 4;

impl Setup for Connection {
    fn describe(&mut self) -> Description {
        let server = ServerFacts::ask(&mut self.client);
        let dialect = Dialect::choose(self.client.limits().wire_version, true);
        let compressor = self.client.compressor().map_or("none", |c| c.name());
        let mut facts = vec![
            ("version of MongoDB's interface", server.version.clone()),
            ("storage engine", server.engine.clone()),
            ("writes sent as", dialect.name().to_owned()),
            ("messages compressed by", compressor.to_owned()),
        ];
        if let Some(mib) = server.memory_limit_mib {
            facts.push(("memory limit", format!("{} MiB", thousands(mib))));
        }
        Description {
            name: server.name,
            facts,
            null: server.null,
        }
    }

    fn check_batch(&self, acknowledged: bool, batch: u32, document_bytes: usize) -> Result<()> {
        self.client.check_batch(acknowledged, batch, document_bytes)
    }

    fn drop_collection(&mut self, collection: &Collection) -> Result<()> {
        self.client.drop_collection(collection)
    }

    fn create(&mut self, collection: &Collection, definition: &Definition) -> Result<()> {
        let mut index_options = DocBuf::new();
        if let Some(retain) = &definition.retention {
            self.create_with_retention(collection, retain)?;
        }
        if let Some(compression) = definition.compression {
            let toku = ServerFacts::ask(&mut self.client)
                .name
                .starts_with("TokuMX");
            let wire_version = self.client.limits().wire_version;
            let mut command = doc! { "create": collection.name.as_str() };
            command.push_all(&collection_options(compression, toku, wire_version));
            self.client.command(&collection.database, &command)?;
            if !has_index_defaults(toku, wire_version) {
                index_options = storage_options(compression, toku);
            }
        }
        let expires_by = definition.retention.as_ref().and_then(retention::ttl_index);
        let indexes = definition.indexes.iter().map(|index| index.fields);
        let fields: Vec<&[&str]> = indexes
            .filter(|fields| *fields != expires_by.as_slice())
            .collect();
        self.client
            .create_indexes(collection, &fields, &index_options)
    }

    fn count(&mut self, collection: &Collection) -> Result<u64> {
        self.client.count(collection)
    }

    fn sizes(&mut self, collection: &Collection) -> Result<Sizes> {
        let command = doc! { "collStats": collection.name.as_str() };
        let reply = match self.client.command(&collection.database, &command) {
            Ok(reply) => reply,
            // Sizes are optional: not every server knows the command.
            Err(Error::Server { .. }) => return Ok(Sizes::default()),
            Err(error) => return Err(error),
        };
        Ok(sizes_of(&reply))
    }

    fn status(&mut self) -> Result<Status> {
        status::status(&mut self.client)
    }

    fn process(&mut self) -> Result<Option<u32>> {
        status::process(&mut self.client)
    }

    fn write_all(&mut self) -> Result<()> {
        match self.client.command("admin", &doc! { "fsync": 1 }) {
            Ok(_) | Err(Error::Server { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn drain(&mut self) -> Result<()> {
        // A server works on the messages of a connection one after another, so that its answer to
        // this says that all the others are done.
        self.client.command("admin", &doc! { "ping": 1 })?;
        Ok(())
    }
}

/// The options that ask a server for a compression.
fn storage_options(compression: Compression, toku: bool) -> DocBuf {
    if toku {
        return doc! { "compression": compression.name() };
    }
    let config = format!("block_compressor={}", compression.name());
    doc! { "storageEngine": { "wiredTiger": { "configString": config.as_str() } } }
}

/// Whether a collection says how its indexes are stored, so that none of them has to.
fn has_index_defaults(toku: bool, wire_version: i32) -> bool {
    !toku && wire_version >= WIRE_VERSION_INDEX_DEFAULTS
}

/// The same for a collection, and where it can be for its indexes.
fn collection_options(compression: Compression, toku: bool, wire_version: i32) -> DocBuf {
    let mut options = storage_options(compression, toku);
    if has_index_defaults(toku, wire_version) {
        options.push("indexOptionDefaults", &storage_options(compression, toku));
    }
    options
}

fn sizes_of(reply: &Doc) -> Sizes {
    let number = |name: &str| {
        let value = reply.get(name)?.as_f64()?;
        (value >= 0.0).then_some(value as u64)
    };
    Sizes {
        documents: number("count"),
        logical_bytes: number("size"),
        storage_bytes: number("storageSize"),
        // TokuMX reports both the uncompressed size of its indexes and the size on disk.
        index_bytes: number("totalIndexStorageSize").or_else(|| number("totalIndexSize")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_old_and_new_servers() {
        let old =
            doc! { "count": 3.0, "size": 300, "storageSize": 8192.0, "totalIndexSize": 16_384_i64 };
        let expected = Sizes {
            documents: Some(3),
            logical_bytes: Some(300),
            storage_bytes: Some(8192),
            index_bytes: Some(16_384),
        };
        assert_eq!(sizes_of(&old), expected);
        assert_eq!(sizes_of(&doc! { "ok": 1 }), Sizes::default());
    }

    #[test]
    fn compression_is_asked_for_as_each_server_knows_it() {
        let engine = doc! { "wiredTiger": { "configString": "block_compressor=zstd" } };
        let index = doc! { "storageEngine": &engine };
        let both = doc! { "storageEngine": &engine, "indexOptionDefaults": &index };
        let toku = doc! { "compression": "zlib" };
        for (compression, is_toku, wire_version, collection, of_index) in [
            (Compression::Zstd, false, 21, &both, &index),
            (Compression::Zstd, false, 3, &index, &index),
            (Compression::Zlib, true, 0, &toku, &toku),
        ] {
            assert_eq!(
                &collection_options(compression, is_toku, wire_version),
                collection
            );
            assert_eq!(&storage_options(compression, is_toku), of_index);
        }
    }
}
