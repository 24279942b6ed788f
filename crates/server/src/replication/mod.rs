//! The replica set of this server: its configuration, its part in it, times and concerns.
//!
//! There is one of these in a server that was started with a name of a set. The configuration is a document of
//! `local.system.replset`, as in MongoDB, which the members receive like all others. [`Consensus`] elects the primary among them.

mod changes;
mod consensus;
mod defaults;
mod durability;
mod elections;
mod heard;
mod identity;
mod member;
mod membership;
mod read_timestamps;
mod router;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use frond_bson::{Doc, DocBuf, Timestamp, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_replica::Transport;
use frond_replset::{SetConfig, State, not_yet_initialized};
use frond_store::{DocumentStore, MemberLog, SnapshotReads};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::host::clock::now_ms;

pub use consensus::{Consensus, member_id, peer, refusal};
pub use defaults::Defaults;
pub use durability::Acknowledgment;
pub use elections::{Cause, Loss};
pub use heard::{Heard, Heartbeats, Report};
pub use identity::{is_new_to_sets, leave_old_set};
pub use member::{Election, Member};
pub use membership::{KnownStores, are_seated, seats};
pub use read_timestamps::ReadTimestamps;

/// Where the configuration is stored.
const CONFIG_COLLECTION: (&str, &str) = ("local", "system.replset");

/// The same, as a namespace.
pub const CONFIG_NAMESPACE: &str = "local.system.replset";

/// The largest lead over the wall clock to which a client may set the cluster time: a year, as in MongoDB.
const DRIFT_MAX: Duration = Duration::from_secs(31_536_000);

/// The shortest election timeout that the configuration can set. Below, a pause of the system would begin an election.
const ELECTION_TIMEOUT_MIN_MS: u64 = 100;

/// The writes of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// Its last entry in the oplog, if it has any.
    pub entry: Option<Timestamp>,
}

/// The replica set of a server.
pub struct Replication {
    /// The name that the server was started with.
    pub name: String,
    /// Where clients reach this server, unless the configuration says otherwise.
    pub default_host: String,
    /// The default read and write concern.
    pub defaults: Defaults,
    /// The times of snapshot reads.
    pub read_timestamps: ReadTimestamps,
    /// The time of the last write.
    written: AtomicU64,
    store: DocumentStore,
    member: RwLock<Option<Arc<Member>>>,
    /// Held while the configuration or the part of this server changes.
    changing: Mutex<()>,
    /// The last election that this server has won, with its term.
    election: Mutex<Option<(u64, Election)>>,
    /// The largest cluster time that clients of this server have seen elsewhere.
    seen: AtomicU64,
    /// `None` for a server that consensus does not concern: one of a cluster.
    consensus: Option<Consensus>,
    pub heartbeats: Heartbeats,
    /// The counter of the topology version.
    topology: watch::Sender<i64>,
    frozen_until_ms: AtomicI64,
    /// Whether this server copies the data of another member, or takes no part any more.
    unfit: Mutex<Option<State>>,
    /// The version and the term of a configuration without this member, which another one has.
    removed_by: Mutex<Option<(i32, i64)>>,
    /// The configuration of the primary. It counts on a member that applies it late.
    heard_config: Mutex<Option<SetConfig>>,
    /// Whether an operator keeps reads away from this server.
    maintenance: AtomicBool,
    /// Whether the server is one of many over a cluster, which have no set among them.
    is_router: bool,
}

impl Replication {
    /// The set with this name. The store was opened as that of a member. The server takes part in consensus from here on.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93) for a configuration of another set; errors of the files and of consensus.
    pub fn open<T: Transport>(
        store: &DocumentStore,
        name: &str,
        default_host: String,
        db_path: &Path,
        transport: impl FnOnce(u64, Handle) -> Arc<T>,
    ) -> Result<Replication> {
        let mut set = Replication::new(store, name, default_host)?;
        let config = set.stored_config()?;
        let has_entries = store.member_log().is_some_and(|log| has_entries(&*log));
        if let Some(config) = config.as_ref().filter(|config| config.name != name)
            && has_entries
        {
            return Err(Error::new(
                ErrorCode::InvalidReplicaSetConfig,
                format!(
                    "the data directory belongs to a member of the replica set {old}, and the server was started for the replica \
                     set {name}: start it with --replSet {old}, or on another directory. To begin {name} with this data, restore a \
                     backup of {old} into a new directory",
                    old = config.name
                ),
            ));
        }
        let id = identity::read_or_make(db_path).map_err(|error| {
            Error::internal(format!(
                "the number of the member in the data directory: {error}"
            ))
        })?;
        let mut settings = frond_replica::Settings::new(id);
        if let Some(config) = &config {
            let millis = u64::try_from(config.settings.election_timeout_ms).unwrap_or(0);
            settings.election_timeout = Duration::from_millis(millis.max(ELECTION_TIMEOUT_MIN_MS));
            settings.heartbeat_interval = settings.election_timeout / 5;
        }
        set.consensus = Some(Consensus::start(store, settings, |handle| {
            transport(id, handle)
        })?);
        set.refresh();
        Ok(set)
    }

    fn new(store: &DocumentStore, name: &str, default_host: String) -> Result<Replication> {
        Ok(Replication {
            name: name.to_owned(),
            default_host,
            defaults: Defaults::load(store)?,
            read_timestamps: ReadTimestamps::default(),
            written: AtomicU64::new(store.cluster_time().last().to_u64()),
            store: store.clone(),
            member: RwLock::new(None),
            changing: Mutex::new(()),
            election: Mutex::default(),
            seen: AtomicU64::new(0),
            consensus: None,
            heartbeats: Heartbeats::default(),
            topology: watch::Sender::new(0),
            frozen_until_ms: AtomicI64::new(0),
            unfit: Mutex::default(),
            removed_by: Mutex::default(),
            heard_config: Mutex::default(),
            maintenance: AtomicBool::new(false),
            is_router: false,
        })
    }

    /// The member, if the set is initiated.
    pub fn member(&self) -> Option<Arc<Member>> {
        self.member.read().clone()
    }

    /// The member, or the error of commands that need one.
    ///
    /// # Errors
    /// `NotYetInitialized` (94).
    pub fn initiated(&self) -> Result<Arc<Member>> {
        self.member().ok_or_else(not_yet_initialized)
    }

    /// The member of consensus that this server runs.
    pub fn consensus(&self) -> Option<&Consensus> {
        self.consensus.as_ref()
    }

    /// Until when this server does not stand for election, in milliseconds since 1970.
    pub fn frozen_until_ms(&self) -> Option<i64> {
        Some(self.frozen_until_ms.load(Ordering::SeqCst)).filter(|until| *until > 0)
    }

    /// Does not stand for election for a time. Zero ends it.
    pub fn freeze(&self, time: Duration) {
        if let Some(consensus) = &self.consensus {
            consensus.member().freeze(time);
            let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
            let until = if millis == 0 {
                0
            } else {
                now_ms().saturating_add(millis)
            };
            self.frozen_until_ms.store(until, Ordering::SeqCst);
        }
    }

    /// Whether this server accepts writes.
    pub fn is_primary(&self) -> bool {
        self.member
            .read()
            .as_ref()
            .is_some_and(|member| member.is_primary())
    }

    /// The counter of the topology version, which goes up when the answer to `hello` changes.
    pub fn topology(&self) -> watch::Receiver<i64> {
        self.topology.subscribe()
    }

    /// Takes over the `$clusterTime` that a client has seen.
    ///
    /// # Errors
    /// `ClusterTimeFailsRateLimiter` (202) if it is too far ahead of the wall clock, `TypeMismatch` (14) and
    /// `IDLFailedToParse` (40414) if it cannot be read.
    pub fn gossip(&self, given: &Doc, advances: bool) -> Result<()> {
        let time = match given.get("clusterTime") {
            Some(Value::Timestamp(time)) => time,
            Some(other) => {
                return Err(Error::new(
                    ErrorCode::TypeMismatch,
                    format!(
                        "BSON field '$clusterTime.clusterTime' is the wrong type '{}', expected type 'timestamp'",
                        other.type_name()
                    ),
                ));
            }
            None => {
                return Err(Error::new(
                    ErrorCode::IDLFailedToParse,
                    "BSON field '$clusterTime.clusterTime' is missing but a required field",
                ));
            }
        };
        let clock = self.store.cluster_time();
        if !advances || time <= clock.last() || self.member().is_none() {
            return Ok(());
        }
        if time.time > i32::MAX as u32 || time.increment > i32::MAX as u32 {
            return Err(Error::location(
                40482,
                "cluster time cannot be advanced beyond its maximum value",
            ));
        }
        let now = now_ms() / 1000;
        if i64::from(time.time) > now.saturating_add(DRIFT_MAX.as_secs() as i64) {
            return Err(Error::new(
                ErrorCode::ClusterTimeFailsRateLimiter,
                format!(
                    "New cluster time, {}, is too far from this node's wall clock time, {now}.",
                    time.time
                ),
            ));
        }
        // Only a primary moves its clock, which is durable; another member does when it becomes the primary.
        self.seen.fetch_max(time.to_u64(), Ordering::SeqCst);
        if self.consensus.is_some() && !self.is_primary() {
            return Ok(());
        }
        match clock.advance(time) {
            Err(error) if error.code() == ErrorCode::NotWritablePrimary => Ok(()),
            advanced => Ok(advanced?),
        }
    }

    /// The largest cluster time that this server knows.
    pub fn cluster_time(&self) -> Timestamp {
        let seen = Timestamp::from_u64(self.seen.load(Ordering::SeqCst));
        self.store.cluster_time().last().max(seen)
    }

    /// Adds the times that drivers pass on to a reply: `$clusterTime`, and `operationTime`. That of a command that `wrote` is
    /// the time of its last entry in the oplog, which a change stream can start at; without an entry, a new time. Nothing
    /// before the set is initiated.
    pub fn add_times(&self, reply: &mut DocBuf, wrote: Option<Wrote>) {
        if self.member.read().is_none() {
            return;
        }
        let time = match wrote {
            Some(wrote) => self.wrote(wrote.entry),
            // The members of a set have the times of entries in common, and no others.
            None if self.has_entries() => self.store.oplog().last(),
            None => self.store.cluster_time().last(),
        };
        // MongoDB without authentication has this signature.
        let hash = Value::Binary {
            subtype: 0,
            bytes: &[0; 20],
        };
        reply.push_doc("$clusterTime", |gossip| {
            gossip.push("clusterTime", self.cluster_time());
            gossip.push_doc("signature", |signature| {
                signature.push("hash", hash);
                signature.push("keyId", 0i64);
            });
        });
        reply.push("operationTime", time);
    }

    /// The time that expressions see as `$$CLUSTER_TIME`; none before the set is initiated.
    pub fn expression_time(&self) -> Option<Timestamp> {
        self.member.read().as_ref()?;
        Some(self.store.cluster_time().last()).filter(|time| *time != Timestamp::default())
    }

    /// Notes a write that is done, with its last entry in the oplog. Returns its time.
    pub fn wrote(&self, entry: Option<Timestamp>) -> Timestamp {
        let clock = self.store.cluster_time();
        if entry.is_none() && self.has_entries() {
            return self.store.oplog().last();
        }
        // If the clock cannot go on because the disk is full, the last time is as good: a read after it sees the write,
        // because there is only this member.
        let time = entry.unwrap_or_else(|| clock.tick().unwrap_or_else(|_| clock.last()));
        self.written.fetch_max(time.to_u64(), Ordering::SeqCst);
        time
    }

    /// Whether each write of the set has an entry in the oplog of all members.
    fn has_entries(&self) -> bool {
        self.consensus.is_some() && self.store.oplog().is_on()
    }

    /// The time of the last write: with an oplog, that of its last entry.
    pub fn last_write(&self) -> Timestamp {
        match self.store.oplog() {
            oplog if oplog.is_on() => oplog.last(),
            _ => self.store.cluster_time().last(),
        }
    }

    /// The time up to which writes survive a crash of the machine; without an oplog, that of the last write.
    pub fn durable(&self) -> Timestamp {
        let last = self.last_write();
        match self.store.oplog() {
            oplog if oplog.is_on() => last.min(Timestamp::from_u64(oplog.durable())),
            _ => last,
        }
    }

    /// A handle that reads at one time, and that time: for the level `snapshot` outside of transactions.
    ///
    /// # Errors
    /// `SnapshotTooOld` (239) for a time that is not kept.
    pub fn snapshot(
        &self,
        at: Option<Timestamp>,
        after: Option<Timestamp>,
    ) -> Result<(SnapshotReads, Timestamp)> {
        if self.store.is_following() {
            return self.read_timestamps.of_follower(&self.store, at);
        }
        if let Some(found) = self.read_timestamps.of_cluster(&self.store, at)? {
            return Ok(found);
        }
        // An entry is there before the reply of its write, and some writes have no entries.
        let written = || {
            let replied = Timestamp::from_u64(self.written.load(Ordering::SeqCst));
            replied.max(self.store.oplog().last())
        };
        match at {
            Some(time) => Ok((self.read_timestamps.at(&self.store, written, time)?, time)),
            None => self
                .read_timestamps
                .now(&self.store, written, after.unwrap_or_default()),
        }
    }

    /// Checks that a read may see this time. Returns whether it has to wait until this member, which follows the primary, has reached it.
    ///
    /// # Errors
    /// `InvalidOptions` (72) for a time in the future.
    pub fn check_reached(&self, field: &str, time: Timestamp) -> Result<bool> {
        let mut now = self.cluster_time();
        if self.store.is_following() {
            return Ok(self.store.oplog().last() < time);
        }
        if time > now && self.is_router {
            // Another server of the cluster may have given the client a time that this one has not read yet.
            now = self.store.cluster_time().tick()?;
        }
        if time <= now {
            return Ok(false);
        }
        Err(Error::new(
            ErrorCode::InvalidOptions,
            format!(
                "readConcern {field} value must not be greater than the current clusterTime. Requested \
                 clusterTime: {}; current clusterTime: {}",
                shown(time),
                shown(now)
            ),
        ))
    }
}

/// The longest wait of a read for the time that it is to see.
const REACHED_WAIT: Duration = Duration::from_secs(10);

impl Replication {
    /// Waits until this member, if it follows the primary, has applied the entry of this time.
    ///
    /// # Errors
    /// `ExceededTimeLimit` (262).
    pub async fn reached(&self, field: &str, time: Timestamp) -> Result<()> {
        let entries = self.store.oplog().applied();
        let reached = async {
            loop {
                let seen = entries.insertions();
                if !self.store.is_following() || self.store.oplog().last() >= time {
                    return;
                }
                entries.newer(seen).await;
            }
        };
        let waited = tokio::time::timeout(REACHED_WAIT, reached).await;
        waited.map_err(|_| {
            Error::new(
                ErrorCode::ExceededTimeLimit,
                format!(
                    "this server has not reached the {field} {} within {} s: it has applied up to {}; ask the primary, \
                     or read without causal consistency",
                    shown(time),
                    REACHED_WAIT.as_secs(),
                    shown(self.store.oplog().last())
                ),
            )
        })
    }
}

/// Whether a store has taken part in consensus. One that has not may have the configuration of a set all the same: it was restored from a
/// backup of a member, or written by a version in which sets of one had no consensus.
fn has_entries(log: &dyn MemberLog) -> bool {
    let state = log.state();
    state.last.is_some() || state.purged.is_some()
}

fn shown(time: Timestamp) -> String {
    format!("Timestamp({}, {})", time.time, time.increment)
}

#[cfg(test)]
mod tests;
