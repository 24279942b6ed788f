//! A member of a replica set. This file has the work at the beginning and at the end of its time as the primary, and the reload of
//! settings that the members share.

mod damage;
mod elections;
mod heartbeats;
mod membership;
mod service;
mod upkeep;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use frond_bson::{DocBuf, Timestamp, doc};
use frond_client::Uri;
use frond_replica::{Event, Part, Role};
use frond_replset::State;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use crate::feature_version;
use crate::observability::log::Component;
use crate::peers::login_uris;
use crate::replication::{Cause, Consensus, Loss, Replication};
use crate::resync::Resync;
use crate::rollback;
use crate::sessions::AbortReason;
use crate::state::{Server, open_oplog};
use crate::transactions::abort_soon;

pub use elections::standings;
pub use membership::await_complete;
pub use service::{check_quorum, find_own};

/// The name of the task in the log.
const CONTEXT: &str = "ReplCoord";

/// Follows the events of consensus and the stored settings, if the server is a member, until it is dropped.
pub fn follow_set(server: &Arc<Server>) {
    let Some(consensus) = server.set.consensus() else {
        return;
    };
    let Some(events) = consensus.take_events() else {
        return;
    };
    let handle = consensus.handle();
    // The server owns the threads of these tasks.
    let weak = Arc::downgrade(server);
    let (role, stored) = (consensus.watch_role(), server.set.stored.subscribe());
    handle.spawn(follow_events(weak.clone(), events));
    handle.spawn(follow_role(weak.clone(), role));
    handle.spawn(follow_settings(weak.clone(), stored));
    handle.spawn(heartbeats::send_heartbeats(weak.clone()));
    handle.spawn(membership::keep_members(weak.clone()));
    handle.spawn(elections::apply_priorities(weak.clone()));
    handle.spawn(upkeep::keep_up(weak.clone()));
    handle.spawn(upkeep::send_rest(weak.clone()));
    server.set.peers.serve(Arc::new(service::Service(weak)));
}

/// Makes the only voter of a set its primary at once, without the wait for others that a set of several begins with.
///
/// # Errors
/// It does not become the primary.
pub fn lead_alone(server: &Server) -> frond_error::Result<()> {
    let (Some(set), Some(consensus)) = (&server.set.replication, server.set.consensus()) else {
        return Ok(());
    };
    if set.begin_alone()? {
        return await_primary(set, consensus);
    }
    let voters = consensus.role().members.voters;
    let is_alone = voters
        .iter()
        .all(|voters| voters.iter().all(|id| *id == consensus.id()));
    if voters.is_empty() || !is_alone || set.member().is_none() {
        return Ok(());
    }
    consensus.lead_alone()?;
    await_primary(set, consensus)
}

/// Waits until this server, which is elected, has done what a primary does at its beginning.
fn await_primary(set: &Replication, consensus: &Consensus) -> frond_error::Result<()> {
    let mut topology = set.topology();
    while !set.is_primary() {
        let mut changes = topology.clone();
        consensus.wait_for(async move { changes.changed().await.is_ok() })?;
        topology.borrow_and_update();
    }
    Ok(())
}

async fn follow_events(server: Weak<Server>, mut events: UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        let Some(server) = server.upgrade() else {
            return;
        };
        // It writes, and waits for the disk.
        let handled = tokio::task::spawn_blocking(move || handle(&server, event));
        // A panic is logged already.
        let _ = handled.await;
    }
}

fn handle(server: &Arc<Server>, event: Event) {
    let log = |id, text: &str, attributes: &DocBuf| {
        server
            .log
            .info(Component::Replication, id, CONTEXT, text, attributes);
    };
    match event {
        Event::LeadershipGained { term } => {
            let reason = (server.set.consensus()).map(|consensus| consensus.elections().won(term));
            let reason = reason.map_or("", Cause::name);
            log(
                21_331,
                "Transition to primary complete; database writes are now permitted",
                &doc! {"term": shown_term(term), "reason": reason},
            );
            gained(server, term);
        }
        Event::LeadershipLost { term } => {
            let reason = server.set.consensus().map(|consensus| {
                let newest = consensus.role().term;
                consensus.elections().lost(term, newest)
            });
            let reason = reason.map_or("", Loss::text);
            log(
                21_358,
                "Stepping down from primary",
                &doc! {"term": shown_term(term), "reason": reason},
            );
            lost(server);
        }
        Event::MustReopen => {
            log(
                21_592,
                "This server has writes that the set has replaced while it was not the primary. It starts again without them",
                &DocBuf::new(),
            );
            roll_back(server);
            server.restart();
        }
        Event::MustResync { from, .. } => copy_store(server, from),
        Event::Failed { why } => {
            server.log.error(
                Component::Replication,
                9_937_006,
                CONTEXT,
                "This server takes no part in its replica set any more, and serves reads of what it has until it is started again",
                &doc! {"error": why},
            );
            if let Some(set) = &server.set.replication {
                set.set_unfit(State::Recovering);
            }
            restart_later(server);
        }
        Event::HandsOver { .. } | Event::TakesOver { .. } | Event::Committed { .. } => {}
    }
}

/// Prepares what only a primary does, and accepts writes.
fn gained(server: &Server, term: u64) {
    let Some(set) = &server.set.replication else {
        return;
    };
    if let Some(consensus) = set.consensus() {
        consensus.note_leadership();
    }
    server.clients.sessions.begin_to_lead();
    let warn = |what: &str, error: &dyn std::fmt::Display| {
        let attributes = doc! {"what": what, "error": error.to_string()};
        server.log.warning(
            Component::Replication,
            9_937_002,
            CONTEXT,
            "The new primary could not do a task of its beginning; it does when it is elected again or started again",
            &attributes,
        );
    };
    if let Err(error) = server.store.clean_up_as_leader() {
        warn(
            "removing what the primary before it left unfinished",
            &error,
        );
    }
    // A store that has just joined consensus has a configuration that was not read yet.
    set.refresh();
    if set.member().is_some() {
        if let Err(error) = open_oplog(&server.store, &server.settings, &server.log, true) {
            warn("opening the oplog", &error);
        }
        if let Err(error) = feature_version::ensure(&server.store) {
            warn("storing the feature compatibility version", &error);
        }
    }
    reload(server);
    if let Err(error) = set.take_over(term) {
        warn("storing the term of its election", &error);
    }
    server.maintenance.ttl.wake();
}

/// The wait before a server whose member has failed starts again. Reads go on meanwhile, and the reason, such as a full disk, may pass.
const RESTART_WAIT: Duration = Duration::from_secs(60);

/// Starts the server again after a while.
fn restart_later(server: &Arc<Server>) {
    let Some(consensus) = server.set.consensus() else {
        return;
    };
    let weak = Arc::downgrade(server);
    consensus.handle().spawn(async move {
        tokio::time::sleep(RESTART_WAIT).await;
        if let Some(server) = weak.upgrade() {
            server.restart();
        }
    });
}

/// Writes the documents that are about to be discarded to files. The member has ended.
fn roll_back(server: &Server) {
    if let Some(set) = &server.set.replication {
        set.set_unfit(State::Rollback);
    }
    if !server.set.creates_rollback_files.load(Ordering::Relaxed) {
        server.log.warning(
            Component::Replication,
            9_937_021,
            CONTEXT,
            "No files are written of the documents that are discarded, because createRollbackDataFiles is false",
            &DocBuf::new(),
        );
        return;
    }
    let after = Timestamp::from_u64(server.store.oplog().durable());
    let written =
        rollback::write_files(&server.store, after, &server.settings.db_path, &server.log);
    if let Err(error) = written {
        server.log.error(
            Component::Replication,
            9_937_004,
            CONTEXT,
            "Not all documents that are discarded could be written to files",
            &doc! {"error": error.to_string()},
        );
    }
}

/// Ends the member, copies the store of another one, and starts again with the copy. The member `from` is the primary.
fn copy_store(server: &Arc<Server>, from: u64) {
    let (Some(set), Some(consensus)) = (&server.set.replication, server.set.consensus()) else {
        return;
    };
    let mut resync = server.set.resync.lock();
    if resync.is_some() {
        return;
    }
    server.log.info(
        Component::Replication,
        21_273,
        CONTEXT,
        "This server needs a copy of the data of another member",
        &doc! {"source": i64::try_from(from).unwrap_or(i64::MAX)},
    );
    // It must not acknowledge anything from here on.
    consensus.stop();
    let acknowledged = consensus.last_entry();
    let (weak, done) = (Arc::downgrade(server), Arc::downgrade(server));
    let attempts = AtomicUsize::new(0);
    let sources = move || {
        source(
            &*weak.upgrade()?,
            from,
            attempts.fetch_add(1, Ordering::Relaxed),
        )
    };
    let complete = move || {
        if let Some(server) = done.upgrade() {
            server.restart();
        }
    };
    let path = &server.settings.db_path;
    match Resync::start(
        Box::new(sources),
        acknowledged,
        path,
        server.settings.encryption.clone(),
        server.log.clone(),
        Box::new(complete),
    ) {
        Ok(started) => {
            *resync = Some(started);
            drop(resync);
            set.set_unfit(State::Startup2);
        }
        Err(error) => {
            drop(resync);
            server.log.error(
                Component::Replication,
                9_937_005,
                CONTEXT,
                "The copy of another member could not be begun; it is when the server is started again",
                &doc! {"error": error.to_string()},
            );
            set.set_unfit(State::Recovering);
        }
    }
}

/// The member to copy in an attempt, and the key of a list to log in with: another one after each failure.
fn source(server: &Server, primary: u64, attempt: usize) -> Option<Uri> {
    let set = server.set.replication.as_ref()?;
    let mut hosts = set.heartbeats.sources(primary);
    if hosts.is_empty()
        && let Some(member) = set.member()
    {
        let others = member.config.members.iter();
        let others = others.filter(|other| Some(other.id) != member.own);
        hosts.extend(others.map(|other| other.host.clone()));
    }
    let host = hosts.get(attempt.checked_rem(hosts.len())?)?;
    let uris = login_uris(host, &server.settings).ok()?;
    let key = (attempt / hosts.len()).checked_rem(uris.len())?;
    uris.into_iter().nth(key)
}

/// Ends what only a primary does.
fn lost(server: &Server) {
    if let Some(set) = &server.set.replication {
        set.refresh();
    }
    for open in server.clients.sessions.open_transactions() {
        abort_soon(server, &open, AbortReason::SteppedDown);
    }
}

/// A term as BSON has it.
fn shown_term(term: u64) -> i64 {
    i64::try_from(term).unwrap_or(i64::MAX)
}

/// Logs the elections that this server stands for, and other primaries.
fn log_part(server: &Server, role: &Role, leader: &mut Option<(u64, u64)>) {
    let Some(consensus) = server.set.consensus() else {
        return;
    };
    let log = |id, text: &str, attributes: &DocBuf| {
        server
            .log
            .info(Component::Replication, id, CONTEXT, text, attributes);
    };
    let term = shown_term(role.term);
    if matches!(role.part, Part::Candidate | Part::Leader)
        && let Some(cause) = consensus.elections().stands(role.term)
    {
        let (id, text) = cause.line();
        log(id, text, &doc! {"term": term, "reason": cause.name()});
    }
    let other = role.leader.filter(|leader| *leader != consensus.id());
    if let Some(other) = other
        && *leader != Some((role.term, other))
    {
        *leader = Some((role.term, other));
        let peer = role.members.peers.get(&other);
        let host = peer.map_or("", |peer| &*peer.host);
        log(
            9_937_012,
            "Another member is the primary",
            &doc! {"primary": host, "term": term},
        );
    }
}

/// Shows clients another primary, another term, other members.
async fn follow_role(server: Weak<Server>, mut role: watch::Receiver<Role>) {
    let (mut shown, mut leader) = (None, None);
    loop {
        let (now, changed) = {
            let role = role.borrow_and_update();
            // It changes with each entry of the log otherwise.
            let now = (
                role.part,
                role.term,
                role.leader,
                role.is_leading,
                role.members.since,
            );
            (now, (shown != Some(now)).then(|| role.clone()))
        };
        if let Some(role) = changed {
            shown = Some(now);
            let Some(server) = server.upgrade() else {
                return;
            };
            log_part(&server, &role, &mut leader);
            let refreshed = tokio::task::spawn_blocking(move || {
                if let Some(set) = &server.set.replication {
                    set.refresh();
                }
            });
            let _ = refreshed.await;
        }
        if now.0 == Part::Ended || role.changed().await.is_err() {
            return;
        }
    }
}

/// Takes over what another member has stored.
async fn follow_settings(server: Weak<Server>, mut stored: watch::Receiver<u64>) {
    while stored.changed().await.is_ok() {
        let Some(server) = server.upgrade() else {
            return;
        };
        let reloaded = tokio::task::spawn_blocking(move || {
            if !server.leads() {
                reload(&server);
            }
            if let Some(set) = &server.set.replication {
                set.refresh();
            }
        });
        let _ = reloaded.await;
    }
}

/// Reads the stored settings of the server again.
fn reload(server: &Server) {
    let store = &server.store;
    let defaults =
        (server.set.replication.as_ref()).map_or(Ok(()), |set| set.defaults.reload(store));
    let done = defaults
        .and_then(|()| server.set.cluster_parameters.reload(store))
        .and_then(|()| server.execution.query_settings.reload(store))
        .and_then(|()| (server.audit.as_ref()).map_or(Ok(()), |audit| audit.reload(store)));
    if let Err(error) = done {
        server.log.warning(
            Component::Replication,
            9_937_003,
            CONTEXT,
            "Stored settings could not be read; those from before stay in effect",
            &doc! {"error": error.to_string()},
        );
    }
}
