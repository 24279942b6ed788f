//! Changes at the source, from any feed.

use frond_bson::DocBuf;
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
    /// A database is dropped.
    DropDatabase(String),
    /// A collection has another name.
    Rename { from: Collection, to: Collection },
    /// Users or roles have changed.
    Users,
}
