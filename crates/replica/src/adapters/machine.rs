//! The trees of an engine as a state machine.
//!
//! # Invariants
//! 1. Entries are applied in their order, once they are committed. The frames of an entry that this member has created are in the
//!    trees already; then applying it records that it is committed. Those of a member that applies late are left to [`crate::late`].
//! 2. There are no snapshots to send or to install. A snapshot that is built is the mere statement which entry was applied last,
//!    so that the log before it may be purged.
//! 3. The current snapshot, which a leader sends to a member that lacks purged entries, ends with the last entry that may be purged. A member
//!    that answers that it has a snapshot counts as one that has all up to its end, so the end must not be later. One that has not
//!    copies a store (`Event::MustResync`).

use std::io;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::storage::{ApplyResponder, EntryResponder, RaftSnapshotBuilder, RaftStateMachine};

use crate::Runtime;
use crate::ids::{LogId, Snapshot, SnapshotMeta, StoredMembership, entry_id, log_id};
use crate::shared::{Applied, Shared};
use crate::types::Types;

/// Entries that are applied before their progress is seen.
const APPLY_MAX: usize = 128;

pub(crate) struct Machine<R: Runtime> {
    shared: Arc<Shared<R>>,
}

impl<R: Runtime> Machine<R> {
    pub fn new(shared: Arc<Shared<R>>) -> Self {
        Machine { shared }
    }

    async fn apply_part(&self, part: &mut Part<R>) -> io::Result<()> {
        let Some(last) = part.last.take() else {
            return Ok(());
        };
        let through = entry_id(&last);
        if self.shared.defer(through) {
            self.shared.note_applied(through, part.membership.take());
            self.shared.pulse();
        } else {
            let applied = match self.shared.log.apply_own(through) {
                Some(applied) => applied,
                None => {
                    let shared = self.shared.clone();
                    R::blocking(move || shared.log.apply(through)).await?
                }
            };
            applied.map_err(|error| self.shared.fail(error))?;
            self.shared.applied_through(through, part.membership.take());
        }
        for responder in part.responders.drain(..) {
            responder.send(());
        }
        part.count = 0;
        Ok(())
    }
}

/// Entries that are applied together.
struct Part<R: Runtime> {
    count: usize,
    last: Option<LogId>,
    membership: Option<StoredMembership>,
    responders: Vec<ApplyResponder<Types<R>>>,
}

impl<R: Runtime> RaftStateMachine<Types<R>> for Machine<R> {
    type SnapshotData = ();
    type SnapshotBuilder = Statement;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied = self.shared.applied();
        Ok((applied.id.map(log_id), applied.membership))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types<R>>>> + Unpin + OptionalSend,
    {
        let mut part = Part {
            count: 0,
            last: None,
            membership: None,
            responders: Vec::new(),
        };
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            part.count += 1;
            part.last = Some(entry.id);
            part.responders.extend(responder);
            if let Some(membership) = entry.payload.membership {
                part.membership = Some(StoredMembership::new(Some(entry.id), membership));
            }
            if part.count == APPLY_MAX {
                self.apply_part(&mut part).await?;
            }
        }
        self.apply_part(&mut part).await
    }

    async fn get_snapshot_builder(&mut self) -> Statement {
        Statement(self.shared.applied())
    }

    async fn install_snapshot(&mut self, _meta: &SnapshotMeta, _: ()) -> io::Result<()> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a member gets the store of another one as a copy, not as a snapshot",
        ))
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let mut stated = self.shared.applied();
        stated.id = self.shared.purged().min(stated.id);
        Ok(stated.id.is_some().then(|| snapshot(stated)))
    }
}

/// States what was applied.
pub(crate) struct Statement(Applied);

fn snapshot(applied: Applied) -> Snapshot {
    Snapshot {
        meta: SnapshotMeta {
            last_log_id: applied.id.map(log_id),
            last_membership: applied.membership,
        },
        snapshot: (),
    }
}

impl<R: Runtime> RaftSnapshotBuilder<Types<R>> for Statement {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        Ok(snapshot(self.0.clone()))
    }
}
