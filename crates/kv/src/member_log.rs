//! The log of one member of a replica set, as the consensus protocol needs it.
//!
//! # Model
//! The log of an engine is a sequence of frames, one for each commit. In a replica set, frames are grouped into **entries**, which
//! are the entries of Raft. All members have the same frames at the same positions, so that a position identifies the same
//! commits everywhere.
//! ```text
//!            applied        committed        last                  end of the log
//! … | entry 7 | entry 8 | entry 9 | entry 10 | frames of no entry |
//! ```
//! - **The leader** commits as an engine alone does: a commit appends its frame and is visible at once. [`MemberLog::poll_group`]
//!   reports that frames are ready to become an entry; the protocol gives the entry its identifier, and [`MemberLog::seal`] writes
//!   the frames and the identifier with one write and one sync. So nothing is written twice.
//! - **A follower** gets entries by [`MemberLog::append`] and writes them to its own log. [`MemberLog::apply`] inserts the frames
//!   into its trees once they are committed.
//! - An entry that another leader replaces is removed by [`MemberLog::truncate_after`]. That is possible only while the entry is
//!   not in the trees. A former leader has such entries in its trees: it opens its store again, which replays only what is known
//!   to be committed, and then removes them.
//! - No checkpoint contains a frame that is not known to be committed.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::Result;
use crate::operation::Ops;

/// Identifies an entry of the replicated log. A later term is greater than any index of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// The term of the leader that created the entry.
    pub term: u64,
    /// The number of the entry in the log. Numbers have no gaps.
    pub index: u64,
}

/// An entry of the replicated log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    pub id: EntryId,
    /// The position of the first frame, which is the end of the entry before.
    pub from: u64,
    /// The position after the last frame. An entry without frames has a place of its own in the log, too.
    pub to: u64,
    /// Bytes that the engine stores for the protocol, such as a new membership. Mostly empty.
    pub note: Arc<[u8]>,
    /// The frames, as the engine of the leader has encoded them, with a checksum.
    pub frames: Arc<[u8]>,
}

/// The part of the replicated log that an engine has, when it was opened and later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogState {
    /// The last entry that is not in the log any more, because the trees have it.
    pub purged: Option<EntryId>,
    /// The last entry of the log, or `purged` if there is none.
    pub last: Option<EntryId>,
    /// The last entry that is known to be committed. It is a lower bound.
    pub committed: Option<EntryId>,
    /// The last entry whose frames are in the trees.
    pub applied: Option<EntryId>,
    /// The last entry at or before `applied` that has a note, and the note.
    pub applied_note: Option<(EntryId, Arc<[u8]>)>,
    /// The last entry that has a note, applied or not, and the note.
    pub last_note: Option<(EntryId, Arc<[u8]>)>,
}

/// Gets what a member applies to its trees on behalf of another one. The layer above keeps a part of the trees in memory.
pub trait ApplyListener: Send + Sync {
    /// Called before the operations of a commit become visible. Returns whether `after` is to be called.
    fn before(&self, operations: Ops<'_>) -> bool;

    /// Called when they are visible, and the next ones are not. `last_stamp` is the last stamp of the commit, if it has one.
    ///
    /// # Errors
    /// An error stops the member: what is in memory does not match the trees any more.
    fn after(&self, last_stamp: Option<u64>) -> Result<()>;
}

/// Called once when an entry is durable, or with the reason why it never will be. It must be quick, and may be called by the
/// thread that passed it.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// The log of one member of a replica set. All methods but the ones that say so are called in the order in which the protocol
/// decides, by one caller at a time. [`MemberLog::apply`] and [`MemberLog::set_leading`] may run beside the others, one call of each
/// at a time.
pub trait MemberLog: Send + Sync {
    /// The state of the log now. May be called by any thread.
    fn state(&self) -> LogState;

    /// The vote that was saved last.
    ///
    /// # Errors
    /// Errors of the disk.
    fn vote(&self) -> Result<Option<Vec<u8>>>;

    /// Replaces the saved vote. It is durable on return.
    ///
    /// # Errors
    /// Errors of the disk. It is unknown then which of the two votes is saved.
    fn save_vote(&self, vote: &[u8]) -> Result<()>;

    /// Accepts commits (`true`), or refuses them with [`crate::Error::NotLeading`]. A log that was opened refuses them. On return no
    /// commit is between its check and its end.
    ///
    /// # Errors
    /// [`crate::Error::Failed`] if entries of the log are not applied yet.
    fn set_leading(&self, is_leading: bool) -> Result<()>;

    /// Ready with the position after the last frame, once there are frames that should become an entry: when a commit waits for
    /// its durability, when enough bytes have gathered, or when the interval between syncs is over. The frames before this
    /// position are not reported again. Pending while the log refuses commits. After a failure of the log it is ready once more, so
    /// that a leader finds out when it makes an entry. May be called beside the other methods.
    fn poll_group(&self, context: &mut Context<'_>) -> Poll<u64>;

    /// Makes [`MemberLog::poll_group`] ready if frames before a position are in no entry: a client waits for them. May be called
    /// by any thread.
    fn request(&self, position: u64);

    /// Makes an entry of all frames that are in no entry yet, of which there may be none. So it has all that were reported by
    /// [`MemberLog::poll_group`] before, and maybe more. Its `note` is stored with it. The entry can be read on return;
    /// [`MemberLog::read`] waits until its frames are gathered.
    ///
    /// # Errors
    /// [`crate::Error::InvalidOption`] if the identifier does not follow the last one; [`crate::Error::Closed`].
    fn seal(&self, id: EntryId, note: &[u8], done: Done) -> Result<()>;

    /// Appends an entry of another member. It can be read on return. Frames that are in no entry are discarded before, if they are
    /// not in the trees.
    ///
    /// # Errors
    /// [`crate::Error::InvalidOption`] if it does not follow the last entry; [`crate::Error::Corrupt`] if its frames are damaged;
    /// [`crate::Error::MustReopen`] if frames that are in no entry are in the trees; [`crate::Error::Closed`].
    fn append(&self, entry: LogEntry, done: Done) -> Result<()>;

    /// Reads entries from `first` up to, but not including, `end`. It stops after about `bytes_max` bytes, but returns at least one
    /// entry. It returns none if the log does not have the entry `first`, because it was truncated or is not written yet. Other
    /// methods may run at the same time.
    ///
    /// # Errors
    /// [`crate::Error::LogGone`] if the first one was purged; errors of the disk.
    fn read(&self, first: u64, end: u64, bytes_max: usize) -> Result<Vec<LogEntry>>;

    /// Removes all entries after one, durably, and all frames that are in no entry.
    ///
    /// # Errors
    /// [`crate::Error::MustReopen`] if some of it is in the trees; errors of the disk.
    fn truncate_after(&self, last: Option<EntryId>) -> Result<()>;

    /// Allows the log to remove entries up to and with one. The engine keeps what its trees need.
    fn purge(&self, through: EntryId);

    /// Records that everything up to and with an entry is committed, and inserts what is not in the trees yet. It may wait for room
    /// in memory.
    ///
    /// # Errors
    /// Errors of the disk. The entry is applied in part then, and the store has to be opened again.
    fn apply(&self, through: EntryId) -> Result<()>;

    /// As [`Self::apply`], if it does not have to wait: on a member that leads, whose trees have its entries already. `None`
    /// otherwise, and nothing is done.
    fn apply_own(&self, through: EntryId) -> Option<Result<()>> {
        let _ = through;
        None
    }

    /// Whether this member applies commits late. Then what its log says at the next start about commits is only what
    /// [`MemberLog::apply`] was called for: entries that are appended from now on are not trusted to say more. May be called beside the
    /// other methods.
    fn set_late(&self, is_late: bool);

    /// The last entry up to and with `through` such that no commit which is not applied yet, up to its end, has a stamp after `stamp`.
    /// Commits without stamps have the age of those before them. It may be an earlier one, because a call reads a bounded part of the
    /// log. `None` if the next entry to be applied has a later stamp. For a member that applies commits late: without a call of
    /// [`MemberLog::apply`] a later start does not apply them either. Called beside the other methods, not beside `apply`.
    ///
    /// # Errors
    /// Errors of the disk.
    fn aged(&self, through: EntryId, stamp: u64) -> Result<Option<EntryId>>;

    /// The position up to which everything is known to be committed. May be called by any thread.
    fn committed_position(&self) -> u64;

    /// The position after the last frame. May be called by any thread.
    fn end_position(&self) -> u64;
}
