//! Writing documents: [`insert`], [`update`], [`delete`], [`find_and_modify`].
//!
//! Every commit puts documents and index entries into one write set ([`staging`]) on top of a
//! snapshot. The primary keys and the keys of unique indexes are guarded: if another writer commits
//! one of them first, the engine refuses the whole write set, and the operation is retried on a
//! newer snapshot ([`retry`]). Entries of other indexes are blind puts: nothing is read for them.

pub mod delete;
pub(crate) mod duplicate;
pub(crate) mod expire;
pub mod fast;
pub mod find_and_modify;
pub mod insert;
mod large;
mod logged;
mod modify;
pub(crate) mod recording;
pub(crate) mod replace;
mod retry;
mod retryable;
pub mod staging;
pub mod update;
mod written;

use frond_bson::{Doc, DocBuf, Value};

use crate::store::DocumentStore;
use delete::DeleteRequest;
use find_and_modify::{FindAndModifyOutcome, FindAndModifyRequest};
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result};
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;
use insert::{InsertOptions, InsertOutcome, InsertRecording};
pub(crate) use retry::Retry;
use update::{UpdateOutcome, UpdateRequest};

/// The `_id` of a document, as a document of one field.
pub fn id_document(doc: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    out.push("_id", doc.get("_id").unwrap_or(Value::Null));
    out
}

/// One document or statement of a bulk operation that failed.
#[derive(Debug)]
pub struct WriteError {
    /// Its position in the request.
    pub index: usize,
    pub error: Error,
}

impl DocumentStore {
    /// Inserts documents, each with an `_id` of its own or a new ObjectId in front. The collection is
    /// created if need be.
    ///
    /// # Errors
    /// Errors of single documents are in the outcome. `InvalidNamespace` (73), errors of
    /// the engine.
    pub fn insert(
        &self,
        ns: &Namespace,
        docs: &[&Doc],
        options: InsertOptions,
    ) -> Result<InsertOutcome> {
        insert::insert(self.catalog(), ns, docs, options)
    }

    /// Updates documents, or inserts one if none matches and `upsert` is set.
    ///
    /// # Errors
    /// Errors of the filter, the update and the hint; `DuplicateKey` (11000); the limits of the
    /// context. What a multi update committed before an error stays.
    pub fn update(
        &self,
        ns: &Namespace,
        request: &UpdateRequest<'_>,
        durability: Durability,
        context: &OpContext,
    ) -> Result<UpdateOutcome> {
        update::update(self.catalog(), ns, request, durability, context, None)
    }

    /// Sends the first of these updates as messages that read nothing, as many as can be, in few commits: see [`fast`]. Returns how
    /// many: none if the first one has to be executed by [`DocumentStore::update`]. The outcome of each is
    /// [`fast::SENT`]. The error is that of the next one: of the engine, or a limit of the context.
    pub fn update_fast(
        &self,
        ns: &Namespace,
        requests: &[UpdateRequest<'_>],
        recording: Option<InsertRecording<'_>>,
        context: &OpContext,
    ) -> (usize, Option<Error>) {
        let stats = self.fast_updates();
        fast::send(self.catalog(), stats, ns, requests, recording, context)
    }

    /// Whether [`DocumentStore::update_fast`] may send updates of a collection. It need not be called if not.
    pub fn takes_fast_updates(&self, ns: &Namespace, unacknowledged: bool) -> bool {
        fast::takes_messages(self.catalog(), ns, unacknowledged)
    }

    /// Whether this update would be sent as a message, for `explain`.
    pub fn is_fast_update(&self, ns: &Namespace, request: &UpdateRequest<'_>) -> bool {
        fast::is_fast(self.catalog(), ns, request)
    }

    /// Deletes documents. Returns how many.
    ///
    /// # Errors
    /// Errors of the filter and the hint; the limits of the context.
    pub fn delete(
        &self,
        ns: &Namespace,
        request: &DeleteRequest<'_>,
        durability: Durability,
        context: &OpContext,
    ) -> Result<u64> {
        delete::delete(self.catalog(), ns, request, durability, context, None)
    }

    /// Checks that a collection takes an update, if it is a time series.
    ///
    /// # Errors
    /// `InvalidOptions` (72).
    pub fn check_update_of_series(
        &self,
        ns: &Namespace,
        filter: &Doc,
        update: &Value<'_>,
        (multi, upsert): (bool, bool),
    ) -> Result<()> {
        let collection = self.catalog().collection(ns);
        let settings = collection.as_ref().map(|one| &one.settings);
        match settings.and_then(|settings| settings.time_series.as_ref()) {
            None => Ok(()),
            Some(series) => series.check_update(filter, update, multi, upsert),
        }
    }

    /// Updates or removes one document and returns it.
    ///
    /// # Errors
    /// As [`DocumentStore::update`].
    pub fn find_and_modify(
        &self,
        ns: &Namespace,
        request: &FindAndModifyRequest<'_>,
        durability: Durability,
        context: &OpContext,
    ) -> Result<FindAndModifyOutcome> {
        find_and_modify::find_and_modify(self.catalog(), ns, request, durability, context, None)
    }
}
