//! Work that has time: the flusher does a little of it whenever it has nothing to flush.

use crate::engine::Engine;

/// Nodes that are read at a time.
const NODES: usize = 64;

impl Engine {
    /// Whether there is any.
    pub(crate) fn has_maintenance(&self) -> bool {
        self.sweep.lock().is_some() || self.runs.orphans.has_work()
    }

    /// Does a little of it.
    pub(crate) fn maintain(&self) {
        self.release_orphans(NODES);
        self.sweep_some();
    }

    /// Frees what only orphans refer to, up to `most` of them. True if there are more.
    pub(crate) fn release_orphans(&self, most: usize) -> bool {
        self.runs.orphans.release(most, |error| {
            // The parts below stay in use until the sweep of the next open.
            self.runs.damage.record(None, &error);
            self.runs.data.space.note_leaks();
        })
    }

    /// Continues the search for used space that nothing refers to. False if there is nothing more to search.
    pub(crate) fn sweep_some(&self) -> bool {
        let mut sweep = self.sweep.lock();
        // A panic in a step would leave out what is used below a node, and the rest would be freed. So the sweep is out of
        // its place meanwhile: a panic gives it up.
        let Some(mut running) = sweep.take() else {
            return false;
        };
        match running.step(&self.runs, NODES) {
            Ok(false) => {
                *sweep = Some(running);
                return true;
            }
            Ok(true) => {}
            // The space in use below the damage is not known, so it stays as it is; the next open tries again.
            Err(error) => self.runs.damage.record(None, &error),
        }
        false
    }
}
