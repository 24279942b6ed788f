//! The part of a member in its set, for monitoring: elections, the other members, the log, messages.

use std::time::Duration;

use frond_bson::{DocBuf, Timestamp, doc};
use frond_replset::State;

use crate::background::standings;
use crate::replication::{Consensus, Member, Replication, member_id};
use crate::state::Server;

/// The section `electionMetrics`; none if the server is in no set with elections.
pub fn elections(server: &Server) -> Option<DocBuf> {
    let consensus = server.set.consensus()?;
    Some(consensus.elections().to_doc())
}

/// The part `replicaSet` of the section `frond`; none before the set is initiated.
pub fn describe(server: &Server) -> Option<DocBuf> {
    let (set, consensus) = (server.set.replication.as_ref()?, server.set.consensus()?);
    let member = set.member()?;
    let role = consensus.role();
    let waits = &server.metrics.replication_waits;
    let mut part = doc! {
        "state": member.state.number(),
        "isPrimary": member.is_primary(),
        "term": member.term,
        "hasPrimary": member.primary.is_some(),
        "logBytes": i64::try_from(consensus.log_bytes()).unwrap_or(i64::MAX),
        "isChangingMembers": role.members.voters.len() > 1 || !role.are_members_committed,
        "waits": {
            "num": waits.count.get(),
            "totalMicros": waits.micros.get(),
            "timeouts": server.metrics.replication_timeouts.get(),
        },
    };
    if let Some(delay) = consensus.delay_secs() {
        part.push("delaySecs", i64::from(delay));
    }
    part.push_doc("messages", |messages| {
        let (asked, answered) = (
            server.set.network.as_ref().map(|network| network.traffic()),
            server.set.peers.traffic(),
        );
        let sum = |of: fn(&crate::peers::Traffic) -> i64| asked.map_or(0, of) + of(answered);
        messages.push("sent", asked.map_or(0, |sent| sent.requests.get()));
        messages.push("received", answered.requests.get());
        messages.push("bytesSent", sum(|traffic| traffic.bytes_out.get()));
        messages.push("bytesReceived", sum(|traffic| traffic.bytes_in.get()));
    });
    part.push_doc("members", |list| {
        for other in members(server, set, consensus, &member) {
            list.push(&other.host, &other.to_doc());
        }
    });
    Some(part)
}

/// A member, as this one knows it.
struct Known {
    host: String,
    state: State,
    /// The seconds of writes that it lacks; none if no primary is known, or the member does not answer.
    lag: Option<u32>,
    ping: Option<Duration>,
}

impl Known {
    fn to_doc(&self) -> DocBuf {
        let is_up = !matches!(self.state, State::Down | State::Unknown);
        let mut doc = doc! {"state": self.state.number(), "isUp": is_up};
        if let Some(lag) = self.lag.filter(|_| is_up) {
            doc.push("lagSeconds", i64::from(lag));
        }
        if let Some(ping) = self.ping {
            let micros = i64::try_from(ping.as_micros()).unwrap_or(i64::MAX);
            doc.push("pingMicros", micros);
        }
        doc
    }
}

/// The seconds between the last write of the primary and the last one that a member has applied.
fn lag(primary: Timestamp, applied: Timestamp) -> u32 {
    primary.time.saturating_sub(applied.time)
}

fn members(
    server: &Server,
    set: &Replication,
    consensus: &Consensus,
    member: &Member,
) -> Vec<Known> {
    let others = standings(server, member);
    let own_last = set.last_write();
    let applied = |id: i32| {
        if Some(id) == member.own {
            return Some(own_last);
        }
        let found = others.iter().find(|other| other.id == id);
        found.map(|other| other.applied.ts)
    };
    let newest = member.primary.and_then(applied);
    let (role, followers) = (consensus.role(), consensus.followers());
    // The position in the last heartbeat of a follower is older than the writes of the primary meanwhile.
    let has_all = |id: i32| {
        followers.iter().any(|follower| {
            let peer = role.members.peers.get(&follower.id);
            let is_it = peer.and_then(member_id) == Some(id);
            is_it && member.is_primary() && follower.matched >= role.committed
        })
    };
    let known = |configured: &frond_replset::Member| {
        let id = configured.id;
        let other = others.iter().find(|other| other.id == id);
        Known {
            host: configured.host.clone(),
            state: other.map_or(member.state, |other| other.state),
            lag: match (newest, applied(id)) {
                _ if has_all(id) => Some(0),
                (Some(newest), Some(applied)) => Some(lag(newest, applied)),
                _ => None,
            },
            ping: set.heartbeats.heard(id).ping,
        }
    };
    member.config.members.iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::TestServer;

    #[test]
    fn a_member_that_is_ahead_has_no_lag() {
        let at = |time, increment| Timestamp { time, increment };
        assert_eq!(lag(at(9, 1), at(4, 7)), 5);
        assert_eq!(lag(at(9, 1), at(9, 7)), 0);
        assert_eq!(lag(at(8, 1), at(9, 1)), 0);
    }

    #[test]
    fn a_member_that_does_not_answer_has_no_lag() {
        let known = |state| Known {
            host: "a:1".to_owned(),
            state,
            lag: Some(3),
            ping: Some(Duration::from_millis(2)),
        };
        let up = known(State::Secondary).to_doc();
        assert_eq!(up.get_i64("lagSeconds"), Some(3));
        assert_eq!(up.get_i64("pingMicros"), Some(2000));
        let down = known(State::Down).to_doc();
        assert_eq!(down.get_bool("isUp"), Some(false));
        assert!(!down.contains_key("lagSeconds"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_only_member_has_won_its_election() {
        let mut server = TestServer::member("rs0");
        let reply = server.run("admin", doc! {"serverStatus": 1});
        let frond = reply.get_doc("frond").unwrap();
        assert!(!frond.contains_key("replicaSet"), "it is not initiated");
        server.run("admin", doc! {"replSetInitiate": {}});
        server.run("db", doc! {"insert": "c", "documents": [{"_id": 1}]});
        let reply = server.run("admin", doc! {"serverStatus": 1});
        let elections = reply.get_doc("electionMetrics").unwrap();
        let alone = elections.get_doc("freezeTimeout").unwrap();
        assert_eq!(
            (alone.get_i64("called"), alone.get_i64("successful")),
            (Some(1), Some(1))
        );
        let repl = reply.get_doc("repl").unwrap();
        assert_eq!(repl.get_bool("isWritablePrimary"), Some(true));
        assert!(repl.contains_key("electionId") && repl.contains_key("lastWrite"));
        let part = reply.get_doc("frond").unwrap();
        let part = part.get_doc("replicaSet").unwrap();
        assert_eq!(part.get_bool("isPrimary"), Some(true));
        assert_eq!(part.get_doc("waits").unwrap().get_i64("timeouts"), Some(0));
        let members = part.get_doc("members").unwrap();
        let own = members.get_doc("127.0.0.1:27017").unwrap();
        assert_eq!(own.get_i32("state"), Some(1));
        assert_eq!(own.get_i64("lagSeconds"), Some(0));
    }
}
