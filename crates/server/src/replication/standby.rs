//! The replica set of a standby: it has the configuration of its primary until it becomes the primary itself.

use std::time::{Duration, Instant};

use frond_bson::{DocBuf, ObjectId, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::DocumentStore;

use super::{CONFIG_COLLECTION, Config, Member, Replication, shown, wall};
use crate::internal_collections::find_one;

/// By how much a step up raises the term. Each start of the old primary raises its term by one; it must not come to a later
/// election than that of the new one.
const TERMS_OF_STEP_UP: i64 = 1000;

/// The longest wait of a read for the standby to reach its time.
const REACHED_WAIT: Duration = Duration::from_secs(10);

/// The interval of its checks.
const LOOK: Duration = Duration::from_millis(2);

/// The name of the set whose configuration a store has.
///
/// # Errors
/// Errors of the store.
pub fn stored_name(store: &DocumentStore) -> Result<Option<String>> {
    let stored = find_one(store, CONFIG_COLLECTION, doc! {})?;
    Ok(stored.and_then(|config| config.get_str("_id").map(str::to_owned)))
}

impl Replication {
    /// The set of a standby, with the configuration that came with the copy of its primary.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93) for a configuration of another set, or none.
    pub fn open_standby(
        store: &DocumentStore,
        name: Option<&str>,
        default_host: String,
    ) -> Result<Replication> {
        let wrong = |message: String| Err(Error::new(ErrorCode::InvalidReplicaSetConfig, message));
        let Some(stored) = find_one(store, CONFIG_COLLECTION, doc! {})? else {
            return wrong(
                "the data directory is no copy of a primary with --replSet: start the standby with an empty one".to_owned(),
            );
        };
        let term = stored.get_i64("term").unwrap_or(0);
        let config = Config::parse(&stored, term, ObjectId::new())?;
        if let Some(name) = name.filter(|name| **name != *config.name) {
            return wrong(format!(
                "the data directory belongs to the replica set {}, not to {name}",
                config.name
            ));
        }
        let set = Replication::new(store, &config.name, default_host)?;
        set.publish(Member {
            config,
            elected: Timestamp::default(),
            elected_ms: 0,
        });
        Ok(set)
    }

    /// Whether this server follows the primary of the set.
    pub fn is_standby(&self) -> bool {
        self.store.is_following()
    }

    /// Takes over the configuration of the primary.
    ///
    /// # Errors
    /// Errors of the configuration and of the store.
    pub fn learn(&self, given: &frond_bson::Doc) -> Result<()> {
        let _one = self.changing.lock();
        let member = self.initiated()?;
        let term = given.get_i64("term").unwrap_or(0);
        let config = Config::parse(given, term, member.config.replica_set_id)?;
        if config == member.config {
            return Ok(());
        }
        if config.replica_set_id != member.config.replica_set_id {
            return Err(Error::new(
                ErrorCode::InvalidReplicaSetConfig,
                "it is another replica set of the same name",
            ));
        }
        self.store_config(&config)?;
        self.publish(Member {
            config,
            elected: Timestamp::default(),
            elected_ms: 0,
        });
        Ok(())
    }

    /// Whether the configuration is that of this server, and not that of a primary that it follows.
    ///
    /// # Errors
    /// `NotYetInitialized` (94).
    pub fn has_own_configuration(&self) -> Result<bool> {
        Ok(self.initiated()?.elected != Timestamp::default())
    }

    /// Makes this server the primary of the set, which it is the only member of from here on. The store leads already.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn step_up(&self) -> Result<()> {
        let _one = self.changing.lock();
        let member = self.initiated()?;
        let mut given = DocBuf::new();
        for (name, value) in member.config.doc.iter() {
            match (name, value) {
                ("version", _) => given.push(name, member.config.version + 1),
                ("members", Value::Array(members)) => given.push_array(name, |out| {
                    for one in members.values().filter_map(|one| one.as_doc()) {
                        let mut changed = DocBuf::new();
                        for (name, value) in one.iter() {
                            match name {
                                "host" => changed.push(name, &*self.default_host),
                                _ => changed.push(name, value),
                            }
                        }
                        out.push(&changed);
                    }
                }),
                _ => given.push(name, value),
            }
        }
        let term = member.config.term + TERMS_OF_STEP_UP;
        let config = Config::parse(&given, term, member.config.replica_set_id)?;
        let elected = self.store.cluster_time().tick()?;
        self.store_config(&config)?;
        self.defaults.reload(&self.store)?;
        self.become_primary(config, elected);
        Ok(())
    }

    /// The fields of `hello` and `serverStatus` for a standby, from the hosts on. `role` is the name of the field that says whether it is
    /// a primary.
    pub fn describe_standby(&self, member: &Member, role: &str, reply: &mut DocBuf) {
        let (primary, me) = (&*member.config.host, &*self.default_host);
        reply.push_array("hosts", |hosts| {
            hosts.push(primary);
            if me != primary {
                hosts.push(me);
            }
        });
        reply.push("setName", &*member.config.name);
        reply.push("setVersion", member.config.version as i32);
        reply.push(role, false);
        reply.push("secondary", true);
        reply.push("primary", primary);
        if !member.config.tags.is_empty() {
            reply.push("tags", &member.config.tags);
        }
        reply.push("me", me);
        let last = self.last_write();
        let (time, date) = (member.op_time(last), wall(last));
        reply.push(
            "lastWrite",
            &doc! {
                "opTime": &time, "lastWriteDate": date, "majorityOpTime": &time, "majorityWriteDate": date,
            },
        );
    }

    /// Waits until the standby has applied the entry of this time.
    pub(super) fn wait_reached(&self, field: &str, time: Timestamp) -> Result<()> {
        let until = Instant::now() + REACHED_WAIT;
        while self.is_standby() && self.store.oplog().last() < time {
            if Instant::now() >= until {
                return Err(Error::new(
                    ErrorCode::ExceededTimeLimit,
                    format!(
                        "this standby has not reached the {field} {} within {} s: it has applied up to {}; ask the primary, \
                         or read without causal consistency",
                        shown(time),
                        REACHED_WAIT.as_secs(),
                        shown(self.store.oplog().last())
                    ),
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}
