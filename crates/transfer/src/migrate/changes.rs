//! Changes at the source, from any feed.

use frond_bson::{Doc, DocBuf};
use frond_client::Collection;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A document is now this one.
    Put(Collection, DocBuf),
    /// The document with this `{_id: …}` has changed.
    Stale(Collection, DocBuf),
    /// The document is deleted.
    Gone(Collection, DocBuf),
    /// A collection or view, its options or its indexes have changed.
    Schema(Collection),
    /// A collection or view is dropped.
    Drop(Collection),
    /// A partition of a collection is added or dropped, by this command.
    Partition(Collection, DocBuf),
    /// A database is dropped.
    DropDatabase(String),
    /// A collection has another name.
    Rename { from: Collection, to: Collection },
    /// Users or roles have changed.
    Users,
}

impl Change {
    /// A partition was added or dropped by the command `name`; `details` is its entry in the oplog, or the description of its event.
    pub fn partition(collection: Collection, name: &str, details: &Doc) -> Change {
        let mut command = DocBuf::new();
        command.push(name, collection.name.as_str());
        let field = if name == "addPartition" {
            "newMax"
        } else {
            "id"
        };
        if let Some(value) = details.get(field) {
            command.push(field, value);
        }
        Change::Partition(collection, command)
    }
}
