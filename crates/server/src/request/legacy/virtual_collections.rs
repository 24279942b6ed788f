//! `system.indexes` and `system.namespaces`: collections that were the catalog until MongoDB 3.0,
//! and that old drivers read and write in place of commands.

use frond_bson::{Doc, DocBuf, doc};
use frond_error::{ErrorCode, Result};
use frond_query::matcher::Filter;
use frond_store::Namespace;

use crate::state::Server;

/// One document for each index.
pub const INDEXES: &str = "system.indexes";

/// One document for each collection and each index.
pub const NAMESPACES: &str = "system.namespaces";

/// The documents of such a collection that match the filter.
pub fn documents(server: &Server, db: &str, collection: &str, filter: &Doc) -> Result<Vec<DocBuf>> {
    let filter = Filter::parse(filter)?;
    let mut found = Vec::new();
    for info in server.store.list_collections(db)? {
        let namespace = format!("{db}.{}", info.name);
        if collection == NAMESPACES {
            found.push(doc! {"name": &namespace, "options": &info.options});
        }
        let indexes = match server.store.list_indexes(&Namespace::parse(&namespace)?) {
            Ok(indexes) => indexes,
            // The collection was dropped meanwhile.
            Err(error) if error.code() == ErrorCode::NamespaceNotFound => continue,
            // A view has no indexes.
            Err(error) if error.code() == ErrorCode::CommandNotSupportedOnView => continue,
            Err(error) => return Err(error.into()),
        };
        for mut index in indexes {
            if collection == NAMESPACES {
                let name = index.get_str("name").unwrap_or_default();
                found.push(doc! {"name": format!("{namespace}.${name}")});
            } else {
                index.push("ns", &namespace);
                found.push(index);
            }
        }
    }
    found.retain(|document| filter.matches(document));
    Ok(found)
}

/// The command that creates the index of a document for `system.indexes`.
pub fn create_index_command(collection: &str, spec: &Doc) -> DocBuf {
    let mut index = DocBuf::new();
    for (name, value) in spec.iter() {
        // Drivers of that time name the collection, add an `_id`, and ask for what every index has now.
        if !matches!(name, "ns" | "_id" | "dropDups" | "v") {
            index.push(name, value);
        }
    }
    doc! {"createIndexes": collection, "indexes": [&index]}
}
