//! Statements of retryable writes: the record of what a statement did goes into its commit.
//!
//! A statement that changes nothing commits nothing, and has no record: executed again, it has no second effect.

use frond_bson::Doc;

use super::delete::{self, DeleteRequest};
use super::find_and_modify::{self, FindAndModifyOutcome, FindAndModifyRequest};
use super::insert::{self, InsertOptions, InsertOutcome, InsertRecording};
use super::recording::{Recording, session_of};
use super::update::{self, UpdateOutcome, UpdateRequest};
use crate::catalog::{SessionHistory, SessionKey, StatementId};
use crate::store::DocumentStore;
use crate::transaction::Transaction;
use frond_oplog::entry::Session;
use frond_storage::context::OpContext;
use frond_storage::error::Result;
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;

impl DocumentStore {
    /// As [`DocumentStore::insert`], with records of the documents that are inserted.
    ///
    /// # Errors
    /// As [`DocumentStore::insert`].
    pub fn insert_recorded(
        &self,
        ns: &Namespace,
        docs: &[&Doc],
        options: InsertOptions,
        recording: InsertRecording<'_>,
    ) -> Result<InsertOutcome> {
        insert::insert_recorded(self.catalog(), ns, docs, options, recording)
    }

    /// As [`DocumentStore::update`], of one document, with a record.
    ///
    /// # Errors
    /// As [`DocumentStore::update`].
    pub fn update_recorded(
        &self,
        ns: &Namespace,
        request: &UpdateRequest<'_>,
        recording: Recording<'_, UpdateOutcome>,
        context: &OpContext,
    ) -> Result<UpdateOutcome> {
        let durability = Durability::Logged;
        update::update(
            self.catalog(),
            ns,
            request,
            durability,
            context,
            Some(recording),
        )
    }

    /// As [`DocumentStore::delete`], of one document, with a record.
    ///
    /// # Errors
    /// As [`DocumentStore::delete`].
    pub fn delete_recorded(
        &self,
        ns: &Namespace,
        request: &DeleteRequest<'_>,
        recording: Recording<'_, u64>,
        context: &OpContext,
    ) -> Result<u64> {
        let durability = Durability::Logged;
        delete::delete(
            self.catalog(),
            ns,
            request,
            durability,
            context,
            Some(recording),
        )
    }

    /// As [`DocumentStore::find_and_modify`], with a record.
    ///
    /// # Errors
    /// As [`DocumentStore::find_and_modify`].
    pub fn find_and_modify_recorded(
        &self,
        ns: &Namespace,
        request: &FindAndModifyRequest<'_>,
        recording: Recording<'_, FindAndModifyOutcome>,
        context: &OpContext,
    ) -> Result<FindAndModifyOutcome> {
        let (catalog, durability) = (self.catalog(), Durability::Logged);
        let recording = Some(recording);
        find_and_modify::find_and_modify(catalog, ns, request, durability, context, recording)
    }

    /// The work of a session under its newest transaction number.
    ///
    /// # Errors
    /// Errors of the engine; `DataCorruptionDetected` (301).
    pub fn session_history(&self, session: &SessionKey) -> Result<SessionHistory> {
        self.catalog().session_history(session)
    }

    /// Keeps other servers from committing a transaction of a session that is not known here, unless one has done so.
    ///
    /// # Errors
    /// `WriteConflict` (112) if the session was written to meanwhile; errors of the engine.
    pub fn refuse_commit(&self, session: &SessionKey, number: i64) -> Result<()> {
        self.catalog().refuse_commit(session, number)
    }

    /// Removes the records of sessions. The caller keeps these sessions from writing meanwhile.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn forget_sessions(&self, sessions: &[SessionKey]) -> Result<()> {
        self.catalog().forget_sessions(sessions)
    }

    /// The sessions after `after` whose records were all made before `before_ms`: of the next `max` records. Returns the
    /// session to continue after, if there are more.
    ///
    /// # Errors
    /// As [`DocumentStore::session_history`].
    pub fn idle_sessions(
        &self,
        after: Option<SessionKey>,
        before_ms: i64,
        max: usize,
    ) -> Result<(Vec<SessionKey>, Option<SessionKey>)> {
        self.catalog().idle_sessions(after, before_ms, max)
    }
}

impl Transaction {
    /// As [`Transaction::commit`], with a record that the transaction was committed. The number of the statement is not
    /// looked at. Returns whether there is a record: a transaction without writes has none.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_recorded(&self, durability: Durability, of: StatementId) -> Result<bool> {
        if !self.has_written() {
            self.commit(durability)?;
            return Ok(false);
        }
        let to = self.catalog().session_records()?;
        let session = Session {
            statement: None,
            ..session_of(&of)
        };
        let has_others = self.catalog().coordination().has_others();
        self.commit_with(durability, Some(session), |batch| {
            to.put_commit(batch, &of, has_others);
        })?;
        Ok(true)
    }
}
