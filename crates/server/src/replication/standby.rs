//! The replica set of a standby: it has the configuration of its primary until it becomes the primary itself.

use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::DocumentStore;

use frond_replset::{SetConfig, State};

use super::member::alone;
use super::{CONFIG_COLLECTION, Election, Member, Replication, wall};
use crate::host::clock::now_ms;
use crate::internal_collections::{find_one, replace_one};

/// By how much a step up raises the term. Each start of the old primary raises its term by one; it must not come to a later
/// election than that of the new one.
const TERMS_OF_STEP_UP: i64 = 1000;

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
        let config = SetConfig::parse(&stored)?;
        if let Some(name) = name.filter(|name| **name != *config.name) {
            return wrong(format!(
                "the data directory belongs to the replica set {}, not to {name}",
                config.name
            ));
        }
        let set = Replication::new(store, &config.name, default_host)?;
        set.publish(alone(config, State::Secondary));
        Ok(set)
    }

    /// Whether this server follows the primary of the set.
    pub fn is_standby(&self) -> bool {
        self.consensus.is_none() && self.store.is_following()
    }

    /// Takes over the configuration of the primary.
    ///
    /// # Errors
    /// Errors of the configuration and of the store.
    pub fn learn(&self, given: &frond_bson::Doc) -> Result<()> {
        let _one = self.changing.lock();
        let member = self.initiated()?;
        let config = SetConfig::parse(given)?;
        if config == *member.config {
            return Ok(());
        }
        if config.settings.replica_set_id != member.config.settings.replica_set_id {
            return Err(Error::new(
                ErrorCode::InvalidReplicaSetConfig,
                "it is another replica set of the same name",
            ));
        }
        replace_one(&self.store, CONFIG_COLLECTION, &config.name, given)?;
        self.publish(alone(config, State::Secondary));
        Ok(())
    }

    /// Whether the configuration is that of this server, and not that of a primary that it follows.
    ///
    /// # Errors
    /// `NotYetInitialized` (94).
    pub fn has_own_configuration(&self) -> Result<bool> {
        Ok(self.initiated()?.election.is_some())
    }

    /// Makes this server the primary of the set, which it is the only member of from here on. The store leads already.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn step_up(&self) -> Result<()> {
        let _one = self.changing.lock();
        let member = self.initiated()?;
        let mut config = SetConfig::clone(&member.config);
        config.version += 1;
        config.term = Some(member.term + TERMS_OF_STEP_UP);
        for one in &mut config.members {
            one.host.clone_from(&self.default_host);
        }
        let time = self.store.cluster_time().tick()?;
        replace_one(
            &self.store,
            CONFIG_COLLECTION,
            &config.name,
            &config.to_doc(),
        )?;
        self.defaults.reload(&self.store)?;
        self.publish(Member {
            election: Some(Election {
                time,
                date_ms: now_ms(),
            }),
            ..alone(config, State::Primary)
        });
        Ok(())
    }

    /// The fields of `hello` and `serverStatus` for a standby, from the hosts on. `role` is the name of the field that says whether it is
    /// a primary.
    pub fn describe_standby(&self, member: &Member, role: &str, reply: &mut DocBuf) {
        let me = &*self.default_host;
        let Some(configured) = member.configured() else {
            return;
        };
        let primary = &*configured.host;
        reply.push_array("hosts", |hosts| {
            hosts.push(primary);
            if me != primary {
                hosts.push(me);
            }
        });
        reply.push("setName", &*member.config.name);
        reply.push("setVersion", member.config.version);
        reply.push(role, false);
        reply.push("secondary", true);
        reply.push("primary", primary);
        if !configured.tags.is_empty() {
            reply.push("tags", &configured.tags_doc());
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
}
