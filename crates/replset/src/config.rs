//! The configuration of a set: read, checked as a whole, written.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::Result;

use crate::fields::{flag, integer, invalid, object, only};
use crate::host::is_localhost;
use crate::member::{Member, parse_list};
use crate::settings::Settings;

#[cfg(test)]
mod tests;

/// The most members of a set.
pub const MEMBERS_MAX: usize = 50;

/// The most members that vote.
pub const VOTERS_MAX: usize = 7;

const FIELDS: &[&str] = &[
    "_id",
    "version",
    "term",
    "members",
    "protocolVersion",
    "writeConcernMajorityJournalDefault",
    "settings",
    "configsvr",
];

/// The configuration of a replica set.
#[derive(Clone, Debug, PartialEq)]
pub struct SetConfig {
    /// The name of the set.
    pub name: String,
    /// Raised by each change, from 1.
    pub version: i32,
    /// The term of the primary that made the change. None after a forced one, which has no primary.
    pub term: Option<i64>,
    /// The members, in the order that `hello` lists them.
    pub members: Vec<Member>,
    /// Whether a write concern `majority` waits until the members have the write on disk.
    pub majority_is_journaled: bool,
    /// The settings, with their defaults.
    pub settings: Settings,
}

impl SetConfig {
    /// Reads a configuration of `replSetInitiate`, `replSetReconfig` or `local.system.replset`, and checks it.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93), `TypeMismatch` (14), `BadValue` (2) and `NoSuchKey` (4) of write concerns with names.
    pub fn parse(given: &Doc) -> Result<SetConfig> {
        let config = SetConfig::read(given)?;
        config.check().map_err(invalid)?;
        Ok(config)
    }

    /// The configuration without the rules that join members.
    pub(crate) fn read(given: &Doc) -> Result<SetConfig> {
        only(given, FIELDS, "the replica set configuration")?;
        let Some(Value::String(name)) = given.get("_id") else {
            return Err(invalid(
                "the replica set configuration needs the name of the set as its _id",
            ));
        };
        if name.is_empty() {
            return Err(invalid("Replica set configuration _id must not be empty"));
        }
        let version = integer(given, "version")?.unwrap_or(1);
        let version = i32::try_from(version)
            .ok()
            .filter(|version| *version >= 1)
            .ok_or_else(|| {
                invalid(format!(
                    "replica set version must be between 1 and {}, not {version}",
                    i32::MAX
                ))
            })?;
        let term = match integer(given, "term")? {
            // MongoDB writes -1 for a configuration without a term.
            None | Some(-1) => None,
            Some(term) if term >= 0 => Some(term),
            Some(term) => {
                return Err(invalid(format!(
                    "term field value of {term} is out of range: it must be at least 0"
                )));
            }
        };
        if flag(given, "configsvr", false)? {
            return Err(invalid(
                "this server is not sharded: a replica set of config servers is not supported",
            ));
        }
        match integer(given, "protocolVersion")?.unwrap_or(1) {
            1 => {}
            other => {
                return Err(invalid(format!(
                    "protocolVersion field value of {other} is not 1, the only value that is supported"
                )));
            }
        }
        let members = parse_list(given, MEMBERS_MAX)?;
        let settings = object(given, "settings")?.unwrap_or(Doc::empty());
        Ok(SetConfig {
            name: name.to_owned(),
            version,
            term,
            majority_is_journaled: flag(given, "writeConcernMajorityJournalDefault", true)?,
            settings: Settings::parse(settings, &members)?,
            members,
        })
    }

    /// The rules that join members, as the text of the first that is broken.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (at, member) in self.members.iter().enumerate() {
            for (before, other) in self.members[..at].iter().enumerate() {
                if member.id == other.id {
                    return Err(format!(
                        "Found two member configurations with same _id field, members.{before}._id == members.{at}._id \
                         == {}",
                        member.id
                    ));
                }
                if member.host.eq_ignore_ascii_case(&other.host) {
                    return Err(format!(
                        "Found two member configurations with same host field, members.{before}.host == \
                         members.{at}.host == {}",
                        member.host
                    ));
                }
            }
        }
        let local = self
            .members
            .iter()
            .filter(|m| is_localhost(&m.host))
            .count();
        if local != 0 && local != self.members.len() {
            return Err(format!(
                "Either all host names in a replica set configuration must be localhost references, or none must be; \
                 found {local} out of {}",
                self.members.len()
            ));
        }
        let voters = self.voters();
        if !(1..=VOTERS_MAX).contains(&voters) {
            return Err(format!(
                "Replica set configuration contains {voters} voting members, but must be at least 1 and no more than \
                 {VOTERS_MAX}"
            ));
        }
        if !self.members.iter().any(Member::is_electable) {
            return Err(
                "Replica set configuration must contain at least one non-arbiter member with priority > 0"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The document that `local.system.replset` has and `replSetGetConfig` returns.
    pub fn to_doc(&self) -> DocBuf {
        let mut doc = doc! {"_id": &*self.name, "version": self.version};
        if let Some(term) = self.term {
            match i32::try_from(term) {
                Ok(term) => doc.push("term", term),
                Err(_) => doc.push("term", term),
            }
        }
        doc.push_array("members", |list| {
            for member in &self.members {
                list.push(&member.to_doc());
            }
        });
        doc.push("protocolVersion", 1i64);
        doc.push(
            "writeConcernMajorityJournalDefault",
            self.majority_is_journaled,
        );
        doc.push("settings", &self.settings.to_doc());
        doc
    }

    /// The member with this `_id`.
    pub fn member(&self, id: i32) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The member at this host.
    pub fn member_at(&self, host: &str) -> Option<&Member> {
        let is_there = |member: &&Member| member.host.eq_ignore_ascii_case(host);
        self.members.iter().find(is_there)
    }

    /// `votingMembersCount`. Every voter has data, so that it is also `writableVotingMembersCount`.
    pub fn voters(&self) -> usize {
        self.members.iter().filter(|member| member.is_voter).count()
    }

    /// `majorityVoteCount`: the votes that elect a primary. Every voter has data, so that it is also
    /// `writeMajorityCount`, the acknowledgments that a write concern `majority` needs.
    pub fn majority(&self) -> usize {
        self.voters() / 2 + 1
    }

    /// Whether a member that has this one takes over the other: it has a later term, or the same and a higher version. Without
    /// a term on either side, as after a forced change, the version decides.
    pub fn is_newer_than(&self, other: &SetConfig) -> bool {
        match (self.term, other.term) {
            (Some(mine), Some(theirs)) => (mine, self.version) > (theirs, other.version),
            _ => self.version > other.version,
        }
    }

    /// The version and the term, as MongoDB's messages show them.
    pub(crate) fn shown(&self) -> String {
        format!(
            "{{version: {}, term: {}}}",
            self.version,
            self.term.unwrap_or(-1)
        )
    }
}
