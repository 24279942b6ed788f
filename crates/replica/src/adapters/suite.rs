//! `openraft`'s own tests of logs and state machines, over a log that has no rules: the tests begin in the middle of a log, purge
//! what was not applied, and apply what was not appended.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use frond_kv::{Done, EntryId, LogEntry, LogState, MemberLog, Result};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft_rt_tokio::TokioRuntime;
use parking_lot::Mutex;

use super::{Log, Machine};
use crate::Settings;
use crate::host::{Event, Host};
use crate::shared::Shared;
use crate::types::Types;

type Config = Types<TokioRuntime>;
type Store = (Log<TokioRuntime>, Machine<TokioRuntime>);
type All = Suite<Config, Log<TokioRuntime>, Machine<TokioRuntime>, Builder, ()>;

struct Silent;

impl Host for Silent {
    fn event(&self, _event: Event) {}
}

#[derive(Default)]
struct Loose(Mutex<LooseState>);

#[derive(Default)]
struct LooseState {
    purged: Option<EntryId>,
    entries: Vec<LogEntry>,
    vote: Option<Vec<u8>>,
}

impl Loose {
    fn push(&self, entry: LogEntry, done: Done) {
        self.0.lock().entries.push(entry);
        done(Ok(()));
    }
}

impl MemberLog for Loose {
    fn state(&self) -> LogState {
        let state = self.0.lock();
        LogState {
            purged: state.purged,
            last: state.entries.last().map(|entry| entry.id).or(state.purged),
            ..LogState::default()
        }
    }

    fn vote(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.lock().vote.clone())
    }

    fn save_vote(&self, vote: &[u8]) -> Result<()> {
        self.0.lock().vote = Some(vote.to_vec());
        Ok(())
    }

    fn set_leading(&self, _is_leading: bool) -> Result<()> {
        Ok(())
    }

    fn poll_group(&self, _context: &mut Context<'_>) -> Poll<u64> {
        Poll::Pending
    }

    fn request(&self, _position: u64) {}

    fn seal(&self, id: EntryId, note: &[u8], done: Done) -> Result<()> {
        let entry = LogEntry {
            id,
            from: 0,
            to: 0,
            note: note.into(),
            frames: Arc::from([]),
        };
        self.push(entry, done);
        Ok(())
    }

    fn append(&self, entry: LogEntry, done: Done) -> Result<()> {
        self.push(entry, done);
        Ok(())
    }

    fn read(&self, first: u64, end: u64, _bytes_max: usize) -> Result<Vec<LogEntry>> {
        let state = self.0.lock();
        let within = |entry: &&LogEntry| (first..end).contains(&entry.id.index);
        Ok(state.entries.iter().filter(within).cloned().collect())
    }

    fn truncate_after(&self, last: Option<EntryId>) -> Result<()> {
        self.0.lock().entries.retain(|entry| Some(entry.id) <= last);
        Ok(())
    }

    fn purge(&self, through: EntryId) {
        let mut state = self.0.lock();
        state.entries.retain(|entry| entry.id > through);
        state.purged = Some(through);
    }

    fn apply(&self, _through: EntryId) -> Result<()> {
        Ok(())
    }

    fn set_late(&self, _is_late: bool) {}

    fn aged(&self, through: EntryId, _stamp: u64) -> Result<Option<EntryId>> {
        Ok(Some(through))
    }

    fn committed_position(&self) -> u64 {
        0
    }

    fn end_position(&self) -> u64 {
        0
    }
}

struct Builder;

impl StoreBuilder<Config, Log<TokioRuntime>, Machine<TokioRuntime>> for Builder {
    async fn build(
        &self,
    ) -> std::result::Result<((), Log<TokioRuntime>, Machine<TokioRuntime>), StorageError<Config>>
    {
        let (log, machine) = adapters();
        Ok(((), log, machine))
    }
}

fn adapters() -> Store {
    let shared = Shared::new(
        Settings::new(0),
        Arc::new(Loose::default()),
        Arc::new(Silent),
    );
    let (shared, _) = shared.unwrap();
    let shared = Arc::new(shared);
    (Log::new(shared.clone()), Machine::new(shared))
}

/// Declares a test for each one of the suite that takes a log and a state machine.
macro_rules! suite {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                let result: io::Result<()> = runtime.unwrap().block_on(async {
                    let (log, machine) = adapters();
                    All::$name(log, machine).await.map_err(io::Error::other)
                });
                result.unwrap();
            }
        )*
    };
}

// Left out: what installs snapshots, which this crate never does, and what reads a state machine that is not a store.
suite! {
    last_membership_in_log_initial
    last_membership_in_log
    last_membership_in_log_multi_step
    get_membership_initial
    get_membership_from_log_and_empty_sm
    get_membership_from_empty_log_and_sm
    get_membership_from_log_le_sm_last_applied
    get_membership_from_log_gt_sm_last_applied_1
    get_membership_from_log_gt_sm_last_applied_2
    get_initial_state_without_init
    get_initial_state_membership_from_empty_log_and_sm
    get_initial_state_membership_from_sm_inlog_is_smaller
    get_initial_state_membership_from_log_insm_is_smaller
    get_initial_state_with_state
    get_initial_state_last_log_gt_sm
    get_initial_state_last_log_lt_sm
    get_initial_state_inverted_log_order
    get_initial_state_conflict_at_same_index
    get_initial_state_log_ids
    get_initial_state_re_apply_committed
    save_vote
    get_log_entries
    limited_get_log_entries
    leader_bounded_stream
    entries_stream
    try_get_log_entry
    log_reader_reads_new_entries
    initial_logs
    get_log_state
    get_log_id
    last_id_in_log
    last_applied_state
    purge_logs_upto_0
    purge_logs_upto_5
    purge_logs_upto_20
    delete_logs_after_11
    delete_logs_after_5
    delete_logs_after_0
    delete_logs_after_none
    append_to_log
    snapshot_meta
    snapshot_meta_optional
    apply_single
    apply_multiple
}
