//! The members of consensus follow the configuration: the primary adds the members that answer, lets those vote that have caught up,
//! and removes those that left. So an interrupted change is completed, by whichever member is the primary then.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_replica::Seat;

use super::CONTEXT;
use crate::observability::log::{Component, Severity};
use crate::replication::{KnownStores, are_seated, peer, seats};
use crate::state::Server;

/// The limit of one change of consensus. It is tried again.
const CHANGE_WAIT: Duration = Duration::from_secs(10);

/// The interval of checks while nothing else happens.
const CHECK: Duration = Duration::from_millis(500);

/// The entries that a member may lack and be taken for caught up: the last change waits for these.
const ENTRIES_BEHIND: u64 = 1000;

/// Changes the members of consensus until the server is dropped.
pub async fn keep_members(server: Weak<Server>) {
    loop {
        let Some(owned) = server.upgrade() else {
            return;
        };
        step(&owned).await;
        let stirred = owned.set.stirred.clone();
        drop(owned);
        tokio::select! {
            () = tokio::time::sleep(CHECK) => {}
            () = stirred.notified() => {}
        }
    }
}

/// Whether consensus has all members of the configuration, with their hosts, delays and votes.
pub fn is_complete(server: &Server) -> bool {
    let (Some(set), Some(consensus)) = (&server.set.replication, server.set.consensus()) else {
        return true;
    };
    let Some(member) = set.member() else {
        return true;
    };
    let members = consensus.role().members;
    let voters = member.config.voters();
    members.voters.len() == 1
        && members.voters.iter().all(|all| all.len() == voters)
        && members.peers.len() == member.config.members.len()
        && (member.config.members.iter()).all(|one| {
            let peer = peer(one);
            members.peers.values().any(|known| *known == peer)
        })
}

/// Waits until the members have joined, at most for a time: those that copy data join later.
pub fn await_complete(server: &Server, limit: Duration) {
    let until = Instant::now() + limit;
    while !is_complete(server) && Instant::now() < until {
        server.set.stirred.notify_waiters();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The members that consensus should have, if they are others than those that it has.
fn wanted_seats(server: &Server) -> Option<BTreeMap<u64, Seat>> {
    let (set, consensus) = (server.set.replication.as_ref()?, server.set.consensus()?);
    let member = set.member().filter(|member| member.is_primary())?;
    let (role, followers) = (consensus.role(), consensus.followers());
    let timeout = u64::try_from(member.config.settings.heartbeat_timeout_secs).unwrap_or(0);
    let timeout = Duration::from_secs(timeout);
    let answering = |id: i32| {
        let heard = set.heartbeats.heard(id);
        let is_fresh = heard.answered.is_some_and(|at| at.elapsed() < timeout);
        heard.report.filter(|_| is_fresh).map(|report| report.store)
    };
    let last = role.last.unwrap_or(0);
    let is_caught_up = |store: u64| {
        let follower = followers.iter().find(|follower| follower.id == store);
        let matched = follower.and_then(|follower| follower.matched);
        matched.is_some_and(|matched| matched.index + ENTRIES_BEHIND >= last)
    };
    let known = KnownStores {
        own: consensus.id(),
        members: &role.members,
        answering: &answering,
        is_caught_up: &is_caught_up,
    };
    let wanted = seats(&member.config, member.own?, &known);
    (!are_seated(&wanted, &role.members)).then_some(wanted)
}

async fn step(server: &Arc<Server>) {
    let (Some(wanted), Some(consensus)) = (wanted_seats(server), server.set.consensus()) else {
        return;
    };
    let hosts: Vec<&str> = wanted.values().map(|seat| &*seat.peer.host).collect();
    let voters = wanted.values().filter(|seat| seat.votes).count();
    let mut attributes = doc! {"members": hosts.join(","), "voters": voters as i64};
    match consensus.reconfigure(wanted, CHANGE_WAIT).await {
        Ok(()) => server.log.info(
            Component::Replication,
            9_937_010,
            CONTEXT,
            "The members of the replica set have changed",
            &attributes,
        ),
        Err(error) => {
            attributes.push("error", &*error.to_string());
            server.log.line(
                Severity::Debug(1),
                Component::Replication,
                9_937_011,
                CONTEXT,
                "The members of the replica set could not be changed; it is tried again",
                &attributes,
            );
        }
    }
}
