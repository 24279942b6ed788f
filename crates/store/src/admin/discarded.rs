//! The documents that change when a former leader discards its last commits.
//!
//! The oplog of the store names them: its entries after the commit point have the `_id` of each document that they inserted, changed or
//! removed. A document is read as it is now, before the store is opened again without these commits.

use std::collections::HashSet;
use std::ops::Bound;

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};
use frond_oplog::entry::{Kind, RawEntry};

use crate::find::FindRequest;
use crate::oplog::timestamp_of_key;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::error::Result;
use frond_storage::keyspace::Direction;
use frond_storage::namespace::Namespace;

/// Names of documents that were met take this many bytes at most. Beyond it a document that was changed twice may be visited twice.
const NAMES_BYTES_MAX: usize = 64 << 20;

/// The entries that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardedEntries {
    /// Entries of the oplog, and the first and last of them.
    pub entries: u64,
    pub first: Timestamp,
    pub last: Timestamp,
    /// Changes of documents, those of transactions one by one.
    pub operations: u64,
    /// Commands such as `create` and `drop`, which no document keeps.
    pub commands: u64,
    /// Documents that were visited.
    pub documents: u64,
    /// Those that are not there now, since they or their collections were removed.
    pub absent: u64,
}

/// A document that is discarded.
#[derive(Clone, Copy, Debug)]
pub struct DiscardedDocument<'a> {
    /// The name of its collection now.
    pub ns: &'a Namespace,
    /// The UUID of its collection.
    pub uuid: &'a [u8; 16],
    pub document: &'a Doc,
}

type Visit<'a> = dyn FnMut(DiscardedDocument<'_>) -> Result<()> + 'a;

impl DocumentStore {
    /// Visits the documents that entries of the oplog after a time name, each once, as they are now. `after` is the time of the commit
    /// point, [`crate::Oplog::durable`] on a member of a replica set. Nothing is committed meanwhile.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301), errors of `visit` and of the engine, the limits of the context.
    pub fn visit_discarded(
        &self,
        after: Timestamp,
        context: &OpContext,
        visit: &mut Visit<'_>,
    ) -> Result<DiscardedEntries> {
        let mut reader = Reader {
            store: self,
            context,
            found: DiscardedEntries::default(),
            seen: HashSet::new(),
            seen_bytes: 0,
            visit,
        };
        let Some(tree) = self.oplog().tree() else {
            return Ok(reader.found);
        };
        let low = after.to_u64().to_be_bytes();
        let (low, high) = (Bound::Excluded(&low[..]), Bound::Unbounded);
        let snapshot = self.engine().snapshot();
        let mut cursor = snapshot.cursor(tree, low, high, Direction::Forward)?;
        while let Some((key, value)) = cursor.next()? {
            context.check()?;
            let time = Timestamp::from_u64(timestamp_of_key(key).unwrap_or(0));
            let found = &mut reader.found;
            found.entries += 1;
            found.last = time;
            if found.first == Timestamp::default() {
                found.first = time;
            }
            let entry = RawEntry::read(value)?;
            match entry.kind() {
                Kind::Transaction => {
                    for operation in entry.operations() {
                        reader.operation(&operation?)?;
                    }
                }
                _ => reader.operation(&entry)?,
            }
        }
        Ok(reader.found)
    }
}

struct Reader<'a, 'v> {
    store: &'a DocumentStore,
    context: &'a OpContext,
    found: DiscardedEntries,
    /// UUIDs of collections with the `_id`s of documents.
    seen: HashSet<Vec<u8>>,
    seen_bytes: usize,
    visit: &'a mut Visit<'v>,
}

impl Reader<'_, '_> {
    fn operation(&mut self, operation: &RawEntry<'_>) -> Result<()> {
        match operation.kind() {
            Kind::Insert | Kind::Update | Kind::Replace | Kind::Delete => {}
            Kind::Noop => return Ok(()),
            Kind::Command | Kind::Transaction => {
                self.found.commands += 1;
                return Ok(());
            }
        }
        self.found.operations += 1;
        let (Some(uuid), Some(id)) = (operation.uuid(), operation.id()) else {
            return Ok(());
        };
        if !self.is_new(uuid, &id) {
            return Ok(());
        }
        let db = operation.ns().split('.').next().unwrap_or_default();
        let ns = self.store.collection_by_uuid(db, uuid);
        let document = match &ns {
            Some(ns) => self.find(ns, &id)?,
            None => None,
        };
        let (Some(ns), Some(document)) = (ns, document) else {
            self.found.absent += 1;
            return Ok(());
        };
        self.found.documents += 1;
        (self.visit)(DiscardedDocument {
            ns: &ns,
            uuid,
            document: &document,
        })
    }

    /// Whether a document was not met before, as far as there is room to know it.
    fn is_new(&mut self, uuid: &[u8; 16], id: &Value<'_>) -> bool {
        let mut name = uuid.to_vec();
        let mut of_id = DocBuf::new();
        of_id.push_value("", id);
        name.extend_from_slice(of_id.as_bytes());
        if self.seen.contains(&name) {
            return false;
        }
        // The length of a name, with what the set has beside it.
        let bytes = name.len() + 64;
        if self.seen_bytes + bytes <= NAMES_BYTES_MAX {
            self.seen_bytes += bytes;
            self.seen.insert(name);
        }
        true
    }

    fn find(&self, ns: &Namespace, id: &Value<'_>) -> Result<Option<DocBuf>> {
        let mut equal = DocBuf::new();
        equal.push_value("$eq", id);
        let filter = doc! {"_id": &equal};
        let request = FindRequest {
            filter: Some(&filter),
            limit: Some(1),
            ..FindRequest::default()
        };
        self.store.find(ns, &request, self.context)?.next()
    }
}
