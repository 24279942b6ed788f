//! The log of consensus, over [`MemberLog`](frond_kv::MemberLog).
//!
//! # Invariants
//! 1. The core of consensus is the only caller of the methods that change the log, one at a time. `apply` is called by the state
//!    machine, beside them.
//! 2. An entry that this member has created ([`Group::Local`]) is sealed: its frames are in the log, and in the trees, already.
//!    An entry that was received is appended. A blank entry and a change of members seal frames like any other.
//! 3. The callback of an append is called once every entry of it is durable.
//! 4. After an error of the log the core ends. If the trees have what has to be removed, the fault is `MustReopen`.

use std::io;
use std::sync::Arc;

use frond_kv::{Done, EntryId};
use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use parking_lot::Mutex;

use crate::Runtime;
use crate::adapters::reader::Reader;
use crate::entry::{Entry, Group};
use crate::ids::{LogId, Vote, entry_id, log_id};
use crate::message;
use crate::note;
use crate::shared::Shared;
use crate::types::Types;

pub(crate) struct Log<R: Runtime> {
    shared: Arc<Shared<R>>,
}

impl<R: Runtime> Log<R> {
    pub fn new(shared: Arc<Shared<R>>) -> Self {
        Log { shared }
    }

    fn append_one(&self, entry: &Entry, flush: &Arc<Flush<R>>) -> frond_kv::Result<()> {
        let log = &self.shared.log;
        let id = entry_id(&entry.id);
        let done = self.done(id, flush.clone());
        match &entry.payload.group {
            Group::Local => {
                let note = note::encode(entry.payload.membership.as_ref());
                log.seal(id, &note, done)?;
                self.shared.sealed();
            }
            Group::Frames { .. } => {
                if let Some(entry) = message::log_entry(entry) {
                    log.append(entry, done)?;
                }
            }
            Group::Omitted => {
                return Err(frond_kv::Error::InvalidOption(
                    "an entry without its frames cannot be appended".into(),
                ));
            }
        }
        self.shared.appended(id, entry.payload.membership.clone());
        Ok(())
    }

    fn done(&self, id: EntryId, flush: Arc<Flush<R>>) -> Done {
        let shared = self.shared.clone();
        Box::new(move |result| match result {
            Ok(()) => {
                shared.durable(id);
                flush.done(Ok(()));
            }
            // It was removed for that of another leader. The core waits no more, and must not learn that it is durable: the answer to
            // the old leader would count it.
            Err(_) if !shared.has(id) => {}
            Err(error) => flush.done(Err(shared.fail(error))),
        })
    }
}

/// Counts the entries of an append that are not durable yet.
struct Flush<R: Runtime> {
    state: Mutex<(usize, Option<IOFlushed<Types<R>>>)>,
}

impl<R: Runtime> Flush<R> {
    fn new(entries: usize, callback: IOFlushed<Types<R>>) -> Arc<Self> {
        Arc::new(Flush {
            state: Mutex::new((entries, Some(callback))),
        })
    }

    fn done(&self, result: io::Result<()>) {
        let mut state = self.state.lock();
        state.0 = state.0.saturating_sub(1);
        if result.is_ok() && state.0 > 0 {
            return;
        }
        let callback = state.1.take();
        drop(state);
        if let Some(callback) = callback {
            callback.io_completed(result);
        }
    }
}

impl<R: Runtime> RaftLogStorage<Types<R>> for Log<R> {
    type LogReader = Reader<R>;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types<R>>> {
        let state = self.shared.log.state();
        Ok(LogState {
            last_purged_log_id: state.purged.map(log_id),
            last_log_id: state.last.map(log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Reader<R> {
        Reader::new(self.shared.clone())
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let (shared, vote) = (self.shared.clone(), *vote);
        let saved = R::blocking(move || shared.save_vote(&vote)).await?;
        saved.map_err(|error| self.shared.fail(error))
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.shared.log.state().committed.map(log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types<R>>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        if entries.is_empty() {
            callback.io_completed(Ok(()));
            return Ok(());
        }
        let flush = Flush::new(entries.len(), callback);
        for entry in &entries {
            self.append_one(entry, &flush)
                .map_err(|error| self.shared.fail(error))?;
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let last = last.as_ref().map(entry_id);
        // First, because the log may call what waits for the removed entries.
        self.shared.truncated(last);
        let log = self.shared.log.clone();
        let truncated = R::blocking(move || log.truncate_after(last)).await?;
        truncated.map_err(|error| self.shared.fail(error))
    }

    async fn purge(&mut self, through: LogId) -> io::Result<()> {
        let through = entry_id(&through);
        self.shared.will_purge(through);
        self.shared.log.purge(through);
        Ok(())
    }
}
