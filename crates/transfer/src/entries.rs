//! Parts of the entries of an oplog.

use frond_bson::{Doc, DocBuf};
use frond_client::Collection;

/// Deepest nesting of entries in `applyOps`.
pub const DEPTH_MAX: usize = 10;

/// The two parts of `database.collection`.
pub fn split(namespace: &str) -> Option<Collection> {
    let (database, name) = namespace.split_once('.')?;
    Some(Collection {
        database: database.to_owned(),
        name: name.to_owned(),
    })
}

/// Session and number of an entry's transaction.
pub fn transaction(entry: &Doc) -> Option<Vec<u8>> {
    let mut key = DocBuf::new();
    key.push_raw(&entry.get_raw("lsid")?);
    key.push_raw(&entry.get_raw("txnNumber")?);
    Some(key.into_vec())
}
