//! A replica set of one: this server is its only member, and its primary from the moment it is initiated.
//!
//! There is one of these in a server that was started with a name of a set. Its configuration is a document of
//! `local.system.replset`, as in MongoDB.

mod config;
mod defaults;
mod read_timestamps;
mod router;
mod standby;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frond_bson::{Doc, DocBuf, ObjectId, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{DocumentStore, SnapshotReads};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::host::clock::now_ms;
use crate::internal_collections::{find_one, replace_one};

pub use config::Config;
pub use defaults::Defaults;
pub use read_timestamps::ReadTimestamps;
pub use standby::stored_name;

/// Where the configuration is stored.
const CONFIG_COLLECTION: (&str, &str) = ("local", "system.replset");

/// The largest lead over the wall clock to which a client may set the cluster time: a year, as in MongoDB.
const DRIFT_MAX: Duration = Duration::from_secs(31_536_000);

/// The member once the set is initiated. A change of the configuration makes a new one.
#[derive(Debug)]
pub struct Member {
    pub config: Config,
    /// When it became the primary.
    pub elected: Timestamp,
    /// The same by the wall clock, in milliseconds since 1970.
    pub elected_ms: i64,
}

impl Member {
    /// Identifies the election: larger for a later one, as drivers compare it.
    pub fn election_id(&self) -> ObjectId {
        frond_replset::election_id(self.config.term)
    }

    /// A time as the operation time of a set: `{ts, t}`.
    pub fn op_time(&self, ts: Timestamp) -> DocBuf {
        doc! {"ts": ts, "t": self.config.term}
    }

    /// The fields of `hello` and `serverStatus` about the set, before the role.
    pub fn describe_set(&self, reply: &mut DocBuf) {
        reply.push_array("hosts", |hosts| hosts.push(&*self.config.host));
        reply.push("setName", &*self.config.name);
        reply.push("setVersion", self.config.version as i32);
    }

    /// The fields of `hello` and `serverStatus` about the member, after the role. `last` is the time of the last write.
    pub fn describe_self(&self, last: Timestamp, reply: &mut DocBuf) {
        let host = &*self.config.host;
        reply.push("primary", host);
        if !self.config.tags.is_empty() {
            reply.push("tags", &self.config.tags);
        }
        reply.push("me", host);
        reply.push("electionId", self.election_id());
        let (time, date) = (self.op_time(last), wall(last));
        reply.push(
            "lastWrite",
            &doc! {
                "opTime": &time, "lastWriteDate": date, "majorityOpTime": &time, "majorityWriteDate": date,
            },
        );
    }
}

/// The second of a cluster time, as a date.
pub fn wall(time: Timestamp) -> Value<'static> {
    Value::DateTime(i64::from(time.time) * 1000)
}

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
    /// Held while the configuration changes.
    changing: Mutex<()>,
    /// The counter of the topology version.
    topology: watch::Sender<i64>,
    /// Whether the server is one of many over a cluster, which have no set among them.
    is_router: bool,
}

impl Replication {
    /// The set with this name, with the configuration that the store has, if any. The member is elected by that: the
    /// term goes up with each start.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93) for a configuration of another set, or one that this server cannot have.
    pub fn open(store: &DocumentStore, name: &str, default_host: String) -> Result<Replication> {
        let set = Replication::new(store, name, default_host)?;
        if let Some(stored) = find_one(store, CONFIG_COLLECTION, doc! {})? {
            let term = stored.get_i64("term").unwrap_or(0) + 1;
            let config = Config::parse(&stored, term, ObjectId::new())?;
            if config.name != name {
                return Err(Error::new(
                    ErrorCode::InvalidReplicaSetConfig,
                    format!(
                        "the data directory belongs to the replica set {}: start the server with this name, or \
                         without a replica set and drop local.system.replset",
                        config.name
                    ),
                ));
            }
            // On a full disk the server starts in the term it had.
            let _ = set.store_config(&config);
            set.become_primary(config, store.cluster_time().tick()?);
        }
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
            topology: watch::Sender::new(0),
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
        self.member().ok_or_else(|| {
            Error::new(
                ErrorCode::NotYetInitialized,
                "no replset config has been received",
            )
        })
    }

    /// The counter of the topology version, which goes up when the answer to `hello` changes.
    pub fn topology(&self) -> watch::Receiver<i64> {
        self.topology.subscribe()
    }

    /// Begins the set with a configuration. `prepare` is called when this cannot be refused any more, before it is durable.
    ///
    /// # Errors
    /// `AlreadyInitialized` (23), errors of the configuration, that of `prepare`.
    pub fn initiate(&self, given: &Doc, prepare: impl FnOnce() -> Result<()>) -> Result<()> {
        let _one = self.changing.lock();
        if self.member().is_some() {
            return Err(Error::new(
                ErrorCode::AlreadyInitialized,
                "already initialized",
            ));
        }
        let config = Config::first(given, &self.name)?;
        prepare()?;
        // The time comes first: what fails must fail before the configuration is durable.
        let elected = self.store.cluster_time().tick()?;
        self.store_config(&config)?;
        self.become_primary(config, elected);
        Ok(())
    }

    /// Changes the configuration.
    ///
    /// # Errors
    /// `NotYetInitialized` (94), errors of the configuration.
    pub fn reconfigure(&self, given: &Doc, force: bool) -> Result<()> {
        let _one = self.changing.lock();
        let member = self.initiated()?;
        let config = member.config.next(given, force)?;
        // So that reads after this see it in their operation time. First, because it may fail: the configuration is durable below.
        self.store.cluster_time().tick()?;
        self.store_config(&config)?;
        self.publish(Member {
            config,
            elected: member.elected,
            elected_ms: member.elected_ms,
        });
        Ok(())
    }

    fn store_config(&self, config: &Config) -> Result<()> {
        replace_one(&self.store, CONFIG_COLLECTION, &config.name, &config.doc)
    }

    fn become_primary(&self, config: Config, elected: Timestamp) {
        self.publish(Member {
            config,
            elected,
            elected_ms: now_ms(),
        });
    }

    fn publish(&self, member: Member) {
        *self.member.write() = Some(Arc::new(member));
        self.topology.send_modify(|counter| *counter += 1);
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
        Ok(clock.advance(time)?)
    }

    /// Adds the times that drivers pass on to a reply: `$clusterTime`, and `operationTime`. That of a command that `wrote` is
    /// the time of its last entry in the oplog, which a change stream can start at; without an entry, a new time. Nothing
    /// before the set is initiated.
    pub fn add_times(&self, reply: &mut DocBuf, wrote: Option<Wrote>) {
        if self.member.read().is_none() {
            return;
        }
        let clock = self.store.cluster_time();
        let time = match wrote {
            Some(wrote) => self.wrote(wrote.entry),
            None if self.is_standby() => self.store.oplog().last(),
            None => clock.last(),
        };
        // MongoDB without authentication has this signature.
        let hash = Value::Binary {
            subtype: 0,
            bytes: &[0; 20],
        };
        reply.push_doc("$clusterTime", |gossip| {
            gossip.push("clusterTime", clock.last());
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
        // Of a standby these are writes of its own databases, which its primary does not know.
        if self.is_standby() {
            return self.store.oplog().last();
        }
        // If the clock cannot go on because the disk is full, the last time is as good: a read after it sees the write,
        // because there is only this member.
        let time = entry.unwrap_or_else(|| clock.tick().unwrap_or_else(|_| clock.last()));
        self.written.fetch_max(time.to_u64(), Ordering::SeqCst);
        time
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
        if self.is_standby() {
            return self.read_timestamps.of_standby(&self.store, at);
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

    /// Checks that a read may wait for this time: it is one that the set has reached.
    ///
    /// # Errors
    /// `InvalidOptions` (72) for a time in the future.
    pub fn check_reached(&self, field: &str, time: Timestamp) -> Result<()> {
        if self.is_standby() {
            return self.wait_reached(field, time);
        }
        let mut now = self.store.cluster_time().last();
        if time > now && self.is_router {
            // Another server of the cluster may have told the client a time that this one has not asked for yet.
            now = self.store.cluster_time().tick()?;
        }
        if time <= now {
            return Ok(());
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

fn shown(time: Timestamp) -> String {
    format!("Timestamp({}, {})", time.time, time.increment)
}

#[cfg(test)]
mod tests;
