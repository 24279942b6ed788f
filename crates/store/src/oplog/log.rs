//! The entries of one commit in the making.

use std::ops::{Deref, DerefMut};

use frond_bson::{Doc, DocBuf};

use super::readers::Places;
use super::{Added, Trees, pre_images};
use frond_oplog::entry::{Entry, Kind, OPERATION_BYTES_MAX, Operations, Session};
use frond_storage::clock::now_ms;
use frond_storage::keyspace::WriteSet;

/// A change for an entry.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// See [`Entry`].
    pub kind: Kind,
    /// See [`Entry`].
    pub ns: &'a str,
    pub uuid: Option<&'a [u8; 16]>,
    /// See [`Entry`].
    pub o: &'a Doc,
    /// See [`Entry`].
    pub o2: Option<&'a Doc>,
    /// The document before, if it is to be kept.
    pub before: Option<&'a Doc>,
}

impl Change<'_> {
    fn entry(&self, wall_ms: i64, session: Option<Session>) -> Entry<'_> {
        Entry {
            kind: self.kind,
            ns: self.ns,
            uuid: self.uuid,
            wall_ms: Some(wall_ms),
            session,
            has_pre_image: self.before.is_some(),
            o2: self.o2,
            o: self.o,
        }
    }
}

/// Adds entries to a commit. In a transaction they are kept, and become one entry at its commit.
#[derive(Debug)]
pub struct Log {
    trees: Trees,
    wall_ms: i64,
    session: Option<Session>,
    added: Added,
    /// The operations of a transaction.
    operations: Option<TransactionLog>,
    /// The namespaces of the entries, if there are readers that wait.
    places: Option<Places>,
    buffer: Vec<u8>,
}

impl Log {
    /// The log of a commit.
    pub fn new(trees: Trees, is_in_transaction: bool) -> Log {
        Log {
            trees,
            wall_ms: now_ms(),
            session: None,
            added: Added::default(),
            operations: is_in_transaction.then(TransactionLog::default),
            places: None,
            buffer: Vec::new(),
        }
    }

    /// The same, noting the namespaces of its entries for those who wait for them.
    pub fn noting_places(self) -> Log {
        Log {
            places: Some(Places::default()),
            ..self
        }
    }

    /// The namespaces of its entries, if they were noted.
    pub fn places(&self) -> Option<&Places> {
        self.places.as_ref()
    }

    /// From here on the entries are those of a statement of a retryable write, or of none.
    pub fn set_session(&mut self, session: Option<Session>) {
        self.session = session;
    }

    /// Adds the entry of a change.
    pub fn add(&mut self, batch: &mut WriteSet, change: &Change<'_>) {
        if let Some(operations) = &mut self.operations {
            operations.push(change);
            return;
        }
        self.buffer.clear();
        let entry = change.entry(self.wall_ms, self.session);
        entry.encode(&mut self.buffer);
        if let Some(places) = &mut self.places {
            places.add(change.ns);
        }
        let offset = self.added.entries;
        batch.put_stamped(self.trees.entries, offset, &[], &self.buffer);
        self.added.count(self.buffer.len());
        if let (Some(before), Some(uuid)) = (change.before, change.uuid) {
            let image = pre_images::PreImage {
                offset,
                position: 0,
                uuid,
                wall_ms: self.wall_ms,
                doc: before,
            };
            image.put(batch, self.trees.pre_images, &mut self.buffer);
        }
    }

    /// The entries that the commit adds to the oplog.
    pub fn added(&self) -> Added {
        self.added
    }

    /// The operations, in a transaction.
    pub fn into_operations(self) -> TransactionLog {
        self.operations.unwrap_or_default()
    }
}

/// The most bytes of a pre-image in a commit, besides the document.
const PRE_IMAGE_BYTES: usize = 64;
/// The most bytes of a transaction's entries besides its operations, and of what else is written at its commit.
const ENTRIES_BYTES: usize = 64 << 10;

/// The writes of a transaction, for its entry.
#[derive(Debug, Default)]
pub struct TransactionLog {
    operations: Operations,
    places: Places,
    /// Documents before their changes, with the positions of the operations.
    before: Vec<(u32, [u8; 16], DocBuf)>,
    before_bytes: usize,
}

impl TransactionLog {
    fn push(&mut self, change: &Change<'_>) {
        if let (Some(before), Some(uuid)) = (change.before, change.uuid) {
            let position = self.operations.count();
            self.before_bytes += before.len_bytes();
            self.before.push((position, *uuid, before.to_owned()));
        }
        self.places.add(change.ns);
        self.operations.push(&change.entry(0, None));
    }

    /// Adds what a later statement has written.
    pub fn append(&mut self, later: TransactionLog) {
        let count = self.operations.count();
        self.operations.append(&later.operations);
        self.places.append(later.places);
        let moved = later.before.into_iter();
        self.before
            .extend(moved.map(|(position, uuid, doc)| (count + position, uuid, doc)));
        self.before_bytes += later.before_bytes;
    }

    /// The namespaces of its operations.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.operations.bytes() + self.before_bytes
    }

    /// Bytes that it adds to the commit at most.
    pub fn commit_bytes(&self) -> usize {
        if self.operations.count() == 0 {
            return 0;
        }
        self.bytes() + self.before.len() * PRE_IMAGE_BYTES + ENTRIES_BYTES
    }

    /// Adds the entry of the transaction to its commit, or the chain of entries.
    pub fn put(&self, batch: &mut WriteSet, trees: Trees, session: Option<Session>) -> Added {
        let wall_ms = now_ms();
        let mut added = Added::default();
        let mut before = self.before.iter().peekable();
        let mut buffer = Vec::new();
        let put = |offset: u32, operations: std::ops::Range<u32>, value: &[u8]| {
            batch.put_stamped(trees.entries, offset, &[], value);
            added.count(value.len());
            while let Some((position, uuid, doc)) =
                before.next_if(|(position, ..)| *position < operations.end)
            {
                let image = pre_images::PreImage {
                    offset,
                    position: position - operations.start,
                    uuid,
                    wall_ms,
                    doc,
                };
                image.put(batch, trees.pre_images, &mut buffer);
            }
        };
        self.operations
            .entries(OPERATION_BYTES_MAX, wall_ms, session, put);
        added
    }
}

/// A write set of the catalog, with the entries of its changes.
pub struct Batch {
    set: WriteSet,
    log: Option<Log>,
}

impl Batch {
    /// An empty one. Without a log, changes have no entries.
    pub fn new(log: Option<Log>) -> Batch {
        Batch {
            set: WriteSet::new(),
            log,
        }
    }

    /// Adds an entry, if changes have some.
    pub fn log(&mut self, change: &Change<'_>) {
        if let Some(log) = &mut self.log {
            log.add(&mut self.set, change);
        }
    }

    /// Whether changes have entries.
    pub fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// The write set and the log.
    pub fn into_parts(self) -> (WriteSet, Option<Log>) {
        (self.set, self.log)
    }
}

impl Deref for Batch {
    type Target = WriteSet;

    fn deref(&self) -> &WriteSet {
        &self.set
    }
}

impl DerefMut for Batch {
    fn deref_mut(&mut self) -> &mut WriteSet {
        &mut self.set
    }
}
