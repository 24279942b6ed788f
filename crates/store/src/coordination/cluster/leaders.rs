//! Tasks that one server does for all: the first one that applies leads, until it leaves or its lease is over.

use frond_bson::doc;

use super::registry::{binary, id_of};
use super::{Cluster, LEADER};
use frond_storage::error::Result;

impl Cluster {
    /// Whether this server leads a task, such as the removal of expired documents. Becomes the leader if there is none.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn leads(&self, task: &str) -> Result<bool> {
        if !self.is_valid() {
            return Ok(false);
        }
        let me = *self.me.lock();
        let key = [&[LEADER], task.as_bytes()].concat();
        let mut dead = None;
        loop {
            let leader = self.update(&key, |stored| {
                let leader = stored.and_then(|stored| id_of(stored, "id"));
                if let Some(leader) = leader.filter(|leader| dead != Some(*leader)) {
                    return Ok((None, leader));
                }
                let mut after = doc! {"id": binary(&me.id)};
                after.push("server", i64::from(me.number));
                Ok((Some(after), me.id))
            })?;
            if leader == me.id {
                return Ok(self.is_valid());
            }
            if self.is_live(&leader)? {
                return Ok(false);
            }
            dead = Some(leader);
        }
    }
}
