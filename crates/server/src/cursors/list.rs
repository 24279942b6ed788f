//! The open cursors, for those who watch the server.

use super::{CursorCounts, CursorInfo, Cursors};

impl Cursors {
    /// Counts the open cursors.
    pub fn counts(&self) -> CursorCounts {
        let mut counts = CursorCounts::default();
        for entry in self.all.lock().values() {
            counts.open += 1;
            counts.pinned += i64::from(entry.in_use());
            counts.no_timeout += i64::from(entry.no_timeout);
        }
        counts
    }

    pub fn list(&self) -> Vec<CursorInfo> {
        self.all
            .lock()
            .iter()
            .map(|(id, entry)| CursorInfo {
                owner: entry.owner.clone(),
                id: *id,
                namespace: entry.namespace.clone(),
                session: entry.session,
                no_timeout: entry.no_timeout,
                originating: entry.originating.clone(),
                in_use: entry.in_use(),
            })
            .collect()
    }
}
