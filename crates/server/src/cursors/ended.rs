//! Cursors whose collection is gone. They are closed, and their errors are kept for the getMores of their clients, until
//! these come, or as long as idle cursors are kept.

use std::collections::HashMap;
use std::sync::Arc;

use frond_error::{Error, ErrorCode};

use super::{CheckedOut, Cursor, Cursors, Entry, State, not_found};

fn plan_killed(message: String) -> Error {
    Error::new(ErrorCode::QueryPlanKilled, message)
}

/// The error for cursors of a dropped collection.
pub fn dropped(uuid: &[u8; 16]) -> Error {
    plan_killed(format!(
        "collection dropped. UUID {}",
        frond_bson::uuid_text(uuid)
    ))
}

/// The error for cursors of a renamed collection.
pub fn renamed(from: &str, to: &str, uuid: &[u8; 16]) -> Error {
    plan_killed(format!(
        "collection renamed from '{from}' to '{to}'. UUID {}",
        frond_bson::uuid_text(uuid)
    ))
}

impl Entry {
    /// Stores a cursor that nothing uses now. One that has ended meanwhile is left to the caller, to be closed without the lock.
    pub(super) fn rest(&mut self, cursor: &mut Option<Box<Cursor>>) {
        self.state = match (&self.ended_by, cursor.take()) {
            (None, Some(resting)) => State::Idle(resting),
            (_, left) => {
                *cursor = left;
                State::Ended
            }
        };
    }
}

impl CheckedOut<'_> {
    /// The error of a cursor whose collection is gone since it was taken out.
    pub fn ended_by(&self) -> Option<Error> {
        self.table.all.lock().get(&self.id)?.ended_by.clone()
    }
}

impl Cursors {
    /// Removes the entry of a cursor that has ended. Returns its error.
    pub(super) fn forget(all: &mut HashMap<i64, Entry>, id: i64) -> Error {
        let entry = all.remove(&id);
        entry
            .and_then(|entry| entry.ended_by)
            .unwrap_or_else(|| not_found(id))
    }

    /// The error of a cursor whose collection is gone; the cursor is gone, too, then.
    pub fn take_ended(&self, id: i64) -> Option<Error> {
        let mut all = self.all.lock();
        match all.get(&id)?.state {
            State::Ended => Some(Cursors::forget(&mut all, id)),
            _ => None,
        }
    }

    /// Closes the cursors of a collection that is gone. Their next getMores fail with this error. Change streams go on: they
    /// report the end of their collection.
    pub fn end(&self, namespace: &str, why: &Error) -> u64 {
        // Dropped after the lock is released: closing may take time.
        let mut closed = Vec::new();
        let mut count = 0;
        let mut all = self.all.lock();
        let of_it = |entry: &&mut Entry| {
            !entry.is_change_stream && entry.ended_by.is_none() && entry.namespace == namespace
        };
        for entry in all.values_mut().filter(of_it) {
            count += 1;
            entry.ended_by = Some(why.clone());
            // It may be large, and is shown for open cursors only.
            entry.originating = Arc::default();
            entry.interrupt();
            if let State::Idle(_) = entry.state {
                closed.push(std::mem::replace(&mut entry.state, State::Ended));
            }
        }
        drop(all);
        count
    }
}
