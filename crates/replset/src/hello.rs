//! The fields of `hello` and `isMaster` about the set.

use frond_bson::{DocBuf, doc};

use crate::config::SetConfig;
use crate::position::{Position, election_id};
use crate::state::State;

#[cfg(test)]
mod tests;

/// An idle primary writes a note to the oplog at this interval. Drivers estimate the lag of a secondary from the last write of the
/// primary, and without such notes they would overestimate it; the smallest `maxStalenessSeconds`, 90, allows for this interval.
pub const IDLE_WRITE_SECONDS: i64 = 10;

/// Whether a primary whose last write was at one time must write a note at the other, both in milliseconds since 1970.
pub fn needs_idle_write(last_ms: i64, now_ms: i64) -> bool {
    now_ms.saturating_sub(last_ms) >= IDLE_WRITE_SECONDS * 1000
}

/// The last writes that a member has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastWrite {
    /// The last one that it applied.
    pub applied: Position,
    /// The last one that a majority has.
    pub majority: Position,
}

/// A member, as `hello` shows it.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// The configuration that it has.
    pub config: &'a SetConfig,
    /// Its `_id`. None if the configuration does not list it.
    pub own: Option<i32>,
    /// Its state, which decides between primary and secondary.
    pub state: State,
    /// Whether it takes writes: a primary that still catches up does not, and looks like a secondary.
    pub takes_writes: bool,
    /// The `_id` of the primary, if it knows one.
    pub primary: Option<i32>,
    /// The term of its election, while it is the primary.
    pub election_term: Option<i64>,
    /// The last writes that it has.
    pub last_write: LastWrite,
    /// Whether the request is `isMaster`, with its older name of the field for a primary.
    pub is_legacy: bool,
}

const INFO_ABSENT: &str = "Does not have a valid replica set config";

fn writable_name(is_legacy: bool) -> &'static str {
    if is_legacy {
        "ismaster"
    } else {
        "isWritablePrimary"
    }
}

/// The fields of a server that was started for a set and is no member of one: without a configuration, or removed.
/// Drivers leave it out until it is one.
pub fn describe_absent(is_legacy: bool, reply: &mut DocBuf) {
    reply.push(writable_name(is_legacy), false);
    reply.push("secondary", false);
    reply.push("info", INFO_ABSENT);
    reply.push("isreplicaset", true);
}

impl Hello<'_> {
    /// Adds the fields to a reply, behind `topologyVersion`.
    pub fn describe(&self, reply: &mut DocBuf) {
        let own = self.own.and_then(|id| self.config.member(id));
        let Some(own) = own.filter(|_| self.state != State::Removed) else {
            describe_absent(self.is_legacy, reply);
            return;
        };
        self.describe_set(reply);
        let is_primary = self.state == State::Primary && self.takes_writes;
        reply.push(writable_name(self.is_legacy), is_primary);
        let follows =
            self.state == State::Secondary || (self.state == State::Primary && !is_primary);
        reply.push("secondary", follows);
        if let Some(primary) = self.primary.and_then(|id| self.config.member(id)) {
            reply.push("primary", &*primary.host);
        }
        if own.priority == 0.0 {
            reply.push("passive", true);
        }
        if own.hidden {
            reply.push("hidden", true);
        }
        if own.delay_secs > 0 {
            reply.push("secondaryDelaySecs", own.delay_secs);
        }
        if !own.tags.is_empty() {
            reply.push("tags", &own.tags_doc());
        }
        reply.push("me", &*own.host);
        if let Some(term) = self.election_term.filter(|_| is_primary) {
            reply.push("electionId", election_id(term));
        }
        let LastWrite { applied, majority } = self.last_write;
        reply.push(
            "lastWrite",
            &doc! {
                "opTime": &applied.op.to_doc(),
                "lastWriteDate": applied.date(),
                "majorityOpTime": &majority.op.to_doc(),
                "majorityWriteDate": majority.date(),
            },
        );
    }

    /// The lists of hosts, the name and the version. Drivers never see hidden members. There is no list `arbiters`, as in a set
    /// of MongoDB that has none.
    fn describe_set(&self, reply: &mut DocBuf) {
        for (field, electable) in [("hosts", true), ("passives", false)] {
            let members = self.config.members.iter();
            let listed: Vec<&str> = members
                .filter(|member| !member.hidden && member.is_electable() == electable)
                .map(|member| &*member.host)
                .collect();
            // MongoDB leaves an empty list out.
            if !listed.is_empty() {
                reply.push_array(field, |list| {
                    for host in listed {
                        list.push(host);
                    }
                });
            }
        }
        reply.push("setName", &*self.config.name);
        reply.push("setVersion", self.config.version);
    }
}
