//! The inventory of a server of any age: databases, collections with their options, indexes.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_client::{Client, Collection, CursorRequest};

use crate::error::Result;
use crate::names::{Filter, is_internal_database};

/// A server below this wire version has no `listCollections` and no `listIndexes`.
const WIRE_VERSION_LISTS: i32 = 3;

/// MongoDB's codes for something that does not exist.
const NAMESPACE_NOT_FOUND: i32 = 26;
const COMMAND_NOT_SUPPORTED_ON_VIEW: i32 = 166;

/// A collection or view as the server lists it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub collection: Collection,
    /// Its options, as `create` takes them.
    pub options: DocBuf,
    /// Whether it is a view.
    pub is_view: bool,
    /// Whether its documents are kept in the order of insertion, or may have equal `_id`s.
    pub is_ordered: bool,
}

impl Listed {
    /// Whether it is a time series.
    pub fn is_series(&self) -> bool {
        self.options.contains_key("timeseries")
    }
}

/// Documents and bytes of a collection, as its statistics say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    pub documents: u64,
    /// Bytes of the documents.
    pub bytes: u64,
}

/// The names of all databases.
pub fn databases(client: &mut Client) -> Result<Vec<String>> {
    let reply = client.command("admin", &doc! { "listDatabases": 1 })?;
    let list = reply.get_array("databases").unwrap_or(Doc::empty());
    Ok(list
        .values()
        .filter_map(|entry| Some(entry.as_doc()?.get_str("name")?.to_owned()))
        .collect())
}

/// All collections and views that the filter takes.
pub fn all(client: &mut Client, filter: &Filter) -> Result<Vec<Listed>> {
    let mut found = Vec::new();
    // A role for copying may not list what is in the server's own databases.
    let databases = databases(client)?.into_iter();
    for database in databases.filter(|name| !is_internal_database(name)) {
        let mut listed = collections(client, &database)?;
        listed.retain(|listed| filter.takes(&listed.collection));
        listed.sort_by(|a, b| a.collection.name.cmp(&b.collection.name));
        found.extend(listed);
    }
    Ok(found)
}

/// The collections and views of a database.
pub fn collections(client: &mut Client, database: &str) -> Result<Vec<Listed>> {
    let mut found = Vec::new();
    if client.limits().wire_version < WIRE_VERSION_LISTS {
        let namespaces = in_database(database, "system.namespaces");
        all_of(client, &namespaces, Doc::empty(), &mut |entry| {
            let name = entry
                .get_str("name")
                .and_then(|name| name.strip_prefix(database)?.strip_prefix('.'));
            if let Some(name) = name.filter(|name| !name.contains('$')) {
                let options = entry.get_doc("options").unwrap_or(Doc::empty());
                found.push(listed(database, name, "collection", options));
            }
        })?;
        return Ok(found);
    }
    let command = doc! { "listCollections": 1, "cursor": {} };
    let mut each = |entry: &Doc| {
        let name = entry.get_str("name").unwrap_or_default();
        let kind = entry.get_str("type").unwrap_or("collection");
        let options = entry.get_doc("options").unwrap_or(Doc::empty());
        found.push(listed(database, name, kind, options));
        Ok(())
    };
    let mut cursor = client.open_command(database, &command, 0, &mut each)?;
    while cursor.is_open() {
        client.more(&mut cursor, None, &mut each)?;
    }
    Ok(found)
}

pub fn listed(database: &str, name: &str, kind: &str, options: &Doc) -> Listed {
    let mut kept = DocBuf::new();
    for element in options.iter_raw() {
        // Older servers also list collections of their storage engine.
        let unwanted: [&str; 8] = [
            "create",
            "flags",
            "autoIndexId",
            "uuid",
            "temp",
            "storageEngine",
            "indexOptionDefaults",
            "idIndex",
        ];
        if !unwanted.contains(&element.name()) {
            kept.push_raw(&element);
        }
    }
    let is_ordered = options.get("capped").is_some_and(|capped| capped.truthy())
        || options.contains_key("timeseries");
    Listed {
        collection: in_database(database, name),
        options: kept,
        is_view: kind == "view",
        is_ordered,
    }
}

/// The indexes of a collection, without the one on `_id`.
pub fn indexes(client: &mut Client, collection: &Collection) -> Result<Vec<DocBuf>> {
    let mut found = Vec::new();
    if client.limits().wire_version < WIRE_VERSION_LISTS {
        let filter = doc! { "ns": collection.to_string().as_str() };
        let system = in_database(&collection.database, "system.indexes");
        all_of(client, &system, &filter, &mut |index| {
            found.extend(specification(index))
        })?;
        return Ok(found);
    }
    let command = doc! { "listIndexes": collection.name.as_str(), "cursor": {} };
    let mut each = |index: &Doc| {
        found.extend(specification(index));
        Ok(())
    };
    let opened = client.open_command(&collection.database, &command, 0, &mut each);
    let mut cursor = match opened.map_err(crate::error::Error::from) {
        Err(error)
            if [NAMESPACE_NOT_FOUND, COMMAND_NOT_SUPPORTED_ON_VIEW]
                .contains(&error.code().unwrap_or(0)) =>
        {
            return Ok(found);
        }
        other => other?,
    };
    while cursor.is_open() {
        client.more(&mut cursor, None, &mut each)?;
    }
    Ok(found)
}

/// The description of an index as another server takes it; none for that on `_id`.
pub fn specification(index: &Doc) -> Option<DocBuf> {
    let key = index.get_doc("key")?;
    let mut names = key.iter_raw().map(|element| element.name());
    if names.next() == Some("_id") && names.next().is_none() && !is_hashed(key) {
        return None;
    }
    let mut kept = DocBuf::new();
    for element in index.iter_raw() {
        match element.name() {
            "v" | "ns" | "background" | "safe" | "dropDups" | "buildUUID" => {}
            "key" => kept.push_doc("key", |fields| {
                for (name, value) in key {
                    fields.push_value(name, &direction(value));
                }
            }),
            // Old servers took any value for true.
            "unique" | "sparse" => {
                if element.value().is_some_and(|value| value.truthy()) {
                    kept.push(element.name(), true);
                }
            }
            _ => kept.push_raw(&element),
        }
    }
    Some(kept)
}

fn is_hashed(key: &Doc) -> bool {
    key.values().any(|value| value.as_str().is_some())
}

/// Old servers took any value for ascending.
fn direction(value: Value<'_>) -> Value<'_> {
    match value {
        Value::String(text) if !text.is_empty() => value,
        _ if value.as_f64().is_some_and(|n| n != 0.0 && !n.is_nan()) => value,
        _ => Value::Int32(1),
    }
}

/// Number of documents and bytes of a collection; nothing for a view, or where the server does not report it.
pub fn size(client: &mut Client, collection: &Collection) -> Result<Size> {
    let command = doc! { "collStats": collection.name.as_str() };
    let number = |reply: &Doc, name: &str| {
        let number = reply.get(name).and_then(|n| n.as_f64()).unwrap_or(0.0);
        number.max(0.0) as u64
    };
    match client.command(&collection.database, &command) {
        Ok(reply) => Ok(Size {
            documents: number(&reply, "count"),
            bytes: number(&reply, "size"),
        }),
        Err(frond_client::Error::Server { .. }) => Ok(Size {
            documents: client.count(collection).unwrap_or(0),
            bytes: 0,
        }),
        Err(error) => Err(error.into()),
    }
}

/// A name that was not checked, such as those of the server's own collections.
pub fn in_database(database: &str, name: &str) -> Collection {
    Collection {
        database: database.to_owned(),
        name: name.to_owned(),
    }
}

/// Shows all documents that a filter finds to `each`.
pub fn all_of(
    client: &mut Client,
    collection: &Collection,
    filter: &Doc,
    each: &mut dyn FnMut(&Doc),
) -> Result<()> {
    let mut each = |document: &Doc| {
        each(document);
        Ok(())
    };
    let request = CursorRequest {
        collection,
        filter,
        projection: None,
        sort: None,
        limit: 0,
        batch: 0,
        tailable: false,
    };
    let mut cursor = client.open_find(&request, &mut each)?;
    while cursor.is_open() {
        client.more(&mut cursor, None, &mut each)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn old_descriptions_of_indexes() {
        let old = doc! {
            "v": 1, "ns": "a.b", "key": { "a": true, "b": -1, "c": "2d", "d": 0.0 }, "name": "x",
            "background": true, "unique": 1, "sparse": false, "expireAfterSeconds": 5,
        };
        let expected = doc! {
            "key": { "a": 1, "b": -1, "c": "2d", "d": 1 }, "name": "x", "unique": true,
            "expireAfterSeconds": 5,
        };
        assert_eq!(specification(&old).unwrap(), expected);
        assert!(specification(&doc! { "key": { "_id": 1 }, "name": "_id_" }).is_none());
        assert!(specification(&doc! { "key": { "_id": "hashed" }, "name": "h" }).is_some());
        assert!(specification(&doc! { "key": { "_id": 1, "a": 1 }, "name": "h" }).is_some());
    }

    #[test]
    fn options_that_belong_to_a_server_are_left_out() {
        let options = doc! {
            "create": "c", "capped": true, "size": 4096, "flags": 1, "storageEngine": {},
        };
        let found = listed("d", "c", "collection", &options);
        assert_eq!(found.options, doc! { "capped": true, "size": 4096 });
        assert!(found.is_ordered && !found.is_view);
    }
}
