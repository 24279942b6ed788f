//! The log of a member of a replica set: what the store has in memory follows the leadership of the log of its engine.

use std::sync::Arc;
use std::task::{Context, Poll};

use frond_storage::keyspace::{
    EngineError, EngineResult, EntryDone, EntryId, Files, LogEntry, LogState, MemberLog,
};

use crate::catalog::Catalog;
use crate::cluster_time::ClusterTime;
use crate::oplog::Oplog;

pub(crate) struct StoreLog {
    pub log: Files,
    pub catalog: Arc<Catalog>,
    pub cluster_time: Arc<ClusterTime>,
}

impl StoreLog {
    fn oplog(&self) -> &Oplog {
        self.catalog.oplog()
    }

    /// Reads what only a leader has in memory, and accepts commits.
    fn begin_to_lead(&self) -> crate::Result<()> {
        self.catalog.prepare_to_lead()?;
        self.cluster_time.take_over(self.catalog.engine())?;
        self.log.set_leading(true)?;
        let begun = self.catalog.begin_catalog();
        if begun.is_err() {
            self.log.set_leading(false)?;
        }
        begun
    }
}

/// The engine's error of one of the store.
fn engine_error(error: crate::Error) -> EngineError {
    match error {
        crate::Error::Engine(error) => error,
        error => EngineError::Failed(error.message().to_owned()),
    }
}

impl MemberLog for StoreLog {
    fn set_leading(&self, is_leading: bool) -> EngineResult<()> {
        if !is_leading {
            self.log.set_leading(false)?;
            self.cluster_time.follow(self.oplog().last());
            return Ok(());
        }
        let begun = self.begin_to_lead();
        // A leader has all that was waited for.
        self.oplog().applied().notify();
        if begun.is_err() {
            self.cluster_time.follow(self.oplog().last());
        }
        begun.map_err(engine_error)
    }

    fn state(&self) -> LogState {
        self.log.state()
    }

    fn vote(&self) -> EngineResult<Option<Vec<u8>>> {
        self.log.vote()
    }

    fn save_vote(&self, vote: &[u8]) -> EngineResult<()> {
        self.log.save_vote(vote)
    }

    fn poll_group(&self, context: &mut Context<'_>) -> Poll<u64> {
        self.log.poll_group(context)
    }

    fn request(&self, position: u64) {
        self.log.request(position);
    }

    fn seal(&self, id: EntryId, note: &[u8], done: EntryDone) -> EngineResult<()> {
        self.log.seal(id, note, done)
    }

    fn append(&self, entry: LogEntry, done: EntryDone) -> EngineResult<()> {
        self.log.append(entry, done)
    }

    fn read(&self, first: u64, end: u64, bytes_max: usize) -> EngineResult<Vec<LogEntry>> {
        self.log.read(first, end, bytes_max)
    }

    fn truncate_after(&self, last: Option<EntryId>) -> EngineResult<()> {
        self.log.truncate_after(last)
    }

    fn purge(&self, through: EntryId) {
        self.log.purge(through);
    }

    fn apply(&self, through: EntryId) -> EngineResult<()> {
        self.log.apply(through)
    }

    fn apply_own(&self, through: EntryId) -> Option<EngineResult<()>> {
        self.log.apply_own(through)
    }

    fn set_late(&self, is_late: bool) {
        self.log.set_late(is_late);
    }

    fn aged(&self, through: EntryId, stamp: u64) -> EngineResult<Option<EntryId>> {
        self.log.aged(through, stamp)
    }

    fn committed_position(&self) -> u64 {
        self.log.committed_position()
    }

    fn end_position(&self) -> u64 {
        self.log.end_position()
    }
}
