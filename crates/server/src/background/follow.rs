//! The threads of a standby: one reads the oplog of the primary, one applies what was read. When the connection is lost, the
//! reader waits until all that it has read is applied, and reconnects at that position.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_client::Error;
use frond_store::Follower;

use crate::internal_collections::find_one;
use crate::observability::log::Component;
use crate::replication::Replication;
use crate::standby::{FollowError, Phase, Source, Standby, entries};
use crate::state::Server;

/// Replies of the primary that wait to be applied, each of 16 MiB at most.
const BATCHES_MAX: usize = 2;

/// The waits between two attempts to connect: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The interval of requests for the position of the primary.
const HELLO_PERIOD: Duration = Duration::from_secs(1);

/// The wait before a batch is tried again that there was no room for.
const ROOM_WAIT: Duration = Duration::from_secs(1);

/// A message from the reader to the applier.
enum Read {
    /// A reply with entries.
    Entries(DocBuf),
    /// The connection was lost: an incomplete transaction is read again.
    Restart,
}

/// Starts the threads of a standby.
///
/// # Errors
/// The system refuses to start a thread.
pub fn follow(server: &Arc<Server>) -> std::io::Result<()> {
    let Some(standby) = &server.set.standby else {
        return Ok(());
    };
    let follower = match server.store.follower() {
        Ok(follower) => follower,
        Err(error) => {
            stop(server, standby, Phase::Failed, &error.to_string());
            return Ok(());
        }
    };
    let (hand_on, take) = sync_channel(BATCHES_MAX);
    let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.to_owned()).spawn(run)
    };
    let (reading, applying) = (server.clone(), server.clone());
    let (by_reader, by_applier) = (standby.clone(), standby.clone());
    let applier = start(
        "frond-applier",
        Box::new(move || apply_all(&applying, &by_applier, follower, &take)),
    )?;
    let reader = start(
        "frond-follow",
        Box::new(move || read_all(&reading, &by_reader, &hand_on)),
    )?;
    standby.keep_threads([reader, applier]);
    Ok(())
}

/// Ends for good: the standby serves what it has. Or it is replaced by a new copy, if the settings allow that.
fn stop(server: &Server, standby: &Standby, phase: Phase, error: &str) {
    standby.note_error(error);
    standby.set_phase(phase);
    let attributes = doc! {"state": phase.name(), "error": error, "source": &*standby.source};
    let text = "The standby has stopped following its primary; reads go on with what it has";
    let (log, context) = (&server.log, "follow");
    log.error(Component::Control, 9_922_001, context, text, &attributes);
    if server.settings.follow_anew && matches!(phase, Phase::Stale | Phase::Diverged) {
        let text = "The standby starts anew from a copy of its primary, as --followAnew says";
        log.warning(Component::Control, 9_922_002, context, text, &attributes);
        standby.ask_for_copy();
        server.stop();
    }
}

fn read_all(server: &Server, standby: &Standby, hand_on: &SyncSender<Read>) {
    let mut pause = PAUSE_MIN;
    while !standby.is_stopping() {
        let began = Instant::now();
        let ended = read_from(server, standby, hand_on);
        // The entries that were read are applied before the position is read again.
        if hand_on.send(Read::Restart).is_err() {
            return;
        }
        standby.wait_applied(PAUSE_MAX, || standby.phase().is_final());
        match ended {
            Ok(()) => return,
            Err(FollowError::Stale(error)) => return stop(server, standby, Phase::Stale, &error),
            Err(FollowError::Diverged(error)) => {
                return stop(server, standby, Phase::Diverged, &error);
            }
            Err(FollowError::Passing(Error::Stopped)) => return,
            Err(FollowError::Passing(error)) => {
                standby.set_phase(Phase::Connecting);
                let error = error.to_string();
                if standby.note_error(&error) {
                    let attributes = doc! {"error": &*error, "source": &*standby.source};
                    let text = "The standby has no connection to its primary, and tries again";
                    server
                        .log
                        .warning(Component::Control, 9_922_003, "follow", text, &attributes);
                }
            }
        }
        if standby.phase().is_final() {
            return;
        }
        pause = if began.elapsed() > PAUSE_MAX {
            PAUSE_MIN
        } else {
            (pause * 2).min(PAUSE_MAX)
        };
        standby.pause(pause);
    }
}

/// The last entry of the own oplog, as it is shown.
fn last_entry(server: &Server) -> frond_error::Result<DocBuf> {
    let at = server.store.oplog().last();
    let own = find_one(&server.store, ("local", "oplog.rs"), doc! {"ts": at})?;
    Ok(own.unwrap_or_default())
}

fn refused(text: impl Into<String>) -> FollowError {
    FollowError::Passing(Error::Settings(text.into()))
}

/// Reads from one connection until it is lost, or the standby is to stop.
fn read_from(
    server: &Server,
    standby: &Standby,
    hand_on: &SyncSender<Read>,
) -> Result<(), FollowError> {
    let Some(set) = &server.set.replication else {
        return Ok(());
    };
    let mut source = Source::connect(&standby.uri, standby.stop.clone())?;
    let mut hello = source.hello()?;
    if hello.set != set.name {
        return Err(refused(format!(
            "the server at {} is of the replica set '{}', and this standby of '{}'",
            standby.source, hello.set, set.name
        )));
    }
    if !hello.is_primary {
        return Err(refused(format!(
            "the server at {} is no primary",
            standby.source
        )));
    }
    learn(set, &mut source)?;
    let own = last_entry(server).map_err(|error| refused(error.to_string()))?;
    source.check(&own)?;
    standby.heard(hello.last);
    let mut reply = source.open(server.store.oplog().last())?;
    standby.connections.add(1);
    standby.set_phase(Phase::Following);
    let attributes = doc! {"source": &*standby.source, "position": server.store.oplog().last()};
    server.log.info(
        Component::Control,
        9_922_004,
        "follow",
        "The standby follows its primary",
        &attributes,
    );
    let mut asked = Instant::now();
    loop {
        let read = entries(&reply);
        let (count, bytes) = (read.len() as u64, reply.len_bytes() as u64);
        if let Some(Value::Timestamp(last)) = read.last().and_then(|last| last.get("ts")) {
            standby.heard(last);
            standby.note_fetched(count, bytes);
            if hand_on.send(Read::Entries(reply)).is_err() {
                return Ok(());
            }
        }
        if standby.is_stopping() || standby.phase().is_final() {
            return Ok(());
        }
        if asked.elapsed() >= HELLO_PERIOD {
            asked = Instant::now();
            let now = source.hello()?;
            if !now.is_primary {
                return Err(refused(format!(
                    "the server at {} is no primary any more",
                    standby.source
                )));
            }
            standby.heard(now.last);
            if now.version != hello.version {
                learn(set, &mut source)?;
            }
            hello = now;
            // Reads the default that `setDefaultRWConcern` has stored.
            if let Err(error) = set.defaults.reload(&server.store) {
                standby.note_error(&error.to_string());
            }
        }
        reply = source.next()?;
    }
}

/// Takes over the configuration of the primary.
fn learn(set: &Replication, source: &mut Source) -> Result<(), FollowError> {
    let config = source.config()?;
    set.learn(&config)
        .map_err(|error| refused(format!("the configuration of the primary: {error}")))
}

fn apply_all(server: &Server, standby: &Standby, mut follower: Follower, take: &Receiver<Read>) {
    while let Ok(read) = take.recv() {
        let reply = match read {
            Read::Restart => {
                follower.restart();
                continue;
            }
            Read::Entries(reply) => reply,
        };
        let all = entries(&reply);
        let (count, bytes) = (all.len() as u64, reply.len_bytes() as u64);
        if !standby.phase().is_final() {
            apply(server, standby, &mut follower, &all);
        }
        standby.note_done(count, bytes);
    }
}

fn apply(server: &Server, standby: &Standby, follower: &mut Follower, all: &[&Doc]) {
    loop {
        match follower.apply(all) {
            Ok(applied) => {
                standby.applied.add(applied.entries);
                standby.commits.add(applied.commits);
                let wall = all.last().and_then(|last| last.get("wall"));
                if let Some(Value::DateTime(wall)) = wall {
                    standby.note_applied_wall(wall);
                }
                return;
            }
            // There may be room later.
            Err(error) if error.is_disk_full() => {
                if standby.is_stopping() {
                    return;
                }
                standby.note_error(&error.to_string());
                standby.pause(ROOM_WAIT);
            }
            Err(error) => {
                stop(server, standby, Phase::Failed, &error.to_string());
                return;
            }
        }
    }
}
