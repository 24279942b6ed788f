//! Removes temporary collections and trees that commands of servers left behind which are gone. `catalog/orphan_cleanup.rs` knows
//! what belongs to whom, because a start of a single server drops such trees as well.

use crate::store::DocumentStore;
use frond_storage::error::Result;

impl DocumentStore {
    /// With several servers over one keyspace: removes what commands of servers that are gone have left behind, if this server does
    /// that for all. Call it every few seconds. Returns how many collections and trees there were.
    ///
    /// # Errors
    /// Errors of the engine; `NotWritablePrimary` (10107).
    pub fn remove_leftovers(&self) -> Result<usize> {
        if self.is_shared() && self.leads("leftovers")? {
            self.catalog().drop_leftovers()
        } else {
            Ok(0)
        }
    }
}
