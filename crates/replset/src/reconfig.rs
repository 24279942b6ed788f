//! The first configuration of a set, and the changes that are permitted after it.

use frond_bson::{Doc, DocBuf, ObjectId, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::config::SetConfig;
use crate::fields::{incompatible, integer, invalid, object};
use crate::member::Member;

#[cfg(test)]
mod tests;

/// A forced change raises the version by at least this, and by up to [`FORCED_SPREAD`] more, so that it is above every
/// version that members on the other side of a partition may have made, and differs from a forced one of theirs.
const FORCED_STEP: i64 = 10_000;

const FORCED_SPREAD: u32 = 100_000;

/// A request to change the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Reconfig {
    /// A random number for a change with `force: true`. None for one of a primary.
    pub forced: Option<u32>,
    /// The term of the primary that receives it.
    pub term: i64,
}

/// A member that is reached at another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostChange {
    /// The `_id` of the member.
    pub id: i32,
    /// The host until now.
    pub from: String,
    /// The host from now on.
    pub to: String,
}

/// A permitted change: the configuration, and the differences by the `_id` of the members, in the order of the lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The configuration after the change, to be stored.
    pub config: SetConfig,
    /// Members that become voters: new ones, and learners until now.
    pub voters: Vec<i32>,
    /// Members that become learners: new ones with `votes: 0`, and voters until now.
    pub learners: Vec<i32>,
    /// Members that are in the set no more.
    pub removed: Vec<i32>,
    /// Members at another host.
    pub moved: Vec<HostChange>,
    /// Members that keep their role and change their priority, tags, delay, or whether they are hidden.
    pub changed: Vec<i32>,
    /// Whether the settings of the set or its default for the journal change.
    pub changes_settings: bool,
}

impl Change {
    /// Whether the consensus has to change its members.
    pub fn changes_membership(&self) -> bool {
        !(self.voters.is_empty() && self.learners.is_empty() && self.removed.is_empty())
    }
}

/// The configuration of `replSetInitiate`. `own` finds the `_id` of the member that received it.
///
/// # Errors
/// As [`SetConfig::parse`]; `NewReplicaSetConfigurationIncompatible` (103) if the version is not 1,
/// `InvalidReplicaSetConfig` (93) if the receiver is no member or cannot be elected.
pub fn initiate(
    given: &Doc,
    set_name: &str,
    replica_set_id: ObjectId,
    own: impl FnOnce(&SetConfig) -> Option<i32>,
) -> Result<SetConfig> {
    let mut config = SetConfig::parse(given)?;
    if config.name != set_name {
        return Err(invalid(format!(
            "Attempting to initiate a replica set with name {}, but command line reports {set_name}; rejecting",
            config.name
        )));
    }
    if config.version != 1 {
        return Err(incompatible(format!(
            "Configuration used to initiate a replica set must have version 1, but found {}",
            config.version
        )));
    }
    if config.settings.replica_set_id.is_some() {
        return Err(invalid(
            "replica set configuration cannot contain 'replicaSetId' field when called from replSetInitiate",
        ));
    }
    config.settings.replica_set_id = Some(replica_set_id);
    config.term = Some(1);
    let id = own(&config);
    let own = config.own_member(id);
    own.and_then(|own| config.check_electable(own))
        .map_err(|error| invalid(error.message()))?;
    Ok(config)
}

/// The change that `replSetReconfig` asks for. `own` finds the `_id` of the member that received it.
///
/// The term in the document counts for nothing: the receiver sets its own, and a forced change has none.
///
/// # Errors
/// As [`SetConfig::parse`], but `NewReplicaSetConfigurationIncompatible` (103) for rules that join members and for what a
/// running set cannot change; `InvalidReplicaSetConfig` (93) for several voters at once, `NodeNotFound` (74) if the receiver is
/// no member, `NodeNotElectable` (104) if it cannot be elected.
pub fn reconfigure(
    old: &SetConfig,
    given: &Doc,
    request: Reconfig,
    own: impl FnOnce(&SetConfig) -> Option<i32>,
) -> Result<Change> {
    let mut new = match request.forced {
        None => SetConfig::read(given)?,
        Some(random) => read_forced(old, given, random)?,
    };
    new.check().map_err(incompatible)?;
    new.term = request.forced.is_none().then_some(request.term);
    if object(given, "settings")?.is_none_or(|settings| !settings.contains_key("replicaSetId")) {
        new.settings.replica_set_id = old.settings.replica_set_id;
    }
    check_compatible(old, &new)?;
    if request.forced.is_none() {
        check_voters(old, &new)?;
    }
    let id = own(&new);
    let own = new.own_member(id)?;
    if request.forced.is_none() {
        new.check_electable(own)?;
    }
    Ok(difference(old, new))
}

/// The reply of `replSetGetConfig`. `committed` is given if the request asks for `commitmentStatus`: whether a majority has the
/// configuration, and what was majority-committed before it.
pub fn config_reply(config: &SetConfig, committed: Option<bool>) -> DocBuf {
    let mut reply = doc! {"config": &config.to_doc()};
    if let Some(committed) = committed {
        reply.push("commitmentStatus", committed);
    }
    reply
}

/// Reads a forced configuration, whose own version need not be above the old one.
fn read_forced(old: &SetConfig, given: &Doc, random: u32) -> Result<SetConfig> {
    let mut lenient = DocBuf::new();
    for (name, value) in given.iter().filter(|(name, _)| *name != "version") {
        lenient.push(name, value);
    }
    let version = integer(given, "version")?.unwrap_or(0);
    let base = version.clamp(i64::from(old.version), i64::from(i32::MAX));
    let raised = base + FORCED_STEP + i64::from(random % FORCED_SPREAD);
    let raised = i32::try_from(raised).unwrap_or(i32::MAX);
    lenient.push("version", raised);
    SetConfig::read(&lenient)
}

fn check_compatible(old: &SetConfig, new: &SetConfig) -> Result<()> {
    if new.name != old.name {
        return Err(incompatible(format!(
            "New and old configurations differ in replica set name; old was {}, and new is {}",
            old.name, new.name
        )));
    }
    if new.settings.replica_set_id != old.settings.replica_set_id {
        let shown = |id: Option<ObjectId>| id.map_or("none".to_owned(), |id| id.to_string());
        return Err(incompatible(format!(
            "New and old configurations differ in replica set ID; old was {}, and new is {}",
            shown(old.settings.replica_set_id),
            shown(new.settings.replica_set_id)
        )));
    }
    if new.version <= old.version {
        return Err(incompatible(format!(
            "New replica set configuration version must be greater than old, but {} is not greater than {} for \
             replica set {}",
            new.version, old.version, old.name
        )));
    }
    for member in &new.members {
        if let Some(before) = old.member_at(&member.host)
            && before.id != member.id
        {
            return Err(incompatible(format!(
                "New and old configurations both have members with host of {} but in the new configuration the _id \
                 field is {} and in the old configuration it is {}",
                member.host, member.id, before.id
            )));
        }
    }
    Ok(())
}

/// Two configurations whose voters differ by one share a member in each two of their majorities.
fn check_voters(old: &SetConfig, new: &SetConfig) -> Result<()> {
    let is_voter = |config: &SetConfig, id: i32| config.member(id).is_some_and(|m| m.is_voter);
    let voters = |config: &SetConfig, other: &SetConfig| {
        let only_here = |m: &&Member| m.is_voter && !is_voter(other, m.id);
        config.members.iter().filter(only_here).count()
    };
    if voters(old, new) + voters(new, old) > 1 {
        return Err(invalid(
            "Non force replica set reconfig can only add or remove at most 1 voting member.",
        ));
    }
    Ok(())
}

fn difference(old: &SetConfig, config: SetConfig) -> Change {
    let mut change = Change {
        voters: Vec::new(),
        learners: Vec::new(),
        removed: Vec::new(),
        moved: Vec::new(),
        changed: Vec::new(),
        changes_settings: config.settings != old.settings
            || config.majority_is_journaled != old.majority_is_journaled,
        config,
    };
    for member in &change.config.members {
        let before = old.member(member.id);
        if before.is_none_or(|before| before.is_voter != member.is_voter) {
            let list = if member.is_voter {
                &mut change.voters
            } else {
                &mut change.learners
            };
            list.push(member.id);
        }
        let Some(before) = before else { continue };
        if before.host != member.host {
            change.moved.push(HostChange {
                id: member.id,
                from: before.host.clone(),
                to: member.host.clone(),
            });
        }
        let alike = Member {
            host: member.host.clone(),
            is_voter: member.is_voter,
            ..before.clone()
        };
        if alike != *member && before.is_voter == member.is_voter {
            change.changed.push(member.id);
        }
    }
    let gone = |m: &&Member| change.config.member(m.id).is_none();
    change.removed = old.members.iter().filter(gone).map(|m| m.id).collect();
    change
}

impl SetConfig {
    /// The member that this server is.
    ///
    /// # Errors
    /// `NodeNotFound` (74) if it is none.
    pub fn own_member(&self, id: Option<i32>) -> Result<&Member> {
        id.and_then(|id| self.member(id)).ok_or_else(|| {
            Error::new(
                ErrorCode::NodeNotFound,
                format!(
                    "No host described in new configuration with {} for replica set {} maps to this node",
                    self.shown(),
                    self.name
                ),
            )
        })
    }

    fn check_electable(&self, own: &Member) -> Result<()> {
        if own.is_electable() {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::NodeNotElectable,
            format!(
                "This node, {}, with _id MemberId({}) is not electable under the new configuration with {} for replica \
                 set {}",
                own.host,
                own.id,
                self.shown(),
                self.name
            ),
        ))
    }

    /// The configuration of a set whose only member is at `host`, as `replSetInitiate` without a configuration makes it.
    pub fn default_doc(name: &str, host: &str) -> DocBuf {
        doc! {"_id": name, "version": 1, "members": [{"_id": 0, "host": host}]}
    }
}
