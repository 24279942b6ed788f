//! Changes of the set: its beginning, its configuration, and the part of this server in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frond_bson::{Doc, ObjectId, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_replset::{Change, Reconfig, SetConfig, State};

use super::{CONFIG_COLLECTION, Consensus, Election, Member, Replication, member_id, peer};
use crate::host::clock::now_ms;
use crate::internal_collections::{delete_all, find_one, replace_one};

/// The wait of a change for a majority to have it. Without one the change goes on, and may be replaced.
const COMMIT_WAIT: Duration = Duration::from_secs(5);

impl Replication {
    /// The configuration that the store has. One of a store that has not taken part in consensus yet does not count.
    ///
    /// # Errors
    /// Errors of the store; `InvalidReplicaSetConfig` (93).
    pub(super) fn stored_config(&self) -> Result<Option<SetConfig>> {
        if self.consensus.as_ref().is_some_and(|one| !one.has_begun()) {
            return Ok(None);
        }
        self.any_stored_config()
    }

    fn any_stored_config(&self) -> Result<Option<SetConfig>> {
        let stored = find_one(&self.store, CONFIG_COLLECTION, doc! {})?;
        stored.map(|stored| SetConfig::parse(&stored)).transpose()
    }

    fn store_config(&self, config: &SetConfig) -> Result<()> {
        replace_one(
            &self.store,
            CONFIG_COLLECTION,
            &config.name,
            &config.to_doc(),
        )
    }

    fn own_consensus(&self) -> Result<&Consensus> {
        self.consensus.as_ref().ok_or_else(|| {
            Error::new(
                ErrorCode::CommandNotSupported,
                "this server is no member of a replica set: the cluster replicates what it stores",
            )
        })
    }

    /// Begins the set with a configuration. `find_own` finds the member that this server is; `prepare` is called once this server accepts
    /// writes, before the configuration is durable. Members other than this one join afterwards.
    ///
    /// # Errors
    /// `AlreadyInitialized` (23), errors of the configuration, of consensus and of `prepare`.
    pub fn initiate(
        &self,
        given: &Doc,
        find_own: impl FnOnce(&SetConfig) -> Result<Option<i32>>,
        prepare: impl FnOnce() -> Result<()>,
    ) -> Result<Arc<SetConfig>> {
        let _one = self.changing.lock();
        if self.member().is_some() {
            return Err(Error::new(
                ErrorCode::AlreadyInitialized,
                "already initialized",
            ));
        }
        let consensus = self.own_consensus()?;
        let mut found = Ok(None);
        let find = |config: &SetConfig| {
            found = find_own(config);
            found.clone().unwrap_or(None)
        };
        let config = frond_replset::initiate(given, &self.name, ObjectId::new(), find);
        let own = found?;
        let mut config = config?;
        let own = config.own_member(own)?;
        consensus.begin(peer(own))?;
        prepare()?;
        self.check_delays(&config)?;
        // A restored store has the configuration of the old set.
        delete_all(
            &self.store,
            CONFIG_COLLECTION,
            &doc! {"_id": {"$ne": &*config.name}},
        )?;
        config.term = Some(as_term(consensus.role().term));
        self.begin_term(&config, consensus.role().term)?;
        consensus.await_committed(COMMIT_WAIT)?;
        self.refresh_locked();
        Ok(Arc::new(config))
    }

    /// Begins consensus in a store that has the configuration of this set with one member, and no entries of consensus: an earlier
    /// version has written it, or it was restored from a backup. The configuration stays. Returns false if there is none.
    ///
    /// # Errors
    /// Errors of the store and of consensus.
    pub fn begin_alone(&self) -> Result<bool> {
        let Some(consensus) = self.consensus.as_ref().filter(|one| !one.has_begun()) else {
            return Ok(false);
        };
        let config = self.any_stored_config()?;
        let config = config.filter(|config| config.name == self.name);
        match config.as_ref().map(|config| &*config.members) {
            Some([only]) => consensus.begin(peer(only)).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Changes the configuration. The members of consensus follow it. `check` is called with a permitted configuration before it is stored.
    ///
    /// # Errors
    /// `NotYetInitialized` (94), `NotWritablePrimary` (10107), errors of the configuration, that of `check`.
    pub fn reconfigure(
        &self,
        given: &Doc,
        force: bool,
        check: impl FnOnce(&SetConfig) -> Result<()>,
    ) -> Result<Change> {
        let _one = self.changing.lock();
        let member = self.initiated()?;
        let consensus = self.own_consensus()?;
        if !member.is_primary() {
            return Err(Error::new(
                ErrorCode::NotWritablePrimary,
                if force {
                    "replSetReconfig with force: true needs a primary here: a configuration that no majority has agreed on \
                     could lose acknowledged writes. If a majority of the members is lost for ever, begin a new set from a \
                     backup or from the data directory of a member, see docs/replica-set.md"
                } else {
                    "Safe reconfig is only allowed on a writable PRIMARY. Current state SECONDARY"
                },
            ));
        }
        let request = Reconfig {
            forced: force.then(rand::random),
            term: member.term,
        };
        let change = frond_replset::reconfigure(&member.config, given, request, |new| {
            member.own.filter(|own| new.member(*own).is_some())
        })?;
        self.check_delays(&change.config)?;
        check(&change.config)?;
        // So that reads after this see it in their operation time. First, because it may fail: the configuration is durable below.
        self.store.cluster_time().tick()?;
        self.store_config(&change.config)?;
        consensus.await_committed(COMMIT_WAIT)?;
        self.refresh_locked();
        Ok(change)
    }

    /// Begins to accept writes as the primary of a term. Nothing happens in a set that is not initiated.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn take_over(&self, term: u64) -> Result<()> {
        let _one = self.changing.lock();
        let Some(mut config) = self.stored_config()? else {
            return Ok(());
        };
        let is_known = (self.election.lock().as_ref()).is_some_and(|(known, _)| *known == term);
        if !is_known {
            let clock = self.store.cluster_time();
            if config.voters() == 1 {
                // It has given out times that are in no entry.
                clock.advance_to_bound();
            }
            // Another primary may have, too. Clients pass them on, and an election far ahead of the clock each time would not end.
            clock.advance(self.cluster_time())?;
            config.term = Some(next_term(&config, term));
            self.begin_term(&config, term)?;
        }
        self.refresh_locked();
        Ok(())
    }

    /// Notes the election of a term, and stores the configuration with it.
    fn begin_term(&self, config: &SetConfig, term: u64) -> Result<()> {
        // The time comes first: what fails must fail before the configuration is durable.
        let time = self.store.cluster_time().tick()?;
        self.store_config(config)?;
        let election = Election {
            time,
            date_ms: now_ms(),
        };
        *self.election.lock() = Some((term, election));
        Ok(())
    }

    /// Takes over what the store and consensus say about the set and this server's part in it.
    pub fn refresh(&self) {
        let _one = self.changing.lock();
        self.refresh_locked();
    }

    /// As [`Replication::refresh`], of a caller that changes the set.
    fn refresh_locked(&self) {
        let Some(consensus) = &self.consensus else {
            return;
        };
        // A configuration that cannot be read now is read at the next change.
        let Ok(Some(stored)) = self.stored_config() else {
            return;
        };
        let role = consensus.role();
        let heard = self.heard_config.lock().clone();
        let config = heard
            .filter(|_| consensus.delay_secs().is_some())
            .unwrap_or(stored);
        let id_of = |store: u64| role.members.peers.get(&store).and_then(member_id);
        let own = id_of(consensus.id()).filter(|id| config.member(*id).is_some());
        let election = *self.election.lock();
        let election = election.filter(|(term, _)| role.is_leading && *term == role.term);
        let unfit = *self.unfit.lock();
        let is_removed = *self.removed_by.lock() > version_of(&config);
        let state = if let Some(unfit) = unfit {
            unfit
        } else if own.is_none() || is_removed {
            State::Removed
        } else if election.is_some() {
            State::Primary
        } else if self.maintenance.load(Ordering::SeqCst) {
            State::Recovering
        } else {
            State::Secondary
        };
        let leader = role.leader.filter(|leader| *leader != consensus.id());
        let primary = match state {
            State::Primary => own,
            _ => leader.and_then(id_of),
        };
        self.publish(Member {
            term: as_term(role.term).max(config.term.unwrap_or(0)),
            config: Arc::new(config),
            own,
            state,
            primary,
            election: election.map(|(_, election)| election),
        });
    }

    /// Shows that this server does not follow the set until it is started again: it copies data, or has failed.
    pub fn set_unfit(&self, state: State) {
        *self.unfit.lock() = Some(state);
        self.refresh();
    }

    /// Takes over the configuration of the primary, which this member would otherwise have once its delay is over.
    pub fn hear_config(&self, config: &Doc) {
        let Ok(config) = SetConfig::parse(config) else {
            return;
        };
        let mut heard = self.heard_config.lock();
        if config.name == self.name && heard.as_ref() != Some(&config) {
            *heard = Some(config);
            drop(heard);
            self.refresh();
        }
    }

    /// Refuses delays that no member could keep.
    fn check_delays(&self, config: &SetConfig) -> Result<()> {
        let delayed = config.members.iter().find(|member| member.delay_secs > 0);
        match delayed {
            Some(member) if !self.store.oplog().is_on() => Err(Error::new(
                ErrorCode::InvalidReplicaSetConfig,
                format!(
                    "secondaryDelaySecs of the member {} needs the oplog, whose entries have the times of writes: turn it on by \
                     starting the primary without --oplog off",
                    member.host
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Records the version and the term of a configuration that no longer has this member. Consensus sends nothing to a removed member, so
    /// it learns this from a heartbeat.
    pub fn note_removal(&self, by: Option<(i32, i64)>) {
        let mut removed_by = self.removed_by.lock();
        if *removed_by < by {
            *removed_by = by;
            drop(removed_by);
            self.refresh();
        }
    }

    /// Keeps reads away from this server, or serves them again. The primary cannot be kept from its work.
    ///
    /// # Errors
    /// `NotSecondary` (95), `OperationFailed` (96) if it is not in maintenance.
    pub fn set_maintenance(&self, on: bool) -> Result<()> {
        let _one = self.changing.lock();
        if self.initiated()?.is_primary() {
            return Err(Error::new(
                ErrorCode::NotSecondary,
                "primaries can't modify maintenance mode",
            ));
        }
        let was_on = self.maintenance.swap(on, Ordering::SeqCst);
        if !on && !was_on {
            return Err(Error::new(
                ErrorCode::OperationFailed,
                "already out of maintenance mode",
            ));
        }
        self.refresh_locked();
        Ok(())
    }

    /// Shows clients what is new.
    fn publish(&self, member: Member) {
        let mut shown = self.member.write();
        if shown.as_deref() != Some(&member) {
            *shown = Some(Arc::new(member));
            drop(shown);
            self.topology.send_modify(|counter| *counter += 1);
        }
    }
}

/// The term of an election, as clients see it. It is that of consensus, but never smaller than an earlier one: a set that an earlier version
/// has begun, or that was restored, has had terms of its own, and drivers take a primary of an earlier term for an old one.
fn next_term(config: &SetConfig, term: u64) -> i64 {
    let earlier = config.term.unwrap_or(0);
    as_term(term).max(earlier.saturating_add(1))
}

/// The version and the term of a configuration.
fn version_of(config: &SetConfig) -> Option<(i32, i64)> {
    Some((config.version, config.term.unwrap_or(-1)))
}

/// A term as BSON has it.
fn as_term(term: u64) -> i64 {
    i64::try_from(term).unwrap_or(i64::MAX)
}
