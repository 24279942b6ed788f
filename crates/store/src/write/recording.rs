//! The record of a statement of a retryable write, which goes into the commit of its changes.

use frond_bson::DocBuf;

use super::modify::{Change, Effect};
use super::staging::Staging;
use crate::catalog::{Catalog, SessionRecords, StatementId};
use crate::exec::operator::Row;
use frond_oplog::entry::Session;
use frond_storage::error::Result;
use frond_storage::keyspace::TreeId;

/// The record of a statement.
#[derive(Clone, Copy)]
pub struct Recording<'a, O> {
    pub of: StatementId,
    /// The part of its outcome that the caller needs later.
    pub result: &'a dyn Fn(&O) -> DocBuf,
}

impl<'a, O> Recording<'a, O> {
    /// With the tree of the records.
    pub(super) fn recorder(self, catalog: &Catalog) -> Result<Recorder<'a, O>> {
        Ok(Recorder {
            to: catalog.session_records()?,
            recording: self,
        })
    }
}

/// A statement, as entries of the oplog name it.
pub(super) fn session_of(statement: &StatementId) -> Session {
    Session {
        id: statement.session,
        number: statement.number,
        statement: Some(statement.statement),
    }
}

/// Adds the record of one statement to its commit.
pub struct Recorder<'a, O> {
    to: SessionRecords,
    recording: Recording<'a, O>,
}

impl<O> Recorder<'_, O> {
    /// The statement, for the oplog.
    pub fn session(&self) -> Session {
        session_of(&self.recording.of)
    }

    /// The key of the record, which a commit of one of several servers looks up.
    pub fn key(&self) -> (TreeId, [u8; 20]) {
        self.to.key(&self.recording.of)
    }

    /// Adds the record of a statement with this outcome.
    pub fn add(&self, staging: &mut Staging<'_>, outcome: &O) {
        let result = (self.recording.result)(outcome);
        staging.record(self.to, &self.recording.of, 1, &result);
    }

    /// A change of one document that adds the record. `outcome` returns the effect of the statement on a document.
    pub fn recorded<'c, C>(
        &'c self,
        change: &'c mut C,
        outcome: &'c dyn Fn(&C, &Row) -> Result<O>,
    ) -> RecordedChange<'c, C, O> {
        RecordedChange {
            change,
            recorder: self,
            outcome,
        }
    }
}

/// See [`Recorder::of`].
pub struct RecordedChange<'c, C, O> {
    change: &'c mut C,
    recorder: &'c Recorder<'c, O>,
    outcome: &'c dyn Fn(&C, &Row) -> Result<O>,
}

impl<C: Change, O> Change for RecordedChange<'_, C, O> {
    fn stage(&mut self, staging: &mut Staging<'_>, row: &Row) -> Result<Effect> {
        staging.set_session(Some(self.recorder.session()));
        let effect = self.change.stage(staging, row)?;
        if effect == Effect::Staged {
            let outcome = (self.outcome)(self.change, row)?;
            self.recorder.add(staging, &outcome);
        }
        Ok(effect)
    }

    fn removes(&self) -> bool {
        self.change.removes()
    }
}
