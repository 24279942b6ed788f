//! A member with damaged blocks replaces its store by a copy of the primary's.

use std::sync::Arc;

use frond_bson::doc;
use frond_replset::{Standing, State};

use super::elections::{HAND_OVER, standings};
use super::{CONTEXT, copy_store};
use crate::observability::log::Component;
use crate::replication::Member;
use crate::state::Server;

/// Replaces the store if it is damaged and if the set can do without this member for so long. A primary hands over first. Until it is
/// possible, the member goes on: only what needs the damaged blocks fails.
pub async fn replace_damaged(server: &Arc<Server>) {
    let (Some(set), Some(consensus)) = (&server.set.replication, server.set.consensus()) else {
        return;
    };
    let Some(member) = set.member().filter(|member| member.own.is_some()) else {
        return;
    };
    let damage = server.store.damage();
    let Some(first) = damage.first() else {
        return;
    };
    if !can_do_without(&member, &standings(server, &member)) {
        return;
    }
    if member.is_primary() {
        // It goes on if no other member can take over; then it is tried again.
        let _ = consensus.member().transfer(None, HAND_OVER, false).await;
        return;
    }
    let Some(primary) = consensus.role().leader.filter(|id| *id != consensus.id()) else {
        return;
    };
    server.log.warning(
        Component::Replication,
        9_937_013,
        CONTEXT,
        "This server has damaged data, and replaces it by a copy of the primary's",
        &doc! {
            "damagedBlocks": i64::try_from(damage.len()).unwrap_or(i64::MAX),
            "error": &first.damage.what,
            "ns": first.namespace.as_ref().map(ToString::to_string),
        },
    );
    let worker = server.clone();
    // It waits for the end of the member. A panic is logged already.
    let _ = tokio::task::spawn_blocking(move || copy_store(&worker, primary)).await;
}

/// Whether the other members that have the data are a majority of the voters.
fn can_do_without(member: &Member, others: &[Standing]) -> bool {
    let has_data = |id: i32| {
        let state = others.iter().find(|other| other.id == id);
        state.is_some_and(|other| matches!(other.state, State::Primary | State::Secondary))
    };
    let voters = member.config.members.iter().filter(|one| one.is_voter);
    voters.filter(|voter| has_data(voter.id)).count() >= member.config.majority()
}
